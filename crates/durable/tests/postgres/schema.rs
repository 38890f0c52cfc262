//! Schemas that belong to other roles, and stores that several versions create and upgrade.

#![allow(clippy::disallowed_methods, reason = "another process waits for a lock")]

use crate::client::{client, client_at};
use crate::common::bench::{SECOND, wait};
use crate::common::host::Host;
use crate::common::postgres_server::PostgresServer;
use crate::common::process::{Process, quick, runtime};
use tourbillon_durable::{DurableError, Existing, Inserted, Label, Postgres, PostgresOptions};

/// Returns the address of a server for a role.
fn url(server: &PostgresServer, role: &str) -> String {
    format!("postgres://{role}@127.0.0.1:{}/postgres", server.port)
}

fn open(server: &PostgresServer, role: &str, options: PostgresOptions) -> Option<DurableError> {
    let runtime = runtime();
    let opened = runtime.block_on(Postgres::connect(&url(server, role), options));
    opened.err()
}

fn timers() -> PostgresOptions {
    PostgresOptions::new("timers")
}

/// Returns the object that a store is refused for, and its owner.
fn foreign(server: &PostgresServer, role: &str) -> (String, String) {
    match open(server, role, timers()) {
        Some(DurableError::ForeignOwner { object, owner }) => (object, owner),
        opened => panic!("{opened:?}"),
    }
}

/// A role makes the schema first, with tables and functions that look like a newer store.
#[test]
fn a_schema_that_another_role_has_made_is_not_used() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    server.order("create role evil login; grant create on database postgres to evil");
    let process = server.process_at(server.port);
    server.order("drop schema timers cascade");
    let evil = client_at(&process, &url(&server, "evil"));
    let trap = "create schema timers; grant usage on schema timers to public;
        create function timers.trap(integer) returns integer language plpgsql as $$
          begin execute 'alter role evil superuser'; return $1; end $$;
        create table timers.versions (layout integer, revision integer);
        insert into timers.versions values (1, 1000);
        create view timers.store as
          select timers.trap(layout) as layout, revision, false as paused from timers.versions;
        create function timers.clock() returns bigint language plpgsql as
          $$ begin perform timers.trap(1); return 1; end $$;
        grant select on all tables in schema timers to public";
    process.execute(&evil, trap).unwrap();
    assert_eq!(foreign(&server, "postgres"), ("the schema \"timers\"".into(), "evil".into()));
    let rights = "select rolsuper from pg_roles where rolname = 'evil'";
    assert_eq!(server.order(rights), "f");
    // A role can add members to itself, in the older versions of PostgreSQL.
    server.order("create role shop login");
    for member in ["shop", "postgres"] {
        let _ = process.execute(&evil, &format!("grant evil to {member}"));
        assert_eq!(foreign(&server, member).1, "evil");
    }
    // It bites if the options say that the role is trusted.
    assert_eq!(open(&server, "postgres", timers().owner("evil")), None);
    assert_eq!(server.order(rights), "t");
}

#[test]
fn no_object_in_a_schema_may_belong_to_another_role() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    server.order("create role evil login; create role shop login");
    drop(server.process());
    server.order("grant usage on schema timers to shop, evil");
    server.order("grant select on all tables in schema timers to shop");
    assert_eq!(open(&server, "shop", timers()), None);
    for (kind, object) in [
        ("function", "timers.part(bigint)"),
        ("table", "timers.more"),
        ("sequence", "timers.fences"),
        ("view", "timers.records"),
        ("type", "timers.answer"),
        ("operator", "timers.<(boolean,boolean)"),
    ] {
        let make = match kind {
            "function" => {
                format!("create function {object} returns integer language sql as 'select 1'")
            }
            "table" => format!("create table {object} (id text)"),
            "operator" => "create operator timers.< (leftarg = boolean, rightarg = boolean, \
                           function = pg_catalog.boollt)"
                .to_owned(),
            _ => "select 1".to_owned(),
        };
        server.order(&make);
        server.order(&format!("alter {kind} {object} owner to evil"));
        let (refused, owner) = foreign(&server, "shop");
        assert!(refused.starts_with(kind) && owner == "evil", "{refused} of {owner}");
        assert_eq!(foreign(&server, "postgres"), (refused, owner));
        server.order(&format!("alter {kind} {object} owner to postgres"));
        assert_eq!(open(&server, "shop", timers()), None);
    }
    // Rights that let it add objects later.
    for (right, object) in [
        ("create on schema timers", "the right to create objects in \"timers\""),
        ("trigger on timers.states", "the right to add triggers to states"),
    ] {
        for role in ["evil", "public"] {
            server.order(&format!("grant {right} to {role}"));
            let owner = if role == "public" { "PUBLIC" } else { role };
            assert_eq!(foreign(&server, "shop"), (object.into(), owner.into()));
            server.order(&format!("revoke {right} from {role}"));
        }
    }
    server.order(
        "create function public.trap() returns trigger language plpgsql as 'begin return new; end';
         alter function public.trap() owner to evil;
         create trigger trap after insert on timers.timers execute function public.trap()",
    );
    assert_eq!(foreign(&server, "shop"), ("function trap()".into(), "evil".into()));
}

