//! Checks that each store of durable timers cites the transitions of the design by number.
//!
//! `crates/durable/docs/DESIGN.md` numbers the transitions D1, D2 and so on in a table. A row that
//! says "Redis only" is a transition that the other stores lack.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The stores, their names in the table, and the sources with their transitions.
const STORES: [(&str, &[&str]); 3] = [
    ("Embedded", &["src/embedded", "src/store/transitions.rs", "src/store/update.rs"]),
    ("Redis", &["src/redis/scripts"]),
    ("PostgreSQL", &["src/postgres/sql"]),
];

/// The folder of the durable timers. If this crate was unpacked alone, it is missing.
fn durable() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/durable")
}

/// The contents of a file, or of all files below a folder.
fn text(place: &Path) -> String {
    if place.is_file() {
        return fs::read_to_string(place).unwrap();
    }
    fs::read_dir(place).unwrap().map(|entry| text(&entry.unwrap().path())).collect()
}

/// The numbers that a text cites, each as a word such as `D7`.
fn cited(text: &str) -> BTreeSet<u32> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter_map(|word| word.strip_prefix('D')?.parse().ok()).collect()
}

#[test]
fn each_store_cites_each_transition_that_it_has() {
    if !durable().exists() {
        return;
    }
    let design = text(&durable().join("docs/DESIGN.md"));
    let rows: Vec<&str> = design.lines().filter(|line| line.starts_with("| D")).collect();
    let numbers: Vec<u32> = rows.iter().filter_map(|row| cited(&row[..6]).pop_first()).collect();
    assert_eq!(numbers, (1..=u32::try_from(rows.len()).unwrap()).collect::<Vec<_>>());
    for (store, sources) in STORES {
        let sources: String = sources.iter().map(|place| text(&durable().join(place))).collect();
        let cited = cited(&sources);
        for (row, number) in rows.iter().zip(&numbers) {
            let lacks = row.contains(" only |") && !row.contains(&format!("{store} only |"));
            assert_ne!(cited.contains(number), lacks, "{store} and {row}");
        }
    }
    let all = ["docs", "src", "tests"].map(|place| text(&durable().join(place))).concat();
    let unknown: Vec<u32> = cited(&all).into_iter().filter(|n| !numbers.contains(n)).collect();
    assert!(unknown.is_empty(), "the design has no D{unknown:?}");
}
