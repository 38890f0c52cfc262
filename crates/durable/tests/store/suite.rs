//! The operations and guarantees of durable timers in virtual time. Each test takes a place with a
//! store, so that every store passes all of them.

#![allow(clippy::disallowed_methods, reason = "one of these tests is about threads")]

use crate::common::bench::{Bench, LEASE, MILLISECOND, Place, SECOND, quick, start, suite, wait};
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tourbillon_durable::{
    Attempt, Cancelled, DeadLetter, DeadReason, DurableError, DurableTimer, DurableTimers,
    Existing, Inserted, Outcome, TimerState, Verdict, When,
};

suite!(
    a_timer_is_delivered_and_gone,
    the_first_timer_beyond_a_page_is_in_time,
    nothing_is_early_when_the_clock_is_set_back,
    a_clock_set_forward_is_noticed,
    what_is_acknowledged_survives,
    what_was_missed_comes_oldest_first,
    an_id_that_exists,
    cancel_tells_the_truth,
    a_reset_is_obeyed,
    a_handler_that_schedules_itself_again,
    what_comes_next_waits_for_the_last_attempt,
    a_cancel_takes_what_comes_next,
    a_cancel_ends_the_retries,
    a_timer_that_was_cancelled_may_be_inserted_again,
    a_cancel_holds_though_the_worker_dies,
    failures_are_retried_and_then_dead,
    a_dead_letter_is_driven_again_or_deleted,
    a_handler_that_panics,
    a_handler_that_overruns_its_lease,
    a_worker_that_dies_is_replaced,
    an_answer_for_a_timer_that_was_replaced_is_too_late,
    time_to_live,
    bad_input_is_refused,
    the_longest_input_is_taken,
    pages_of_a_list,
    pages_are_bounded,
    pages_of_long_dead_letters_are_bounded,
    concurrency_is_bounded,
    a_worker_ends_in_peace,
    workers_share_the_work,
    many_callers_at_once,
    more_timers_than_a_wheel_takes,
    values_of_serde,
);

fn a_timer_is_delivered_and_gone<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let (send, deliveries) = channel();
    let running = bench.work(8, move |delivery| {
        send.send(delivery).unwrap();
        async { Ok::<(), String>(()) }
    });
    let due = start() + Duration::from_micros(5_000_500);
    assert_eq!(wait(timers.insert("id", "payload", due, quick())), Ok(Inserted::New));
    let kept = wait(timers.get("id")).unwrap().unwrap();
    let planned = start() + Duration::from_millis(5001);
    assert_eq!(
        (kept.planned, kept.due, kept.attempts, kept.is_running()),
        (planned, planned, 0, false)
    );
    assert_eq!(wait(timers.len()), Ok(1));

    bench.advance(5 * SECOND);
    bench.advance(MILLISECOND);
    let delivery = deliveries.recv().unwrap();
    assert_eq!((delivery.id.as_str(), &delivery.payload[..]), ("id", &b"payload"[..]));
    assert_eq!((delivery.attempt, delivery.planned), (1, planned));
    assert_eq!(delivery.token, "1800000005001:id");
    assert_eq!(running.acknowledged(1), ["id"]);
    assert_eq!((wait(timers.len()), wait(timers.dead_len())), (Ok(0), Ok(0)));
    assert_eq!(running.stop(), []);
}

/// A store may tell a worker when to ask for keys again.
fn the_first_timer_beyond_a_page_is_in_time<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    for (id, seconds) in [("page", 1), ("beyond", 20)] {
        wait(timers.insert(id, "", seconds * SECOND, quick())).unwrap();
    }
    let running = bench.work(1, |_| async { Ok::<(), String>(()) });
    bench.advance(SECOND);
    assert_eq!(running.acknowledged(1), ["page"]);
    bench.advance(12 * SECOND);
    bench.advance(7 * SECOND);
    assert_eq!(running.next().lateness, Duration::ZERO);
    assert_eq!(running.stop(), []);
}

fn nothing_is_early_when_the_clock_is_set_back<P: Place>(bench: Bench<P>) {
    let running = bench.work_well();
    wait(bench.timers().insert("id", "", 5 * SECOND, quick())).unwrap();
    bench.advance(4 * SECOND);
    bench.place.set_clock(-30_000);
    // The timer is due by the wheel, and not by the store's clock.
    bench.advance(2 * SECOND);
    for _second in 0..28 {
        assert!(wait(bench.timers().get("id")).unwrap().is_some());
        bench.advance(SECOND);
    }
    bench.place.set_clock(-3_600_000);
    bench.advance(3600 * SECOND);
    assert!(wait(bench.timers().get("id")).unwrap().is_some());
    bench.advance(SECOND);
    while let Outcome::Retry { .. } = running.next().outcome {
        // Its lease was requested before the hour and granted after it, so it began too late.
        bench.advance(SECOND);
    }
    assert_eq!(wait(bench.timers().len()), Ok(0));
    assert_eq!(running.stop(), []);
}

