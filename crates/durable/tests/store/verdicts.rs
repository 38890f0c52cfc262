//! The verdicts of handlers, in virtual time.

use crate::common::bench::{
    Bench, LEASE, MILLISECOND, Place, Running, SECOND, quick, start, suite, wait,
};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tourbillon_durable::{DeadReason, Delivery, DurableError, Outcome, Verdict};

suite!(
    a_snooze_gives_the_attempt_back,
    a_delivery_is_given_back_with_its_error,
    a_snooze_counts_from_the_clock_of_the_store,
    a_snooze_ends_with_the_time_to_live,
    a_counted_snooze_uses_up_the_attempts,
    a_failure_for_good_is_not_retried,
    a_failure_of_all_deliveries_ends_the_repetition,
);

fn snooze(after: Duration, counted: bool) -> Verdict {
    Verdict::Again { after, counted }
}

/// Runs a worker whose handlers return these verdicts, one after another.
fn scripted<P: Place>(
    bench: &Bench<P>,
    verdicts: impl IntoIterator<Item = Verdict>,
) -> (Running, Receiver<Delivery>) {
    let verdicts: Vec<Verdict> = verdicts.into_iter().collect();
    let verdicts = Mutex::new(verdicts.into_iter());
    let (send, deliveries) = channel();
    let running = bench.work_by(1, move |delivery| {
        send.send(delivery).unwrap();
        let verdict = verdicts.lock().unwrap().next();
        // `?` works beside verdicts.
        async move { verdict.ok_or(DurableError::Closed) }
    });
    (running, deliveries)
}

fn a_snooze_gives_the_attempt_back<P: Place>(bench: Bench<P>) {
    let busy = Verdict::Retry("busy".to_owned());
    let (again, after) = (snooze(5 * SECOND, false), 5 * SECOND);
    let script = [busy, again.clone(), again.clone(), again, Verdict::Done];
    let (running, deliveries) = scripted(&bench, script);
    let timers = bench.timers();
    wait(timers.insert("id", "payload", SECOND, quick().attempts(2))).unwrap();
    bench.advance(SECOND);
    assert!(matches!(running.next().outcome, Outcome::Retry { .. }));
    bench.advance(SECOND);
    for _ in 0..3 {
        let event = running.next();
        assert_eq!(event.outcome, Outcome::Again { wait: after, counted: false });
        assert_eq!((event.attempt, event.planned), (2, start() + SECOND));
        let found = wait(timers.get("id")).unwrap().unwrap();
        assert_eq!((found.attempts, &*found.error, found.is_running()), (1, "busy", false));
        assert_eq!((found.planned, found.due), (start() + SECOND, bench.now() + after));
        bench.advance(after - MILLISECOND);
        bench.advance(MILLISECOND);
    }
    assert_eq!(running.acknowledged(1), ["id"]);
    assert_eq!(running.stop(), []);
    let deliveries: Vec<Delivery> = deliveries.iter().collect();
    assert_eq!(deliveries.iter().map(|one| one.attempt).collect::<Vec<_>>(), [1, 2, 2, 2, 2]);
    assert!(deliveries.iter().all(|one| one.token == "1800000001000:id"));
    assert_eq!((wait(timers.len()), wait(timers.dead_len())), (Ok(0), Ok(0)));
}

fn a_delivery_is_given_back_with_its_error<P: Place>(bench: Bench<P>) {
    let back = |error: Option<&str>| Verdict::GiveBack {
        after: 5 * SECOND,
        error: error.map(str::to_owned),
    };
    let busy = Verdict::Retry("busy".to_owned());
    let script = [busy, back(None), back(Some("no network")), back(None), Verdict::Done];
    let (running, deliveries) = scripted(&bench, script);
    let timers = bench.timers();
    wait(timers.insert("id", "payload", SECOND, quick().attempts(2))).unwrap();
    bench.advance(SECOND);
    assert!(matches!(running.next().outcome, Outcome::Retry { .. }));
    bench.advance(SECOND);
    for error in ["busy", "no network", "no network"] {
        let event = running.next();
        assert_eq!((event.outcome, event.attempt), (Outcome::GivenBack, 2));
        let found = wait(timers.get("id")).unwrap().unwrap();
        assert_eq!((found.attempts, &*found.error, found.is_running()), (1, error, false));
        assert_eq!(found.due, bench.now() + 5 * SECOND);
        bench.advance(5 * SECOND - MILLISECOND);
        bench.advance(MILLISECOND);
    }
    assert_eq!(running.acknowledged(1), ["id"]);
    assert_eq!(running.stop(), []);
    let attempts: Vec<u32> = deliveries.iter().map(|one| one.attempt).collect();
    assert_eq!(attempts, [1, 2, 2, 2, 2]);
}

