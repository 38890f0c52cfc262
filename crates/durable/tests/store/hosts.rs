//! Stores on servers that are killed, stopped and cut off, and between the store handles of several
//! processes, in real time. Each test takes a server, so that every kind passes all of them.

#![allow(clippy::disallowed_methods, reason = "servers and workers are waited for")]

use crate::common::bench::{SECOND, attempts, wait};
use crate::common::host::{Host, hosts};
use crate::common::process::{Process, Work, Wrong, all_are_acknowledged_once, ids, quick};
use futures_channel::oneshot;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, SystemTime};
use tourbillon_durable::{Attempt, Cancelled, Delivery, DurableError, Inserted, Options, Outcome};

hosts!(
    what_was_acknowledged_survives_a_kill_of_the_server,
    a_call_whose_answer_is_lost_is_done_once,
    a_batch_whose_answer_is_lost_is_answered_as_before,
    an_order_whose_answer_is_lost_makes_one_delivery,
    orders_of_several_processes_leave_the_plan,
    what_the_network_held_back_is_not_done_late,
    a_connection_that_does_not_answer_is_replaced,
    a_timer_that_another_process_schedules_is_not_late,
    workers_of_several_processes_share_the_work,
    a_worker_at_rest_asks_little,
    a_worker_ends_though_its_server_is_away,
    a_call_is_retried_as_long_as_it_may_be,
    renewals_that_are_missed_cost_no_attempt,
    a_worker_that_is_cut_off_stops_its_handler,
    a_paused_store_is_paused_for_other_processes,
    a_server_whose_clock_is_set_hurries_and_loses_nothing,
);

fn what_was_acknowledged_survives_a_kill_of_the_server<H: Host>() {
    let Some(server) = H::start_host() else { return };
    let process = server.process();
    let work = process.work();
    let all = ids(300);
    for (some, part) in all.chunks(100).enumerate() {
        // Each hundred becomes due while the server is down, or just after.
        let schedule = part.iter().map(|id| {
            let delay = Duration::from_millis(300 + 10 * some as u64);
            process.timers.insert(id, "", delay, quick())
        });
        let scheduled = wait(futures_util::future::join_all(schedule));
        assert!(scheduled.iter().all(|scheduled| *scheduled == Ok(Inserted::New)));
        server.kill();
        sleep(Duration::from_millis(400));
        server.resume();
    }
    all_are_acknowledged_once(&process.timers, vec![work], all);
}

fn a_call_whose_answer_is_lost_is_done_once<H: Host>() {
    let Some(server) = H::start_host() else { return };
    let process = server.process();
    let work = process.work();
    let all = ids(2000);
    let caller = {
        let (timers, all) = (process.timers.clone(), all.clone());
        std::thread::spawn(move || {
            for some in all.chunks(200) {
                let delay = Duration::from_millis(20);
                let schedule = some.iter().map(|id| timers.insert(id, "", delay, quick()));
                let scheduled = wait(futures_util::future::join_all(schedule));
                // An operation that was executed twice would be refused.
                let new = |scheduled: &Result<_, _>| *scheduled == Ok(Inserted::New);
                let others: Vec<_> = scheduled.iter().filter(|it| !new(it)).collect();
                assert!(others.is_empty(), "{others:?}");
            }
        })
    };
    for _ in 0..20 {
        // Connections break while calls are in flight, and from time to time the server is killed
        // too.
        sleep(SECOND / 50);
        server.cut();
    }
    server.kill();
    server.resume();
    caller.join().unwrap();
    all_are_acknowledged_once(&process.timers, vec![work], all);
}

