//! [`Site`], the servers of a run with their faults.
//!
//! **They lose nothing here.** A master of Redis that is killed returns with its file, and a
//! replica takes over once it has everything that its master has. Postgres's standby has each
//! commit before the primary acknowledges it, and takes over after the primary was killed in the
//! middle of its work.

use crate::plan::{Fault, Kind, Sort};
use crate::postgres_server::{self, PostgresServer};
use crate::servers::{Cluster, Server};
use crate::{Failure, SERVERS};
use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::thread::sleep;
use std::time::Duration;

/// The servers of a run.
pub(crate) enum Site {
    /// Three masters, each with a replica.
    Redis(Cluster),
    Postgres(Box<Pair>),
}

impl Site {
    /// Starts servers whose clocks are some seconds ahead.
    pub(crate) fn start(servers: Sort, clocks: &[i64]) -> Result<Self, Failure> {
        Ok(match servers {
            Sort::Redis => {
                let clocks = clocks.try_into()?;
                let cluster = Cluster::with_clocks(&SERVERS, clocks);
                Self::Redis(cluster.ok_or("redis-server is not on the path")?)
            }
            Sort::Postgres => Self::Postgres(Box::new(Pair::start(clocks)?)),
        })
    }

    /// Returns the ports of the servers.
    pub(crate) fn ports(&self) -> Vec<u16> {
        match self {
            Self::Redis(cluster) => cluster.nodes.iter().map(|node| node.port).collect(),
            Self::Postgres(pair) => pair.servers.iter().map(|server| server.port).collect(),
        }
    }

    /// Returns the addresses of the servers on a host that forwards their ports.
    pub(crate) fn urls(&self, host: Ipv4Addr) -> Vec<String> {
        match self {
            Self::Redis(cluster) => {
                cluster.nodes.iter().map(|node| format!("redis://{host}:{}/", node.port)).collect()
            }
            Self::Postgres(_) => vec![postgres_server::url(host, &self.ports())],
        }
    }

    /// Stops all servers. Their connections stay open without replies.
    pub(crate) fn pause(&self) {
        match self {
            Self::Redis(cluster) => cluster.nodes.iter().for_each(Server::pause),
            Self::Postgres(pair) => pair.servers.iter().for_each(PostgresServer::pause),
        }
    }

    /// Continues all servers.
    pub(crate) fn go_on(&self) {
        match self {
            Self::Redis(cluster) => cluster.nodes.iter().for_each(Server::go_on),
            Self::Postgres(pair) => pair.servers.iter().for_each(PostgresServer::go_on),
        }
    }

    /// Injects a fault, and heals it.
    pub(crate) fn trouble(&self, fault: Fault) {
        match self {
            Self::Redis(cluster) => trouble_redis(fault, cluster),
            Self::Postgres(pair) => pair.trouble(fault),
        }
    }
}

fn trouble_redis(fault: Fault, cluster: &Cluster) {
    let key = format!("{{tb:timers:{}}}", fault.whom);
    match fault.kind {
        Kind::RestartRedis => {
            let master = cluster.owner(&key);
            master.kill();
            sleep(fault.lasts);
            master.resume();
            cluster.settle();
        }
        Kind::MoveSlot => cluster.move_slot(&key),
        _ => cluster.fail_over(&key),
    }
}

/// A primary and its synchronous standby.
pub(crate) struct Pair {
    servers: [PostgresServer; 2],
    /// The place of the primary.
    primary: Mutex<usize>,
}

impl Pair {
    fn start(clocks: &[i64]) -> Result<Self, Failure> {
        let primary = PostgresServer::with_clock(&[]).ok_or("PostgreSQL is not installed")?;
        let servers = [primary.standby(&[]), primary];
        for (server, clock) in servers.iter().zip(clocks) {
            server.set_clock(*clock);
        }
        let pair = Self { servers, primary: Mutex::new(1) };
        waits_for_standby(&pair.servers[1]);
        Ok(pair)
    }

    fn trouble(&self, fault: Fault) {
        let mut place = self.primary.lock().expect("no fault panics");
        let primary = &self.servers[*place];
        match fault.kind {
            Kind::RestartPostgres => {
                primary.kill();
                sleep(fault.lasts);
                primary.resume();
                waits_for_standby(primary);
            }
            Kind::CutPostgres => {
                let ends = std::time::Instant::now() + fault.lasts;
                while std::time::Instant::now() < ends {
                    primary.cut();
                    sleep(Duration::from_millis(100));
                }
            }
            Kind::SilencePostgres => {
                primary.pause();
                sleep(fault.lasts);
                primary.go_on();
            }
            _ => {
                let standby = &self.servers[1 - *place];
                primary.kill();
                sleep(fault.lasts);
                standby.promote();
                // It has no standby yet that it could wait for.
                standby.configure("synchronous_standby_names", "");
                primary.follow(standby);
                waits_for_standby(standby);
                *place = 1 - *place;
            }
        }
    }
}

/// Makes each commit wait until it is on the standby's disk.
fn waits_for_standby(primary: &PostgresServer) {
    primary.configure("synchronous_standby_names", "standby");
    let state = "select sync_state from pg_stat_replication";
    primary.wait_for("its standby", |primary| primary.order(state) == "sync");
}
