//! A store on a PostgreSQL server, in virtual time, and the processes of several in real time.

use super::bench::{self, Bench, Bounds, Place};
use super::host::Host;
use super::postgres_server::{self, PostgresServer};
use super::process::{PATIENCE, Process, runtime};
use super::proxy::Proxy;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, SystemTime};
use tokio::runtime::Runtime;
use tourbillon::ManualClock;
use tourbillon_durable::{AnyStore, DurableError, Postgres, PostgresOptions};

/// A store with its own schema, in virtual time.
pub(crate) struct OneSchema {
    // Dropped before the server, so that its connections end first.
    runtime: Runtime,
    /// `None` if it is on the server that all tests share.
    server: Option<PostgresServer>,
    pub(crate) name: String,
    clock: ManualClock,
}

impl OneSchema {
    /// Creates a store on its own server.
    pub(crate) fn start(settings: &[&str]) -> Option<Self> {
        Some(Self::on(Some(PostgresServer::start(settings)?)))
    }

    fn on(server: Option<PostgresServer>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("timers_{}", COUNT.fetch_add(1, SeqCst));
        Self { runtime: runtime(), server, name, clock: bench::clock() }
    }

    /// Creates timers on the server that all tests share.
    pub(crate) fn bench() -> Option<Bench<Self>> {
        PostgresServer::shared().map(|_| Bench::new(Self::on(None)))
    }

    /// Creates a store on that server with another clock.
    #[allow(dead_code, reason = "each test binary uses a part")]
    pub(crate) fn beside(clock: &ManualClock) -> Option<Self> {
        PostgresServer::shared().map(|_| Self { clock: clock.clone(), ..Self::on(None) })
    }

    pub(crate) fn server(&self) -> &PostgresServer {
        match &self.server {
            Some(server) => server,
            None => PostgresServer::shared().expect("it was started"),
        }
    }

    /// Executes SQL, where `tb` is the schema of the store.
    pub(crate) fn order(&self, sql: &str) -> String {
        self.server().order(&sql.replace("tb.", &format!("{}.", self.name)))
    }

    pub(crate) fn try_open(&self) -> Result<AnyStore, DurableError> {
        self.try_open_with(Bounds::NONE)
    }

    fn try_open_with(&self, bounds: Bounds) -> Result<AnyStore, DurableError> {
        let options = PostgresOptions::new(&self.name).store(bounds.options(&self.clock));
        let options = options.call_timeout(PATIENCE);
        let store = self.runtime.block_on(Postgres::connect(&self.server().url(), options));
        store.map(AnyStore::from)
    }
}

impl Place for OneSchema {
    fn open_with(&self, bounds: Bounds) -> AnyStore {
        self.try_open_with(bounds).expect("the store opens")
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }
}

impl Host for PostgresServer {
    fn start_host() -> Option<Self> {
        Self::start(&[])
    }

    fn start_with_clock() -> Option<Self> {
        Self::with_clock(&[])
    }

    fn set_clock(&self, ahead: i64) {
        self.set_clock(ahead);
    }

    fn now(&self) -> SystemTime {
        self.now()
    }

    fn port(&self) -> u16 {
        self.port
    }

    fn process_with(&self, port: u16, call_timeout: Duration) -> Process {
        let url = postgres_server::url(Ipv4Addr::LOCALHOST, &[port]);
        Process::in_schema(&url, PostgresOptions::new("timers").call_timeout(call_timeout))
    }

    fn proxy(&self) -> Proxy {
        Proxy::before_postgres(self.port)
    }

    fn kill(&self) {
        self.kill();
    }

    fn resume(&self) {
        self.resume();
    }

    fn pause(&self) {
        self.pause();
    }

    fn go_on(&self) {
        self.go_on();
    }

    fn cut(&self) {
        self.cut();
    }

    fn cut_notices(&self) {
        let listening = "select pg_terminate_backend(pid) from pg_stat_activity \
                         where query ilike 'listen%'";
        assert!(self.order(listening).starts_with('t'), "something listens");
    }

    fn executed(&self) -> u64 {
        let executed = "select xact_commit + xact_rollback from pg_stat_database \
                        where datname = 'postgres'";
        self.order(executed).parse().unwrap()
    }
}

impl Process {
    /// Connects to a store with these options.
    pub(crate) fn in_schema(url: &str, options: PostgresOptions) -> Self {
        let runtime = runtime();
        let store = runtime.block_on(Postgres::connect(url, options)).unwrap();
        Self::of(store, runtime)
    }
}
