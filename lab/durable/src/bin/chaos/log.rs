//! [`Log`], the actions of a worker, one per line, in a file that outlives it.
//!
//! A line is written before the action that it records continues, so that it exists when the worker
//! is killed a moment later. Only the end of an attempt, which the store knows first, may be
//! missing.

use crate::Failure;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The event that a line records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A handler has begun.
    Begun,
    /// A handler is about to return `Ok`.
    Well,
    /// A handler is about to cancel the repetition of its timer.
    Ends,
    /// The store has the end of an attempt.
    Acknowledged,
    Dead,
    Retried,
    Snoozed,
    Cancelled,
    TooLate,
}

const LETTERS: [(What, &str); 9] = [
    (What::Begun, "b"),
    (What::Well, "w"),
    (What::Ends, "e"),
    (What::Acknowledged, "a"),
    (What::Dead, "d"),
    (What::Retried, "r"),
    (What::Snoozed, "s"),
    (What::Cancelled, "c"),
    (What::TooLate, "l"),
];

/// A line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) what: What,
    /// The number of the timer.
    pub(crate) timer: usize,
    /// The planned time of the delivery.
    pub(crate) planned: u64,
    /// The time of the line.
    pub(crate) at: u64,
    /// The time of the lease by the clock of the store, at the end of an attempt. The lease may
    /// have been granted earlier than this by less than its duration.
    pub(crate) leased: Option<u64>,
}

/// Converts a time to milliseconds of the wall clock, which all processes of this machine share
/// unless theirs is set.
pub(crate) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the id of a timer.
pub(crate) fn id(timer: usize) -> String {
    format!("timer {timer}")
}

/// Returns the number of the timer with that id.
pub(crate) fn timer(id: &str) -> Option<usize> {
    id.strip_prefix("timer ")?.parse().ok()
}

/// A file of lines.
#[derive(Debug)]
pub(crate) struct Log(File);

impl Log {
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        Ok(Self(File::create_new(path)?))
    }

    pub(crate) fn write(
        &self,
        what: What,
        id: &str,
        planned: SystemTime,
        leased: Option<SystemTime>,
    ) -> Result<(), Failure> {
        let at = millis(SystemTime::now());
        let letter = LETTERS.iter().find(|(one, _)| *one == what).map_or("", |(_, letter)| *letter);
        let timer = timer(id).ok_or("an id that nobody gave")?;
        let leased = leased.map(|leased| format!(" {}", millis(leased))).unwrap_or_default();
        // A single write, so that a line is complete or missing.
        let line = format!("{letter} {timer} {} {at}{leased}\n", millis(planned));
        Ok((&self.0).write_all(line.as_bytes())?)
    }
}

/// Reads the lines of a file, written by a process whose clock is ahead by some milliseconds.
pub(crate) fn read(path: &Path, ahead: i64) -> Result<Vec<Entry>, Failure> {
    let text = std::fs::read_to_string(path)?;
    let entry = |line: &str| {
        let mut parts = line.split(' ');
        let letter = parts.next()?;
        let what = LETTERS.iter().find(|(_, one)| *one == letter)?.0;
        let mut number = || parts.next()?.parse::<u64>().ok();
        let timer = usize::try_from(number()?).ok()?;
        let (planned, at) = (number()?, number()?.checked_add_signed(-ahead)?);
        Some(Entry { what, timer, planned, at, leased: number() })
    };
    let entries = text.lines().map(|line| entry(line).ok_or_else(|| format!("no entry: {line}")));
    Ok(entries.collect::<Result<_, _>>()?)
}