fn a_clock_set_forward_is_noticed<P: Place>(bench: Bench<P>) {
    let running = bench.work_well();
    wait(bench.timers().insert("near", "", 8 * SECOND, quick())).unwrap();
    wait(bench.timers().insert("far", "", 3000 * SECOND, quick())).unwrap();
    bench.advance(MILLISECOND);
    bench.place.set_clock(3_600_000);
    bench.advance(SECOND);
    let both: BTreeSet<String> = running.acknowledged(2).into_iter().collect();
    assert_eq!(both.into_iter().collect::<Vec<_>>(), ["far", "near"]);
    assert_eq!(running.stop(), []);
}

fn what_is_acknowledged_survives<P: Place>(mut bench: Bench<P>) {
    let month = 30 * 86_400 * SECOND;
    wait(bench.timers().insert("id", "payload", month, quick())).unwrap();
    for _ in 0..2 {
        bench.reopen();
        let kept = wait(bench.timers().get("id")).unwrap().unwrap();
        assert_eq!((&kept.payload[..], kept.planned), (&b"payload"[..], start() + month));
    }
    bench.advance(month);
    let running = bench.work_well();
    assert_eq!(running.acknowledged(1), ["id"]);
    assert_eq!(running.stop(), []);
    bench.reopen();
    assert_eq!(wait(bench.timers().len()), Ok(0));
}

fn what_was_missed_comes_oldest_first<P: Place>(mut bench: Bench<P>) {
    for (place, hours) in [3_u32, 1, 4, 2, 5].into_iter().enumerate() {
        let delay = hours * 3600 * SECOND;
        wait(bench.timers().insert(&format!("{place}"), "", delay, quick())).unwrap();
    }
    bench.reopen();
    bench.advance(24 * 3600 * SECOND);
    let running = bench.work(1, |_| async { Ok::<(), String>(()) });
    assert_eq!(running.acknowledged(5), ["1", "3", "0", "2", "4"]);
    assert_eq!(running.stop(), []);
}

fn an_id_that_exists<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let schedule = |payload: &str, existing| {
        let options = quick().existing(existing);
        wait(timers.insert("id", payload, 5 * SECOND, options))
    };
    let payload = || wait(timers.get("id")).unwrap().map(|timer| timer.payload);
    assert_eq!(schedule("a", Existing::Keep), Ok(Inserted::New));
    assert_eq!(schedule("b", Existing::Keep), Ok(Inserted::Kept));
    assert_eq!(payload(), Some(b"a".to_vec()));
    assert_eq!(schedule("c", Existing::Replace), Ok(Inserted::Replaced));
    assert_eq!(payload(), Some(b"c".to_vec()));
    let refused = schedule("d", Existing::Refuse).unwrap_err();
    assert_eq!((refused.reason, refused.value), (DurableError::Exists, b"d".to_vec()));
    assert_eq!(payload(), Some(b"c".to_vec()));
    assert_eq!(wait(timers.len()), Ok(1));
}

fn cancel_tells_the_truth<P: Place>(bench: Bench<P>) {
    let timers = bench.timers().clone();
    let inside = timers.clone();
    let running = bench.work(8, move |delivery| {
        let timers = inside.clone();
        async move { Err(format!("cancelled: {:?}", timers.cancel(&delivery.id).await)) }
    });
    assert_eq!(wait(timers.cancel("id")), Ok(Cancelled::NotFound));
    wait(timers.insert("loaded", "", 5 * SECOND, quick())).unwrap();
    wait(timers.insert("far", "", 5000 * SECOND, quick())).unwrap();
    wait(timers.insert("running", "", 6 * SECOND, quick())).unwrap();
    bench.advance(4 * SECOND);
    assert_eq!(wait(timers.cancel("loaded")), Ok(Cancelled::Removed));
    assert_eq!(wait(timers.cancel("loaded")), Ok(Cancelled::NotFound));
    assert_eq!(wait(timers.cancel("far")), Ok(Cancelled::Removed));
    bench.advance(2 * SECOND);
    let event = running.next();
    let error = "cancelled: Ok(Running)".to_owned();
    assert_eq!((&*event.id, event.attempt), ("running", 1));
    assert_eq!(event.outcome, Outcome::Cancelled { error });
    assert_eq!(wait(timers.cancel("running")), Ok(Cancelled::NotFound));
    assert_eq!((wait(timers.len()), wait(timers.dead_len())), (Ok(0), Ok(0)));
    bench.advance(9000 * SECOND);
    assert_eq!(wait(timers.len()), Ok(0));
    assert_eq!(running.stop(), []);
}

/// Inserts a timer in its own handler.
async fn again(
    timers: &DurableTimers,
    payload: &str,
    delay: Duration,
    existing: Existing,
) -> Result<Inserted, DurableError> {
    let options = quick().existing(existing).attempts(1);
    timers.insert("id", payload, delay, options).await.map_err(DurableError::from)
}

