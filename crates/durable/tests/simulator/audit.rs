//! [`Audit`], which checks the promises of the fleet at each step.
//!
//! - **Nothing is lost.** Each timer that was inserted is acknowledged, cancelled or a dead letter
//!   in the end.
//! - **Nothing is early.** No lease is granted before its timer is due.
//! - **Nothing is acknowledged twice** under one token, by the store or to a worker.
//! - **Nothing is executed twice.** No insert of a new id is refused.
//! - **Nothing is late.** A timer is leased within [`PROMPT`] of its due time, unless there was a
//!   fault. Then it is leased within [`RECOVERY`] of the end of the fault.
//! - **A cancel is obeyed.** No handler begins after a caller has learned of the removal.
//! - **A lease that was taken over has no handler**, except in a process that is suspended.
//! - **Work is bounded.** A worker runs at most [`CONCURRENCY`] handlers, and a process has one
//!   batch of each partition in flight and a bounded number of tasks.

use super::world::{MILLISECOND, Nanos, SECOND, World};
use crate::model::clock::Millis;
use crate::panics::ignore_poison;
use crate::store::{Finish, Lease};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

/// How late a lease is at most while there is no fault.
pub(crate) const PROMPT: Nanos = 300 * MILLISECOND;

/// How long after a fault everything is prompt again.
pub(crate) const RECOVERY: Nanos = 12 * SECOND;

/// How long a partition may have an owner that is dead.
pub(crate) const ORPHANED: Nanos = 8 * SECOND;

/// The number of handlers of a worker.
pub(crate) const CONCURRENCY: usize = 8;

/// The greatest number of tasks of a worker's process, without those of its partitions.
const TASKS: usize = 16;

/// The greatest number of tasks of a partition: one sends its batches, and one waits until it can
/// be read.
const TASKS_OF_PARTITION: usize = 2;

/// How long after a lease was taken over its handler may still run.
const STOPPED: Nanos = 100 * MILLISECOND;

/// What is known about the timers, and the violations so far.
pub(crate) struct Audit {
    world: World,
    /// The times of the faults.
    faults: Vec<(Nanos, Nanos)>,
    ledger: Mutex<Ledger>,
}

#[derive(Default)]
struct Ledger {
    timers: BTreeMap<Arc<str>, Tracked>,
    /// The handlers that run, by process.
    running: BTreeMap<u64, BTreeSet<(Arc<str>, u32)>>,
    /// The processes that are suspended.
    suspended: BTreeSet<u64>,
    /// Since when partitions have had no live owner.
    orphaned: BTreeMap<u64, Nanos>,
    in_flight: BTreeMap<(u64, u64), usize>,
    /// How far the clock of the first server is ahead.
    reference: i64,
    violations: Vec<String>,
    latest: Nanos,
    leases: u64,
}

#[derive(Debug, Default)]
struct Tracked {
    inserted: bool,
    /// Set once a caller has learned that it was removed.
    removed: bool,
    cancelled: bool,
    /// Acknowledgements in the store, and to workers.
    done: u32,
    reported: u32,
    dead: bool,
}

impl Tracked {
    /// Returns `true` if the timer must still be in the store.
    fn is_lost(&self) -> bool {
        self.inserted && self.done == 0 && !self.dead && !self.cancelled
    }
}

impl Audit {
    pub(crate) fn new(world: &World, faults: Vec<(Nanos, Nanos)>) -> Arc<Self> {
        let ledger = Mutex::default();
        Arc::new(Self { world: world.clone(), faults, ledger })
    }

    /// Records a violation of a promise.
    pub(crate) fn violated(&self, what: String) {
        self.lock().violated(self.world.now(), what);
    }

    /// Returns `true` if a promise was violated.
    pub(crate) fn has_failed(&self) -> bool {
        !self.lock().violations.is_empty()
    }

    /// Returns the first violation.
    pub(crate) fn verdict(&self) -> Result<Summary, String> {
        let ledger = self.lock();
        match ledger.violations.first() {
            Some(violation) => Err(violation.clone()),
            None => Ok(Summary {
                timers: ledger.timers.len(),
                leases: ledger.leases,
                latest: ledger.latest,
                trace: self.world.trace(),
            }),
        }
    }

