//! Timers whose transactions are committed late, and the notices of them.

#![allow(clippy::disallowed_methods, reason = "workers are waited for")]

use crate::client::client;
use crate::common::bench::{MILLISECOND, SECOND, wait};
use crate::common::events::Observed;
use crate::common::host::Host;
use crate::common::postgres_server::PostgresServer;
use crate::common::process::{Watch, ids, quick};
use std::collections::BTreeSet;
use std::future::ready;
use std::time::{Duration, SystemTime};
use tourbillon_durable::{Event, PostgresOptions, Verdict};

/// Waits until a worker has loaded its window.
fn has_begun(server: &PostgresServer) {
    let listens = "select count(*) from timers.workers where listens";
    server.wait_for("a worker", |server| server.order(listens) == "1");
    std::thread::sleep(2 * SECOND);
}

/// Receives the ids of deliveries until all have come. Returns how long that takes.
fn all_come(watch: &Watch, all: usize) -> Duration {
    let begun = SystemTime::now();
    let mut come = BTreeSet::new();
    while come.len() < all {
        come.insert(watch.delivered.recv_timeout(60 * SECOND).unwrap().id);
    }
    begun.elapsed().unwrap()
}

const MANY: &str = "select count(timers.insert('late ' || number, '', delay => '1 s'))
    from generate_series(1, 2000) as number";

/// One notice names the first minute, and the window is loaded from there.
#[test]
fn many_timers_that_are_due_before_their_commit_are_announced() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let client = client(&process, &server);
    // The check for overdue keys finds nothing.
    server.order(
        "create or replace function timers.late(from_due bigint, from_id text, after boolean,
           until bigint, age bigint, most integer, parts integer[], at bigint)
         returns table (dues bigint[], ids text[]) language sql as
           'select null::bigint[], null::text[]'",
    );
    let watch = Watch::over(&process);
    has_begun(&server);
    process.execute(&client, &format!("begin; {MANY}")).unwrap();
    std::thread::sleep(3 * SECOND);
    assert!(watch.delivered.try_recv().is_err(), "they are not committed");
    process.execute(&client, "commit").unwrap();
    all_come(&watch, 2000);
    assert_eq!(watch.stop(), []);
}

/// The same without a notice, as behind a pooler.
#[test]
fn many_timers_that_are_due_before_their_commit_are_found() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let client = client(&process, &server);
    let watch = Watch::over(&process);
    has_begun(&server);
    let quiet = MANY.replace("'1 s'", "'1 s', notify => false");
    process.execute(&client, &format!("begin; {quiet}")).unwrap();
    std::thread::sleep(3 * SECOND);
    process.execute(&client, "commit").unwrap();
    // 64 at a time would take half a minute.
    let took = all_come(&watch, 2000);
    assert!(took < 15 * SECOND, "{took:?}");
    assert_eq!(watch.stop(), []);
}

/// The snapshot of the transaction does not contain the worker, and its timers are far when they
/// are inserted.
#[test]
fn notices_are_decided_at_the_commit_at_each_isolation_level() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let clients = ["read committed", "repeatable read", "serializable"].map(|level| {
        let client = client(&process, &server);
        let begins = format!("begin isolation level {level}; select count(*) from timers.workers");
        process.execute(&client, &begins).unwrap();
        client
    });
    let watch = Watch::over(&process);
    has_begun(&server);
    for (number, client) in clients.iter().enumerate() {
        let insert = format!("select timers.insert('{number}', '', delay => '13 s')");
        process.execute(client, &insert).unwrap();
    }
    std::thread::sleep(9 * SECOND);
    for client in &clients {
        process.execute(client, "commit").unwrap();
    }
    for _ in &clients {
        let seen = watch.delivered.recv_timeout(60 * SECOND).unwrap();
        // A check finds them a second after the due time.
        assert!(seen.late < 900 * MILLISECOND, "{seen:?}");
    }
    assert_eq!(watch.stop(), []);
}

#[test]
fn notices_are_sent_for_timers_that_are_near_at_the_commit() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let worker = "insert into timers.workers values (7, 7, true, timers.clock() + 60000)";
    server.order(worker);
    let notices = |sql: &str| {
        let told = server.order(&format!("begin; listen \"tourbillon timers\"; {sql}; commit"));
        let payload =
            |line: &str| Some(line.split_once("with payload \"")?.1.split('"').next()?.to_owned());
        told.lines()
            .filter_map(payload)
            .filter(|told| !told.starts_with("echo"))
            .collect::<Vec<_>>()
    };
    let insert = |id: &str, options: &str| format!("select timers.insert('{id}', '', {options})");
    let near = notices(&insert("near", "delay => '11 s'"));
    assert!(near.len() == 1 && near[0].ends_with(":near"), "{near:?}");
    assert_eq!(notices(&insert("far", "delay => '20 s'")), [""; 0]);
    assert_eq!(notices(&insert("quiet", "delay => '1 s', notify => false")), [""; 0]);
    let becomes = format!("{}; select pg_sleep(2)", insert("becomes", "delay => '13500 ms'"));
    assert_eq!(notices(&becomes).len(), 1);
    let undone = format!("savepoint it; {}; rollback to it", insert("undone", "delay => '1 s'"));
    assert_eq!(notices(&undone), [""; 0]);
    let moved = insert("far", "delay => '1 s', existing => 'replace'");
    assert_eq!(notices(&moved).len(), 1);
    let many = notices(&MANY.replace("2000", "100"));
    assert_eq!(many.len(), 65);
    assert!(many[64].starts_with("from:"), "{many:?}");
    // A worker that was killed leaves its row.
    server.order("update timers.workers set beat = timers.clock() - 5100");
    assert_eq!(notices(&insert("unheard", "delay => '1 s'")), [""; 0]);
    drop(process);
}

/// Something between the worker and the server takes the notices away, as a pooler does that gives
/// each transaction another session.
#[test]
fn notices_that_do_not_arrive_are_reported() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let Some(pooler) = crate::pooler::Pooler::before(&server) else { return };
    let url = pooler.url();
    let process = crate::common::process::Process::in_schema(&url, PostgresOptions::new("timers"));
    let worker = Observed::start(process.timers.worker(), |_| ready(Verdict::Done));
    while worker.next(|| ()) != Event::NoticesLost {}
    let other = server.process();
    let all = ids(20);
    for id in &all {
        wait(other.timers.insert(id, "", SECOND * 3 / 2, quick())).unwrap();
    }
    let mut left: BTreeSet<String> = all.into_iter().collect();
    while !left.is_empty() {
        match worker.next(|| ()) {
            Event::Attempt(attempt) => {
                // It is polled each second.
                assert!(attempt.lateness < 900 * MILLISECOND, "{attempt:?}");
                left.remove(&attempt.id);
            }
            Event::NoticesRestored => panic!("they are lost"),
            _ => {}
        }
    }
    let _ = worker.stop();
}
