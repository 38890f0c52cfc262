//! Durable timers on a Redis cluster that changes meanwhile.

#![allow(clippy::disallowed_methods, reason = "servers and workers are waited for")]

use crate::common::bench::{SECOND, wait};
use crate::common::process::{
    Process, Seen, Watch, Work, all_are_acknowledged_once, ids, lateness, quick,
};
use crate::common::servers::{Cluster, Server};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};
use tourbillon_durable::{Cancelled, DurableError, Existing};

const ALWAYS: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// Replicas take over only on request.
const RETURNING: [&str; 6] =
    [ALWAYS[0], ALWAYS[1], ALWAYS[2], ALWAYS[3], "--cluster-replica-no-failover", "yes"];

#[test]
fn a_timer_alone_in_its_slice_is_not_lost_while_its_slot_moves() {
    let Some(cluster) = Cluster::start() else { return };
    let process = Process::of_cluster(&cluster);
    let timers = process.timers.clone();
    // From one partition each, so that all its keys are there before its slot moves.
    for id in ["far", "further", "soon"] {
        wait(timers.insert(id, "payload", 86_400 * SECOND, quick())).unwrap();
        assert_eq!(wait(timers.reset(id, 2 * 86_400 * SECOND)), Ok(true));
    }
    assert_eq!(wait(timers.reset("soon", 2 * SECOND)), Ok(true));
    let moves = (0..6).map(|partition| cluster.begin_move(&format!("{{tb:timers:{partition}}}")));
    let moves: Vec<_> = moves.collect();
    let work = process.work();
    assert_eq!(wait(timers.cancel("far")), Ok(Cancelled::Removed), "all its keys are there");
    // Its new slice cannot be created before the move of the slot has ended.
    let moved = {
        let timers = timers.clone();
        std::thread::spawn(move || wait(timers.reset("further", 3 * SECOND)))
    };
    std::thread::sleep(3 * SECOND);
    moves.into_iter().for_each(crate::common::servers::Move::give_up);
    assert_eq!(moved.join().unwrap(), Ok(true));
    let acknowledged = BTreeSet::from([work.next(), work.next()]);
    assert_eq!(acknowledged, BTreeSet::from(["further".to_owned(), "soon".to_owned()]));
    assert_eq!(work.stop(), [""; 0]);
    assert_eq!(wait(timers.len()), Ok(0));
}

/// Checks that two workers deliver due timers while the cluster changes.
fn timers_are_due_while(cluster: &Cluster, change: impl Fn()) {
    timers_are_due_after(cluster, SECOND / 5, change);
}

fn timers_are_due_after(cluster: &Cluster, first: Duration, change: impl Fn()) {
    let processes = [Process::of_cluster(cluster), Process::of_cluster(cluster)];
    let work: Vec<Work> = processes.iter().map(Process::work).collect();
    let all = ids(600);
    let timers = processes[0].timers.clone();
    let schedule = all.iter().enumerate().map(|(place, id)| {
        let delay = first + Duration::from_millis(5 * place as u64);
        timers.insert(id, "payload", delay, quick())
    });
    wait(futures_util::future::try_join_all(schedule)).unwrap();
    change();
    all_are_acknowledged_once(&timers, work, all);
}

#[test]
fn a_partition_that_cannot_be_read_stops_no_other() {
    let Some(cluster) = Cluster::start() else { return };
    let process = Process::of_cluster(&cluster);
    let timers = process.timers.clone();
    let all = ids(60);
    let schedule = all.iter().map(|id| timers.insert(id, "", SECOND / 2, quick()));
    wait(futures_util::future::try_join_all(schedule)).unwrap();
    let held = "{tb:timers:0}:counters";
    let there = cluster.owner(held).order(&format!("HGET {held} timers"));
    let there: usize = there.lines().nth(1).unwrap().parse().unwrap();
    assert!((1..all.len()).contains(&there), "{there}");
    // One of its keys has moved, and the others do not follow for a while.
    cluster.owner(held).order("DEL {tb:timers:0}:answers");
    let moving = cluster.begin_move(held);
    let work = process.work();
    let others: BTreeSet<String> = (there..all.len()).map(|_| work.next()).collect();
    assert_eq!(others.len(), all.len() - there);
    moving.give_up();
    let rest: BTreeSet<String> = (0..there).map(|_| work.next()).collect();
    assert_eq!(&others | &rest, all.into_iter().collect());
    assert_eq!(work.stop(), [""; 0]);
}

