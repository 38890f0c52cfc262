//! Each command on a file, and its exit code.

use super::tool::{Folder, Tool, unwritable};
use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};
use tourbillon_durable::{DurableTimers, Label, Options, Verdict};

const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Creates a dead letter for each of these ids.
fn kill(store: &Path, ids: &[&str]) {
    kill_with(store, ids, b"", Options::new());
}

/// Creates a dead letter for each of these ids. Each payload begins with the id.
fn kill_with(store: &Path, ids: &[&str], rest: &[u8], options: Options) {
    let timers = DurableTimers::open(store).unwrap();
    let (done, ends) = std::sync::mpsc::channel();
    let (end, ended) = futures_channel::oneshot::channel::<()>();
    let worker = timers.worker().observe(move |_| done.send(()).unwrap()).until(async move {
        let _ = ended.await;
    });
    pollster::block_on(async {
        for id in ids {
            timers
                .insert(id, [id.as_bytes(), rest].concat(), Duration::ZERO, options.clone())
                .await
                .unwrap();
        }
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pollster::block_on(worker.run(|_| async { Verdict::Fail("no such host".to_owned()) }))
        });
        for _ in ids {
            ends.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        end.send(()).unwrap();
    });
}

/// Inserts `count` timers, `0000` and so on, a second apart.
fn fill(store: &Path, count: u32, start: SystemTime) {
    let timers = &DurableTimers::open(store).unwrap();
    let inserts = (0..count).map(async |number| {
        let at = start + number * Duration::from_secs(1);
        timers.insert(&format!("{number:04}"), "", at, Options::new()).await
    });
    pollster::block_on(futures_util::future::try_join_all(inserts)).unwrap();
}

#[test]
fn a_timer_is_inserted_shown_listed_and_cancelled() {
    let folder = Folder::new();
    let tool = Tool::file(&folder.join("timers"));
    let at = ["--at", "2090-01-01T10:00[Europe/Berlin]"];
    let with = ["--header", "a=b=c", "--attempts", "3", "--existing", "keep"];
    let schedule = [&["schedule", "order 7", "unpaid"][..], &at, &with].concat();
    assert_eq!(tool.field("result", &schedule), ["new"]);
    assert_eq!(tool.field("result", &schedule), ["kept"]);
    let shown = tool.json(&["get", "order 7"]);
    assert_eq!(
        shown,
        [json!({
            "id": "order 7", "state": "resting", "due": "2090-01-01T09:00:00.000Z",
            "planned": "2090-01-01T09:00:00.000Z", "attempts": 0, "most_attempts": 3,
            "headers": { "a": "b=c" }, "payload": "unpaid",
        })]
    );
    assert_eq!(tool.json(&["list"]), shown);
    assert_eq!(tool.field("result", &["cancel", "order 7"]), ["removed"]);
    assert!(tool.json(&["list"]).is_empty());
    assert_eq!(tool.run(&["get", "order 7"]).code, 3);
    assert_eq!(tool.run(&["cancel", "order 7"]).code, 3);
}

#[test]
fn a_timer_is_moved_to_another_time() {
    let folder = Folder::new();
    let tool = Tool::file(&folder.join("timers"));
    tool.json(&["schedule", "a", "unpaid", "--after", "30d"]);
    let due = "2090-01-01T09:00:00.000Z";
    let moved = tool.json(&["move", "a", "--at", "2090-01-01T10:00[Europe/Berlin]"]);
    assert_eq!(moved, [json!({ "id": "a", "state": "resting", "due": due })]);
    assert_eq!(tool.field("payload", &["get", "a"]), ["unpaid"]);
    assert_ne!(tool.field("due", &["move", "a", "--after", "1h"]), [due]);
    assert_eq!(tool.run(&["move", "b", "--after", "1h"]).code, 3);
    for time in [&[][..], &["--at", due, "--after", "1h"], &["--after", "soon"]] {
        assert_eq!(tool.run(&[&["move", "a"], time].concat()).code, 2, "{time:?}");
    }
}

