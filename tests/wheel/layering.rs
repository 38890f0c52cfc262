//! Checks the layers of the sources. Imports go one way, from file to file and from group to group.
//!
//! It reads `src` as text, because a lint sees through re-exports and would reject the users of the
//! facades too. The compiler ensures that no other module names the items inside `src/wheel`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The groups of modules of `src`, lowest first. Each imports from its own files and from earlier
/// groups.
const ROOMS: [&[&str]; 10] = [
    &["panics", "error", "counter", "jitter"],
    &["sync"],
    &["clock"],
    &["wheel"],
    &["discard"],
    &["driver"],
    &["handles", "scheduler", "keyed"],
    &["future"],
    &["adapters", "io", "testing"],
    &["time"],
];

/// The groups of modules of `durable`, in the same way.
const ROOMS_OF_DURABLE: [&[&str]; 7] = [
    &["panics", "error", "sync"],
    &["model"],
    &["store"],
    &["embedded", "postgres", "redis"],
    &["delivery"],
    &["api"],
    &["text"],
];

/// The number of groups of `src`, from the first, that provide the root's exports. The others use
/// those exports, and of the groups below only the modules for locks, panics and discarded timers.
const BELOW_THE_ROOT: usize = 6;

/// The sources of the published crates, and the prefix of their files here.
const CRATES: [(&str, &str); 6] = [
    ("src", ""),
    ("crates/cache/src", "cache/"),
    ("crates/durable/src", "durable/"),
    ("crates/timerd/src", "timerd/"),
    ("crates/timers/src", "timers/"),
    ("crates/web/src", "web/"),
];

/// The folder of the workspace. If this crate was unpacked alone, the other crates are missing.
fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns `true` if the folder holds the root of a library, a program or a binary of tests.
fn is_crate(folder: &Path) -> bool {
    ["main.rs", "lib.rs"].iter().any(|root| folder.join(root).is_file())
}

/// The folders of all crates below a folder.
fn crates(below: &Path) -> Vec<PathBuf> {
    let mut crates = Vec::new();
    let mut folders = vec![below.to_owned()];
    while let Some(folder) = folders.pop() {
        if is_crate(&folder) {
            crates.push(folder.clone());
        }
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            }
        }
    }
    crates
}

/// The files of the crate in a folder, without the files of programs below it. The key is the path
/// with `/` between its parts on every platform.
fn sources(below: impl AsRef<Path>) -> BTreeMap<String, String> {
    let mut sources = BTreeMap::new();
    let root = workspace().join(below);
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !is_crate(&path) && !path.ends_with("bin") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let parts = path.strip_prefix(&root).unwrap().iter();
                let parts: Vec<&str> = parts.map(|part| part.to_str().unwrap()).collect();
                sources.insert(parts.join("/"), fs::read_to_string(&path).unwrap());
            }
        }
    }
    sources
}

/// The code of a file, without its comments and its unit tests. Empty for a file of tests.
fn code(source: &str) -> String {
    halves(source).0
}

/// The code of a file and its unit tests, without comments.
fn halves(source: &str) -> (String, String) {
    let tests =
        ["[cfg(all(test, not(modelled)))]", "[cfg(all(test, feature = \"file\"))]", "[cfg(test)]"];
    let start = tests.iter().filter_map(|start| source.find(start)).min();
    let (code, tests) = source.split_at(start.unwrap_or(source.len()));
    let uncommented = |text: &str| {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        lines.map(|line| format!("{line}\n")).collect()
    };
    (uncommented(code), uncommented(tests))
}

/// The module of a file, which is its path without `.rs` and `/mod`.
fn module(file: &str) -> &str {
    let name = file.trim_end_matches(".rs");
    name.strip_suffix("/mod").unwrap_or(name)
}

