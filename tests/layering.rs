//! The layers of the sources hold: each file imports only what lies below it.
//!
//! It reads `src` as text, because a lint sees through re-exports and would reject the users of
//! the facades too.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// All modules, lowest layer first; a file may import from the layers before its own, from its
/// own layer only where that is one folder.
const LAYERS: [&[&str]; 17] = [
    &["sync", "bits", "tick", "error", "panics", "prefetch"],
    &["id", "caller", "reclaim", "bell"],
    &["tally", "swept", "lease"],
    &["alarm", "slab"],
    &["hierarchy"],
    &["shard"],
    &["core", "upkeep"],
    &["metrics", "clock"],
    &["wheel", "pinned"],
    &["sweeper"],
    &["executor", "trace"],
    &["driver"],
    &["builder"],
    &["scheduler", "keyed", "cache", "config", "export"],
    &["future"],
    &["backon", "hyper", "quinn", "tower"],
    &["http", "durable"],
];

/// Modules that stand on the exports of the root alone, on each other's, and on the doors to locks
/// and panics.
const ON_TOP: [&str; 12] = [
    "scheduler",
    "keyed",
    "cache",
    "config",
    "export",
    "future",
    "backon",
    "hyper",
    "quinn",
    "tower",
    "http",
    "durable",
];

/// Pairs that name each other, and why.
const EXCEPTIONS: [(&str, &str); 4] = [
    // `Builder::driver` begins a `DriverBuilder`, which finishes the `Builder`.
    ("driver", "builder"),
    // A core's counts decide about upkeep; upkeep works on the core.
    ("core", "upkeep"),
    ("upkeep", "core"),
    // `Wheel::pin` makes a `Pinned`, whose verbs are those of the wheel.
    ("wheel", "pinned"),
];

fn sources() -> BTreeMap<String, String> {
    let mut sources = BTreeMap::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                sources.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    sources
}

/// The code of a file, without its comments and its unit tests; of a file of tests, nothing.
fn code(source: &str) -> String {
    let before_tests = source.split("[cfg(all(test, not(modelled)))]").next().unwrap_or_default();
    let lines = before_tests.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// What follows `crate::`: a name, or several in braces.
fn imports(import: &str) -> Vec<String> {
    let name = |text: &str| -> String {
        text.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    match import.strip_prefix('{') {
        Some(group) => {
            let names = group.split('}').next().unwrap_or_default().split(',').map(name);
            names.filter(|name| !name.is_empty()).collect()
        }
        None => vec![name(import)],
    }
}

fn layer(module: &str) -> usize {
    let place = LAYERS.iter().position(|modules| modules.contains(&module));
    place.unwrap_or_else(|| panic!("{module} is in no layer"))
}

#[test]
fn each_file_imports_only_what_lies_below_it() {
    for (name, source) in sources().iter().filter(|(name, _)| *name != "lib.rs") {
        let module = name.split(['/', '.']).next().unwrap();
        for imported in code(source).split("crate::").skip(1).flat_map(imports) {
            // `crate::TimerId` and the like are exports of the root.
            if imported.starts_with(char::is_uppercase) || imported == module {
                continue;
            }
            let open = ["sync", "panics"].contains(&imported.as_str())
                || ON_TOP.contains(&imported.as_str());
            let past = ON_TOP.contains(&module) && !open;
            assert!(!past, "{name} imports {imported} past the root");
            let allowed = layer(&imported) < layer(module)
                || EXCEPTIONS.contains(&(module, imported.as_str()))
                || (module, imported.as_str()) == ("pinned", "wheel");
            assert!(allowed, "{name} imports {imported}");
        }
    }
}

#[test]
fn each_thing_outside_has_one_door() {
    let atomics = ["sync.rs", "bell.rs", "caller.rs", "clock.rs"];
    let services = ["tower.rs", "http/timeout.rs", "http/body_layer.rs"];
    let figures = ["cache/spread.rs", "cache/stats.rs"];
    let embedded = ["fault", "file", "tables"].map(|file| format!("durable/embedded/{file}.rs"));
    let embedded = embedded.each_ref().map(String::as_str);
    let redis = ["groups", "mod", "link", "notices", "pages", "policy", "scripts", "verbs"]
        .map(|file| format!("durable/redis/{file}.rs"));
    let redis = [&redis.each_ref().map(String::as_str)[..], &["durable/mod.rs"]].concat();
    let doors = [
        ("std::sync::atomic", &[&atomics[..], &figures].concat()[..]),
        ("loom::", &["sync.rs"]),
        ("crossbeam_epoch", &["reclaim.rs"]),
        ("rayon::", &["executor.rs"]),
        ("croner", &["scheduler/calendar.rs"]),
        ("jiff", &["scheduler/calendar.rs"]),
        ("SystemTime::now", &["scheduler/calendar.rs", "durable/clock.rs"]),
        ("quick_cache", &["cache/map.rs"]),
        ("fastrand", &["cache/spread.rs", "durable/redis/pages.rs"]),
        ("dashmap", &["keyed/map.rs"]),
        ("serde::", &["config.rs", "durable/json.rs", "durable/attempt.rs", "durable/timers.rs"]),
        ("serde_json", &["durable/json.rs"]),
        ("redb::", &embedded),
        ("futures_channel", &["durable/embedded/threads.rs", "durable/redis/groups.rs"]),
        (
            "futures_util",
            &[
                "durable/attempt.rs",
                "durable/near.rs",
                "durable/worker.rs",
                "durable/redis/notices.rs",
                "durable/redis/pages.rs",
                "durable/redis/verbs.rs",
            ],
        ),
        (" redis::", &redis),
        ("tokio::", &redis),
        ("humantime::", &["config.rs"]),
        // The crate; `crate::metrics::` is the module.
        (" metrics::", &["export.rs"]),
        ("tracing::", &["trace.rs"]),
        ("hyper::", &["hyper.rs"]),
        ("atomic_waker", &["future/delay_queue.rs"]),
        ("::backon", &["backon.rs"]),
        ("::quinn", &["quinn.rs"]),
        ("tower_layer", &services),
        ("tower_service", &services),
        (" ::http::", &["http/timeout.rs", "http/body_layer.rs"]),
        ("http_body::", &["http/body.rs"]),
        ("Instant::now", &["clock.rs"]),
        ("std::thread::Builder", &["executor.rs", "durable/embedded/threads.rs"]),
    ];
    for (name, source) in &sources() {
        for (thing, files) in doors {
            let named = code(source).contains(thing);
            assert!(!named || files.contains(&name.as_str()), "{name} names {thing}");
        }
    }
}

#[test]
fn each_file_says_what_it_is_and_keeps_its_size() {
    for (name, source) in &sources() {
        assert!(source.starts_with("//!") || name == "lib.rs", "{name} opens without a word");
        let lines = source.lines().count();
        assert!(lines <= 600, "{name} has {lines} lines");
        let unsafe_allowed = code(source).contains("unsafe ");
        let forbids = source.contains("#![forbid(unsafe_code)]");
        let folder = name.ends_with("mod.rs") || name == "sync.rs" || name == "lib.rs";
        assert!(unsafe_allowed || forbids || folder, "{name} needs no unsafe: forbid it");
    }
}
