//! Paused timers and paused stores, in virtual time.

use crate::common::bench::{Bench, LEASE, MILLISECOND, Place, SECOND, quick, start, suite, wait};
use crate::common::events::Observed;
use crate::events::next;
use std::future::ready;
use std::time::Duration;
use tourbillon_durable::{
    Cancelled, DurableTimers, Event, Existing, Inserted, Misfire, Outcome, TimerState, Verdict,
    Wait, When,
};

suite!(
    a_paused_timer_is_not_delivered,
    a_paused_timer_can_be_changed,
    a_running_timer_is_paused_afterwards,
    what_comes_next_is_paused_too,
    a_worker_that_dies_leaves_a_pausing_timer,
    a_resumed_timer_obeys_its_misfire_option,
    a_paused_store_delivers_nothing,
    a_paused_store_finishes_what_runs,
    a_store_stays_paused,
    a_check_knows_paused_timers,
);

const HOUR: Duration = Duration::from_secs(3600);

fn state(timers: &DurableTimers) -> Option<TimerState> {
    wait(timers.get("id")).unwrap().map(|timer| timer.state)
}

fn a_paused_timer_is_not_delivered<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    assert_eq!(wait(timers.pause_timer("id")), Ok(false));
    assert_eq!(wait(timers.resume_timer("id")), Ok(false));
    let running = bench.work_well();
    wait(timers.insert("id", "", 5 * SECOND, quick())).unwrap();
    wait(timers.insert("other", "", 6 * SECOND, quick())).unwrap();
    // It is in the wheel of the worker already.
    bench.advance(SECOND);
    assert_eq!(wait(timers.pause_timer("id")), Ok(true));
    assert_eq!(wait(timers.pause_timer("id")), Ok(true));
    assert_eq!(state(timers), Some(TimerState::Paused));
    bench.advance(5 * SECOND);
    assert_eq!(running.acknowledged(1), ["other"]);
    bench.advance(HOUR);
    let paused = wait(timers.get("id")).unwrap().unwrap();
    assert_eq!((paused.due, paused.attempts), (start() + 5 * SECOND, 0));
    assert_eq!(wait(timers.resume_timer("id")), Ok(true));
    assert_eq!(running.acknowledged(1), ["id"]);
    assert_eq!(wait(timers.len()), Ok(0));
    assert_eq!(running.stop(), []);
}

fn a_paused_timer_can_be_changed<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    wait(timers.insert("id", "a", SECOND, quick())).unwrap();
    wait(timers.pause_timer("id")).unwrap();
    let insert = |payload, existing| {
        wait(timers.insert("id", payload, 2 * SECOND, quick().existing(existing)))
    };
    assert_eq!(insert("b", Existing::Keep), Ok(Inserted::Kept));
    assert_eq!(insert("c", Existing::Update), Ok(Inserted::Updated));
    assert_eq!(wait(timers.reset("id", 3 * SECOND)), Ok(true));
    bench.advance(HOUR);
    let running = bench.work_well();
    let paused = wait(timers.get("id")).unwrap().unwrap();
    assert_eq!((paused.state, &paused.payload[..]), (TimerState::Paused, &b"c"[..]));
    assert_eq!(paused.due, start() + 3 * SECOND);
    let report = wait(timers.check()).unwrap();
    assert!(report.is_sound(), "{report:?}");
    // One that is replaced is gone with its pause.
    assert_eq!(insert("d", Existing::Replace), Ok(Inserted::Replaced));
    bench.advance(2 * SECOND);
    assert_eq!(running.acknowledged(1), ["id"]);
    wait(timers.insert("id", "e", SECOND, quick())).unwrap();
    wait(timers.pause_timer("id")).unwrap();
    assert_eq!(wait(timers.cancel("id")), Ok(Cancelled::Removed));
    assert_eq!(wait(timers.len()), Ok(0));
    assert_eq!(running.stop(), []);
}

