//! [`Audit`], which checks the promises of the fleet at each step.
//!
//! - **Nothing is lost.** Each timer that was inserted is acknowledged, cancelled or a dead letter
//!   in the end.
//! - **Nothing is early.** No lease is granted before its timer is due.
//! - **Nothing is acknowledged twice** to workers for one planned time, and no attempt begins twice
//!   unless it was given back.
//! - **Each operation has one effect**, and the reply that belongs to it ([`Calls`]).
//! - **Nothing is late.** A timer is leased promptly, unless there was a fault or its owner was
//!   busy. Then it is leased within a bounded time of the end of that ([`Promptness`]).
//! - **A pause is obeyed.** No lease is granted after a caller has learned that the store is paused
//!   and before it asks to resume the store.
//! - **A cancel is obeyed.** No handler begins after a caller has learned of the removal.
//! - **A handler runs within its lease**, except in a process that was suspended. A lease that was
//!   taken over has no handler.
//! - **Each partition has an owner.** A worker that leaves gives its partitions up at once.
//! - **Work is bounded.** Deliveries have permits ([`Permits`]), and a process has one batch of
//!   each partition in flight and a bounded number of tasks.
//!
//! Timers that a server has lost are excused from what a loss breaks.

mod calls;
mod owners;
mod permits;
mod promptness;
mod tracked;

pub(crate) use self::permits::PermitChange;

use self::calls::Calls;
use self::permits::Permits;
use self::promptness::Promptness;
use self::tracked::Tracked;
use super::plan::Plan;
use super::server::ServerClock;
use super::world::{MILLISECOND, Nanos, SECOND, World};
use crate::model::clock::{Millis, system};
use crate::model::record::Record;
use crate::panics::ignore_poison;
use crate::store::{Finish, Lease};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

/// The maximum number of tasks of a worker's process, not counting the tasks of its partitions.
const TASKS: usize = 16;

/// The greatest number of tasks of a partition: one sends its batches, and one waits until it can
/// be read.
const TASKS_OF_PARTITION: usize = 2;

/// How long after a lease was taken over its handler may still run.
const STOPPED: Nanos = 100 * MILLISECOND;

/// An attempt: the id of its timer, the planned time, and its number.
type AttemptKey = (Arc<str>, SystemTime, u32);

/// Timers in an order that is the same in each run, since the hasher has no random keys.
type TimersById = HashMap<Arc<str>, Tracked, BuildHasherDefault<DefaultHasher>>;

/// The timers as the audit knows them, and the violations so far.
pub(crate) struct Audit {
    world: World,
    concurrency: usize,
    ledger: Mutex<Ledger>,
}

struct Ledger {
    timers: TimersById,
    /// The handlers that run, by process.
    running: BTreeMap<u64, BTreeSet<AttemptKey>>,
    /// The processes that are suspended, that were, and that have left.
    suspended: BTreeSet<u64>,
    ever_suspended: BTreeSet<u64>,
    left: BTreeSet<u64>,
    /// Set while a caller knows that the store is paused.
    is_paused: bool,
    /// Since when partitions have had no live owner.
    orphaned: BTreeMap<u64, Nanos>,
    in_flight: BTreeMap<(u64, u64), usize>,
    calls: Calls,
    permits: Permits,
    promptness: Promptness,
    violations: Vec<String>,
    latest: Nanos,
    leases: u64,
}

