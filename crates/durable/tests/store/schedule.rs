//! Headers, options that are read back, intervals, misfires and updates, in virtual time.

use crate::common::bench::{Bench, LEASE, Place, SECOND, quick, start, suite, wait};
use std::sync::mpsc::channel;
use std::time::{Duration, SystemTime};
use tourbillon_durable::{
    Backoff, Cancelled, DurableError, DurableTimer, DurableTimers, Existing, Inserted, Misfire,
    Options, Outcome, Rule, TimerState, When,
};

suite!(
    what_was_set_is_read_back,
    headers_travel_with_the_payload,
    headers_are_bounded,
    an_interval_does_not_drift,
    an_interval_begins_at_the_given_time,
    the_letter_of_an_interval_does_not_repeat,
    a_cancelled_interval_has_no_rule,
    a_wrong_interval_is_refused,
    one_delivery_makes_up_for_what_was_missed,
    an_occurrence_after_its_window_is_skipped,
    an_occurrence_in_its_window_is_delivered_after_others,
    a_window_does_not_count_for_a_retry,
    an_update_of_nothing_inserts,
    an_update_keeps_an_unchanged_time,
    an_update_moves_a_resting_timer,
    an_update_of_a_running_timer,
    an_update_of_a_running_timer_with_another_rule,
    an_update_changes_what_comes_next,
);

const HOUR: Duration = Duration::from_secs(3600);

fn hourly() -> Options {
    quick().every(HOUR).lease(LEASE)
}

fn found(timers: &DurableTimers) -> DurableTimer {
    wait(timers.get("id")).unwrap().unwrap()
}

fn what_was_set_is_read_back<P: Place>(mut bench: Bench<P>) {
    let full = Options::new()
        .attempts(3)
        .backoff(Backoff::new(2 * SECOND, 9 * SECOND).jitter())
        .lease(7 * SECOND)
        .time_to_live(5 * SECOND)
        .every(HOUR)
        .misfire(Misfire::SkipAfter(4 * SECOND))
        .header("a", "1")
        .header("b", "")
        .header("a", "2");
    wait(bench.timers().insert("id", "", HOUR, full.clone())).unwrap();
    wait(bench.timers().insert("plain", "", HOUR, Options::new())).unwrap();
    bench.reopen();
    let found = found(bench.timers());
    assert_eq!((&found.options, found.state), (&full, TimerState::Resting));
    assert_eq!(found.options.get_backoff(), Backoff::new(2 * SECOND, 9 * SECOND).jitter());
    assert_eq!(found.options.get_lease(), 7 * SECOND);
    assert_eq!(found.options.get_rule(), Some(&Rule::Every(HOUR)));
    assert_eq!(found.options.get_misfire(), Misfire::SkipAfter(4 * SECOND));
    assert_eq!(found.options.get_headers().collect::<Vec<_>>(), [("b", ""), ("a", "2")]);
    let plain = wait(bench.timers().get("plain")).unwrap().unwrap();
    assert_eq!(plain.options, Options::new());
    assert_eq!((plain.options.get_rule(), plain.options.get_misfire()), (None, Misfire::Once));
}

fn headers_travel_with_the_payload<P: Place>(bench: Bench<P>) {
    let (send, seen) = channel();
    let running = bench.work(1, move |delivery| {
        send.send(delivery.headers).unwrap();
        async { Err("no") }
    });
    let options = quick().attempts(1).header("trace", "7");
    wait(bench.timers().insert("id", "", SECOND, options)).unwrap();
    bench.advance(SECOND);
    assert!(matches!(running.next().outcome, Outcome::Dead { .. }));
    assert_eq!(seen.recv().unwrap(), [("trace".to_owned(), "7".to_owned())]);
    assert_eq!(running.stop(), []);
    let letter = wait(bench.timers().dead_letters(None, 1)).unwrap().remove(0);
    assert_eq!(letter.options, quick().attempts(1).header("trace", "7"));
    assert_eq!(wait(bench.timers().redrive(letter.number)), Ok(true));
    assert_eq!(found(bench.timers()).options, letter.options);
}

