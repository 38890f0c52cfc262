//! Durable timers on Redis servers that are killed, restarted, emptied of scripts, locked and
//! read-only, and between several processes' worth of connections; in real time where it matters.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "servers and workers are waited for")]

mod common;

use common::durable::{Bench, SECOND, wait};
use common::redis::{OneNode, runtime};
use common::servers::{Cluster, Server};
use futures_channel::oneshot;
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use tokio::runtime::Runtime;
use tourbillon::durable::{
    Backoff, DurableError, DurableTimers, Options, Outcome, Redis, RedisOptions, Scheduled,
};
use tourbillon::future::Timer;
use tourbillon::{Builder, Inline};

const ALWAYS: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// Replicas take over only when they are told.
const RETURNING: [&str; 6] =
    [ALWAYS[0], ALWAYS[1], ALWAYS[2], ALWAYS[3], "--cluster-replica-no-failover", "yes"];

fn quick() -> Options {
    Options::new().backoff(Backoff::new(SECOND / 10, SECOND)).attempts(5)
}

/// One process's worth of a store in real time.
struct Process {
    timers: DurableTimers,
    // After the timers: their connections run in it.
    _runtime: Runtime,
}

/// A worker of it: what it has acknowledged.
struct Work {
    acknowledged: Receiver<String>,
    end: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), DurableError>>,
}

impl Process {
    fn new(server: &Server) -> Self {
        let runtime = runtime();
        let store = runtime.block_on(Redis::connect(&server.url(), RedisOptions::new())).unwrap();
        Self::of(store, runtime)
    }

    fn of_cluster(cluster: &Cluster) -> Self {
        let runtime = runtime();
        let urls: Vec<String> = cluster.nodes.iter().map(Server::url).collect();
        let options = RedisOptions::new().partitions(6);
        let urls = urls.iter().map(String::as_str);
        let store = runtime.block_on(Redis::connect_cluster(urls, options)).unwrap();
        Self::of(store, runtime)
    }

    fn of(store: Redis, runtime: Runtime) -> Self {
        let timer = Timer::spawn(Builder::new().driver().executor(Inline)).unwrap();
        Self { timers: DurableTimers::new(store, &timer), _runtime: runtime }
    }

    fn work(&self) -> Work {
        let (send, acknowledged) = channel();
        let (end, ends) = oneshot::channel::<()>();
        let worker = self.timers.worker().until(async move {
            let _ = ends.await;
        });
        let worker = worker.observe(move |event| {
            assert!(!matches!(event.outcome, Outcome::Dead { .. }), "{event:?}");
            if event.outcome == Outcome::Acknowledged {
                send.send(event.id.clone()).unwrap();
            }
        });
        let run = worker.run(|delivery| async move {
            let early = SystemTime::now() < delivery.planned;
            if early { Err("early") } else { Ok(()) }
        });
        Work { acknowledged, end, thread: std::thread::spawn(move || wait(run)) }
    }
}

impl Work {
    fn next(&self) -> String {
        self.acknowledged.recv_timeout(60 * SECOND).expect("an attempt ends")
    }

    fn stop(self) -> Vec<String> {
        drop(self.end);
        assert_eq!(self.thread.join().unwrap(), Ok(()));
        self.acknowledged.iter().collect()
    }
}

/// Waits until nothing is left, and ends the workers.
fn all_are_acknowledged_once(timers: &DurableTimers, work: Vec<Work>, all: Vec<String>) {
    let begun = SystemTime::now();
    while wait(timers.len()) != Ok(0) {
        assert!(begun.elapsed().unwrap() < 60 * SECOND);
        std::thread::sleep(SECOND / 20);
    }
    let acknowledged: Vec<String> = work.into_iter().flat_map(Work::stop).collect();
    assert_eq!(acknowledged.len(), all.len(), "each once");
    assert_eq!(acknowledged.into_iter().collect::<BTreeSet<_>>(), all.into_iter().collect());
}

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("timer {number:04}")).collect()
}

