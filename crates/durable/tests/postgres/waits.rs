//! The reasons that workers give while they wait for the server.

use crate::common::bench::{Bench, MILLISECOND, SECOND, wait};
use crate::common::events::Observed;
use crate::common::host::Host;
use crate::common::postgres::OneSchema;
use crate::common::postgres_server::PostgresServer;
use crate::common::process::{ids, quick};
use futures_util::FutureExt;
use std::future::ready;
use tourbillon_durable::{DurableError, Event, Verdict, Wait};

/// A worker of a store on its own server.
struct Place {
    bench: Bench<OneSchema>,
    worker: Observed,
}

impl Place {
    fn start() -> Option<Self> {
        let bench = Bench::new(OneSchema::start(&[])?);
        let worker = Observed::start(bench.timers().worker(), |_| ready(Verdict::Done));
        let place = Self { bench, worker };
        assert!(matches!(place.next(), Event::PartitionsGained { .. }));
        Some(place)
    }

    /// Returns the next event, while time passes.
    fn next(&self) -> Event {
        self.worker.next(|| self.bench.advance(200 * MILLISECOND))
    }

    /// Returns why the worker begins to wait.
    fn waits(&self) -> (Wait, DurableError) {
        loop {
            match self.next() {
                Event::NoticesLost | Event::NoticesRestored => {}
                Event::Waiting { reason, error: Some(error) } => return (reason, error),
                event => panic!("{event:?}"),
            }
        }
    }

    /// Waits until the worker continues.
    fn resumes(&self, from: Wait) {
        loop {
            match self.next() {
                Event::NoticesLost | Event::NoticesRestored => {}
                Event::Resumed { reason, waited } if reason == from => {
                    return assert!(waited >= SECOND / 5);
                }
                event => panic!("{event:?}"),
            }
        }
    }

    /// Checks that the worker waits for a server that is away, and says why.
    fn is_away(&self, why: &str) {
        let (reason, error) = self.waits();
        assert_eq!(reason, Wait::StoreAway, "{error:?}");
        let address = format!("127.0.0.1:{}: ", self.bench.place.server().port);
        let is_told = |said: &str| said.starts_with(&address) && said.contains(why);
        assert!(matches!(&error, DurableError::Unreachable(said) if is_told(said)), "{error:?}");
    }
}

#[test]
fn a_worker_says_that_the_server_is_silent() {
    let Some(place) = Place::start() else { return };
    place.bench.place.server().pause();
    place.is_away("no reply");
    place.bench.place.server().go_on();
    place.resumes(Wait::StoreAway);
    let _ = place.worker.stop();
}

#[test]
fn a_worker_says_that_the_server_refuses_connections() {
    let Some(place) = Place::start() else { return };
    place.bench.place.server().kill();
    place.is_away("refused");
    place.bench.place.server().resume();
    place.resumes(Wait::StoreAway);
    let _ = place.worker.stop();
}

#[test]
fn a_worker_says_that_the_server_cannot_be_written() {
    let Some(place) = Place::start() else { return };
    let server = place.bench.place.server();
    server.configure("default_transaction_read_only", "on");
    let (reason, error) = place.waits();
    assert_eq!(reason, Wait::StoreReadOnly, "{error:?}");
    let is_told = |said: &str| said.contains("read-only") || said.contains("not allow writes");
    assert!(matches!(&error, DurableError::ReadOnly(said) if is_told(said)), "{error:?}");
    server.configure("default_transaction_read_only", "off");
    place.resumes(Wait::StoreReadOnly);
    // A later wait has its own reason.
    server.pause();
    place.is_away("no reply");
    server.go_on();
    let _ = place.worker.stop();
}

/// The database is closed for maintenance. The store has no error of its own for this.
#[test]
fn a_worker_waits_after_an_error_that_it_does_not_know() {
    let Some(place) = Place::start() else { return };
    let server = place.bench.place.server();
    let close = "update pg_database set datallowconn = false where datname = 'postgres'";
    let open = close.replace("false", "true");
    server.order("create database other");
    let order = |sql: &str| {
        let url = format!("{}other", server.url().trim_end_matches("postgres"));
        let done = crate::common::process::runtime().block_on(async {
            let (client, connection) =
                tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            client.batch_execute(sql).await
        });
        done.unwrap();
    };
    let cut = "select pg_terminate_backend(pid) from pg_stat_activity where datname = 'postgres'";
    order(&format!("{close}; {cut}"));
    let (reason, error) = place.waits();
    assert_eq!(reason, Wait::StoreAway);
    let is_told = |said: &str| said.contains("not currently accepting connections");
    assert!(matches!(&error, DurableError::Io(said) if is_told(said)), "{error:?}");
    order(&open);
    place.resumes(Wait::StoreAway);
    let _ = place.worker.stop();
}

/// The ends of attempts are sent again and again, and occupy both lanes.
#[test]
fn a_caller_beside_operations_that_are_repeated_is_told_why() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let (end, ends) = futures_channel::oneshot::channel::<()>();
    let ends = ends.shared();
    let worker = process.timers.worker().concurrency(40);
    let worker = Observed::start(worker, move |_| ends.clone().map(|_| Verdict::Done));
    for id in ids(40) {
        wait(process.timers.insert(&id, "", SECOND / 100, quick())).unwrap();
    }
    let running = "select count(*) from timers.states where fence is not null";
    server.wait_for("the attempts", |server| server.order(running) == "40");
    server.configure("default_transaction_read_only", "on");
    drop(end);
    for id in ids(60).iter().skip(40) {
        let refused = wait(process.timers.insert(id, "", SECOND, quick())).unwrap_err().reason;
        assert!(matches!(refused, DurableError::ReadOnly(_)), "{refused:?}");
    }
    server.configure("default_transaction_read_only", "off");
    server.wait_for("their ends", |_| wait(process.timers.len()) == Ok(0));
    let _ = worker.stop();
}
