//! Leases that are renewed, lost, cancelled and limited while their handlers run, in virtual time.

#![allow(clippy::disallowed_methods, reason = "a loop has a limit in time")]

use crate::common::bench::{Bench, Place, Running, SECOND, attempts, quick, start, suite, wait};
use futures_channel::oneshot;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime};
use tourbillon_durable::{Attempt, Cancelled, Delivery, Existing, Options, Outcome};

suite!(
    a_lease_is_renewed_while_its_handler_runs,
    a_handler_that_hangs_ends_at_the_time_limit,
    a_handler_is_notified_of_a_cancel,
    a_handler_that_was_cancelled_may_succeed,
    a_handler_is_notified_of_a_replacement,
    a_handler_that_has_lost_its_lease_ends_with_it,
    a_renewal_keeps_what_is_inserted_next,
    an_attempt_that_is_cut_off_is_given_back,
    a_cancelled_attempt_that_is_cut_off_ends,
);

/// The default lease.
const LEASE: Duration = Duration::from_secs(15);

/// The interval of renewals.
const THIRD: Duration = Duration::from_secs(5);

/// Waits for a condition. The limit keeps a broken build from hanging.
fn until(mut condition: impl FnMut() -> bool) {
    let begun = SystemTime::now();
    while !condition() {
        assert!(begun.elapsed().unwrap() < 60 * SECOND, "it never happens");
        std::thread::yield_now();
    }
}

/// An attempt that has begun, with the sender of its result.
type Begun = (Delivery, oneshot::Sender<Result<(), String>>);

/// Runs a worker with one permit, whose handlers wait for their results, and end without one if
/// their lease is revoked.
fn gated<P: Place>(bench: &Bench<P>, time_limit: Duration) -> (Running, Receiver<Begun>) {
    let (send, begun) = channel();
    let worker = bench.timers().worker().concurrency(1).time_limit(time_limit);
    let running = bench.run(worker, move |delivery: Delivery| {
        let (result, comes) = oneshot::channel();
        let revoked = delivery.lease.revoked();
        send.send((delivery, result)).unwrap();
        async move {
            match comes.await {
                Ok(result) => result,
                Err(_) => {
                    revoked.await;
                    Err("revoked".to_owned())
                }
            }
        }
    });
    (running, begun)
}

fn due<P: Place>(bench: &Bench<P>) -> SystemTime {
    wait(bench.timers().get("id")).unwrap().unwrap().due
}

/// Advances the clock by a third of the lease, until the lease is renewed.
fn renew<P: Place>(bench: &Bench<P>, delivery: &Delivery) {
    let (before, expected) = (delivery.lease.expires(), bench.now() + THIRD + LEASE);
    bench.advance(THIRD);
    until(|| due(bench) == expected);
    until(|| delivery.lease.expires() == before + THIRD);
}

fn a_lease_is_renewed_while_its_handler_runs<P: Place>(bench: Bench<P>) {
    let (running, begun) = gated(&bench, 3600 * SECOND);
    wait(bench.timers().insert("id", "payload", SECOND, quick())).unwrap();
    bench.advance(SECOND);
    let (delivery, result) = begun.recv().unwrap();
    assert_eq!(delivery.lease.deadline(), delivery.lease.expires() + 3600 * SECOND - LEASE);
    for _ in 0..8 {
        renew(&bench, &delivery);
    }
    let found = wait(bench.timers().get("id")).unwrap().unwrap();
    assert_eq!((found.planned, found.attempts, found.is_running()), (start() + SECOND, 1, true));
    assert_eq!(found.payload, b"payload");
    result.send(Ok(())).unwrap();
    assert_eq!(running.acknowledged(1), ["id"]);
    until(|| delivery.lease.is_lost());
    assert_eq!(running.stop(), []);
    assert_eq!(begun.iter().count(), 0, "it was begun once");
}

