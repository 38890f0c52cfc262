//! Lasting faults of a server of PostgreSQL, each with a worker and a stream of timers.
//!
//! - `open-transaction`. A caller's transaction cancels 3,000 timers, stays open for a minute while
//!   they fall due, and is rolled back. The timers of the stream are at most three times as late
//!   (p99) as without it, and in the end all are delivered.
//! - `held-locks`. A role without rights holds each advisory lock that a store could use. The
//!   stream is less than a second late (p99), another process connects, and the store is paused and
//!   resumed.
//! - `logical-promotion`. A store is copied by logical replication, and the copy is used from then
//!   on. The copy delivers the resting timers, and timers that die there become dead letters beside
//!   the copied ones.
//! - `maintenance`. The database allows no connections for some seconds. The worker waits, and all
//!   are delivered in the end.

#![allow(clippy::zombie_processes, reason = "an error ends the program, and its server the client")]

use crate::Failure;
use crate::postgres_server::PostgresServer;
use crate::stream::{Lateness, Work, stream};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};
use tokio::time::sleep;
use tourbillon::Builder;
use tourbillon::future::Timer;
use tourbillon_durable::{DurableTimers, Options, Postgres, When};

const MISSING: &str = "PostgreSQL is not installed";

/// The number of timers that a transaction locks.
const LOCKED: usize = 3_000;

/// The number of seconds that this transaction stays open.
const OPEN: u64 = 60;

/// The interval of the stream.
const STEP: Duration = Duration::from_millis(10);

/// The lateness that a busy machine causes by itself.
const NOISE: Duration = Duration::from_millis(100);

async fn connect(server: &PostgresServer) -> Result<DurableTimers, Failure> {
    let store = Postgres::connect(&server.url(), "timers").await?;
    Ok(DurableTimers::new(store, &Timer::spawn(Builder::new().driver())?))
}

async fn insert(
    timers: &DurableTimers,
    ids: impl IntoIterator<Item = String>,
    when: impl Into<When> + Copy,
    options: &Options,
) -> Result<BTreeSet<String>, Failure> {
    let mut inserted = BTreeSet::new();
    for id in ids {
        timers.insert(&id, "", when, options.clone()).await.map_err(|refused| refused.reason)?;
        inserted.insert(id);
    }
    Ok(inserted)
}

pub(crate) async fn open_transaction() -> Result<bool, Failure> {
    let server = PostgresServer::start(&[]).ok_or(MISSING)?;
    let (timers, other) = (connect(&server).await?, connect(&server).await?);
    let work = Work::of(&timers);
    let mut seen = Vec::new();
    let begun = SystemTime::now();
    let alone = stream(&other, "alone", 2_000, STEP).await?;
    let mut all = work.until_all_have_come(&alone, &mut seen).await;
    let before = Lateness::of(&seen, begun);
    println!("without the transaction: {before}");

    let locked: BTreeSet<String> = (0..LOCKED).map(|number| format!("locked {number}")).collect();
    let each = format!("from generate_series(0, {}) number", LOCKED - 1);
    server.order(&format!(
        "select count(timers.insert('locked ' || number, '', delay => '12 s')) {each}"
    ));
    let mut holder = server.begin(&format!(
        "begin; select count(timers.cancel('locked ' || number)) {each}; \
         select pg_sleep({OPEN}); rollback"
    ));
    server.wait_for("the locks", |server| {
        let free = "select from timers.timers where id like 'locked %' for update skip locked";
        server.order(&format!("select count(*) = 0 from ({free}) as free")) == "t"
    });
    seen.clear();
    // They fall due.
    sleep(Duration::from_secs(15)).await;
    seen.extend(work.seen.try_iter());
    let early = seen.iter().filter(|seen| seen.id.starts_with("locked")).count();
    let begun = SystemTime::now();
    let beside = stream(&other, "beside", 4_000, STEP).await?;
    all &= work.until_all_have_come(&beside, &mut seen).await;
    let during = Lateness::of(&seen, begun);
    let open = holder.try_wait()?.is_none();
    println!("beside {LOCKED} timers that it has locked: {during}; it was open: {open}");
    holder.wait()?;
    all &= work.until_all_have_come(&locked, &mut seen).await;
    println!("{early} of the locked ones came while it was open; all came: {all}");
    work.end().await?;
    let well = during.p99 <= (3 * before.p99).max(NOISE);
    Ok(all && well && open && early == 0 && beside.len() == 4_000)
}

