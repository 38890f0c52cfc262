//! Stores in Redis that are paused, and timers that are changed, from several processes.

#![allow(clippy::disallowed_methods, reason = "workers are waited for")]

use crate::common::bench::{Bench, SECOND, clock, wait};
use crate::common::process::{Process, all_are_acknowledged_once, ids, quick};
use crate::common::redis::OneNode;
use crate::common::servers::{Cluster, Server};
use futures_util::future::join;
use std::sync::mpsc::channel;
use tourbillon_durable::{Existing, Finding, Inserted, Label, Options, Outcome, TimerState};

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

/// Returns the numbers of calls of the commands that a change of a timer may need.
fn calls(bench: &Bench<OneNode>) -> Vec<u64> {
    let commands = ["exists", "hget", "hset", "hdel", "zadd", "zrem", "zscore"];
    commands.map(|command| bench.place.server.calls(command)).into()
}

#[test]
fn labels_cost_no_command_until_they_change() {
    let Some(node) = OneNode::beside(&clock(), 1) else { return };
    let bench = Bench::new(node);
    let timers = bench.timers();
    let hour = 3600 * SECOND;
    let change = |options: Options| {
        wait(timers.insert("id", "", SECOND, options)).unwrap();
        let before = calls(&bench);
        let running = bench.work(1, |_| async { Err("no") });
        bench.advance(SECOND);
        assert!(matches!(running.next().outcome, Outcome::Retry { .. }));
        assert_eq!(running.stop(), []);
        wait(timers.reset("id", hour)).unwrap();
        wait(timers.pause_timer("id")).unwrap();
        wait(timers.resume_timer("id")).unwrap();
        wait(timers.run_now("id")).unwrap();
        let after = calls(&bench);
        wait(timers.cancel("id")).unwrap();
        before.iter().zip(after).map(|(before, after)| after - before).collect::<Vec<_>>()
    };
    // The first worker of a store begins the first round of its partitions.
    change(quick());
    let plain = change(quick());
    let labels = ["shop", "eu"].map(|text| Label::new(text).unwrap());
    assert_eq!(change(labels.into_iter().fold(quick(), Options::label)), plain);
    assert_eq!(bench.place.server.order("KEYS {tb:timers:0}:l:*"), "*0\r\n");
}

/// Makes this number of dead letters with two labels. Their ids are numbers.
fn die(bench: &Bench<OneNode>, count: u32, labels: [&Label; 2]) {
    let options = quick().attempts(1).label(labels[0].clone()).label(labels[1].clone());
    let running = bench.work(1, |_| async { Err("no") });
    for number in 0..count {
        wait(bench.timers().insert(&number.to_string(), "", SECOND, options.clone())).unwrap();
        bench.advance(SECOND);
        assert!(matches!(running.next().outcome, Outcome::Dead { .. }));
    }
    assert_eq!(running.stop(), []);
}

#[test]
fn a_letter_is_found_without_reading_others() {
    let Some(node) = OneNode::beside(&clock(), 1) else { return };
    let bench = Bench::new(node);
    let (timers, server) = (bench.timers(), &bench.place.server);
    let [shop, eu, none] = ["shop", "eu", "none"].map(|text| Label::new(text).unwrap());
    die(&bench, 40, [&shop, &eu]);
    let commands = ["zrevrangebylex", "zrangebylex", "hget", "zrevrangebyscore", "zrangebyscore"];
    let calls = || commands.map(|command| server.calls(command));
    let before = calls();
    assert_eq!(wait(timers.newest_dead_letters_of("none", None, 9)), Ok(Vec::new()));
    assert_eq!(wait(timers.newest_dead_letters_with_label(&none, None, 9)), Ok(Vec::new()));
    let unknown = calls();
    assert_eq!(unknown, [before[0] + 2, before[1], before[2], before[3], before[4]]);
    let found = wait(timers.newest_dead_letters_of("0", None, 9)).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(wait(timers.dead_letters_with_label(&shop, None, 2)).unwrap().len(), 2);
    let read = [unknown[0] + 1, unknown[1] + 1, unknown[2] + 3, unknown[3], unknown[4]];
    assert_eq!(calls(), read);
    // The letters have an id and two labels each.
    let sizes =
        || ["dead", "names"].map(|key| server.order(&format!("ZCARD {{tb:timers:0}}:{key}")));
    assert_eq!(sizes(), [":40\r\n", ":120\r\n"]);
    assert_eq!(wait(timers.delete_dead_letter(found[0].number)), Ok(true));
    assert_eq!(sizes(), [":39\r\n", ":117\r\n"]);
    assert_eq!(wait(timers.redrive_label(&shop, None, 39)).unwrap().redriven, 39);
    assert_eq!(sizes(), [":0\r\n", ":0\r\n"]);
}

#[test]
fn a_damaged_index_of_labels_is_repaired() {
    let Some(node) = OneNode::beside(&clock(), 1) else { return };
    let bench = Bench::new(node);
    let timers = bench.timers();
    let shop = Label::new("shop").unwrap();
    for id in ["a", "b"] {
        wait(timers.insert(id, "", 3600 * SECOND, quick().label(shop.clone()))).unwrap();
    }
    assert!(bench.place.server.say("ZREM {tb:timers:0}:l:shop a").is_some());
    let report = wait(timers.check()).unwrap();
    assert_eq!(report.findings, [Finding::Unindexed { id: "a".to_owned() }]);
    wait(timers.repair()).unwrap();
    assert!(wait(timers.check()).unwrap().is_sound());
    assert_eq!(wait(timers.label_len(&shop)), Ok(2));
    // An id without a timer is not listed.
    assert!(bench.place.server.say("ZADD {tb:timers:0}:l:shop 0 aa").is_some());
    let listed = wait(timers.list_label(&shop, None, 9)).unwrap();
    assert_eq!(listed.iter().map(|timer| &*timer.id).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(wait(timers.list_label(&shop, Some("a"), 1)).unwrap()[0].id, "b");
}

#[test]
fn a_cluster_is_paused_and_listed() {
    let Some(cluster) = Cluster::start() else { return };
    let (process, other) = (Process::of_cluster(&cluster), Process::of_cluster(&cluster));
    let work = other.work();
    let timers = &process.timers;
    wait(timers.pause()).unwrap();
    let all = ids(30);
    let shop = Label::new("shop").unwrap();
    for id in &all {
        let options = quick().label(shop.clone());
        wait(timers.insert(id, &**id, SECOND / 10, options)).unwrap();
    }
    assert!(work.acknowledged.recv_timeout(2 * SECOND).is_err(), "the store is paused");
    let mut labelled: Vec<String> = Vec::new();
    loop {
        let last = labelled.last().map(String::as_str);
        let page = wait(timers.list_label(&shop, last, 7)).unwrap();
        if page.is_empty() {
            break;
        }
        labelled.extend(page.into_iter().map(|timer| timer.id));
    }
    let mut sorted = all.clone();
    sorted.sort_unstable();
    assert_eq!(labelled, sorted);
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
    assert_eq!(wait(timers.label_len(&shop)), Ok(0));
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
