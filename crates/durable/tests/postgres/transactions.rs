//! Timers that are inserted and cancelled in the transactions of other clients.

#![allow(clippy::disallowed_methods, reason = "workers are waited for")]

use crate::client::{batch, client};
use crate::common::bench::{SECOND, wait};
use crate::common::host::Host;
use crate::common::postgres_server::PostgresServer;
use crate::common::process::{all_are_acknowledged_once, ids, quick};
use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, SystemTime};
use tourbillon_durable::{Cancelled, Existing, Label, Options};

#[test]
fn a_timer_exists_if_its_transaction_is_committed() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let client = client(&process, &server);
    process.execute(&client, "create table orders (id text primary key)").unwrap();
    let work = process.work();
    let mut committed = Vec::new();
    for (number, id) in ids(200).into_iter().enumerate() {
        let delay = 100 + 10 * (number % 30);
        let order = format!("begin; insert into orders values ('{id}')");
        process.execute(&client, &order).unwrap();
        let inserted = format!("select timers.insert('{id}', '', delay => '{delay} ms')");
        assert_eq!(process.execute(&client, &inserted).unwrap().as_deref(), Some("new"));
        match number % 4 {
            0 => _ = process.execute(&client, "rollback").unwrap(),
            // An error later on takes the timer with it.
            1 => {
                assert_eq!(process.execute(&client, "select 1 / 0").unwrap_err(), "22012");
                process.execute(&client, "commit").unwrap();
            }
            _ => {
                process.execute(&client, "commit").unwrap();
                committed.push(id);
            }
        }
    }
    all_are_acknowledged_once(&process.timers, vec![work], committed.clone());
    let orders = server.order("select id from orders order by id");
    assert_eq!(
        orders.lines().map(str::to_owned).collect::<BTreeSet<_>>(),
        committed.into_iter().collect()
    );
}

#[test]
fn a_timer_that_is_due_before_its_commit_comes_after_it() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let client = client(&process, &server);
    let work = process.work();
    process.execute(&client, "begin; select timers.insert('id', '', delay => '0')").unwrap();
    // Its time has passed for all windows meanwhile.
    sleep(4 * SECOND);
    assert!(work.acknowledged.try_recv().is_err(), "it is not committed");
    let begun = SystemTime::now();
    process.execute(&client, "commit").unwrap();
    assert_eq!(work.next(), "id");
    assert!(begun.elapsed().unwrap() < 3 * SECOND, "{:?}", begun.elapsed());
    assert_eq!(work.stop(), [""; 0]);
}

