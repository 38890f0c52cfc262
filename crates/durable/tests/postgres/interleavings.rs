//! The SQL functions of a store in transactions that overlap, and their plans.

#![allow(clippy::disallowed_methods, reason = "an insert waits in a thread of its own")]

use crate::client::{batch, client};
use crate::common::bench::{SECOND, wait};
use crate::common::host::Host;
use crate::common::postgres_server::PostgresServer;
use crate::common::process::{Process, ids, quick};
use std::collections::BTreeSet;
use std::time::{Duration, UNIX_EPOCH};
use tourbillon_durable::{Cancelled, DurableError, Existing, Inserted, Options};

/// The planner counts a scan of a whole small table as expensive, because it has to avoid such
/// plans for large tables. It must not compile code for it in each call, or read all rows that a
/// bitmap has instead, because most of them may be dead while a transaction is open.
#[test]
fn no_function_that_avoids_scans_compiles_its_plans_or_makes_bitmaps() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let _process = server.process();
    let others = "select count(*) > 5, \
                  count(*) filter (where not '{jit=off,enable_bitmapscan=off}' <@ proconfig) \
                  from pg_proc where 'enable_seqscan=off' = any (proconfig)";
    assert_eq!(server.order(others), "t|0");
}

/// A lease is renewed while another worker takes it over, because it has expired.
#[test]
fn a_lease_that_is_renewed_is_not_taken_over() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let timer = "insert into timers.timers values \
                 (1000, 1000, 0, 0, null, null, null, 8, 15000, true, 'id', null, null, null, '')";
    server.order(timer);
    let lease =
        |at: u32| format!("select answer, due from timers.lease_row('id', false, false, {at})");
    assert_eq!(server.order(&lease(2000)), "2|17000");
    let renewing = client(&process, &server);
    let renew = "begin; select timers.renew_row(id, fence, 17500) from timers.states";
    let renewed = process.execute(&renewing, renew).unwrap();
    assert_eq!(renewed.as_deref(), Some("(1,32500,15000,)"));
    let taken = std::thread::scope(|scope| {
        let taken = scope.spawn(|| server.order(&lease(17_600)));
        let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
        server.wait_for("the other lease waits", |server| server.order(waits) == "1");
        process.execute(&renewing, "commit").unwrap();
        taken.join().unwrap()
    });
    assert_eq!(taken, "1|32500");
    let token = server.order("select fence from timers.states");
    assert_eq!(server.order(&lease(32_500)), "3|47500");
    // The first lease no longer counts.
    let renew = format!("select answer from timers.renew_row('id', {token}, 40000)");
    assert_eq!(server.order(&renew), "0");
    let end = format!(
        "select answer from timers.finish_row('id', {token}, 'done', null, null, null, null, null, \
         null, null, 40000)"
    );
    assert_eq!(server.order(&end), "0");
    assert_eq!(server.order("select due from timers.states"), "47500");
    // A paused store grants none, except of a timer that is copied.
    let paused = |takes| format!("select answer from timers.lease_row('id', {takes}, true, 50000)");
    assert_eq!(
        (server.order(&paused(false)), server.order(&paused(true))),
        ("4".into(), "3".into())
    );
    // Now it is the renewal that comes second.
    let token = server.order("select fence from timers.states");
    let taking = client(&process, &server);
    process.execute(&taking, &format!("begin; {}", lease(70_000))).unwrap();
    let renew = format!("select answer from timers.renew_row('id', {token}, 70000)");
    let renewed = std::thread::scope(|scope| {
        let renewed = scope.spawn(|| server.order(&renew));
        server.wait_for("the renewal waits", |server| server.order(WAITS) == "1");
        process.execute(&taking, "commit").unwrap();
        renewed.join().unwrap()
    });
    assert_eq!(renewed, "0");
    assert_eq!(server.order(&lease(70_001)), "1|85000");
}

/// The sessions that wait for a lock.
const WAITS: &str = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";