#[test]
fn a_timer_is_run_now() {
    let folder = Folder::new();
    let tool = Tool::file(&folder.join("timers"));
    for (id, time) in [("once", "--after"), ("repeats", "--every")] {
        tool.json(&["schedule", id, time, "30d"]);
        let planned = tool.field("planned", &["get", id]);
        tool.json(&["pause", id]);
        assert_eq!(tool.field("state", &["run", id]), ["resting"]);
        let shown = tool.json(&["get", id]).remove(0);
        assert!(shown["due"].as_str() < planned[0].as_str(), "{shown}");
        let next = if id == "repeats" { &planned[0] } else { &serde_json::Value::Null };
        assert_eq!((&shown["planned"], &shown["next"]), (&shown["due"], next));
    }
    assert_eq!(tool.run(&["run", "another"]).code, 3);
}

#[test]
fn a_timer_that_is_dead_is_found_by_its_id() {
    let folder = Folder::new();
    let store = folder.join("timers");
    for id in ["b", "a", "a"] {
        kill(&store, &[id]);
    }
    let tool = Tool::file(&store);
    let letters = tool.json(&["dead", "list"]);
    assert_eq!(tool.json(&["get", "a"]), letters[2..]);
    assert_eq!(tool.json(&["get", "b"]), letters[..1]);
    let shown = tool.run(&["get", "b"]).out;
    assert!(shown.contains("died") && shown.contains("no such host"), "{shown}");
    assert_eq!(tool.run(&["get", "c"]).code, 3);
    tool.json(&["schedule", "a", "--after", "30d"]);
    assert_eq!(tool.field("state", &["get", "a"]), ["resting"]);
}

#[test]
fn payloads_are_bytes() {
    let folder = Folder::new();
    let tool = Tool::file(&folder.join("timers"));
    let from_input = ["schedule", "bytes", "--after", "30d", "--payload-file", "-"];
    assert_eq!(tool.run_with(&from_input, &[0, 255, 7]).code, 0);
    assert_eq!(tool.field("payload_base64", &["get", "bytes"]), ["AP8H"]);
    let payload = folder.join("payload");
    std::fs::write(&payload, "from a file").unwrap();
    let from_file = ["schedule", "text", "--after", "30d", "--payload-file"];
    assert_eq!(tool.run(&[&from_file[..], &[payload.to_str().unwrap()]].concat()).code, 0);
    assert_eq!(tool.field("payload", &["get", "text"]), ["from a file"]);
}

#[test]
fn a_store_is_not_open_while_a_payload_is_awaited() {
    let folder = Folder::new();
    let tool = Tool::file(&folder.join("timers"));
    tool.json(&["schedule", "a", "--after", "30d"]);
    let mut command = tool.command(&["schedule", "b", "--after", "30d", "--payload-file", "-"]);
    let (input, mut writes) = std::io::pipe().unwrap();
    let mut waits = command.stdin(input).stdout(Stdio::null()).spawn().unwrap();
    // More than a pipe holds, so the command has begun to read.
    let payload = vec![b'.'; 256 * 1024];
    writes.write_all(&payload).unwrap();
    assert_eq!(tool.run(&["list"]).code, 0);
    drop((command, writes));
    assert!(waits.wait().unwrap().success());
    let stored = tool.field("payload", &["get", "b"]);
    assert_eq!(stored[0].as_str().unwrap().len(), payload.len());
}

#[test]
fn errors_are_json_where_the_output_is() {
    let folder = Folder::new();
    let tool = Tool::file(&folder.join("timers"));
    let ran = tool.run(&["--json", "get", "nothing"]);
    let error: serde_json::Value = serde_json::from_str(&ran.errors).unwrap();
    assert_eq!((ran.code, &error["code"]), (3, &json!(3)));
    assert!(error["error"].as_str().unwrap().contains("there is no such store"));
    let ran = tool.run(&["redrive", "--json"]);
    let error: serde_json::Value = serde_json::from_str(&ran.errors).unwrap();
    assert_eq!((ran.code, &error["code"]), (2, &json!(2)));
    let error = error["error"].as_str().unwrap();
    assert!(error.starts_with("the following required arguments were not provided"), "{error}");
    // It is an id here.
    let ran = tool.run(&["redrive", "--", "--json"]);
    assert!(ran.code == 2 && ran.errors.starts_with("error: invalid value"), "{ran:?}");
    let help = tool.run(&["--json", "--help"]);
    assert!(help.code == 0 && help.out.contains("Exit codes:"), "{help:?}");
}