impl Audit {
    /// Creates the audit of a plan, whose workers have started by `started`.
    pub(crate) fn new(world: &World, plan: &Plan, started: Nanos) -> Arc<Self> {
        let ledger = Ledger {
            timers: TimersById::default(),
            running: BTreeMap::new(),
            suspended: BTreeSet::new(),
            ever_suspended: BTreeSet::new(),
            left: BTreeSet::new(),
            is_paused: false,
            orphaned: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            calls: Calls::default(),
            permits: Permits::default(),
            promptness: Promptness::of(plan, started),
            violations: Vec::new(),
            latest: 0,
            leases: 0,
        };
        let (world, concurrency) = (world.clone(), plan.concurrency);
        Arc::new(Self { world, concurrency, ledger: Mutex::new(ledger) })
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

    /// Sets the clock of the first server, by which the wheels of workers go.
    pub(crate) fn set_reference(&self, clock: ServerClock) {
        self.lock().promptness.reference = clock;
    }

    /// Checks the oldest key of a server, which has been due for `late` and was written at
    /// `written`.
    pub(crate) fn check_oldest(
        &self,
        id: &str,
        late: Millis,
        clock: (usize, ServerClock),
        written: Nanos,
    ) {
        let (now, mut ledger) = (self.world.now(), self.lock());
        let Ledger { promptness, permits, .. } = &*ledger;
        if promptness.check(permits, id, (late, written), clock, now).is_none() {
            ledger.violated(now, format!("{id} has been due for {late} ms"));
        }
    }

    /// Returns the number of a new operation of a batch.
    pub(crate) fn number_call(&self, id: &str) -> u64 {
        self.lock().calls.number(id)
    }

    /// A server has executed an operation.
    pub(crate) fn executed(&self, number: u64, server: usize, changed: bool) {
        let (now, mut ledger) = (self.world.now(), self.lock());
        let violation = ledger.calls.executed(number, server, changed, now);
        violation.into_iter().for_each(|violation| ledger.violated(now, violation));
    }

    /// An operation has the reply to the operation with another number.
    pub(crate) fn answered(&self, number: u64, answered: u64) {
        let (now, mut ledger) = (self.world.now(), self.lock());
        let violation = ledger.calls.answered(number, answered);
        violation.into_iter().for_each(|violation| ledger.violated(now, violation));
    }

    /// A server has lost what it has executed since a time.
    pub(crate) fn lost_since(&self, server: usize, time: Nanos) {
        let mut ledger = self.lock();
        for id in ledger.calls.lost_since(server, time) {
            ledger.timers.entry(id).or_default().excused = true;
        }
    }

    /// The permits of a worker change.
    pub(crate) fn permit(&self, process: u64, change: PermitChange) {
        self.world.note(("permit", process, &change));
        let (now, mut ledger) = (self.world.now(), self.lock());
        let held = ledger.permits.change(process, change, (self.concurrency, now));
        if held > self.concurrency {
            ledger.violated(now, format!("a worker has {held} permits"));
        }
    }

    /// The store has granted a lease on a timer whose key was written at `written`.
    pub(crate) fn leased(
        self: &Arc<Self>,
        id: &Arc<str>,
        lease: &Lease,
        clock: (usize, ServerClock),
        written: Nanos,
    ) {
        let (now, mut ledger) = (self.world.now(), self.lock());
        self.world.note(("leased", id, lease.record.attempt, lease.overrun));
        if lease.due > lease.now {
            ledger.violated(now, format!("{id} was leased before its time"));
        }
        if ledger.is_paused {
            ledger.violated(now, format!("{id} was leased while the store is paused"));
        }
        let late = lease.now.saturating_sub(lease.due);
        let Ledger { promptness, permits, .. } = &*ledger;
        match promptness.check(permits, id, (late, written), clock, now) {
            Some(late) => ledger.latest = ledger.latest.max(late),
            None => ledger.violated(now, format!("{id} was leased {late} ms late")),
        }
        ledger.leases += 1;
        drop(ledger);
        self.renewed(id, &lease.record);
        if lease.overrun {
            let audit = Arc::clone(self);
            // The attempt that is counted has failed, and has the same number.
            let key = (Arc::clone(id), system(lease.record.planned), lease.record.attempt);
            self.world.after(STOPPED, move || audit.check_stopped(&key));
        }
    }

    fn check_stopped(&self, key: &AttemptKey) {
        let mut ledger = self.lock();
        let Ledger { timers, running, suspended, .. } = &*ledger;
        // The handler goes by a renewal that the server has lost.
        if timers.get(&key.0).is_some_and(|timer| timer.excused) {
            return;
        }
        let active = running.iter().filter(|(process, _)| !suspended.contains(process));
        if active.map(|(_, running)| running).any(|running| running.contains(key)) {
            let what = format!("{} runs although its lease was taken over", key.0);
            ledger.violated(self.world.now(), what);
        }
    }

    /// The store has created a delivery.
    pub(crate) fn created(&self, id: &str) {
        self.change(id, Tracked::created);
    }

    /// The store has accepted the end of an attempt.
    pub(crate) fn finished(&self, id: &str, record: &Record, finish: &Finish) {
        self.world.note(("finished", id));
        self.change(id, |timer| timer.finished(record, finish));
    }

    /// The store has written a dead letter, or redriven it.
    pub(crate) fn died(&self, id: &str, died: bool) {
        self.change(id, |timer| timer.died(died));
    }

    /// A caller inserts a timer.
    pub(crate) fn inserts(&self, id: &str) {
        self.change(id, Tracked::inserts);
    }

    /// A caller has inserted a timer.
    pub(crate) fn inserted(&self, id: &str) {
        self.change(id, Tracked::inserted);
    }

    /// A caller has cancelled a timer, and learned that it was removed, or that it runs. Without
    /// a reply, the timer may be cancelled.
    pub(crate) fn cancelled(&self, id: &str, removed: bool) {
        self.change(id, |timer| timer.cancelled(removed));
    }

    /// A caller has learned that there is no such timer.
    pub(crate) fn not_found(&self, id: &str) {
        self.change(id, |timer| timer.is_lost().then_some("was not found"));
    }

    /// A worker has learned that a delivery was acknowledged.
    pub(crate) fn reported(&self, id: &str, planned: SystemTime) {
        self.world.note(("reported", id));
        self.change(id, |timer| timer.reported(planned));
    }

    /// A handler has begun.
    pub(crate) fn begun(&self, process: u64, key: &AttemptKey) {
        let (id, planned, attempt) = key;
        self.world.note(("begun", id, attempt));
        let now = self.world.now();
        self.change(id, |timer| timer.begun(*planned, *attempt, now));
        self.permit(process, PermitChange::Begun(Arc::clone(id)));
        let mut ledger = self.lock();
        let running = ledger.running.entry(process).or_default();
        running.insert(key.clone());
        if running.len() > self.concurrency {
            ledger.violated(self.world.now(), "too many handlers run".to_owned());
        }
    }

    /// A handler has ended, or was dropped.
    pub(crate) fn ended(&self, process: u64, key: &AttemptKey) {
        let mut ledger = self.lock();
        if let Some(running) = ledger.running.get_mut(&process) {
            running.remove(key);
        }
        let was_suspended = ledger.ever_suspended.contains(&process);
        drop(ledger);
        if !was_suspended {
            let ((id, planned, attempt), now) = (key, self.world.now());
            self.change(id, |timer| timer.ended(*planned, *attempt, now));
        }
    }

    /// The store has renewed a lease.
    pub(crate) fn renewed(&self, id: &str, record: &Record) {
        let now = self.world.now();
        self.change(id, |timer| timer.leased(record, now));
    }

    /// A caller has learned that the store is paused, or resumes it.
    pub(crate) fn paused(&self, is_paused: bool) {
        self.world.note(("paused", is_paused));
        self.lock().is_paused = is_paused;
    }

    /// A process was suspended or resumed.
    pub(crate) fn suspended(&self, process: u64, suspended: bool) {
        let mut ledger = self.lock();
        ledger.ever_suspended.insert(process);
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

    /// Checks that all timers have ended. A server may have lost that one of those that are `left`
    /// was resumed.
    pub(crate) fn check_end(&self, left: &[(Arc<str>, Record)]) {
        let mut ledger = self.lock();
        let now = self.world.now();
        for (id, record) in left {
            let timer = ledger.timers.get(id);
            if !record.paused || timer.is_none_or(|timer| !timer.excused) {
                ledger.violated(now, format!("{id} is left"));
            }
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
        if let Some(violation) = change(timer).filter(|_| !timer.excused) {
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

/// The figures of a run without a violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) timers: usize,
    pub(crate) leases: u64,
    /// The latest lease while there was no fault.
    pub(crate) latest: Nanos,
    /// The same for two runs only if they are the same.
    pub(crate) trace: u64,
}
