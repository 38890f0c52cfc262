//! The protection of forms, and what single buttons do.

use super::bench::{Bench, HOUR, post};
use axum::http::StatusCode;
use axum::{Extension, Router};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};
use timers_web::{FormToken, Rights};
use tokio::sync::oneshot;
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
    let forms = [
        "run?id=a%0Ab",
        "move?id=a%0Ab",
        "pause?id=a%0Ab",
        "resume?id=a%0Ab",
        "cancel?id=a%0Ab",
        "pause",
        "resume",
        "letters",
    ];
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
    let schedule = ["cancel?id=a%0Ab", "move?id=a%0Ab"];
    let operate =
        ["run?id=a%0Ab", "pause?id=a%0Ab", "resume?id=a%0Ab", "pause", "resume", "letters"];
    let buttons = [
        ">Cancel…<",
        ">Move…<",
        ">Run now…<",
        ">Pause<",
        ">Redrive<",
        ">Delete…<",
        "checkbox",
        ">Pause the store…<",
    ];
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
            let is_shown =
                if [">Cancel…<", ">Move…<"].contains(&button) { schedules } else { operates };
            assert_eq!(seen.contains(button), is_shown, "{rights:?}: {button}");
        }
    }
    assert_eq!(state(&bench).await, Some(TimerState::Resting));
}