    /// Returns the latest time by which a timer that is due at `due` must be leased.
    fn deadline(&self, due: Nanos) -> Nanos {
        let mut deadline = due + PROMPT;
        for (begin, end) in &self.faults {
            if *begin <= deadline && end + RECOVERY > due {
                deadline = deadline.max(end + RECOVERY);
            }
        }
        deadline
    }

    /// Sets how far the clock of the first server is ahead, by which the wheels of workers go.
    pub(crate) fn set_reference(&self, ahead: i64) {
        self.lock().reference = ahead;
    }

    /// Returns how late a timer is, which was due `late` ago by the clock of a server.
    fn lateness(&self, late: Millis, ahead: i64) -> Nanos {
        let skew = ahead - self.lock().reference;
        late.saturating_sub(u64::try_from(skew).unwrap_or(0)) * MILLISECOND
    }

    /// Checks the oldest key of a partition, which has been due for `late`.
    pub(crate) fn check_oldest(&self, id: &str, late: Millis, ahead: i64) {
        let now = self.world.now();
        if now > self.deadline(now.saturating_sub(self.lateness(late, ahead))) {
            self.violated(format!("{id} has been due for {late} ms"));
        }
    }

    /// Checks whether a partition has a live owner.
    pub(crate) fn check_owner(&self, partition: u64, is_owned: bool, is_fault: bool) {
        let now = self.world.now();
        let mut ledger = self.lock();
        if is_owned || is_fault {
            ledger.orphaned.remove(&partition);
            return;
        }
        let since = *ledger.orphaned.entry(partition).or_insert(now);
        if now - since > ORPHANED {
            ledger.violated(now, format!("partition {partition} has no owner"));
        }
    }

    /// The store has granted a lease.
    pub(crate) fn leased(self: &Arc<Self>, id: &Arc<str>, lease: &Lease, ahead: i64) {
        let now = self.world.now();
        self.world.note(("leased", id, lease.record.attempt, lease.overrun));
        if lease.due > lease.now {
            self.violated(format!("{id} was leased before its time"));
        }
        let late = self.lateness(lease.now.saturating_sub(lease.due), ahead);
        if now > self.deadline(now.saturating_sub(late)) {
            self.violated(format!("{id} was leased {} ms late", late / MILLISECOND));
        }
        let mut ledger = self.lock();
        ledger.leases += 1;
        let mut faults = self.faults.iter();
        if !faults.any(|(begin, end)| (*begin..=end + RECOVERY).contains(&now)) {
            ledger.latest = ledger.latest.max(late);
        }
        drop(ledger);
        if lease.overrun {
            let (audit, id) = (Arc::clone(self), Arc::clone(id));
            // The attempt that is counted has failed, and has the same number.
            let attempt = lease.record.attempt;
            self.world.after(STOPPED, move || audit.check_stopped(id, attempt));
        }
    }

    fn check_stopped(&self, id: Arc<str>, attempt: u32) {
        let mut ledger = self.lock();
        let Ledger { running, suspended, .. } = &*ledger;
        let active = running.iter().filter(|(process, _)| !suspended.contains(process));
        let key = (id, attempt);
        if active.map(|(_, running)| running).any(|running| running.contains(&key)) {
            let what = format!("{} runs although its lease was taken over", key.0);
            ledger.violated(self.world.now(), what);
        }
    }

    /// The store has accepted the end of an attempt.
    pub(crate) fn finished(&self, id: &str, finish: &Finish) {
        self.world.note(("finished", id));
        if matches!(finish, Finish::Done { .. }) {
            self.change(id, |timer| {
                timer.done += 1;
                (timer.done > 1).then_some("was acknowledged twice")
            });
        }
    }

    /// The store has written a dead letter.
    pub(crate) fn died(&self, id: &str) {
        self.change(id, |timer| {
            timer.dead = true;
            None
        });
    }

    /// A caller has inserted a timer.
    pub(crate) fn inserted(&self, id: &str) {
        self.change(id, |timer| {
            timer.inserted = true;
            None
        });
    }

