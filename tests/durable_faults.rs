//! Files of durable timers that are locked, damaged, foreign, or cannot be written: a typed error,
//! nothing half done, no panic.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::durable::{Bench, OneFile, Place, SECOND, TempFile, wait};
use tourbillon::durable::{DurableError, DurableTimers, Embedded, Options};

fn open(file: &TempFile) -> Result<Embedded, DurableError> {
    Embedded::open(&file.0)
}

/// The bytes of a store with some timers in it, which was closed in peace.
fn some_store() -> Vec<u8> {
    let place = OneFile::new();
    let timers = DurableTimers::new(place.open(), &place.timer());
    for number in 0..50 {
        let id = format!("{number}");
        wait(timers.schedule(&id, "payload", SECOND, Options::new())).unwrap();
    }
    drop(timers);
    std::fs::read(&place.file.0).unwrap()
}

#[test]
fn a_store_is_open_once() {
    let file = TempFile::new();
    let first = open(&file).unwrap();
    assert!(matches!(open(&file).unwrap_err(), DurableError::Locked(_)));
    drop(first);
    drop(open(&file).unwrap());
}

#[test]
fn a_file_that_is_no_store() {
    let file = TempFile::new();
    std::fs::write(&file.0, "Dear diary, ".repeat(1000)).unwrap();
    assert!(matches!(open(&file).unwrap_err(), DurableError::Corrupt(_)));
    // It is as it was.
    assert_eq!(std::fs::read(&file.0).unwrap().len(), 12_000);
    // An empty file becomes one.
    std::fs::write(&file.0, "").unwrap();
    drop(open(&file).unwrap());
}

#[test]
fn a_place_that_cannot_be_written() {
    let inside = std::env::temp_dir().join("tourbillon-no-such-folder").join("timers");
    assert!(matches!(Embedded::open(inside).unwrap_err(), DurableError::Io(_)));
    assert!(Embedded::open(std::env::temp_dir()).is_err());
}

#[test]
fn a_store_that_was_cut_off() {
    let whole = some_store();
    for part in 0..16 {
        let file = TempFile::new();
        std::fs::write(&file.0, &whole[..(whole.len() * part / 16).max(1)]).unwrap();
        let error = open(&file).unwrap_err();
        assert!(matches!(error, DurableError::Corrupt(_) | DurableError::Io(_)), "{error:?}");
    }
}

/// Whatever byte is wrong, each verb answers: with what was there, or an error.
#[test]
fn a_store_with_wrong_bytes() {
    let whole = some_store();
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..60 {
        let place = OneFile::new();
        let mut bytes = whole.clone();
        for _ in 0..random.usize(1..64) {
            let at = random.usize(..bytes.len());
            bytes[at] ^= 1 << random.u8(..8);
        }
        std::fs::write(&place.file.0, bytes).unwrap();
        let Ok(store) = Embedded::open_with_clock(&place.file.0, place.wall.clone()) else {
            continue;
        };
        let timers = DurableTimers::new(store, &place.timer());
        let _ = wait(timers.list(None, 99));
        let _ = wait(timers.get("7"));
        let _ = wait(timers.cancel("7"));
        let _ = wait(timers.schedule("new", "payload", SECOND, Options::new()));
        let _ = wait(timers.len());
    }
}

#[test]
fn a_timer_that_was_shut_down_ends_its_workers() {
    let place = OneFile::new();
    let timer = place.timer();
    let timers = DurableTimers::new(place.open(), &timer);
    timer.shutdown();
    let run = timers.run(|_| async { Ok::<(), String>(()) });
    assert_eq!(wait(run), Err(DurableError::Closed));
    // What rests, rests.
    wait(timers.schedule("id", "payload", SECOND, Options::new())).unwrap();
    drop(timers);
    let bench = Bench::new(place);
    assert!(wait(bench.timers().get("id")).unwrap().is_some());
}
