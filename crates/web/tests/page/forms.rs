//! The protection of forms, and what single buttons do.

use super::bench::{Bench, HOUR, post};
use axum::http::StatusCode;
use axum::{Extension, Router};
use std::time::SystemTime;
use timers_web::{FormToken, Rights};
use tourbillon_durable::{Options, TimerState};

async fn bench() -> Bench {
    let bench = Bench::new();
    bench.timers.insert("a\nb", "", HOUR, Options::new()).await.unwrap();
    bench
}

async fn state(bench: &Bench) -> Option<TimerState> {
    bench.timers.get("a\nb").await.unwrap().map(|timer| timer.state)
}

#[tokio::test]
async fn a_form_of_another_site_is_refused() {
    let bench = bench().await;
    let router = bench.web.router();
    let forms =
        ["pause?id=a%0Ab", "resume?id=a%0Ab", "cancel?id=a%0Ab", "pause", "resume", "letters"];
    for form in forms {
        for headers in [
            &[][..],
            &[("origin", "https://evil.example")],
            &[("origin", "null")],
            &[("sec-fetch-site", "cross-site"), ("origin", "https://timers.example.org")],
            &[("sec-fetch-site", "same-site")],
        ] {
            let fields = "do=delete-all&sure=yes&end=9";
            let reply = post(&router, &format!("/{form}"), fields, headers).await;
            assert_eq!(reply.status, StatusCode::FORBIDDEN, "{form} {headers:?}");
            assert!(reply.text.contains("another site"), "{}", reply.text);
        }
    }
    assert_eq!(state(&bench).await, Some(TimerState::Resting));
    assert!(!bench.timers.stats().await.unwrap().store_paused);
    let own = [("origin", "https://timers.example.org")];
    let reply = post(&router, "/pause?id=a%0Ab", "", &own).await;
    assert_eq!(reply.location(), "timer?id=a%0Ab");
    assert_eq!(state(&bench).await, Some(TimerState::Paused));
}

#[tokio::test]
async fn a_form_carries_the_token_of_the_host() {
    let bench = bench().await;
    let router: Router = bench.web.router().layer(Extension(FormToken::new("the token")));
    let page = super::bench::get(&router, "/timer?id=a%0Ab").await.text;
    assert!(page.contains(r#"name="form_token" value="the token""#), "{page}");
    let own = [("sec-fetch-site", "same-origin")];
    for fields in ["", "form_token=", "form_token=another", "token=the+token"] {
        let reply = post(&router, "/pause?id=a%0Ab", fields, &own).await;
        assert_eq!(reply.status, StatusCode::FORBIDDEN, "{fields}");
        assert!(reply.text.contains("too old"), "{}", reply.text);
    }
    post(&router, "/pause?id=a%0Ab", "form_token=the+token", &own).await.location();
    assert_eq!(state(&bench).await, Some(TimerState::Paused));
}

#[tokio::test]
async fn a_form_leads_back_to_its_page_and_to_no_other_site() {
    let bench = bench().await;
    for (back, leads_to) in [
        ("timers%3Fshow%3Dpaused%26q%3Da", "timers?show=paused&q=a"),
        ("overview", "overview"),
        ("https%3A%2F%2Fevil.example", "timer?id=a%0Ab"),
        ("%2F%2Fevil.example", "timer?id=a%0Ab"),
        ("overview%0D%0Aset-cookie%3A+a", "timer?id=a%0Ab"),
    ] {
        let reply = bench.post("pause?id=a%0Ab", &format!("back={back}")).await;
        assert_eq!(reply.location(), leads_to, "{back}");
    }
}

#[tokio::test]
async fn what_cannot_be_undone_is_asked_first() {
    let bench = bench().await;
    let page = bench.page("timer?id=a%0Ab").await;
    assert!(page.contains(r#"href="cancel?id=a%0Ab""#), "{page}");
    let page = bench.page("cancel?id=a%0Ab").await;
    assert!(page.contains("Cancel a\\nb?") && page.contains("cannot be undone"), "{page}");
    assert!(state(&bench).await.is_some(), "a question changes nothing");
    assert_eq!(bench.post("cancel?id=a%0Ab", "").await.location(), "timers?done=cancelled");
    assert_eq!(state(&bench).await, None);
    assert_eq!(bench.post("cancel?id=a%0Ab", "").await.status, StatusCode::NOT_FOUND);

    let page = bench.page("pause").await;
    assert!(page.contains("Pause the store?"), "{page}");
    assert!(!bench.timers.stats().await.unwrap().store_paused);
    assert_eq!(bench.post("pause", "").await.location(), "overview");
    assert!(bench.page("overview").await.contains("The store is paused."));
    assert_eq!(bench.post("resume", "").await.location(), "overview");
    assert!(!bench.page("overview").await.contains("The store is paused."));
}

#[tokio::test]
async fn a_visitor_changes_only_what_the_host_allows() {
    let bench = bench().await;
    bench.insert([("dies".to_owned(), SystemTime::UNIX_EPOCH)]).await;
    let options = Options::new().attempts(1);
    bench.timers.insert("died", "", SystemTime::UNIX_EPOCH, options).await.unwrap();
    bench.deliver(2, |_| Err("410 Gone".to_owned())).await;
    let schedule = ["cancel?id=a%0Ab"];
    let operate = ["pause?id=a%0Ab", "resume?id=a%0Ab", "pause", "resume", "letters"];
    let buttons =
        [">Cancel…<", ">Pause<", ">Redrive<", ">Delete…<", "checkbox", ">Pause the store…<"];
    for (rights, schedules, operates) in [
        (Rights::none(), false, false),
        (Rights::none().schedule(true), true, false),
        (Rights::none().operate(true), false, true),
    ] {
        let router: Router = bench.web.router().layer(Extension(rights));
        for (forms, is_allowed) in [(&schedule[..], schedules), (&operate, operates)] {
            for form in forms.iter().filter(|_| !is_allowed) {
                let own = [("sec-fetch-site", "same-origin")];
                let reply = post(&router, &format!("/{form}"), "do=delete&number=1", &own).await;
                assert_eq!(reply.status, StatusCode::FORBIDDEN, "{form}");
                assert!(reply.text.contains("<h1>Forbidden</h1>"), "{}", reply.text);
                assert!(reply.text.contains("you may look at this page, but not"), "{form}");
            }
        }
        let mut seen = String::new();
        for page in ["overview", "timers", "timer?id=a%0Ab", "dead", "letter?number=1"] {
            let reply = super::bench::get(&router, &format!("/{page}")).await;
            assert_eq!(reply.status, StatusCode::OK, "{page}");
            seen += reply.text.split("<main").nth(1).unwrap();
        }
        for button in buttons {
            let is_shown = if button == ">Cancel…<" { schedules } else { operates };
            assert_eq!(seen.contains(button), is_shown, "{rights:?}: {button}");
        }
    }
    assert_eq!(state(&bench).await, Some(TimerState::Resting));
}
