//! The log of attempts in a table that is locked, missing, or something else.

use crate::common::bench::wait;
use crate::common::events::Observed;
use crate::common::host::Host;
use crate::common::postgres_server::PostgresServer;
use crate::common::process::{Process, ids, quick};
use std::future::ready;
use std::time::Duration;
use tourbillon_durable::{
    AttemptLog, DurableError, DurableTimers, Event, LogBounds, PostgresOptions, Verdict,
};

fn logged(log: &AttemptLog) -> Vec<String> {
    wait(log.latest(None, 99)).unwrap().into_iter().map(|attempt| attempt.id).collect()
}

fn begin(timers: &DurableTimers, log: &AttemptLog) -> Observed {
    Observed::start(timers.worker().log(log), |_| ready(Verdict::Done))
}

/// Inserts timers that are due, and waits until they are delivered. Returns the failures of the log
/// meanwhile.
fn deliver(timers: &DurableTimers, worker: &Observed, ids: &[String]) -> Vec<Event> {
    for id in ids {
        wait(timers.insert(id, "", Duration::ZERO, quick())).unwrap();
    }
    let (mut delivered, mut failures) = (0, Vec::new());
    while delivered < ids.len() {
        match worker.next(|| {}) {
            Event::Attempt(_) => delivered += 1,
            failed @ Event::LogFailed { .. } => failures.push(failed),
            _ => {}
        }
    }
    failures
}

#[test]
fn a_locked_log_delays_no_timer() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let options = PostgresOptions::new("timers").connections(2);
    let process = Process::in_schema(&server.url(), options);
    let timers = &process.timers;
    let log = timers.attempt_log(LogBounds::new());
    let worker = begin(timers, &log);
    assert_eq!(deliver(timers, &worker, &["a".to_owned()]), []);
    let holds = "begin; lock table timers.attempt_log; select pg_sleep(86400)";
    let mut holder = server.begin(holds);
    let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    let locks = "from pg_locks where relation = 'timers.attempt_log'::regclass \
                 and mode = 'AccessExclusiveLock' and granted";
    let count = format!("select count(*) {locks}");
    server.wait_for("the lock", |server| server.order(&count) == "1");
    let (mut failures, mut waited) = (Vec::new(), false);
    for round in 0..1000 {
        let ids: Vec<String> = (0..9).map(|number| format!("{round} {number}")).collect();
        failures.extend(deliver(timers, &worker, &ids));
        let waiting = server.order(waits);
        assert!(["0", "1"].contains(&&*waiting), "{waiting} wait for the log");
        waited |= waiting == "1";
        if waited && failures.len() > 1 {
            break;
        }
    }
    let is_told = |event: &Event| matches!(event, Event::LogFailed { lost: 1.., error: Some(_) });
    assert!(waited && failures.len() > 1 && failures.iter().all(is_told), "{failures:?}");
    assert!(matches!(wait(log.latest(None, 9)), Err(DurableError::Unreachable(_))));
    server.order(&format!("select pg_terminate_backend(pid) {locks}"));
    holder.wait().unwrap();
    server.wait_for("the end of the lock", |server| server.order(&count) == "0");
    deliver(timers, &worker, &["z".to_owned()]);
    worker.stop();
    assert_eq!(logged(&log)[0], "z");
}

#[test]
fn a_log_that_was_renamed_begins_again() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    server.order("create role keeper login; create schema timers authorization keeper");
    let options = PostgresOptions::new("timers").owner("keeper");
    let process = Process::in_schema(&server.url(), options);
    let timers = &process.timers;
    let log = timers.attempt_log(LogBounds::new());
    for (name, id) in [("first", "a"), ("second", "b"), ("third", "c")] {
        let worker = begin(timers, &log);
        assert_eq!(deliver(timers, &worker, &[id.to_owned()]), []);
        assert_eq!(worker.stop(), []);
        assert_eq!(logged(&log), [id]);
        server.order(&format!("alter table timers.attempt_log rename to {name}"));
    }
    assert_eq!(server.order("select count(*) from timers.second"), "1");
    let owner = "select relowner::regrole from pg_class where relname = 'third'";
    assert_eq!(server.order(owner), "keeper", "all objects of a store have one owner");
}

#[test]
fn a_role_keeps_its_rights_when_the_log_begins_again() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let owner = server.process();
    server.order(
        "create role \"the clerk\" login; grant usage on schema timers to \"the clerk\";
         grant select, insert, update, delete on all tables in schema timers to \"the clerk\";
         grant usage, select, update on all sequences in schema timers to \"the clerk\";
         drop table timers.attempt_log",
    );
    assert_eq!(logged(&owner.timers.attempt_log(LogBounds::new())), [""; 0]);
    let address = format!("postgres://the%20clerk@127.0.0.1:{}/postgres", server.port);
    let process = Process::in_schema(&address, PostgresOptions::new("timers"));
    let log = process.timers.attempt_log(LogBounds::new());
    let worker = begin(&process.timers, &log);
    assert_eq!(deliver(&process.timers, &worker, &["a".to_owned()]), []);
    assert_eq!(worker.stop(), []);
    assert_eq!(logged(&log), ["a"]);
}