/// A caller's transaction has locked a timer whose attempt runs, and may stay open for long.
#[test]
fn an_operation_on_a_locked_timer_waits_for_nothing() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let caller = client(&process, &server);
    let of_worker = client(&process, &server);
    for id in ["free", "held"] {
        wait(process.timers.insert(id, "", SECOND / 100, quick())).unwrap();
    }
    let due = "select bool_and(timers.clock() >= due) from timers.timers";
    server.wait_for("they are due", |server| server.order(due) == "t");
    let answers = |number, kind| {
        let executed = batch(number, false, kind, &["free", "held"], "timers.clock()");
        let all = format!("select string_agg(answer::text, ' ') from ({executed}) as it");
        process.execute(&of_worker, &all).map(Option::unwrap)
    };
    process.execute(&caller, "begin; select timers.cancel('held')").unwrap();
    assert_eq!(answers(1, "lease").as_deref(), Ok("2 -1"));
    for (number, kind) in [(2, "reset"), (3, "cancel")] {
        assert!(answers(number, kind).unwrap().ends_with(" -1"), "{kind}");
    }
    process.execute(&caller, "rollback").unwrap();
    let lease = "select fence from timers.lease_row('held', false, false, null)";
    let token = server.order(lease);
    process.execute(&caller, "begin; select timers.cancel('held')").unwrap();
    let renew = format!("select answer from timers.renew_row('held', {token}, null)");
    let end = format!(
        "select answer from timers.finish_row('held', {token}, 'done', null, null, null, null, \
         null, null, null, null)"
    );
    // A heartbeat needs no lock of the caller's.
    assert_eq!((server.order(&renew), server.order(&end)), ("1".to_owned(), "-1".to_owned()));
    process.execute(&caller, "commit").unwrap();
    assert_eq!((server.order(&renew), server.order(&end)), ("2".to_owned(), "1".to_owned()));
    assert_eq!(server.order("select count(*) from timers.timers where id = 'held'"), "0");
}

/// Two writers have read the same timer, and the second comes before the first has ended.
#[test]
fn a_timer_is_locked_from_the_check_of_a_condition_on() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let [one, other] = [(); 2].map(|()| client(&process, &server));
    let condition = r#"'["version", "1"]'"#;
    let check = format!("select timers.check_last('id', {condition})");
    let cancel = |writer: u32, number| {
        batch(number, false, "cancel", &["id"], "null")
            .replace("a_process => 1", &format!("a_process => {writer}"))
            .replace("notes => '{}'::text[]", &format!("notes => array[{condition}]"))
    };
    let insert = |headers: &str| {
        let values = format!("'id', '', delay => '1 day', headers => '{headers}'");
        server.order(&format!("select timers.insert({values})"));
    };
    assert_eq!(server.order(&check), "7", "there is no timer");
    insert(r#"{"version": "1"}"#);
    assert_eq!(process.execute(&one, &format!("begin; {check}")), Ok(Some("0".to_owned())));
    assert_eq!(process.execute(&other, &check), Ok(Some("-1".to_owned())));
    assert_eq!(process.execute(&one, &cancel(1, 1)), Ok(Some("1".to_owned())));
    assert_eq!(process.execute(&other, &cancel(2, 1)), Ok(Some("-1".to_owned())));
    process.execute(&one, "commit").unwrap();
    assert_eq!(process.execute(&other, &cancel(2, 2)), Ok(Some("7".to_owned())));
    // Another client may have written a header twice, and the first header counts.
    insert(r#"[["other", "1"], ["version", "1"], ["version", "2"]]"#);
    assert_eq!(wait(process.timers.cancel_only("id", "version", Some("2"))), CHANGED);
    let cancelled = wait(process.timers.cancel_only("id", "version", Some("1")));
    assert_eq!(cancelled, Ok(Cancelled::Removed));
}

const CHANGED: Result<Cancelled, DurableError> = Err(DurableError::Changed);

/// The lock of an id that was inserted and not committed is not seen before it is waited for.
#[test]
fn an_operation_that_has_to_wait_fails_alone() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let [caller, of_worker] = [(); 2].map(|()| client(&process, &server));
    process.execute(&of_worker, "set statement_timeout = '30s'").unwrap();
    process.execute(&caller, "begin; select timers.insert('held', '', delay => '1 day')").unwrap();
    let letters = |number| {
        // A letter whose timer would have the id that is held, and another letter.
        let all = format!(
            "insert into timers.letters (number, died, attempt, reason, error, due, planned, first, \
               most, attempts, lease, jitter, id, payload) \
             select {number} + i, 1, 1, 0, '', 1, 1, 1, 1, 8, 15000, true, (array['held', 'free'])[i], '' \
             from generate_series(1, 2) as i"
        );
        server.order(&all);
    };
    letters(0);
    let redrive = batch(1, false, "redrive", &["held", "free"], "null")
        .replace("fences => '{}'::bigint[]", "fences => array[1, 2]");
    assert_eq!(process.execute(&of_worker, &redrive), Err("55P03".to_owned()));
    let careful = redrive.replace("careful => false", "careful => true");
    let all = format!("select string_agg(answer::text, ' ') from ({careful}) as it");
    assert_eq!(process.execute(&of_worker, &all), Ok(Some("-1 1".to_owned())));
    assert_eq!(server.order("select string_agg(id, ' ') from timers.timers"), "free");
    process.execute(&caller, "rollback").unwrap();
}