fn a_snooze_counts_from_the_clock_of_the_store<P: Place>(bench: Bench<P>) {
    let script = [snooze(60 * SECOND, false), snooze(Duration::MAX, false)];
    let (running, _deliveries) = scripted(&bench, script);
    // Longer than the steps of the clock, because a lease that was requested before a step must
    // outlive it.
    let options = quick().lease(3600 * SECOND);
    wait(bench.timers().insert("id", "", SECOND, options)).unwrap();
    bench.place.set_clock(3_600_000);
    bench.advance(SECOND);
    assert!(matches!(running.next().outcome, Outcome::Again { .. }));
    let due = || wait(bench.timers().get("id")).unwrap().unwrap().due;
    assert_eq!(due(), bench.now() + 60 * SECOND);
    bench.advance(60 * SECOND);
    assert!(matches!(running.next().outcome, Outcome::Again { .. }));
    assert!(due() > bench.now() + Duration::from_secs(7000 * 365 * 86_400), "the end of time");
    assert_eq!(running.stop(), []);
}

fn a_snooze_ends_with_the_time_to_live<P: Place>(bench: Bench<P>) {
    let (running, deliveries) = scripted(&bench, [0; 9].map(|_| snooze(25 * SECOND, false)));
    let options = quick().time_to_live(60 * SECOND).lease(LEASE);
    wait(bench.timers().insert("id", "", SECOND, options)).unwrap();
    bench.advance(SECOND);
    for _ in 0..3 {
        assert!(matches!(running.next().outcome, Outcome::Again { .. }));
        bench.advance(25 * SECOND);
    }
    let (reason, error) = (DeadReason::Expired, String::new());
    assert_eq!(running.next().outcome, Outcome::Dead { reason, error });
    assert_eq!(running.stop(), []);
    assert_eq!(deliveries.iter().count(), 3);
}

fn a_counted_snooze_uses_up_the_attempts<P: Place>(bench: Bench<P>) {
    let again = snooze(5 * SECOND, true);
    let (running, deliveries) = scripted(&bench, [again.clone(), again]);
    wait(bench.timers().insert("id", "", SECOND, quick().attempts(2))).unwrap();
    bench.advance(SECOND);
    assert_eq!(running.next().outcome, Outcome::Again { wait: 5 * SECOND, counted: true });
    assert_eq!(wait(bench.timers().get("id")).unwrap().unwrap().attempts, 1);
    bench.advance(5 * SECOND);
    let reason = DeadReason::Attempts;
    let error = "the last attempt asked for another".to_owned();
    assert_eq!(running.next().outcome, Outcome::Dead { reason, error });
    assert_eq!(running.stop(), []);
    assert_eq!(deliveries.iter().map(|one| one.attempt).collect::<Vec<_>>(), [1, 2]);
}

fn a_failure_for_good_is_not_retried<P: Place>(bench: Bench<P>) {
    let (reason, error) = (DeadReason::Failed, "é".repeat(600));
    let script = [Verdict::Fail(error.clone()), Verdict::Done];
    let (running, _deliveries) = scripted(&bench, script);
    let timers = bench.timers();
    wait(timers.insert("id", "payload", SECOND, quick())).unwrap();
    bench.advance(SECOND);
    let error = error[..1024].to_owned();
    assert_eq!(running.next().outcome, Outcome::Dead { reason, error: error.clone() });
    assert_eq!(wait(timers.len()), Ok(0));
    let letter = wait(timers.dead_letters(None, 9)).unwrap().remove(0);
    assert_eq!((letter.reason, letter.attempts, letter.error), (reason, 1, error));
    assert_eq!(wait(timers.redrive(letter.number)), Ok(true));
    let event = running.next();
    assert_eq!((event.attempt, event.planned), (1, start() + SECOND));
    assert_eq!(event.outcome, Outcome::Acknowledged);
    assert_eq!(running.stop(), []);
}

fn a_failure_of_all_deliveries_ends_the_repetition<P: Place>(bench: Bench<P>) {
    let gone = "the receiver is gone".to_owned();
    let (running, deliveries) = scripted(&bench, [Verdict::Done, Verdict::Stop(gone.clone())]);
    wait(bench.timers().insert("id", "", SECOND, quick().every(SECOND))).unwrap();
    bench.advance(SECOND);
    assert_eq!(running.acknowledged(1), ["id"]);
    bench.advance(SECOND);
    let reason = DeadReason::Failed;
    assert_eq!(running.next().outcome, Outcome::Dead { reason, error: gone.clone() });
    bench.advance(10 * SECOND);
    assert_eq!(wait(bench.timers().get("id")).unwrap().map(|found| found.due), None);
    let letters = wait(bench.timers().dead_letters(None, 9)).unwrap();
    assert_eq!((letters.len(), &letters[0].error), (1, &gone));
    assert_eq!(running.stop(), []);
    assert_eq!(deliveries.iter().count(), 2);
}