/// Starts a cluster whose masters continue without each other.
fn independent() -> Option<Cluster> {
    let cluster = Cluster::start()?;
    for node in &cluster.nodes {
        node.order("CONFIG SET cluster-require-full-coverage no");
    }
    Some(cluster)
}

/// Returns a master without the subscription, whose silence would make workers load again, and
/// without the list of workers.
fn one_of_many(cluster: &Cluster) -> &Server {
    let heard = cluster.owner("{tb:timers}").port;
    cluster.nodes[1..].iter().find(|node| node.port != heard).unwrap()
}

#[test]
fn a_master_that_does_not_answer_takes_no_places() {
    let Some(cluster) = independent() else { return };
    let process = Process::of_cluster(&cluster);
    let timers = &process.timers;
    // With a concurrency of one, deliveries begin one after another.
    let work = process.work_at(1);
    wait(timers.insert("the first page has come", "", SECOND / 100, quick())).unwrap();
    work.next();
    let silent = one_of_many(&cluster);
    let all = ids(400);
    let schedule = all.iter().map(|id| timers.insert(id, "", 3600 * SECOND, quick()));
    wait(futures_util::future::try_join_all(schedule)).unwrap();
    let its = "EVAL \"local found = '' for _, key in ipairs(redis.call('KEYS', '*:b:*')) do \
               found = found .. table.concat(redis.call('HKEYS', key), ',') .. ',' end \
               return found\" 0";
    let its = silent.order(its);
    let (its, others): (Vec<&String>, Vec<&String>) =
        all.iter().partition(|id| its.contains(id.as_str()));
    assert!(its.len() > 40 && others.len() > 40, "{} and {}", its.len(), others.len());
    // Its timers are due before all others.
    let due = |ids: &[&String], delay: Duration| {
        let moves = ids.iter().map(|id| timers.reset(id, delay));
        let moved = wait(futures_util::future::join_all(moves));
        assert!(moved.iter().all(|moved| *moved == Ok(true)));
    };
    due(&others, SECOND + SECOND / 2);
    due(&its, SECOND);
    silent.pause();
    let next = |count: usize| -> BTreeSet<String> { (0..count).map(|_| work.next()).collect() };
    let acknowledged = next(others.len());
    assert_eq!(acknowledged, others.into_iter().cloned().collect());
    silent.go_on();
    let acknowledged = next(its.len());
    assert_eq!(acknowledged, its.into_iter().cloned().collect());
    assert_eq!(work.stop(), [""; 0], "each once");
}

fn ids_of(come: &[Seen]) -> BTreeSet<String> {
    come.iter().map(|seen| seen.id.clone()).collect()
}

/// Returns for each timer of `ids` whether a node has it.
fn has(node: &Server, count: usize) -> Vec<bool> {
    let its = format!(
        "EVAL \"local has = {{}} for number = 1, {count} do has[number] = '-' end \
         for _, key in ipairs(redis.call('KEYS', '*:b:*')) do \
         for _, id in ipairs(redis.call('HKEYS', key)) do has[id:sub(7) + 1] = 'x' end end \
         return table.concat(has)\" 0"
    );
    let has: Vec<bool> =
        node.order(&its).lines().nth(1).unwrap().bytes().map(|b| b == b'x').collect();
    assert_eq!(has.len(), count);
    has
}

