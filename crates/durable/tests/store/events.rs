//! The events of a worker, in virtual time.

use crate::common::bench::{Bench, Place, SECOND, quick, start, suite, wait};
use crate::common::events::Observed;
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::future::ready;
use std::sync::mpsc::channel;
use std::time::Duration;
use tourbillon_durable::{
    Attempt, Delivery, Event, Existing, LeaseLoss, Misfire, Outcome, Verdict, Wait,
};

suite!(
    an_attempt_has_its_lateness_and_its_duration,
    an_attempt_without_a_call_of_the_handler,
    a_lease_that_was_taken_over,
    a_lease_that_ran_out,
    a_worker_waits_while_the_store_is_paused,
    a_worker_waits_while_its_handlers_are_busy,
);

fn observed<P: Place, F>(
    bench: &Bench<P>,
    handler: impl Fn(Delivery) -> F + Send + Sync + 'static,
) -> Observed
where
    F: Future<Output: Into<Verdict>> + Send + 'static,
{
    Observed::start(bench.timers().worker(), handler)
}

/// Returns the next event that is neither about the partitions of a store in Redis nor about a
/// server that is slow on a busy computer.
pub(crate) fn next<P: Place>(bench: &Bench<P>, worker: &Observed, step: Duration) -> Event {
    loop {
        match worker.next(|| bench.advance(step)) {
            Event::PartitionsGained { .. }
            | Event::Waiting { reason: Wait::StoreAway, .. }
            | Event::Resumed { reason: Wait::StoreAway, .. } => {}
            event => return event,
        }
    }
}

fn attempt<P: Place>(bench: &Bench<P>, worker: &Observed) -> Attempt {
    match next(bench, worker, Duration::ZERO) {
        Event::Attempt(attempt) => attempt,
        other => panic!("{other:?}"),
    }
}

/// Returns a sender, and a handler that waits until the sender is dropped.
fn gate() -> (oneshot::Sender<()>, impl Fn() -> BoxFuture<'static, Verdict> + Send + Sync) {
    let (sender, receiver) = oneshot::channel();
    let receiver = receiver.shared();
    (sender, move || receiver.clone().map(|_| Verdict::Done).boxed())
}

fn an_attempt_has_its_lateness_and_its_duration<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let ((begun, begins), (release, gate)) = (channel(), gate());
    wait(timers.insert("id", "", SECOND, quick())).unwrap();
    bench.advance(3 * SECOND);
    let worker = observed(&bench, move |delivery| {
        begun.send(()).unwrap();
        let gate = gate();
        async move { if delivery.attempt == 1 { Verdict::Retry("no".to_owned()) } else { gate.await } }
    });
    begins.recv().unwrap();
    let first = attempt(&bench, &worker);
    assert_eq!((first.due, first.planned, first.attempt), (start() + SECOND, start() + SECOND, 1));
    assert_eq!((first.lateness, first.duration), (2 * SECOND, Some(Duration::ZERO)));
    // The second attempt is due after a second.
    bench.advance(SECOND);
    begins.recv().unwrap();
    bench.advance(4 * SECOND);
    drop(release);
    let second = attempt(&bench, &worker);
    assert_eq!((second.due, second.planned), (start() + 4 * SECOND, start() + SECOND));
    assert_eq!((second.outcome, second.attempt), (Outcome::Acknowledged, 2));
    assert_eq!((second.lateness, second.duration), (Duration::ZERO, Some(4 * SECOND)));
    assert_eq!(worker.stop(), []);
}

fn an_attempt_without_a_call_of_the_handler<P: Place>(bench: Bench<P>) {
    let hourly = quick().every(3600 * SECOND).misfire(Misfire::SkipAfter(5 * SECOND));
    wait(bench.timers().insert("id", "", SECOND, hourly)).unwrap();
    bench.advance(11 * SECOND);
    let worker = observed(&bench, |_| ready(Verdict::Done));
    let missed = attempt(&bench, &worker);
    let (late, next) = (10 * SECOND, Some(start() + 3601 * SECOND));
    assert_eq!(missed.outcome, Outcome::Missed { late, next });
    assert_eq!((missed.lateness, missed.duration), (late, None));
    assert_eq!(worker.stop(), []);
}