fn a_handler_that_schedules_itself_again<P: Place>(bench: Bench<P>) {
    let timers = bench.timers().clone();
    let inside = timers.clone();
    let running = bench.work(8, move |delivery| {
        let timers = inside.clone();
        async move {
            if delivery.payload == b"last" {
                return Err("no");
            }
            // For the same time it is the same delivery.
            let same = timers.insert("id", "", delivery.planned, quick().existing(Existing::Keep));
            assert_eq!(same.await, Ok(Inserted::Kept));
            let refused = again(&timers, "", SECOND, Existing::Refuse).await;
            assert_eq!(refused, Err(DurableError::Exists));
            let next = again(&timers, "last", 5 * SECOND, Existing::Keep).await;
            assert_eq!(next, Ok(Inserted::Next));
            let kept = again(&timers, "another", SECOND, Existing::Keep).await;
            assert_eq!(kept, Ok(Inserted::Kept));
            let found = timers.get("id").await.unwrap().unwrap();
            assert_eq!((&found.payload[..], found.is_running()), (&b"first"[..], true));
            assert_eq!(found.next, Some(delivery.planned + 5 * SECOND));
            Ok(())
        }
    });
    wait(timers.insert("id", "first", SECOND, quick())).unwrap();
    bench.advance(SECOND);
    assert_eq!(running.acknowledged(1), ["id"]);
    let found = wait(timers.get("id")).unwrap().unwrap();
    let planned = start() + 6 * SECOND;
    assert_eq!((&found.payload[..], found.planned, found.due), (&b"last"[..], planned, planned));
    assert_eq!((found.is_running(), found.attempts, found.next), (false, 0, None));
    assert_eq!(wait(timers.len()), Ok(1));
    bench.advance(5 * SECOND);
    let event = running.next();
    assert_eq!((event.planned, event.attempt), (planned, 1));
    // With its own options.
    assert!(matches!(event.outcome, Outcome::Dead { .. }), "{event:?}");
    assert_eq!(wait(timers.len()), Ok(0));
    assert_eq!(running.stop(), []);
}

fn what_comes_next_waits_for_the_last_attempt<P: Place>(bench: Bench<P>) {
    let timers = bench.timers().clone();
    let inside = timers.clone();
    let next = start() + SECOND + SECOND / 2;
    let seen = Arc::new(Mutex::new(false));
    let running = bench.work(8, move |delivery| {
        let (timers, seen) = (inside.clone(), Arc::clone(&seen));
        async move {
            if delivery.payload == b"next" {
                return Ok(());
            }
            let kept = again(&timers, "next", SECOND / 2, Existing::Keep).await;
            let first = timers.get("id").await.unwrap().unwrap().next == Some(next);
            assert!(first, "the first stays");
            let expected = if *seen.lock().unwrap() { Inserted::Kept } else { Inserted::Next };
            *seen.lock().unwrap() = true;
            assert_eq!(kept, Ok(expected));
            Err("no")
        }
    });
    wait(timers.insert("id", "first", SECOND, quick().attempts(2))).unwrap();
    bench.advance(SECOND);
    assert!(matches!(running.next().outcome, Outcome::Retry { .. }));
    let found = wait(timers.get("id")).unwrap().unwrap();
    assert_eq!((&found.payload[..], found.next), (&b"first"[..], Some(next)));
    // If it is moved, it still comes before the next one.
    assert_eq!(wait(timers.reset("id", start() + 9 * SECOND)), Ok(true));
    bench.advance(8 * SECOND);
    let event = running.next();
    assert_eq!((event.planned, event.attempt), (start() + 9 * SECOND, 1));
    bench.advance(SECOND);
    assert!(matches!(running.next().outcome, Outcome::Dead { .. }));
    // Its time has passed meanwhile.
    let event = running.next();
    assert_eq!((event.planned, event.outcome), (next, Outcome::Acknowledged));
    let dead = wait(timers.dead_letters(None, 9)).unwrap();
    assert_eq!((dead.len(), &dead[0].payload[..]), (1, &b"first"[..]));
    assert_eq!(wait(timers.len()), Ok(0));
    assert_eq!(running.stop(), []);
}

fn a_cancel_takes_what_comes_next<P: Place>(bench: Bench<P>) {
    let timers = bench.timers().clone();
    let inside = timers.clone();
    let running = bench.work(8, move |delivery| {
        let timers = inside.clone();
        async move {
            let next = again(&timers, "next", SECOND, Existing::Keep).await;
            assert_eq!(next, Ok(Inserted::Next));
            match &delivery.payload[..] {
                b"cancelled" => assert_eq!(timers.cancel("id").await, Ok(Cancelled::Running)),
                b"replaced" => {
                    let new = again(&timers, "new", 3600 * SECOND, Existing::Replace).await;
                    assert_eq!(new, Ok(Inserted::Replaced));
                }
                _ => return Err("no"),
            }
            Ok(())
        }
    });
    wait(timers.insert("id", "cancelled", SECOND, quick())).unwrap();
    bench.advance(SECOND);
    assert_eq!(running.acknowledged(1), ["id"]);
    assert_eq!(wait(timers.len()), Ok(0));
    // Between two attempts both are removed.
    wait(timers.insert("id", "fails", SECOND, quick())).unwrap();
    bench.advance(SECOND);
    assert!(matches!(running.next().outcome, Outcome::Retry { .. }));
    assert_eq!(wait(timers.cancel("id")), Ok(Cancelled::Removed));
    assert_eq!(wait(timers.len()), Ok(0));
    wait(timers.insert("id", "replaced", SECOND, quick())).unwrap();
    assert_eq!(wait(timers.get("id")).unwrap().unwrap().next, None);
    bench.advance(SECOND);
    assert_eq!(running.next().outcome, Outcome::TooLate);
    let found = wait(timers.get("id")).unwrap().unwrap();
    assert_eq!((&found.payload[..], found.next), (&b"new"[..], None));
    assert_eq!(running.stop(), []);
}

