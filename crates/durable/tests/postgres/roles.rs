//! Roles that may do some things with a store and not others.

use crate::client::client_at;
use crate::common::bench::{SECOND, wait};
use crate::common::events::Observed;
use crate::common::host::Host;
use crate::common::postgres_server::PostgresServer;
use crate::common::process::{Process, ids, quick, runtime};
use std::future::ready;
use tourbillon_durable::{
    Attempt, Credentials, DurableError, Event, Inserted, Outcome, Postgres, PostgresOptions,
    Verdict, Wait,
};

/// The user of the tests needs no password, and other users do.
const ACCESS: &str = "host all postgres 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
";

/// Starts a server where the store belongs to the role `clerk`, with the password `old`.
fn with_password() -> Option<PostgresServer> {
    let server = PostgresServer::with_access(ACCESS)?;
    server
        .order("create role clerk login password 'old'; create schema timers authorization clerk");
    Some(server)
}

/// Returns the address of a server for a role.
fn url(server: &PostgresServer, role: &str) -> String {
    format!("postgres://{role}@127.0.0.1:{}/postgres", server.port)
}

fn as_role(server: &PostgresServer, role: &str) -> Process {
    Process::in_schema(&url(server, role), PostgresOptions::new("timers"))
}

fn delivers(process: &Process) {
    let work = process.work();
    assert_eq!(wait(process.timers.insert("id", "", SECOND / 10, quick())), Ok(Inserted::New));
    assert_eq!(work.next(), "id");
    assert_eq!(work.stop(), [""; 0]);
}

#[test]
fn a_role_that_cannot_create_schemas_uses_that_of_an_administrator() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    server.order("create role clerk login");
    let refused = runtime().block_on(Postgres::connect(&url(&server, "clerk"), "timers"));
    let refused = refused.unwrap_err();
    assert!(matches!(refused, DurableError::Denied(_)), "{refused:?}");
    server.order("create schema timers authorization clerk");
    delivers(&as_role(&server, "clerk"));
}

#[test]
fn a_role_with_rights_for_the_tables_uses_a_store_that_exists() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let _owner = server.process();
    server.order(
        "create role clerk login;
         grant usage on schema timers to clerk;
         grant select, insert, update, delete on all tables in schema timers to clerk;
         grant usage, select, update on all sequences in schema timers to clerk",
    );
    delivers(&as_role(&server, "clerk"));
}

#[test]
fn a_role_that_may_call_the_functions_needs_no_rights_for_the_tables() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    server.order(
        "create role shop login;
         grant usage on schema timers to shop",
    );
    let client = client_at(&process, &url(&server, "shop"));
    let (insert, cancel) =
        ("select timers.insert('id', '', delay => '1 day')", "select timers.cancel('id')");
    let with = "select timers.insert_with('id', '', '{}')";
    let denied = Err("42501".to_owned());
    for call in [insert, cancel, with] {
        assert_eq!(process.execute(&client, call), denied, "{call}");
    }
    server.order("grant execute on function timers.insert, timers.cancel to shop");
    let said = |text: &str| Ok(Some(text.to_owned()));
    // Objects of the caller are not used instead of the system's.
    let own = "create domain pg_temp.bigint as text; create domain pg_temp.jsonb as text;
               create domain pg_temp.text as integer; set search_path = pg_temp, pg_catalog";
    process.execute(&client, own).unwrap();
    assert_eq!(process.execute(&client, insert), said("new"));
    assert_eq!(wait(process.timers.len()), Ok(1));
    assert_eq!(process.execute(&client, cancel), said("removed"));
    for forbidden in [with, "select from timers.timers", "select timers.cancel_row('id', false)"] {
        assert_eq!(process.execute(&client, forbidden), denied, "{forbidden}");
    }
}

/// Any role may take advisory locks, in one namespace for the whole database.
#[test]
fn a_role_without_rights_delays_nothing() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    server.order("create role stranger login");
    let stranger = client_at(&process, &url(&server, "stranger"));
    let keys = "select pg_advisory_lock(key) from (select hashtextextended('\"timers\".', n) as key \
                from generate_series(0, 9) as n) as keys";
    process.execute(&stranger, keys).unwrap();
    let work = process.work();
    let deliver = |all: &[String]| {
        for id in all {
            wait(process.timers.insert(id, "", SECOND / 100, quick())).unwrap();
        }
        all.iter().for_each(|_| drop(work.next()));
    };
    deliver(&ids(20));
    // It also has the locks that it sees others take.
    let advisory = "select count(*) from pg_locks where locktype = 'advisory' \
                    and pid <> (select pid from pg_stat_activity where usename = 'stranger')";
    std::thread::scope(|scope| {
        let seen = scope.spawn(|| (0..50).map(|_| server.order(advisory)).collect::<Vec<_>>());
        while !seen.is_finished() {
            deliver(&ids(20));
        }
        assert_eq!(seen.join().unwrap(), ["0"; 50]);
    });
    assert_eq!((wait(process.timers.pause()), wait(process.timers.resume())), (Ok(()), Ok(())));
    // The tokens have moved on.
    let token = "select last_value >> 20 > extract(epoch from now()) - 60 from timers.fences";
    assert_eq!(server.order(token), "t");
    assert_eq!(work.stop(), [""; 0]);
}

