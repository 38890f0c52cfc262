//! Durable timers that repeat by a cron expression, in virtual time.

use crate::common::bench::{Bench, LEASE, Place, SECOND, quick, start, suite, wait};
use tourbillon_durable::{
    Cancelled, DeadReason, DurableError, DurableTimers, Existing, Inserted, Options, Outcome,
    Verdict, When,
};

suite!(
    a_timer_repeats_by_its_rule,
    a_wrong_rule_is_refused,
    a_repetition_is_cancelled,
    a_repetition_goes_on_that_is_kept_after_a_cancel,
    a_repetition_survives_a_snooze_and_a_failure_for_good,
    an_update_by_the_rule_corrects_a_time_of_a_clock_that_was_ahead,
);

fn hourly() -> Options {
    quick().attempts(1).lease(LEASE).cron("0 * * * *", "Europe/Berlin")
}

fn a_timer_repeats_by_its_rule<P: Place>(mut bench: Bench<P>) {
    let hour = 3600 * SECOND;
    wait(bench.timers().insert("id", "", When::ByRule, hourly())).unwrap();
    let running = bench.work(8, |delivery| async move {
        let failing = start() + 2 * 3600 * SECOND;
        if delivery.planned == failing { Err("no") } else { Ok(()) }
    });
    for hours in 1..4 {
        bench.advance(hour);
        let event = running.next();
        assert_eq!((event.planned, event.attempt), (start() + hours * hour, 1));
    }
    assert_eq!(running.stop(), []);
    // One delivery makes up for all missed times.
    bench.reopen();
    bench.advance(5 * hour + hour / 2);
    let running = bench.work_well();
    assert_eq!(running.next().planned, start() + 4 * hour);
    bench.advance(hour / 2);
    assert_eq!(running.next().planned, start() + 9 * hour);
    assert_eq!(running.stop(), []);

    let timers = bench.timers();
    let dead = wait(timers.dead_letters(None, 9)).unwrap();
    assert_eq!((dead.len(), dead[0].planned), (1, start() + 2 * hour));
    assert_eq!(wait(timers.redrive(dead[0].number)), Err(DurableError::Exists));
    assert_eq!(wait(timers.cancel("id")), Ok(Cancelled::Removed));
    assert_eq!(wait(timers.redrive(dead[0].number)), Ok(true));
    let running = bench.work_well();
    assert_eq!(running.next().planned, start() + 2 * hour);
    assert_eq!(running.stop(), []);
    assert_eq!(wait(bench.timers().len()), Ok(0));
}

fn a_wrong_rule_is_refused<P: Place>(bench: Bench<P>) {
    let schedule =
        |options| wait(bench.timers().insert("id", "", SECOND, options)).unwrap_err().reason;
    let never = quick().cron("0 0 30 2 *", "UTC");
    let long = quick().cron(&"*".repeat(600), "UTC");
    for wrong in [quick().cron("nonsense", "UTC"), quick().cron("* * * * *", "Nowhere")] {
        assert!(matches!(schedule(wrong), DurableError::Rule(_)));
    }
    for wrong in [never, long] {
        assert!(matches!(schedule(wrong), DurableError::Rule(_)));
    }
    assert_eq!(wait(bench.timers().len()), Ok(0));
}

fn a_repetition_is_cancelled<P: Place>(bench: Bench<P>) {
    let timers = bench.timers().clone();
    let inside = timers.clone();
    wait(timers.insert("id", "", When::ByRule, hourly())).unwrap();
    let running = bench.work(8, move |_| {
        let timers = inside.clone();
        async move {
            // This delivery continues, and there is no other.
            assert_eq!(timers.cancel("id").await, Ok(Cancelled::Running));
            Ok::<(), String>(())
        }
    });
    bench.advance(3600 * SECOND);
    assert_eq!(running.acknowledged(1), ["id"]);
    assert_eq!(wait(timers.len()), Ok(0));
    assert_eq!(running.stop(), []);
}