#[test]
fn other_clients_get_the_results_and_the_errors() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let client = client(&process, &server);
    let insert = |arguments: &str| {
        process.execute(&client, &format!("select timers.insert('id', {arguments})"))
    };
    let said = |text: &str| Ok(Some(text.to_owned()));
    assert_eq!(insert("'a', delay => '1 day'"), said("new"));
    assert_eq!(insert("'b', delay => '1 day'"), Err("23505".to_owned()));
    assert_eq!(insert("'b', delay => '1 day', existing => 'keep'"), said("kept"));
    assert_eq!(insert("'c', delay => '1 day', existing => 'replace'"), said("replaced"));
    let headers = "headers => '{\"trace\": \"7\"}'";
    let update = format!("'d', delay => '2 days', existing => 'update', attempts => 3, {headers}");
    assert_eq!(insert(&update), said("updated"));
    let timer = wait(process.timers.get("id")).unwrap().unwrap();
    assert_eq!(timer.payload, b"d");
    let two_days = SystemTime::now() + Duration::from_secs(2 * 86_400);
    let away = two_days.duration_since(timer.due).unwrap_or_default();
    assert!(away < 60 * SECOND, "{timer:?}");
    for wrong in [
        "''",
        "'', delay => '1 day', due => '2100-01-01'",
        "'', delay => '1 day', existing => 'nonsense'",
        "'', due => '20000-01-01'",
        "'', delay => '1 day', attempts => 0, existing => 'replace'",
        "'', delay => '1 day', lease => '0', existing => 'replace'",
        // Workers could not read them.
        "'', delay => '1 day', headers => '{\"trace\": 7}'",
        "'', delay => '1 day', headers => '[[\"trace\"]]'",
        "'', delay => '1 day', headers => '7'",
        "'', delay => '1 day', backoff_first => '-1 s'",
        "'', delay => '1 day', time_to_live => '-1 s'",
        "'', delay => '1 day', existing => null",
        "'', due => '-infinity'",
        "'', due => 'infinity'",
        "'', payload_json => '{}', delay => '1 day'",
        "'', cron => '0 3 * * *', zone => 'UTC'",
        "'', delay => '1 day', cron => '0 3 * * *'",
        "'', delay => '1 day', cron => 'hello', zone => 'UTC'",
        "'', delay => '1 day', cron => '0 3 * * *', zone => 'Mars/Base'",
        "'', delay => '1 day', cron => '0 3 * * *', zone => 'CEST'",
        "'', delay => '1 day', cron => '0 3 * * *', zone => 'Foo/Bar5'",
    ] {
        let refused = insert(wrong);
        assert!(
            refused.as_ref().is_err_and(|code| code.starts_with("22") || code == "23514"),
            "{wrong}: {refused:?}"
        );
    }
    assert_eq!(insert("'e', every => '3 days', existing => 'replace'"), said("replaced"));
    let timer = wait(process.timers.get("id")).unwrap().unwrap();
    assert!(timer.due > two_days, "{timer:?}");
    let cancel = || process.execute(&client, "select timers.cancel('id')");
    assert_eq!((cancel(), cancel()), (said("removed"), Ok(None)));
    assert_eq!(wait(process.timers.cancel("id")), Ok(Cancelled::NotFound));
}

/// Workers find timers without notices, but later.
#[test]
fn other_processes_are_notified() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let work = process.work();
    let listens = "select process from timers.workers where listens";
    server.wait_for("a worker listens", |server| !server.order(listens).is_empty());
    let own = server.order(listens);
    let notices = |sql: &str| {
        let told = server.order(&format!("begin; listen \"tourbillon timers\"; commit; {sql}"));
        let payload =
            |line: &str| Some(line.split_once("with payload \"")?.1.split('"').next()?.to_owned());
        let told = told.lines().filter_map(payload);
        told.filter(|notice| !notice.starts_with("echo")).collect::<Vec<_>>()
    };
    server.order("select timers.insert('id', '', delay => '1 day')");
    let reset = |number, seconds| {
        batch(number, false, "reset", &["id"], &format!("timers.clock() + {seconds} * 1000"))
    };
    let [near] = &notices(&reset(1, 11))[..] else { panic!() };
    assert!(near.starts_with("1:") && near.ends_with(":id"), "{near}");
    assert!(notices(&reset(2, 20)).is_empty());
    let near = |home: &str, kind: &str| {
        let changed = format!("array['{kind}'], array['id'], array[timers.clock()]");
        notices(&format!("select timers.notify_near({home}, timers.clock(), {changed})")).len()
    };
    // Unless all workers belong to the process that notifies, and not of the ends of leases.
    assert_eq!((near("7", "finish"), near(&own, "finish")), (1, 0));
    assert_eq!((near("7", "lease"), near("7", "renew")), (0, 0));
    assert_eq!(notices("select timers.pause_store(false)"), ["pause"]);
    assert_eq!(notices("select timers.leave(7, null)"), ["left"]);
    assert_eq!(work.stop(), [""; 0]);
}

