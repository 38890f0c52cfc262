//! Inserts and cancels with a condition on the last insert of a timer, on every store.

use crate::common::bench::{Bench, Place, SECOND, quick, suite, wait};
use futures_util::future::{join, join_all};
use std::time::Duration;
use tourbillon_durable::{
    Cancelled, DurableError, DurableTimers, Existing, Inserted, Options, Outcome, TimerState,
};

suite!(
    a_condition_names_the_last_insert,
    a_timer_without_the_header_can_be_named,
    attempts_resets_and_pauses_are_no_changes,
    what_comes_next_is_the_last_insert,
    a_long_payload_is_replaced_over,
    of_writers_that_have_read_the_same_timer_one_wins,
);

const HOUR: Duration = Duration::from_secs(3600);

/// The header that has the version of a timer.
const VERSION: &str = "version";

/// Returns options for a version, over another version.
fn over(before: Option<&str>, version: &str, existing: Existing) -> Options {
    quick().existing(existing).header(VERSION, version).only_over(VERSION, before)
}

/// Inserts a timer over a version of it. Its payload is its version.
async fn insert_over(
    timers: &DurableTimers,
    before: Option<&str>,
    version: &str,
    existing: Existing,
) -> Result<Inserted, DurableError> {
    let options = over(before, version, existing);
    let inserted = timers.insert("id", version, HOUR, options).await;
    inserted.map_err(|refused| {
        assert_eq!(refused.value, version.as_bytes(), "the payload is given back");
        refused.reason
    })
}

/// Returns the version that the last insert has set.
async fn last_version(timers: &DurableTimers) -> Option<String> {
    let found = timers.get("id").await.unwrap()?;
    let version = found.last_insert()?.get_headers().find(|(name, _)| *name == VERSION);
    version.map(|(_, value)| value.to_owned())
}

fn a_condition_names_the_last_insert<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let insert =
        |before, version, existing| wait(insert_over(timers, Some(before), version, existing));
    let policies = [Existing::Keep, Existing::Replace, Existing::Update];
    let is_unchanged = |version: Option<&str>| {
        assert_eq!(wait(last_version(timers)).as_deref(), version);
        for existing in policies {
            assert_eq!(insert("wrong", "new", existing), Err(DurableError::Changed));
        }
        let cancelled = wait(timers.cancel_only("id", VERSION, Some("wrong")));
        assert_eq!(cancelled, Err(DurableError::Changed));
        assert_eq!(wait(last_version(timers)).as_deref(), version);
        assert_eq!(wait(timers.len()), Ok(u64::from(version.is_some())));
    };
    is_unchanged(None);
    let other = quick().header("other", "wrong").header(VERSION, "1");
    wait(timers.insert("id", "1", HOUR, other)).unwrap();
    is_unchanged(Some("1"));
    assert_eq!(insert("1", "kept", Existing::Keep), Ok(Inserted::Kept));
    is_unchanged(Some("1"));
    assert_eq!(insert("1", "2", Existing::Replace), Ok(Inserted::Replaced));
    is_unchanged(Some("2"));
    assert_eq!(insert("2", "3", Existing::Update), Ok(Inserted::Updated));
    is_unchanged(Some("3"));
    let found = wait(timers.get("id")).unwrap().unwrap();
    assert_eq!((&found.payload[..], found.planned), (&b"3"[..], bench.now() + HOUR));
    let refused = insert("3", "4", Existing::Refuse).unwrap_err();
    assert!(matches!(refused, DurableError::Option(_)), "{refused}");
    assert_eq!(wait(timers.cancel_only("id", VERSION, Some("3"))), Ok(Cancelled::Removed));
    is_unchanged(None);
    assert!(wait(timers.check()).unwrap().is_sound());
}

fn a_timer_without_the_header_can_be_named<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let cancel = |value| wait(timers.cancel_only("id", VERSION, value));
    assert_eq!(cancel(None), Err(DurableError::Changed), "there is no timer");
    for options in [quick(), quick().header("other", "")] {
        wait(timers.insert("id", "", HOUR, options.clone())).unwrap();
        assert_eq!(cancel(Some("")), Err(DurableError::Changed));
        assert_eq!(cancel(None), Ok(Cancelled::Removed));
        wait(timers.insert("id", "", HOUR, options)).unwrap();
        let replaced = wait(insert_over(timers, None, "", Existing::Replace));
        assert_eq!(replaced, Ok(Inserted::Replaced));
        assert_eq!(cancel(None), Err(DurableError::Changed));
        assert_eq!(cancel(Some("")), Ok(Cancelled::Removed));
    }
}

