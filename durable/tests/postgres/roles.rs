//! Roles that may do some things with a store and not others.

use crate::client::client_at;
use crate::common::bench::{SECOND, wait};
use crate::common::host::Host;
use crate::common::postgres_server::PostgresServer;
use crate::common::process::{Process, quick, runtime};
use tourbillon_durable::{DurableError, Inserted, Postgres, PostgresOptions};

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
    // Objects of the caller are not used instead of those of the system.
    let own = "create domain pg_temp.bigint as text; create domain pg_temp.jsonb as text;
               create domain pg_temp.text as integer; set search_path = pg_temp, pg_catalog";
    process.execute(&client, own).unwrap();
    assert_eq!(process.execute(&client, insert), said("new"));
    assert_eq!(wait(process.timers.len()), Ok(1));
    assert_eq!(process.execute(&client, cancel), said("removed"));
    for forbidden in [with, "select from timers.timers", "select timers.cancel_row('id')"] {
        assert_eq!(process.execute(&client, forbidden), denied, "{forbidden}");
    }
}

/// A function that has none would use objects of its caller instead of those of the system.
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
    assert_eq!(server.order(definers), "cancel insert insert_with");
}
