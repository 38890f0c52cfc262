//! Rows of a store that another program has changed or inserted.

#![allow(clippy::disallowed_methods, reason = "a worker is waited for")]

use crate::common::bench::{SECOND, quick, wait};
use crate::common::postgres::OneSchema;
use std::time::{Duration, Instant, UNIX_EPOCH};
use tourbillon_durable::{Cancelled, DurableError, Existing, Finding, Inserted, Label, Outcome};

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_timer_that_cannot_be_read_is_reported_and_removed() {
    let Some(bench) = OneSchema::bench() else { return };
    let timers = bench.timers();
    for id in ["bad", "good"] {
        wait(timers.insert(id, "", SECOND, quick())).unwrap();
    }
    bench.place.order("update tb.timers set headers = '7' where id = 'bad'");
    let read = wait(timers.get("bad"));
    assert!(matches!(read, Err(DurableError::Corrupt { id: Some(_), .. })), "{read:?}");
    let report = wait(timers.check()).unwrap();
    assert_eq!(report.findings, [Finding::Unreadable { id: "bad".to_owned() }]);
    assert_eq!((report.timers, report.keys), (2, 2));
    let running = bench.work(1, |_| async { Ok::<(), String>(()) });
    bench.advance(SECOND);
    let first = running.next();
    assert_eq!(first.id, "bad");
    assert!(matches!(first.outcome, Outcome::Unreadable { .. }), "{first:?}");
    assert_eq!(running.acknowledged(1), ["good"]);
    running.stop();
    wait(timers.insert("good", "", HOUR, quick())).unwrap();
    assert_eq!(wait(timers.remove_corrupt("good")), Ok(false));
    assert_eq!(wait(timers.remove_corrupt("bad")), Ok(true));
    assert_eq!(wait(timers.remove_corrupt("bad")), Ok(false));
    assert_eq!(wait(timers.len()), Ok(1));
    assert!(wait(timers.check()).unwrap().is_sound());
}

#[test]
fn a_state_without_a_timer_is_reported_and_removed() {
    let Some(bench) = OneSchema::bench() else { return };
    let timers = bench.timers();
    for id in ["a", "b", "c"] {
        wait(timers.insert(id, "", SECOND, quick())).unwrap();
        wait(timers.pause_timer(id)).unwrap();
    }
    bench.place.order(
        "insert into tb.nexts select * from tb.timers; \
         delete from tb.timers where id in ('a', 'c'); update tb.states set paused = false",
    );
    let report = wait(timers.check()).unwrap();
    let due = bench.now() + SECOND;
    let stray = |id: &str| Finding::Stray { id: id.to_owned(), due };
    assert_eq!(report.findings, [stray("a"), stray("c")]);
    let running = bench.work(1, |_| async { Ok::<(), String>(()) });
    bench.advance(SECOND);
    let first = running.next();
    assert_eq!(first.id, "a");
    assert!(matches!(first.outcome, Outcome::Unreadable { .. }), "{first:?}");
    assert_eq!(running.acknowledged(1), ["b"]);
    running.stop();
    assert_eq!(wait(timers.remove_corrupt("a")), Ok(true));
    wait(timers.repair()).unwrap();
    assert!(wait(timers.check()).unwrap().is_sound());
    assert_eq!(bench.place.order("select count(*) from tb.states"), "0");
    assert_eq!(bench.place.order("select count(*) from tb.nexts"), "0");
}

#[test]
fn the_labels_of_a_timer_are_written_once() {
    let Some(bench) = OneSchema::bench() else { return };
    let timers = bench.timers();
    let (shop, eu) = (Label::new("shop").unwrap(), Label::new("eu").unwrap());
    wait(timers.insert("id", "", SECOND, quick().label(shop.clone()))).unwrap();
    wait(timers.insert("none", "", HOUR, quick())).unwrap();
    let rows = || bench.place.order("select label, id, xmin from tb.labels order by label");
    let first = rows();
    assert_eq!(first.lines().count(), 1, "{first}");
    let running = bench.work(1, |_| async { Err("no") });
    bench.advance(SECOND);
    assert!(matches!(running.next().outcome, Outcome::Retry { .. }));
    assert_eq!(running.stop(), []);
    wait(timers.reset("id", HOUR)).unwrap();
    wait(timers.pause_timer("id")).unwrap();
    wait(timers.run_now("id")).unwrap();
    let update = quick().existing(Existing::Update).label(shop.clone());
    wait(timers.insert("id", "new", HOUR, update)).unwrap();
    assert_eq!(rows(), first, "no row is written again");
    // Whatever program changes the timer.
    bench.place.order("update tb.timers set labels = '{eu}' where id = 'id'");
    assert_eq!((wait(timers.label_len(&shop)), wait(timers.label_len(&eu))), (Ok(0), Ok(1)));
    bench.place.order("delete from tb.timers where id = 'id'; delete from tb.states");
    assert_eq!(wait(timers.label_len(&eu)), Ok(0));
    // What was written without the triggers is removed.
    bench.place.order("insert into tb.labels values ('eu', 'none'), ('eu', 'gone')");
    assert_eq!(wait(timers.list_label(&eu, None, 9)), Ok(Vec::new()));
    let stray = |id: &str| Finding::StrayLabel { id: id.to_owned(), label: "eu".to_owned() };
    assert_eq!(wait(timers.check()).unwrap().findings, [stray("gone"), stray("none")]);
    wait(timers.repair()).unwrap();
    assert_eq!(rows(), "");
}

