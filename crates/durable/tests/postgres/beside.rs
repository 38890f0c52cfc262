//! Transactions of callers that stay open for longer than every period of the store: a lease, the
//! retries of locked timers, the limit of a call, and the timeout of a dead worker.
//!
//! Each verb of a caller is beside each verb of a worker, at each isolation level, with and without
//! a pooler. `OPEN_SECONDS=60 OPEN_ROWS=1,64,1000` runs the same for as long and with as many
//! timers.

#![allow(clippy::disallowed_methods, reason = "real processes and time")]

use crate::client::client;
use crate::common::bench::{SECOND, wait};
use crate::common::events::Observed;
use crate::common::host::Host;
use crate::common::postgres_server::{PostgresServer, url};
use crate::common::process::{Process, ids, quick};
use crate::pooler::Pooler;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};
use tokio_postgres::Client;
use tourbillon_durable::{
    Attempt, Delivery, DurableError, DurableTimers, Event, Existing, Inserted, Options, Outcome,
    PostgresOptions, Verdict,
};

/// Each wait for a lock that takes longer is logged.
const LOGGED: [&str; 2] = ["log_lock_waits=on", "deadlock_timeout=200ms"];

const LEVELS: [&str; 3] = ["read committed", "repeatable read", "serializable"];

/// How long the transactions stay open.
fn open_time() -> Duration {
    let seconds = std::env::var("OPEN_SECONDS").ok();
    seconds.map_or(7 * SECOND, |seconds| Duration::from_secs(seconds.parse().unwrap()))
}

/// The numbers of timers that each transaction locks.
fn rows() -> Vec<usize> {
    let rows = std::env::var("OPEN_ROWS").unwrap_or_else(|_| "64".to_owned());
    rows.split(',').map(|rows| rows.parse().unwrap()).collect()
}

/// Fails if an operation of a store has waited for a lock.
fn nothing_has_waited(server: &PostgresServer) {
    let waited =
        server.logged(|line| line.contains("] tourbillon ") && line.contains("still waiting"));
    assert_eq!(waited, [""; 0]);
}

/// A verb of a caller, for its timers with the prefix `{}`.
const VERBS: [(&str, &str); 5] = [
    ("cancel", "count(timers.cancel(id))"),
    ("keep", "count(timers.insert(id, 'kept', delay => '0', existing => 'keep'))"),
    ("replace", "count(timers.insert(id, 'replace', delay => '0', existing => 'replace'))"),
    ("update", "count(timers.insert(id, 'update', delay => '0', existing => 'update'))"),
    ("insert", "count(timers.insert(id, 'insert', delay => '0'))"),
];

/// A transaction of a caller that is open.
struct Open {
    client: Client,
    verb: &'static str,
    name: String,
}

impl Open {
    /// Inserts near and far timers, and begins a transaction that changes them.
    fn begin(
        process: &Process,
        server: &PostgresServer,
        (verb, call): (&'static str, &str),
        level: &str,
        count: usize,
    ) -> Self {
        let open = Self { client: client(process, server), verb, name: format!("{verb} {level}") };
        let of = |kind: &str, count| {
            format!(
                "(select '{kind} {} ' || i as id from generate_series(1, {count}) as i) as ids",
                open.name
            )
        };
        if verb != "insert" {
            for (kind, delay, count) in [("near", "1 second", count), ("far", "1 day", 4)] {
                let insert = format!("timers.insert(id, 'first', delay => '{delay}')");
                server.order(&format!("select count({insert}) from {}", of(kind, count)));
            }
        }
        process.execute(&open.client, &format!("begin isolation level {level}")).unwrap();
        for (kind, count) in [("near", count), ("far", 4)] {
            let call = call.replace("'0'", if kind == "far" { "'1 day'" } else { "'0'" });
            process
                .execute(&open.client, &format!("select {call} from {}", of(kind, count)))
                .unwrap();
        }
        open
    }

    /// Ends the transaction. Returns the payload that its timers are delivered with, or `None` if
    /// they do not exist.
    fn end(&self, process: &Process, commits: bool) -> Option<&'static [u8]> {
        let end = if commits { "commit" } else { "rollback" };
        // A serializable transaction may have a conflict with another.
        let committed = process.execute(&self.client, end).is_ok() && commits;
        match (self.verb, committed) {
            ("cancel", true) | ("insert", false) => None,
            ("replace" | "update" | "insert", true) => Some(self.verb.as_bytes()),
            _ => Some(b"first"),
        }
    }
}

/// An id and a payload.
type Delivered = (String, Vec<u8>);