fn a_batch_whose_answer_is_lost_is_answered_as_before<H: Host>() {
    let Some(server) = H::start_host() else { return };
    let proxy = server.proxy();
    let process = server.process_at(proxy.port);
    let timers = &process.timers;
    let all = ids(200);
    proxy.lose(3);
    let schedule = all.iter().map(|id| timers.insert(id, "", 86_400 * SECOND, quick()));
    let scheduled = wait(futures_util::future::join_all(schedule));
    assert!(scheduled.iter().all(|scheduled| *scheduled == Ok(Inserted::New)), "{scheduled:?}");
    assert_eq!((proxy.left(), wait(timers.len())), (0, Ok(200)));

    proxy.lose(3);
    let cancel = all.iter().take(100).map(|id| timers.cancel(id));
    let cancelled = wait(futures_util::future::join_all(cancel));
    assert!(
        cancelled.iter().all(|cancelled| *cancelled == Ok(Cancelled::Removed)),
        "{cancelled:?}"
    );
    assert_eq!((proxy.left(), wait(timers.len())), (0, Ok(100)));

    // A lease that was granted is returned again, without a wait for its end.
    let work = process.work();
    for some in all[100..].chunks(25) {
        proxy.lose(2);
        let due = some.iter().map(|id| timers.reset(id, SECOND / 5));
        let moved = wait(futures_util::future::join_all(due));
        assert!(moved.iter().all(|moved| *moved == Ok(true)), "{moved:?}");
        sleep(SECOND / 5);
        proxy.lose(3);
        let acknowledged: BTreeSet<String> = some.iter().map(|_| work.next()).collect();
        assert_eq!(acknowledged, some.iter().cloned().collect());
    }
    assert_eq!(work.stop(), [""; 0]);
}

/// Inserts timers that repeat daily, of which every second one is paused.
fn insert_daily(process: &Process, all: &[String]) {
    let day = 86_400 * SECOND;
    let insert = |(place, id): (usize, &String)| {
        let (timers, id) = (process.timers.clone(), id.clone());
        async move {
            timers.insert(&id, "", day, quick().every(day)).await.unwrap();
            if place % 2 == 0 {
                assert_eq!(timers.pause_timer(&id).await, Ok(true));
            }
        }
    };
    wait(futures_util::future::join_all(all.iter().enumerate().map(insert)));
}

fn an_order_whose_answer_is_lost_makes_one_delivery<H: Host>() {
    let Some(server) = H::start_host() else { return };
    let proxy = server.proxy();
    let process = server.process_at(proxy.port);
    let (timers, work, all) = (&process.timers, process.work(), ids(200));
    insert_daily(&process, &all);
    let before = wait(timers.list(None, 1000)).unwrap();
    for some in all.chunks(50) {
        proxy.lose(3);
        let orders = some.iter().map(|id| timers.run_now(id));
        let done = wait(futures_util::future::join_all(orders));
        assert!(done.iter().all(|done| *done == Ok(true)), "{done:?}");
        let acknowledged: BTreeSet<String> = some.iter().map(|_| work.next()).collect();
        assert_eq!(acknowledged, some.iter().cloned().collect());
    }
    assert_eq!(work.stop(), [""; 0]);
    assert_eq!(wait(timers.list(None, 1000)).unwrap(), before);
}

/// Orders race with each other, with leases and with the ends of attempts.
fn orders_of_several_processes_leave_the_plan<H: Host>() {
    let Some(server) = H::start_host() else { return };
    let (here, there, all) = (server.process(), server.process(), ids(20));
    let work = [here.work(), there.work()];
    insert_daily(&here, &all);
    let before = wait(here.timers.list(None, 1000)).unwrap();
    let orders = |process: &Process| {
        let (timers, all) = (process.timers.clone(), all.clone());
        std::thread::spawn(move || {
            let mut given = 0;
            for _ in 0..30 {
                let orders = all.iter().map(|id| timers.run_now(id));
                for done in wait(futures_util::future::join_all(orders)) {
                    assert!(matches!(done, Ok(true) | Err(DurableError::Running)), "{done:?}");
                    given += usize::from(done.is_ok());
                }
            }
            given
        })
    };
    let threads = [orders(&here), orders(&there)];
    let given: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    let begun = SystemTime::now();
    while wait(here.timers.list(None, 1000)).unwrap() != before {
        assert!(begun.elapsed().unwrap() < 60 * SECOND, "the plan does not go on");
        sleep(SECOND / 50);
    }
    // An order before the attempt of an earlier one adds no delivery.
    let made = work.into_iter().flat_map(Work::stop).count();
    assert!((all.len()..=given).contains(&made), "{made} deliveries for {given} orders");
}

