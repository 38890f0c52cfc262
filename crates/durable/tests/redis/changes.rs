//! Stores in Redis that are paused, and timers that are changed, from several processes.

#![allow(clippy::disallowed_methods, reason = "workers are waited for")]

use crate::common::bench::{Bench, SECOND, clock, wait};
use crate::common::process::{Process, all_are_acknowledged_once, ids, quick};
use crate::common::redis::OneNode;
use crate::common::servers::{Cluster, Server};
use futures_util::future::join;
use std::sync::mpsc::channel;
use tourbillon_durable::{Existing, Inserted, TimerState};

#[test]
fn a_paused_partition_grants_no_lease_to_a_worker_that_has_not_noticed() {
    let Some(server) = Server::start(&[]) else { return };
    let process = Process::new(&server);
    wait(process.timers.pause()).unwrap();
    // Without this mark workers do not know.
    assert!(server.say("HDEL {tb:timers} paused").is_some());
    let work = process.work();
    wait(process.timers.insert("id", "", SECOND / 10, quick())).unwrap();
    assert!(work.acknowledged.recv_timeout(2 * SECOND).is_err(), "its partition is paused");
    assert_eq!(wait(process.timers.get("id")).unwrap().map(|timer| timer.attempts), Some(0));
    assert_eq!(work.stop(), [""; 0]);
}

#[test]
fn an_update_that_is_overtaken_is_repeated() {
    let Some(bench) = OneNode::bench() else { return };
    let timers = bench.timers();
    let far = |hours: u32| 3600 * SECOND * hours;
    let id = |number: u32| format!("timer {number}");
    for number in 0..10 {
        wait(timers.insert(&id(number), "", far(9), quick())).unwrap();
    }
    let start = bench.now();
    // Each timer is moved between slices while it is updated, and no two updates have one time.
    let all = (0..2000_u32).map(|turn| {
        let update = quick().existing(Existing::Update);
        let (id, when) = (id(turn % 10), start + far(9) + SECOND * turn);
        async move {
            let updated = timers.insert(&id, "new", when, update);
            let (updated, moved) = join(updated, timers.reset(&id, far(1 + turn % 5))).await;
            assert_eq!((updated, moved), (Ok(Inserted::Updated), Ok(true)));
        }
    });
    wait(futures_util::future::join_all(all));
    let report = wait(timers.check()).unwrap();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!((report.timers, report.keys), (10, 10));
}

#[test]
fn a_cluster_is_paused_and_listed() {
    let Some(cluster) = Cluster::start() else { return };
    let (process, other) = (Process::of_cluster(&cluster), Process::of_cluster(&cluster));
    let work = other.work();
    let timers = &process.timers;
    wait(timers.pause()).unwrap();
    let all = ids(30);
    for id in &all {
        wait(timers.insert(id, &**id, SECOND / 10, quick())).unwrap();
    }
    assert!(work.acknowledged.recv_timeout(2 * SECOND).is_err(), "the store is paused");
    let (mut listed, mut last) = (Vec::new(), None);
    loop {
        let page = wait(timers.list_due(.., last, 7)).unwrap();
        assert!(page.is_sorted_by_key(|timer| (timer.due, timer.id.clone())));
        listed.extend(page.iter().map(|timer| timer.id.clone()));
        let Some(timer) = page.last() else { break };
        last = Some(timer.position());
    }
    listed.sort_unstable();
    assert_eq!(listed, all);
    wait(timers.resume()).unwrap();
    all_are_acknowledged_once(timers, vec![work], all);
}

#[test]
fn a_running_timer_behind_many_others_is_listed() {
    let Some(node) = OneNode::beside(&clock(), 1) else { return };
    let bench = Bench::new(node);
    let timers = bench.timers();
    // A step of the list has as many keys as a page of the only partition, and none of them runs.
    let all: Vec<String> = (0..1000).map(|number| format!("{number}")).collect();
    let all = all.iter().map(|id| timers.insert(id, "", 3600 * SECOND, quick()));
    wait(futures_util::future::try_join_all(all)).unwrap();
    let (send, begun) = channel();
    let running = bench.work(1, move |_| {
        let (gate, opened) = futures_channel::oneshot::channel::<()>();
        send.send(gate).unwrap();
        opened
    });
    let long = quick().lease(86_400 * SECOND);
    wait(timers.insert("running", "", SECOND, long)).unwrap();
    bench.advance(SECOND);
    let gate = begun.recv().unwrap();
    let listed = wait(timers.list_state(TimerState::Running, None, 9)).unwrap();
    assert_eq!(listed.iter().map(|timer| &*timer.id).collect::<Vec<_>>(), ["running"]);
    gate.send(()).unwrap();
    assert_eq!(running.acknowledged(1), ["running"]);
    assert_eq!(running.stop(), []);
}