/// A worker that records what it delivers.
struct Recorder {
    worker: Observed,
    delivered: Arc<Mutex<Vec<Delivered>>>,
}

impl Recorder {
    fn over(process: &Process, concurrency: usize) -> Self {
        let delivered = Arc::<Mutex<Vec<_>>>::default();
        let seen = Arc::clone(&delivered);
        let worker = process.timers.worker().concurrency(concurrency);
        let worker = Observed::start(worker, move |Delivery { id, payload, .. }| {
            seen.lock().unwrap().push((id, payload));
            std::future::ready(Verdict::Done)
        });
        Self { worker, delivered }
    }

    fn count(&self, prefix: &str) -> usize {
        self.delivered.lock().unwrap().iter().filter(|(id, _)| id.starts_with(prefix)).count()
    }
}

/// Waits until a condition holds.
fn until(what: &str, so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < 90 * SECOND, "{what}");
        sleep(SECOND / 20);
    }
}

/// Calls about timers that are locked, which give up after five seconds.
fn calls(process: &Process, level: &str) -> Vec<JoinHandle<Result<(), DurableError>>> {
    let near = |verb: &str, place| format!("near {verb} {level} {place}");
    let call = |call: fn(&DurableTimers, &str) -> Result<(), DurableError>, id: String| {
        let timers = process.timers.clone();
        std::thread::spawn(move || call(&timers, &id))
    };
    vec![
        call(|timers, id| wait(timers.cancel(id)).map(drop), near("keep", 1)),
        call(|timers, id| wait(timers.reset(id, SECOND)).map(drop), near("cancel", 1)),
        call(|timers, id| wait(timers.pause_timer(id)).map(drop), near("update", 1)),
        call(|timers, id| inserted(timers, id, Existing::Keep), near("replace", 1)),
        call(|timers, id| inserted(timers, id, Existing::Replace), near("insert", 1)),
        call(|timers, id| inserted(timers, id, Existing::Update), near("insert", 2)),
        call(|timers, id| inserted(timers, id, Existing::Refuse), near("cancel", 2)),
    ]
}

fn inserted(timers: &DurableTimers, id: &str, existing: Existing) -> Result<(), DurableError> {
    let inserted = timers.insert(id, "", 86_400 * SECOND, Options::new().existing(existing));
    wait(inserted).map(drop).map_err(|refused| refused.reason)
}

/// Callers have locked timers that are due. All others are delivered meanwhile.
fn others_are_delivered(server: &PostgresServer, process: &Process, count: usize) {
    let all = VERBS.iter().flat_map(|verb| LEVELS.map(|level| (*verb, level)));
    let open: Vec<Open> =
        all.map(|(verb, level)| Open::begin(process, server, verb, level, count)).collect();
    let recorder = Recorder::over(process, 16);
    let begun = Instant::now();
    let is_called = count > 2;
    let calls = LEVELS.iter().filter(|_| is_called).flat_map(|level| calls(process, level));
    let calls: Vec<_> = calls.collect();
    let mut others = 0;
    while begun.elapsed() < open_time() {
        let some: Vec<String> = ids(8).iter().map(|id| format!("other {others} {id}")).collect();
        let keep = quick().existing(Existing::Keep);
        let inserted =
            some.iter().map(|id| process.timers.insert(id, "", SECOND / 5, keep.clone()));
        wait(futures_util::future::try_join_all(inserted)).unwrap();
        others += 8;
        sleep(SECOND / 4);
    }
    until("the other timers are delivered", || recorder.count("other ") == others);
    assert_eq!(recorder.count("near "), 0, "they are locked");
    for call in calls {
        let error = call.join().unwrap().unwrap_err();
        let is_told = |why: &str| why.contains("locked");
        assert!(matches!(&error, DurableError::Unreachable(why) if is_told(why)), "{error:?}");
    }
    nothing_has_waited(server);
    let mut expected = BTreeMap::new();
    for (place, open) in open.iter().enumerate() {
        // A call that gave up may be executed later, unless the timer is gone.
        let untouched = |number: &usize| !is_called || *number > 2;
        if let Some(payload) = open.end(process, place % 2 == 0) {
            for number in (1..=count).filter(untouched) {
                expected.insert(format!("near {} {number}", open.name), payload.to_vec());
            }
            expected.insert(format!("far {} 4", open.name), Vec::new());
        }
    }
    let (near, far): (BTreeMap<_, _>, BTreeMap<_, _>) =
        expected.into_iter().partition(|(id, _)| id.starts_with("near "));
    until("the timers of the transactions are delivered", || {
        let delivered = recorder.delivered.lock().unwrap();
        near.keys().all(|wanted| delivered.iter().any(|(id, _)| id == wanted))
    });
    for open in &open {
        let id = format!("far {} 4", open.name);
        assert_eq!(wait(process.timers.get(&id)).unwrap().is_some(), far.contains_key(&id), "{id}");
    }
    let attempts = recorder.worker.stop();
    for (id, payload) in &near {
        let delivered = recorder.delivered.lock().unwrap();
        let of_it: Vec<_> = delivered.iter().filter(|(seen, _)| seen == id).collect();
        assert_eq!(of_it, [&(id.clone(), payload.clone())], "once, and with what was committed");
    }
    let lost = attempts.iter().find(|event| matches!(event, Event::LeaseLost { .. }));
    assert_eq!(lost, None);
    server.order("delete from timers.timers");
}

