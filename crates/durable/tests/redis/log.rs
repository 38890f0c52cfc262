//! The log of attempts on a cluster, after a failover, and in place of another key.

use crate::common::bench::{Bench, wait};
use crate::common::events::Observed;
use crate::common::process::{Process, quick, runtime};
use crate::common::redis::OneNode;
use crate::common::sentinels::Watched;
use crate::common::servers::Cluster;
use std::future::ready;
use std::time::Duration;
use tourbillon_durable::{
    AttemptLog, DurableError, DurableTimers, Event, LogBounds, Redis, Verdict,
};

const KEY: &str = "{tb:timers}:log";

fn ids(log: &AttemptLog) -> Vec<String> {
    wait(log.latest(None, 9)).unwrap().into_iter().map(|attempt| attempt.id).collect()
}

/// Inserts a timer that is due.
fn insert(timers: &DurableTimers, id: &str) {
    wait(timers.insert(id, "", Duration::ZERO, quick())).unwrap();
}

fn deliver(timers: &DurableTimers, log: &AttemptLog, id: &str) -> Vec<Event> {
    insert(timers, id);
    work(timers, log, id)
}

/// Delivers a timer by a worker with a log. Returns the failures of the log.
fn work(timers: &DurableTimers, log: &AttemptLog, id: &str) -> Vec<Event> {
    let worker = Observed::start(timers.worker().log(log), |_| ready(Verdict::Done));
    while !matches!(worker.next(|| {}), Event::Attempt(attempt) if attempt.id == id) {}
    let mut events = worker.stop();
    events.retain(|event| matches!(event, Event::LogFailed { .. }));
    events
}

#[test]
fn a_log_is_on_one_master_of_a_cluster() {
    let Some(cluster) = Cluster::start() else { return };
    let process = Process::of_cluster(&cluster);
    let log = process.timers.attempt_log(LogBounds::new());
    for id in ["a", "b"] {
        assert_eq!(deliver(&process.timers, &log, id), []);
    }
    assert_eq!(ids(&log), ["b", "a"]);
    assert_eq!(cluster.owner(KEY).order(&format!("XLEN {KEY}")).trim(), ":2");
}

#[test]
fn a_log_goes_on_with_the_new_master() {
    let Some(watched) = Watched::start() else { return };
    let (runtime, urls) = (runtime(), watched.urls());
    let sentinels = urls.iter().map(String::as_str);
    let connected = Redis::connect_sentinel("redis://mymaster/", sentinels, "timers");
    let store = runtime.block_on(connected).unwrap();
    let process = Process::of(store, runtime);
    let log = process.timers.attempt_log(LogBounds::new());
    assert_eq!(deliver(&process.timers, &log, "before"), []);
    watched.wait_until_copied();
    // The old master lives, and refuses.
    watched.fail_over();
    assert_eq!(deliver(&process.timers, &log, "after"), []);
    assert_eq!(ids(&log), ["after", "before"]);
}

#[test]
fn a_key_that_is_no_log_stops_no_timer() {
    let Some(bench) = OneNode::start(&[]).map(Bench::new) else { return };
    let server = &bench.place.server;
    let log = bench.timers().attempt_log(LogBounds::new());
    server.order(&format!("SET {KEY} another"));
    let failures = deliver(bench.timers(), &log, "a");
    let is_told = |event: &Event| matches!(event, Event::LogFailed { lost: 1, error: Some(_) });
    assert!(failures.len() == 1 && is_told(&failures[0]), "{failures:?}");
    assert!(wait(log.latest(None, 9)).is_err());
    server.order(&format!("DEL {KEY}"));
    assert_eq!(deliver(bench.timers(), &log, "b"), []);
    // An entry of another program is left out.
    server.order(&format!("XADD {KEY} * attempt 1970"));
    server.order(&format!("XADD {KEY} * other 1970"));
    assert_eq!(ids(&log), ["b"]);
}

#[test]
fn a_full_memory_stops_no_timer_of_a_log() {
    let Some(bench) = OneNode::start(&[]).map(Bench::new) else { return };
    let (server, timers) = (&bench.place.server, bench.timers());
    for id in ["x", "y"] {
        assert_eq!(deliver(timers, &timers.attempt_log(LogBounds::new()), id), []);
    }
    let log = timers.attempt_log(LogBounds::new().max_attempts(1));
    insert(timers, "a");
    server.order("CONFIG SET maxmemory 1");
    let failures = work(timers, &log, "a");
    let is_full = |event: &Event| {
        matches!(event, Event::LogFailed { lost: 1, error: Some(DurableError::ReadOnly(_)) })
    };
    assert!(matches!(&failures[..], [failed] if is_full(failed)), "{failures:?}");
    assert_eq!(ids(&log), ["y"], "attempts beyond the bounds hold no memory");
    server.order("CONFIG SET maxmemory 0");
    assert_eq!(deliver(timers, &log, "b"), []);
    assert_eq!(ids(&log), ["b"]);
}

#[test]
fn a_log_has_connections_of_its_own() {
    let Some(bench) = OneNode::start(&[]).map(Bench::new) else { return };
    let clients = || {
        let clients = bench.place.server.figure("clients", "connected_clients").unwrap();
        clients.parse::<usize>().unwrap()
    };
    let log = bench.timers().attempt_log(LogBounds::new());
    let before = clients();
    assert_eq!(ids(&log), [""; 0]);
    assert_eq!(clients(), before + 1);
}