fn headers_are_bounded<P: Place>(bench: Bench<P>) {
    let insert = |options| wait(bench.timers().insert("id", "", HOUR, options));
    let wrong = |options| match insert(options).unwrap_err().reason {
        DurableError::Option(what) => what,
        other => panic!("{other}"),
    };
    assert_eq!(wrong(quick().header("", "value")), "a header must have a name");
    let long = |length| quick().header("name", "v".repeat(length)).header("n", "");
    assert!(wrong(long(4092)).contains("4096"));
    assert_eq!(insert(long(4091)), Ok(Inserted::New));
    assert_eq!(found(bench.timers()).options, long(4091));
}

fn an_interval_does_not_drift<P: Place>(bench: Bench<P>) {
    let running = bench.work(1, |delivery| async move {
        // The second delivery is retried.
        let fails = delivery.planned == start() + 2 * HOUR && delivery.attempt == 1;
        if fails { Err("no") } else { Ok(()) }
    });
    wait(bench.timers().insert("id", "", When::ByRule, hourly())).unwrap();
    assert_eq!(found(bench.timers()).planned, start() + HOUR);
    // The first is a quarter of an hour late.
    bench.advance(HOUR + HOUR / 4);
    assert_eq!(running.next().planned, start() + HOUR);
    bench.advance(HOUR - HOUR / 4);
    assert!(matches!(running.next().outcome, Outcome::Retry { .. }));
    bench.advance(SECOND);
    let event = running.next();
    assert_eq!((event.planned, event.attempt), (start() + 2 * HOUR, 2));
    assert_eq!(found(bench.timers()).planned, start() + 3 * HOUR);
    assert_eq!(running.stop(), []);
    // A move takes the later occurrences along.
    assert_eq!(wait(bench.timers().reset("id", start() + 3 * HOUR + SECOND)), Ok(true));
    bench.advance(HOUR);
    let running = bench.work_well();
    assert_eq!(running.next().planned, start() + 3 * HOUR + SECOND);
    assert_eq!(found(bench.timers()).planned, start() + 4 * HOUR + SECOND);
    assert_eq!(running.stop(), []);
}

fn an_interval_begins_at_the_given_time<P: Place>(bench: Bench<P>) {
    wait(bench.timers().insert("id", "", 5 * SECOND, hourly())).unwrap();
    let running = bench.work_well();
    bench.advance(5 * SECOND);
    assert_eq!(running.next().planned, start() + 5 * SECOND);
    assert_eq!(found(bench.timers()).planned, start() + 5 * SECOND + HOUR);
    assert_eq!(running.stop(), []);
}

fn the_letter_of_an_interval_does_not_repeat<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    wait(timers.insert("id", "", HOUR, hourly().attempts(1))).unwrap();
    bench.advance(HOUR);
    let running = bench.work(1, |_| async { Err("no") });
    assert!(matches!(running.next().outcome, Outcome::Dead { .. }));
    assert_eq!(running.stop(), []);
    // The timer goes on with its next occurrence.
    assert_eq!(found(timers).planned, start() + 2 * HOUR);
    let letter = wait(timers.dead_letters(None, 1)).unwrap().remove(0);
    assert_eq!(letter.options, quick().attempts(1).lease(LEASE));
}

fn a_cancelled_interval_has_no_rule<P: Place>(bench: Bench<P>) {
    wait(bench.timers().insert("id", "", HOUR, hourly())).unwrap();
    bench.advance(HOUR);
    let (inside, _) = during(&bench, false, |timers| {
        assert_eq!(wait(timers.cancel("id")), Ok(Cancelled::Running));
    });
    assert_eq!(inside.options, quick().lease(LEASE));
    assert_eq!(wait(bench.timers().len()), Ok(0));
}

