//! Permissions, addresses and eviction policies of a store in Redis.

#![allow(clippy::disallowed_methods, reason = "servers and workers are waited for")]

use crate::common::bench::{SECOND, attempts, wait};
use crate::common::process::{PATIENCE, Process, quick, runtime};
use crate::common::servers::{Cluster, Server};
use tourbillon_durable::{
    Cancelled, Credentials, DurableError, DurableTimers, Options, Outcome, Redis, RedisOptions,
};

/// The permissions on one node, as in the guide.
const RIGHTS: &str = "~{tb:timers}* ~{tb:timers:* &tb:timers &tb:timers:* +@scripting \
                      +@connection +@hash +@sortedset +time +publish +subscribe +persist +exists \
                      +info";

/// The additional permission on a cluster.
const ON_A_CLUSTER: &str = "+cluster|slots";

/// Options of a process whose server replies in the end, however much else the machine does.
fn patient() -> RedisOptions {
    RedisOptions::new("timers").call_timeout(PATIENCE)
}

#[test]
fn a_wrong_password_is_denied() {
    let Some(server) = Server::start(&["--requirepass", "right"]) else { return };
    let runtime = runtime();
    let connect = |user: &str| {
        let url = format!("redis://{user}127.0.0.1:{}/", server.port);
        runtime.block_on(Redis::connect(&url, patient()))
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
    let unreachable = connect(RedisOptions::new("timers")).unwrap_err();
    assert!(matches!(unreachable, DurableError::Unreachable(_)), "{unreachable:?}");
    let long = "n".repeat(65);
    for name in ["", "{tag}", &long] {
        let error = connect(RedisOptions::new(name)).unwrap_err();
        assert!(matches!(error, DurableError::Option(_)), "{error:?}");
    }
    for partitions in [0, 1025] {
        let error = connect(RedisOptions::new("timers").partitions(partitions)).unwrap_err();
        assert!(matches!(error, DurableError::Option(_)), "{error:?}");
    }
    // Outside of a runtime.
    let outside = pollster::block_on(Redis::connect("redis://127.0.0.1:1/", "timers"));
    assert!(matches!(outside.unwrap_err(), DurableError::Option(_)));
}

#[test]
fn an_address_that_cannot_be_used_says_why() {
    let runtime = runtime();
    let wrong = runtime.block_on(Redis::connect("nonsense", "timers")).unwrap_err();
    assert!(matches!(wrong, DurableError::Address(_)), "{wrong:?}");
    #[cfg(not(feature = "redis-tls"))]
    {
        let tls = runtime.block_on(Redis::connect("rediss://127.0.0.1/", "timers")).unwrap_err();
        assert!(matches!(&tls, DurableError::Address(why) if why.contains("redis-tls")), "{tls:?}");
    }
}

#[test]
fn an_error_names_the_address_and_what_the_server_said_but_no_password() {
    let runtime = runtime();
    let connect = |url: &str| {
        let error = runtime.block_on(Redis::connect(url, "timers")).unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
        error
    };
    assert!(connect("redis://:secret@127.0.0.1:1/").contains("127.0.0.1:1"));
    // A password may be anywhere in an address that cannot be parsed, so its scheme alone is shown.
    let nonsense = connect("nonsense://:secret@host/");
    assert!(nonsense.contains("nonsense") && !nonsense.contains("host"), "{nonsense}");
    let Some(server) = Server::start(&["--requirepass", "right"]) else { return };
    let address = format!("127.0.0.1:{}", server.port);
    let denied = connect(&format!("redis://:secret@{address}/"));
    assert!(denied.contains(&address) && denied.contains("authentication"), "{denied}");

    let options = RedisOptions::new("timers").call_timeout(SECOND);
    let process = Process::with(&format!("redis://:right@{address}/"), options);
    server.kill();
    // A call that is short of time learns only that its connection was closed.
    server.wait_for("the connection is refused", |_| {
        let unreachable = wait(process.timers.len()).unwrap_err().to_string();
        unreachable.contains(&address) && unreachable.contains("refused")
    });
    server.resume();
    server.pause();
    for error in [
        wait(process.timers.len()).unwrap_err().to_string(),
        wait(process.timers.cancel("a")).unwrap_err().to_string(),
    ] {
        assert!(error.contains(&address), "{error}");
    }
    server.go_on();
}

#[test]
fn the_channels_of_partitions_are_permitted() {
    let Some(server) = Server::start(&[]) else { return };
    let runtime = runtime();
    let connect = |rights: &str| {
        server.order(&format!("ACL SETUSER clerk reset on >secret {rights}"));
        let url = format!("redis://clerk:secret@127.0.0.1:{}/", server.port);
        runtime.block_on(Redis::connect(&url, patient()))
    };
    for channels in ["&tb:timers ", "&tb:timers:* "] {
        let error = connect(&RIGHTS.replace(channels, "")).unwrap_err();
        assert!(matches!(error, DurableError::Denied(_)), "{error:?}");
    }
    assert!(connect(RIGHTS).is_ok());
}

#[test]
fn a_client_of_ones_own_is_used() {
    let Some(server) = Server::start(&["--requirepass", "right"]) else { return };
    let runtime = runtime();
    let client = redis::Client::open(format!("redis://:right@127.0.0.1:{}/3", server.port));
    let store = runtime.block_on(Redis::with_client(client.unwrap(), patient())).unwrap();
    let process = Process::of(store, runtime);
    does_all(&process);
    let there = server.say("AUTH right\r\nINFO keyspace").unwrap();
    assert!(there.contains("db3:") && !there.contains("db0:"), "{there}");
}

#[test]
fn a_connection_that_was_denied_is_made_again() {
    let Some(server) = Server::start(&[]) else { return };
    server.order(&format!("ACL SETUSER clerk on >secret {RIGHTS}"));
    let process = Process::at(&format!("redis://clerk:secret@127.0.0.1:{}/", server.port));
    assert_eq!(wait(process.timers.len()), Ok(0));
    server.order("ACL SETUSER clerk resetpass");
    assert!(server.say("CLIENT KILL TYPE normal").is_some());
    server.wait_for("it is denied", |_| {
        matches!(wait(process.timers.len()), Err(DurableError::Denied(_)))
    });
    server.order("ACL SETUSER clerk >secret");
    server.wait_for("it is not denied any more", |_| wait(process.timers.len()) == Ok(0));
}

#[test]
fn a_worker_outlives_a_change_of_its_password() {
    let Some(server) = Server::start(&[]) else { return };
    server.order(&format!("ACL SETUSER clerk on >old {RIGHTS}"));
    let runtime = runtime();
    let credentials = Credentials::new("clerk", "old");
    let options = patient().credentials(&credentials);
    let url = format!("redis://127.0.0.1:{}/", server.port);
    let process = Process::of(runtime.block_on(Redis::connect(&url, options)).unwrap(), runtime);
    let work = process.work();
    let deliver = |id: &str| {
        wait(process.timers.insert(id, "", SECOND / 10, quick())).unwrap();
        assert_eq!(work.next(), id);
    };
    let kill_all = || {
        for kind in ["normal", "pubsub"] {
            assert!(server.say(&format!("CLIENT KILL TYPE {kind}")).is_some());
        }
    };
    deliver("before");
    // Another user is known before the old one is removed. All connections are replaced.
    server.order(&format!("ACL SETUSER successor on >new {RIGHTS}"));
    credentials.set("successor", "new");
    deliver("between");
    server.wait_for("no connection of the old user", |server| {
        !server.order("CLIENT LIST").contains("user=clerk")
    });
    server.order("ACL DELUSER clerk");
    kill_all();
    deliver("after");
    // The old password is rejected first. Callers are told, and the worker waits.
    wait(process.timers.insert("waits", "", SECOND, quick())).unwrap();
    server.order("ACL SETUSER successor resetpass >newest");
    kill_all();
    let denied = wait(process.timers.len()).unwrap_err();
    assert!(matches!(denied, DurableError::Denied(_)), "{denied:?}");
    std::thread::sleep(3 * SECOND / 2);
    credentials.set("successor", "newest");
    assert_eq!(work.next(), "waits");
    deliver("at last");
    assert_eq!(work.stop(), [""; 0]);
}

#[test]
fn a_node_of_a_cluster_alone_is_refused() {
    let Some(cluster) = Cluster::start() else { return };
    let runtime = runtime();
    let elsewhere =
        cluster.nodes.iter().find(|node| node.port != cluster.owner("{tb:timers}").port);
    let connected = runtime.block_on(Redis::connect(&elsewhere.unwrap().url(), patient()));
    let refused = connected.unwrap_err();
    assert!(
        matches!(&refused, DurableError::Address(why) if why.contains("connect_cluster")),
        "{refused:?}"
    );
}

#[test]
fn a_server_that_may_remove_timers_is_refused() {
    let Some(server) = Server::start(&["--maxmemory-policy", "allkeys-lru"]) else { return };
    let runtime = runtime();
    let connect = |options: RedisOptions| runtime.block_on(Redis::connect(&server.url(), options));
    let refused = connect(patient()).unwrap_err();
    let (address, policy) = (format!("127.0.0.1:{}", server.port), "allkeys-lru".to_owned());
    assert_eq!(refused, DurableError::Evicts { server: address, policy });
    assert!(connect(patient().allow_eviction()).is_ok());
    // No key of a store has a time to live.
    for policy in ["volatile-lru", "noeviction"] {
        server.order(&format!("CONFIG SET maxmemory-policy {policy}"));
        assert!(connect(patient()).is_ok(), "{policy}");
    }
    // Without the permission the error says what it is for.
    server.order("ACL SETUSER default -info");
    let denied = connect(patient()).unwrap_err();
    assert!(matches!(&denied, DurableError::Denied(why) if why.contains("allow_eviction")));
    assert!(connect(patient().allow_eviction()).is_ok());
}

#[test]
fn each_master_of_a_cluster_is_asked_whether_it_may_remove_timers() {
    let Some(cluster) = Cluster::start() else { return };
    let runtime = runtime();
    let urls: Vec<String> = cluster.nodes.iter().map(Server::url).collect();
    let connect = || {
        let urls = urls.iter().map(String::as_str);
        runtime.block_on(Redis::connect_cluster(urls, patient()))
    };
    assert!(connect().is_ok());
    for node in &cluster.nodes {
        node.order("CONFIG SET maxmemory-policy allkeys-random");
        let (server, policy) = (format!("127.0.0.1:{}", node.port), "allkeys-random".to_owned());
        assert_eq!(connect().unwrap_err(), DurableError::Evicts { server, policy });
        node.order("CONFIG SET maxmemory-policy volatile-lru");
    }
    assert!(connect().is_ok());
}

/// Runs all operations of timers and workers, except operations on dead letters.
fn does_all(process: &Process) {
    let timers = &process.timers;
    let work = process.work();
    for id in ["a", "b", "c"] {
        wait(timers.insert(id, "", 3600 * SECOND, quick())).unwrap();
    }
    assert_eq!(wait(timers.cancel("a")), Ok(Cancelled::Removed));
    assert_eq!(wait(timers.reset("b", SECOND / 10)), Ok(true));
    assert_eq!(work.next(), "b");
    assert!(wait(timers.get("c")).unwrap().is_some());
    assert_eq!(wait(timers.list(None, 10)).unwrap().len(), 1);
    assert_eq!(wait(timers.len()), Ok(1));
    assert_eq!(work.stop(), [""; 0]);
}

/// Makes a dead letter, and redrives it.
fn drives_again(timers: &DurableTimers) {
    wait(timers.insert("fails", "", SECOND / 100, Options::new().attempts(1))).unwrap();
    let (send, ended) = std::sync::mpsc::channel();
    let (end, ends) = futures_channel::oneshot::channel::<()>();
    let worker = timers.worker().observe(attempts(send));
    let worker = worker.until(async move {
        let _ = ends.await;
    });
    let thread = std::thread::spawn(|| wait(worker.run(|_| async { Err::<(), _>("it fails") })));
    assert!(matches!(ended.recv().unwrap().outcome, Outcome::Dead { .. }));
    drop(end);
    assert_eq!(thread.join().unwrap(), Ok(()));
    let letter = wait(timers.dead_letters(None, 10)).unwrap().remove(0);
    assert_eq!(wait(timers.redrive(letter.number)), Ok(true));
}

#[test]
fn a_user_with_the_rights_that_are_listed_may_do_all() {
    let Some(server) = Server::start(&[]) else { return };
    server.order(&format!("ACL SETUSER clerk on >secret {RIGHTS}"));
    let url = format!("redis://clerk:secret@127.0.0.1:{}/", server.port);
    let process = Process::at(&url);
    does_all(&process);
    drives_again(&process.timers);

    // The user cannot access other stores.
    let other = runtime().block_on(Redis::connect(&url, "timers2")).unwrap_err();
    assert!(matches!(other, DurableError::Denied(_)), "{other:?}");
    // A permission that is missing within a script.
    server.order("ACL SETUSER clerk -zadd");
    let denied = wait(process.timers.insert("d", "", SECOND, quick())).unwrap_err();
    assert!(matches!(denied.reason, DurableError::Denied(_)), "{denied:?}");
}

#[test]
fn a_user_of_a_cluster_with_the_rights_that_are_listed_may_do_all() {
    let Some(cluster) = Cluster::start() else { return };
    for node in &cluster.nodes {
        node.order(&format!("ACL SETUSER clerk on >secret {RIGHTS} {ON_A_CLUSTER}"));
    }
    let url = |node: &Server| format!("redis://clerk:secret@127.0.0.1:{}/", node.port);
    let process = Process::of_nodes(cluster.nodes.iter().map(url).collect());
    does_all(&process);
    drives_again(&process.timers);
}
