//! Timers that are delivered at once, in virtual time.

use crate::common::bench::{Bench, LEASE, Place, SECOND, quick, start, suite, wait};
use std::time::Duration;
use tourbillon_durable::{
    Attempt, Cancelled, DeadReason, DurableError, DurableTimer, DurableTimers, Existing, Inserted,
    Misfire, Outcome, TimerState, Verdict, When,
};

suite!(
    a_timer_is_delivered_now_instead_of_later,
    a_repetition_is_delivered_once_more_and_keeps_its_plan,
    a_delivery_in_between_is_retried_before_the_plan_goes_on,
    a_retry_is_made_now,
    a_paused_timer_gets_one_attempt,
    a_paused_repetition_is_delivered_once_and_stays_paused,
    a_running_timer_is_refused,
    two_orders_before_the_attempt_make_one_delivery,
    an_order_is_taken_back,
    an_order_for_a_repetition_is_cancelled_with_it,
    a_stop_in_between_ends_the_repetition,
    a_retry_in_between_is_moved_to_the_plan,
    an_order_that_is_given_back_stands,
    an_order_that_is_missed_continues_with_the_plan,
    an_update_to_another_time_takes_an_order_back,
    an_order_obeys_neither_the_old_window_nor_the_old_time_to_live,
    a_worker_that_dies_makes_no_second_delivery_of_an_order,
);

const HOUR: Duration = Duration::from_secs(3600);

fn get(timers: &DurableTimers) -> DurableTimer {
    wait(timers.get("id")).unwrap().expect("there is a timer")
}

fn is_sound(timers: &DurableTimers) {
    let report = wait(timers.check()).unwrap();
    assert!(report.is_sound(), "{report:?}");
}

fn a_timer_is_delivered_now_instead_of_later<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    assert_eq!(wait(timers.run_now("id")), Ok(false));
    let running = bench.work_well();
    for (id, delay) in [("near", 5 * SECOND), ("far", 9 * HOUR)] {
        wait(timers.insert(id, "", delay, quick())).unwrap();
        bench.advance(SECOND);
        assert_eq!(wait(timers.run_now(id)), Ok(true));
        let Attempt { id: ended, planned, lateness, outcome, .. } = running.next();
        assert_eq!((&*ended, planned, outcome), (id, bench.now(), Outcome::Acknowledged));
        assert_eq!(lateness, Duration::ZERO);
    }
    assert_eq!(wait(timers.len()), Ok(0));
    is_sound(timers);
    bench.advance(9 * HOUR);
    assert_eq!(running.stop(), []);
}

fn a_repetition_is_delivered_once_more_and_keeps_its_plan<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let running = bench.work_well();
    let hourly = || quick().every(HOUR).lease(LEASE);
    wait(timers.insert("id", "payload", 2 * HOUR, hourly())).unwrap();
    bench.advance(SECOND);
    let before = get(timers);
    for _ in 0..2 {
        bench.advance(SECOND);
        assert_eq!(wait(timers.run_now("id")), Ok(true));
        let event = running.next();
        assert_eq!((event.planned, event.attempt), (bench.now(), 1));
        assert_eq!(event.outcome, Outcome::Acknowledged);
        assert_eq!(get(timers), before);
        is_sound(timers);
    }
    // Its phase is the old one.
    bench.advance(2 * HOUR - 3 * SECOND);
    assert_eq!(running.next().planned, start() + 2 * HOUR);
    bench.advance(HOUR);
    assert_eq!(running.next().planned, start() + 3 * HOUR);
    assert_eq!(running.stop(), []);
}

fn a_delivery_in_between_is_retried_before_the_plan_goes_on<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let ordered = start() + SECOND;
    let running = bench.work(1, move |delivery| async move {
        if delivery.planned == ordered { Err("no") } else { Ok(()) }
    });
    let hourly = quick().every(HOUR).lease(LEASE);
    wait(timers.insert("id", "", 2 * SECOND, hourly)).unwrap();
    bench.advance(SECOND);
    assert_eq!(wait(timers.run_now("id")), Ok(true));
    assert!(matches!(running.next().outcome, Outcome::Retry { .. }));
    let found = get(timers);
    assert_eq!((found.planned, found.attempts), (ordered, 1));
    assert_eq!(found.next, Some(start() + 2 * SECOND));
    bench.advance(SECOND);
    assert!(matches!(running.next().outcome, Outcome::Retry { .. }));
    bench.advance(2 * SECOND);
    assert!(matches!(running.next().outcome, Outcome::Dead { .. }));
    // The occurrence that was due meanwhile is delivered, and the letter is of the other.
    let event = running.next();
    assert_eq!((event.planned, event.outcome), (start() + 2 * SECOND, Outcome::Acknowledged));
    let letters = wait(timers.dead_letters(None, 9)).unwrap();
    assert_eq!((letters.len(), letters[0].planned), (1, ordered));
    assert_eq!(letters[0].options.get_rule(), None);
    assert_eq!(running.stop(), []);
}