fn what_the_network_held_back_is_not_done_late<H: Host>() {
    let Some(server) = H::start_host() else { return };
    let proxy = server.proxy();
    let process = server.process_at(proxy.port);
    let other = server.process();
    assert_eq!(wait(process.timers.cancel("a")), Ok(Cancelled::NotFound));
    // Another request may be executed between the two copies of the one that is held back.
    for another in [false, true] {
        proxy.hold();
        assert_eq!(wait(process.timers.cancel("a")), Ok(Cancelled::NotFound));
        let scheduled = wait(other.timers.insert("a", "", 3600 * SECOND, quick()));
        assert_eq!(scheduled, Ok(Inserted::New));
        if another {
            assert_eq!(wait(process.timers.reset("a", 7200 * SECOND)), Ok(true));
        }
        assert!(proxy.let_go());
        sleep(SECOND / 2);
        assert_eq!(wait(other.timers.cancel("a")), Ok(Cancelled::Removed), "it is not cancelled");
    }
}

fn a_connection_that_does_not_answer_is_replaced<H: Host>() {
    let Some(server) = H::start_host() else { return };
    let proxy = server.proxy();
    let process = server.process_at(proxy.port);
    let work = process.work();
    for id in ["a", "b"] {
        let scheduled = wait(process.timers.insert(id, "", SECOND / 10, quick()));
        assert_eq!(scheduled, Ok(Inserted::New));
        assert_eq!(work.next(), id);
        proxy.silence();
    }
    assert_eq!(wait(process.timers.len()), Ok(0));
    assert_eq!(work.stop(), [""; 0]);
}

fn a_timer_that_another_process_schedules_is_not_late<H: Host>() {
    let Some(server) = H::start_host() else { return };
    let (here, there) = (server.process(), server.process());
    let work = here.work();
    // By then its low watermark lies ten seconds ahead.
    sleep(SECOND / 2);
    wait(there.timers.insert("far", "", 3600 * SECOND, quick())).unwrap();
    for number in 0..5 {
        let begun = SystemTime::now();
        wait(there.timers.insert("near", "", SECOND / 5, quick())).unwrap();
        assert_eq!(work.next(), "near");
        let took = begun.elapsed().unwrap();
        assert!((SECOND / 5..2 * SECOND).contains(&took), "{number}: {took:?}");
    }
    // A key beyond the window is loaded when it is due soon.
    // All windows are loaded again once a minute, which must not hide that the notice is missing.
    let next = || work.acknowledged.recv_timeout(20 * SECOND).expect("a notice");
    assert_eq!(wait(there.timers.reset("far", SECOND / 5)), Ok(true));
    assert_eq!(next(), "far");
    // The subscription breaks, and another is established.
    server.cut_notices();
    wait(there.timers.insert("unheard", "", SECOND / 10, quick())).unwrap();
    assert_eq!(next(), "unheard");
    // A cancel is obeyed although the key stays in the wheel.
    wait(there.timers.insert("cancelled", "", SECOND / 2, quick())).unwrap();
    assert_eq!(wait(there.timers.cancel("cancelled")), Ok(Cancelled::Removed));
    sleep(SECOND);
    assert_eq!(work.stop(), [""; 0]);
}

fn workers_of_several_processes_share_the_work<H: Host>() {
    let Some(server) = H::start_host() else { return };
    let processes = [server.process(), server.process(), server.process()];
    let work: Vec<Work> = processes.iter().map(Process::work).collect();
    let all = ids(1000);
    let schedule = all.iter().map(|id| processes[0].timers.insert(id, "", SECOND, quick()));
    wait(futures_util::future::try_join_all(schedule)).unwrap();
    all_are_acknowledged_once(&processes[0].timers, work, all);
}