fn a_running_timer_is_paused_afterwards<P: Place>(bench: Bench<P>) {
    let timers = bench.timers().clone();
    let inside = timers.clone();
    let running = bench.work(1, move |delivery| {
        let pauses = delivery.id == "id";
        if pauses {
            assert_eq!(wait(inside.pause_timer("id")), Ok(true));
            assert_eq!(state(&inside), Some(TimerState::Pausing));
        }
        async move { if pauses && delivery.attempt == 1 { Err("no") } else { Ok(()) } }
    });
    // A later timer is delivered in place of the paused one.
    let other_comes = |after| {
        wait(timers.insert("other", "", after, quick())).unwrap();
        bench.advance(after);
        assert_eq!(running.acknowledged(1), ["other"]);
    };
    wait(timers.insert("id", "", SECOND, quick().every(HOUR))).unwrap();
    bench.advance(SECOND);
    assert!(matches!(running.next().outcome, Outcome::Retry { .. }));
    assert_eq!(state(&timers), Some(TimerState::Paused));
    // Neither a retry nor the next occurrence begins.
    other_comes(9 * SECOND);
    assert_eq!(state(&timers), Some(TimerState::Paused));
    wait(timers.resume_timer("id")).unwrap();
    assert_eq!(running.acknowledged(1), ["id"]);
    let paused = wait(timers.get("id")).unwrap().unwrap();
    assert_eq!((paused.state, paused.planned), (TimerState::Paused, start() + SECOND + HOUR));
    other_comes(9 * HOUR);
    assert_eq!(running.stop(), []);
}

fn what_comes_next_is_paused_too<P: Place>(bench: Bench<P>) {
    let timers = bench.timers().clone();
    let inside = timers.clone();
    let running = bench.work(1, move |delivery| {
        if delivery.id == "id" {
            let keep = quick().existing(Existing::Keep);
            assert_eq!(wait(inside.insert("id", "next", SECOND, keep)), Ok(Inserted::Next));
            assert_eq!(wait(inside.pause_timer("id")), Ok(true));
        }
        async { Ok::<(), String>(()) }
    });
    wait(timers.insert("id", "", SECOND, quick())).unwrap();
    wait(timers.insert("other", "", HOUR, quick())).unwrap();
    bench.advance(SECOND);
    assert_eq!(running.acknowledged(1), ["id"]);
    bench.advance(HOUR);
    assert_eq!(running.acknowledged(1), ["other"]);
    let paused = wait(timers.get("id")).unwrap().unwrap();
    assert_eq!((paused.state, &paused.payload[..]), (TimerState::Paused, &b"next"[..]));
    assert_eq!(running.stop(), []);
}

fn a_worker_that_dies_leaves_a_pausing_timer<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    wait(timers.insert("id", "", SECOND, quick().lease(5 * SECOND))).unwrap();
    bench.advance(SECOND);
    // Its future is dropped in the middle of the handler.
    let (send, mut begun) = futures_channel::mpsc::unbounded();
    let run = timers.run(move |_| {
        send.unbounded_send(()).unwrap();
        std::future::pending::<Result<(), String>>()
    });
    let first = futures_util::StreamExt::next(&mut begun);
    let ended = wait(futures_util::future::select(Box::pin(run), first));
    let futures_util::future::Either::Right((Some(()), run)) = ended else { panic!("no attempt") };
    drop(run);
    wait(timers.pause_timer("id")).unwrap();
    // The end of its lease is noticed.
    let running = bench.work_well();
    bench.advance(5 * SECOND);
    assert!(matches!(running.next().outcome, Outcome::Retry { .. }));
    bench.advance(HOUR);
    assert_eq!(state(timers), Some(TimerState::Paused));
    wait(timers.resume_timer("id")).unwrap();
    let event = running.next();
    assert_eq!((event.attempt, event.outcome), (2, Outcome::Acknowledged));
    assert_eq!(running.stop(), []);
}