fn a_handler_that_hangs_ends_at_the_time_limit<P: Place>(bench: Bench<P>) {
    let (running, begun) = gated(&bench, 32 * SECOND);
    wait(bench.timers().insert("id", "", SECOND, quick())).unwrap();
    wait(bench.timers().insert("other", "", 2 * SECOND, quick())).unwrap();
    bench.advance(SECOND);
    let (delivery, result) = begun.recv().unwrap();
    for _ in 0..6 {
        renew(&bench, &delivery);
    }
    assert!(running.events.try_recv().is_err());
    bench.advance(2 * SECOND);
    let event = running.next();
    let error = "the time limit passed".to_owned();
    assert_eq!((&*event.id, event.outcome), ("id", Outcome::Retry { wait: SECOND, error }));
    assert!(result.is_canceled(), "the handler was dropped");
    // Its permit is free.
    let (delivery, result) = begun.recv().unwrap();
    assert_eq!(delivery.id, "other");
    result.send(Ok(())).unwrap();
    assert_eq!(running.acknowledged(1), ["other"]);
    bench.advance(SECOND);
    begun.recv().unwrap().1.send(Ok(())).unwrap();
    assert_eq!(running.acknowledged(1), ["id"]);
    assert_eq!(running.stop(), []);
}

fn a_handler_is_notified_of_a_cancel<P: Place>(bench: Bench<P>) {
    let (running, begun) = gated(&bench, 3600 * SECOND);
    wait(bench.timers().insert("id", "", SECOND, quick())).unwrap();
    bench.advance(SECOND);
    let (delivery, result) = begun.recv().unwrap();
    renew(&bench, &delivery);
    assert!(!delivery.lease.is_cancelled());
    assert_eq!(wait(bench.timers().cancel("id")), Ok(Cancelled::Running));
    drop(result);
    bench.advance(THIRD);
    let error = "revoked".to_owned();
    assert_eq!(running.next().outcome, Outcome::Cancelled { error });
    assert!(delivery.lease.is_cancelled());
    assert_eq!((wait(bench.timers().len()), wait(bench.timers().dead_len())), (Ok(0), Ok(0)));
    assert_eq!(running.stop(), []);
}

fn a_handler_that_was_cancelled_may_succeed<P: Place>(bench: Bench<P>) {
    let (running, begun) = gated(&bench, 3600 * SECOND);
    wait(bench.timers().insert("id", "", SECOND, quick())).unwrap();
    bench.advance(SECOND);
    let (delivery, result) = begun.recv().unwrap();
    assert_eq!(wait(bench.timers().cancel("id")), Ok(Cancelled::Running));
    for _ in 0..4 {
        renew(&bench, &delivery);
    }
    assert!(delivery.lease.is_cancelled() && !delivery.lease.is_lost());
    result.send(Ok(())).unwrap();
    assert_eq!(running.acknowledged(1), ["id"]);
    assert_eq!(wait(bench.timers().len()), Ok(0));
    assert_eq!(running.stop(), []);
}

/// Inserts another timer in place of the running timer.
fn replace<P: Place>(bench: &Bench<P>) {
    let options = quick().existing(Existing::Replace);
    wait(bench.timers().insert("id", "new", 3600 * SECOND, options)).unwrap();
}

fn a_handler_is_notified_of_a_replacement<P: Place>(bench: Bench<P>) {
    let (running, begun) = gated(&bench, 3600 * SECOND);
    wait(bench.timers().insert("id", "", SECOND, quick())).unwrap();
    bench.advance(SECOND);
    let (delivery, result) = begun.recv().unwrap();
    replace(&bench);
    let planned = bench.now() + 3600 * SECOND;
    drop(result);
    bench.advance(THIRD);
    assert_eq!(running.next().outcome, Outcome::TooLate);
    assert!(delivery.lease.is_lost() && !delivery.lease.is_cancelled());
    // The renewal has not moved the new timer.
    assert_eq!(due(&bench), planned);
    assert_eq!(running.stop(), []);
}

fn a_handler_that_has_lost_its_lease_ends_with_it<P: Place>(bench: Bench<P>) {
    let (running, begun) = gated(&bench, 3600 * SECOND);
    wait(bench.timers().insert("id", "", SECOND, quick())).unwrap();
    bench.advance(SECOND);
    let (delivery, result) = begun.recv().unwrap();
    replace(&bench);
    bench.advance(THIRD);
    until(|| delivery.lease.is_lost());
    bench.advance(THIRD);
    assert!(running.events.try_recv().is_err() && !result.is_canceled(), "it may clean up");
    bench.advance(THIRD);
    assert_eq!(running.next().outcome, Outcome::TooLate);
    assert!(result.is_canceled(), "the handler was dropped");
    assert_eq!(running.stop(), []);
}

