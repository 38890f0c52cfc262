//! The overview: its numbers and charts, and how many rows it reads.

use super::bench::{Bench, HOUR};
use std::time::{Duration, SystemTime};
use timers_web::{Activity, TimersWeb};
use tourbillon_durable::Options;

#[tokio::test]
async fn an_empty_store_says_how_to_begin() {
    let bench = Bench::new();
    let page = bench.page("overview").await;
    assert!(page.contains("No timers yet") && page.contains("timers.insert("), "{page}");
    assert!(bench.page("dead").await.contains("No dead letters"));
    assert!(bench.page("timers").await.contains("There are no timers."));
}

#[tokio::test]
async fn numbers_lead_to_their_lists() {
    let bench = Bench::new();
    bench.insert([("late".to_owned(), SystemTime::UNIX_EPOCH)]).await;
    let page = bench.page("overview").await;
    for list in ["overdue", "running", "failing", "paused", "resting"] {
        assert!(page.contains(&format!(r#"href="timers?show={list}""#)), "{list}: {page}");
    }
    assert!(page.contains(r#"class="tile is-late""#), "{page}");
    bench.deliver(1, |_| Ok(())).await;
    let page = bench.page("overview").await;
    assert!(page.contains("No timers yet"), "a timer that has run is gone: {page}");
}

#[tokio::test]
async fn the_calls_of_the_last_hour_are_shown() {
    let bench = Bench::new();
    bench.insert((0..4).map(|number| (format!("t{number}"), SystemTime::UNIX_EPOCH))).await;
    bench.timers.insert("later", "", HOUR, Options::new()).await.unwrap();
    bench.deliver(4, |id| if id == "t0" { Err("no".to_owned()) } else { Ok(()) }).await;
    let page = bench.page("overview").await;
    assert!(page.contains("4 calls in the last hour, 1 failed"), "{page}");
    assert!(page.contains("Calls of all processes, from the log."), "{page}");
    let alone = TimersWeb::new(&bench.timers);
    let none = super::bench::get(&alone.router(), "/overview").await.text;
    assert!(!none.contains("Calls per minute"), "there is no source: {none}");
    let counted = alone.activity(&Activity::new());
    let page = super::bench::get(&counted.router(), "/overview").await.text;
    assert!(page.contains("0 calls in the last hour"), "{page}");
}

#[tokio::test]
async fn the_midnight_herd_is_seen() {
    let bench = Bench::new();
    let soon = SystemTime::UNIX_EPOCH + {
        let now = bench.timers.stats().await.unwrap().now;
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        Duration::from_secs(since - since % 900 + 7 * 900)
    };
    bench.insert((0..40).map(|number| (format!("herd-{number}"), soon))).await;
    bench.insert((1..10).map(|hour| (format!("o{hour}"), soon + hour * HOUR))).await;
    let page = bench.page("overview").await;
    assert!(page.contains("49 timers due in the next 24 hours"), "{page}");
    let (_, busiest) = page.split_once("busiest at <a href=\"").unwrap();
    let list = busiest.split('"').next().unwrap().replace("&amp;", "&");
    let list = bench.page(&list).await;
    assert!(list.contains("40 timers") && list.contains("herd-39"), "{list}");
}