/// A timer is due once its time has passed, and a delay passes completely.
#[test]
fn times_are_rounded_so_that_nothing_is_early() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let _process = server.process();
    let exact = "extract(epoch from clock_timestamp()) * 1000";
    let wrong = |order: &str| {
        server.order(&format!("select count(*) from generate_series(1, 1000) where {order}"))
    };
    assert_eq!(wrong(&format!("timers.clock() > {exact}")), "0");
    assert_eq!(wrong(&format!("{exact} > timers.coming()")), "0");
    assert_eq!(server.order("select timers.millis('1.2 ms'), timers.millis('2 ms')"), "2|2");
}

#[test]
fn a_transaction_that_cannot_see_the_present_is_refused() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let client = client(&process, &server);
    let timers = &process.timers;
    let (begin, begun) = std::sync::mpsc::channel();
    let (end, ends) = futures_channel::oneshot::channel::<()>();
    let worker = timers.worker().until(async move {
        let _ = ends.await;
    });
    let run = worker.run(move |_| {
        let (result, comes) = futures_channel::oneshot::channel::<()>();
        begin.send(result).unwrap();
        comes
    });
    let run = std::thread::spawn(move || wait(run));
    wait(timers.insert("id", "", SECOND, quick())).unwrap();
    let begins = "begin isolation level repeatable read; select count(*) from timers.timers";
    process.execute(&client, begins).unwrap();
    // A lease begins that the transaction does not see.
    let result = begun.recv_timeout(60 * SECOND).unwrap();
    let replace = "select timers.insert('id', 'new', delay => '1 day', existing => 'replace')";
    assert_eq!(process.execute(&client, replace), Err("40001".to_owned()));
    process.execute(&client, "rollback").unwrap();
    result.send(()).unwrap();
    drop(end);
    run.join().unwrap().unwrap();
    assert_eq!(wait(timers.len()), Ok(0));
    // Its snapshot has all that was committed.
    process.execute(&client, begins).unwrap();
    let inserted = process.execute(&client, "select timers.insert('id', '', delay => '1 s')");
    assert_eq!(inserted, Ok(Some("new".to_owned())));
    process.execute(&client, "commit").unwrap();
    all_are_acknowledged_once(timers, vec![process.work()], vec!["id".to_owned()]);
}