fn a_retry_is_made_now<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let running = bench
        .work(1, |delivery| async move { if delivery.attempt == 1 { Err("no") } else { Ok(()) } });
    for options in [quick(), quick().every(HOUR)] {
        let planned = bench.now() + SECOND;
        wait(timers.insert("id", "", SECOND, options.lease(LEASE))).unwrap();
        bench.advance(SECOND);
        assert!(matches!(running.next().outcome, Outcome::Retry { .. }));
        assert_eq!(wait(timers.run_now("id")), Ok(true));
        let event = running.next();
        assert_eq!((event.planned, event.attempt), (planned, 2));
        assert_eq!(event.outcome, Outcome::Acknowledged);
    }
    assert_eq!(get(timers).planned, start() + 2 * SECOND + HOUR);
    assert_eq!(running.stop(), []);
}

fn a_paused_timer_gets_one_attempt<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let running = bench
        .work(1, |delivery| async move { if delivery.attempt < 3 { Err("no") } else { Ok(()) } });
    wait(timers.insert("id", "", HOUR, quick())).unwrap();
    wait(timers.pause_timer("id")).unwrap();
    for attempt in 1..=2 {
        assert_eq!(wait(timers.run_now("id")), Ok(true));
        let event = running.next();
        assert_eq!((event.planned, event.attempt), (start(), attempt));
        assert!(matches!(event.outcome, Outcome::Retry { .. }));
        let found = get(timers);
        assert_eq!((found.state, &*found.error), (TimerState::Paused, "no"));
        is_sound(timers);
        // There is no retry.
        bench.advance(HOUR);
        assert_eq!(get(timers), found);
    }
    assert_eq!(wait(timers.run_now("id")), Ok(true));
    assert_eq!(running.acknowledged(1), ["id"]);
    assert_eq!(wait(timers.len()), Ok(0));
    assert_eq!(running.stop(), []);
}

fn a_paused_repetition_is_delivered_once_and_stays_paused<P: Place>(bench: Bench<P>) {
    let timers = bench.timers().clone();
    let (inside, while_it_runs) = (timers.clone(), start() + SECOND);
    let running = bench.work(1, move |delivery| {
        if delivery.planned == while_it_runs {
            assert_eq!(get(&inside).state, TimerState::Pausing);
        }
        async { Ok::<(), String>(()) }
    });
    wait(timers.insert("id", "", 2 * SECOND, quick().every(HOUR).lease(LEASE))).unwrap();
    wait(timers.pause_timer("id")).unwrap();
    bench.advance(SECOND);
    let before = get(&timers);
    // Before its planned time, and after it.
    for _ in 0..2 {
        assert_eq!(wait(timers.run_now("id")), Ok(true));
        let event = running.next();
        assert_eq!((event.planned, event.outcome), (bench.now(), Outcome::Acknowledged));
        assert_eq!(get(&timers), before);
        assert_eq!(wait(timers.stats()).unwrap().paused, 1);
        is_sound(&timers);
        bench.advance(2 * HOUR);
    }
    assert_eq!(before.state, TimerState::Paused);
    // The plan goes on where it was.
    wait(timers.resume_timer("id")).unwrap();
    assert_eq!(running.next().planned, start() + 2 * SECOND);
    assert_eq!(running.stop(), []);
}

fn a_running_timer_is_refused<P: Place>(bench: Bench<P>) {
    let timers = bench.timers().clone();
    let inside = timers.clone();
    let running = bench.work(1, move |delivery| {
        let before = get(&inside);
        assert_eq!(wait(inside.run_now("id")), Err(DurableError::Running));
        assert_eq!(get(&inside), before);
        let _cancelled = (delivery.attempt == 2).then(|| wait(inside.cancel("id")));
        assert_eq!(wait(inside.run_now("id")), Err(DurableError::Running));
        async { Err("no") }
    });
    wait(timers.insert("id", "", SECOND, quick())).unwrap();
    bench.advance(SECOND);
    assert!(matches!(running.next().outcome, Outcome::Retry { .. }));
    bench.advance(SECOND);
    assert!(matches!(running.next().outcome, Outcome::Cancelled { .. }));
    assert_eq!(running.stop(), []);
}