#[test]
fn a_slow_statement_of_the_log_is_ended() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let log = process.timers.attempt_log(LogBounds::new());
    server.order(
        "create or replace function timers.log_latest(an_id text, most bigint) returns setof text
         language sql as 'select pg_sleep(86400)::text'",
    );
    assert!(matches!(wait(log.latest(None, 9)), Err(DurableError::Unreachable(_))));
    server.wait_for("the end of the statement", |server| {
        server.order("select count(*) from pg_stat_activity where wait_event = 'PgSleep'") == "0"
    });
}

#[test]
fn a_batch_that_was_not_executed_is_sent_again() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let timers = &process.timers;
    server.order(
        "create sequence tries;
         create function fail() returns trigger language plpgsql as $$ begin
           if nextval('public.tries') < 3 then
             raise exception using errcode = 'deadlock_detected';
           end if;
           return null;
         end $$;
         create trigger fails after insert on timers.attempt_log execute function fail()",
    );
    let log = timers.attempt_log(LogBounds::new());
    let worker = begin(timers, &log);
    assert_eq!(deliver(timers, &worker, &["a".to_owned()]), []);
    assert_eq!(worker.stop(), []);
    assert_eq!(logged(&log), ["a"]);
    assert_eq!(server.order("select last_value from tries"), "3");
}

#[test]
fn a_locked_attempt_and_a_failed_batch_delete_no_others() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let timers = &process.timers;
    let log = timers.attempt_log(LogBounds::new().max_attempts(2));
    let work = |id: &str| {
        let worker = begin(timers, &log);
        let mut failures = deliver(timers, &worker, &[id.to_owned()]);
        failures.extend(worker.stop());
        failures.retain(|event| matches!(event, Event::LogFailed { .. }));
        failures.len()
    };
    assert_eq!(work("a"), 0);
    server.order("alter table timers.attempt_log add check (id <> 'refused')");
    for _ in 0..3 {
        assert_eq!(work("refused"), 1);
    }
    assert_eq!(work("b"), 0);
    assert_eq!(logged(&log), ["b", "a"]);
    let mut holder = server.begin(
        "begin; select from timers.attempt_log where id = 'a' for update; select pg_sleep(86400)",
    );
    let sleeps = "from pg_stat_activity where wait_event = 'PgSleep'";
    let count = format!("select count(*) {sleeps}");
    server.wait_for("the lock", |server| server.order(&count) == "1");
    assert_eq!(work("c"), 0);
    assert_eq!(logged(&log), ["c", "b", "a"]);
    server.order(&format!("select pg_terminate_backend(pid) {sleeps}"));
    holder.wait().unwrap();
    server.wait_for("the end of the lock", |server| server.order(&count) == "0");
    assert_eq!(work("d"), 0);
    assert_eq!(logged(&log), ["d", "c"]);
}

/// Another process adds an attempt, and commits when this one has chosen the same number.
#[test]
fn two_processes_add_to_a_log_at_once() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let timers = &process.timers;
    let log = timers.attempt_log(LogBounds::new());
    let json = r#"{"id":"other","planned":7,"ended":7,"attempt":1,"outcome":"retry"}"#;
    let mut gate = server.begin("select pg_advisory_lock(1); select pg_sleep(86400)");
    let sleeps = "from pg_stat_activity where wait_event = 'PgSleep'";
    let asleep = format!("select count(*) {sleeps}");
    server.wait_for("the gate", |server| server.order(&asleep) == "1");
    let mut other = server.begin(&format!(
        "begin; select timers.log_add(array['other'], array['{json}'], 9, 9, null); \
         select pg_advisory_lock(1); commit"
    ));
    let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    server.wait_for("the other", |server| server.order(waits) == "1");
    let worker = begin(timers, &log);
    assert_eq!(deliver(timers, &worker, &["a".to_owned()]), []);
    server.wait_for("the log", |server| server.order(waits) == "2");
    server.order(&format!("select pg_terminate_backend(pid) {sleeps}"));
    gate.wait().unwrap();
    other.wait().unwrap();
    assert_eq!(worker.stop(), []);
    assert_eq!(logged(&log), ["a", "other"]);
}

#[test]
fn a_sequence_in_place_of_the_log_stops_no_timer() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let timers = &process.timers;
    server.order("drop table timers.attempt_log; create sequence timers.attempt_log");
    let log = timers.attempt_log(LogBounds::new());
    let worker = begin(timers, &log);
    deliver(timers, &worker, &ids(9));
    worker.stop();
    assert!(matches!(wait(log.latest(None, 9)), Err(DurableError::Io(_))));
    server.order("drop sequence timers.attempt_log");
    assert_eq!(logged(&log), [""; 0]);
}

#[test]
fn an_id_that_no_timer_has_is_refused() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let log = process.timers.attempt_log(LogBounds::new());
    assert!(matches!(wait(log.latest(Some("\0"), 9)), Err(DurableError::Option(_))));
}