/// The paths that a tree of imports names, such as `crate::a::{b, c::{d, e}}`.
fn paths(tree: &str) -> Vec<String> {
    let Some((prefix, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        return vec![path.split_whitespace().collect()];
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut depth, mut branches) = (0, vec![String::new()]);
    for character in inner.chars() {
        match character {
            ',' if depth == 0 => branches.push(String::new()),
            _ => {
                depth += i32::from(character == '{') - i32::from(character == '}');
                branches.last_mut().unwrap().push(character);
            }
        }
    }
    let branches = branches.iter().filter(|branch| !branch.trim().is_empty());
    branches.flat_map(|branch| paths(&format!("{}{}", prefix.trim(), branch.trim()))).collect()
}

/// The paths that a file's code names, from the root of the crate, without re-exports (`pub use`).
fn named(file: &str, code: &str) -> Vec<String> {
    let mut named = Vec::new();
    let statements: Vec<&str> = code.split(';').collect();
    for statement in &statements {
        let line = statement.trim_start_matches(|c: char| c.is_whitespace());
        if let Some((before, tree)) = line.rsplit_once("use ") {
            if before.rsplit('\n').next().unwrap_or_default().trim().is_empty() {
                named.extend(paths(tree));
                continue;
            }
        }
        // Paths within expressions; `pub(in crate::x)` is none.
        let statement = statement.replace("(in crate::", "(in ");
        for start in ["crate::", "super::"] {
            let found = statement.match_indices(start).map(|(at, _)| &statement[at..]);
            named.extend(found.map(|text| {
                let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
                text.chars().take_while(|&c| is_path(c)).collect::<String>()
            }));
        }
    }
    named.iter().map(|path| from_root(module(file), path)).collect()
}

/// The path from the root of the crate that a module names.
fn from_root(module: &str, path: &str) -> String {
    if let Some(path) = path.strip_prefix("crate::") {
        return path.replace("::", "/");
    }
    let (mut folder, mut rest) = (module, path);
    while let Some(up) = rest.strip_prefix("super::") {
        folder = folder.rsplit_once('/').map_or("", |(above, _)| above);
        rest = up;
    }
    format!("{folder}/{}", rest.replace("::", "/"))
}

/// The items that a file re-exports (`pub use`), and where they come from, as paths from the root.
fn reexports(file: &str, code: &str) -> Vec<(String, String)> {
    let trees = code.split(';').filter_map(|statement| {
        let (before, tree) = statement.rsplit_once("use ")?;
        before.rsplit('\n').next()?.starts_with("pub").then_some(tree)
    });
    let reexport = |path: String| {
        let name = path.rsplit("::").next().unwrap_or_default();
        (from_root(module(file), name), from_root(module(file), &path))
    };
    trees.flat_map(paths).map(reexport).collect()
}

/// The modules of a crate, and what they re-export.
struct Modules {
    names: BTreeSet<String>,
    reexports: BTreeMap<String, String>,
}

impl Modules {
    /// The module that a path from the root leads to. The empty module is the root itself.
    fn resolved<'p>(&'p self, path: &'p str) -> &'p str {
        let (mut path, mut followed) = (path.trim_start_matches('/'), BTreeSet::new());
        while !path.is_empty() && !self.names.contains(path) {
            let above = path.rsplit_once('/').map_or("", |(above, _)| above);
            // A re-export of a name from within the module leads to itself.
            let origin = self.reexports.get(path).filter(|_| followed.insert(path));
            path = origin.map_or(above, |path| path);
        }
        path
    }
}

/// The modules that each module and its unit tests import from.
fn imports(below: impl AsRef<Path>) -> BTreeMap<String, BTreeSet<String>> {
    let mut sources = sources(below);
    sources.remove("lib.rs");
    let modules = Modules {
        names: sources.keys().map(|file| module(file).to_owned()).collect(),
        reexports: sources.iter().flat_map(|(file, text)| reexports(file, &code(text))).collect(),
    };
    sources
        .iter()
        .map(|(file, source)| {
            let here = module(file);
            let (code, tests) = halves(source);
            let mut named = named(file, &code);
            // A file of tests is the module that its paths start from.
            let is_all_tests = source.contains("#![cfg(all(test");
            let within = if is_all_tests { here.to_owned() } else { format!("{here}/tests") };
            named.extend(self::named(&within, &tests));
            let imported = named.iter().map(|path| modules.resolved(path).to_owned());
            (here.to_owned(), imported.filter(|path| path != here).collect())
        })
        .collect()
}

fn room(rooms: &[&[&str]], module: &str) -> usize {
    let name = module.split('/').next().unwrap();
    let place = rooms.iter().position(|rooms| rooms.contains(&name));
    place.unwrap_or_else(|| panic!("{module} is in no room"))
}

#[test]
fn each_room_imports_only_from_those_below_it() {
    for (module, imported) in &imports("src") {
        let (own, here) = (module.split('/').next().unwrap(), room(&ROOMS, module));
        for path in imported {
            let name = path.split('/').next().unwrap();
            if name == own {
                continue;
            }
            if path.is_empty() {
                assert!(here >= BELOW_THE_ROOT, "{module} imports from the root");
                continue;
            }
            assert!(room(&ROOMS, path) < here, "{module} imports {path}");
            let past = here >= BELOW_THE_ROOT && room(&ROOMS, path) < BELOW_THE_ROOT;
            assert!(
                !past || ["sync", "panics", "discard"].contains(&name),
                "{module} goes past the root to {path}"
            );
        }
    }
}

#[test]
fn each_room_of_durable_imports_only_from_those_below_it() {
    for (module, imported) in &imports("crates/durable/src") {
        let own = module.split('/').next().unwrap();
        for path in imported.iter().filter(|path| path.split('/').next() != Some(own)) {
            assert!(!path.is_empty(), "{module} imports from the root");
            let here = room(&ROOMS_OF_DURABLE, module);
            assert!(room(&ROOMS_OF_DURABLE, path) < here, "{module} imports {path}");
        }
    }
}

#[test]
fn no_imports_go_in_a_circle() {
    for root in crates(workspace()) {
        assert_no_circle(&root, imports(&root));
    }
}

fn assert_no_circle(root: &Path, mut left: BTreeMap<String, BTreeSet<String>>) {
    // A module that imports none of the remaining modules is in no cycle.
    loop {
        let modules: BTreeSet<String> = left.keys().cloned().collect();
        let before = left.len();
        left.retain(|_, imported| imported.iter().any(|path| modules.contains(path)));
        if left.len() == before {
            break;
        }
    }
    assert!(left.is_empty(), "{}: import each other, or from such: {left:#?}", root.display());
}

/// The files that name atomics: the module that provides them, and code that is not modelled.
const ATOMICS: [&str; 10] = [
    "sync/mod.rs",
    "sync/fork.rs",
    "sync/traced.rs",
    "clock/mod.rs",
    "cache/entry.rs",
    "cache/shard.rs",
    "cache/jitter.rs",
    "cache/stats.rs",
    "cache/notifier.rs",
    "testing.rs",
];

/// The file that reads the system's clock, and the files that read a tokio runtime's.
const CLOCKS: [&str; 6] = [
    "clock/mod.rs",
    "adapters/tokio.rs",
    "time/delay_queue.rs",
    "time/interval.rs",
    "time/paused.rs",
    "time/wait.rs",
];

/// The services of tower.
const SERVICES: [&str; 7] = [
    "adapters/tower.rs",
    "adapters/tower_ready.rs",
    "adapters/http/timeout.rs",
    "adapters/http/body_layer.rs",
    "adapters/http/grpc.rs",
    "adapters/http/grpc_body.rs",
    "adapters/http/grpc_header.rs",
];

#[test]
fn each_thing_outside_has_one_door() {
    let doors = [
        ("std::sync::atomic", &ATOMICS[..]),
        ("loom::", &["sync/mod.rs"]),
        ("crossbeam_epoch", &["wheel/memory/boxed.rs"]),
        ("rustix::", &["wheel/memory/mapped.rs", "clock/boot.rs"]),
        ("libc::", &["sync/fork.rs"]),
        ("rayon::", &["driver/executor.rs"]),
        (
            "jiff",
            &[
                "scheduler/calendar/mod.rs",
                "scheduler/calendar/builder.rs",
                "scheduler/calendar/days.rs",
                "scheduler/calendar/exclusions.rs",
                "scheduler/calendar/expression.rs",
                "scheduler/calendar/field.rs",
                "scheduler/calendar/listing.rs",
                "scheduler/calendar/occurrences.rs",
                "scheduler/calendar/relative_day.rs",
                "scheduler/calendar/span.rs",
                "scheduler/calendar/zone.rs",
            ],
        ),
        ("SystemTime::now", &["clock/wall.rs"]),
        ("quick_cache", &["cache/shard.rs"]),
        ("fastrand", &["cache/jitter.rs"]),
        ("dashmap", &["keyed/map.rs"]),
        ("serde::", &["adapters/config.rs"]),
        ("humantime::", &["adapters/config.rs"]),
        (" ::metrics::", &["cache/export.rs", "adapters/export.rs"]),
        ("tracing::", &["driver/events.rs"]),
        (" ::hyper::", &["adapters/hyper.rs", "io/hyper.rs"]),
        ("hyper_util", &["io/hyper.rs"]),
        ("atomic_waker", &["future/delay_queue.rs", "future/drive_task.rs"]),
        (" ::quinn", &["adapters/quinn.rs"]),
        ("futures_io", &["io/stream.rs"]),
        ("tower_layer", &SERVICES),
        ("tower_service", &SERVICES),
        (" ::http::", &SERVICES),
        ("http_body::", &["adapters/http/body.rs", "adapters/http/grpc_body.rs"]),
        ("Instant::now", &CLOCKS),
        ("thread::Builder", &["driver/builder.rs", "driver/workers.rs"]),
    ];
    let named = |(below, prefix): &(&str, &str)| {
        let code = |(name, source): (String, String)| (format!("{prefix}{name}"), code(&source));
        sources(below).into_iter().map(code).collect::<Vec<_>>()
    };
    let sources: Vec<(String, String)> = CRATES[..2].iter().flat_map(named).collect();
    let mut unused: BTreeSet<&str> = doors.iter().flat_map(|(_, files)| *files).copied().collect();
    let [_, (cache, prefix), ..] = CRATES;
    // If this crate was unpacked alone, the other crate is missing.
    if !workspace().join(cache).exists() {
        unused.retain(|file| !file.starts_with(prefix));
    }
    for (thing, files) in doors {
        for (name, _) in sources.iter().filter(|(_, code)| code.contains(thing)) {
            assert!(files.contains(&name.as_str()), "{name} names {thing}");
            unused.remove(name.as_str());
        }
    }
    assert!(unused.is_empty(), "listed, and name nothing of the kind: {unused:?}");
}

#[test]
fn each_file_says_what_it_is_and_keeps_its_size() {
    for (name, source) in CRATES.iter().flat_map(|(below, _)| sources(below)) {
        assert!(source.starts_with("//!") || name == "lib.rs", "{name} opens without a word");
        let lines = code(&source).lines().filter(|line| !line.trim().is_empty()).count();
        assert!(lines <= 400, "{name} has {lines} lines of code");
        let unsafe_allowed = code(&source).contains("unsafe ");
        let forbids = source.contains("#![forbid(unsafe_code)]");
        let folder = name.ends_with("mod.rs") || name == "lib.rs";
        assert!(unsafe_allowed || forbids || folder, "{name} needs no unsafe: forbid it");
    }
}