#[test]
fn the_owner_of_a_store_may_be_a_group_or_the_one_that_the_options_name() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    server.order(
        "create role owners; create role migrations login in role owners;
         create role member login in role owners; create role shop login; create role other;
         create schema timers authorization owners",
    );
    assert_eq!(open(&server, "migrations", timers()), None);
    // All objects belong to the group, so that each member may upgrade them.
    let owners = "select string_agg(distinct pg_get_userbyid(relowner), ' ') from pg_class
        where relnamespace = 'timers'::regnamespace";
    assert_eq!(server.order(owners), "owners");
    server.order("update timers.store set revision = 1");
    assert_eq!(open(&server, "member", timers()), None);
    server.order(
        "grant usage on schema timers to shop;
         grant select, insert, update, delete on all tables in schema timers to shop;
         grant usage, select, update on all sequences in schema timers to shop",
    );
    assert_eq!(foreign(&server, "shop").1, "owners");
    let other = open(&server, "shop", timers().owner("other"));
    assert!(matches!(other, Some(DurableError::ForeignOwner { .. })), "{other:?}");
    let process = Process::in_schema(&url(&server, "shop"), timers().owner("owners"));
    let work = process.work();
    assert_eq!(wait(process.timers.insert("id", "", SECOND / 10, quick())), Ok(Inserted::New));
    assert_eq!(work.next(), "id");
    assert_eq!(work.stop(), [""; 0]);
}

#[test]
fn the_operators_of_another_role_are_not_used() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    server.order("create role evil login");
    // Better matches than the operators of the system, whose operands have other types.
    server.order(
        "create table public.traps (of text);
         create function public.trap(numeric, integer) returns numeric language plpgsql as
           $$ begin insert into public.traps values ('numeric'); return 0; end $$;
         create function public.trap(bigint, integer) returns bigint language plpgsql as
           $$ begin insert into public.traps values ('bigint'); return 0; end $$;
         create operator public.* (leftarg = numeric, rightarg = integer, function = public.trap);
         create operator public.& (leftarg = bigint, rightarg = integer, function = public.trap)",
    );
    let process = server.process();
    let timers = &process.timers;
    let work = process.work();
    assert_eq!(wait(timers.insert("id", "", SECOND / 10, quick())), Ok(Inserted::New));
    assert_eq!(work.next(), "id");
    assert_eq!(work.stop(), [""; 0]);
    server.order("select timers.insert('other', '', delay => '1 day')");
    wait(timers.stats()).unwrap();
    assert_eq!(wait(timers.list(None, 10)).unwrap().len(), 1);
    assert_eq!(server.order("select string_agg(of, ' ') from public.traps"), "");
}

#[test]
fn schemas_of_the_system_are_no_stores() {
    for name in ["public", "information_schema", "pg_timers", "pg_catalog"] {
        let refused = Postgres::migration(name).unwrap_err();
        assert!(matches!(refused, DurableError::Option(_)), "{name}: {refused:?}");
    }
    assert!(Postgres::migration("publications").is_ok());
}

/// While a process waits for the lock, another process upgrades the store further.
#[test]
fn an_older_version_does_not_replace_the_functions_of_a_newer_one() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    server.order("update timers.store set revision = 1");
    let newer = client(&process, &server);
    let upgrade = "begin; lock table timers.store in share update exclusive mode;
        update timers.store set revision = 1000;
        create or replace function timers.clock() returns bigint language sql volatile as
          $$ select 7::bigint $$";
    process.execute(&newer, upgrade).unwrap();
    std::thread::scope(|scope| {
        let opened = scope.spawn(|| open(&server, "postgres", timers()));
        let waits = "select count(*) from pg_locks where not granted";
        server.wait_for("the older one waits", |server| server.order(waits) == "1");
        process.execute(&newer, "commit").unwrap();
        assert_eq!(opened.join().unwrap(), None);
    });
    assert_eq!(server.order("select revision, timers.clock() from timers.store"), "1000|7");
}