fn attempts_resets_and_pauses_are_no_changes<P: Place>(bench: Bench<P>) {
    let timers = bench.timers().clone();
    let inside = timers.clone();
    let running = bench.work(1, move |_| {
        let timers = inside.clone();
        async move {
            assert_eq!(last_version(&timers).await.as_deref(), Some("1"));
            let replaced = insert_over(&timers, Some("1"), "1", Existing::Update).await;
            assert_eq!(replaced, Ok(Inserted::Updated));
            Err("no")
        }
    });
    wait(timers.insert("id", "1", SECOND, quick().header(VERSION, "1"))).unwrap();
    bench.advance(SECOND);
    assert!(matches!(running.next().outcome, Outcome::Retry { .. }));
    assert_eq!(running.stop(), []);
    assert_eq!(wait(timers.reset("id", HOUR)), Ok(true));
    assert_eq!(wait(timers.pause_timer("id")), Ok(true));
    let replaced = wait(insert_over(&timers, Some("1"), "2", Existing::Replace));
    assert_eq!(replaced, Ok(Inserted::Replaced));
    let found = wait(timers.get("id")).unwrap().unwrap();
    assert_eq!((found.attempts, found.state), (0, TimerState::Resting));
}

fn what_comes_next_is_the_last_insert<P: Place>(bench: Bench<P>) {
    let timers = bench.timers().clone();
    let inside = timers.clone();
    let running = bench.work(1, move |_| {
        let timers = inside.clone();
        async move {
            let timers = &timers;
            let insert = async |before, version, existing| {
                insert_over(timers, Some(before), version, existing).await
            };
            let cancel = async |version| timers.cancel_only("id", VERSION, Some(version)).await;
            let is_over = async |before| {
                for existing in [Existing::Keep, Existing::Replace, Existing::Update] {
                    let changed = insert(before, "new", existing).await;
                    assert_eq!(changed, Err(DurableError::Changed));
                }
                assert_eq!(cancel(before).await, Err(DurableError::Changed));
            };
            assert_eq!(insert("1", "2", Existing::Keep).await, Ok(Inserted::Next));
            assert_eq!(last_version(timers).await.as_deref(), Some("2"));
            is_over("1").await;
            assert_eq!(insert("2", "3", Existing::Update).await, Ok(Inserted::Updated));
            assert_eq!(cancel("3").await, Ok(Cancelled::Running));
            // It is there until its attempt ends, and counts no more.
            assert_eq!(last_version(timers).await, None);
            is_over("1").await;
            is_over("3").await;
            let next = timers.insert("id", "", HOUR, quick().existing(Existing::Keep)).await;
            assert_eq!(next, Ok(Inserted::Next));
            is_over("3").await;
            let replaced = insert_over(timers, None, "4", Existing::Replace).await;
            assert_eq!(replaced, Ok(Inserted::Replaced));
            assert_eq!(last_version(timers).await.as_deref(), Some("4"));
            Ok::<(), String>(())
        }
    });
    wait(timers.insert("id", "1", SECOND, quick().header(VERSION, "1"))).unwrap();
    bench.advance(SECOND);
    assert_eq!(running.next().outcome, Outcome::TooLate);
    assert_eq!(running.stop(), []);
    assert_eq!(wait(last_version(&timers)).as_deref(), Some("4"));
}

fn a_long_payload_is_replaced_over<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let long = vec![b'x'; 1 << 20];
    wait(timers.insert("id", &*long, HOUR, quick().header(VERSION, "1"))).unwrap();
    for (before, version, payload) in
        [("1", "2", &b"short"[..]), ("2", "3", &long), ("3", "4", &long)]
    {
        let options = over(Some(before), version, Existing::Replace);
        let replaced = wait(timers.insert("id", payload, HOUR, options));
        assert_eq!(replaced, Ok(Inserted::Replaced));
        assert_eq!(wait(timers.get("id")).unwrap().unwrap().payload, payload);
    }
    assert_eq!(wait(timers.cancel_only("id", VERSION, Some("4"))), Ok(Cancelled::Removed));
    assert!(wait(timers.check()).unwrap().is_sound());
}

fn of_writers_that_have_read_the_same_timer_one_wins<P: Place>(bench: Bench<P>) {
    const WRITERS: usize = 8;
    let timers = bench.timers();
    for round in 0..40 {
        let before = format!("{round}");
        let options = quick().existing(Existing::Replace).header(VERSION, &before);
        wait(timers.insert("id", "", HOUR, options)).unwrap();
        let writers = (0..WRITERS).map(|writer| {
            let (before, version) = (&before, format!("{round} by {writer}"));
            async move {
                let changed = match writer {
                    0 => timers.cancel_only("id", VERSION, Some(before)).await.map(|_| ()),
                    _ => {
                        let odd = writer % 2 == 1;
                        let existing = if odd { Existing::Replace } else { Existing::Update };
                        insert_over(timers, Some(before), &version, existing).await.map(|_| ())
                    }
                };
                (changed, (writer > 0).then_some(version))
            }
        });
        // In the order of another writer in each round. The timer is moved meanwhile.
        let mut writers: Vec<_> = writers.collect();
        writers.rotate_left(round % WRITERS);
        let moved = timers.reset("id", 2 * HOUR);
        let (ended, _) = wait(join(join_all(writers), moved));
        let (won, lost): (Vec<_>, Vec<_>) =
            ended.into_iter().partition(|(changed, _)| changed.is_ok());
        assert_eq!(won.len(), 1, "round {round}: {won:?}");
        for (changed, version) in lost {
            assert_eq!(changed, Err(DurableError::Changed), "round {round}: {version:?}");
        }
        assert_eq!(wait(last_version(timers)), won[0].1, "round {round}");
    }
    assert!(wait(timers.check()).unwrap().is_sound());
}