#[test]
fn timers_that_callers_have_locked_delay_no_others() {
    for count in rows() {
        let Some(server) = PostgresServer::start(&LOGGED) else { return };
        let process = Process::in_schema(&server.url(), PostgresOptions::new("timers"));
        others_are_delivered(&server, &process, count);
    }
}

#[test]
fn timers_that_callers_have_locked_delay_no_others_behind_a_pooler() {
    let Some(server) = PostgresServer::start(&LOGGED) else { return };
    let Some(pooler) = Pooler::before(&server) else { return };
    let url = url(Ipv4Addr::LOCALHOST, &[pooler.port]);
    for count in rows() {
        let process = Process::in_schema(&url, PostgresOptions::new("timers").poll_only());
        others_are_delivered(&server, &process, count);
    }
}

/// Callers change timers whose attempts run, and keep their transactions open for several leases.
#[test]
#[allow(clippy::too_many_lines, reason = "one course of events")]
fn an_open_transaction_ends_no_attempt() {
    let Some(server) = PostgresServer::start(&LOGGED) else { return };
    let process = server.process();
    let all: Vec<_> = VERBS[..4]
        .iter()
        .flat_map(|(verb, call)| LEVELS.map(|level| (*verb, *call, level)))
        .flat_map(|(verb, call, level)| {
            ["short", "long"].map(|ends| (format!("{ends} {verb} {level}"), call, level))
        })
        .collect();
    let (release, released) = futures_channel::oneshot::channel::<()>();
    let (free, freed) = futures_channel::oneshot::channel::<()>();
    let short = futures_util::FutureExt::shared(released);
    let long = futures_util::FutureExt::shared(freed);
    // Each running attempt has a place, and none is left for the others.
    let worker = process.timers.worker().concurrency(all.len());
    let worker = Observed::start(worker, move |Delivery { id, .. }| {
        let ends = match () {
            () if id.starts_with("short") => Some(short.clone()),
            () if id.starts_with("long") => Some(long.clone()),
            () => None,
        };
        async move {
            if let Some(ends) = ends {
                let _ = ends.await;
            }
            Verdict::Done
        }
    });
    for (id, ..) in &all {
        wait(process.timers.insert(id, "", Duration::ZERO, quick().lease(3 * SECOND))).unwrap();
    }
    let running = "select count(*) from timers.states where fence is not null";
    server.wait_for("all run", |server| server.order(running) == all.len().to_string());
    let open: Vec<Client> = all
        .iter()
        .map(|(id, call, level)| {
            let client = client(&process, &server);
            process.execute(&client, &format!("begin isolation level {level}")).unwrap();
            let call = call.replace("(id", &format!("('{id}'"));
            process.execute(&client, &format!("select {call}")).unwrap();
            client
        })
        .collect();
    let begun = Instant::now();
    sleep(open_time() / 2);
    // These end while their timers are locked. They hold no places meanwhile.
    drop(release);
    let others = ids(100);
    for id in &others {
        wait(process.timers.insert(id, "", SECOND / 10, quick())).unwrap();
    }
    let mut ended = BTreeMap::<String, Vec<Attempt>>::new();
    let next = |ended: &mut BTreeMap<String, Vec<Attempt>>| match worker.next(|| ()) {
        Event::Attempt(attempt) => ended.entry(attempt.id.clone()).or_default().push(attempt),
        Event::LeaseLost { id, .. } => panic!("{id} is lost"),
        _ => {}
    };
    while others.iter().any(|id| !ended.contains_key(id)) {
        next(&mut ended);
    }
    assert_eq!(ended.len(), others.len(), "the others are locked: {ended:?}");
    sleep(open_time().saturating_sub(begun.elapsed()));
    nothing_has_waited(&server);
    for client in &open {
        process.execute(client, "rollback").unwrap();
    }
    drop(free);
    while ended.len() < others.len() + all.len() {
        next(&mut ended);
    }
    let left = worker.stop();
    let again =
        left.iter().find(|event| matches!(event, Event::Attempt(_) | Event::LeaseLost { .. }));
    assert_eq!(again, None);
    for (id, attempts) in &ended {
        let [Attempt { attempt: 1, outcome: Outcome::Acknowledged, .. }] = &attempts[..] else {
            panic!("{id}: {attempts:?}")
        };
    }
    assert_eq!(wait(process.timers.len()), Ok(0));
    assert_eq!(server.order("select count(*) from timers.leases"), "0");
}

