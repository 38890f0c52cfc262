//! First starts of a store in a file that are interrupted by a kill, or by a file system that
//! accepts no more. Every later start opens the store, and no files are left over.
//!
//! The tests run themselves as children. A child may be process 1 of its own namespace, as in a
//! container, where each start has the same number. `TOURBILLON_STARTS=2000` sets the number of
//! starts, and `TOURBILLON_STARTS_BY="unshare --pid --fork --kill-child"` the command that starts
//! each of them.

#![allow(clippy::disallowed_methods, reason = "real processes and time")]

use crate::common::bench::{SECOND, TempFile, wait};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tourbillon_durable::{DurableError, DurableTimers};

const FILE: &str = "TOURBILLON_STARTS_FILE";

/// Does nothing unless it runs as a child.
#[test]
fn child() {
    let Ok(file) = std::env::var(FILE) else { return };
    let begun = Instant::now();
    let timers = loop {
        match DurableTimers::open(&file) {
            // The namespace of a killed process may still be ending.
            Err(DurableError::Locked(_)) if begun.elapsed() < 10 * SECOND => {}
            opened => break opened.unwrap(),
        }
    };
    assert_eq!(wait(timers.len()), Ok(0));
}

/// Returns a child that is started by that command.
fn child_by(command: &str, file: &TempFile) -> Command {
    let mut words = command.split_whitespace();
    let this = std::env::current_exe().unwrap();
    let mut child = match words.next() {
        None => Command::new(this),
        Some(first) => {
            let mut child = Command::new(first);
            child.args(words).arg(this);
            child
        }
    };
    child.args(["starts::child", "--exact", "--nocapture", "--test-threads=1"]);
    child.env(FILE, &file.0).stdout(Stdio::null()).stderr(Stdio::null());
    child
}

/// Returns the files whose names begin with the store's name and are longer.
fn beside(file: &TempFile) -> Vec<PathBuf> {
    let name = file.0.file_name().unwrap().to_str().unwrap();
    let files = std::fs::read_dir(file.0.parent().unwrap()).unwrap().flatten();
    let begins = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(name);
    files.map(|file| file.path()).filter(|path| begins(path) && *path != file.0).collect()
}

#[test]
fn starts_that_are_killed_stop_no_later_one() {
    let starts = std::env::var("TOURBILLON_STARTS").map_or(100, |count| count.parse().unwrap());
    let by = std::env::var("TOURBILLON_STARTS_BY").unwrap_or_default();
    let mut random = fastrand::Rng::with_seed(starts);
    // A start takes this long by itself. The kills are spread over that time and slightly more.
    let (mut file, begun) = (TempFile::new(), Instant::now());
    assert!(child_by(&by, &file).status().unwrap().success());
    let longest = begun.elapsed().max(Duration::from_millis(50));
    let (mut made, mut cut_short) = (0, 0);
    file = TempFile::new();
    for start in 0..starts {
        let mut child = child_by(&by, &file).spawn().unwrap();
        std::thread::sleep(longest.mul_f64(random.f64()));
        child.kill().unwrap();
        child.wait().unwrap();
        cut_short += usize::from(!beside(&file).is_empty());
        if start % 4 == 3 || file.0.exists() {
            // As many starts in a row as were interrupted, and then one that is not interrupted.
            let opened = child_by(&by, &file).status().unwrap();
            assert!(opened.success(), "start {start} finds what another has left");
            assert_eq!(beside(&file), Vec::<PathBuf>::new(), "start {start}");
            made += 1;
            file = TempFile::new();
        }
    }
    println!("{starts} starts killed, {cut_short} with something beside, {made} opened after");
    assert!(made >= starts / 4, "{made} of {starts}");
}

#[test]
fn a_new_file_has_its_name_when_it_is_whole() {
    let file = TempFile::new();
    // The file system accepts a limited number of bytes, and fails without a signal.
    let limit = "trap '' XFSZ; ulimit -f 8; exec \"$@\"";
    let whole = child_by("", &file);
    let mut limited = Command::new("sh");
    limited.args(["-c", limit, "sh"]).arg(whole.get_program()).args(whole.get_args());
    limited.env(FILE, &file.0).stdout(Stdio::null()).stderr(Stdio::null());
    for _ in 0..2 {
        assert!(!limited.status().unwrap().success(), "there is no space");
        assert!(!file.0.exists());
        assert_eq!(beside(&file), Vec::<PathBuf>::new());
    }
    assert!(child_by("", &file).status().unwrap().success());
    assert_eq!((file.0.exists(), beside(&file)), (true, Vec::new()));
}