fn a_lease_that_was_taken_over<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let ((begun, begins), (release, gate)) = (channel(), gate());
    let worker = observed(&bench, move |_| {
        begun.send(()).unwrap();
        gate()
    });
    let lost = Event::LeaseLost { id: "id".to_owned(), attempt: 1, reason: LeaseLoss::TakenOver };
    let options = quick().lease(9 * SECOND);
    let replace =
        || wait(timers.insert("id", "", SECOND, options.clone().existing(Existing::Replace)));
    // The worker learns it from its next renewal.
    replace().unwrap();
    bench.advance(SECOND);
    begins.recv().unwrap();
    replace().unwrap();
    assert_eq!(next(&bench, &worker, 3 * SECOND), lost);
    drop(release);
    // The attempt at the new timer ends beside the other one.
    let (one, other) = (attempt(&bench, &worker), attempt(&bench, &worker));
    let (late, again) = if one.outcome == Outcome::TooLate { (one, other) } else { (other, one) };
    assert_eq!((late.outcome, late.attempt), (Outcome::TooLate, 1));
    assert_eq!((again.outcome, again.attempt), (Outcome::Acknowledged, 1));
    assert_eq!(worker.stop(), []);

    // The worker learns it from the end of the attempt.
    let inside = timers.clone();
    let worker = observed(&bench, move |delivery| {
        let (timers, replace) = (inside.clone(), quick().existing(Existing::Replace));
        async move {
            timers.insert(&delivery.id, "", 3600 * SECOND, replace).await.unwrap();
            Verdict::Done
        }
    });
    wait(timers.insert("id", "", Duration::ZERO, options)).unwrap();
    assert_eq!(next(&bench, &worker, Duration::ZERO), lost);
    assert_eq!(attempt(&bench, &worker).outcome, Outcome::TooLate);
    assert_eq!(worker.stop(), []);
}

fn a_lease_that_ran_out<P: Place>(bench: Bench<P>) {
    let (begun, begins) = channel();
    let worker = observed(&bench, move |_| {
        begun.send(()).unwrap();
        std::future::pending::<Verdict>()
    });
    wait(bench.timers().insert("id", "", SECOND, quick().attempts(1))).unwrap();
    bench.advance(SECOND);
    begins.recv().unwrap();
    // The computer has slept.
    bench.advance(60 * SECOND);
    let lost = Event::LeaseLost { id: "id".to_owned(), attempt: 1, reason: LeaseLoss::RanOut };
    // The worker itself may find the expired lease first. Then the timer is dead by that, and the
    // end of the handler is too late.
    let is =
        |event: &Event, so: fn(&Attempt) -> bool| matches!(event, Event::Attempt(it) if so(it));
    let dead = |event: &Event| is(event, |it| matches!(it.outcome, Outcome::Dead { .. }));
    let stopped = |event: &Event| is(event, |it| it.duration == Some(60 * SECOND));
    let mut events = Vec::new();
    while !(events.contains(&lost) && events.iter().any(dead) && events.iter().any(stopped)) {
        events.push(next(&bench, &worker, Duration::ZERO));
    }
    assert!(events.len() <= 3, "{events:?}");
    assert_eq!(worker.stop(), []);
}

fn a_worker_waits_while_the_store_is_paused<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    wait(timers.pause()).unwrap();
    let worker = observed(&bench, |_| ready(Verdict::Done));
    let reason = Wait::StorePaused;
    assert_eq!(next(&bench, &worker, SECOND), Event::Waiting { reason, error: None });
    bench.advance(10 * SECOND);
    wait(timers.resume()).unwrap();
    let resumed = next(&bench, &worker, SECOND);
    assert!(
        matches!(resumed, Event::Resumed { reason: Wait::StorePaused, waited } if waited >= 10 * SECOND),
        "{resumed:?}"
    );
    assert_eq!(worker.stop(), []);
}

fn a_worker_waits_while_its_handlers_are_busy<P: Place>(bench: Bench<P>) {
    let (release, gate) = gate();
    let worker = bench.timers().worker().concurrency(1);
    let worker = Observed::start(worker, move |_| gate());
    for id in ["a", "b"] {
        wait(bench.timers().insert(id, "", SECOND, quick())).unwrap();
    }
    bench.advance(SECOND);
    let reason = Wait::Busy;
    assert_eq!(next(&bench, &worker, SECOND), Event::Waiting { reason, error: None });
    drop(release);
    let ids = [attempt(&bench, &worker).id, attempt(&bench, &worker).id];
    assert_eq!(ids, ["a", "b"]);
    let resumed = next(&bench, &worker, SECOND);
    assert!(matches!(resumed, Event::Resumed { reason: Wait::Busy, .. }), "{resumed:?}");
    assert_eq!(worker.stop(), []);
}