/// Many callers insert an id that an open transaction has inserted or changed.
#[test]
fn a_hot_id_delays_no_others() {
    let Some(server) = PostgresServer::start(&LOGGED) else { return };
    let process = server.process();
    wait(process.timers.insert("changed", "", 86_400 * SECOND, quick())).unwrap();
    let open = client(&process, &server);
    for id in ["changed", "new"] {
        let insert =
            format!("select timers.insert('{id}', '', delay => '1 day', existing => 'replace')");
        process.execute(&open, &format!("begin; {insert}")).unwrap();
    }
    let hot: Vec<_> = (0..300)
        .map(|number| {
            let (timers, id) = (process.timers.clone(), ["changed", "new"][number % 2]);
            process.runtime.spawn(async move {
                let replace = Options::new().existing(Existing::Replace);
                timers.insert(id, "hot", 86_400 * SECOND, replace).await
            })
        })
        .collect();
    let all = ids(50);
    let inserted = all.iter().map(|id| process.timers.insert(id, "", 86_400 * SECOND, quick()));
    wait(futures_util::future::try_join_all(inserted)).unwrap();
    nothing_has_waited(&server);
    process.execute(&open, "commit").unwrap();
    for inserted in hot {
        assert_eq!(process.runtime.block_on(inserted).unwrap(), Ok(Inserted::Replaced));
    }
    assert_eq!(wait(process.timers.len()), Ok(52));
}

/// More timers are locked than a worker has in its wheel.
#[test]
fn more_locked_timers_than_a_window_has_delay_no_others() {
    let Some(server) = PostgresServer::start(&LOGGED) else { return };
    let process = server.process();
    let ids = "(select 'held ' || i as id from generate_series(1, 5000) as i) as ids";
    server.order(&format!("select count(timers.insert(id, '', delay => '1 s')) from {ids}"));
    let open = client(&process, &server);
    process.execute(&open, &format!("begin; select count(timers.cancel(id)) from {ids}")).unwrap();
    let recorder = Recorder::over(&process, 64);
    let begun = Instant::now();
    for number in 0.. {
        wait(process.timers.insert(&format!("other {number}"), "", SECOND / 5, quick())).unwrap();
        until("another timer is delivered", || recorder.count("other ") == number + 1);
        if begun.elapsed() > open_time() {
            break;
        }
    }
    process.execute(&open, "rollback").unwrap();
    until("the others are delivered", || recorder.count("held ") == 5000);
    drop(recorder.worker.stop());
    assert_eq!(wait(process.timers.len()), Ok(0));
}

/// Serializable transactions that cancel their own timers have nothing to do with each other.
#[test]
fn callers_that_cancel_other_timers_have_no_conflicts() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let ids = "(select c || ' ' || i as id from generate_series(0, 3) as c, \
               generate_series(1, 250) as i) as ids";
    server.order(&format!("select count(timers.insert(id, '', delay => '1 day')) from {ids}"));
    let failed: usize = std::thread::scope(|scope| {
        let (process, server) = (&process, &server);
        let callers: Vec<_> = (0..4)
            .map(|caller| {
                scope.spawn(move || {
                    let client = client(process, server);
                    let cancel = |number| {
                        let cancel = format!(
                            "begin isolation level serializable; \
                             select timers.cancel('{caller} {number}'); commit"
                        );
                        let done = process.execute(&client, &cancel);
                        if done.is_err() {
                            process.execute(&client, "rollback").unwrap();
                        }
                        usize::from(done.is_err())
                    };
                    (1..=250).map(cancel).sum::<usize>()
                })
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).sum()
    });
    assert!(failed < 10, "{failed} of 1000");
    assert_eq!(server.order("select count(*) from timers.timers"), failed.to_string());
}