fn a_wrong_interval_is_refused<P: Place>(bench: Bench<P>) {
    let insert = |options| wait(bench.timers().insert("id", "", SECOND, options));
    let day = 86_400 * SECOND;
    for interval in [Duration::ZERO, 36_500 * day + SECOND, Duration::MAX] {
        let refused = insert(quick().every(interval)).unwrap_err().reason;
        assert!(matches!(refused, DurableError::Rule(_)), "{refused}");
    }
    let refused = insert(quick().misfire(Misfire::SkipAfter(SECOND))).unwrap_err().reason;
    assert_eq!(refused, DurableError::Option("a misfire window needs a rule"));
    assert_eq!(wait(bench.timers().len()), Ok(0));
    assert_eq!(insert(quick().every(36_500 * day)), Ok(Inserted::New));
}

fn one_delivery_makes_up_for_what_was_missed<P: Place>(bench: Bench<P>) {
    wait(bench.timers().insert("id", "", HOUR, hourly())).unwrap();
    bench.advance(5 * HOUR + HOUR / 2);
    let running = bench.work_well();
    assert_eq!(running.next().planned, start() + HOUR);
    assert_eq!(found(bench.timers()).planned, start() + 6 * HOUR);
    assert_eq!(running.stop(), []);
}

fn an_occurrence_after_its_window_is_skipped<P: Place>(mut bench: Bench<P>) {
    let options = hourly().misfire(Misfire::SkipAfter(600 * SECOND));
    for (id, delay) in [("just", HOUR - SECOND), ("in time", HOUR)] {
        wait(bench.timers().insert(id, "", delay, options.clone())).unwrap();
    }
    bench.reopen();
    bench.advance(HOUR + 600 * SECOND);
    let running = bench.work(1, |delivery| async move {
        if delivery.id == "in time" { Ok(()) } else { Err("it is too late") }
    });
    let (late, next) = (601 * SECOND, Some(start() + 2 * HOUR - SECOND));
    assert_eq!(running.next().outcome, Outcome::Missed { late, next });
    assert_eq!(running.acknowledged(1), ["in time"]);
    let just = wait(bench.timers().get("just")).unwrap().unwrap();
    assert_eq!((Some(just.planned), just.attempts), (next, 0));
    assert_eq!(wait(bench.timers().dead_len()), Ok(0));
    assert_eq!(running.stop(), []);
}

fn an_occurrence_in_its_window_is_delivered_after_others<P: Place>(bench: Bench<P>) {
    let options = hourly().misfire(Misfire::SkipAfter(600 * SECOND));
    wait(bench.timers().insert("id", "", HOUR, options)).unwrap();
    bench.advance(5 * HOUR + 600 * SECOND);
    let running = bench.work_well();
    let outcome = running.next().outcome;
    let (late, next) = (4 * HOUR + 600 * SECOND, Some(start() + 5 * HOUR));
    assert_eq!(outcome, Outcome::Missed { late, next });
    let event = running.next();
    assert_eq!((event.planned, event.outcome), (start() + 5 * HOUR, Outcome::Acknowledged));
    assert_eq!(found(bench.timers()).planned, start() + 6 * HOUR);
    assert_eq!(running.stop(), []);
}

fn a_window_does_not_count_for_a_retry<P: Place>(bench: Bench<P>) {
    let options = hourly().misfire(Misfire::SkipAfter(Duration::ZERO));
    wait(bench.timers().insert("id", "", SECOND, options)).unwrap();
    let running = bench
        .work(1, |delivery| async move { if delivery.attempt == 1 { Err("no") } else { Ok(()) } });
    bench.advance(SECOND);
    assert!(matches!(running.next().outcome, Outcome::Retry { .. }));
    bench.advance(SECOND);
    let event = running.next();
    assert_eq!((event.attempt, event.outcome), (2, Outcome::Acknowledged));
    assert_eq!(running.stop(), []);
}