fn a_resumed_timer_obeys_its_misfire_option<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let hourly = || quick().every(HOUR).lease(LEASE);
    let skips = hourly().misfire(Misfire::SkipAfter(SECOND));
    for (id, options) in [("once", hourly()), ("skips", skips)] {
        wait(timers.insert(id, "", When::ByRule, options)).unwrap();
        wait(timers.pause_timer(id)).unwrap();
    }
    bench.advance(3 * HOUR + HOUR / 2);
    let running = bench.work_well();
    wait(timers.resume_timer("once")).unwrap();
    let event = running.next();
    assert_eq!((&*event.id, event.planned), ("once", start() + HOUR));
    wait(timers.resume_timer("skips")).unwrap();
    let event = running.next();
    let (late, next) = (2 * HOUR + HOUR / 2, Some(start() + 4 * HOUR));
    assert_eq!((&*event.id, event.outcome), ("skips", Outcome::Missed { late, next }));
    bench.advance(HOUR / 2);
    let mut both = running.acknowledged(2);
    both.sort_unstable();
    assert_eq!(both, ["once", "skips"]);
    assert_eq!(running.stop(), []);
}

fn a_paused_store_delivers_nothing<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let running = bench.work_well();
    wait(timers.insert("loaded", "", 5 * SECOND, quick())).unwrap();
    wait(timers.insert("far", "", HOUR, quick())).unwrap();
    bench.advance(4 * SECOND);
    assert_eq!(wait(timers.is_paused()), Ok(false));
    wait(timers.pause()).unwrap();
    assert_eq!(wait(timers.is_paused()), Ok(true));
    bench.advance(SECOND);
    wait(timers.insert("during", "", MILLISECOND, quick())).unwrap();
    for _second in 0..5 {
        bench.advance(SECOND);
    }
    bench.advance(HOUR);
    assert_eq!(wait(timers.len()), Ok(3));
    for id in ["loaded", "during", "far"] {
        let timer = wait(timers.get(id)).unwrap().unwrap();
        assert_eq!((timer.attempts, timer.state), (0, TimerState::Resting), "{id}");
    }
    wait(timers.resume()).unwrap();
    assert_eq!(wait(timers.is_paused()), Ok(false));
    let mut all = running.acknowledged(3);
    all.sort_unstable();
    assert_eq!(all, ["during", "far", "loaded"]);
    assert_eq!(running.stop(), []);
}

fn a_paused_store_finishes_what_runs<P: Place>(bench: Bench<P>) {
    let timers = bench.timers().clone();
    let inside = timers.clone();
    let running = bench.work(1, move |_| {
        wait(inside.pause()).unwrap();
        async { Ok::<(), String>(()) }
    });
    wait(timers.insert("id", "", SECOND, quick().every(SECOND))).unwrap();
    bench.advance(SECOND);
    assert_eq!(running.acknowledged(1), ["id"]);
    bench.advance(SECOND);
    assert_eq!(state(&timers), Some(TimerState::Resting));
    assert_eq!(running.stop(), []);
}

fn a_store_stays_paused<P: Place>(mut bench: Bench<P>) {
    wait(bench.timers().insert("id", "", SECOND, quick())).unwrap();
    wait(bench.timers().pause()).unwrap();
    bench.reopen();
    assert_eq!(wait(bench.timers().is_paused()), Ok(true));
    bench.advance(HOUR);
    let worker = Observed::start(bench.timers().worker(), |_| ready(Verdict::Done));
    let (reason, step) = (Wait::StorePaused, SECOND);
    assert_eq!(next(&bench, &worker, step), Event::Waiting { reason, error: None });
    wait(bench.timers().resume()).unwrap();
    // In any order.
    let then = [next(&bench, &worker, step), next(&bench, &worker, step)];
    assert!(then.iter().any(|event| matches!(event, Event::Resumed { .. })), "{then:?}");
    let delivered = |event: &Event| matches!(event, Event::Attempt(attempt) if attempt.id == "id");
    assert!(then.iter().any(delivered), "{then:?}");
    assert_eq!(worker.stop(), []);
}

fn a_check_knows_paused_timers<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    for id in ["a", "b"] {
        wait(timers.insert(id, "", SECOND, quick())).unwrap();
    }
    wait(timers.pause_timer("a")).unwrap();
    let report = wait(timers.check()).unwrap();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!((report.timers, report.keys), (2, 2));
}
