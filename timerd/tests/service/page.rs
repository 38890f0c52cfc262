//! The page for people, by HTTP.

use super::bench::{Api, Bench, TOKEN, until};
use super::calls::allowing;
use super::receiver::Receiver;
use serde_json::json;

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

    async fn page(&self, path: &str) -> String {
        let reply = self.api.send_with("GET", path, "", "cookie", &self.cookie).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let policy = reply.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        reply.text
    }

    /// Returns the token of the forms of a page.
    async fn csrf(&self) -> String {
        let page = self.page("/").await;
        let rest = page.split(r#"name="csrf" value=""#).nth(1).unwrap();
        rest.split('"').next().unwrap().to_owned()
    }

    async fn click(&self, action: &str) -> (u16, String) {
        let csrf = self.csrf().await;
        let reply = form(self.api, &self.cookie, action, &format!("csrf={csrf}")).await;
        (reply.0, reply.1)
    }
}

/// Posts a form, and returns the status, the location and the cookie of the response.
async fn form(api: &Api, cookie: &str, path: &str, fields: &str) -> (u16, String, String) {
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
    let page = browser.page("/").await;
    for text in ["later", "POST http://127.0.0.1:", "gone &lt;b&gt;", "410 Gone", "Redrive"] {
        assert!(page.contains(text), "{text} is not in {page}");
    }
    assert!(!page.contains("<b>") && !page.contains("secret"), "{page}");
    until("the run", async || {
        let page = browser.page("/timer?id=gone%20%3Cb%3E").await;
        page.contains("There is no such timer now").then_some(())?;
        page.contains("410 Gone").then_some(())
    })
    .await;

    let redrive = format!("/redrive?number={}", letter["number"]);
    assert_eq!(browser.click(&redrive).await, (303, "/".to_owned()));
    receiver.next().await;
    assert!(!browser.page("/").await.contains("410 Gone"), "it was redriven");
    bench.stop().await;
}

#[tokio::test]
async fn timers_and_the_store_are_paused_by_a_click() {
    let bench = Bench::start().await;
    let api = &bench.api;
    let browser = Browser::log_in(api).await;
    api.put("a%2Fb", "https://example.org/", json!({ "after": "30d" })).await.json(201);
    let back = (303, "/timer?id=a%2Fb".to_owned());
    assert_eq!(browser.click("/pause?id=a%2Fb").await, back);
    assert_eq!(api.get("/v1/timers/a%2Fb").await.json(200)["state"], "paused");
    assert!(browser.page("/timer?id=a%2Fb").await.contains("Resume"));
    assert_eq!(browser.click("/resume?id=a%2Fb").await, back);
    assert_eq!(api.get("/v1/timers/a%2Fb").await.json(200)["state"], "resting");
    assert_eq!(browser.click("/pause").await, (303, "/".to_owned()));
    assert!(browser.page("/").await.contains("The store is paused."));
    assert_eq!(browser.click("/resume").await, (303, "/".to_owned()));
    assert!(!browser.page("/").await.contains("The store is paused."));
    bench.stop().await;
}

#[tokio::test]
async fn an_id_may_have_line_feeds() {
    let bench = Bench::start().await;
    let api = &bench.api;
    let browser = Browser::log_in(api).await;
    api.put("a%0Ab", "https://example.org/", json!({ "after": "30d" })).await.json(201);
    assert!(browser.page("/").await.contains(r#"action="/pause?id=a%0Ab""#));
    assert_eq!(browser.click("/pause?id=a%0Ab").await, (303, "/timer?id=a%0Ab".to_owned()));
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
    for path in ["/", "/timer?id=a"] {
        let page = api.send_with("GET", path, "", "cookie", "timerd=guess").await.text;
        assert!(page.contains("Log in") && !page.contains("example.org"), "{page}");
    }
    let csrf = browser.csrf().await;
    for (cookie, csrf) in [("", &csrf), (&browser.cookie, &String::new()), (&other.cookie, &csrf)] {
        for action in ["/pause", "/pause?id=a", "/resume?id=a", "/redrive?number=1", "/logout"] {
            assert_eq!(form(api, cookie, action, &format!("csrf={csrf}")).await.0, 403, "{action}");
        }
    }
    assert_eq!(api.get("/v1/timers/a").await.json(200)["state"], "resting");
    assert_eq!(browser.click("/logout").await.0, 303);
    assert!(browser.page("/").await.contains("Log in"));
    assert!(other.page("/").await.contains("Log out"));
    bench.stop().await;
}
