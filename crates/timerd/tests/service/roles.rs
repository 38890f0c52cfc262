//! What the role of a token allows.

use super::bench::{Api, Bench, TOKEN};
use super::page::form;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use timerd::Config;

/// The roles, least first, which are also the tokens that have them.
const ROLES: [&str; 3] = ["read", "schedule", "operate"];

/// Returns a configuration with a token for each role.
pub(crate) fn config() -> Config {
    let of_role = |role: &str| {
        let hash = hex::encode(Sha256::digest(token(role)));
        format!("[[token]]\nname = \"{role}\"\nsha256 = \"{hash}\"\nrole = \"{role}\"\n")
    };
    toml::from_str(&ROLES.map(of_role).concat()).unwrap()
}

pub(crate) fn token(role: &str) -> String {
    format!("only for the tests: {role}")
}

/// Logs in with a token, and returns the cookie.
pub(crate) async fn log_in(api: &Api, token: &str) -> String {
    let reply = form(api, "", "/login", &format!("token={}", token.replace(' ', "+"))).await;
    assert_eq!(reply.0, 303, "{token}");
    reply.2.split(';').next().unwrap().to_owned()
}

/// Submits a form of the page, and returns the status.
pub(crate) async fn submit(api: &Api, cookie: &str, path: &str, fields: &str) -> u16 {
    let page = api.send_with("GET", "/overview", "", "cookie", cookie).await.text;
    let rest = page.split(r#"name="form_token" value=""#).nth(1).unwrap();
    let csrf = rest.split('"').next().unwrap();
    form(api, cookie, path, &format!("form_token={csrf}&{fields}")).await.0
}

/// The operations are those of the document, so that none is forgotten.
#[tokio::test]
async fn an_operation_needs_the_role_that_the_document_names() {
    let bench = Bench::with(config()).await;
    let document = bench.api.get("/openapi.json").await.json(200);
    let mut needed = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let role = operation["security"][0]["token"][0].as_str();
            assert_eq!(role.is_some(), method != "get", "{method} {path}");
            needed.extend(role);
            let least = role.map_or(0, |role| ROLES.iter().position(|it| *it == role).unwrap());
            let at = path.replace("{id}", "a").replace("{number}", "1");
            for (place, has) in ROLES.into_iter().enumerate() {
                let api = bench.api.with_token(&token(has));
                let reply = api.send(&method.to_uppercase(), &at, "{}").await;
                assert_eq!(reply.status == 403, place < least, "{has}: {method} {path}: {reply:?}");
                if reply.status == 403 {
                    let problem = reply.problem(403);
                    assert!(problem.contains(role.unwrap()) && problem.contains(has), "{problem}");
                }
            }
        }
    }
    assert_eq!(needed, BTreeSet::from(["operate", "schedule"]));
    bench.stop().await;
}

#[tokio::test]
async fn the_timers_of_the_service_itself_are_read_only() {
    let bench = Bench::with(config()).await;
    let document = bench.api.get("/openapi.json").await.json(200);
    let mut refused = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        let Some((before, after)) = path.split_once("{id}") else { continue };
        for method in item.as_object().unwrap().keys().filter(|method| *method != "get") {
            let at = format!("{before}timerd%3Aalerts{after}");
            let reply = bench.api.send(&method.to_uppercase(), &at, "{}").await;
            assert!(reply.problem(403).contains("\"timerd:\""), "{method} {path}");
            refused += 1;
        }
    }
    assert_eq!(refused, 6);
    let redrive = "/v1/dead-letters/1/redrive?as=timerd:health";
    assert!(bench.api.post(redrive).await.problem(403).contains("\"timerd:\""));
    bench.stop().await;
}

#[tokio::test]
async fn a_form_of_the_page_needs_a_role_as_well() {
    let bench = Bench::with(config()).await;
    let api = &bench.api;
    for id in ["a", "b", "c"] {
        api.put(id, "https://example.org/", json!({ "after": "1d" })).await.json(201);
    }
    for (role, may_cancel, may_pause) in
        [("read", false, false), ("schedule", true, false), ("operate", true, true)]
    {
        let cookie = log_in(api, &token(role)).await;
        let status = |may| if may { 303 } else { 403 };
        let cancel = format!("/cancel?id={}", ["a", "b"][usize::from(may_pause)]);
        assert_eq!(submit(api, &cookie, &cancel, "").await, status(may_cancel), "{role}");
        for path in ["/pause?id=c", "/resume?id=c", "/pause", "/resume"] {
            assert_eq!(submit(api, &cookie, path, "").await, status(may_pause), "{role}: {path}");
        }
        let letters = submit(api, &cookie, "/letters", "do=redrive&number=1").await;
        assert_eq!(letters == 403, !may_pause, "{role}");
        assert_eq!(submit(api, &cookie, "/logout", "").await, 303, "{role}");
    }
    // A session has the present role of its token.
    let cookie = log_in(api, &token("operate")).await;
    let mut demoted = config();
    demoted.tokens[2].role = timerd::Role::Read;
    bench.service.reload(&demoted).unwrap();
    assert_eq!(submit(api, &cookie, "/pause", "").await, 403);
    bench.stop().await;
}

#[tokio::test]
async fn a_token_without_a_role_may_do_everything() {
    let mut config = config();
    let hash = hex::encode(Sha256::digest("an old token"));
    let old = format!("[[token]]\nname = \"old\"\nsha256 = \"{hash}\"");
    config.tokens.extend(toml::from_str::<Config>(&old).unwrap().tokens);
    let bench = Bench::with(config).await;
    for api in [&bench.api.with_token("an old token"), &bench.api.with_token(TOKEN)] {
        api.post("/v1/pause").await.json(200);
        api.post("/v1/resume").await.json(200);
    }
    let wrong = toml::from_str::<Config>(&format!("{old}\nrole = \"admin\"")).unwrap_err();
    let wrong = wrong.to_string();
    assert!(ROLES.iter().all(|role| wrong.contains(role)), "{wrong}");
    bench.stop().await;
}