#[tokio::test]
async fn a_timer_whose_id_is_reserved_is_shown_and_not_changed() {
    let bench = bench().await;
    let web = bench.web.clone().reserve("a");
    let router: Router = web.router();
    let own = [("sec-fetch-site", "same-origin")];
    for change in ["cancel", "move", "run", "pause", "resume"] {
        let form = format!("/{change}?id=a%0Ab");
        let asked = super::bench::get(&router, &form).await;
        for reply in [asked, post(&router, &form, "after=2h&zone=UTC", &own).await] {
            let is_refused = reply.status == StatusCode::FORBIDDEN;
            // A pause and a resume have no question.
            assert!(is_refused && reply.text.contains("is reserved for the server"), "{reply:?}");
        }
    }
    for page in ["overview", "timers", "timer?id=a%0Ab"] {
        let reply = super::bench::get(&router, &format!("/{page}")).await;
        let main = reply.text.split("<main").nth(1).unwrap();
        assert!(main.contains("a\\nb"), "{main}");
        for button in [">Cancel…<", ">Move…<", ">Run now…<", ">Pause<"] {
            assert!(!main.contains(button), "{page} has {button}");
        }
    }
    assert_eq!(state(&bench).await, Some(TimerState::Resting));
    // Other timers and the store are changed as before.
    bench.insert([("b".to_owned(), SystemTime::UNIX_EPOCH + 30 * 365 * 48 * HOUR)]).await;
    let paused = post(&router, "/pause?id=b", "", &own).await;
    assert_eq!(paused.status, StatusCode::SEE_OTHER, "{}", paused.text);
    assert_eq!(post(&router, "/pause", "", &own).await.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn a_timer_is_run_after_a_question() {
    let bench = bench().await;
    let daily = Options::new().every(24 * HOUR);
    bench.timers.insert("daily", "", HOUR, daily).await.unwrap();
    bench.timers.insert("paused", "", HOUR, Options::new()).await.unwrap();
    bench.timers.pause_timer("paused").await.unwrap();
    for (id, effect) in [
        ("a%0Ab", "It is called now instead of"),
        ("daily", "It is called once more. Its plan stays as it is"),
        ("paused", "It is called once, and stays paused."),
    ] {
        let link = format!(r#"href="run?id={id}""#);
        for page in ["timers", "overview", &format!("timer?id={id}")] {
            // The overview shows no paused timers.
            let is_shown = page != "overview" || id != "paused";
            assert_eq!(bench.page(page).await.contains(&link), is_shown, "{id} on {page}");
        }
        let question = bench.page(&format!("run?id={id}")).await;
        assert!(question.contains(effect) && question.contains("cannot be taken"), "{question}");
        let runs = bench.timers.stats().await.unwrap().overdue;
        let after = bench.post(&format!("run?id={id}"), "").await;
        assert_eq!(after.location(), format!("timer?id={id}&done=run"));
        assert_eq!(bench.timers.stats().await.unwrap().overdue, runs + 1, "{id}");
    }
    let page = bench.page("timer?id=a%0Ab&done=run").await;
    assert!(page.contains("It runs as soon as a worker is free."), "{page}");
    bench.deliver(3, |_| Ok(())).await;
    assert_eq!(state(&bench).await, None);
    let daily = bench.timers.get("daily").await.unwrap().unwrap();
    assert!(daily.due > bench.timers.stats().await.unwrap().now);
    assert_eq!(bench.get("run?id=a%0Ab").await.status, StatusCode::NOT_FOUND);
    assert_eq!(bench.post("run?id=a%0Ab", "").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_timer_is_moved_to_a_time_in_a_zone_or_by_a_delay() {
    let bench = bench().await;
    let due = async || bench.timers.get("a\nb").await.unwrap().unwrap().due;
    assert!(bench.page("timer?id=a%0Ab").await.contains(r#"href="move?id=a%0Ab""#));
    let form = bench.page("move?id=a%0Ab").await;
    assert!(form.contains(r#"name="zone" value="UTC" data-zone"#), "{form}");
    let berlin = "at=2096-10-02T14:30&zone=Europe%2FBerlin&after=";
    for (fields, seconds) in [
        ("at=2096-10-02T12:30&zone=UTC&after=", 4_000_019_400),
        (berlin, 4_000_019_400),
        ("at=2096-10-02T12:30:07&zone=UTC", 4_000_019_407),
    ] {
        let reply = bench.post("move?id=a%0Ab", fields).await;
        assert_eq!(reply.location(), "timer?id=a%0Ab&done=moved");
        assert_eq!(due().await, SystemTime::UNIX_EPOCH + Duration::from_secs(seconds), "{fields}");
    }
    assert!(bench.page("timer?id=a%0Ab&done=moved").await.contains("The timer was moved."));
    let before = bench.timers.stats().await.unwrap().now;
    bench.post("move?id=a%0Ab", "at=&zone=UTC&after=1h+30m").await.location();
    let moved = due().await.duration_since(before).unwrap();
    assert!((HOUR * 3 / 2..2 * HOUR).contains(&moved), "{moved:?}");

    // The form comes again with what was filled in.
    let last = due().await;
    for (fields, why) in [
        ("at=&zone=UTC&after=", "time: missing (expected at or after)"),
        ("at=2096-10-02T12:30&zone=UTC&after=1h", "at: cannot be combined with after"),
        ("at=2096-10-02T12:30&zone=Berlin", "Berlin"),
        ("after=90", "after: &quot;90&quot;"),
    ] {
        let reply = bench.post("move?id=a%0Ab", fields).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{fields}");
        assert!(reply.text.contains(why) && reply.text.contains("Move a\\nb"), "{}", reply.text);
    }
    let again = bench.post("move?id=a%0Ab", "after=90&zone=UTC").await.text;
    assert!(again.contains(r#"name="after" value="90""#), "{again}");
    assert_eq!(due().await, last, "nothing was moved");
    assert_eq!(bench.post("move?id=gone", "after=1h").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_running_timer_is_neither_run_nor_moved() {
    let bench = bench().await;
    bench.insert([("busy".to_owned(), SystemTime::UNIX_EPOCH)]).await;
    let (begin, begun) = oneshot::channel::<()>();
    let begin = Mutex::new(Some(begin));
    let working = bench.timers.worker().run(move |_| {
        begin.lock().unwrap().take();
        std::future::pending::<Result<(), String>>()
    });
    let looking = async {
        drop(begun.await);
        let page = bench.page("timer?id=busy").await;
        assert!(!page.contains("run?id=busy") && !page.contains("move?id=busy"), "{page}");
        for change in ["run?id=busy", "move?id=busy"] {
            for reply in [bench.get(change).await, bench.post(change, "after=1h").await] {
                assert_eq!(reply.status, StatusCode::CONFLICT, "{change}");
                for text in [
                    "<h1>Not at this moment</h1>",
                    "an attempt of the timer is running",
                    r#"href="timer?id=busy">Go to the timer<"#,
                ] {
                    assert!(reply.text.contains(text), "{text} is not in {}", reply.text);
                }
            }
        }
    };
    tokio::select! {
        worked = working => worked.unwrap(),
        () = looking => {}
    }
}