/// A role that may insert and cancel locks no more than its timers.
#[test]
fn a_role_that_may_call_the_functions_can_lock_no_table() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    server.order(
        "create role shop login; grant usage on schema timers to shop; \
         grant execute on function timers.insert, timers.insert_with, timers.cancel to shop",
    );
    let shop = client_at(&process, &url(&server, "shop"));
    let tables = "select string_agg(relname, ' ') from pg_class \
                  where relnamespace = 'timers'::regnamespace and relkind = 'r'";
    let tables = server.order(tables);
    assert!(tables.contains("leases") && tables.contains("batches"), "{tables}");
    for table in tables.split(' ') {
        for mode in ["access share", "row share", "row exclusive", "exclusive", "access exclusive"]
        {
            let lock = format!("lock table timers.{table} in {mode} mode");
            assert_eq!(process.execute(&shop, &format!("begin; {lock}")), Err("42501".to_owned()));
            process.execute(&shop, "rollback").unwrap();
        }
    }
}

#[test]
fn a_worker_outlives_a_change_of_its_password() {
    let Some(server) = with_password() else { return };
    let credentials = Credentials::new("clerk", "old");
    let options = PostgresOptions::new("timers").credentials(&credentials);
    let process = Process::in_schema(&url(&server, "nobody:none"), options);
    let worker = Observed::start(process.timers.worker(), |_| ready(Verdict::Done));
    let acknowledges = |wanted: &str| {
        let is_wanted = |Attempt { id, outcome, .. }: &Attempt| {
            assert_eq!(*outcome, Outcome::Acknowledged);
            id == wanted
        };
        while !matches!(worker.next(|| ()), Event::Attempt(attempt) if is_wanted(&attempt)) {}
    };
    let deliver = |id: &str| {
        wait(process.timers.insert(id, "", SECOND / 10, quick())).unwrap();
        acknowledges(id);
    };
    deliver("before");
    // The old password is rejected first. Connections that exist go on.
    wait(process.timers.insert("between", "", SECOND, quick())).unwrap();
    server.order("alter role clerk password 'new'");
    acknowledges("between");
    // Without them callers are told, and the worker waits. A connection that was being opened has
    // the old password as well.
    let is_told = |error: &DurableError| {
        let told = "password authentication failed for user \"clerk\"";
        matches!(error, DurableError::Denied(why) if why.contains(told))
    };
    server.cut();
    server.wait_for("a call is denied", |server| match wait(process.timers.len()) {
        Ok(_) => {
            server.cut();
            false
        }
        // A connection that is cut while it is opened would be the reason otherwise.
        Err(error) => is_told(&error),
    });
    server.order("select timers.insert('waits', '', delay => '0 seconds')");
    let error = loop {
        if let Event::Waiting { reason: Wait::StoreDenied, error } = worker.next(|| ()) {
            break error;
        }
    };
    assert!(error.as_ref().is_some_and(is_told), "{error:?}");
    credentials.set("clerk", "new");
    acknowledges("waits");
    deliver("after");
    // Another role is known before the sessions of the old one end. No call is denied.
    server.order("create role successor login password 'newest' in role clerk");
    credentials.set("successor", "newest");
    let end = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'clerk'";
    let roles = "select string_agg(distinct usename, ' ') from pg_stat_activity
        where application_name = 'tourbillon'";
    server.wait_for("sessions of the successor", |server| {
        server.order(end);
        server.order(roles) == "successor"
    });
    deliver("at last");
    let _ = worker.stop();
}

#[test]
fn credentials_without_a_name_are_for_the_role_of_the_address() {
    let Some(server) = with_password() else { return };
    let connect = |password: &str| {
        let options = PostgresOptions::new("timers").credentials(&Credentials::new("", password));
        runtime().block_on(Postgres::connect(&url(&server, "clerk:none"), options))
    };
    assert!(connect("old").is_ok());
    let denied = connect("none").unwrap_err();
    assert!(matches!(denied, DurableError::Denied(_)), "{denied:?}");
}

#[test]
fn a_worker_without_credentials_ends_when_its_password_is_rejected() {
    let Some(server) = with_password() else { return };
    let process = as_role(&server, "clerk:old");
    let worker = Observed::start(process.timers.worker(), |_| ready(Verdict::Done));
    assert!(matches!(worker.next(|| ()), Event::PartitionsGained { .. }));
    server.order("alter role clerk password 'new'");
    server.wait_for("the end of the worker", |server| {
        server.cut();
        worker.has_ended()
    });
    let denied = worker.failed();
    assert!(matches!(denied, DurableError::Denied(_)), "{denied:?}");
}

/// A function that has none would use objects of its caller instead of the system's.
#[test]
fn the_functions_that_clients_call_have_a_search_path() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let _process = server.process();
    let without = "select string_agg(proname, ' ' order by proname) from pg_proc
        where pronamespace = 'timers'::regnamespace and proname in ('batch', 'cancel', 'insert',
          'insert_with', 'keys', 'late', 'leave', 'load', 'pause_store', 'remove_strays', 'stats')
        and 'search_path=pg_catalog, pg_temp' = any (proconfig) is not true";
    assert_eq!(server.order(without), "");
    let definers = "select string_agg(proname, ' ' order by proname) from pg_proc
        where pronamespace = 'timers'::regnamespace and prosecdef";
    assert_eq!(
        server.order(definers),
        "cancel index_labels index_letter insert insert_with notify_commit"
    );
}