fn two_orders_before_the_attempt_make_one_delivery<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    wait(timers.pause()).unwrap();
    let running = bench.work_well();
    let ids = ["once", "paused", "repeats", "paused and repeats"];
    for id in ids {
        let options = if id.contains("repeats") { quick().every(HOUR) } else { quick() };
        wait(timers.insert(id, "", HOUR, options.lease(LEASE))).unwrap();
        if id.starts_with("paused") {
            wait(timers.pause_timer(id)).unwrap();
        }
        for _ in 0..2 {
            bench.advance(SECOND);
            assert_eq!(wait(timers.run_now(id)), Ok(true));
        }
        let found = wait(timers.get(id)).unwrap().unwrap();
        assert_eq!((found.planned, found.state), (bench.now() - SECOND, TimerState::Resting));
    }
    is_sound(timers);
    let stats = wait(timers.stats()).unwrap();
    assert_eq!((stats.resting, stats.paused, stats.overdue), (4, 0, 4));
    wait(timers.resume()).unwrap();
    let mut all = running.acknowledged(4);
    all.sort_unstable();
    assert_eq!(all, ["once", "paused", "paused and repeats", "repeats"]);
    let left = wait(timers.list(None, 9)).unwrap();
    assert!(left.iter().all(|timer| timer.due == timer.planned && timer.next.is_none()));
    assert_eq!(left.len(), 2);
    assert_eq!(running.stop(), []);
}

/// Inserts a timer into a paused store, and asks for a delivery.
fn order<P: Place>(bench: &Bench<P>, repeats: bool, pauses: bool) {
    let timers = bench.timers();
    let options = if repeats { quick().every(HOUR) } else { quick() };
    let replaces = options.lease(LEASE).existing(Existing::Replace);
    wait(timers.insert("id", "", HOUR, replaces)).unwrap();
    if pauses {
        wait(timers.pause_timer("id")).unwrap();
    }
    assert_eq!(wait(timers.run_now("id")), Ok(true));
}

fn an_order_is_taken_back<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    wait(timers.pause()).unwrap();
    for (repeats, pauses) in [(false, false), (false, true), (true, false), (true, true)] {
        let plan = bench.now() + HOUR;
        order(&bench, repeats, pauses);
        assert_eq!(wait(timers.pause_timer("id")), Ok(true));
        let paused = get(timers);
        assert_eq!((paused.state, paused.next), (TimerState::Paused, None));
        assert_eq!((paused.due, paused.planned), (plan, plan));
        is_sound(timers);
        order(&bench, repeats, pauses);
        assert_eq!(wait(timers.reset("id", 2 * HOUR)), Ok(true));
        let moved = get(timers);
        let state = if pauses { TimerState::Paused } else { TimerState::Resting };
        assert_eq!((moved.state, moved.next), (state, None));
        let at = bench.now() + 2 * HOUR;
        assert_eq!((moved.due, moved.planned), (at, at));
        is_sound(timers);
        order(&bench, repeats, pauses);
        assert_eq!(wait(timers.resume_timer("id")), Ok(true));
        let resumed = get(timers);
        assert_eq!((resumed.state, resumed.due), (TimerState::Resting, bench.now()));
        // It is not paused afterwards.
        wait(timers.resume()).unwrap();
        let running = bench.work_well();
        assert_eq!(running.acknowledged(1), ["id"]);
        assert_eq!(running.stop(), []);
        let left = wait(timers.get("id")).unwrap().map(|timer| timer.state);
        assert_eq!(left, repeats.then_some(TimerState::Resting));
        wait(timers.pause()).unwrap();
    }
}

fn an_order_for_a_repetition_is_cancelled_with_it<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    wait(timers.pause()).unwrap();
    for pauses in [false, true] {
        order(&bench, true, pauses);
        assert_eq!(wait(timers.cancel("id")), Ok(Cancelled::Removed));
        assert_eq!(wait(timers.len()), Ok(0));
        wait(timers.insert("id", "", HOUR, quick())).unwrap();
        assert_eq!(get(timers).next, None);
        // One that replaces it has neither.
        order(&bench, true, pauses);
        let replaces = quick().existing(Existing::Replace);
        wait(timers.insert("id", "", HOUR, replaces)).unwrap();
        let found = get(timers);
        assert_eq!((found.due, found.next), (start() + HOUR, None));
        is_sound(timers);
    }
}