fn update(
    timers: &DurableTimers,
    payload: &str,
    when: impl Into<When>,
    options: Options,
) -> Result<Inserted, DurableError> {
    let options = options.existing(Existing::Update);
    wait(timers.insert("id", payload, when, options)).map_err(DurableError::from)
}

fn an_update_of_nothing_inserts<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    assert_eq!(update(timers, "a", SECOND, quick()), Ok(Inserted::New));
    let beyond = update(timers, "b", Duration::MAX, quick()).unwrap_err();
    assert!(matches!(beyond, DurableError::BeyondRange { .. }));
    let found = found(timers);
    assert_eq!((&found.payload[..], found.planned), (&b"a"[..], start() + SECOND));
}

fn an_update_keeps_an_unchanged_time<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    assert_eq!(update(timers, "a", When::ByRule, hourly()), Ok(Inserted::New));
    // It is overdue, which a deploy does not change.
    bench.advance(HOUR + SECOND);
    let options = || hourly().attempts(9);
    assert_eq!(update(timers, "b", When::ByRule, options()), Ok(Inserted::Updated));
    let planned = start() + HOUR;
    let kept = found(timers);
    assert_eq!((&kept.payload[..], kept.planned, kept.due), (&b"b"[..], planned, planned));
    assert_eq!(kept.options, options());
    // A retry goes on, with the new payload.
    let running = bench.work(1, |delivery| async move {
        if delivery.payload == b"c" { Ok(()) } else { Err("no") }
    });
    assert!(matches!(running.next().outcome, Outcome::Retry { .. }));
    assert_eq!(update(timers, "c", planned, quick()), Ok(Inserted::Updated));
    let kept = found(timers);
    assert_eq!((kept.attempts, kept.planned, kept.due), (1, planned, bench.now() + SECOND));
    assert_eq!((&*kept.error, kept.options), ("no", quick()));
    bench.advance(SECOND);
    let event = running.next();
    assert_eq!((event.attempt, event.outcome), (2, Outcome::Acknowledged));
    assert_eq!(running.stop(), []);
    assert_eq!(wait(timers.len()), Ok(0));
}

fn an_update_moves_a_resting_timer<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    update(timers, "a", When::ByRule, hourly()).unwrap();
    let rule = quick().every(2 * HOUR);
    assert_eq!(update(timers, "b", When::ByRule, rule.clone()), Ok(Inserted::Updated));
    let moved = found(timers);
    assert_eq!((moved.planned, moved.due), (start() + 2 * HOUR, start() + 2 * HOUR));
    assert_eq!((&moved.payload[..], moved.options), (&b"b"[..], rule));
    // A delay is another time.
    bench.advance(SECOND);
    assert_eq!(update(timers, "c", 3 * SECOND, hourly()), Ok(Inserted::Updated));
    assert_eq!(found(timers).planned, start() + 4 * SECOND);
    let running = bench.work_well();
    bench.advance(3 * SECOND);
    assert_eq!(running.next().planned, start() + 4 * SECOND);
    assert_eq!(running.stop(), []);
    assert_eq!(wait(timers.len()), Ok(1));
}

/// Runs a worker that begins the timer and calls `inside` in its handler, which then fails with
/// `fails`. Returns the record after the call and after the end.
fn during<P: Place>(
    bench: &Bench<P>,
    fails: bool,
    inside: impl Fn(&DurableTimers) + Send + Sync + 'static,
) -> (DurableTimer, SystemTime) {
    let timers = bench.timers().clone();
    let (send, seen) = channel();
    let running = bench.work(1, move |_| {
        inside(&timers);
        send.send(found(&timers)).unwrap();
        async move { if fails { Err("no") } else { Ok(()) } }
    });
    let event = running.next();
    assert_eq!(matches!(event.outcome, Outcome::Acknowledged), !fails, "{event:?}");
    assert_eq!(running.stop(), []);
    (seen.recv().unwrap(), event.planned)
}