/// Makes another process move a stream of timers, 200 per second, ahead while a master is
/// unresponsive. The timers of the other masters must be delivered meanwhile, and on time once the
/// silence was detected. All others must be delivered afterwards.
fn a_stream_goes_on_while_silent(cluster: &Cluster, silent: &Server, lasts: Duration) {
    let (step, ahead) = (SECOND / 200, SECOND / 4);
    for node in &cluster.nodes {
        // No other worker takes it over meanwhile.
        node.order("CONFIG SET cluster-node-timeout 120000");
    }
    let (process, other) = (Process::of_cluster(cluster), Process::of_cluster(cluster));
    let all = ids((lasts.as_millis() / step.as_millis()).try_into().unwrap());
    let rest = all.iter().map(|id| other.timers.insert(id, "", 86_400 * SECOND, quick()));
    wait(futures_util::future::try_join_all(rest)).unwrap();
    let its = has(silent, all.len());
    let others = || all.iter().zip(&its).filter(|(_, its)| !**its).map(|(id, _)| id.clone());
    assert!((all.len() / 4..all.len()).contains(&others().count()), "{}", others().count());

    let watch = Watch::over(&process);
    std::thread::sleep(2 * SECOND);

    silent.pause();
    let begun = SystemTime::now();
    let moves = all.iter().enumerate().map(|(place, id)| {
        let (timers, id) = (other.timers.clone(), id.clone());
        other.runtime.spawn(async move {
            tokio::time::sleep(step * u32::try_from(place).unwrap()).await;
            timers.reset(&id, ahead).await
        })
    });
    let moves: Vec<_> = moves.collect();
    std::thread::sleep(lasts + ahead + 2 * SECOND);
    let mut come: Vec<Seen> = watch.delivered.try_iter().collect();
    let missing = others().collect::<BTreeSet<_>>().difference(&ids_of(&come)).count();
    let (count, p99, worst) = lateness(&come, begun + 3 * SECOND);
    assert_eq!(missing, 0, "of {}", others().count());
    assert!(count > all.len() / 4 && p99 < SECOND, "{count}: p99 {p99:?}, at most {worst:?}");

    silent.go_on();
    let moved = other.runtime.block_on(futures_util::future::try_join_all(moves)).unwrap();
    let of_others = moved.iter().zip(&its).filter(|(_, its)| !**its);
    assert!(of_others.clone().all(|(moved, _)| *moved == Ok(true)), "{moved:?}");
    for (id, _) in all.iter().zip(&its).filter(|(_, its)| **its) {
        // A call without a reply may have moved the timer, which may then be delivered.
        let moved = wait(other.timers.reset(id, ahead));
        assert!(matches!(moved, Ok(_) | Err(DurableError::Running)), "{moved:?}");
    }
    while wait(other.timers.len()) != Ok(0) {
        come.push(watch.delivered.recv_timeout(30 * SECOND).expect("all come"));
    }
    come.extend(watch.stop());
    assert_eq!((come.len(), ids_of(&come)), (all.len(), all.into_iter().collect()), "each once");
}

#[test]
fn a_master_that_does_not_answer_stops_no_other() {
    let Some(cluster) = independent() else { return };
    a_stream_goes_on_while_silent(&cluster, one_of_many(&cluster), 30 * SECOND);
}

#[test]
fn the_master_of_the_subscription_stops_no_other() {
    let Some(cluster) = independent() else { return };
    a_stream_goes_on_while_silent(&cluster, &cluster.nodes[0], 30 * SECOND);
}

#[test]
fn the_master_of_the_workers_stops_no_other() {
    let Some(cluster) = independent() else { return };
    a_stream_goes_on_while_silent(&cluster, cluster.owner("{tb:timers}"), 30 * SECOND);
}