#[test]
fn a_store_of_an_earlier_revision_gets_what_it_lacks() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    drop(server.process());
    server.order(
        "create role clerk login;
         grant select, insert, update, delete on all tables in schema timers to clerk",
    );
    // Also drops the functions that return records, and triggers.
    server.order(
        "alter table timers.states drop column plan cascade;
         alter table timers.timers drop column labels cascade;
         alter table timers.nexts drop column labels;
         alter table timers.letters drop column labels cascade;
         drop table timers.labels, timers.letter_labels;
         drop index timers.states_retried, timers.letters_id;
         update timers.store set revision = 6",
    );
    let process = server.process();
    let hour = 3600 * SECOND;
    wait(process.timers.insert("id", "", hour, quick().every(hour))).unwrap();
    let before = wait(process.timers.get("id")).unwrap();
    assert_eq!(wait(process.timers.run_now("id")), Ok(true));
    let work = process.work();
    assert_eq!(work.next(), "id");
    assert_eq!(work.stop(), [""; 0]);
    assert_eq!(wait(process.timers.get("id")).unwrap(), before);
    let shop = Label::new("shop").unwrap();
    let options = quick().label(shop.clone()).existing(Existing::Replace);
    wait(process.timers.insert("id", "", hour, options)).unwrap();
    assert_eq!(wait(process.timers.label_len(&shop)), Ok(1));
    for table in ["labels", "letter_labels"] {
        let may = format!("select has_table_privilege('clerk', 'timers.{table}', 'select')");
        assert_eq!(server.order(&may), "t", "{table}");
    }
    let indexes =
        "select count(*) from pg_indexes where indexname in ('states_retried', 'letters_id')";
    assert_eq!(server.order(indexes), "2");
}

#[test]
fn letters_of_an_earlier_revision_are_found_by_label() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    drop(server.process());
    server.order(
        "drop trigger letter_inserted on timers.letters;
         drop trigger letter_deleted on timers.letters;
         drop table timers.letter_labels;
         drop index timers.letters_id;
         update timers.store set revision = 8;
         insert into timers.letters (number, died, attempt, reason, error, due, planned, first, \
           most, attempts, lease, jitter, id, payload, labels) \
           select i, i, 1, 0, '', 1, 1, 1, 1, 8, 15000, true, i % 2, '', \
             case when i < 3 then array['shop', 'eu'] end from generate_series(1, 4) i",
    );
    let process = server.process();
    let timers = &process.timers;
    let numbers = |text| {
        let page = wait(timers.dead_letters_with_label(&Label::new(text).unwrap(), None, 9));
        page.unwrap().into_iter().map(|letter| letter.number).collect::<Vec<_>>()
    };
    assert_eq!((numbers("shop"), numbers("eu"), numbers("us")), (vec![1, 2], vec![1, 2], vec![]));
    assert_eq!(wait(timers.newest_dead_letters_of("0", None, 1)).unwrap()[0].number, 4);
    assert_eq!(wait(timers.delete_dead_letter(1)), Ok(true));
    assert_eq!(server.order("select count(*) from timers.letter_labels where number = 1"), "0");
    // What was written without the triggers.
    server.order("insert into timers.letter_labels values ('eu', 7), ('us', 2)");
    assert_eq!((numbers("eu"), numbers("us")), (vec![2], vec![]));
}

/// A client has read the timers, and its transaction stays open while a newer version is started.
#[test]
fn an_upgrade_that_waits_for_a_transaction_delays_no_worker() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let work = process.work();
    // If the test fails meanwhile, the upgrade ends nevertheless, and with it this test.
    server.order("alter role postgres set idle_in_transaction_session_timeout = '60s'");
    let reader = client(&process, &server);
    process.execute(&reader, "begin; select * from timers.records").unwrap();
    server.order("update timers.store set revision = 1");
    std::thread::scope(|scope| {
        let opened = scope.spawn(|| open(&server, "postgres", timers()));
        let waits = "select count(*) from pg_locks where not granted";
        for number in 0..5 {
            // The upgrade takes locks again and again.
            server.wait_for("the upgrade waits", |server| server.order(waits) != "0");
            let id = number.to_string();
            let inserted = wait(process.timers.insert(&id, "", SECOND / 100, quick()));
            assert_eq!(inserted, Ok(Inserted::New));
            assert_eq!(work.next(), id);
            assert_eq!(wait(process.timers.get("none")), Ok(None));
        }
        assert!(!opened.is_finished());
        process.execute(&reader, "commit").unwrap();
        assert_eq!(opened.join().unwrap(), None);
    });
    assert_ne!(server.order("select revision from timers.store"), "1");
    assert_eq!(work.stop(), [""; 0]);
}