    /// A caller has cancelled a timer, and learned that it was removed, or that it runs.
    pub(crate) fn cancelled(&self, id: &str, removed: bool) {
        self.change(id, |timer| {
            timer.cancelled = true;
            timer.removed = removed;
            (removed && timer.done > 0).then_some("was removed after it was acknowledged")
        });
    }

    /// A caller has learned that there is no such timer.
    pub(crate) fn not_found(&self, id: &str) {
        self.change(id, |timer| timer.is_lost().then_some("was not found"));
    }

    /// A caller may have cancelled a timer.
    pub(crate) fn may_be_cancelled(&self, id: &str) {
        self.change(id, |timer| {
            timer.cancelled = true;
            None
        });
    }

    /// A worker has learned that an attempt was acknowledged.
    pub(crate) fn reported(&self, id: &str) {
        self.world.note(("reported", id));
        self.change(id, |timer| {
            timer.reported += 1;
            (timer.reported > 1).then_some("was acknowledged to two workers")
        });
    }

    /// A handler has begun.
    pub(crate) fn begun(&self, process: u64, id: &Arc<str>, attempt: u32) {
        self.world.note(("begun", id, attempt));
        self.change(id, |timer| timer.removed.then_some("begins although it was removed"));
        let mut ledger = self.lock();
        let running = ledger.running.entry(process).or_default();
        running.insert((Arc::clone(id), attempt));
        if running.len() > CONCURRENCY {
            ledger.violated(self.world.now(), "too many handlers run".to_owned());
        }
    }

    /// A handler has ended, or was dropped.
    pub(crate) fn ended(&self, process: u64, id: &Arc<str>, attempt: u32) {
        if let Some(running) = self.lock().running.get_mut(&process) {
            running.remove(&(Arc::clone(id), attempt));
        }
    }

    /// A process was suspended or resumed.
    pub(crate) fn suspended(&self, process: u64, suspended: bool) {
        let mut ledger = self.lock();
        match suspended {
            true => ledger.suspended.insert(process),
            false => ledger.suspended.remove(&process),
        };
    }

    /// A process has begun or ended to wait for the reply to a batch.
    pub(crate) fn in_flight(&self, process: u64, partition: u64, begins: bool) {
        let mut ledger = self.lock();
        let count = ledger.in_flight.entry((process, partition)).or_default();
        *count = if begins { *count + 1 } else { count.saturating_sub(1) };
        if *count > 1 {
            ledger.violated(self.world.now(), "two batches of a queue are in flight".to_owned());
        }
    }

    /// Checks how many tasks a process had at most.
    pub(crate) fn check_tasks(&self, most: usize, partitions: u64) {
        let bound = TASKS + TASKS_OF_PARTITION * usize::try_from(partitions).unwrap_or(usize::MAX);
        if most > bound {
            self.violated(format!("a process had {most} tasks"));
        }
    }

    /// Checks that all timers have ended.
    pub(crate) fn check_end(&self, left: usize) {
        let mut ledger = self.lock();
        let now = self.world.now();
        if left > 0 {
            ledger.violated(now, format!("{left} timers are left"));
        }
        let lost = ledger.timers.iter().find(|(_, timer)| timer.is_lost());
        if let Some((id, timer)) = lost {
            let what = format!("{id} is lost: {timer:?}");
            ledger.violated(now, what);
        }
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut Tracked) -> Option<&'static str>) {
        let mut ledger = self.lock();
        if !ledger.timers.contains_key(id) {
            ledger.timers.insert(Arc::from(id), Tracked::default());
        }
        let Some(timer) = ledger.timers.get_mut(id) else { return };
        if let Some(violation) = change(timer) {
            let what = format!("{id} {violation}: {timer:?}");
            ledger.violated(self.world.now(), what);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        ignore_poison(self.ledger.lock())
    }
}

impl Ledger {
    fn violated(&mut self, now: Nanos, what: String) {
        self.violations.push(format!("after {:.3} s: {what}", now as f64 / SECOND as f64));
    }
}

/// What a run without a violation was like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) timers: usize,
    pub(crate) leases: u64,
    /// The latest lease while there was no fault.
    pub(crate) latest: Nanos,
    /// The same for two runs only if they are the same.
    pub(crate) trace: u64,
}