#[test]
fn help_is_as_wide_as_a_page_and_names_all_choices() {
    let nowhere = Tool::at("");
    for command in ["list", "schedule", "redrive", "dead", "copy", "migrate"] {
        let ran = nowhere.run(&[command, "--help"]);
        assert!(ran.code == 0 && ran.out.contains("Examples:\n  timers "), "{}", ran.out);
        let widest = ran.out.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100), "{widest:?}: {}", ran.out);
    }
    let schedule = nowhere.run(&["schedule", "--help"]).out;
    let place = |text: &str| schedule.find(text).unwrap_or_else(|| panic!("{text}: {schedule}"));
    let order = ["Time:", "--cron", "Delivery:", "--lease", "Store:", "--tls-key", "Examples:"];
    assert!(order.map(place).is_sorted(), "{schedule}");
    let usage = nowhere.run(&["redrive"]);
    assert!(usage.code == 2 && usage.errors.contains("--all"), "{usage:?}");
    assert_eq!(nowhere.run(&["redrive", "7", "--all"]).code, 2);
    let folder = Folder::new();
    let wrong =
        Tool::file(&folder.join("timers")).run(&["schedule", "a", "--cron", "0 0 1 1 * * 2030"]);
    assert!(wrong.errors.contains("years need"), "{wrong:?}");
    assert!(!wrong.errors.contains("::"), "{wrong:?}");
}

#[test]
fn completions_and_the_manual_have_the_commands() {
    let nowhere = Tool::at("");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ran = nowhere.run(&["completions", shell]);
        assert!(ran.code == 0 && ran.out.contains("redrive"), "{shell}");
    }
    let manual = nowhere.run(&["man"]);
    assert!(manual.code == 0 && manual.out.contains(".TH timers 1"), "{}", manual.out);
    let folder = Folder::new();
    let place = folder.join("man1");
    let ran = nowhere.run(&["man", "--folder", place.to_str().unwrap()]);
    assert!(ran.code == 2 && ran.errors.contains("man1: "), "{ran:?}");
    std::fs::create_dir(&place).unwrap();
    assert_eq!(nowhere.run(&["man", "--folder", place.to_str().unwrap()]).code, 0);
    let page = std::fs::read_to_string(place.join("timers-dead-list.1")).unwrap();
    assert!(page.contains("newest"), "{page}");
}

#[test]
fn rules_are_shown_with_their_misfire_option() {
    let folder = Folder::new();
    let tool = Tool::file(&folder.join("timers"));
    tool.json(&["schedule", "e", "--every", "1h 30m", "--misfire", "10m"]);
    tool.json(&["schedule", "c", "--cron", "0 9 * * *", "--zone", "Asia/Tokyo"]);
    let repeats = |id| tool.field("repeats", &["get", id]);
    assert_eq!(repeats("e"), [json!({ "every": "1h 30m", "misfire": "10m" })]);
    let cron = json!({ "cron": "0 9 * * *", "zone": "Asia/Tokyo", "misfire": "once" });
    assert_eq!(repeats("c"), [cron]);
    let nine_in_tokyo = tool.field("due", &["get", "c"]);
    assert!(nine_in_tokyo[0].as_str().unwrap().ends_with("T00:00:00.000Z"), "{nine_in_tokyo:?}");
}