fn a_repetition_goes_on_that_is_kept_after_a_cancel<P: Place>(bench: Bench<P>) {
    let timers = bench.timers().clone();
    let inside = timers.clone();
    let keep = || hourly().existing(Existing::Keep);
    wait(timers.insert("id", "", When::ByRule, keep())).unwrap();
    let running = bench.work(8, move |delivery| {
        let timers = inside.clone();
        async move {
            let again = || timers.insert("id", "again", When::ByRule, keep());
            // It repeats, and is kept unchanged.
            assert_eq!(again().await, Ok(Inserted::Kept));
            if delivery.payload.is_empty() {
                // An operator cancels it, and the next version of the program inserts it.
                assert_eq!(timers.cancel("id").await, Ok(Cancelled::Running));
                assert_eq!(again().await, Ok(Inserted::Next));
            }
            Ok::<(), String>(())
        }
    });
    let hour = 3600 * SECOND;
    for hours in 1..4 {
        bench.advance(hour);
        let attempt = running.next();
        assert_eq!(attempt.planned, start() + hours * hour);
        assert_eq!(attempt.outcome, Outcome::Acknowledged, "the handler has not panicked");
        let found = wait(timers.get("id")).unwrap().unwrap();
        assert_eq!(
            (&found.payload[..], found.planned),
            (&b"again"[..], start() + (hours + 1) * hour)
        );
    }
    assert_eq!(running.stop(), []);
}

fn a_repetition_survives_a_snooze_and_a_failure_for_good<P: Place>(bench: Bench<P>) {
    let hour = 3600 * SECOND;
    wait(bench.timers().insert("id", "", When::ByRule, hourly())).unwrap();
    let snoozed = std::sync::Mutex::new(false);
    let running = bench.work_by(8, move |delivery| {
        let first = delivery.planned == start() + hour;
        let snoozes = first && !std::mem::replace(&mut *snoozed.lock().unwrap(), true);
        async move {
            match (first, snoozes) {
                (true, true) => Verdict::Again { after: 90 * 60 * SECOND, counted: false },
                (true, false) => Verdict::Fail("it is over".to_owned()),
                (false, _) => Verdict::Done,
            }
        }
    });
    bench.advance(hour);
    assert!(matches!(running.next().outcome, Outcome::Again { .. }));
    bench.advance(hour + hour / 2);
    let event = running.next();
    assert_eq!((event.planned, event.attempt), (start() + hour, 1));
    assert!(matches!(event.outcome, Outcome::Dead { reason: DeadReason::Failed, .. }));
    // It goes on at the first time after the attempt.
    bench.advance(hour / 2);
    let event = running.next();
    assert_eq!((event.planned, event.outcome), (start() + 3 * hour, Outcome::Acknowledged));
    assert_eq!(running.stop(), []);
    assert_eq!(wait(bench.timers().dead_len()), Ok(1));
}

fn an_update_by_the_rule_corrects_a_time_of_a_clock_that_was_ahead<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let planned = |id| wait(timers.get(id)).unwrap().unwrap().planned;
    let hour = 3600 * SECOND;
    bench.place.set_clock(8 * 3_600_000);
    for id in ["ahead", "kept"] {
        assert_eq!(update_of(timers, id, hourly()), Ok(Inserted::New));
        assert_eq!(planned(id), bench.now() + hour);
    }
    bench.place.set_clock(-8 * 3_600_000);
    assert_eq!(update_of(timers, "ahead", hourly()), Ok(Inserted::Updated));
    assert_eq!(planned("ahead"), bench.now() + hour);
    // A time before the next one of the rule stays.
    bench.advance(SECOND);
    assert_eq!(update_of(timers, "ahead", hourly()), Ok(Inserted::Updated));
    assert_eq!(planned("ahead"), bench.now() + hour - SECOND);
    assert_eq!(planned("kept"), bench.now() + 9 * hour - SECOND);
    let running = bench.work_well();
    bench.advance(hour);
    assert_eq!(running.acknowledged(1), ["ahead"]);
    assert_eq!(running.stop(), []);
}

fn update_of(timers: &DurableTimers, id: &str, options: Options) -> Result<Inserted, DurableError> {
    let inserted = timers.insert(id, "", When::ByRule, options.existing(Existing::Update));
    wait(inserted).map_err(|refused| refused.reason)
}
