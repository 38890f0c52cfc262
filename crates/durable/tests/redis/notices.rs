//! The channels that processes are subscribed to, and the events that only workers of a store in
//! Redis have.

use crate::common::bench::{Bench, MILLISECOND, SECOND, clock, wait};
use crate::common::events::Observed;
use crate::common::process::{PATIENCE, Process, quick};
use crate::common::redis::OneNode;
use crate::common::servers::Server;
use std::collections::BTreeSet;
use std::future::ready;
use tourbillon_durable::{DurableError, Event, RedisOptions, Verdict, Wait};

/// Returns the number of subscribers of the channel of the store, and of each partition.
fn subscribers(server: &Server) -> Vec<u64> {
    let partitions: String = (0..16).map(|partition| format!(" tb:timers:{partition}")).collect();
    let said = server.order(&format!("PUBSUB NUMSUB tb:timers{partitions}"));
    said.lines().filter_map(|line| line.strip_prefix(':')?.parse().ok()).collect()
}

/// Returns the number of workers that own partitions.
fn owners(server: &Server) -> usize {
    let said = server.order("HVALS {tb:timers}:owners");
    let owners: BTreeSet<&str> =
        said.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
    owners.len()
}

#[test]
fn a_process_is_subscribed_to_the_partitions_of_its_workers_alone() {
    let Some(server) = Server::start(&[]) else { return };
    let [one, two, callers] = [(); 3].map(|()| Process::new(&server));
    let settle = |workers: usize, each: u64| {
        server.wait_for("the owners", |server| owners(server) == workers);
        let expected: Vec<u64> = std::iter::once(3).chain([each; 16]).collect();
        server.wait_for("the subscriptions", |server| subscribers(server) == expected);
    };
    settle(0, 0);
    let [first, second, third] = [&one, &one, &two].map(Process::work);
    settle(3, 1);
    assert_eq!(third.stop(), [""; 0]);
    settle(2, 1);
    assert_eq!(first.stop(), [""; 0]);
    settle(1, 1);
    for number in 0..32 {
        let id = number.to_string();
        wait(callers.timers.insert(&id, "", SECOND / 100, quick())).unwrap();
        assert_eq!(second.next(), id);
    }
    assert_eq!(second.stop(), [""; 0]);
    settle(0, 0);
}

#[test]
fn all_channels_are_subscribed_to_by_one_command() {
    let Some(server) = Server::start(&[]) else { return };
    let options = RedisOptions::new("timers").partitions(1024).call_timeout(PATIENCE);
    let process = Process::with(&server.url(), options);
    let work = process.work();
    let settle = || {
        server.wait_for("the subscriptions", |server| {
            server.order("PUBSUB CHANNELS tb:timers:*").starts_with("*1024\r\n")
        });
    };
    settle();
    let before = server.calls("subscribe");
    assert_eq!(before, 2, "by the connection, and by the worker");
    server.order("CLIENT KILL TYPE pubsub");
    server.wait_for("another one", |server| server.calls("subscribe") > before);
    settle();
    assert_eq!(server.calls("subscribe"), before + 1);
    assert_eq!(work.stop(), [""; 0]);
}

fn observed(bench: &Bench<OneNode>) -> Observed {
    Observed::start(bench.timers().worker(), |_| ready(Verdict::Done))
}

/// Returns the next event, while time passes.
fn next(bench: &Bench<OneNode>, worker: &Observed) -> Event {
    worker.next(|| bench.advance(200 * MILLISECOND))
}

#[test]
fn workers_tell_which_partitions_they_own() {
    let Some(bench) = OneNode::bench() else { return };
    let first = observed(&bench);
    let all: BTreeSet<u64> = (0..16).collect();
    let gained =
        |partitions: &BTreeSet<u64>| Event::PartitionsGained { partitions: partitions.clone() };
    assert_eq!(next(&bench, &first), gained(&all));
    let second = observed(&bench);
    let Event::PartitionsGained { partitions: half } = next(&bench, &second) else {
        panic!("it gains its share")
    };
    assert_eq!(half.len(), 8);
    assert_eq!(next(&bench, &first), Event::PartitionsLost { partitions: half.clone() });
    assert_eq!(second.stop(), []);
    assert_eq!(next(&bench, &first), gained(&half));
    assert_eq!(first.stop(), []);
}

#[test]
fn a_worker_tells_that_it_has_no_partition() {
    let Some(place) = OneNode::beside(&clock(), 1) else { return };
    let bench = Bench::new(place);
    let first = observed(&bench);
    assert!(matches!(next(&bench, &first), Event::PartitionsGained { .. }));
    let second = observed(&bench);
    let reason = Wait::NoPartition;
    assert_eq!(next(&bench, &second), Event::Waiting { reason, error: None });
    assert_eq!(first.stop(), []);
    assert!(matches!(next(&bench, &second), Event::PartitionsGained { .. }));
    assert!(matches!(next(&bench, &second), Event::Resumed { reason: Wait::NoPartition, .. }));
    assert_eq!(second.stop(), []);
}

