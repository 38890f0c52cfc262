//! The lists of timers: pages in both directions, states, search and ranges.

use super::bench::{Bench, HOUR, ids, link};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};
use tourbillon_durable::{Backoff, Event, Options, Verdict};

/// Timers a second apart, and as many at one time.
const SPREAD: u64 = 4000;
const HERD: u64 = 2000;

fn noon() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(4_000_017_600)
}

async fn many() -> Bench {
    let bench = Bench::new();
    let spread = (0..SPREAD)
        .map(|number| (format!("order-{number:05}"), noon() + Duration::from_secs(number)));
    let herd = (0..HERD).map(|number| (format!("herd-{number:05}"), noon() + HOUR / 2));
    bench.insert(spread.chain(herd)).await;
    bench
}

/// Follows links until there are no more, and returns the ids of all pages, in the order of the
/// list.
pub(crate) async fn follow(
    bench: &Bench,
    mut page: String,
    relation: &str,
) -> (Vec<String>, String) {
    let mut all = Vec::new();
    loop {
        let rows: Vec<String> = ids(&page).into_iter().map(str::to_owned).collect();
        assert!((1..=50).contains(&rows.len()), "{} rows", rows.len());
        all = if relation == "next" { [all, rows].concat() } else { [rows, all].concat() };
        let Some(address) = link(&page, relation) else { return (all, page) };
        page = bench.page(&address).await;
    }
}

#[tokio::test]
async fn thousands_of_timers_are_paged_in_both_directions() {
    let bench = many().await;
    let first = bench.page("timers").await;
    assert!(first.contains("50 of 6,000 timers"), "the total is shown");
    assert!(link(&first, "prev").is_none());
    let (forwards, last) = follow(&bench, first, "next").await;
    assert_eq!(forwards.len() as u64, SPREAD + HERD);
    let distinct: BTreeSet<&String> = forwards.iter().collect();
    assert_eq!(distinct.len(), forwards.len(), "each timer is on one page");
    assert_eq!(forwards[0], "order-00000");
    let (backwards, _) = follow(&bench, last, "prev").await;
    assert_eq!(backwards, forwards);
}

