//! PostgreSQL servers that are replaced by their standby, read-only, full, slow and emptied.

#![allow(clippy::disallowed_methods, reason = "servers and workers are waited for")]

use crate::common::bench::{SECOND, wait};
use crate::common::host::Host;
use crate::common::postgres::OneSchema;
use crate::common::postgres_server::{PostgresServer, url};
use crate::common::process::{
    Process, Watch, all_are_acknowledged_once, ids, lateness, quick, runtime,
};
use std::net::Ipv4Addr;
use std::thread::sleep;
use std::time::SystemTime;
use tourbillon_durable::{
    Cancelled, DurableError, DurableTimers, Existing, Inserted, Label, Loss, Options, Postgres,
    PostgresOptions,
};

/// The reply to an insert into a server that may have to be repeated.
fn insert(timers: &DurableTimers, id: &str) -> Result<Inserted, DurableError> {
    wait(timers.insert(id, "", SECOND / 2, quick())).map_err(DurableError::from)
}

#[test]
fn a_standby_that_is_promoted_takes_over() {
    let Some(first) = PostgresServer::start(&[]) else { return };
    let second = first.standby(&[]);
    first.configure("synchronous_standby_names", "standby");
    let state = "select sync_state from pg_stat_replication";
    first.wait_for("its standby", |first| first.order(state) == "sync");
    // The standby is the first that is asked, and refuses.
    let both = url(Ipv4Addr::LOCALHOST, &[second.port, first.port]);
    let process = Process::in_schema(&both, PostgresOptions::new("timers"));
    let timers = &process.timers;
    let durability = wait(timers.durability()).unwrap();
    assert_eq!((durability.killed, durability.power_failure), (Loss::Nothing, Loss::Nothing));
    assert_eq!(durability.replicas, 1);
    let work = process.work();
    let (before, after) = (ids(200), ids(400).split_off(200));
    let schedule = before.iter().map(|id| timers.insert(id, "", 2 * SECOND, quick()));
    let scheduled = wait(futures_util::future::join_all(schedule));
    assert!(scheduled.iter().all(|scheduled| *scheduled == Ok(Inserted::New)), "{scheduled:?}");
    first.kill();
    second.promote();
    let schedule = after.iter().map(|id| timers.insert(id, "", SECOND, quick()));
    let scheduled = wait(futures_util::future::join_all(schedule));
    assert!(scheduled.iter().all(|scheduled| *scheduled == Ok(Inserted::New)), "{scheduled:?}");
    assert_eq!(wait(timers.durability()).unwrap().replicas, 0);
    all_are_acknowledged_once(timers, vec![work], [before, after].concat());
}

#[test]
fn a_server_that_forbids_writing_is_told_apart_and_waited_for() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let timers = &process.timers;
    let work = process.work();
    assert_eq!(wait(timers.insert("due meanwhile", "", 4 * SECOND, quick())), Ok(Inserted::New));
    server.configure("default_transaction_read_only", "on");
    // First on a connection that exists, once its process has read the setting, and then on a new
    // one.
    let replace = quick().existing(Existing::Replace);
    let insert = || {
        let inserted = wait(timers.insert("another", "", 86_400 * SECOND, replace.clone()));
        inserted.map_err(DurableError::from)
    };
    for _ in 0..2 {
        let refused = std::iter::repeat_with(insert).find_map(Result::err).unwrap();
        assert!(matches!(refused, DurableError::ReadOnly(_)), "{refused:?}");
    }
    sleep(6 * SECOND);
    assert!(work.acknowledged.try_recv().is_err(), "it cannot be leased");
    server.configure("default_transaction_read_only", "off");
    assert_eq!(work.next(), "due meanwhile");
    assert_eq!(work.stop(), [""; 0]);
}

#[test]
fn a_database_with_another_encoding_is_refused() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    server.order("create database latin encoding 'LATIN1' template template0 locale 'C'");
    let url = format!("{}latin", server.url().trim_end_matches("postgres"));
    let refused = runtime().block_on(Postgres::connect(&url, "timers")).unwrap_err();
    let DurableError::Address(what) = refused else { panic!("{refused:?}") };
    assert!(what.contains("LATIN1"), "{what}");
}

#[test]
fn statements_that_take_too_long_are_repeated() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let timers = &process.timers;
    let work = process.work();
    assert_eq!(insert(timers, "due meanwhile"), Ok(Inserted::New));
    // No statement can wait for this lock.
    server.configure("statement_timeout", "500ms");
    let holds = "begin; lock table timers.timers; select pg_sleep(2); commit";
    std::thread::scope(|scope| {
        scope.spawn(|| server.order(holds));
        let lock = "select count(*) from pg_locks where mode = 'AccessExclusiveLock'";
        server.wait_for("the lock", |server| server.order(lock) != "0");
        assert_eq!(insert(timers, "waits"), Ok(Inserted::New));
    });
    server.configure("statement_timeout", "0");
    let acknowledged = std::collections::BTreeSet::from([work.next(), work.next()]);
    assert!(acknowledged.contains("waits"), "{acknowledged:?}");
    assert_eq!(work.stop(), [""; 0]);
}