/// A literal is the payload as it is written, and JSON stays JSON.
#[test]
fn a_payload_is_a_text_json_or_bytes() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    for (id, payload, stored) in [
        ("text", r"'C:\temp'", r"C:\temp".as_bytes()),
        ("json in a text", r#"'{"re":"\\d+","x":"\""}'"#, br#"{"re":"\\d+","x":"\""}"#),
        ("json", r#"payload_json => '{"re": "\\d+"}'"#, br#"{"re": "\\d+"}"#),
        ("bytes", r"payload_bytes => '\x00ff'", b"\x00\xff"),
        ("none", "payload => null", b""),
    ] {
        server.order(&format!("select timers.insert('{id}', {payload}, delay => '1 day')"));
        assert_eq!(wait(process.timers.get(id)).unwrap().unwrap().payload, stored, "{id}");
    }
}

/// The function that takes the options of the crate checks the same.
#[test]
fn no_function_takes_what_a_worker_cannot_read() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let client = client(&process, &server);
    let with = |changes: &str| {
        let sql = format!(
            r#"select timers.insert_with('id', '', ('{{"wait": 86400000, "existing": "replace",
               "first": 1, "most": 1, "jitter": true, "attempts": 8, "lease": 1000}}'::jsonb
               || '{changes}')::text)"#
        );
        process.execute(&client, &sql)
    };
    let long = "x".repeat(4097);
    for wrong in [
        r#"{"headers": {"a": 5}}"#,
        r#"{"headers": "x"}"#,
        &format!(r#"{{"headers": {{"a": "{long}"}}}}"#),
        r#"{"cron": "* * * * *"}"#,
        r#"{"cron": "* * * * *", "zone": "UTC", "every": 1}"#,
        &format!(r#"{{"cron": "* * * * {long}", "zone": "UTC"}}"#),
        r#"{"every": 0}"#,
        r#"{"every": -5}"#,
        r#"{"first": -7}"#,
        r#"{"misfire": 7}"#,
        r#"{"existing": null}"#,
    ] {
        assert_eq!(with(wrong), Err("22023".to_owned()), "{wrong}");
    }
    let most = "x".repeat(4095);
    for right in [
        &*format!(r#"{{"headers": {{"a": "{most}"}}}}"#),
        r#"{"cron": "0 0 3 ? * MON-FRI", "zone": "europe/Berlin", "misfire": 7}"#,
        r#"{"cron": "@daily", "zone": "Etc/GMT+3"}"#,
    ] {
        let done = with(right).unwrap().unwrap();
        assert!(["new", "replaced"].contains(&&*done), "{right}: {done}");
        assert!(wait(process.timers.get("id")).unwrap().is_some(), "{right}");
    }
    // Rows that other programs write.
    for wrong in ["every = 0", "first = -1", "cron = repeat('x', 5000)", "zone = repeat('x', 300)"]
    {
        let refused = process.execute(&client, &format!("update timers.timers set {wrong}"));
        assert_eq!(refused, Err("23514".to_owned()), "{wrong}");
    }
}

#[test]
fn a_list_continues_after_any_text() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    for id in ["a", "a\u{1}", "b"] {
        wait(process.timers.insert(id, "", 86_400 * SECOND, quick())).unwrap();
    }
    let after = |text| {
        let listed = wait(process.timers.list(Some(text), 10)).unwrap();
        listed.into_iter().map(|timer| timer.id).collect::<Vec<_>>()
    };
    assert_eq!(after("a\0b"), ["a\u{1}", "b"]);
    assert_eq!(after("a"), after("a\0b"));
}

#[test]
fn a_call_has_the_options_of_the_crate() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let client = client(&process, &server);
    let options = quick().header("trace", "7").every(SECOND).existing(Existing::Keep);
    let shop = Label::new("shop").unwrap();
    let options = options.label(shop.clone());
    let store = tourbillon_durable::PostgresOptions::new("timers");
    let hour = 3600 * SECOND;
    let call =
        tourbillon_durable::PostgresInsert::new(&store, "id", "unpaid", hour, options.clone());
    let call = call.unwrap();
    let insert = || {
        let done = process.runtime.block_on(client.query_one(call.sql(), &call.params()));
        done.unwrap().get::<_, String>(0)
    };
    assert_eq!((insert(), insert()), ("new".to_owned(), "kept".to_owned()));
    let timer = wait(process.timers.get("id")).unwrap().unwrap();
    assert_eq!(
        (&timer.payload[..], timer.options),
        (&b"unpaid"[..], options.existing(Existing::Refuse))
    );
    assert_eq!(wait(process.timers.label_len(&shop)), Ok(1));
    let wrong =
        "select timers.insert_with('id', '', '{\"labels\": [\"a\\tb\"], \"wait\": 1, \"first\": 1,
        \"most\": 1, \"jitter\": false, \"attempts\": 1, \"lease\": 1, \"existing\": \"keep\"}')";
    assert_eq!(process.execute(&client, wrong), Err("22023".to_owned()));
}

#[test]
fn the_guide_inserts_a_timer_with_labels_and_the_defaults() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let process = server.process();
    let mut examples = include_str!("../../GUIDE.md").split("```sql\n");
    let example = examples.find(|text| text.starts_with("SELECT reminders.insert_with")).unwrap();
    let (statement, _) = example.split_once("```").unwrap();
    assert_eq!(server.order(&statement.replace("reminders.", "timers.")), "new");
    let timer = wait(process.timers.get("order 7")).unwrap().unwrap();
    let label = |text| Label::new(text).unwrap();
    let options = Options::new().label(label("shop")).label(label("customer 7"));
    assert_eq!((&timer.payload[..], timer.options), (&b"unpaid"[..], options));
    assert_eq!(wait(process.timers.label_len(&label("customer 7"))), Ok(1));
}
