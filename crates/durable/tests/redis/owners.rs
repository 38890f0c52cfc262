//! Ownership of the partitions of a store in Redis, which affects nothing but the work.

#![allow(clippy::disallowed_methods, reason = "servers and workers are waited for")]

use crate::common::bench::{Bench, MILLISECOND, Place, Running, SECOND, quick, wait};
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
    // The other workers learn of it by another round.
    let now = bench.now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    bench.place.server.order(&format!("HSET {{tb:timers}} round {now}-{worker}"));
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

/// Lets this many seconds pass, in each of which every worker sends a heartbeat.
fn beat(bench: &Bench<OneNode>, seconds: u64, workers: usize) {
    for _ in 0..seconds {
        bench.advance(SECOND);
        let now = bench.now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        let (sent, all) = (format!("ZCOUNT {WORKERS} {now} +inf"), format!(":{workers}"));
        bench.place.server.wait_for("heartbeats", |server| server.order(&sent).trim() == all);
    }
}

#[test]
fn a_usual_heartbeat_reads_no_list_of_workers_or_partitions() {
    let Some(bench) = OneNode::bench() else { return };
    let workers = [bench.work_well(), bench.work_well(), bench.work_well()];
    until(&bench, || shares(&bench).len() == 3 && shares(&bench).iter().all(|&share| share > 4));
    // Those from which partitions were taken have looked once more.
    beat(&bench, 3, 3);
    let calls = || bench.place.server.calls("hgetall");
    let before = calls();
    beat(&bench, 30, 3);
    assert_eq!(calls() - before, 0);
    // A worker that ends makes each of the others look once.
    let [first, second, third] = workers;
    assert_eq!(third.stop(), []);
    until(&bench, || shares(&bench) == [8, 8]);
    beat(&bench, 10, 2);
    assert_eq!(calls() - before, 3, "one to leave, and one by each of the others");
    all_stop([first, second]);
}

#[test]
fn a_table_of_owners_that_is_lost_is_written_again_within_a_minute() {
    let Some(bench) = OneNode::bench() else { return };
    let worker = bench.work_well();
    until(&bench, || shares(&bench) == [16]);
    bench.place.server.order(&format!("DEL {OWNERS}"));
    wait(bench.timers().insert("id", "", 5 * SECOND, quick())).unwrap();
    beat(&bench, 61, 1);
    assert_eq!(shares(&bench), [16]);
    assert_eq!(worker.acknowledged(1), ["id"]);
    all_stop([worker]);
}

#[test]
fn a_worker_learns_that_the_server_has_lost_an_assignment() {
    let Some(bench) = OneNode::bench() else { return };
    let order = |words: &str| bench.place.server.order(words);
    let now = || bench.now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let worker = bench.work_well();
    until(&bench, || shares(&bench) == [16]);
    let own = owned(&bench).into_keys().next().unwrap();
    beat(&bench, 2, 1);
    // Another worker takes half of the partitions.
    send_heartbeat(&bench, "another");
    for partition in 0..8 {
        order(&format!("HSET {OWNERS} {partition} another"));
    }
    order(&format!("ZADD {WORKERS} {}.5 {own}", now()));
    beat(&bench, 2, 1);
    // The server starts again without these writes, and the other worker has died with it.
    let before = now() - 4000;
    order(&format!("ZREM {WORKERS} another"));
    order(&format!("ZADD {WORKERS} {before} {own}"));
    for partition in 0..8 {
        order(&format!("HSET {OWNERS} {partition} {own}"));
    }
    beat(&bench, 2, 1);
    for number in 0..32 {
        wait(bench.timers().insert(&format!("{number}"), "", 2 * SECOND, quick())).unwrap();
    }
    let took = until(&bench, || wait(bench.timers().len()) == Ok(0));
    // A worker that knew of half of them would find the others when they are five seconds late.
    assert!(took < 5 * SECOND, "{took:?}");
    all_are_acknowledged(&worker, 32);
    all_stop([worker]);
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
fn all_who_stay_share_the_partitions_of_a_dead_worker() {
    let Some(bench) = OneNode::bench() else { return };
    owns_all(&bench, "another");
    let workers = [bench.work_well(), bench.work_well()];
    until(&bench, || shares(&bench).into_iter().min() == Some(5));
    send_heartbeat(&bench, "another");
    let took = until(&bench, || shares(&bench) == [8, 8]);
    assert!(took < 8 * SECOND, "{took:?}");
    all_stop(workers);
}

#[test]
fn a_clock_that_is_set_back_leaves_no_dead_worker_alive() {
    let Some(bench) = OneNode::bench() else { return };
    owns_all(&bench, "another");
    let worker = bench.work_well();
    until(&bench, || owned(&bench).get("another") == Some(&8));
    for _ in 0..40 {
        send_heartbeat(&bench, "another");
        beat(&bench, 1, 1);
    }
    // The worker still takes its assignment for known.
    bench.place.set_clock(-30_000);
    // From then on the other has as much time as each worker.
    let took = until(&bench, || shares(&bench) == [16]);
    assert!(took < 8 * SECOND, "{took:?}");
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
    // Those from which partitions were taken learn of it.
    beat(&bench, 3, 3);
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
    assert!(delivered < 500, "{delivered} reads of records");
    all_stop(workers);
}