#[test]
fn lists_are_limited_by_state_time_and_number() {
    let folder = Folder::new();
    let (store, start) = (folder.join("timers"), SystemTime::UNIX_EPOCH + 120 * YEAR);
    fill(&store, 1200, start);
    let tool = Tool::file(&store);
    let all: Vec<String> = (0..1200).map(|number| format!("{number:04}")).collect();
    let mut listed = Vec::new();
    let mut page = tool.page(&["list"]);
    assert_eq!(page.0.len(), 100);
    loop {
        listed.extend(page.0.iter().map(|timer| timer["id"].as_str().unwrap().to_owned()));
        let Some(next) = page.1 else { break };
        page = tool.page(&["list", "--limit", "550", "--after", next.as_str().unwrap()]);
    }
    assert_eq!(listed, all);
    let ran = tool.run(&["list", "--limit", "1199"]);
    let more = "there are more (1200 in all): list --after \"";
    assert!(ran.errors.starts_with(more), "{}", ran.errors);
    assert_eq!(tool.run(&["list", "--limit", "1200"]).errors, "");
    let at = |seconds| tourbillon_durable::text::show_time(start + Duration::from_secs(seconds));
    let (from, before) = (at(5), at(8));
    let range = ["list", "--due-from", &from, "--due-before", &before];
    assert_eq!(tool.field("id", &range), ["0005", "0006", "0007"]);
    let ran = tool.run(&[&range[..], &["--limit", "2"]].concat());
    assert!(ran.errors.starts_with("there are more: list --after \""), "{}", ran.errors);
    tool.json(&["pause", "0600"]);
    tool.json(&["pause", "0601"]);
    let more = tool.json(&["list", "--state", "paused", "--limit", "1"]).remove(1);
    assert_eq!(more["total"], 2);
    tool.json(&["resume", "0601"]);
    assert_eq!(tool.field("id", &["list", "--state", "paused"]), ["0600"]);
    assert_eq!(tool.json(&["list", "--state", "resting", "--limit", "5000"]).len(), 1199);
    assert!(tool.json(&["list", "--state", "running"]).is_empty());
    assert_eq!(tool.field("state", &["resume", "0600"]), ["resting"]);
}

#[test]
fn timers_are_listed_counted_and_changed_by_label() {
    let folder = Folder::new();
    let store = folder.join("timers");
    let tool = Tool::file(&store);
    let at = ["--at", "2090-01-01T00:00Z"];
    for (id, labels) in [("b", &["shop", "eu"][..]), ("a", &["shop"]), ("c", &["eu"]), ("d", &[])] {
        let labels = labels.iter().flat_map(|label| ["--label", label]);
        tool.json(&["schedule", id].into_iter().chain(at).chain(labels).collect::<Vec<_>>());
    }
    assert_eq!(tool.json(&["get", "b"])[0]["labels"], json!(["eu", "shop"]));
    assert_eq!(tool.field("id", &["list", "--label", "shop"]), ["a", "b"]);
    let (page, next) = tool.page(&["list", "--label", "shop", "--limit", "1"]);
    assert_eq!((&page[0]["id"], next), (&json!("a"), Some(json!("a"))));
    assert_eq!(tool.field("id", &["list", "--label", "shop", "--after", "a"]), ["b"]);
    let counted = json!({ "label": "shop", "timers": 2 });
    assert_eq!(tool.json(&["stats", "--label", "shop"]), [counted]);
    let done = |result: &str| json!({ "result": result, "changed": 2, "unreadable": 0 });
    assert_eq!(tool.json(&["pause", "--label", "shop"]), [done("paused")]);
    assert_eq!(tool.field("id", &["list", "--state", "paused"]), ["a", "b"]);
    assert_eq!(tool.json(&["resume", "--label", "shop"]), [done("resumed")]);
    assert_eq!(tool.json(&["cancel", "--label", "eu"]), [done("cancelled")]);
    assert_eq!(tool.field("id", &["list"]), ["a", "d"]);
}

#[test]
fn labels_that_are_wrong_or_beside_an_id_are_refused() {
    let folder = Folder::new();
    let tool = Tool::file(&folder.join("timers"));
    for wrong in [
        &["list", "--label", ""][..],
        &["cancel", "a", "--label", "shop"],
        &["list", "--label", "shop", "--state", "paused"],
        &["schedule", "e", "--after", "1h", "--label", "a\nb"],
        &["list", "--after", "a"],
    ] {
        assert_eq!(tool.run(wrong).code, 2, "{wrong:?}");
    }
}

#[test]
fn dead_letters_are_listed_and_redriven_by_label() {
    let folder = Folder::new();
    let store = folder.join("timers");
    let tool = Tool::file(&store);
    let options = Options::new().label(Label::new("shop").unwrap());
    kill_with(&store, &["x", "y"], b"", options);
    kill(&store, &["z"]);
    assert_eq!(tool.field("id", &["dead", "list", "--label", "shop"]), ["x", "y"]);
    let newest = ["dead", "list", "--newest", "--limit", "1", "--label", "shop"];
    assert_eq!(tool.page(&newest).0[0]["labels"], json!(["shop"]));
    assert_eq!(tool.field("redriven", &["redrive", "--label", "shop"]), [2]);
    assert_eq!(tool.field("id", &["dead", "list"]), ["z"]);
}