fn a_cancel_ends_the_retries<P: Place>(bench: Bench<P>) {
    let timers = bench.timers().clone();
    let inside = timers.clone();
    let running = bench.work_by(8, move |delivery| {
        let timers = inside.clone();
        async move {
            for _ in 0..2 {
                assert_eq!(timers.cancel("id").await, Ok(Cancelled::Running));
                let found = timers.get("id").await.unwrap().unwrap();
                assert!(found.is_running() && found.state == TimerState::Cancelling);
                let cancelling = timers.list_state(TimerState::Cancelling, None, 9).await;
                assert_eq!(cancelling.unwrap().len(), 1);
            }
            match &delivery.payload[..] {
                b"fails" => Verdict::Retry("no".to_owned()),
                b"fails for good" => Verdict::Fail("no".to_owned()),
                b"snoozes" => Verdict::Again { after: SECOND, counted: false },
                _ => Verdict::Done,
            }
        }
    });
    for (payload, attempts) in
        [("fails", 3), ("fails", 1), ("fails for good", 3), ("snoozes", 3), ("succeeds", 3)]
    {
        wait(timers.insert("id", payload, SECOND, quick().attempts(attempts))).unwrap();
        bench.advance(SECOND);
        let error = if payload.starts_with("fails") { "no" } else { "" }.to_owned();
        let expected = match payload {
            "succeeds" => Outcome::Acknowledged,
            _ => Outcome::Cancelled { error },
        };
        assert_eq!(running.next().outcome, expected, "{payload}");
        assert_eq!((wait(timers.len()), wait(timers.dead_len())), (Ok(0), Ok(0)), "{payload}");
    }
    assert_eq!(running.stop(), []);
}

fn a_timer_that_was_cancelled_may_be_inserted_again<P: Place>(bench: Bench<P>) {
    let timers = bench.timers().clone();
    let inside = timers.clone();
    let running = bench.work(8, move |delivery| {
        let timers = inside.clone();
        async move {
            let (existing, expected) = match &delivery.payload[..] {
                b"keeps" => (Existing::Keep, [Inserted::Next, Inserted::Kept]),
                b"updates" => (Existing::Update, [Inserted::Updated, Inserted::Updated]),
                _ => return Ok(()),
            };
            assert_eq!(timers.pause_timer("id").await, Ok(true));
            assert_eq!(timers.cancel("id").await, Ok(Cancelled::Running));
            // It would not be delivered again, so this is another delivery.
            for expected in expected {
                let options = quick().existing(existing);
                let next = timers.insert("id", "next", delivery.planned, options).await;
                assert_eq!(next, Ok(expected));
            }
            let found = timers.get("id").await.unwrap().unwrap();
            assert_eq!((&found.payload, found.state), (&delivery.payload, TimerState::Cancelling));
            Err("no")
        }
    });
    for payload in ["keeps", "updates"] {
        let planned = bench.now() + SECOND;
        wait(timers.insert("id", payload, planned, quick())).unwrap();
        bench.advance(SECOND);
        assert_eq!(running.next().outcome, Outcome::Cancelled { error: "no".to_owned() });
        let event = running.next();
        assert_eq!((event.planned, event.attempt), (planned, 1));
        assert_eq!(event.outcome, Outcome::Acknowledged);
    }
    assert_eq!(running.stop(), []);
    assert_eq!((wait(timers.len()), wait(timers.dead_len())), (Ok(0), Ok(0)));
}

fn a_cancel_holds_though_the_worker_dies<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    wait(timers.insert("id", "", SECOND, quick().lease(5 * SECOND))).unwrap();
    bench.advance(SECOND);
    die_in_the_middle(timers);
    assert_eq!(wait(timers.cancel("id")), Ok(Cancelled::Running));
    let running = bench.work_well();
    bench.advance(5 * SECOND);
    let error = "the lease ran out".to_owned();
    assert_eq!(running.next().outcome, Outcome::Cancelled { error });
    assert_eq!((wait(timers.len()), wait(timers.dead_len())), (Ok(0), Ok(0)));
    assert_eq!(running.stop(), []);
}

fn a_reset_is_obeyed<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let running = bench.work_well();
    for id in ["later", "sooner", "away"] {
        wait(timers.insert(id, "", 8 * SECOND, quick())).unwrap();
    }
    assert_eq!(wait(timers.reset("sooner", 2 * SECOND)), Ok(true));
    assert_eq!(wait(timers.reset("later", start() + 3600 * SECOND)), Ok(true));
    assert_eq!(wait(timers.reset("away", 9 * SECOND)), Ok(true));
    assert_eq!(wait(timers.reset("none", SECOND)), Ok(false));
    bench.advance(2 * SECOND);
    let event = running.next();
    assert_eq!((event.id.as_str(), event.planned), ("sooner", start() + 2 * SECOND));
    bench.advance(6 * SECOND);
    bench.advance(SECOND);
    assert_eq!(running.next().planned, start() + 9 * SECOND);
    bench.advance(3591 * SECOND);
    let event = running.next();
    assert_eq!((event.id.as_str(), event.planned), ("later", start() + 3600 * SECOND));
    assert_eq!(running.stop(), []);
}