/// A role without rights takes every lock that needs no rights.
#[test]
fn no_lock_that_any_role_can_take_delays_the_creation_of_a_store() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    server.order("create role evil login");
    let process = server.process_at(server.port);
    server.order("drop schema timers cascade");
    let evil = client_at(&process, &url(&server, "evil"));
    let hold = "select pg_advisory_lock(hashtextextended('\"timers\".', number))
        from generate_series(0, 100) as number";
    process.execute(&evil, hold).unwrap();
    server.order("alter role postgres set lock_timeout = '5s'");
    assert_eq!(open(&server, "postgres", timers()), None);
    server.order("update timers.store set revision = 1");
    assert_eq!(open(&server, "postgres", timers()), None);
}

#[test]
fn a_role_that_does_not_own_an_older_store_is_told_who_upgrades_it() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    server.order("create role shop login");
    drop(server.process());
    server.order(
        "grant usage on schema timers to shop;
         grant select, insert, update, delete on all tables in schema timers to shop;
         grant usage, select, update on all sequences in schema timers to shop",
    );
    assert_eq!(open(&server, "shop", timers()), None);
    let revision = server.order("select revision from timers.store");
    server.order("update timers.store set revision = 1");
    let outdated = open(&server, "shop", timers()).unwrap();
    let owner = "postgres".to_owned();
    let known = revision.parse().unwrap();
    assert_eq!(outdated, DurableError::Outdated { found: 1, known, owner });
    assert!(outdated.to_string().contains("\"postgres\" must upgrade it (`timers migrate`)"));
    assert_eq!(open(&server, "postgres", timers()), None);
    assert_eq!(open(&server, "shop", timers()), None);
    let missing = open(&server, "shop", PostgresOptions::new("missing")).unwrap();
    let DurableError::Denied(what) = missing else { panic!("{missing:?}") };
    assert!(what.contains("\"missing\" does not exist") && what.contains("migrate"), "{what}");
}

/// A dump that is restored without privileges lacks what was revoked.
#[test]
fn a_store_whose_functions_any_role_may_execute_is_closed_again() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    server.order("create role shop login; create role stranger login");
    let process = server.process();
    let forget = "update pg_proc set proacl = null where pronamespace = 'timers'::regnamespace";
    server.order(forget);
    server.order(
        "grant usage on schema timers to shop, stranger;
         grant select on all tables in schema timers to shop",
    );
    let stranger = client_at(&process, &url(&server, "stranger"));
    let insert = "select timers.insert('id', '', delay => '1 day')";
    assert_eq!(process.execute(&stranger, insert), Ok(Some("new".to_owned())));
    let outdated = open(&server, "shop", timers());
    assert!(matches!(outdated, Some(DurableError::Outdated { .. })), "{outdated:?}");
    server.order("update timers.store set revision = 1000");
    assert_eq!(open(&server, "postgres", timers()), None);
    assert_eq!(process.execute(&stranger, insert), Err("42501".to_owned()));
    assert_eq!(server.order("select revision from timers.store"), "1000");
    // A grant that was made on purpose stays.
    server.order("grant execute on function timers.cancel to public");
    assert_eq!(open(&server, "shop", timers()), None);
    let cancel = "select timers.cancel('id')";
    assert_eq!(process.execute(&stranger, cancel), Ok(Some("removed".to_owned())));
}

#[test]
fn the_statements_of_a_migration_create_and_upgrade_a_store() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process_at(server.port);
    server.order("drop schema timers cascade");
    server.order(
        "create role \"the owner's\" login; grant create on database postgres to \"the owner's\"",
    );
    let administrator = client_at(&process, &url(&server, "the%20owner's"));
    let migrate = Postgres::migration(timers().owner("the owner's")).unwrap();
    let (transaction, vacuum) = migrate.rsplit_once("VACUUM").unwrap();
    process.execute(&administrator, transaction).unwrap();
    process.execute(&administrator, &format!("VACUUM{vacuum}")).unwrap();
    let named = timers().owner("the owner's");
    assert_eq!(open(&server, "postgres", named.clone()), None);
    let clock = "create or replace function timers.clock() returns bigint language sql as 'select 7::bigint'";
    process.execute(&administrator, clock).unwrap();
    process.execute(&administrator, transaction).unwrap();
    assert_eq!(server.order("select timers.clock()"), "7", "it was up to date");
    server.order("update timers.store set revision = 1");
    process.execute(&administrator, transaction).unwrap();
    assert_ne!(server.order("select timers.clock()"), "7");
    let owners = "select count(distinct proowner) from pg_proc
        where pronamespace = 'timers'::regnamespace";
    assert_eq!(server.order(owners), "1");
}
