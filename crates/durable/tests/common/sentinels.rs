//! A master, its replica, and three sentinels that watch them.

use super::servers::{Server, wait_until};

/// The servers of a master that sentinels watch.
pub(crate) struct Watched {
    pub(crate) master: Server,
    pub(crate) replica: Server,
    sentinels: Vec<Server>,
}

impl Watched {
    pub(crate) fn start() -> Option<Self> {
        let quick = ["--repl-diskless-sync-delay", "0"];
        let master = Server::start(&quick)?;
        let port = master.port.to_string();
        let replica = Server::start(&[&quick[..], &["--replicaof", "127.0.0.1", &port]].concat())?;
        wait_until("the replica follows", || replica.follows());
        let config = format!(
            "sentinel monitor mymaster 127.0.0.1 {port} 2\n\
             sentinel down-after-milliseconds mymaster 1000\n\
             sentinel failover-timeout mymaster 3000\n"
        );
        let sentinels: Option<Vec<_>> = (0..3).map(|_| Server::sentinel(&config)).collect();
        let watched = Self { master, replica, sentinels: sentinels? };
        wait_until("the sentinels know each other and the replica", || {
            watched.sentinels.iter().all(|sentinel| {
                let said = sentinel.say("INFO sentinel").unwrap_or_default();
                said.contains("slaves=1,sentinels=3")
            })
        });
        Some(watched)
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Server::url).collect()
    }

    /// Waits until the replica is up to date.
    pub(crate) fn wait_until_copied(&self) {
        wait_until("the replica has it all", || {
            let sent = self.master.figure("replication", "master_repl_offset");
            sent.is_some() && sent == self.replica.figure("replication", "slave_repl_offset")
        });
    }

    /// Waits until the replica is the master.
    pub(crate) fn wait_until_taken_over(&self) {
        wait_until("the replica takes over", || self.replica.is("role:master"));
    }

    /// Makes the replica the master, and the master its replica.
    pub(crate) fn fail_over(&self) {
        wait_until("a sentinel obeys", || {
            let said = self.sentinels[0].say("SENTINEL FAILOVER mymaster");
            said.is_some_and(|said| said.starts_with('+'))
        });
        self.wait_until_taken_over();
        wait_until("the old master follows", || self.master.is("role:slave"));
    }
}