/// A lease that was renewed leaves its end, which has no effect on the next lease.
#[test]
fn the_end_of_a_renewed_lease_is_forgotten() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    wait(process.timers.insert("id", "", 86_400 * SECOND, quick())).unwrap();
    let leases = || server.order("select count(*) from timers.leases");
    let lease = |at: i64| {
        server.order(&format!("select answer, due from timers.lease_row('id', false, false, {at})"))
    };
    let stale =
        "insert into timers.leases (id, fence, until) values ('id', 1, 9000), ('gone', 1, 9000)";
    server.order(stale);
    server.order("update timers.timers set due = 5000");
    assert_eq!(lease(4000), "1|5000", "it is not leased until then");
    assert_eq!(leases(), "1");
    assert_eq!(
        server.order("select answer from timers.lease_row('gone', false, false, 9000)"),
        "0"
    );
    assert_eq!(leases(), "0");
    server.order(stale);
    assert_eq!(lease(5000), "2|20000");
    // The pages have it once, with the end of its lease.
    let keys = || server.order("select due, id from timers.keys(0, '', false, 99999, 9, null)");
    assert_eq!(keys(), "9000|gone\n9000|id\n20000|id");
    server.order("select timers.renew_row('id', fence, 10000) from timers.states");
    assert_eq!(keys(), "9000|gone\n25000|id");
    assert_eq!(server.order("select due, key from timers.records"), "25000|25000");
    server.order("delete from timers.timers; select timers.remove_strays()");
    assert_eq!(leases(), "0");
}

/// A transaction sees a timer that rests after a failed attempt. Meanwhile it is leased again.
#[test]
fn a_transaction_that_sees_an_old_state_is_refused() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let client = client(&process, &server);
    let insert = "select timers.insert('id', '', delay => '0', existing => 'keep')";
    let lease = "select answer from timers.lease_row('id', false, false, null)";
    assert_eq!(server.order(insert), "new");
    assert_eq!(server.order(lease), "2");
    let retry = "select done.answer from timers.states, timers.finish_row(id, fence, 'retry', null, \
                 0, '', null, null, null, null, 0) as done";
    assert_eq!(server.order(retry), "1");
    for level in ["repeatable read", "serializable"] {
        let begins = format!("begin isolation level {level}; select count(*) from timers.states");
        process.execute(&client, &begins).unwrap();
        assert_eq!(server.order(lease), "2");
        // It would be kept for the attempt that runs already.
        assert_eq!(process.execute(&client, insert), Err("40001".to_owned()));
        process.execute(&client, "rollback").unwrap();
        assert_eq!(server.order(retry), "1");
    }
}

/// Each heartbeat leaves a dead row while a transaction is open.
#[test]
fn the_workers_are_not_read_for_each_part() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let _process = server.process();
    let load = "select cardinality(parts) \
                from timers.load(1, 1, false, 0, '', false, 9000, 10, 5000)";
    let read = "select pg_stat_get_xact_numscans('timers.workers'::regclass) < 10";
    assert_eq!(server.order(&format!("begin; {load}; {read}")), "64\nt");
}