fn a_worker_at_rest_asks_little<H: Host>() {
    let Some(server) = H::start_host() else { return };
    let process = server.process();
    let schedule = |id: &String| {
        let (timers, id) = (process.timers.clone(), id.clone());
        async move { timers.insert(&id, "", 86_400 * SECOND, Options::new()).await }
    };
    wait(futures_util::future::try_join_all(ids(500).iter().map(schedule))).unwrap();
    let work = process.work();
    // The rare request for a page of each partition may fall into one of these spans.
    let spans: Vec<u64> = (0..3)
        .map(|_| {
            let before = server.executed();
            sleep(5 * SECOND);
            server.executed() - before
        })
        .collect();
    assert!(spans.iter().any(|commands| *commands <= 45), "{spans:?} commands in five seconds");
    assert_eq!(work.stop(), [""; 0]);
}

/// Waits for a worker that was asked to end.
fn ended(work: Work) {
    drop(work.end);
    let begun = SystemTime::now();
    while !work.thread.is_finished() {
        assert!(begun.elapsed().unwrap() < 30 * SECOND, "the worker never ends");
        sleep(SECOND / 100);
    }
    assert_eq!(work.thread.join().unwrap(), Ok(()));
}

fn a_worker_ends_though_its_server_is_away<H: Host>() {
    let Some(server) = H::start_host().map(Arc::new) else { return };
    let process = server.process();
    let timers = &process.timers;
    // The lease is granted, and its end cannot be reported.
    let (begun, begins) = channel();
    let (end, ends) = oneshot::channel::<()>();
    let killed = Arc::clone(&server);
    let (send, events) = channel();
    let worker = timers.worker().observe(attempts(send));
    let run = worker
        .until(async move {
            let _ = ends.await;
        })
        .run(move |_| {
            killed.kill();
            begun.send(()).unwrap();
            async { Ok::<(), String>(()) }
        });
    let thread = std::thread::spawn(move || wait(run));
    let (_, acknowledged) = channel();
    let work = Work { acknowledged, wrong: Wrong::default(), end, thread };
    wait(timers.insert("id", "", SECOND / 10, quick().lease(SECOND))).unwrap();
    begins.recv_timeout(60 * SECOND).unwrap();
    ended(work);
    let outcomes: Vec<_> = events.try_iter().map(|attempt| attempt.outcome).collect();
    assert_eq!(outcomes, [Outcome::Unanswered]);
    // Another worker waits for a lease when it is asked to end.
    server.resume();
    let work = process.work();
    wait(timers.insert("ready", "", SECOND / 10, quick())).unwrap();
    while work.next() != "ready" {}
    wait(timers.insert("late", "", SECOND, quick())).unwrap();
    server.kill();
    sleep(2 * SECOND);
    ended(work);
    // Nothing is lost. The first worker's result may count now, or the timer is delivered again.
    server.resume();
    let work = process.work();
    while work.next() != "late" {}
    let begun = SystemTime::now();
    while wait(timers.len()) != Ok(0) {
        assert!(begun.elapsed().unwrap() < 60 * SECOND, "a timer is never delivered");
        sleep(SECOND / 20);
    }
    work.stop();
}

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

fn a_call_is_retried_as_long_as_it_may_be<H: Host>() {
    let Some(server) = H::start_host() else { return };
    let (hasty, process) = (server.process_with(server.port(), SECOND), server.process());
    server.kill();
    let insert = |process: &Process| {
        let timers = process.timers.clone();
        std::thread::spawn(move || wait(timers.insert("id", "", 3600 * SECOND, quick())))
    };
    let patient = insert(&process);
    let gone = insert(&hasty).join().unwrap().unwrap_err().reason;
    assert!(matches!(gone, DurableError::Unreachable(_)), "{gone:?}");
    // Longer than a call is retried by default.
    sleep(6 * SECOND);
    server.resume();
    assert_eq!(patient.join().unwrap(), Ok(Inserted::New));
}