fn a_stop_in_between_ends_the_repetition<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let running = bench.work_by(1, |delivery| async move {
        if delivery.attempt == 1 { Verdict::retry("no") } else { Verdict::Stop("over".to_owned()) }
    });
    wait(timers.insert("id", "", HOUR, quick().every(HOUR).lease(LEASE))).unwrap();
    assert_eq!(wait(timers.run_now("id")), Ok(true));
    assert!(matches!(running.next().outcome, Outcome::Retry { .. }));
    bench.advance(SECOND);
    let (reason, error) = (DeadReason::Failed, "over".to_owned());
    assert_eq!(running.next().outcome, Outcome::Dead { reason, error });
    assert_eq!((wait(timers.len()), wait(timers.dead_len())), (Ok(0), Ok(1)));
    is_sound(timers);
    bench.advance(9 * HOUR);
    assert_eq!(running.stop(), []);
}

fn a_retry_in_between_is_moved_to_the_plan<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let running = bench
        .work(1, |delivery| async move { if delivery.attempt == 1 { Err("no") } else { Ok(()) } });
    let hourly = quick().every(HOUR).lease(LEASE);
    wait(timers.insert("id", "", HOUR, hourly)).unwrap();
    assert_eq!(wait(timers.run_now("id")), Ok(true));
    assert!(matches!(running.next().outcome, Outcome::Retry { .. }));
    assert_eq!(running.stop(), []);
    // A pause leaves a delivery that has begun.
    assert_eq!(wait(timers.pause_timer("id")), Ok(true));
    let paused = get(timers);
    assert_eq!((paused.planned, paused.attempts), (start(), 1));
    assert_eq!((paused.state, paused.next), (TimerState::Paused, Some(start() + HOUR)));
    assert_eq!(wait(timers.reset("id", 2 * HOUR)), Ok(true));
    let moved = get(timers);
    assert_eq!((moved.planned, moved.due), (start() + 2 * HOUR, start() + 2 * HOUR));
    assert_eq!((moved.attempts, moved.next), (0, None));
    is_sound(timers);
}

fn an_order_that_is_given_back_stands<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let turns = std::sync::atomic::AtomicU32::new(0);
    let running = bench.work_by(1, move |_| {
        let verdict = match turns.fetch_add(1, std::sync::atomic::Ordering::SeqCst) % 3 {
            0 => Verdict::GiveBack { after: SECOND, error: None },
            1 => Verdict::Again { after: SECOND, counted: false },
            _ => Verdict::Done,
        };
        async { verdict }
    });
    for repeats in [false, true] {
        let options = if repeats { quick().every(HOUR) } else { quick() };
        wait(timers.insert("id", "", HOUR, options.lease(LEASE))).unwrap();
        wait(timers.pause_timer("id")).unwrap();
        let (before, ordered) = (get(timers), bench.now());
        assert_eq!(wait(timers.run_now("id")), Ok(true));
        for outcome in [Outcome::GivenBack, Outcome::Again { wait: SECOND, counted: false }] {
            let event = running.next();
            assert_eq!((event.outcome, event.planned, event.attempt), (outcome, ordered, 1));
            assert_eq!(get(timers).state, TimerState::Resting);
            is_sound(timers);
            bench.advance(SECOND);
        }
        let event = running.next();
        assert_eq!((event.outcome, event.planned), (Outcome::Acknowledged, ordered));
        assert_eq!(wait(timers.get("id")), Ok(repeats.then_some(before)));
        bench.advance(2 * HOUR);
    }
    assert_eq!(running.stop(), []);
}

fn an_order_that_is_missed_continues_with_the_plan<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let skips = quick().every(HOUR).misfire(Misfire::SkipAfter(SECOND)).lease(LEASE);
    // An hour after the order would be another time.
    wait(timers.insert("id", "", HOUR / 2, skips)).unwrap();
    let before = get(timers);
    wait(timers.pause()).unwrap();
    assert_eq!(wait(timers.run_now("id")), Ok(true));
    bench.advance(60 * SECOND);
    wait(timers.resume()).unwrap();
    let running = bench.work_well();
    let missed = Outcome::Missed { late: 60 * SECOND, next: Some(before.planned) };
    assert_eq!(running.next().outcome, missed);
    assert_eq!(get(timers), before);
    assert_eq!(running.stop(), []);
}

