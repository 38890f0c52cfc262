//! Ownership of the partitions of a store in Redis, which affects nothing but the work.

#![allow(clippy::disallowed_methods, reason = "servers and workers are waited for")]

use crate::common::bench::{Bench, MILLISECOND, Running, SECOND, quick, wait};
use crate::common::redis::OneNode;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

/// The default number of partitions.
const PARTITIONS: usize = 16;

const WORKERS: &str = "{tb:timers}:workers";
const OWNERS: &str = "{tb:timers}:owners";

/// Returns the number of partitions of each worker.
fn owned(bench: &Bench<OneNode>) -> BTreeMap<String, usize> {
    let said = bench.place.server.order(&format!("HVALS {OWNERS}"));
    let mut owned = BTreeMap::new();
    for worker in said.lines().filter(|line| !line.starts_with(['*', '$'])) {
        *owned.entry(worker.to_owned()).or_default() += 1;
    }
    owned
}

/// Sends a heartbeat of a worker of another process, which delivers nothing.
fn send_heartbeat(bench: &Bench<OneNode>, worker: &str) {
    let now = bench.now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    bench.place.server.order(&format!("ZADD {WORKERS} {now} {worker}"));
}

fn owns_all(bench: &Bench<OneNode>, worker: &str) {
    send_heartbeat(bench, worker);
    for partition in 0..PARTITIONS {
        bench.place.server.order(&format!("HSET {OWNERS} {partition} {worker}"));
    }
}

/// Advances the clock in small steps until the condition holds, and returns the duration.
fn until(bench: &Bench<OneNode>, mut so: impl FnMut() -> bool) -> Duration {
    let step = 100 * MILLISECOND;
    for steps in 0..2000 {
        // Requests to a server take some time.
        std::thread::sleep(20 * MILLISECOND);
        if so() {
            return step * steps;
        }
        bench.advance(step);
    }
    panic!("it never is so: {:?}", owned(bench));
}

fn shares(bench: &Bench<OneNode>) -> Vec<usize> {
    owned(bench).into_values().collect()
}

/// Checks that all timers with these numbers are acknowledged.
fn all_are_acknowledged(worker: &Running, count: usize) {
    let acknowledged: BTreeSet<String> = worker.acknowledged(count).into_iter().collect();
    assert_eq!(acknowledged, (0..count).map(|number| number.to_string()).collect());
}

fn all_stop(workers: impl IntoIterator<Item = Running>) {
    for worker in workers {
        assert_eq!(worker.stop(), []);
    }
}

#[test]
fn workers_share_the_partitions_and_those_who_stay_take_over() {
    let Some(bench) = OneNode::bench() else { return };
    let first = bench.work_well();
    until(&bench, || shares(&bench) == [16]);
    let second = bench.work_well();
    until(&bench, || shares(&bench) == [8, 8]);
    let third = bench.work_well();
    until(&bench, || {
        let mut shares = shares(&bench);
        shares.sort_unstable();
        shares == [5, 5, 6]
    });
    // A worker that ends frees its partitions at once, and the other workers are notified.
    assert_eq!(second.stop(), []);
    let took = until(&bench, || shares(&bench) == [8, 8]);
    assert_eq!(took, Duration::ZERO, "without a look of their own");
    all_stop([first, third]);
    assert_eq!(shares(&bench), [0; 0]);
}

#[test]
fn a_worker_that_is_not_heard_any_more_has_gone() {
    let Some(bench) = OneNode::bench() else { return };
    owns_all(&bench, "another");
    for number in 0..32 {
        wait(bench.timers().insert(&format!("{number}"), "", SECOND, quick())).unwrap();
    }
    let worker = bench.work_well();
    // After its heartbeat half of the partitions stay its own.
    until(&bench, || owned(&bench).get("another") == Some(&8));
    for _ in 0..30 {
        send_heartbeat(&bench, "another");
        bench.advance(100 * MILLISECOND);
        std::thread::sleep(5 * MILLISECOND);
    }
    assert_eq!(owned(&bench).get("another"), Some(&8));
    let took = until(&bench, || shares(&bench) == [16]);
    assert!((4 * SECOND..8 * SECOND).contains(&took), "{took:?}");
    all_are_acknowledged(&worker, 32);
    all_stop([worker]);
}

#[test]
fn what_a_new_owner_takes_over_is_not_late() {
    let Some(bench) = OneNode::bench() else { return };
    owns_all(&bench, "another");
    let worker = bench.work_well();
    until(&bench, || owned(&bench).get("another") == Some(&8));
    // The worker has loaded the timers of ten seconds from its own half. It takes over the other
    // half within five or six.
    send_heartbeat(&bench, "another");
    for number in 0..32 {
        wait(bench.timers().insert(&format!("{number}"), "", 8 * SECOND, quick())).unwrap();
    }
    let took = until(&bench, || wait(bench.timers().len()) == Ok(0));
    // By the check for timers that are five seconds late they would be found after thirteen.
    assert!((8 * SECOND..12 * SECOND).contains(&took), "{took:?}");
    all_are_acknowledged(&worker, 32);
    all_stop([worker]);
}

#[test]
fn what_an_owner_does_not_deliver_another_takes_on() {
    let Some(bench) = OneNode::bench() else { return };
    let worker = bench.work_well();
    until(&bench, || shares(&bench) == [16]);
    for number in 0..32 {
        wait(bench.timers().insert(&format!("{number}"), "", 2 * SECOND, quick())).unwrap();
    }
    let took = until(&bench, || {
        // Another worker takes back every partition that the worker takes.
        owns_all(&bench, "another");
        wait(bench.timers().len()) == Ok(0)
    });
    assert!(took < 60 * SECOND, "{took:?}");
    all_are_acknowledged(&worker, 32);
    all_stop([worker]);
}

#[test]
fn only_an_owner_asks_for_leases() {
    let Some(bench) = OneNode::bench() else { return };
    let workers = [bench.work_well(), bench.work_well(), bench.work_well()];
    until(&bench, || shares(&bench).len() == 3 && shares(&bench).iter().all(|&share| share > 4));
    // Each lease request reads the record, and so does the end of the lease.
    let calls = || bench.place.server.calls("hget");
    let before = calls();
    for number in 0..200 {
        wait(bench.timers().insert(&format!("{number}"), "", SECOND, quick())).unwrap();
    }
    let scheduled = calls() - before;
    let mut acknowledged = 0;
    until(&bench, || {
        acknowledged += workers.iter().map(|work| work.events.try_iter().count()).sum::<usize>();
        acknowledged == 200
    });
    let delivered = calls() - before - scheduled;
    // A lease and its end for each. Three workers that asked would read 400 more.
    assert!(delivered < 700, "{delivered} reads of records");
    all_stop(workers);
}