/// A store returns up to 8 MiB at once.
#[test]
fn lists_are_as_long_as_their_limit_however_long_the_payloads_are() {
    let folder = Folder::new();
    let store = folder.join("timers");
    let ids: Vec<String> = (1..10).map(|number| number.to_string()).collect();
    let names: Vec<&str> = ids.iter().map(String::as_str).collect();
    let long = vec![b'.'; (1 << 20) - 8];
    kill_with(&store, &names, &long, Options::new());
    let timers = DurableTimers::open(&store).unwrap();
    for name in &names {
        pollster::block_on(timers.insert(name, &*long, YEAR, Options::new())).unwrap();
    }
    drop(timers);
    let tool = Tool::file(&store);
    for list in [&["list"][..], &["dead", "list"]] {
        for limit in [8, 9] {
            let ran = tool.run(&[list, &["--limit", &limit.to_string()]].concat());
            let (rows, more) = (ran.out.lines().skip(1).count(), ran.errors);
            assert_eq!(
                (rows, more.starts_with("there are more (9 in all): ")),
                (limit, limit < 9),
                "{list:?}"
            );
        }
    }
    let newest = ["dead", "list", "--newest", "--limit", "8"];
    let (found, next) = tool.page(&newest);
    assert_eq!((found.len(), next), (8, Some(found[7]["number"].clone())));
}

#[test]
fn dead_letters_are_shown_redriven_and_deleted() {
    let folder = Folder::new();
    let store = folder.join("timers");
    kill(&store, &["a", "b", "c", "d"]);
    let tool = Tool::file(&store);
    let (letters, next) = tool.page(&["dead", "list", "--limit", "3"]);
    assert_eq!((letters.len(), next.as_ref()), (3, Some(&letters[2]["number"])));
    assert_eq!(tool.page(&["dead", "list", "--limit", "4"]).1, None);
    let (newest, next) = tool.page(&["dead", "list", "--newest", "--limit", "1"]);
    assert_eq!((newest.len(), next.as_ref()), (1, Some(&newest[0]["number"])));
    let numbers: Vec<String> =
        tool.field("number", &["dead", "list"]).iter().map(ToString::to_string).collect();
    let shown = &tool.json(&["dead", "show", &numbers[1]])[0];
    assert_eq!(shown, &letters[1]);
    assert_eq!((&shown["reason"], &shown["error"]), (&json!("failed"), &json!("no such host")));
    let rest = tool.field("number", &["dead", "list", "--after", &numbers[1]]);
    assert_eq!(rest.len(), 2);

    let id = tool.field("id", &["dead", "show", &numbers[0]]);
    let id = id[0].as_str().unwrap();
    tool.json(&["schedule", id, "--after", "1d"]);
    let ran = tool.run(&["redrive", &numbers[0]]);
    assert_eq!((ran.code, &*ran.errors), (4, "timers: a timer with this id already exists\n"));
    assert_eq!(tool.json(&["redrive", &numbers[0], "--as", "again"])[0]["result"], "redriven");
    assert_eq!(tool.field("payload", &["get", "again"]), [id]);
    assert_eq!(tool.run(&["redrive", &numbers[0]]).code, 3);
    tool.json(&["dead", "delete", &numbers[1]]);
    assert_eq!(tool.run(&["dead", "delete", &numbers[1]]).code, 3);
    assert_eq!(tool.field("deleted", &["dead", "trim", "--most", "1"]), [1]);
    assert_eq!(tool.field("redriven", &["redrive", "--all"]), [1]);
    assert!(tool.json(&["dead", "list"]).is_empty());
}