#[tokio::test]
async fn a_timer_is_found_by_the_beginning_of_its_id() {
    let bench = many().await;
    let page = bench.page("timers?q=order-0399").await;
    let expected: Vec<String> = (3990..4000).map(|number| format!("order-{number:05}")).collect();
    assert_eq!(ids(&page), expected);
    assert!(page.contains("10 timers"), "{page}");
    assert_eq!(ids(&bench.page("timers?q=order-03999").await), ["order-03999"]);
    let (found, _) = follow(&bench, bench.page("timers?q=herd-01").await, "next").await;
    assert_eq!(found.len(), 1000);
    let (back, last) = follow(&bench, bench.page("timers?q=herd-01").await, "next").await;
    assert_eq!(follow(&bench, last, "prev").await.0, back);
    let none = bench.page("timers?q=herde").await;
    assert!(none.contains("Nothing found") && none.contains(r#"href="timer?id=herde""#), "{none}");
}

#[tokio::test]
async fn timers_are_found_by_their_due_time() {
    let bench = many().await;
    // Noon is 2096-10-02 12:00 in UTC, and the herd is due at half past.
    let range = "from=2096-10-02T12:30&until=2096-10-02T12:31";
    let page = bench.page(&format!("timers?{range}&q=order")).await;
    let (found, _) = follow(&bench, page, "next").await;
    let expected: Vec<String> = (1800..1860).map(|number| format!("order-{number:05}")).collect();
    assert_eq!(found, expected);
    let there = "from=2096-10-02T14:30&until=2096-10-02T14:31&zone=Europe/Berlin";
    let page = bench.page(&format!("timers?{there}&q=order")).await;
    assert!(page.contains(r#"name="zone" value="Europe/Berlin">"#), "{page}");
    assert_eq!(follow(&bench, page, "next").await.0, expected);
    let (herd, _) = follow(&bench, bench.page(&format!("timers?{range}")).await, "next").await;
    assert_eq!(herd.len() as u64, HERD + 60);
}

#[tokio::test]
async fn each_state_has_its_list() {
    let bench = Bench::new();
    let (now, options) = (SystemTime::UNIX_EPOCH, Options::new());
    bench.timers.insert("late", "", now, options.clone()).await.unwrap();
    bench.timers.insert("resting", "", 24 * 40 * HOUR, options.clone()).await.unwrap();
    bench.timers.insert("weekly-digest", "", 48 * HOUR, options).await.unwrap();
    bench.timers.pause_timer("weekly-digest").await.unwrap();
    for (state, listed) in [
        ("", &["late", "weekly-digest", "resting"][..]),
        ("overdue", &["late"]),
        ("paused", &["weekly-digest"]),
        ("resting", &["late", "resting"]),
        ("running", &[]),
        ("failing", &[]),
    ] {
        let page = bench.page(&format!("timers?show={state}")).await;
        assert_eq!(ids(&page), listed, "{state}");
    }
}

#[tokio::test]
async fn failing_timers_are_found_behind_any_number_of_others() {
    const FAILING: usize = 120;
    let bench = Bench::new();
    let (now, wait) = (SystemTime::UNIX_EPOCH, Backoff::new(HOUR, HOUR));
    for number in 0..FAILING {
        let (id, options) = (format!("f{number:03}"), Options::new().backoff(wait));
        bench.timers.insert(&id, "", now, options).await.unwrap();
    }
    bench.deliver(FAILING, |_| Err("out of paper".to_owned())).await;
    let soon = bench.timers.stats().await.unwrap().now + HOUR / 2;
    bench.insert((0..6000).map(|number| (format!("o{number}"), soon))).await;
    let first = bench.page("timers?show=failing").await;
    assert!(first.contains("out of paper") && first.contains("1 of 8 failed"), "{first}");
    assert!(!first.contains("The search for this page stopped"), "{first}");
    let (mut found, last) = follow(&bench, first, "next").await;
    assert_eq!(follow(&bench, last, "prev").await.0, found);
    found.sort();
    let expected: Vec<String> = (0..FAILING).map(|number| format!("f{number:03}")).collect();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_postponed_attempt_is_no_failure() {
    let bench = Bench::new();
    bench.timers.insert("busy", "", SystemTime::UNIX_EPOCH, Options::new()).await.unwrap();
    let (end, ends) = tokio::sync::oneshot::channel::<()>();
    let end = std::sync::Mutex::new(Some(end));
    let worker = bench.timers.worker().until(async { drop(ends.await) });
    let worker = worker.observe(move |event| {
        if matches!(event, Event::Attempt(_)) {
            end.lock().unwrap().take();
        }
    });
    let full = || Verdict::GiveBack { after: HOUR, error: Some("a full house".to_owned()) };
    worker.run(move |_| async move { full() }).await.unwrap();
    assert_eq!(ids(&bench.page("timers?show=failing").await), <[&str; 0]>::default());
    let page = bench.page("timers").await;
    assert!(page.contains(">postponed<") && page.contains("a full house"), "{page}");
    let page = bench.page("timer?id=busy").await;
    assert!(page.contains("did not succeed, and does not count"), "{page}");
}

#[tokio::test]
async fn a_timer_shows_everything_that_is_known_of_it() {
    let bench = Bench::new();
    let rule = Options::new().cron("0 3 * * *", "Europe/Berlin").attempts(4).header("trace", "7");
    let when = tourbillon_durable::When::ByRule;
    bench.timers.insert("nightly", "two\nlines", when, rule).await.unwrap();
    bench.timers.insert("once", "", SystemTime::UNIX_EPOCH, Options::new()).await.unwrap();
    let page = bench.page("timer?id=nightly").await;
    for text in [
        "0 3 * * * Europe/Berlin",
        "0 of 4",
        "runs once to catch up",
        "1s to 10m",
        "15s",
        "trace",
        "9 bytes",
        "two\nlines",
        "Next runs",
        "No runs yet",
    ] {
        assert!(page.contains(text), "{text} is not in {page}");
    }
    let next = page.split("Next runs").nth(1).unwrap().split("</ol>").next().unwrap();
    assert_eq!(next.matches("<li>").count(), 5, "{next}");
    bench.deliver(1, |_| Ok(())).await;
    let page = bench.page("timer?id=once").await;
    for text in ["There is no such timer", "Last 1 run: none failed", "acknowledged"] {
        assert!(page.contains(text), "{text} is not in {page}");
    }
}

#[tokio::test]
async fn json_is_indented_on_the_pages_of_timers_and_letters() {
    let (bench, json) = (Bench::new(), r#"{"a":{"<b>":1},"c":[]}"#);
    let dies = Options::new().attempts(1);
    bench.timers.insert("dies", json, SystemTime::UNIX_EPOCH, dies).await.unwrap();
    bench.deliver(1, |_| Err("410 Gone".to_owned())).await;
    bench.timers.insert("later", json, HOUR, Options::new()).await.unwrap();
    let shown = "{\n  &quot;a&quot;: {\n    &quot;&lt;b&gt;&quot;: 1\n  },\n  &quot;c&quot;: []\n}";
    for page in ["timer?id=later", "letter?number=1"] {
        let page = bench.page(page).await;
        assert!(page.contains(shown), "{page}");
        assert!(page.contains("22 bytes") && !page.contains("is left out"), "{page}");
    }
    let long = "x".repeat(100_000);
    bench.timers.insert("long", long, HOUR, Options::new()).await.unwrap();
    let page = bench.page("timer?id=long").await;
    assert!(page.contains("The end of the body is left out."), "{page}");
    let (summary, body) = page.split_once("<pre").unwrap();
    let body = body.split_once('>').unwrap().1.split('<').next().unwrap();
    assert_eq!(body.matches('x').count(), 65_536);
    assert!(summary.contains(&format!(">{}…<", "x".repeat(200))), "{summary}");
}

#[tokio::test]
async fn tabs_of_lists_that_need_attention_are_coloured() {
    let bench = Bench::new();
    let late = r#"class="is-late" href="timers?show=overdue""#;
    let dead = r#"class="is-dead" href="dead?label=shop""#;
    assert!(!bench.page("timers").await.contains(late));
    assert!(!bench.page("timers?label=shop").await.contains(dead));
    let dies = Options::new().attempts(1);
    bench.timers.insert("dies", "", SystemTime::UNIX_EPOCH, dies).await.unwrap();
    assert!(bench.page("timers").await.contains(late));
    bench.deliver(1, |_| Err("410 Gone".to_owned())).await;
    assert!(!bench.page("timers").await.contains(late));
    assert!(bench.page("timers?label=shop").await.contains(dead));
}