#[test]
fn what_was_acknowledged_survives_a_kill_of_the_server() {
    let Some(server) = Server::start(&ALWAYS) else { return };
    let process = Process::new(&server);
    let work = process.work();
    let all = ids(300);
    for (some, part) in all.chunks(100).enumerate() {
        // Each hundred falls due while the server is dead, or just after.
        let schedule = part.iter().map(|id| {
            let delay = Duration::from_millis(300 + 10 * some as u64);
            process.timers.schedule(id, "", delay, quick())
        });
        let scheduled = wait(futures_util::future::join_all(schedule));
        assert!(scheduled.iter().all(|scheduled| *scheduled == Ok(Scheduled::New)));
        server.kill();
        std::thread::sleep(Duration::from_millis(400));
        server.resume();
    }
    let acknowledged: Vec<String> = (0..all.len()).map(|_| work.next()).collect();
    let distinct: BTreeSet<&String> = acknowledged.iter().collect();
    assert_eq!(distinct.len(), all.len(), "each once");
    assert_eq!(work.stop(), [""; 0]);
    assert_eq!(wait(process.timers.len()), Ok(0));
}

#[test]
fn a_call_whose_answer_is_lost_is_done_once() {
    let Some(server) = Server::start(&ALWAYS) else { return };
    let process = Process::new(&server);
    let work = process.work();
    let all = ids(2000);
    let caller = {
        let (timers, all) = (process.timers.clone(), all.clone());
        std::thread::spawn(move || {
            for some in all.chunks(20) {
                let delay = Duration::from_millis(20);
                let schedule = some.iter().map(|id| timers.schedule(id, "", delay, quick()));
                let scheduled = wait(futures_util::future::join_all(schedule));
                // Refused would be one that was done and asked for again.
                assert!(scheduled.iter().all(|scheduled| *scheduled == Ok(Scheduled::New)));
            }
        })
    };
    for _ in 0..20 {
        // Connections go while calls are on their way; now and then the server goes too.
        std::thread::sleep(SECOND / 50);
        assert!(server.say("CLIENT KILL TYPE normal").is_some());
    }
    server.kill();
    server.resume();
    caller.join().unwrap();
    let acknowledged: Vec<String> = (0..all.len()).map(|_| work.next()).collect();
    let distinct: BTreeSet<&String> = acknowledged.iter().collect();
    assert_eq!(distinct.len(), all.len(), "each once");
    assert_eq!(work.stop(), [""; 0]);
    assert_eq!(wait(process.timers.len()), Ok(0));
}