fn failures_are_retried_and_then_dead<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&tokens);
    let running = bench.work(8, move |delivery| {
        seen.lock().unwrap().push((delivery.attempt, delivery.token));
        async { Err("out of paper") }
    });
    wait(timers.insert("id", "payload", SECOND, quick())).unwrap();
    bench.advance(SECOND);
    for (attempt, wait) in [(1, SECOND), (2, 2 * SECOND)] {
        let event = running.next();
        let error = "out of paper".to_owned();
        assert_eq!((event.attempt, event.outcome), (attempt, Outcome::Retry { wait, error }));
        let kept = pollster::block_on(timers.get("id")).unwrap().unwrap();
        assert_eq!((kept.due, &*kept.error), (bench.now() + wait, "out of paper"));
        assert_eq!(kept.planned, start() + SECOND);
        bench.advance(wait - MILLISECOND);
        bench.advance(MILLISECOND);
    }
    let (reason, error) = (DeadReason::Attempts, "out of paper".to_owned());
    assert_eq!(running.next().outcome, Outcome::Dead { reason, error });
    assert_eq!((wait(timers.len()), wait(timers.dead_len())), (Ok(0), Ok(1)));
    let dead = wait(timers.dead_letters(None, 9)).unwrap().remove(0);
    assert_eq!((&*dead.id, &dead.payload[..], dead.attempts), ("id", &b"payload"[..], 3));
    assert_eq!((dead.planned, dead.died), (start() + SECOND, start() + 4 * SECOND));
    let token = "1800000001000:id".to_owned();
    let all = [1, 2, 3].map(|attempt| (attempt, token.clone()));
    assert_eq!(*tokens.lock().unwrap(), all);
    assert_eq!(running.stop(), []);
}

/// Deletes a letter, which stays as long as it is only read.
fn delete_dead_letter(timers: &DurableTimers, letter: &DeadLetter) {
    for _ in 0..2 {
        assert_eq!(wait(timers.dead_letter(letter.number)).unwrap().as_ref(), Some(letter));
    }
    assert_eq!(wait(timers.delete_dead_letter(letter.number)), Ok(true));
    assert_eq!(wait(timers.delete_dead_letter(letter.number)), Ok(false));
    assert_eq!(wait(timers.dead_letter(letter.number)), Ok(None));
}

fn a_dead_letter_is_driven_again_or_deleted<P: Place>(mut bench: Bench<P>) {
    let running = bench.work(1, |_| async { Err("no") });
    for (id, delay) in [("a", 1), ("b", 2), ("c", 3)] {
        wait(bench.timers().insert(id, id, delay * SECOND, quick().attempts(1))).unwrap();
    }
    bench.advance(3 * SECOND);
    for id in ["a", "b", "c"] {
        assert_eq!(running.next().id, id);
    }
    assert_eq!(running.stop(), []);
    bench.reopen();
    let timers = bench.timers();
    let first = wait(timers.dead_letters(None, 2)).unwrap();
    assert_eq!(first.iter().map(|dead| &*dead.id).collect::<Vec<_>>(), ["a", "b"]);
    let rest = wait(timers.dead_letters(Some(first[1].number), 2)).unwrap();
    assert_eq!(rest.iter().map(|dead| &*dead.id).collect::<Vec<_>>(), ["c"]);

    delete_dead_letter(timers, &first[1]);
    // A letter that was deleted takes no place in a page.
    let next = wait(timers.dead_letters(Some(first[0].number), 1)).unwrap();
    assert_eq!(next, rest);
    assert_eq!(wait(timers.redrive(first[1].number)), Ok(false));
    wait(timers.insert("c", "another", 99 * SECOND, quick())).unwrap();
    assert_eq!(wait(timers.redrive(rest[0].number)), Err(DurableError::Exists));
    assert_eq!(wait(timers.redrive(first[0].number)), Ok(true));
    assert_eq!(wait(timers.dead_len()), Ok(1));
    let again = wait(timers.get("a")).unwrap().unwrap();
    assert_eq!((again.attempts, &*again.error), (0, "no"));
    let running = bench.work_well();
    let event = running.next();
    assert_eq!((&*event.id, event.attempt, event.planned), ("a", 1, start() + SECOND));
    assert_eq!(running.stop(), []);
}

fn a_handler_that_panics<P: Place>(bench: Bench<P>) {
    let running = bench.work(8, |delivery| {
        assert!(delivery.attempt > 1, "before the future");
        async move {
            assert!(delivery.attempt > 2, "within the future");
            Ok::<(), String>(())
        }
    });
    wait(bench.timers().insert("id", "", SECOND, quick())).unwrap();
    for text in ["before the future", "within the future"] {
        bench.advance(2 * SECOND);
        let Outcome::Retry { error, .. } = running.next().outcome else { panic!("no retry") };
        assert_eq!(error, format!("the handler panicked: {text}"));
    }
    bench.advance(2 * SECOND);
    assert_eq!(running.acknowledged(1), ["id"]);
    assert_eq!(running.stop(), []);
}

