//! Tokens, and the limits of requests.

use super::bench::{Api, Bench, Folder, TOKEN, arguments, until};
use super::connections::Peer;
use super::page::Browser;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::num::NonZeroUsize;
use timerd::{Config, Service, StartError};

/// The token whose hash is in the configuration.
const DEPLOY: &str = "only for the tests of limits";

const CONFIG: &str = r#"
    [[token]]
    name = "deploy"
    sha256 = "HASH"

    [limits]
    body_bytes = 1000
    requests_per_second = 1
    burst = 3
"#;

fn config() -> Config {
    toml::from_str(&CONFIG.replace("HASH", &hex::encode(Sha256::digest(DEPLOY)))).unwrap()
}

/// Starts a service that is expected to refuse its configuration, and returns the reason.
async fn refusal(config: Config, token: Option<&str>) -> String {
    let folder = Folder::new();
    let mut arguments = arguments(folder.join("timers").to_str().unwrap());
    arguments.token = token.map(str::to_owned);
    match Service::start(&arguments, &config).await {
        Err(error @ (StartError::Token(_) | StartError::Secret(_))) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn only_tokens_that_are_known_pass() {
    let bench = Bench::with(config()).await;
    let (upper, short) = (DEPLOY.to_uppercase(), &DEPLOY[1..]);
    for (token, status) in [(DEPLOY, 200), (&upper, 401), (short, 401), ("", 401)] {
        let reply = bench.api.with_token(token).get("/v1/timers").await;
        assert_eq!(reply.status, status, "{token:?}");
        assert_eq!(reply.headers.contains_key("www-authenticate"), status == 401);
    }
    bench.stop().await;
}

#[tokio::test]
async fn an_absent_or_published_secret_opens_nothing() {
    for token in ["", "  ", "\n", "sesame"] {
        let refused = refusal(Config::default(), Some(token)).await;
        assert!(refused.contains("timerd token"), "{token:?}: {refused}");
    }
    for text in ["", "sesame"] {
        let hash = hex::encode(Sha256::digest(text));
        let config = format!("[[token]]\nname = \"deploy\"\nsha256 = \"{hash}\"");
        let refused = refusal(toml::from_str(&config).unwrap(), None).await;
        assert!(refused.contains("not secret"), "{text:?}: {refused}");
    }
    let secret = "[secrets]\ndefault = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"";
    let refused = refusal(toml::from_str(secret).unwrap(), None).await;
    assert!(refused.contains("published"), "{refused}");
}

/// The page and the API agree about each text, in a form and in a header.
#[tokio::test]
async fn the_page_and_the_api_accept_the_same_tokens() {
    let bench = Bench::with(Config { tokens: config().tokens, ..Config::default() }).await;
    for (text, is_token) in [(DEPLOY, true), (&format!(" {DEPLOY} "), true), (" ", false)] {
        let reply = bench.api.with_token(text).get("/healthz").await;
        assert_eq!(reply.status, 200, "{text:?} can be sent");
        let status = bench.api.with_token(text).get("/v1/stats").await.status;
        assert_eq!(status, if is_token { 200 } else { 401 }, "{text:?} in a header");
        let form = format!("token={}", text.replace(' ', "+"));
        let status = bench.api.post_form("/login", &form, "").await.status;
        assert_eq!(status, if is_token { 303 } else { 401 }, "{text:?} in a form");
    }
    bench.stop().await;
}

#[tokio::test]
async fn a_token_has_a_rate_of_its_own() {
    let bench = Bench::with(config()).await;
    let statuses = async |token| {
        let api = bench.api.with_token(token);
        let mut statuses = Vec::new();
        for _ in 0..6 {
            let reply = api.get("/v1/timers/a").await;
            assert_eq!(reply.headers.contains_key("retry-after"), reply.status == 429);
            statuses.push(reply.status.as_u16());
        }
        statuses
    };
    // A second may pass in between.
    let of_guesses = statuses("a guess").await;
    assert_eq!(of_guesses[..3], [401; 3]);
    assert!(of_guesses.contains(&429), "{of_guesses:?}");
    let of_the_token = statuses(DEPLOY).await;
    assert_eq!(of_the_token[..3], [404; 3], "guesses take nothing from it");
    assert!(of_the_token.contains(&429), "{of_the_token:?}");
    assert_eq!(bench.api.get("/healthz").await.status, 200);
    bench.stop().await;
}

#[tokio::test]
async fn methods_that_no_route_has_share_a_figure() {
    let bench = Bench::start().await;
    for method in ["BREW", "WHEN"] {
        let reply = bench.api.with_token("a guess").send(method, "/v1/timers", "").await;
        assert_eq!(reply.status, 401);
    }
    let figures = bench.api.get("/metrics").await.text;
    let unknown = "timerd_requests_total{method=\"other\",path=\"/v1/timers\",status=\"401\"}";
    assert!(figures.contains(unknown), "{figures}");
    assert!(!figures.contains("BREW") && !figures.contains("WHEN"), "{figures}");
    bench.stop().await;
}

#[tokio::test]
async fn long_bodies_are_refused() {
    let bench = Bench::with(config()).await;
    let put = async |id, length| {
        let webhook = json!({ "url": "https://example.org/", "body": "x".repeat(length) });
        let timer = json!({ "webhook": webhook, "schedule": { "after": "1d" } }).to_string();
        bench.api.send("PUT", &format!("/v1/timers/{id}"), &timer).await
    };
    put("a", 800).await.json(201);
    put("b", 1000).await.problem(413);
    bench.stop().await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_awaited() {
    let bench = Bench::with(toml::from_str("limits.timeout = \"100ms\"").unwrap()).await;
    for first in ["PUT /v1/timers/a", "POST /login"] {
        let mut peer = Peer::connect(&bench).await;
        peer.begin(first, TOKEN).await;
        assert_eq!(peer.status().await, 408, "{first}");
    }
    bench.stop().await;
}

#[tokio::test]
async fn requests_of_the_page_and_the_api_share_their_places_with_no_stranger() {
    let bench = Bench::with(toml::from_str("limits.concurrent_requests = 1").unwrap()).await;
    let browser = Browser::log_in(&bench.api).await;
    let both = async || {
        let page = bench.api.send_with("GET", "/overview", "", "cookie", &browser.cookie).await;
        [page.status.as_u16(), bench.api.get("/v1/timers").await.status.as_u16()]
    };
    // More strangers than there ever were places.
    let mut strangers = Vec::new();
    for number in 0..100 {
        let mut stranger = Peer::connect(&bench).await;
        let first = ["POST /login", "PUT /v1/timers/a", "POST /pause"][number % 3];
        stranger.begin(first, "a guess").await;
        strangers.push(stranger);
    }
    assert_eq!(both().await, [200, 200]);
    Browser::log_in(&bench.api).await;

    let mut own = Peer::connect(&bench).await;
    own.begin("PUT /v1/timers/a", TOKEN).await;
    until("the limit", async || (both().await == [503, 503]).then_some(())).await;
    assert_eq!(bench.api.get("/healthz").await.status, 200);
    assert!(bench.api.get("/").await.text.contains("Log in"), "a stranger sees the form");
    drop(own);
    until("the end", async || (both().await == [200, 200]).then_some(())).await;
    bench.stop().await;
}

#[test]
fn a_configuration_that_is_misspelt_is_refused() {
    let wrong = toml::from_str::<Config>("[limits]\nbody_byte = 3");
    assert!(wrong.unwrap_err().to_string().contains("body_byte"));
    assert!(toml::from_str::<Config>("[limits]\nburst = 0").is_err());
}

/// A copy of it lets no stranger in, because it has no token and no secret until a person sets
/// them.
#[tokio::test]
async fn the_configuration_in_the_readme_starts_once_its_secrets_are_set() {
    let readme = include_str!("../../README.md");
    let toml = readme.split("```toml").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let refused = toml::from_str::<Config>(toml).unwrap_err().to_string();
    assert!(refused.contains("at least 32 characters"), "{refused}");
    let toml = toml.replace("<32 random characters or more>", &"k".repeat(32));
    let refused = refusal(toml::from_str(&toml).unwrap(), None).await;
    assert!(refused.contains("64 hexadecimal digits"), "{refused}");
    let toml = toml.replace("<64 hexadecimal digits>", &hex::encode(Sha256::digest(DEPLOY)));
    let refused = refusal(toml::from_str(&toml).unwrap(), None).await;
    assert!(refused.contains("the secret \"default\""), "{refused}");
    let secret = "<the output of: echo whsec_$(openssl rand -base64 32)>";
    let toml = toml.replace(secret, "whsec_Tm90IGEgc2VjcmV0LCBidXQgdGhhdCBvZiBhIHRlc3Q=");
    let bench = Bench::with(toml::from_str(&toml).unwrap()).await;
    assert_eq!(bench.api.with_token(DEPLOY).get("/v1/stats").await.status, 200);
    bench.stop().await;
}

#[tokio::test]
async fn tokens_and_limits_are_reloaded_without_a_gap() {
    let bench = Bench::start().await;
    let deploy = bench.api.with_token(DEPLOY);
    let statuses = async |path: &str| {
        let [own, other] = [bench.api.get(path).await, deploy.get(path).await];
        [own.status.as_u16(), other.status.as_u16()]
    };
    // The connections of the clients stay open.
    assert_eq!(statuses("/v1/timers").await, [200, 401]);
    bench.service.reload(&config()).unwrap();
    for expected in [200, 200, 200, 429] {
        assert_eq!(statuses("/v1/timers").await, [expected; 2]);
    }
    let long = json!({ "webhook": { "url": "https://example.com", "body": "x".repeat(1000) } });
    bench.service.reload(&config()).unwrap();
    assert_eq!(deploy.send("PUT", "/v1/timers/a", &long.to_string()).await.status, 413);
    let mut published = config();
    published.tokens[0].sha256 = hex::encode(Sha256::digest("sesame"));
    bench.service.reload(&published).unwrap_err();
    assert_eq!(statuses("/v1/timers").await, [200; 2]);
    // The number of calls changes only after a restart. This number would need too many
    // descriptors.
    let mut greedy = Config::default();
    greedy.webhooks.concurrency = NonZeroUsize::MAX;
    bench.service.reload(&greedy).unwrap();
    assert_eq!(statuses("/v1/timers").await, [200, 401]);
    bench.stop().await;
}

#[tokio::test]
async fn a_token_that_the_service_has_made_ends_when_one_is_configured() {
    let folder = Folder::new();
    let mut arguments = arguments(folder.join("timers").to_str().unwrap());
    arguments.token = None;
    let service = Service::start(&arguments, &Config::default()).await.unwrap();
    let made = Api::of(&service.address().to_string(), service.token().unwrap());
    let deploy = made.with_token(DEPLOY);
    for (config, [of_made, of_deploy]) in [(config(), [401, 200]), (Config::default(), [200, 401])]
    {
        service.reload(&config).unwrap();
        assert_eq!(made.get("/v1/stats").await.status, of_made);
        assert_eq!(deploy.get("/v1/stats").await.status, of_deploy);
    }
    service.stop().await;
    // Without any token, the service would keep its owner out.
    let service = Service::start(&arguments, &config()).await.unwrap();
    let refused = service.reload(&Config::default()).unwrap_err().to_string();
    assert!(refused.contains("no token"), "{refused}");
    service.stop().await;
}