/// Without notices of other processes' timers, a worker finds them by itself.
#[test]
fn without_notices_timers_are_a_second_late_at_most() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let polls = PostgresOptions::new("timers").poll_only();
    let (process, other) = (Process::in_schema(&server.url(), polls), server.process());
    let watch = Watch::over(&process);
    sleep(2 * SECOND);
    let (all, begun) = (ids(200), SystemTime::now());
    for id in &all {
        wait(other.timers.insert(id, "", SECOND / 2, quick())).unwrap();
        sleep(SECOND / 20);
    }
    sleep(3 * SECOND);
    let come: Vec<_> = watch.delivered.try_iter().collect();
    assert_eq!(come.len(), all.len());
    let (_, p99, worst) = lateness(&come, begun);
    assert!(p99 < SECOND * 3 / 2, "p99 {p99:?}, at most {worst:?}");
    assert_eq!(watch.stop(), []);
}

#[test]
fn what_is_too_much_for_one_answer_comes_in_several() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let all = ids(40);
    for id in &all {
        wait(process.timers.insert(id, vec![7; 1 << 20], SECOND, quick())).unwrap();
    }
    let page = wait(process.timers.list(None, 40)).unwrap();
    assert!((8..=10).contains(&page.len()), "{} timers", page.len());
    all_are_acknowledged_once(&process.timers, vec![process.work()], all);
}

#[test]
fn a_store_with_another_layout_is_refused() {
    let Some(bench) = OneSchema::bench() else { return };
    bench.place.order("update tb.store set layout = 9");
    let format = DurableError::Format { found: 9, known: 1 };
    assert_eq!(bench.place.try_open().unwrap_err(), format);
    bench.place.order("update tb.store set layout = 1");
    assert!(bench.place.try_open().is_ok());
}

#[cfg(not(feature = "postgres-tls"))]
#[test]
fn an_address_that_needs_tls_names_the_feature() {
    let url = "postgres://postgres@127.0.0.1:1/postgres?sslmode=require";
    let refused = runtime().block_on(Postgres::connect(url, "timers")).unwrap_err();
    let named = |why: &str| why.contains("127.0.0.1:1: ") && why.contains("`postgres-tls`");
    assert!(matches!(&refused, DurableError::Address(why) if named(why)), "{refused:?}");
}

#[test]
fn a_server_that_is_away_is_told_apart() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = Process::in_schema(&server.url(), PostgresOptions::new("timers"));
    server.kill();
    let begun = SystemTime::now();
    let gone = insert(&process.timers, "id").unwrap_err();
    assert!(matches!(gone, DurableError::Unreachable(_)), "{gone:?}");
    assert!(begun.elapsed().unwrap() < 20 * SECOND);
    let connects = async { Postgres::connect(&server.url(), "timers").await };
    let gone = runtime().block_on(connects).unwrap_err();
    assert!(matches!(gone, DurableError::Unreachable(_)), "{gone:?}");
    // The call that gave up is not executed afterwards.
    server.resume();
    assert_eq!(insert(&process.timers, "another"), Ok(Inserted::New));
    sleep(SECOND);
    assert_eq!(wait(process.timers.len()), Ok(1));
}

#[test]
fn processes_that_create_a_store_at_once_create_one() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let begin = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        let started = (0..8).map(|number: u32| {
            let (server, begin) = (&server, &begin);
            scope.spawn(move || {
                begin.wait();
                let process = server.process();
                let day = 86_400 * SECOND;
                wait(process.timers.insert(&format!("{number}"), "", day, quick())).unwrap();
                process
            })
        });
        let started: Vec<_> = started.collect();
        let processes: Vec<Process> = started.into_iter().map(|it| it.join().unwrap()).collect();
        for process in &processes {
            assert_eq!(wait(process.timers.len()), Ok(8));
        }
    });
}

#[test]
fn a_schema_that_is_dropped_ends_the_worker_and_can_be_created_again() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let worker = process.timers.worker();
    let run = std::thread::spawn(move || wait(worker.run(|_| async { Ok::<(), String>(()) })));
    sleep(SECOND);
    // The worker may hold a lock.
    server.wait_for("the drop", |server| server.say("drop schema timers cascade").is_some());
    let begun = SystemTime::now();
    while !run.is_finished() {
        assert!(begun.elapsed().unwrap() < 60 * SECOND, "the run goes on");
        sleep(SECOND / 100);
    }
    assert!(run.join().unwrap().is_err());
    assert!(insert(&process.timers, "id").is_err());
    let again = server.process();
    let work = again.work();
    assert_eq!(insert(&again.timers, "id"), Ok(Inserted::New));
    assert_eq!(work.next(), "id");
    assert_eq!(work.stop(), [""; 0]);
}