#[test]
fn dead_letters_are_listed_newest_first() {
    let folder = Folder::new();
    let store = folder.join("timers");
    kill(&store, &["a", "b", "c", "d"]);
    let tool = Tool::file(&store);
    let mut oldest = tool.json(&["dead", "list"]);
    oldest.reverse();
    let newest = tool.json(&["dead", "list", "--newest"]);
    assert_eq!(newest, oldest);
    let number = newest[1]["number"].to_string();
    let older = ["dead", "list", "--newest", "--before", &number, "--limit", "1"];
    assert_eq!(tool.page(&older).0, newest[2..3]);
    assert_eq!(tool.run(&["dead", "list", "--before", "1"]).code, 2);
}

#[test]
fn the_numbers_of_a_store_are_shown() {
    let folder = Folder::new();
    let tool = Tool::file(&folder.join("timers"));
    tool.json(&["schedule", "late", "--at", "2020-01-01T00:00:00Z"]);
    tool.json(&["schedule", "paused", "--after", "30d"]);
    tool.json(&["pause", "paused"]);
    tool.json(&["pause", "--all"]);
    let stats = tool.json(&["stats"]).remove(0);
    let shown = ["timers", "resting", "paused", "overdue", "leased", "dead_letters"];
    assert_eq!(shown.map(|name| stats[name].as_u64()), [2, 1, 1, 1, 0, 0].map(Some));
    assert_eq!(stats["oldest_due"], "2020-01-01T00:00:00.000Z");
    assert_eq!(stats["store_paused"], true);
    let year_in_millis = 365 * 86_400_000;
    assert!(stats["lag_millis"].as_u64() > Some(year_in_millis), "{stats}");
}

#[test]
fn a_paused_store_is_copied() {
    let folder = Folder::new();
    let (store, other) = (folder.join("timers"), folder.join("other"));
    let tool = Tool::file(&store);
    tool.json(&["schedule", "order 7", "unpaid", "--after", "30d"]);
    let target = other.to_str().unwrap();
    let ran = tool.run(&["copy", target]);
    assert_eq!((ran.code, &*ran.errors), (4, "timers: the store is not paused\n"));
    assert_eq!(tool.field("store", &["pause", "--all"]), ["paused"]);
    assert_eq!(tool.json(&["copy", target]), [json!({ "timers": 1, "dead_letters": 0 })]);
    assert_eq!(Tool::file(&other).json(&["list"]), tool.json(&["list"]));
    assert_eq!(tool.field("store", &["resume", "--all"]), ["resumed"]);
    assert_eq!(tool.run(&["copy", target]).code, 4, "it is resumed");
}

