//! The version of a server, and what its configuration lets timers survive.

#![allow(clippy::disallowed_methods, reason = "servers are waited for")]

use crate::common::bench::wait;
use crate::common::process::{Process, runtime};
use crate::common::servers::{Cluster, Server};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use tourbillon_durable::{Durability, DurableError, Loss, Redis, RedisOptions};

fn losses(process: &Process) -> [Loss; 2] {
    let Durability { killed, power_failure, .. } = wait(process.timers.durability()).unwrap();
    [killed, power_failure]
}

#[test]
fn what_a_server_is_configured_to_survive_is_told() {
    let Some(server) = Server::start(&[]) else { return };
    let process = Process::new(&server);
    assert_eq!(losses(&process), [Loss::Everything; 2]);
    server.order("CONFIG SET save \"3600 1\"");
    assert_eq!(losses(&process), [Loss::SinceSnapshot; 2]);
    server.order("CONFIG SET appendonly yes");
    for (policy, loss) in
        [("no", Loss::Unflushed), ("everysec", Loss::LastSeconds), ("always", Loss::Nothing)]
    {
        server.order(&format!("CONFIG SET appendfsync {policy}"));
        assert_eq!(losses(&process), [Loss::Nothing, loss], "{policy}");
    }
    let durability = wait(process.timers.durability()).unwrap();
    let version = server.figure("server", "redis_version").unwrap();
    let told = durability.version.unwrap();
    assert!(told == format!("Redis {version}") || told.starts_with("Valkey"), "{told}");
    assert_eq!(durability.replicas, 0);

    let port = server.port.to_string();
    let quick = ["--repl-diskless-sync-delay", "0", "--replicaof", "127.0.0.1", &port];
    let replica = Server::start(&quick).unwrap();
    replica.wait_for("it follows", Server::follows);
    assert_eq!(wait(process.timers.durability()).unwrap().replicas, 1);

    // As on a managed server.
    server.order("ACL SETUSER default -config");
    assert_eq!(losses(&process), [Loss::Nothing, Loss::Unknown]);
}

#[test]
fn what_a_server_does_not_tell_is_unknown() {
    let Some(server) = Server::start(&["--rename-command", "CONFIG", ""]) else { return };
    assert_eq!(losses(&Process::new(&server)), [Loss::Unknown; 2]);
}

#[test]
fn the_worst_master_of_a_cluster_counts() {
    let Some(cluster) = Cluster::start() else { return };
    let process = Process::of_cluster(&cluster);
    for node in &cluster.nodes {
        node.order("CONFIG SET appendonly yes");
        node.order("CONFIG SET appendfsync always");
    }
    assert_eq!(losses(&process), [Loss::Nothing; 2]);
    cluster.nodes[1].order("CONFIG SET appendfsync everysec");
    assert_eq!(losses(&process), [Loss::Nothing, Loss::LastSeconds]);
}

/// Forwards connections to a server that seems to have version 5. Returns the port.
fn before_the_version(server: &Server) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (here, there) = (listener.local_addr().unwrap().port(), server.port);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut server = TcpStream::connect(("127.0.0.1", there)).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            std::thread::spawn(move || {
                let mut bytes = vec![0; 65_536];
                while let Ok(length @ 1..) = server.read(&mut bytes) {
                    let name = b"redis_version:";
                    if let Some(at) = bytes.windows(name.len()).position(|some| some == name) {
                        bytes[at + name.len()] = b'5';
                    }
                    if client.write_all(&bytes[..length]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    here
}

#[test]
fn a_server_that_is_too_old_is_refused() {
    let Some(server) = Server::start(&[]) else { return };
    let port = before_the_version(&server);
    let runtime = runtime();
    let connect = |options: RedisOptions| {
        let url = format!("redis://127.0.0.1:{port}/");
        runtime.block_on(Redis::connect(&url, options)).unwrap_err()
    };
    for options in [RedisOptions::new("timers"), RedisOptions::new("timers").allow_eviction()] {
        let refused = connect(options);
        assert!(matches!(refused, DurableError::Version { .. }), "{refused:?}");
        assert!(refused.to_string().contains(&port.to_string()), "{refused}");
    }
}