fn an_update_of_a_running_timer<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    update(timers, "a", When::ByRule, hourly()).unwrap();
    bench.advance(HOUR);
    let updates = |payload, fails| {
        during(&bench, fails, move |timers| {
            // It is delivered again in any case.
            let keep = hourly().existing(Existing::Keep);
            assert_eq!(wait(timers.insert("id", "d", SECOND, keep)), Ok(Inserted::Kept));
            let options = hourly().attempts(5);
            assert_eq!(update(timers, payload, When::ByRule, options), Ok(Inserted::Updated));
        })
    };
    // The attempt and its lease stay, and the retry has the new payload.
    let (inside, _) = updates("b", true);
    assert_eq!((inside.attempts, inside.state), (1, TimerState::Running));
    assert_eq!((&inside.payload[..], inside.planned), (&b"b"[..], start() + HOUR));
    assert_eq!((inside.options, inside.next), (hourly().attempts(5), None));
    bench.advance(SECOND);
    let (inside, _) = updates("c", false);
    assert_eq!((inside.attempts, inside.planned), (2, start() + HOUR));
    let after = found(timers);
    assert_eq!((&after.payload[..], after.planned), (&b"c"[..], start() + 2 * HOUR));
    assert_eq!((after.attempts, after.state), (0, TimerState::Resting));
}

fn an_update_of_a_running_timer_with_another_rule<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    update(timers, "a", When::ByRule, hourly()).unwrap();
    bench.advance(HOUR);
    let rule = || quick().every(HOUR / 2);
    let (inside, planned) = during(&bench, false, move |timers| {
        assert_eq!(update(timers, "b", When::ByRule, rule()), Ok(Inserted::Updated));
        // A delay counts from the update.
        assert_eq!(update(timers, "c", 9 * SECOND, rule()), Ok(Inserted::Updated));
    });
    assert_eq!(planned, start() + HOUR);
    let next = start() + HOUR + 9 * SECOND;
    assert_eq!((inside.planned, inside.next), (start() + HOUR, Some(next)));
    assert!(inside.is_running());
    let after = found(timers);
    assert_eq!((after.planned, after.due, after.next), (next, next, None));
    assert_eq!((&after.payload[..], after.options), (&b"c"[..], rule()));
    assert_eq!(wait(timers.len()), Ok(1));
}

fn an_update_changes_what_comes_next<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    wait(timers.insert("id", "a", SECOND, quick())).unwrap();
    bench.advance(SECOND);
    let (inside, _) = during(&bench, true, |timers| {
        let keep = hourly().existing(Existing::Keep);
        assert_eq!(wait(timers.insert("id", "next", 2 * HOUR, keep)), Ok(Inserted::Next));
    });
    let next = start() + SECOND + 2 * HOUR;
    assert_eq!(inside.next, Some(next));
    // It rests between two attempts, with a next delivery whose rule or time is the same.
    assert_eq!(update(timers, "a", When::ByRule, hourly()), Ok(Inserted::Updated));
    assert_eq!(found(timers).next, Some(next));
    assert_eq!(update(timers, "b", next, quick().attempts(7)), Ok(Inserted::Updated));
    let kept = found(timers);
    assert_eq!((&kept.payload[..], kept.attempts, kept.next), (&b"b"[..], 1, Some(next)));
    let sooner = start() + 60 * SECOND;
    assert_eq!(update(timers, "c", sooner, quick()), Ok(Inserted::Updated));
    let kept = found(timers);
    assert_eq!((kept.planned, kept.next), (start() + SECOND, Some(sooner)));
    assert_eq!(update(timers, "d", sooner, quick().attempts(9)), Ok(Inserted::Updated));
    bench.advance(SECOND);
    during(&bench, false, |_| ());
    let after = found(timers);
    assert_eq!((&after.payload[..], after.planned), (&b"d"[..], sooner));
    assert_eq!(after.options, quick().attempts(9));
}