fn a_handler_that_overruns_its_lease<P: Place>(bench: Bench<P>) {
    let (send, begun) = channel();
    let running = bench.work(8, move |delivery| {
        send.send(delivery.attempt).unwrap();
        async move {
            match delivery.attempt {
                1 => std::future::pending().await,
                _ => Ok::<(), String>(()),
            }
        }
    });
    let options = quick().lease(30 * SECOND);
    wait(bench.timers().insert("id", "", SECOND, options)).unwrap();
    bench.advance(SECOND);
    assert_eq!(begun.recv(), Ok(1));
    assert!(wait(bench.timers().get("id")).unwrap().unwrap().is_running());
    bench.advance(30 * SECOND);
    // By the handler's timeout, or by the wheel's key of the lease's end, whichever is first.
    let mut retries = 0;
    while retries == 0 {
        match running.next().outcome {
            Outcome::Retry { error, .. } => {
                assert_eq!(error, "the lease ran out");
                retries += 1;
            }
            outcome => assert_eq!(outcome, Outcome::TooLate),
        }
    }
    bench.advance(SECOND);
    assert_eq!(begun.recv(), Ok(2));
    let mut event = running.next();
    if event.outcome == Outcome::TooLate {
        event = running.next();
    }
    assert_eq!((event.attempt, event.outcome), (2, Outcome::Acknowledged));
    running.stop();
    assert_eq!(wait(bench.timers().len()), Ok(0));
}

/// Runs a worker whose future is dropped in the middle of its first handler.
fn die_in_the_middle(timers: &DurableTimers) {
    let (send, mut begun) = futures_channel::mpsc::unbounded();
    let run = timers.run(move |delivery| {
        send.unbounded_send(delivery.attempt).unwrap();
        std::future::pending::<Result<(), String>>()
    });
    let first = futures_util::StreamExt::next(&mut begun);
    let ended = wait(futures_util::future::select(Box::pin(run), first));
    let futures_util::future::Either::Right((Some(1), run)) = ended else { panic!("no attempt") };
    drop(run);
}

fn a_worker_that_dies_is_replaced<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    wait(timers.insert("id", "", SECOND, quick().lease(5 * SECOND))).unwrap();
    bench.advance(SECOND);
    die_in_the_middle(timers);
    assert_eq!(wait(timers.reset("id", SECOND)), Err(DurableError::Running));
    let running = bench.work_well();
    bench.advance(5 * SECOND);
    let error = "the lease ran out".to_owned();
    assert_eq!(running.next().outcome, Outcome::Retry { wait: SECOND, error });
    bench.advance(SECOND);
    let event = running.next();
    assert_eq!((event.attempt, event.planned), (2, start() + SECOND));
    assert_eq!(event.outcome, Outcome::Acknowledged);
    assert_eq!(running.stop(), []);
}

fn an_answer_for_a_timer_that_was_replaced_is_too_late<P: Place>(bench: Bench<P>) {
    let timers = bench.timers().clone();
    let inside = timers.clone();
    let running = bench.work(8, move |delivery| {
        let timers = inside.clone();
        async move {
            if delivery.payload == b"old" {
                let options = quick().existing(Existing::Replace);
                let new = timers.insert("id", "new", 5 * SECOND, options).await;
                assert_eq!(new, Ok(Inserted::Replaced));
            }
            Ok::<(), String>(())
        }
    });
    wait(timers.insert("id", "old", SECOND, quick())).unwrap();
    bench.advance(SECOND);
    assert_eq!(running.next().outcome, Outcome::TooLate);
    assert_eq!(wait(timers.get("id")).unwrap().map(|timer| timer.payload), Some(b"new".to_vec()));
    bench.advance(5 * SECOND);
    assert_eq!(running.acknowledged(1), ["id"]);
    assert_eq!(running.stop(), []);
}

fn time_to_live<P: Place>(mut bench: Bench<P>) {
    let options = quick().time_to_live(60 * SECOND);
    wait(bench.timers().insert("stale", "", SECOND, options.clone())).unwrap();
    wait(bench.timers().insert("fresh", "", 3600 * SECOND, options)).unwrap();
    bench.reopen();
    bench.advance(3600 * SECOND);
    let (send, deliveries) = channel();
    let running = bench.work(1, move |delivery| {
        send.send(delivery.id).unwrap();
        async { Ok::<(), String>(()) }
    });
    let (reason, error) = (DeadReason::Expired, String::new());
    assert_eq!(running.next().outcome, Outcome::Dead { reason, error });
    assert_eq!(running.acknowledged(1), ["fresh"]);
    assert_eq!(deliveries.try_iter().collect::<Vec<_>>(), ["fresh"]);
    // It is delivered when it is redriven, however late that is.
    let letter = wait(bench.timers().dead_letters(None, 1)).unwrap().remove(0);
    assert_eq!(wait(bench.timers().redrive(letter.number)), Ok(true));
    assert_eq!(running.acknowledged(1), ["stale"]);
    assert_eq!(running.stop(), []);
}

