//! The page in a host: below a prefix, with and without the script, with pages of the host.

use super::bench::{Bench, HOUR, get};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::{Extension, Router, routing};
use timers_web::{Description, FormToken, TimersWeb};
use tourbillon_durable::Options;

#[tokio::test]
async fn the_page_works_below_any_prefix() {
    let bench = Bench::new();
    let host: Router = Router::new().nest("/admin/timers", bench.web.router());
    for (address, leads_to) in
        [("/admin/timers", "timers/overview"), ("/admin/timers?a=/", "timers/overview")]
    {
        assert_eq!(get(&host, address).await.location(), leads_to, "{address}");
    }
    assert_eq!(bench.get("").await.location(), "overview");
    for (address, leads_to) in
        [("timers/a%2Fb%0A", "../timer?id=a%2Fb%0A"), ("dead-letters/7", "../letter?number=7")]
    {
        assert_eq!(bench.get(address).await.location(), leads_to, "{address}");
    }
    for name in ["overview", "timers", "dead", "timer?id=a", "pause", "style.css", "script.js"] {
        let reply = get(&host, &format!("/admin/timers/{name}")).await;
        assert_eq!(reply.status, StatusCode::OK, "{name}");
        for address in ["href=\"/", "action=\"/", "src=\"/"] {
            assert!(!reply.text.contains(address), "{name} has an absolute address: {address}");
        }
    }
}

#[tokio::test]
async fn scripts_are_allowed_only_if_the_script_is_on() {
    let bench = Bench::new();
    for (is_on, web) in [(true, bench.web.clone()), (false, bench.web.clone().script(false))] {
        let router = web.router();
        for name in ["/overview", "/timers", "/letter?number=1", "/nothing?"] {
            let reply = get(&router, name).await;
            if name == "/nothing?" {
                continue;
            }
            let policy = reply.headers["content-security-policy"].to_str().unwrap();
            assert!(policy.starts_with("default-src 'none'"), "{policy}");
            assert!(!policy.contains("unsafe"), "{policy}");
            assert_eq!(policy.contains("script-src 'self'"), is_on, "{policy}");
            assert_eq!(reply.text.contains("<script"), is_on, "{name}");
            assert!(!reply.text.contains(" style="), "{name} has a style of its own");
        }
    }
}

#[tokio::test]
async fn errors_are_pages() {
    let bench = Bench::new();
    for (address, status, words) in [
        ("letter?number=7", 404, "there is no dead letter 7 any more"),
        ("letter?number=x", 400, "number"),
        ("timer", 400, "id"),
        ("cancel?id=gone", 404, "there is no timer"),
        ("timers?show=tired", 400, "expected one of overdue, running"),
        ("timers?from=tomorrow", 400, "from: expected a time such as"),
        ("timers?after=x", 400, "expected a position"),
    ] {
        let reply = bench.get(address).await;
        assert_eq!(reply.status.as_u16(), status, "{address}");
        assert!(reply.text.contains("<h1>") && reply.text.contains(words), "{}", reply.text);
        assert!(reply.headers.contains_key("content-security-policy"), "{address}");
    }
}

#[tokio::test]
async fn everything_is_escaped() {
    let bench = Bench::new();
    let (id, payload) = ("<b>\u{202e}", "<script>alert(1)</script>\n\u{202e}");
    bench.timers.insert(id, payload, HOUR, Options::new()).await.unwrap();
    for address in ["overview", "timers", "timer?id=%3Cb%3E%E2%80%AE", "cancel?id=%3Cb%3E%E2%80%AE"]
    {
        let page = bench.page(address).await;
        assert!(page.contains("&lt;b&gt;\\u{202e}"), "{address}: {page}");
        assert!(!page.contains("<b>") && !page.contains("alert(1)</script>"), "{address}: {page}");
        assert!(!page.contains('\u{202e}'), "{address}: {page}");
    }
}

#[tokio::test]
async fn the_host_describes_payloads_and_warns() {
    let mut bench = Bench::new();
    bench.web =
        bench.web.clone().name("tea").log_out("../leave").notice(|| Some("no water".into()));
    bench.web = bench.web.clone().describe(|cup| {
        Description::new("a cup").field("bytes", cup.len().to_string()).body("two\nlines")
    });
    bench
        .timers
        .insert("green", "leaf", HOUR, Options::new().header("key", "secret"))
        .await
        .unwrap();
    let page = bench.page("timer?id=green").await;
    for text in
        ["a cup", "<dt>bytes</dt><dd>4</dd>", "two\nlines", "no water", "../leave", "– tea<"]
    {
        assert!(page.contains(text), "{text} is not in {page}");
    }
    assert!(page.contains(">key<") && !page.contains("secret"), "{page}");
    let own = bench.web.page("/", "Log in", "<h1>Who are you?</h1>");
    assert!(own.headers().contains_key("content-security-policy"));
}

#[tokio::test]
async fn a_page_of_the_host_stands_in_the_menu() {
    let bench = Bench::new();
    let web = bench.web.clone().link("receivers", "Receivers").log_out("leave");
    let receivers = async |State(web): State<TimersWeb>, request: Request| {
        let (parts, _) = request.into_parts();
        web.page_in_menu(&parts, "Receivers", "<h1>None yet</h1>")
    };
    let pages = Router::new().route("/receivers", routing::get(receivers)).merge(web.router());
    let token = Extension(FormToken::new("the token"));
    let pages = Router::new().nest("/admin", pages.layer(token).with_state(web));
    let link = r#"<a href="receivers">Receivers</a>"#;
    assert!(get(&pages, "/admin/overview").await.text.contains(link));
    let own = get(&pages, "/admin/receivers").await;
    for text in [
        r#"<a href="receivers" aria-current="page">Receivers</a>"#,
        r#"<a href="overview">Overview</a>"#,
        "<title>Receivers – timers</title>",
        "<h1>None yet</h1>",
        r#"name="form_token" value="the token""#,
    ] {
        assert!(own.text.contains(text), "{text} is not in {}", own.text);
    }
    assert!(own.headers.contains_key("content-security-policy"));
}