fn a_renewal_keeps_what_is_inserted_next<P: Place>(bench: Bench<P>) {
    let (running, begun) = gated(&bench, 3600 * SECOND);
    let (timers, options) = (bench.timers(), Options::new().existing(Existing::Keep));
    wait(timers.insert("id", "first", SECOND, quick())).unwrap();
    bench.advance(SECOND);
    let (delivery, result) = begun.recv().unwrap();
    wait(timers.insert("id", "next", 60 * SECOND, options)).unwrap();
    let next = bench.now() + 60 * SECOND;
    for _ in 0..2 {
        renew(&bench, &delivery);
    }
    let found = wait(timers.get("id")).unwrap().unwrap();
    assert_eq!((&found.payload[..], found.next), (&b"first"[..], Some(next)));
    result.send(Ok(())).unwrap();
    assert_eq!(running.acknowledged(1), ["id"]);
    let found = wait(timers.get("id")).unwrap().unwrap();
    assert_eq!((&found.payload[..], found.due), (&b"next"[..], next));
    assert_eq!(running.stop(), []);
}

/// Runs a worker whose handlers hang, until half a minute after it is asked to end.
fn cut_off<P: Place>(bench: &Bench<P>) -> (Running, oneshot::Sender<()>, Receiver<Delivery>) {
    let (end, ends) = oneshot::channel::<()>();
    let ends = async move {
        let _ = ends.await;
    };
    let (send, begun) = channel();
    let (told, events) = channel();
    let worker = bench.timers().worker().until_within(ends, 30 * SECOND);
    let worker = worker.observe(attempts(told));
    let run = worker.run(move |delivery: Delivery| {
        send.send(delivery).unwrap();
        std::future::pending::<Result<(), String>>()
    });
    (Running::of(run, events), end, begun)
}

/// Advances the clock until the handler is stopped. The worker may have been asked to end when the
/// clock had advanced already.
fn next_of_cut<P: Place>(bench: &Bench<P>, running: &Running) -> Attempt {
    let asked = bench.now();
    while bench.now() < asked + 60 * SECOND {
        bench.advance(THIRD);
        if let Ok(event) = running.events.recv_timeout(SECOND) {
            return event;
        }
    }
    panic!("the handler is never stopped")
}

fn an_attempt_that_is_cut_off_is_given_back<P: Place>(bench: Bench<P>) {
    let (running, end, begun) = cut_off(&bench);
    wait(bench.timers().insert("id", "", SECOND, quick().attempts(1))).unwrap();
    bench.advance(SECOND);
    let first = begun.recv().unwrap();
    drop(end);
    for _ in 0..5 {
        renew(&bench, &first);
    }
    assert!(running.events.try_recv().is_err(), "its time has not passed");
    let event = next_of_cut(&bench, &running);
    assert_eq!((event.attempt, event.outcome), (1, Outcome::GivenBack));
    assert_eq!(running.stop(), []);
    assert!(first.lease.is_lost());
    let found = wait(bench.timers().get("id")).unwrap().unwrap();
    assert_eq!((found.is_running(), found.attempts), (false, 0));
    assert!(found.due <= bench.now());
    assert_eq!(found.planned, start() + SECOND);
    // Another worker gets it at once, as its first and only attempt.
    let (running, begun) = gated(&bench, 3600 * SECOND);
    let (second, result) = begun.recv().unwrap();
    assert_eq!((second.attempt, &second.token), (1, &first.token));
    result.send(Ok(())).unwrap();
    assert_eq!(running.acknowledged(1), ["id"]);
    assert_eq!(running.stop(), []);
}

fn a_cancelled_attempt_that_is_cut_off_ends<P: Place>(bench: Bench<P>) {
    let (running, end, begun) = cut_off(&bench);
    wait(bench.timers().insert("id", "", SECOND, quick())).unwrap();
    bench.advance(SECOND);
    let delivery = begun.recv().unwrap();
    drop(end);
    assert_eq!(wait(bench.timers().cancel("id")), Ok(Cancelled::Running));
    for _ in 0..5 {
        renew(&bench, &delivery);
    }
    let event = next_of_cut(&bench, &running);
    assert_eq!(event.outcome, Outcome::Cancelled { error: String::new() });
    assert_eq!(running.stop(), []);
    assert_eq!((wait(bench.timers().len()), wait(bench.timers().dead_len())), (Ok(0), Ok(0)));
}