/// Two workers deliver what is due while the cluster changes.
fn timers_are_due_while(cluster: &Cluster, change: impl Fn()) {
    let processes = [Process::of_cluster(cluster), Process::of_cluster(cluster)];
    let work: Vec<Work> = processes.iter().map(Process::work).collect();
    let all = ids(600);
    let timers = processes[0].timers.clone();
    let schedule = all.iter().enumerate().map(|(place, id)| {
        let delay = Duration::from_millis(200 + 5 * place as u64);
        timers.schedule(id, "payload", delay, quick())
    });
    wait(futures_util::future::try_join_all(schedule)).unwrap();
    change();
    all_are_acknowledged_once(&timers, work, all);
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
fn replicas_take_over_under_the_timers() {
    let Some(cluster) = Cluster::with_replicas(&ALWAYS) else { return };
    timers_are_due_while(&cluster, || {
        // These partitions lie on the three masters.
        for partition in [0, 1, 2, 0] {
            cluster.fail_over(&format!("{{tb:timers:{partition}}}"));
        }
    });
}

/// A master that was away: calls that connect to it anew at the same time could wait for ever.
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

#[test]
fn a_timer_that_another_process_schedules_is_not_late() {
    let Some(server) = Server::start(&[]) else { return };
    let (here, there) = (Process::new(&server), Process::new(&server));
    let work = here.work();
    // By then its frontier lies ten seconds ahead.
    std::thread::sleep(SECOND / 2);
    wait(there.timers.schedule("far", "", 3600 * SECOND, quick())).unwrap();
    for number in 0..5 {
        let begun = SystemTime::now();
        wait(there.timers.schedule("near", "", SECOND / 5, quick())).unwrap();
        assert_eq!(work.next(), "near");
        let took = begun.elapsed().unwrap();
        assert!((SECOND / 5..2 * SECOND).contains(&took), "{number}: {took:?}");
    }
    // What was far is told when it comes near.
    assert_eq!(wait(there.timers.reschedule("far", SECOND / 5)), Ok(true));
    assert_eq!(work.next(), "far");
    // The subscription is broken, and made again.
    assert!(server.say("CLIENT KILL TYPE pubsub").is_some());
    wait(there.timers.schedule("unheard", "", SECOND / 10, quick())).unwrap();
    assert_eq!(work.next(), "unheard");
    // A cancel is obeyed though the key stays in the wheel.
    wait(there.timers.schedule("cancelled", "", SECOND / 2, quick())).unwrap();
    assert_eq!(wait(there.timers.cancel("cancelled")), Ok(true));
    std::thread::sleep(SECOND);
    assert_eq!(work.stop(), [""; 0]);
}

#[test]
fn workers_of_several_processes_share_the_work() {
    let Some(server) = Server::start(&[]) else { return };
    let processes = [Process::new(&server), Process::new(&server), Process::new(&server)];
    let work: Vec<Work> = processes.iter().map(Process::work).collect();
    let all = ids(1000);
    let schedule = all.iter().map(|id| processes[0].timers.schedule(id, "", SECOND, quick()));
    wait(futures_util::future::try_join_all(schedule)).unwrap();
    all_are_acknowledged_once(&processes[0].timers, work, all);
}

#[test]
fn a_worker_at_rest_asks_little() {
    let Some(server) = Server::start(&[]) else { return };
    let process = Process::new(&server);
    let schedule = |id: &String| {
        let (timers, id) = (process.timers.clone(), id.clone());
        async move { timers.schedule(&id, "", 86_400 * SECOND, Options::new()).await }
    };
    wait(futures_util::future::try_join_all(ids(500).iter().map(schedule))).unwrap();
    let work = process.work();
    std::thread::sleep(SECOND);
    let count = || -> u64 {
        let stats = server.say("INFO stats").unwrap();
        let line = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
        line.unwrap().parse().unwrap()
    };
    let before = count();
    std::thread::sleep(5 * SECOND);
    let commands = count() - before;
    assert!(commands <= 100, "{commands} commands in five seconds");
    assert_eq!(work.stop(), [""; 0]);
}

#[test]
fn scripts_that_redis_forgot_are_loaded_again() {
    let Some(place) = OneNode::start(&[]) else { return };
    let bench = Bench::new(place);
    let running = bench.work_well();
    wait(bench.timers().schedule("id", "", SECOND, quick())).unwrap();
    assert!(bench.place.server.say("SCRIPT FLUSH").is_some());
    assert_eq!(wait(bench.timers().reschedule("id", 2 * SECOND)), Ok(true));
    assert!(bench.place.server.say("SCRIPT FLUSH").is_some());
    bench.advance(2 * SECOND);
    assert_eq!(running.acknowledged(1), ["id"]);
    assert_eq!(running.stop(), []);
}

#[test]
fn a_store_that_cannot_be_written_is_told_apart() {
    let Some(place) = OneNode::start(&[]) else { return };
    let bench = Bench::new(place);
    let timers = bench.timers();
    let server = &bench.place.server;
    wait(timers.schedule("id", "", SECOND, quick())).unwrap();

    // A replica may be read.
    assert!(server.say("REPLICAOF 127.0.0.1 1").is_some());
    let refused = wait(timers.schedule("another", vec![7], SECOND, quick())).unwrap_err();
    assert!(matches!(refused.reason, DurableError::ReadOnly(_)), "{refused:?}");
    assert_eq!(refused.payload, [7]);
    assert!(matches!(wait(timers.cancel("id")), Err(DurableError::ReadOnly(_))));
    assert!(wait(timers.get("id")).unwrap().is_some());
    assert!(server.say("REPLICAOF NO ONE").is_some());

    // Its memory is full: nothing is half done.
    assert!(server.say("CONFIG SET maxmemory 1").is_some());
    let refused = wait(timers.schedule("another", "", SECOND, quick())).unwrap_err();
    assert!(matches!(refused.reason, DurableError::ReadOnly(_)), "{refused:?}");
    assert!(server.say("CONFIG SET maxmemory 0").is_some());
    assert_eq!(wait(timers.len()), Ok(1));
}

#[test]
fn a_store_that_cannot_be_read_is_told_apart() {
    let Some(place) = OneNode::start(&[]) else { return };
    let bench = Bench::new(place);
    let timers = bench.timers();
    let server = &bench.place.server;
    wait(timers.schedule("id", "", SECOND, quick())).unwrap();

    // What is no record.
    let wrong = "EVAL \"for _, key in ipairs(redis.call('KEYS', '*:b:*')) do \
                 redis.call('HSET', key, 'id', 'nonsense') end\" 0";
    assert!(server.say(wrong).is_some());
    assert!(matches!(wait(timers.get("id")), Err(DurableError::Corrupt(_))));
    assert!(wait(timers.cancel("id")).is_err());

    // Another layout.
    assert!(server.say("HSET {tb:timers} layout 9").is_some());
    let format = DurableError::Format { found: 9, known: 1 };
    assert_eq!(bench.place.try_open().unwrap_err(), format);

    server.kill();
    let gone = wait(timers.schedule("another", "", SECOND, quick())).unwrap_err();
    assert!(matches!(gone.reason, DurableError::Unreachable(_)), "{gone:?}");
    let gone = bench.place.try_open().unwrap_err();
    assert!(matches!(gone, DurableError::Unreachable(_)), "{gone:?}");
}

#[test]
fn a_wrong_password_is_denied() {
    let Some(server) = Server::start(&["--requirepass", "right"]) else { return };
    let runtime = runtime();
    let connect = |user: &str| {
        let url = format!("redis://{user}127.0.0.1:{}/", server.port);
        runtime.block_on(Redis::connect(&url, RedisOptions::new()))
    };
    for user in ["", ":wrong@"] {
        let error = connect(user).unwrap_err();
        assert!(matches!(error, DurableError::Denied(_)), "{error:?}");
    }
    assert!(connect(":right@").is_ok());
}

#[test]
fn wrong_options_are_refused() {
    let runtime = runtime();
    let connect = |options| runtime.block_on(Redis::connect("redis://127.0.0.1:1/", options));
    let unreachable = connect(RedisOptions::new()).unwrap_err();
    assert!(matches!(unreachable, DurableError::Unreachable(_)), "{unreachable:?}");
    let long = "n".repeat(65);
    for name in ["", "{tag}", &long] {
        let error = connect(RedisOptions::new().name(name)).unwrap_err();
        assert!(matches!(error, DurableError::Option(_)), "{error:?}");
    }
    for partitions in [0, 1025] {
        let error = connect(RedisOptions::new().partitions(partitions)).unwrap_err();
        assert!(matches!(error, DurableError::Option(_)), "{error:?}");
    }
    // Not within a runtime.
    let outside = pollster::block_on(Redis::connect("redis://127.0.0.1:1/", RedisOptions::new()));
    assert!(matches!(outside.unwrap_err(), DurableError::Option(_)));
    let wrong = runtime.block_on(Redis::connect("nonsense", RedisOptions::new())).unwrap_err();
    assert!(matches!(wrong, DurableError::Option(_)), "{wrong:?}");
}
