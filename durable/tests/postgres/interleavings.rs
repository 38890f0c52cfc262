//! The SQL functions of a store in transactions that overlap, and the plans that they have.

use super::transactions::client;
use crate::common::host::Host;
use crate::common::postgres_server::PostgresServer;

/// The planner counts a small table that is read as a whole as if it was expensive, because it has
/// to avoid such plans for large ones. It must not compile code for it in each call.
#[test]
fn no_function_that_avoids_scans_compiles_its_plans() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let _process = server.process();
    let compiling = "select count(*), count(*) filter (where not 'jit=off' = any (proconfig)) \
                     from pg_proc where 'enable_seqscan=off' = any (proconfig)";
    assert_eq!(server.order(compiling), "5|0");
}

/// A lease is renewed while another worker takes it over, because it has expired.
#[test]
fn a_lease_that_is_renewed_is_not_taken_over() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let timer = "insert into timers.timers values \
                 (1000, 1000, 0, 0, null, null, null, 8, 15000, true, 'id', null, null, null, '')";
    server.order(timer);
    let lease = |at: u32| format!("select answer, due from timers.lease_row('id', false, {at})");
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
    assert_eq!(server.order(&lease(32_500)), "3|47500");
}

/// A transaction sees a timer that rests after a failed attempt. Meanwhile it is leased again.
#[test]
fn a_transaction_that_sees_an_old_state_is_refused() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let client = client(&process, &server);
    let insert = "select timers.insert('id', '', delay => '0', existing => 'keep')";
    let lease = "select answer from timers.lease_row('id', false, null)";
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
                from timers.load(1, 1, false, 0, '', false, 9000, 10, true, 5000)";
    let read = "select pg_stat_get_xact_numscans('timers.workers'::regclass) < 10";
    assert_eq!(server.order(&format!("begin; {load}; {read}")), "64\nt");
}