/// A next delivery that was inserted while the attempt ran waits for the end of the retries.
#[test]
fn a_cancel_between_two_attempts_removes_the_next_delivery() {
    let Some(bench) = OneSchema::bench() else { return };
    let timers = bench.timers().clone();
    let keep = quick().existing(Existing::Keep);
    let running = bench.work(1, move |delivery| {
        let (timers, keep) = (timers.clone(), keep.clone());
        async move {
            let next = timers.insert(&delivery.id, "next", HOUR, keep).await;
            assert_eq!(next, Ok(Inserted::Next));
            Err("no")
        }
    });
    wait(bench.timers().insert("id", "", SECOND, quick())).unwrap();
    bench.advance(SECOND);
    assert!(matches!(running.next().outcome, Outcome::Retry { .. }));
    let nexts = || bench.place.order("select count(*) from tb.nexts");
    assert_eq!(nexts(), "1");
    assert_eq!(wait(bench.timers().cancel("id")), Ok(Cancelled::Removed));
    assert_eq!(nexts(), "0");
    assert_eq!(running.stop(), []);
}

/// A timer that no worker is notified of. It may be in the transaction of another client that is
/// committed long after the due time.
#[test]
fn a_timer_without_a_notice_is_found() {
    let Some(bench) = OneSchema::bench() else { return };
    let running = bench.work_well();
    // The windows begin a minute before now.
    for id in ["1", "2", "3"] {
        wait(bench.timers().insert(id, "", 100 * SECOND, quick())).unwrap();
        bench.advance(100 * SECOND);
        assert_eq!(running.acknowledged(1), [id]);
    }
    for late in [SECOND, HOUR] {
        let due = bench.now().duration_since(UNIX_EPOCH).unwrap() - late;
        let (due, begun) = (due.as_millis(), Instant::now());
        bench.place.order(&format!(
            "insert into tb.timers (due, planned, first, most, attempts, lease, jitter, id, payload) \
             values ({due}, {due}, 1, 1, 8, 15000, true, 'late', '')"
        ));
        let attempt = loop {
            // All windows are loaded once a minute of real time.
            assert!(begun.elapsed() < 30 * SECOND, "it is never found");
            bench.advance(SECOND);
            if let Ok(attempt) = running.events.recv_timeout(SECOND / 10) {
                break attempt;
            }
        };
        assert_eq!((&*attempt.id, attempt.outcome), ("late", Outcome::Acknowledged));
    }
    assert_eq!(running.stop(), []);
}

/// Logical replication copies the letters and not the sequence of their numbers.
#[test]
fn a_timer_dies_although_the_number_of_its_letter_is_taken() {
    let Some(bench) = OneSchema::bench() else { return };
    let timers = bench.timers();
    let running = bench.work(1, |_| async { Err::<(), _>("it fails") });
    let once = quick().attempts(1);
    for (round, id) in ["a", "b", "c", "d"].into_iter().enumerate() {
        if round == 3 {
            bench.place.order("select setval('tb.numbers', 1, false)");
        }
        wait(timers.insert(id, "", SECOND, once.clone())).unwrap();
        bench.advance(SECOND);
        let attempt = running.next();
        assert!(matches!(attempt.outcome, Outcome::Dead { .. }), "{attempt:?}");
    }
    let letters = wait(timers.dead_letters(None, 10)).unwrap();
    let numbers: Vec<_> = letters.iter().map(|letter| (letter.number, &*letter.id)).collect();
    assert_eq!(numbers, [(1, "a"), (2, "b"), (3, "c"), (4, "d")]);
    running.stop();
}