fn an_update_to_another_time_takes_an_order_back<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    wait(timers.pause()).unwrap();
    for (repeats, pauses) in [(false, false), (false, true), (true, false), (true, true)] {
        let (now, due) = (bench.now(), bench.now() + HOUR);
        order(&bench, repeats, pauses);
        let put = |when: When, existing| {
            let options = if repeats { quick().every(HOUR) } else { quick() };
            let options = options.lease(LEASE).existing(existing);
            wait(timers.insert("id", "new", when, options)).unwrap()
        };
        assert_eq!(put(When::After(9 * HOUR), Existing::Keep), Inserted::Kept);
        // The time of the plan is the time of the timer.
        assert_eq!(put(When::At(due), Existing::Update), Inserted::Updated);
        let updated = get(timers);
        assert_eq!((updated.planned, updated.next), (now, repeats.then_some(due)));
        assert_eq!((updated.due, &updated.payload[..]), (now, &b"new"[..]));
        assert_eq!(put(When::After(2 * HOUR), Existing::Update), Inserted::Updated);
        let moved = get(timers);
        let at = now + 2 * HOUR;
        assert_eq!((moved.planned, moved.due, moved.next), (at, at, None));
        assert_eq!(moved.state == TimerState::Paused, pauses);
        is_sound(timers);
        // An order that stands is followed by what was put.
        order(&bench, repeats, pauses);
        assert_eq!(put(When::At(due), Existing::Update), Inserted::Updated);
        wait(timers.resume()).unwrap();
        let running = bench.work_well();
        assert_eq!(running.next().planned, now);
        assert_eq!(running.stop(), []);
        let left = wait(timers.get("id")).unwrap().map(|found| (found.due, found.payload));
        assert_eq!(left, repeats.then(|| (due, b"new".to_vec())));
        wait(timers.pause()).unwrap();
    }
}

fn an_order_obeys_neither_the_old_window_nor_the_old_time_to_live<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let skips = quick().every(HOUR).misfire(Misfire::SkipAfter(SECOND)).lease(LEASE);
    for (id, options) in [("skips", skips), ("expires", quick().time_to_live(SECOND))] {
        wait(timers.insert(id, "", HOUR, options)).unwrap();
        wait(timers.pause_timer(id)).unwrap();
    }
    bench.advance(9 * HOUR);
    let running = bench.work_well();
    for id in ["skips", "expires"] {
        assert_eq!(wait(timers.run_now(id)), Ok(true));
        assert_eq!(running.acknowledged(1), [id]);
    }
    assert_eq!(running.stop(), []);
}

fn a_worker_that_dies_makes_no_second_delivery_of_an_order<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let options = quick().every(HOUR).lease(5 * SECOND);
    wait(timers.insert("id", "", HOUR, options)).unwrap();
    wait(timers.pause_timer("id")).unwrap();
    assert_eq!(wait(timers.run_now("id")), Ok(true));
    // Its future is dropped in the middle of the handler.
    let (begun, begins) = futures_channel::oneshot::channel::<()>();
    let begun = std::sync::Mutex::new(Some(begun));
    let run = timers.run(move |_| {
        drop(begun.lock().unwrap().take());
        std::future::pending::<Result<(), String>>()
    });
    let ended = wait(futures_util::future::select(Box::pin(run), begins));
    let futures_util::future::Either::Right((_, run)) = ended else { panic!("no attempt") };
    drop(run);
    assert_eq!(get(timers).state, TimerState::Pausing);
    let running = bench.work_well();
    bench.advance(5 * SECOND);
    let error = "the lease ran out".to_owned();
    assert_eq!(running.next().outcome, Outcome::Retry { wait: SECOND, error });
    // The one attempt has failed, and the next one needs another order.
    bench.advance(2 * HOUR);
    let found = get(timers);
    assert_eq!((found.state, found.attempts), (TimerState::Paused, 1));
    assert_eq!(wait(timers.run_now("id")), Ok(true));
    let event = running.next();
    assert_eq!((event.planned, event.attempt), (start(), 2));
    assert_eq!(get(timers).planned, start() + HOUR);
    assert_eq!(running.stop(), []);
}
