//! Leases that are renewed past lost replies and a silent server, and lost to another worker, in
//! real time. In virtual time, leases that are renewed after the clock was set back.

#![allow(clippy::disallowed_methods, reason = "workers have threads, and leases are waited for")]

use crate::common::bench::{Place, SECOND, attempts, wait};
use crate::common::process::{Process, quick};
use crate::common::proxy::Proxy;
use crate::common::redis::OneNode;
use crate::common::servers::Server;
use futures_channel::oneshot;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;
use tourbillon_durable::{Attempt, Delivery, DurableError, Outcome};

/// A worker whose handlers wait for their results.
struct Gated {
    begun: Receiver<(Delivery, oneshot::Sender<()>)>,
    events: Receiver<Attempt>,
    end: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), DurableError>>,
}

impl Gated {
    fn of(process: &Process) -> Self {
        let ((send, begun), (told, events)) = (channel(), channel());
        let (end, ends) = oneshot::channel::<()>();
        let worker = process.timers.worker().until(async move {
            let _ = ends.await;
        });
        let worker = worker.observe(attempts(told));
        let run = worker.run(move |delivery| {
            let (result, comes) = oneshot::channel();
            send.send((delivery, result)).unwrap();
            comes
        });
        Self { begun, events, end, thread: std::thread::spawn(move || wait(run)) }
    }

    fn begun(&self) -> (Delivery, oneshot::Sender<()>) {
        self.begun.recv_timeout(60 * SECOND).expect("an attempt begins")
    }

    fn next(&self) -> Outcome {
        self.events.recv_timeout(60 * SECOND).expect("an attempt ends").outcome
    }

    fn stop(self) {
        drop(self.end);
        assert_eq!(self.thread.join().unwrap(), Ok(()));
        assert!(self.events.iter().next().is_none() && self.begun.iter().next().is_none());
    }
}

#[test]
fn renewals_that_are_missed_cost_no_attempt() {
    const LEASE: Duration = Duration::from_secs(4);
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::before(server.port);
    let process = Process::at(&format!("redis://127.0.0.1:{}/", proxy.port));
    let worker = Gated::of(&process);
    wait(process.timers.insert("id", "", SECOND / 10, quick().lease(LEASE))).unwrap();
    let (delivery, result) = worker.begun();
    let first = delivery.lease.expires();
    for _ in 0..6 {
        proxy.lose(2);
        sleep(SECOND / 2);
    }
    server.pause();
    sleep(3 * SECOND / 2);
    server.go_on();
    // More than two leases in all.
    sleep(4 * SECOND);
    assert!(delivery.lease.expires() > first + LEASE && !delivery.lease.is_lost());
    result.send(()).unwrap();
    assert_eq!(worker.next(), Outcome::Acknowledged);
    worker.stop();
}

#[test]
fn a_worker_that_is_cut_off_stops_its_handler() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::before(server.port);
    let process = Process::at(&format!("redis://127.0.0.1:{}/", proxy.port));
    let cut_off = Gated::of(&process);
    wait(process.timers.insert("id", "", SECOND / 10, quick().lease(SECOND))).unwrap();
    let (first, held) = cut_off.begun();
    let other = Process::new(&server);
    let worker = Gated::of(&other);
    // A port without a server.
    proxy.leads_to(1);
    proxy.silence();
    while !held.is_canceled() {
        sleep(SECOND / 50);
    }
    let (second, result) = worker.begun();
    assert_eq!((second.attempt, &second.token), (2, &first.token));
    assert!(first.lease.is_lost() && !second.lease.is_lost());
    result.send(()).unwrap();
    while worker.next() != Outcome::Acknowledged {}
    proxy.leads_to(server.port);
    assert_eq!(cut_off.next(), Outcome::TooLate);
    assert_eq!(wait(other.timers.len()), Ok(0));
    cut_off.stop();
    worker.stop();
}

#[test]
fn a_renewal_is_published_if_the_clock_was_set_back() {
    let Some(bench) = OneNode::bench() else { return };
    let (begin, begun) = channel();
    let running = bench.work(1, move |_| {
        let (result, comes) = oneshot::channel::<()>();
        begin.send(result).unwrap();
        comes
    });
    wait(bench.timers().insert("id", "", SECOND, quick().lease(6 * SECOND))).unwrap();
    bench.advance(SECOND);
    let result = begun.recv_timeout(60 * SECOND).expect("an attempt begins");
    let due = || wait(bench.timers().get("id")).unwrap().map(|timer| timer.due);
    let renewal = || {
        let before = due();
        bench.advance(2 * SECOND);
        bench.place.server.wait_for("a renewal", |_| due() != before);
        bench.place.server.calls("publish")
    };
    // Each moves the end of the lease to a later time.
    let (first, second) = (renewal(), renewal());
    assert_eq!(first, second);
    bench.place.set_clock(-4_000);
    assert_eq!(renewal(), second + 1, "other workers have a key of a later time");
    assert_eq!(renewal(), second + 1);
    result.send(()).unwrap();
    assert_eq!(running.acknowledged(1), ["id"]);
    assert_eq!(running.stop(), []);
}