#[test]
fn renewals_and_retries_leave_the_payload_where_it_is() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let timers = &process.timers;
    let options = Options::new().lease(2 * SECOND);
    wait(timers.insert("id", vec![7; 1 << 20], SECOND / 10, options)).unwrap();
    let place = || server.order("select ctid, xmin from timers.timers where id = 'id'");
    let before = place();
    let worker = timers.worker();
    let (send, begun) = std::sync::mpsc::channel();
    let (end, ends) = futures_channel::oneshot::channel::<()>();
    let run = worker
        .until(async move {
            let _ = ends.await;
        })
        .run(move |delivery| {
            let (fail, fails) = futures_channel::oneshot::channel::<()>();
            send.send((delivery, fail)).unwrap();
            fails
        });
    let run = std::thread::spawn(move || wait(run));
    for _ in 0..2 {
        let (delivery, fail) = begun.recv_timeout(60 * SECOND).unwrap();
        let (first, since) = (delivery.lease.expires(), SystemTime::now());
        while delivery.lease.expires() == first {
            assert!(since.elapsed().unwrap() < 60 * SECOND, "the lease is never renewed");
            sleep(SECOND / 100);
        }
        drop(fail);
    }
    drop(end);
    run.join().unwrap().unwrap();
    assert_eq!(place(), before);
}

#[test]
fn timers_are_found_by_their_id_alone_while_the_tables_look_empty() {
    const COUNT: usize = 5000;
    let Some(server) = PostgresServer::start(&[]) else { return };
    let holder = {
        // The server forgets its plans with the connections of this process.
        let process = server.process();
        let timers = &process.timers;
        let holder = server.hold_snapshot();
        let all = ids(COUNT);
        let insert = |delay| {
            let inserts = all.iter().map(move |id| timers.insert(id, "", delay, quick()));
            let inserted = wait(futures_util::future::join_all(inserts));
            assert!(inserted.iter().all(|inserted| *inserted == Ok(Inserted::New)));
        };
        insert(60 * SECOND);
        let cancelled =
            wait(futures_util::future::join_all(all.iter().map(|id| timers.cancel(id))));
        assert!(cancelled.iter().all(|cancelled| *cancelled == Ok(Cancelled::Removed)));
        server.order("vacuum analyze timers.timers, timers.states");
        insert(SECOND / 10);
        all_are_acknowledged_once(timers, vec![process.work_at(256)], all.clone());
        holder
    };
    server.release_snapshot(holder);
    let clients = "select count(*) from pg_stat_activity where backend_type = 'client backend'";
    server.wait_for("the end of all connections", |server| server.order(clients) == "1");
    let scans = |index: &str| {
        let sql =
            format!("select idx_scan from pg_stat_user_indexes where indexrelname = '{index}'");
        server.order(&sql).parse::<usize>().unwrap()
    };
    let [by_id, timers, states] = ["states_pkey", "timers_due", "states_key"].map(scans);
    assert!(by_id > 2 * COUNT, "each is looked up when it is leased and at its end: {by_id}");
    // For the keys that are due. A scan for an id passes all entries.
    assert!(timers < COUNT && states < COUNT, "{timers} {states}");
}

#[test]
fn a_letter_is_found_without_reading_others() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    drop(server.process());
    server.order(
        "insert into timers.letters (number, died, attempt, reason, error, due, planned, first, \
           most, attempts, lease, jitter, id, payload, labels) \
         select i, i, 1, 0, '', 1, 1, 1, 1, 8, 15000, true, i, '', array['shop'] \
         from generate_series(1, 5000) i",
    );
    let label = |text| Label::new(text).unwrap();
    let read = |look_up: &dyn Fn(&DurableTimers)| {
        let sql = "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) \
            from pg_stat_user_tables where relname in ('letters', 'letter_labels')";
        let clients = "select count(*) from pg_stat_activity where backend_type = 'client backend'";
        server.order("select pg_stat_reset()");
        look_up(&server.process().timers);
        // A connection reports its numbers at its end.
        server.wait_for("the end of all connections", |server| server.order(clients) == "1");
        server.order(sql).parse::<u64>().unwrap()
    };
    for analysed in [false, true] {
        if analysed {
            server.order("vacuum analyze timers.letters, timers.letter_labels");
        }
        let unknown = read(&|timers| {
            assert_eq!(wait(timers.newest_dead_letters_of("none", None, 9)), Ok(vec![]));
            assert_eq!(wait(timers.dead_letters_with_label(&label("none"), None, 9)), Ok(vec![]));
        });
        assert!(unknown < 10, "{unknown} {analysed}");
        let known = read(&|timers| {
            assert_eq!(wait(timers.newest_dead_letters_of("7", None, 9)).unwrap()[0].number, 7);
            let page = wait(timers.newest_dead_letters_with_label(&label("shop"), Some(4000), 2));
            assert_eq!(page.unwrap().first().map(|letter| letter.number), Some(3999));
        });
        assert!((3..20).contains(&known), "{known} {analysed}");
    }
}