fn renewals_that_are_missed_cost_no_attempt<H: Host>() {
    let Some(server) = H::start_host() else { return };
    const LEASE: Duration = Duration::from_secs(4);
    let proxy = server.proxy();
    let process = server.process_at(proxy.port);
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

fn a_worker_that_is_cut_off_stops_its_handler<H: Host>() {
    let Some(server) = H::start_host() else { return };
    let proxy = server.proxy();
    let process = server.process_at(proxy.port);
    let cut_off = Gated::of(&process);
    wait(process.timers.insert("id", "", SECOND / 10, quick().lease(SECOND))).unwrap();
    let (first, held) = cut_off.begun();
    let other = server.process();
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
    proxy.leads_to(server.port());
    assert_eq!(cut_off.next(), Outcome::TooLate);
    assert_eq!(wait(other.timers.len()), Ok(0));
    cut_off.stop();
    worker.stop();
}

fn a_paused_store_is_paused_for_other_processes<H: Host>() {
    let Some(server) = H::start_host() else { return };
    let (process, other) = (server.process(), server.process());
    let work = other.work();
    wait(process.timers.pause()).unwrap();
    for id in ["a", "b"] {
        wait(process.timers.insert(id, "", SECOND / 10, quick())).unwrap();
    }
    assert_eq!(wait(other.timers.is_paused()), Ok(true));
    assert!(work.acknowledged.recv_timeout(2 * SECOND).is_err(), "the store is paused");
    wait(process.timers.resume()).unwrap();
    // Long before everything is loaded again in any case.
    for _ in 0..2 {
        assert!(work.acknowledged.recv_timeout(20 * SECOND).is_ok(), "the store is resumed");
    }
    assert_eq!(work.stop(), [""; 0]);
}

fn a_server_whose_clock_is_set_hurries_and_loses_nothing<H: Host>() {
    let Some(server) = H::start_with_clock().map(Arc::new) else { return };
    let process = server.process();
    let timers = &process.timers;
    let (send, ended) = channel();
    let (end, ends) = oneshot::channel::<()>();
    let worker = timers.worker().until(async move {
        let _ = ends.await;
    });
    let clock = Arc::clone(&server);
    let run = worker.run(move |delivery| {
        send.send((delivery.id, clock.now() < delivery.planned)).unwrap();
        async { Ok::<(), String>(()) }
    });
    let thread = std::thread::spawn(move || wait(run));
    let next = || {
        let (id, early) = ended.recv_timeout(60 * SECOND).expect("nothing is lost");
        assert!(!early, "{id}");
        id
    };
    let schedule = |id: &str, delay: Duration| {
        wait(timers.insert(id, "", delay, quick())).unwrap();
    };
    schedule("right", SECOND / 10);
    assert_eq!(next(), "right");
    schedule("waits until the clock is right again", 2 * SECOND);
    // An hour back, so that an hour and two seconds are left.
    server.set_clock(-3600);
    schedule("by the new time", SECOND);
    assert_eq!(next(), "by the new time");
    sleep(2 * SECOND);
    assert!(ended.try_recv().is_err(), "it is not due");
    server.set_clock(0);
    assert_eq!(next(), "waits until the clock is right again");
    schedule("in an hour", 3600 * SECOND);
    schedule("in three hours", 3 * 3600 * SECOND);
    server.set_clock(7200);
    assert_eq!(next(), "in an hour");
    // The end of the lease is in the store when the worker has ended.
    drop(end);
    assert_eq!(thread.join().unwrap(), Ok(()));
    assert_eq!(wait(timers.len()), Ok(1));
    assert!(ended.try_recv().is_err(), "once each");
}