#[test]
fn a_worker_tells_that_notices_are_lost_and_restored() {
    let Some(bench) = OneNode::bench() else { return };
    let worker = observed(&bench);
    assert!(matches!(next(&bench, &worker), Event::PartitionsGained { .. }));
    bench.place.server.order("CLIENT KILL TYPE pubsub");
    assert_eq!(next(&bench, &worker), Event::NoticesLost);
    assert_eq!(next(&bench, &worker), Event::NoticesRestored);
    assert_eq!(worker.stop(), []);
}

#[test]
fn a_channel_that_is_refused_is_requested_again() {
    let Some(bench) = OneNode::bench() else { return };
    let server = &bench.place.server;
    server.order("ACL SETUSER default -subscribe");
    let worker = observed(&bench);
    assert!(matches!(next(&bench, &worker), Event::PartitionsGained { .. }));
    assert_eq!(next(&bench, &worker), Event::NoticesLost);
    server.order("ACL SETUSER default +subscribe");
    assert_eq!(next(&bench, &worker), Event::NoticesRestored);
    server.wait_for("the subscriptions", |server| subscribers(server) == [1; 17]);
    assert_eq!(worker.stop(), []);
}

#[test]
fn a_worker_tells_that_the_store_was_emptied() {
    let Some(bench) = OneNode::bench() else { return };
    let worker = observed(&bench);
    assert!(matches!(next(&bench, &worker), Event::PartitionsGained { .. }));
    bench.place.server.order("FLUSHALL");
    // Its heartbeat may find first that it has no partition any more.
    loop {
        match next(&bench, &worker) {
            Event::Emptied => break,
            Event::PartitionsLost { .. } | Event::PartitionsGained { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(worker.failed(), DurableError::Emptied);
}

/// Returns why a worker begins to wait for a server that is silent.
fn silence(bench: &Bench<OneNode>, worker: &Observed) -> String {
    loop {
        match next(bench, worker) {
            Event::NoticesLost => {}
            Event::Waiting {
                reason: Wait::StoreAway,
                error: Some(DurableError::Unreachable(why)),
            } => break why,
            event => panic!("{event:?}"),
        }
    }
}

#[test]
fn a_worker_tells_that_it_waits_for_a_silent_server() {
    let Some(bench) = OneNode::bench() else { return };
    let worker = observed(&bench);
    assert!(matches!(next(&bench, &worker), Event::PartitionsGained { .. }));
    bench.place.server.pause();
    let why = silence(&bench, &worker);
    let address = format!("127.0.0.1:{}: ", bench.place.server.port);
    assert!(why.starts_with(&address), "{why}");
    bench.place.server.go_on();
    loop {
        match next(&bench, &worker) {
            Event::Resumed { reason: Wait::StoreAway, waited } => {
                assert!(waited >= SECOND / 5);
                break;
            }
            Event::Waiting { .. } | Event::Attempt(_) => panic!("it has resumed"),
            _ => {}
        }
    }
    let _ = worker.stop();
}

#[test]
fn a_worker_tells_that_the_server_refuses_connections() {
    let Some(bench) = OneNode::bench() else { return };
    let worker = observed(&bench);
    assert!(matches!(next(&bench, &worker), Event::PartitionsGained { .. }));
    bench.place.server.kill();
    let why = loop {
        match next(&bench, &worker) {
            Event::NoticesLost => {}
            Event::Waiting { reason: Wait::StoreAway, error: Some(error) } => break error,
            event => panic!("{event:?}"),
        }
    };
    let DurableError::Unreachable(why) = why else { panic!("{why:?}") };
    assert!(why.contains("refused"), "{why}");
    bench.place.server.resume();
    loop {
        match next(&bench, &worker) {
            Event::Resumed { reason: Wait::StoreAway, .. } | Event::Emptied => break,
            _ => {}
        }
    }
}

#[test]
fn a_worker_tells_that_nothing_can_be_written() {
    let Some(bench) = OneNode::bench() else { return };
    let worker = observed(&bench);
    assert!(matches!(next(&bench, &worker), Event::PartitionsGained { .. }));
    // As while a replica is down that writes depend on.
    bench.place.server.order("CONFIG SET min-replicas-to-write 1");
    let error = match next(&bench, &worker) {
        Event::Waiting { reason: Wait::StoreReadOnly, error: Some(error) } => error,
        event => panic!("{event:?}"),
    };
    let DurableError::ReadOnly(why) = error else { panic!("{error:?}") };
    assert!(why.contains("NOREPLICAS"), "{why}");
    bench.place.server.order("CONFIG SET min-replicas-to-write 0");
    assert!(matches!(next(&bench, &worker), Event::Resumed { reason: Wait::StoreReadOnly, .. }));
    // A later wait has its own reason.
    bench.place.server.pause();
    silence(&bench, &worker);
    bench.place.server.go_on();
    let _ = worker.stop();
}