/// While a transaction is open, the index keeps the entries of all replies to a process.
#[test]
fn the_replies_before_the_last_are_not_read() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let _process = server.process();
    let holder = server.hold_snapshot();
    server.order(
        "insert into timers.batches select 1, number, clock_timestamp(), 0, '{}', '{}', '{}', '{}' \
         from generate_series(1, 1000) as number; \
         delete from timers.batches where number < 1000",
    );
    server.order("analyze timers.batches");
    let cancel = batch(1001, false, "cancel", &["id"], "null");
    let read = "select pg_stat_get_xact_tuples_returned('timers.batches_pkey'::regclass)";
    let told = server.order(&format!("begin; {cancel}; {read}"));
    let read: u32 = told.lines().last().unwrap().parse().unwrap();
    assert!((1..10).contains(&read), "{read}");
    server.release_snapshot(holder);
}

/// Planning a statement for the values of one call takes longer than executing it.
#[test]
fn a_batch_is_executed_with_plans_that_exist() {
    let counting = ["shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track=all"];
    let settings = [&counting[..], &["pg_stat_statements.track_planning=on"]].concat();
    let Some(server) = PostgresServer::start(&settings) else { return };
    server.order("create extension pg_stat_statements");
    let process = server.process();
    for id in ["id", "other"] {
        wait(process.timers.insert(id, "", Duration::ZERO, quick())).unwrap();
    }
    let batches = |first| -> String {
        let kinds = ["lease", "renew", "reset", "cancel"];
        let one = |(number, kind)| batch(number, false, kind, &["id", "other"], "null") + ";";
        (first..).zip(kinds).map(one).collect()
    };
    // The first ones make the plans.
    let (first, last) = (batches(1) + &batches(11), batches(21));
    let reset = "select pg_stat_statements_reset();";
    let plans = "select sum(calls) > 20, sum(plans) from pg_stat_statements where not toplevel";
    let told = server.order(&[&first, reset, &last, plans].concat());
    assert_eq!(told.lines().last(), Some("t|0"));
}

#[test]
fn a_batch_that_takes_too_long_is_taken_apart() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    server.order(
        "create function slow() returns trigger language plpgsql as \
         $$ begin perform pg_sleep(0.02); return new; end $$; \
         create trigger slow before insert on timers.timers for each row execute function slow()",
    );
    server.order("alter role postgres set statement_timeout = '500ms'");
    server.cut();
    let all = ids(120);
    let inserted =
        all.iter().map(|id| process.timers.insert(id, "", 86_400 * SECOND, Options::new()));
    wait(futures_util::future::try_join_all(inserted)).unwrap();
    assert_eq!(wait(process.timers.len()), Ok(120));
}

/// The server commits a transaction whose wait for a synchronous standby is terminated. A batch
/// that is resent must not be confirmed before the standby has it.
#[test]
fn a_batch_that_is_sent_again_waits_for_the_standby() {
    let settings = ["synchronous_standby_names=missing", "synchronous_commit=local"];
    let Some(server) = PostgresServer::start(&settings) else { return };
    let process = server.process();
    server.order("alter role postgres set synchronous_commit = 'on'");
    server.cut();
    let timers = process.timers.clone();
    let inserted = std::thread::spawn(move || wait(timers.insert("id", "", SECOND, quick())));
    let waiting =
        "from pg_stat_activity where wait_event = 'SyncRep' and backend_type = 'client backend'";
    server.wait_for("the commit waits for the standby", |server| {
        server.order(&format!("select count(*) {waiting}")) == "1"
    });
    server.order(&format!("select pg_terminate_backend(pid) {waiting}"));
    inserted.join().unwrap().unwrap_err();
    assert_eq!(server.order("select count(*) from timers.timers"), "1");
}