#[test]
fn each_failure_has_its_exit_code() {
    let folder = Folder::new();
    let store = folder.join("timers");
    let tool = Tool::file(&store);
    let ran = tool.run(&["list"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(!store.exists(), "a list creates no store");
    assert_eq!(Tool::at("").run(&["list"]).code, 2);
    assert_eq!(tool.run(&["schedule", "a"]).code, 2, "no time");
    assert_eq!(tool.run(&["schedule", "a", "--at", "tomorrow"]).code, 2);
    assert_eq!(Tool::at("http://example.org/").run(&["list"]).code, 2);

    let schedule = ["schedule", "a", "--after", "30d"];
    assert_eq!(tool.run(&schedule).code, 0);
    assert_eq!(tool.run(&schedule).code, 4);
    assert_eq!(tool.run(&["schedule", "b", "--after", "1d", "--attempts", "0"]).code, 1);
    let open = DurableTimers::open(&store).unwrap();
    let ran = tool.run(&["list"]);
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.errors.starts_with("timers: the store is open elsewhere: "), "{ran:?}");
    drop(open);
    std::fs::write(&store, "something else").unwrap();
    assert_eq!(tool.run(&["list"]).code, 1);
    assert_eq!(Tool::at("redis://127.0.0.1:1/").run(&["list"]).code, 6);
}

#[test]
fn errors_that_cannot_be_written_change_no_exit_code() {
    let folder = Folder::new();
    let tool = Tool::file(&folder.join("timers"));
    for errors in unwritable() {
        let status = tool.command(&["get", "nothing"]).stderr(errors).status().unwrap();
        assert_eq!(status.code(), Some(3));
    }
}

#[test]
fn a_copy_whose_progress_cannot_be_written_is_complete() {
    const TIMERS: u32 = 1500;
    let folder = Folder::new();
    let store = folder.join("timers");
    fill(&store, TIMERS, SystemTime::UNIX_EPOCH + 120 * YEAR);
    let tool = Tool::file(&store);
    tool.json(&["pause", "--all"]);
    for (number, errors) in unwritable().into_iter().enumerate() {
        let other = folder.join(&format!("other-{number}"));
        let mut command = tool.command(&["copy", other.to_str().unwrap()]);
        assert!(command.stderr(errors).status().unwrap().success());
        assert_eq!(Tool::file(&other).field("timers", &["stats"]), [TIMERS]);
    }
}

#[test]
fn no_error_shows_a_password() {
    let slips = [
        "postgres://u:hunter2@127.0.0.1:1/db",
        "postgres://u:hunter2@hunter2@127.0.0.1:1/db",
        "postgres://u:hunter2/hunter2@127.0.0.1:port/db",
        "postgres://u:hunter2?hunter2@127.0.0.1:1/db",
        "postgres://u:hunter2?hunter2=@127.0.0.1:1/db",
        "postgres://u:hunter2#hunter2@127.0.0.1:1/db",
        "postgres://127.0.0.1:1/db?password=hunter2&port=x",
        "postgres:/u:hunter2@127.0.0.1:1/db",
        "postgress://u:hunter2@127.0.0.1:1/db",
        "redis://u:hunter2@127.0.0.1:1/",
        "redis://u:hunter2@127.0.0.1:port/",
        "redis://:hunter2",
        "redis://u:hunter2@127.0.0.1:1/hunter2",
        "redis://u:hunter2#hunter2:hunter2@127.0.0.1:1/",
        "rediss://u:hunter2@127.0.0.1:1/x#insecure",
        "cluster:redis://u:hunter2@127.0.0.1:1/,redis://u:hunter2@127.0.0.1:port/",
        "cluster:redis://u:hunter2@127.0.0.1:1/",
        "sentinel:redis://u:hunter2@mymaster/",
        "sentinel:redis://u:hunter2@mymaster/,redis://u:hunter2@127.0.0.1:port/",
        "sentinel:redis://u:hunter2@mymaster/,redis://u:hunter2@127.0.0.1:1/",
    ];
    let (folder, nowhere) = (Folder::new(), Tool::at(""));
    let file = folder.join("timers");
    let file = file.to_str().unwrap();
    Tool::at(file).json(&["schedule", "a", "--after", "30d"]);
    let shows_none = |slip: &str| {
        for ran in [
            Tool::at(slip).run(&["list"]),
            nowhere.run(&["--store", slip, "list"]),
            Tool::at(file).run(&["copy", slip]),
        ] {
            assert!([1, 2, 6].contains(&ran.code), "{slip}: {ran:?}");
            assert!(ran.errors.len() > 20, "{slip}: {ran:?}");
            assert!(!(ran.out + &ran.errors).contains("hunter2"), "{slip}: {}", ran.errors);
        }
    };
    // Each run waits for a server that does not exist.
    std::thread::scope(|scope| {
        for slip in slips {
            scope.spawn(move || shows_none(slip));
        }
    });
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_a_store_and_its_copy() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let names = ["timers", "other"].map(|name| folder.join(name).to_str().unwrap().to_owned());
    let script =
        "umask 0; \"$0\" schedule a --after 30d && \"$0\" pause --all && \"$0\" copy \"$1\"";
    let status = std::process::Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_timers"), &names[1]])
        .env("TIMERS_STORE", &names[0])
        .status();
    assert!(status.unwrap().success());
    for name in names {
        let mode = std::fs::metadata(&name).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn an_id_cannot_give_commands_to_the_terminal() {
    let folder = Folder::new();
    let tool = Tool::file(&folder.join("timers"));
    let id = "red \u{1b}[31m\nline\ttab";
    tool.run(&["schedule", id, id, "--after", "30d"]);
    for arguments in [&["list"][..], &["get", id], &["pause", id], &["cancel", id], &["get", id]] {
        let ran = tool.run(arguments);
        let shown = ran.out + &ran.errors;
        assert!(!shown.contains(['\u{1b}', '\t']), "{arguments:?}: {shown:?}");
        assert!(shown.contains("red "), "{arguments:?}: {shown:?}");
    }
}