pub(crate) async fn held_locks() -> Result<bool, Failure> {
    let server = PostgresServer::start(&[]).ok_or(MISSING)?;
    let (timers, other) = (connect(&server).await?, connect(&server).await?);
    server.order("create role stranger");
    // By number, by pair of numbers, and by hash of the name of the schema with a number.
    let mut holder = server.begin(
        "set session authorization stranger; \
         select count(pg_advisory_lock(number)) from generate_series(-64, 64) number; \
         select count(pg_advisory_lock(number, other)) \
         from generate_series(0, 16) number, generate_series(0, 16) other; \
         select count(pg_advisory_lock(hashtextextended(name, number))) \
         from unnest(array['timers', 'timers.', '\"timers\"', '\"timers\".']) name, \
         generate_series(0, 64) number; select pg_sleep(86400)",
    );
    server.wait_for("the locks", |server| {
        server.order("select count(*) > 500 from pg_locks where locktype = 'advisory'") == "t"
    });
    let work = Work::of(&timers);
    let (begun, mut seen) = (SystemTime::now(), Vec::new());
    let scheduled = stream(&other, "beside", 1_000, STEP).await?;
    let all = work.until_all_have_come(&scheduled, &mut seen).await;
    let late = Lateness::of(&seen, begun);
    println!("{} scheduled beside the locks, {late}; all came: {all}", scheduled.len());
    let limit = Duration::from_secs(10);
    let connected = tokio::time::timeout(limit, connect(&server)).await.is_ok_and(|it| it.is_ok());
    let pauses = async { Ok::<_, Failure>((timers.pause().await?, timers.resume().await?)) };
    let paused = tokio::time::timeout(limit, pauses).await.is_ok_and(|it| it.is_ok());
    println!("another process connects: {connected}; the store is paused and resumed: {paused}");
    holder.kill()?;
    holder.wait()?;
    work.end().await?;
    let well = late.p99 < Duration::from_secs(1);
    Ok(all && well && connected && paused && scheduled.len() == 1_000)
}

pub(crate) async fn logical_promotion() -> Result<bool, Failure> {
    let settings = ["wal_level=logical"];
    let former = PostgresServer::start(&settings).ok_or(MISSING)?;
    let next = PostgresServer::start(&settings).ok_or(MISSING)?;
    let timers = connect(&former).await?;
    let once = Options::new().attempts(1);
    let dead = |from: usize| (from..from + 3).map(|number| format!("dead {number}"));
    insert(&timers, dead(0), Duration::ZERO, &once).await?;
    until_dead(&timers, 3).await?;
    let ids = (0..1_000).map(|number| format!("resting {number}"));
    let resting = insert(&timers, ids, Duration::from_secs(20), &Options::new()).await?;

    // Its tables exist, and are empty.
    drop(connect(&next).await?);
    next.order(
        "do $$ declare name text; begin \
         for name in select tablename from pg_tables where schemaname = 'timers' loop \
         execute format('truncate timers.%I cascade', name); end loop; end $$",
    );
    former.order("create publication upgrade for all tables");
    next.order(&format!(
        "create subscription upgrade connection \
         'host=127.0.0.1 port={} user=postgres dbname=postgres' publication upgrade",
        former.port
    ));
    next.wait_for("the copy", |next| {
        next.order("select bool_and(srsubstate = 'r') from pg_subscription_rel") == "t"
            && next.order("select count(*) from timers.timers") == "1000"
    });
    drop(timers);
    next.order("drop subscription upgrade");
    former.kill();

    let timers = connect(&next).await?;
    insert(&timers, dead(3), Duration::ZERO, &once).await?;
    let died = until_dead(&timers, 6).await.is_ok();
    let work = Work::of(&timers);
    let mut seen = Vec::new();
    let all = work.until_all_have_come(&resting, &mut seen).await;
    let letters = timers.dead_letters(None, 10).await?.len();
    println!("{letters} of 6 dead letters; all that rested came: {all}");
    let ended = work.end().await;
    println!("the worker: {ended:?}");
    Ok(died && all && letters == 6 && ended.is_ok())
}

/// Runs a worker whose handler fails until there are this many dead letters.
async fn until_dead(timers: &DurableTimers, count: u64) -> Result<(), Failure> {
    let worker = timers.worker().until({
        let timers = timers.clone();
        async move {
            while timers.dead_len().await.is_ok_and(|dead| dead < count) {
                sleep(Duration::from_millis(50)).await;
            }
        }
    });
    let run = worker.run(|_| async { Err::<(), _>("no") });
    Ok(tokio::time::timeout(Duration::from_secs(30), run).await??)
}

pub(crate) async fn maintenance() -> Result<bool, Failure> {
    let server = PostgresServer::start(&[]).ok_or(MISSING)?;
    let (timers, other) = (connect(&server).await?, connect(&server).await?);
    let work = Work::of(&timers);
    let ids = (0..1_000).map(|number| format!("{number}"));
    let (due, options) = (SystemTime::now() + Duration::from_secs(5), Options::new());
    let scheduled = insert(&other, ids, due, &options).await?;
    let allow = |allowed: bool| {
        let sql = format!("alter database postgres allow_connections {allowed}");
        server.order_in("template1", &sql);
    };
    allow(false);
    server.order_in(
        "template1",
        "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = 'postgres'",
    );
    sleep(Duration::from_secs(10)).await;
    let waited = !work.has_ended();
    allow(true);
    let mut seen = Vec::new();
    let all = waited && work.until_all_have_come(&scheduled, &mut seen).await;
    println!("the worker waited: {waited}; all came: {all}");
    let ended = work.end().await;
    println!("the worker: {ended:?}");
    Ok(waited && all && ended.is_ok())
}
