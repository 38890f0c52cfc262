//! The ledger, which records the fate of every timer apart from the wheel in order to audit it.
//!
//! A record serves one timer after another. Its word holds the number of the timer and whether that
//! is armed, and each end must find it so. The recorded deadline is never later than the one in
//! force. It is lowered before a reset to an earlier deadline, and raised after a reset to a later
//! one took effect. A timer that fires before it is therefore early, or obeys a deadline that was
//! reset.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

/// The timer of a value, by its record and its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket(u64);

/// One record.
#[derive(Default)]
struct Record {
    /// Twice the timer's number, plus one while it is armed.
    word: AtomicU64,
    /// Nanoseconds since the start.
    deadline: AtomicU64,
}

/// All records, and the faults found so far.
pub(crate) struct Ledger {
    start: Instant,
    records: Vec<Record>,
    early: AtomicU64,
    twice: AtomicU64,
}

/// The faults that the audit found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    pub(crate) early: u64,
    pub(crate) lost: u64,
    pub(crate) twice: u64,
}

impl Ticket {
    fn record(self) -> usize {
        usize::try_from(self.0 & u64::from(u32::MAX)).unwrap_or(usize::MAX)
    }

    fn number(self) -> u64 {
        self.0 >> 32
    }

    fn armed_word(self) -> u64 {
        self.number() << 1 | 1
    }
}

impl Ledger {
    pub(crate) fn new(records: usize) -> Self {
        Self {
            start: Instant::now(),
            records: (0..records).map(|_| Record::default()).collect(),
            early: AtomicU64::new(0),
            twice: AtomicU64::new(0),
        }
    }

    /// Begins a new timer on `record`, whose last timer must have ended.
    pub(crate) fn begin(&self, record: u32, deadline: Instant) -> Ticket {
        let entry = &self.records[record as usize];
        let number = (entry.word.load(Acquire) >> 1).wrapping_add(1) & u64::from(u32::MAX);
        let ticket = Ticket(number << 32 | u64::from(record));
        entry.deadline.store(self.nanos(deadline), Relaxed);
        entry.word.store(ticket.armed_word(), Release);
        ticket
    }

    /// Records that a reset is about to be tried.
    pub(crate) fn before_reset(&self, record: u32, deadline: Instant) {
        self.records[record as usize].deadline.fetch_min(self.nanos(deadline), Relaxed);
    }

    /// Records that a reset has taken effect.
    pub(crate) fn after_reset(&self, record: u32, deadline: Instant) {
        self.records[record as usize].deadline.store(self.nanos(deadline), Relaxed);
    }

    /// Records that a timer has ended without firing.
    pub(crate) fn end(&self, ticket: Ticket) {
        let word = &self.records[ticket.record()].word;
        let armed = ticket.armed_word();
        if word.compare_exchange(armed, armed - 1, AcqRel, Relaxed).is_err() {
            self.twice.fetch_add(1, Relaxed);
        }
    }

    /// Records that a timer fires now, and returns how late it is.
    pub(crate) fn fire(&self, ticket: Ticket) -> Duration {
        let deadline = self.records[ticket.record()].deadline.load(Relaxed);
        self.end(ticket);
        let now = self.nanos(Instant::now());
        if now < deadline {
            self.early.fetch_add(1, Relaxed);
        }
        Duration::from_nanos(now.saturating_sub(deadline))
    }

    /// Returns `true` if the timer of the record has ended.
    pub(crate) fn has_ended(&self, record: u32) -> bool {
        self.records[record as usize].word.load(Acquire) & 1 == 0
    }

    /// Audits the ledger after all threads are quiet. Timers that have not ended are lost.
    pub(crate) fn audit(&self) -> Faults {
        let lost = self.records.iter().filter(|record| record.word.load(Acquire) & 1 == 1);
        Faults {
            early: self.early.load(Relaxed),
            lost: lost.count() as u64,
            twice: self.twice.load(Relaxed),
        }
    }

    fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.start).as_nanos()).unwrap_or(u64::MAX)
    }
}