#[test]
fn fencing_tokens_grow_across_a_failover_that_loses_leases() {
    let Some(first) = PostgresServer::start(&[]) else { return };
    let second = first.standby(&[]);
    let last = |server: &PostgresServer| {
        let last = server.order("select last_value from timers.fences");
        last.parse::<u64>().unwrap()
    };
    let deliver = |process: &Process, all: &[String]| {
        let work = process.work();
        for id in all {
            wait(process.timers.insert(id, "", SECOND / 100, quick())).unwrap();
        }
        let acknowledged: BTreeSet<String> = all.iter().map(|_| work.next()).collect();
        assert_eq!(acknowledged, all.iter().cloned().collect());
        assert_eq!(work.stop(), [""; 0]);
    };
    let process = first.process();
    deliver(&process, &ids(1));
    first.wait_until_copied();
    second.kill();
    deliver(&process, &ids(100));
    let before = last(&first);
    drop(process);
    first.kill();
    second.resume();
    second.promote();
    // Tokens of the same second may recur. A token has the second above its lower 20 bits.
    let granted = Duration::from_secs(before >> 20);
    second.wait_for("the next second", |_| UNIX_EPOCH.elapsed().unwrap() >= granted + SECOND);
    deliver(&second.process(), &ids(1));
    assert!(last(&second) > before, "{before} {}", last(&second));
}

#[test]
fn replies_that_are_kept_for_ended_processes_are_deleted() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let old = "insert into timers.batches select i, i, now() - interval '8 days', 0, '{}', '{}', '{}', '{}' \
               from generate_series(1, 5) as i";
    server.order(old);
    let left = || server.order("select count(*) from timers.batches where process between 1 and 5");
    for all in ["5", "3", "3"] {
        assert_eq!(left(), all);
        wait(process.timers.insert("id", "", SECOND, quick().existing(Existing::Keep))).unwrap();
    }
    let own = "select count(*) from timers.batches where process not between 1 and 5";
    assert_eq!(server.order(own), "1");
}

#[test]
fn letters_beyond_the_bounds_are_deleted_without_waiting_or_counting_many() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let client = client(&process, &server);
    server.order(
        "insert into timers.letters (number, died, attempt, reason, error, due, planned, first, \
           most, attempts, lease, jitter, id, payload) \
         select i, i, 1, 0, '', 1, 1, 1, 1, 8, 15000, true, i, '' from generate_series(1, 3000) i",
    );
    let trim = |most| format!("select timers.trim_letters({most}, null, 0)");
    process.execute(&client, &format!("begin; {}", trim(900))).unwrap();
    server.order(&format!("set lock_timeout = '2s'; {}", trim(900)));
    process.execute(&client, "commit").unwrap();
    assert_eq!(server.order("select min(number) from timers.letters"), "3");
    let read = "select pg_stat_get_xact_tuples_returned('timers.letters_pkey'::regclass) < 100";
    // As in a batch.
    let begins = "begin; set local enable_seqscan = off";
    assert_eq!(server.order(&format!("{begins}; {}; {read}", trim(2000))), "\nt");
}

/// A batch is taken apart while a copy of it is on its way, or was executed.
#[test]
fn a_batch_that_is_settled_is_not_executed_any_more() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    wait(process.timers.insert("id", "", 86_400 * SECOND, Options::new())).unwrap();
    let cancel = |number, settles| {
        let cancel = batch(number, settles, "cancel", &["id"], "null");
        // The number of replies, and the reply.
        server.order(&format!("select count(*), max(answer) from ({cancel}) as it"))
    };
    assert_eq!(cancel(1, true), "0|", "it was not executed");
    assert_eq!(cancel(1, true), "0|", "the reply was lost");
    assert_eq!(cancel(1, false), "0|", "the copy came too late");
    assert_eq!(wait(process.timers.len()), Ok(1));
    assert_eq!(cancel(2, false), "1|1");
    assert_eq!(cancel(2, true), "1|1", "it was executed");
    assert_eq!(cancel(3, false), "1|0");
}

#[test]
fn callers_are_told_of_a_dropped_schema_although_a_reply_was_lost() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let proxy = server.proxy();
    let process = server.process_at(proxy.port);
    let timers = process.timers.clone();
    assert_eq!(wait(timers.len()), Ok(0), "there is a connection");
    proxy.lose(1000);
    let inserting = std::thread::spawn(move || {
        let all = ids(20);
        let inserted = all.iter().map(|id| timers.insert(id, "", 86_400 * SECOND, Options::new()));
        wait(futures_util::future::join_all(inserted))
    });
    server.wait_for("a lost reply", |_| proxy.left() < 1000);
    server.wait_for("the drop", |server| server.say("drop schema timers cascade").is_some());
    proxy.lose(0);
    for inserted in inserting.join().unwrap() {
        let error = inserted.unwrap_err().reason;
        // A statement that the drop overtakes misses a table in another way.
        assert!(matches!(error, DurableError::Corrupt { .. } | DurableError::Io(_)), "{error:?}");
    }
}