fn bad_input_is_refused<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let schedule = |id: &str, payload: Vec<u8>, when: When, options| {
        let error = wait(timers.insert(id, payload.clone(), when, options)).unwrap_err();
        assert_eq!(error.value, payload, "the payload comes back");
        error.reason
    };
    let when = When::After(SECOND);
    let length = |length| DurableError::IdLength { length, most: 512 };
    assert_eq!(schedule("", vec![1], when, quick()), length(0));
    assert_eq!(schedule(&"i".repeat(513), vec![1], when, quick()), length(513));
    let most = 1 << 20;
    let long = DurableError::PayloadLength { length: most + 1, most };
    assert_eq!(schedule("id", vec![7; most + 1], when, quick()), long);
    let beyond = |error| matches!(error, DurableError::BeyondRange { .. });
    assert!(beyond(schedule("id", vec![1], When::After(Duration::MAX), quick())));
    let far = start() + Duration::from_secs(9000 * 365 * 86_400);
    assert!(beyond(schedule("id", vec![1], When::At(far), quick())));
    let option = |error| matches!(error, DurableError::Option(_));
    assert!(option(schedule("id", vec![1], when, quick().attempts(0))));
    assert!(option(schedule("id", vec![1], when, quick().lease(Duration::ZERO))));
    assert!(option(schedule("id", vec![1], when, quick().lease(86_401 * SECOND))));
    let rule = |error| matches!(error, DurableError::Rule(_));
    assert!(rule(schedule("id", vec![1], When::ByRule, quick())));
    assert_eq!(wait(timers.len()), Ok(0));
}

fn the_longest_input_is_taken<P: Place>(bench: Bench<P>) {
    let (timers, most) = (bench.timers(), 1 << 20);
    let id = "i".repeat(512);
    wait(timers.insert(&id, vec![7; most], SECOND, quick())).unwrap();
    let beyond = wait(timers.reset(&id, Duration::MAX)).unwrap_err();
    assert!(matches!(beyond, DurableError::BeyondRange { .. }));
    let no_time = wait(timers.reset(&id, When::ByRule)).unwrap_err();
    assert!(matches!(no_time, DurableError::Option(_)));
    assert_eq!(wait(timers.get(&id)).unwrap().unwrap().payload.len(), most);
    let running = bench.work_well();
    bench.advance(SECOND);
    assert_eq!(running.acknowledged(1), [id]);
    assert_eq!(running.stop(), []);
}

fn pages_of_a_list<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let ids: Vec<String> = (0..10).map(|number| format!("{number}")).collect();
    for id in ids.iter().rev() {
        wait(timers.insert(id, &**id, SECOND, quick())).unwrap();
    }
    let payloads = |timer: &DurableTimer| timer.payload == timer.id.as_bytes();
    assert_eq!(pages(timers, 3, |page| page.len() <= 3 && page.iter().all(payloads)), ids);
}

/// Returns the ids of all pages, and checks each page.
fn pages(
    timers: &DurableTimers,
    limit: usize,
    right: impl Fn(&[DurableTimer]) -> bool,
) -> Vec<String> {
    let mut listed: Vec<String> = Vec::new();
    loop {
        let page = wait(timers.list(listed.last().map(|id| &**id), limit)).unwrap();
        assert!(right(&page), "{} timers", page.len());
        if page.is_empty() {
            // The order depends on the store.
            listed.sort_unstable();
            return listed;
        }
        listed.extend(page.into_iter().map(|timer| timer.id));
    }
}

fn pages_are_bounded<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let mut ids: Vec<String> = (0..30).map(|number| format!("{number:04}")).collect();
    for id in &ids {
        wait(timers.insert(id, vec![7; 1 << 20], SECOND, quick())).unwrap();
    }
    // Eight megabytes. In Redis the contents of two buckets are added.
    assert_eq!(pages(timers, usize::MAX, |page| page.len() <= 12), ids);
    let short: Vec<String> = (30..1230).map(|number| format!("{number:04}")).collect();
    let all = short.iter().map(|id| timers.insert(id, "", SECOND, quick()));
    wait(futures_util::future::try_join_all(all)).unwrap();
    ids.extend(short);
    assert_eq!(pages(timers, usize::MAX, |page| page.len() <= 1000), ids);
}

fn pages_of_long_dead_letters_are_bounded<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let running = bench.work(8, |_| async { Err::<(), _>("it fails") });
    let count = 20;
    for number in 0..count {
        let options = quick().attempts(1);
        wait(timers.insert(&format!("{number}"), vec![7; 1 << 20], SECOND, options)).unwrap();
    }
    bench.advance(SECOND);
    for _ in 0..count {
        assert!(matches!(running.next().outcome, Outcome::Dead { .. }));
    }
    assert_eq!(running.stop(), []);
    for newest in [false, true] {
        let (mut last, mut all) = (None, 0);
        loop {
            let page = match newest {
                false => wait(timers.dead_letters(last, 1000)).unwrap(),
                true => wait(timers.newest_dead_letters(last, 1000)).unwrap(),
            };
            let Some(letter) = page.last() else { break };
            last = Some(letter.number);
            assert!(page.len() <= 9, "{} letters", page.len());
            all += page.len();
        }
        assert_eq!(all, count);
    }
}

fn concurrency_is_bounded<P: Place>(bench: Bench<P>) {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let greatest = Arc::clone(&most);
    for number in 0..20 {
        wait(bench.timers().insert(&format!("{number}"), "", SECOND, quick())).unwrap();
    }
    bench.advance(SECOND);
    let (send, begun) = channel();
    let running = bench.work(3, move |_| {
        greatest.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
        let (gate, opened) = futures_channel::oneshot::channel();
        send.send(gate).unwrap();
        let now = Arc::clone(&now);
        async move {
            let opened: Result<(), _> = opened.await;
            now.fetch_sub(1, SeqCst);
            opened
        }
    });
    // All three permits are taken before the first is free again.
    let mut gates: VecDeque<_> = begun.iter().take(3).collect();
    for left in (0..20).rev() {
        gates.pop_front().unwrap().send(()).unwrap();
        assert_eq!(running.acknowledged(1).len(), 1);
        gates.extend(begun.try_iter());
        if gates.is_empty() && left > 0 {
            gates.extend(begun.recv());
        }
    }
    assert_eq!(most.load(SeqCst), 3);
    assert_eq!(running.stop(), []);
}

