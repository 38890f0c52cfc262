//! Payloads of different lengths, on every store. A store may keep a long payload elsewhere than a
//! short one.

use crate::common::bench::{Bench, Place, SECOND, quick, suite, wait};
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;
use tourbillon_durable::{Cancelled, Existing, Inserted, Outcome};

suite!(
    a_payload_changes_its_length,
    a_long_payload_is_the_same_in_each_attempt,
    each_delivery_of_an_id_has_its_own_payload,
    a_long_payload_that_is_not_delivered_any_more_is_gone,
);

const HOUR: Duration = Duration::from_secs(3600);

/// Two short payloads and two long ones. In Redis, a payload of more than 4 KiB is long.
fn payloads() -> [Vec<u8>; 4] {
    [0, 4096, 4097, 1 << 20]
        .map(|length: usize| (0..length).map(|byte| byte.to_le_bytes()[0]).collect())
}

fn a_payload_changes_its_length<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let insert = |payload: &[u8], existing| {
        wait(timers.insert("id", payload, HOUR, quick().existing(existing))).unwrap()
    };
    for one in payloads() {
        for other in payloads() {
            insert(&one, Existing::Refuse);
            assert_eq!(wait(timers.get("id")).unwrap().unwrap().payload, one);
            assert_eq!(insert(&other, Existing::Replace), Inserted::Replaced);
            assert_eq!(wait(timers.list(None, 9)).unwrap()[0].payload, other);
            assert_eq!(insert(&other, Existing::Keep), Inserted::Kept);
            assert_eq!(insert(&one, Existing::Update), Inserted::Updated);
            let found = wait(timers.list_due(.., None, 9)).unwrap();
            assert_eq!((found.len(), &found[0].payload), (1, &one));
            assert_eq!(wait(timers.reset("id", 2 * HOUR)), Ok(true));
            assert_eq!(wait(timers.pause_timer("id")), Ok(true));
            assert_eq!(wait(timers.resume_timer("id")), Ok(true));
            assert_eq!(wait(timers.get("id")).unwrap().unwrap().payload, one);
            assert!(wait(timers.check()).unwrap().is_sound());
            assert_eq!(wait(timers.cancel("id")), Ok(Cancelled::Removed));
        }
    }
}

fn a_long_payload_is_the_same_in_each_attempt<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    for (number, payload) in payloads().into_iter().enumerate() {
        let (id, expected) = (format!("{number}"), payload.clone());
        let running = bench.work(1, move |delivery| {
            assert_eq!(delivery.payload, expected);
            async { Err("no") }
        });
        wait(timers.insert(&id, &*payload, SECOND, quick().attempts(3))).unwrap();
        for attempt in 1..=3 {
            bench.advance(4 * SECOND);
            let ended = running.next();
            let dead = matches!(ended.outcome, Outcome::Dead { .. });
            let retried = matches!(ended.outcome, Outcome::Retry { .. });
            assert!(if attempt == 3 { dead } else { retried }, "{ended:?}");
        }
        assert_eq!(running.stop(), []);
        let letter = wait(timers.newest_dead_letters(None, 1)).unwrap().remove(0);
        assert_eq!((letter.id, &letter.payload), (id.clone(), &payload));
        assert_eq!(wait(timers.redrive(letter.number)), Ok(true));
        assert_eq!(wait(timers.get(&id)).unwrap().unwrap().payload, payload);
        let running = bench.work_well();
        assert_eq!(running.acknowledged(1), [id]);
        assert_eq!(running.stop(), []);
        assert_eq!(wait(timers.len()), Ok(0));
    }
}

/// Runs a timer with one payload. Meanwhile another timer is inserted, and `between` is called.
fn one_after_another<P: Place>(
    bench: &Bench<P>,
    (one, other): (&[u8], &[u8]),
    between: impl Fn() + Send + Sync + 'static,
) -> Vec<Vec<u8>> {
    let timers = bench.timers().clone();
    wait(timers.insert("id", one, SECOND, quick())).unwrap();
    let (seen, other) = (Arc::new(Mutex::new(Vec::new())), other.to_vec());
    let delivered = Arc::clone(&seen);
    let running = bench.work(1, move |delivery| {
        let mut seen = seen.lock().unwrap();
        seen.push(delivery.payload);
        if seen.len() == 1 {
            let keep = quick().existing(Existing::Keep);
            assert_eq!(wait(timers.insert("id", &*other, SECOND, keep)), Ok(Inserted::Next));
            assert_eq!(wait(timers.get("id")).unwrap().unwrap().payload, seen[0]);
            between();
        }
        async { Ok::<_, &str>(()) }
    });
    bench.advance(SECOND);
    assert_eq!(running.acknowledged(1), ["id"]);
    bench.advance(SECOND);
    // A second delivery may have ended already.
    let coming = (wait(bench.timers().len()) != Ok(0)).then(|| running.next());
    let ended: Vec<_> = coming.into_iter().chain(running.stop()).collect();
    assert!(ended.iter().all(|attempt| attempt.outcome == Outcome::Acknowledged), "{ended:?}");
    let delivered = delivered.lock().unwrap();
    delivered.clone()
}

fn each_delivery_of_an_id_has_its_own_payload<P: Place>(bench: Bench<P>) {
    for one in payloads() {
        for other in payloads() {
            let seen = one_after_another(&bench, (&one, &other), || {});
            assert!(seen == [one.clone(), other], "another payload was delivered");
        }
    }
}

fn a_long_payload_that_is_not_delivered_any_more_is_gone<P: Place>(bench: Bench<P>) {
    let [_, short, long, _] = payloads();
    for one in [&short, &long] {
        let cancelling = bench.timers().clone();
        let seen = one_after_another(&bench, (one, &long), move || {
            assert_eq!(wait(cancelling.cancel("id")), Ok(Cancelled::Running));
        });
        assert!(seen == [one.clone()], "it was cancelled");
        assert!(wait(bench.timers().check()).unwrap().is_sound());
    }
}
