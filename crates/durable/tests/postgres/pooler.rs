//! Stores behind PgBouncer, which gives each transaction another session.

#![allow(clippy::disallowed_methods, reason = "real processes and time")]

use crate::common::bench::{SECOND, wait};
use crate::common::postgres_server::{PostgresServer, leave_out, url};
use crate::common::process::{Process, Watch, all_are_acknowledged_once, ids, lateness, quick};
use crate::common::servers::free_port;
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::SystemTime;
use tourbillon_durable::PostgresOptions;

/// Runs a pooler until the standard input is closed, by the test or by its end.
const GUARD: &str = "\"$0\" -u postgres \"$1\" & cat > /dev/null; kill -KILL $!";

/// A pooler in front of a server.
pub(crate) struct Pooler {
    process: Child,
    pub(crate) port: u16,
    folder: std::path::PathBuf,
}

impl Pooler {
    pub(crate) fn before(server: &PostgresServer) -> Option<Self> {
        let program = "/usr/sbin/pgbouncer";
        if !std::path::Path::new(program).exists() {
            leave_out("PgBouncer");
            return None;
        }
        let port = free_port();
        let folder = std::env::temp_dir().join(format!("tourbillon-pooler-{port}"));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("pgbouncer.ini");
        let settings = format!(
            "[databases]\npostgres = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = transaction\ndefault_pool_size = 3\nmax_client_conn = 200\n",
            server.port,
        );
        std::fs::write(&file, settings).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, program]).arg(&file).stdin(Stdio::piped());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let pooler = Self { process: command.spawn().unwrap(), port, folder };
        let begun = SystemTime::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert!(begun.elapsed().unwrap() < 30 * SECOND, "PgBouncer does not start");
            sleep(SECOND / 100);
        }
        Some(pooler)
    }
}

impl Pooler {
    pub(crate) fn url(&self) -> String {
        url(Ipv4Addr::LOCALHOST, &[self.port])
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_store_that_polls_works_behind_a_pooler() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let Some(pooler) = Pooler::before(&server) else { return };
    let polls = || PostgresOptions::new("timers").poll_only();
    let url = pooler.url();
    let [first, second] = [(); 2].map(|()| Process::in_schema(&url, polls()));
    let watch = Watch::over(&first);
    sleep(2 * SECOND);
    let (all, begun) = (ids(100), SystemTime::now());
    for id in &all {
        wait(second.timers.insert(id, "", 2 * SECOND, quick())).unwrap();
        sleep(SECOND / 20);
    }
    let come: Vec<_> = all.iter().map(|_| watch.delivered.recv_timeout(60 * SECOND)).collect();
    let come: Vec<_> = come.into_iter().collect::<Result<_, _>>().unwrap();
    let (_, p99, worst) = lateness(&come, begun);
    assert!(p99 < SECOND * 3 / 2, "p99 {p99:?}, at most {worst:?}");
    assert_eq!(watch.stop(), []);
    // More at a time than there are sessions.
    let all = ids(1000);
    let inserted = all.iter().map(|id| second.timers.insert(id, "", SECOND, quick()));
    wait(futures_util::future::try_join_all(inserted)).unwrap();
    let work = vec![first.work(), second.work()];
    all_are_acknowledged_once(&first.timers, work, all);
}