fn a_worker_ends_in_peace<P: Place>(bench: Bench<P>) {
    for (id, delay) in [("first", 1), ("second", 2)] {
        wait(bench.timers().insert(id, "", delay * SECOND, quick())).unwrap();
    }
    let (send, begun) = channel();
    let running = bench.work(1, move |_| {
        let (gate, opened) = futures_channel::oneshot::channel::<()>();
        send.send(gate).unwrap();
        opened
    });
    bench.advance(2 * SECOND);
    let gate = begun.recv().unwrap();
    let ending = running.end();
    gate.send(()).unwrap();
    let ended = ending.stop();
    assert_eq!((ended.len(), &*ended[0].id), (1, "first"));
    assert_eq!(ended[0].outcome, Outcome::Acknowledged);
    assert_eq!(wait(bench.timers().len()), Ok(1));
    assert!(!wait(bench.timers().get("second")).unwrap().unwrap().is_running());
}

fn workers_share_the_work<P: Place>(bench: Bench<P>) {
    let options = quick().lease(LEASE);
    for number in 0..200 {
        wait(bench.timers().insert(&format!("{number}"), "", SECOND, options.clone())).unwrap();
    }
    let workers = [bench.work_well(), bench.work_well(), bench.work_well()];
    bench.advance(SECOND);
    let mut acknowledged = BTreeSet::new();
    let add = |acknowledged: &mut BTreeSet<String>, event: Attempt| {
        assert_eq!(event.outcome, Outcome::Acknowledged);
        assert!(acknowledged.insert(event.id), "acknowledged twice");
    };
    for _ in 0..600 {
        for event in workers.iter().flat_map(|worker| worker.events.try_iter()) {
            add(&mut acknowledged, event);
        }
        if acknowledged.len() == 200 {
            break;
        }
        match workers[0].events.recv_timeout(100 * MILLISECOND) {
            Ok(event) => add(&mut acknowledged, event),
            // A worker that has asked before another began learns of it within a second.
            Err(_) => bench.advance(200 * MILLISECOND),
        }
    }
    assert_eq!(acknowledged.len(), 200, "all are delivered");
    for worker in workers {
        assert_eq!(worker.stop(), []);
    }
}

fn many_callers_at_once<P: Place>(bench: Bench<P>) {
    let running = bench.work_well();
    let callers: Vec<_> = (0..4)
        .map(|caller| {
            let timers = bench.timers().clone();
            let call = move || {
                let ids: Vec<String> = (0..250).map(|n| format!("{caller}-{n}")).collect();
                let all = ids.iter().map(|id| timers.insert(id, "", SECOND, quick()));
                let all = wait(futures_util::future::join_all(all));
                assert!(all.iter().all(|scheduled| *scheduled == Ok(Inserted::New)));
                ids
            };
            std::thread::spawn(call)
        })
        .collect();
    let ids: BTreeSet<String> =
        callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect();
    bench.advance(SECOND);
    let acknowledged: BTreeSet<String> = running.acknowledged(1000).into_iter().collect();
    assert_eq!(acknowledged, ids);
    assert_eq!(running.stop(), []);
}

/// More keys are due soon than a wheel may hold, so they are loaded in parts.
fn more_timers_than_a_wheel_takes<P: Place>(mut bench: Bench<P>) {
    const COUNT: usize = 6000;
    let running = bench.work_well();
    let ids: Vec<String> = (0..COUNT).map(|number| format!("{number:04}")).collect();
    for some in ids.chunks(2000) {
        let all = some.iter().map(|id| bench.timers().insert(id, "", 5 * SECOND, quick()));
        wait(futures_util::future::try_join_all(all)).unwrap();
    }
    assert_eq!(running.stop(), []);
    bench.reopen();
    let running = bench.work(1000, |_| async { Ok::<(), String>(()) });
    bench.advance(5 * SECOND);
    let mut acknowledged = running.acknowledged(COUNT);
    acknowledged.sort_unstable();
    assert_eq!(acknowledged, ids);
    assert_eq!(running.stop(), []);
}

fn values_of_serde<P: Place>(bench: Bench<P>) {
    let order = [(String::from("tea"), 2)];
    wait(bench.timers().insert_json("id", &order, SECOND, quick())).unwrap();
    wait(bench.timers().insert("no json", "{", SECOND, quick())).unwrap();
    bench.advance(SECOND);
    let running = bench.work(8, move |delivery| {
        let read = delivery.json::<[(String, u32); 1]>();
        let right = if delivery.id == "id" {
            read == Ok(order.clone())
        } else {
            matches!(read, Err(DurableError::Json(_)))
        };
        async move { if right { Ok(()) } else { Err("another value") } }
    });
    assert_eq!(running.acknowledged(2).len(), 2);
    assert_eq!(running.stop(), []);
}
