//! The page for people, by HTTP.

use super::bench::{Api, Bench, TOKEN, until};
use super::calls::allowing;
use super::receiver::Receiver;
use serde_json::json;
use sha2::{Digest, Sha256};
use timerd::Config;

/// A browser with a session.
pub(crate) struct Browser<'a> {
    api: &'a Api,
    pub(crate) cookie: String,
}

impl<'a> Browser<'a> {
    pub(crate) async fn log_in(api: &'a Api) -> Self {
        let reply = form(api, "", "/login", &format!("token={}", TOKEN.replace(' ', "+"))).await;
        assert_eq!((reply.0, &*reply.1), (303, "/"));
        let cookie = reply.2.split(';').next().unwrap().to_owned();
        assert!(reply.2.contains("HttpOnly") && reply.2.contains("SameSite=Strict"), "{}", reply.2);
        Self { api, cookie }
    }

    pub(crate) async fn page(&self, path: &str) -> String {
        let reply = self.api.send_with("GET", path, "", "cookie", &self.cookie).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let policy = reply.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        reply.text
    }

    /// Returns the token of the forms of a page.
    async fn csrf(&self) -> String {
        let page = self.page("/overview").await;
        let rest = page.split(r#"name="form_token" value=""#).nth(1).unwrap();
        rest.split('"').next().unwrap().to_owned()
    }

    async fn click(&self, action: &str) -> (u16, String) {
        self.submit(action, "").await
    }

    /// Submits a form with these fields.
    async fn submit(&self, action: &str, fields: &str) -> (u16, String) {
        let fields = format!("form_token={}&{fields}", self.csrf().await);
        let reply = form(self.api, &self.cookie, action, &fields).await;
        (reply.0, reply.1)
    }
}

/// Posts a form, and returns the status, the location and the cookie of the response.
pub(crate) async fn form(
    api: &Api,
    cookie: &str,
    path: &str,
    fields: &str,
) -> (u16, String, String) {
    let reply = api.post_form(path, fields, cookie).await;
    let header = |name| {
        let value = reply.headers.get(name).map(|value| value.to_str().unwrap());
        value.unwrap_or_default().to_owned()
    };
    (reply.status.as_u16(), header("location"), header("set-cookie"))
}

#[tokio::test]
async fn the_page_shows_what_is_due_and_what_died_and_why() {
    let mut receiver = Receiver::with(&[410]).await;
    let bench = Bench::with(allowing(receiver.port())).await;
    let api = &bench.api;
    let browser = Browser::log_in(api).await;
    api.put("gone%20%3Cb%3E", &receiver.url("/hook?key=secret"), json!({ "after": "0s" }))
        .await
        .json(201);
    let later = receiver.url("/later?key=secret");
    api.put("later", &later, json!({ "after": "30d" })).await.json(201);
    receiver.next().await;
    let letter = api.letters(1).await.remove(0);
    let page = browser.page("/overview").await;
    for text in ["later", "POST http://127.0.0.1:", "gone &lt;b&gt;", "410 Gone"] {
        assert!(page.contains(text), "{text} is not in {page}");
    }
    assert!(!page.contains("<b>") && !page.contains("secret"), "{page}");
    until("the run", async || {
        let page = browser.page("/timer?id=gone%20%3Cb%3E").await;
        page.contains("There is no such timer").then_some(())?;
        (page.contains("410 Gone") && page.contains(r#"data-title="Status">410<"#)).then_some(())
    })
    .await;

    // The overview and the page of the timer lead to the letter.
    let link = format!("letter?number={}", letter["number"]);
    for path in ["/overview", "/timer?id=gone%20%3Cb%3E"] {
        assert!(browser.page(path).await.contains(&link), "{path}");
    }
    let page = browser.page(&format!("/{link}")).await;
    assert!(page.contains("410 Gone") && page.contains("Redrive"), "{page}");
    let redrive = format!("do=redrive&number={}", letter["number"]);
    let timer = "timer?id=gone+%3Cb%3E&done=redriven".to_owned();
    assert_eq!(browser.submit("/letters", &redrive).await, (303, timer));
    receiver.next().await;
    assert!(!browser.page("/overview").await.contains("410 Gone"), "it was redriven");
    until("the status of the success", async || {
        let page = browser.page("/timer?id=gone%20%3Cb%3E").await;
        page.contains(r#"data-title="Status">200<"#).then_some(())
    })
    .await;
    bench.stop().await;
}

#[tokio::test]
async fn the_newest_dead_letters_come_first() {
    const LETTERS: usize = 55;
    let mut receiver = Receiver::start(|_| Some(super::receiver::status(410))).await;
    let bench = Bench::with(allowing(receiver.port())).await;
    let api = &bench.api;
    for number in 0..LETTERS {
        api.put(&format!("d{number}"), &receiver.url("/"), json!({ "after": "0s" }))
            .await
            .json(201);
        receiver.next().await;
        api.letters(number + 1).await;
    }
    let numbers = async |query: &str| -> (Vec<u64>, Option<u64>) {
        let page = api.get(&format!("/v1/dead-letters?{query}")).await.json(200);
        let letters = page["dead_letters"].as_array().unwrap().iter();
        (letters.map(|letter| letter["number"].as_u64().unwrap()).collect(), page["next"].as_u64())
    };
    let (mut oldest, none) = numbers("").await;
    assert_eq!(none, None);
    oldest.reverse();
    let (newest, next) = numbers("order=newest&limit=40").await;
    assert_eq!((&newest[..], next), (&oldest[..40], Some(oldest[39])));
    let rest = numbers(&format!("order=newest&after={}", oldest[39])).await;
    assert_eq!(rest, (oldest[40..].to_vec(), None));
    let page = Browser::log_in(api).await.page("/dead").await;
    assert!(page.contains("50 of 55 dead letters"), "{page}");
    assert!(page.contains(">d54<") && !page.contains(">d0<"), "{page}");
    bench.stop().await;
}

#[tokio::test]
async fn a_running_timer_is_planned_and_not_due() {
    let mut receiver = Receiver::start(|_| None).await;
    let bench = Bench::with(allowing(receiver.port())).await;
    let api = &bench.api;
    let browser = Browser::log_in(api).await;
    api.put("busy", &receiver.url("/"), json!({ "at": "2020-01-01T00:00:00Z" })).await.json(201);
    api.put("later", &receiver.url("/"), json!({ "after": "1d" })).await.json(201);
    receiver.next().await;
    let running = browser.page("/timers?show=running").await;
    assert!(running.contains(">busy<") && running.contains("2020-01-01T00:00:00"), "{running}");
    assert!(!running.contains(">later<"), "{running}");
    let page = browser.page("/overview").await;
    let (_, due) = page.split_once("Due next").unwrap();
    assert!(due.contains(">later<") && !due.contains(">busy<"), "{page}");
    bench.stop().await;
}

#[tokio::test]
async fn timers_and_the_store_are_paused_by_a_click() {
    let bench = Bench::start().await;
    let api = &bench.api;
    let browser = Browser::log_in(api).await;
    api.put("a%2Fb", "https://example.org/", json!({ "after": "30d" })).await.json(201);
    let back = (303, "timer?id=a%2Fb".to_owned());
    assert_eq!(browser.click("/pause?id=a%2Fb").await, back);
    assert_eq!(api.get("/v1/timers/a%2Fb").await.json(200)["state"], "paused");
    assert!(browser.page("/timer?id=a%2Fb").await.contains("Resume"));
    assert_eq!(browser.click("/resume?id=a%2Fb").await, back);
    assert_eq!(api.get("/v1/timers/a%2Fb").await.json(200)["state"], "resting");
    assert_eq!(browser.click("/pause").await, (303, "overview".to_owned()));
    assert!(browser.page("/overview").await.contains("The store is paused."));
    assert_eq!(browser.click("/resume").await, (303, "overview".to_owned()));
    assert!(!browser.page("/overview").await.contains("The store is paused."));
    bench.stop().await;
}

#[tokio::test]
async fn the_timers_of_the_service_itself_are_not_changed_from_the_page() {
    let bench = Bench::start().await;
    let browser = Browser::log_in(&bench.api).await;
    for change in ["cancel", "move", "run", "pause", "resume"] {
        let (status, to) = browser.click(&format!("/{change}?id=timerd%3Aalerts")).await;
        assert_eq!(status, 403, "{change}: {to}");
    }
    bench.stop().await;
}

#[tokio::test]
async fn an_id_may_have_line_feeds() {
    let bench = Bench::start().await;
    let api = &bench.api;
    let browser = Browser::log_in(api).await;
    api.put("a%0Ab", "https://example.org/", json!({ "after": "30d" })).await.json(201);
    assert!(browser.page("/overview").await.contains(r#"action="pause?id=a%0Ab""#));
    assert_eq!(browser.click("/pause?id=a%0Ab").await, (303, "timer?id=a%0Ab".to_owned()));
    assert_eq!(api.get("/v1/timers/a%0Ab").await.json(200)["state"], "paused");
    bench.stop().await;
}

#[tokio::test]
async fn a_click_needs_a_session_and_its_form() {
    let bench = Bench::start().await;
    let api = &bench.api;
    api.put("a", "https://example.org/", json!({ "after": "30d" })).await.json(201);
    assert_eq!(form(api, "", "/login", "token=wrong").await.0, 401);
    let (browser, other) = (Browser::log_in(api).await, Browser::log_in(api).await);
    for path in ["/overview", "/timer?id=a"] {
        let page = api.send_with("GET", path, "", "cookie", "timerd=guess").await.text;
        assert!(page.contains("Log in") && !page.contains("example.org"), "{page}");
    }
    let csrf = browser.csrf().await;
    for (cookie, csrf) in [("", &csrf), (&browser.cookie, &String::new()), (&other.cookie, &csrf)] {
        for action in ["/pause", "/pause?id=a", "/resume?id=a", "/letters", "/logout"] {
            assert_eq!(
                form(api, cookie, action, &format!("form_token={csrf}")).await.0,
                403,
                "{action}"
            );
        }
    }
    assert_eq!(api.get("/v1/timers/a").await.json(200)["state"], "resting");
    let reply = form(api, &browser.cookie, "/logout", &format!("form_token={csrf}")).await;
    let forgotten = reply.2.starts_with("timerd=;") && reply.2.contains("Max-Age=0");
    assert!(reply.0 == 303 && forgotten, "{reply:?}");
    assert!(other.page("/overview").await.contains("Log out"));
    bench.stop().await;
}

/// Returns a configuration with a session key, and tokens with these names and texts.
fn sharing(key: &str, tokens: &[(&str, &str)]) -> Config {
    let mut config = format!("page.key = \"{key}\"\n");
    for (name, text) in tokens {
        let hash = hex::encode(Sha256::digest(text));
        config += &format!("[[token]]\nname = \"{name}\"\nsha256 = \"{hash}\"\n");
    }
    toml::from_str(&config).unwrap()
}

#[tokio::test]
async fn a_session_is_known_to_all_instances_until_its_token_is_removed() {
    let (key, deploy) = ("k".repeat(32), ("deploy", "the token for deploying"));
    let bench = Bench::with(sharing(&key, &[deploy])).await;
    let login = form(&bench.api, "", "/login", "token=the+token+for+deploying").await;
    let cookie = login.2.split(';').next().unwrap();
    for (config, is_known) in [
        (sharing(&key, &[deploy]), true),
        (sharing(&key, &[("other", "another token"), deploy]), true),
        (sharing(&key, &[]), false),
        // Another token with the name of the former token.
        (sharing(&key, &[("deploy", "another token")]), false),
        (sharing(&"x".repeat(32), &[deploy]), false),
    ] {
        let other = Bench::with(config).await;
        let page = other.api.send_with("GET", "/overview", "", "cookie", cookie).await.text;
        assert_eq!(page.contains("Log out"), is_known, "{page}");
        other.stop().await;
    }
    bench.stop().await;
}

#[tokio::test]
async fn services_with_the_same_token_in_the_environment_share_their_sessions() {
    let (bench, other) = (Bench::start().await, Bench::start().await);
    let browser = Browser::log_in(&bench.api).await;
    let page = other.api.send_with("GET", "/overview", "", "cookie", &browser.cookie).await.text;
    assert!(page.contains("Log out"), "{page}");
    // No byte of the cookie can be changed.
    for place in 0..browser.cookie.len() - "timerd=".len() {
        let mut forged = browser.cookie.clone().into_bytes();
        let byte = &mut forged["timerd=".len() + place];
        *byte = if *byte == b'a' { b'b' } else { b'a' };
        let forged = String::from_utf8(forged).unwrap();
        let page = bench.api.send_with("GET", "/overview", "", "cookie", &forged).await.text;
        assert!(page.contains("Log in"), "{forged}");
    }
    bench.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn only_tls_carries_a_session_that_began_by_it() {
    let bench = Bench::start().await;
    let api = bench.api.with_token("none");
    let kind = ("content-type", "application/x-www-form-urlencoded");
    let token = format!("token={}", TOKEN.replace(' ', "+"));
    let login = async |protocol| {
        let headers = [kind, ("x-forwarded-proto", protocol)];
        let reply = api.request("POST", "/login", &token, &headers).await;
        assert_eq!(reply.status, 303);
        reply.headers["set-cookie"].to_str().unwrap().to_owned()
    };
    let page = async |protocol, cookie: &str| {
        let cookie = cookie.split(';').next().unwrap();
        let headers = [("cookie", cookie), ("x-forwarded-proto", protocol)];
        api.request("GET", "/overview", "", &headers).await.text
    };
    let (plain, secure) = (login("http").await, login("https").await);
    assert!(!plain.contains("Secure"), "{plain}");
    assert!(secure.starts_with("__Host-timerd=") && secure.contains("Secure"), "{secure}");
    assert!(page("https", &secure).await.contains("Log out"));
    assert!(page("http", &secure).await.contains("Log in"));
    assert!(page("https", &plain).await.contains("Log in"));
    bench.stop().await;
}

#[tokio::test]
async fn a_login_leads_to_the_page_that_was_asked_for() {
    let bench = Bench::start().await;
    let api = &bench.api;
    let page = api.send_with("GET", "/timer?id=a%2Fb", "", "cookie", "").await.text;
    assert!(page.contains(r#"name="to" value="/timer?id=a%2Fb""#), "{page}");
    for (to, leads_to) in [
        ("/timer?id=a%252Fb", "/timer?id=a%2Fb"),
        ("", "/"),
        ("//evil.example", "/"),
        ("/%5Cevil.example", "/"),
        ("https://evil.example/", "/"),
        ("/%0Aset-cookie:a", "/"),
    ] {
        let fields = format!("token={}&to={to}", TOKEN.replace(' ', "+"));
        let reply = form(api, "", "/login", &fields).await;
        assert_eq!((reply.0, &*reply.1), (303, leads_to), "{to}");
    }
    let wrong = api.post_form("/login", "token=wrong&to=/dead", "").await;
    assert!(wrong.text.contains(r#"name="to" value="/dead""#), "{}", wrong.text);
    bench.stop().await;
}