/// All nodes that were named are replaced, and the cluster itself lists the others.
#[test]
fn a_cluster_whose_named_node_has_gone_is_not_lost() {
    let Some(cluster) = Cluster::with_replicas(&ALWAYS) else { return };
    let named = || Process::of_nodes(vec![cluster.nodes[0].url()]);
    let (process, other) = (named(), named());
    let watch = Watch::over(&process);
    wait(other.timers.insert("before", "", SECOND / 10, quick())).unwrap();
    assert_eq!(watch.delivered.recv_timeout(60 * SECOND).unwrap().id, "before");
    cluster.wait_until_copied("{tb:timers:0}");
    cluster.nodes[0].kill();
    cluster.nodes[3].wait_for("it takes over", |node| {
        node.figure("replication", "role").as_deref() == Some("master")
    });
    std::thread::sleep(3 * SECOND);
    let (all, begun) = (ids(400), SystemTime::now());
    for id in &all {
        // Calls without a reply are repeated.
        let options = quick().existing(Existing::Keep);
        while wait(other.timers.insert(id, "", SECOND, options.clone())).is_err() {}
        std::thread::sleep(SECOND / 20);
    }
    std::thread::sleep(4 * SECOND);
    let come: Vec<Seen> = watch.delivered.try_iter().collect();
    let (_, p99, worst) = lateness(&come, begun);
    assert_eq!((come.len(), ids_of(&come)), (all.len(), all.into_iter().collect()));
    assert!(p99 < SECOND * 3 / 2, "p99 {p99:?}, at most {worst:?}");
    assert_eq!(watch.stop(), []);
}

#[test]
fn nothing_of_a_store_goes_on_when_it_has_gone() {
    let Some(cluster) = independent() else { return };
    let process = Process::of_cluster(&cluster);
    let work = process.work();
    one_of_many(&cluster).pause();
    // Everything is loaded again then.
    cluster.nodes[0].order("CLIENT KILL TYPE pubsub");
    // A caller waits longer than the store takes to find the unreadable partitions.
    let schedule = ids(60);
    let schedule = schedule.iter().map(|id| process.timers.insert(id, "", 3600 * SECOND, quick()));
    let scheduled = wait(futures_util::future::join_all(schedule));
    assert!(scheduled.iter().any(Result::is_err), "{scheduled:?}");
    assert_eq!(work.stop(), [""; 0]);
    let Process { timers, runtime } = process;
    drop(timers);
    let tasks = || runtime.handle().metrics().num_alive_tasks();
    cluster.nodes[0].wait_for("the end of all tasks", |_| tasks() == 0);
}

#[test]
fn slots_of_a_cluster_move_under_the_timers() {
    let Some(cluster) = Cluster::start() else { return };
    timers_are_due_while(&cluster, || {
        for partition in 0..6 {
            cluster.move_slot(&format!("{{tb:timers:{partition}}}"));
        }
    });
}

#[test]
fn a_node_that_says_nothing_is_passed_over() {
    let Some(cluster) = Cluster::start() else { return };
    // Connections to it stay open without replies.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("redis://{}/", silent.local_addr().unwrap());
    let urls = [silent].into_iter().chain(cluster.nodes.iter().map(Server::url));
    let process = Process::of_nodes(urls.collect());
    assert_eq!(wait(process.timers.len()), Ok(0));
}

#[test]
fn replicas_take_over_under_the_timers() {
    let Some(cluster) = Cluster::with_replicas(&ALWAYS) else { return };
    timers_are_due_while(&cluster, || {
        // These partitions are on the three masters.
        for partition in [0, 1, 2, 0] {
            cluster.fail_over(&format!("{{tb:timers:{partition}}}"));
        }
    });
}

#[test]
fn an_elected_replica_goes_on_for_a_dead_master() {
    let Some(cluster) = Cluster::with_replicas(&ALWAYS) else { return };
    timers_are_due_after(&cluster, SECOND, || {
        // Nothing has been delivered yet. Data that the replica lacks would be lost with its
        // master.
        for key in ["{tb:timers:0}", "{tb:timers:1}", "{tb:timers:2}"] {
            cluster.wait_until_copied(key);
        }
        // The master never returns, and the others elect its replica after a timeout.
        cluster.owner("{tb:timers:0}").kill();
    });
}

/// A master that was away. Calls that connect to it again at the same time could wait forever.
#[test]
fn a_master_comes_back_under_the_timers() {
    let Some(cluster) = Cluster::with_replicas(&RETURNING) else { return };
    timers_are_due_while(&cluster, || {
        for partition in [0, 1, 2] {
            let master = cluster.owner(&format!("{{tb:timers:{partition}}}"));
            master.kill();
            std::thread::sleep(SECOND / 2);
            master.resume();
            cluster.settle();
        }
    });
}