#[test]
fn a_batch_that_is_being_executed_is_not_executed_again() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let [one, other] = [(); 2].map(|()| client(&process, &server));
    wait(process.timers.insert("id", "", 86_400 * SECOND, Options::new())).unwrap();
    let removed = Ok(Some("1".to_owned()));
    let cancel = batch(1, false, "cancel", &["id"], "null");
    assert_eq!(process.execute(&one, &format!("begin; {cancel}")), removed);
    assert_eq!(process.execute(&other, &cancel), Err("55P03".to_owned()));
    process.execute(&one, "commit").unwrap();
    assert_eq!(process.execute(&other, &cancel), removed);
    // The lane has a row by now, which the batch locks.
    let kept = Ok(Some("0".to_owned()));
    let cancel = batch(2, false, "cancel", &["id"], "null");
    assert_eq!(process.execute(&one, &format!("begin; {cancel}")), kept);
    for copy in [cancel.clone(), batch(3, false, "cancel", &["id"], "null")] {
        assert_eq!(process.execute(&other, &copy), Err("55P03".to_owned()));
    }
    process.execute(&one, "commit").unwrap();
    assert_eq!(process.execute(&other, &cancel), kept);
}

/// No lease is granted after a call that pauses the store has returned.
#[test]
fn a_pause_comes_after_the_leases_that_are_being_granted() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let client = client(&process, &server);
    wait(process.timers.insert("id", "", SECOND / 100, quick())).unwrap();
    let due = "select timers.clock() >= due from timers.timers";
    server.wait_for("it is due", |server| server.order(due) == "t");
    let lease = format!("begin; {}", batch(1, false, "lease", &["id"], "null"));
    assert_eq!(process.execute(&client, &lease), Ok(Some("2".to_owned())));
    std::thread::scope(|scope| {
        let paused = scope.spawn(|| wait(process.timers.pause()));
        let waits = "select count(*) from pg_stat_activity where wait_event = 'relation'";
        server.wait_for("the pause waits", |server| server.order(waits) == "1");
        process.execute(&client, "commit").unwrap();
        assert_eq!(paused.join().unwrap(), Ok(()));
    });
    assert_eq!(wait(process.timers.is_paused()), Ok(true));
}

#[test]
fn a_batch_needs_to_see_the_present() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    for level in ["repeatable read", "serializable"] {
        server.order(&format!("alter role postgres set default_transaction_isolation = '{level}'"));
        server.cut();
        let refused = wait(process.timers.insert("id", "", SECOND, quick())).unwrap_err().reason;
        let DurableError::Io(what) = refused else { panic!("{refused:?}") };
        assert!(what.contains(&format!("must be read committed, and is {level}")), "{what}");
    }
}

/// The reply to a batch is lost, and the batch is taken apart when it is sent again.
#[test]
fn a_batch_that_is_taken_apart_was_not_executed() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let proxy = server.proxy();
    let process = server.process_at(proxy.port);
    server.order(
        "create sequence calls; create function busy() returns trigger language plpgsql as $$ \
         begin if nextval('public.calls') > 2 then return new; end if; \
         raise 'it takes too long' using errcode = 'query_canceled'; end $$; \
         create trigger busy before update on timers.batches for each row \
         when (old.answers <> '{}') execute function busy()",
    );
    let day = 86_400 * SECOND;
    proxy.lose(1);
    let all = ids(50);
    let inserted = all.iter().map(|id| process.timers.insert(id, "", day, quick()));
    let inserted = wait(futures_util::future::join_all(inserted));
    assert!(inserted.iter().all(|inserted| *inserted == Ok(Inserted::New)), "{inserted:?}");
    assert_eq!((proxy.left(), wait(process.timers.len())), (0, Ok(50)));
    assert_eq!(server.order("select last_value from calls"), "3");
}
