//! [`Server`], one of the servers of a store, which executes requests as the scripts of Redis do.
//!
//! The transitions are those of a store in a file ([`transitions`](crate::store::transitions)),
//! which the suites compare with their models. Batches, kept replies, heartbeats and notices follow
//! `redis/scripts`.

use super::audit::Audit;
use super::partition::{Kept, Partition};
use super::requests::{BatchRequest, Notice, Operation, Reply};
use super::world::{MILLISECOND, World, drifted};
use crate::error::DurableError;
use crate::model::clock::Millis;
use crate::model::key::Key;
use crate::model::record::Record;
use crate::store::partitions::idle::NOTIFY_AHEAD;
use crate::store::partitions::pages::PartitionPage;
use crate::store::partitions::{Assignment, Heartbeat};
use crate::store::remote::error::{Kind, RequestError};
use crate::store::transitions::Ended;
use crate::store::{Cancelled, Finished, Insert, Leasing, Renewed};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// The time of a server's clock at the start of virtual time, 2027-01-15 08:00:00 UTC.
const START: Millis = 1_800_000_000_000;

/// How long a worker without a heartbeat counts as alive (`beat.lua`).
const GONE: Millis = 5000;

/// A server, with some of the partitions.
pub(crate) struct Server {
    world: World,
    audit: Arc<Audit>,
    /// How far the clock is ahead, in milliseconds, and its drift in parts per million.
    pub(crate) ahead: i64,
    drift: i64,
    /// Set while the memory is full.
    pub(crate) is_full: bool,
    partitions: BTreeMap<u64, Partition>,
    /// The workers, by the time of their last heartbeat.
    workers: BTreeMap<u64, Millis>,
    owners: BTreeMap<u64, u64>,
    /// The round of the assignment.
    round: Option<String>,
    /// The workers from which another has taken partitions since their last heartbeat.
    robbed: BTreeSet<u64>,
    /// The processes of workers.
    processes: BTreeMap<u64, u64>,
    /// The notices that were published by the request that is being executed.
    pub(crate) published: Vec<Notice>,
}

impl Server {
    pub(crate) fn new(world: &World, audit: &Arc<Audit>, ahead: i64, drift: i64) -> Self {
        Self {
            world: world.clone(),
            audit: Arc::clone(audit),
            ahead,
            drift,
            is_full: false,
            partitions: BTreeMap::new(),
            workers: BTreeMap::new(),
            owners: BTreeMap::new(),
            round: None,
            robbed: BTreeSet::new(),
            processes: BTreeMap::new(),
            published: Vec::new(),
        }
    }

    /// Returns the time of the server's clock, rounded down.
    pub(crate) fn now(&self) -> Millis {
        let passed = drifted(self.world.now(), self.drift) / MILLISECOND;
        (START + passed).saturating_add_signed(self.ahead)
    }

    /// Returns the process of the owner of a partition.
    pub(crate) fn owner(&self, partition: u64) -> Option<u64> {
        self.processes.get(self.owners.get(&partition)?).copied()
    }

    /// Returns how long the first key of a partition has been due, in milliseconds, its id, and
    /// how far the clock is ahead.
    pub(crate) fn oldest(&self, partition: u64) -> Option<(Millis, Arc<str>, i64)> {
        let (due, id) = self.partitions.get(&partition)?.due.first()?;
        Some((self.now().checked_sub(*due)?, Arc::clone(id), self.ahead))
    }

    /// Returns the number of timers.
    pub(crate) fn len(&self) -> usize {
        self.partitions.values().map(|partition| partition.timers.len()).sum()
    }

    /// Executes a heartbeat (`beat.lua`).
    pub(crate) fn beat(
        &mut self,
        me: u64,
        process: u64,
        count: u64,
        known: Option<&str>,
    ) -> Heartbeat {
        let now = self.now();
        self.processes.insert(me, process);
        let is_robbed = self.robbed.remove(&me);
        let is_usual = known.is_some() && self.round.as_deref() == known && !is_robbed;
        let all_live = self.workers.values().all(|last| *last + GONE >= now);
        let last = self.workers.insert(me, now);
        if is_usual && all_live && last.is_some_and(|last| last <= now) {
            return Heartbeat { now, assigned: None, paused: false };
        }
        let before = self.workers.len();
        self.workers.retain(|worker, last| *worker == me || *last + GONE >= now);
        if self.workers.len() < before || self.round.is_none() {
            self.begin_round(now, me);
        }
        self.workers.values_mut().for_each(|last| *last = (*last).min(now));
        let mut has: BTreeMap<u64, u64> = self.workers.keys().map(|worker| (*worker, 0)).collect();
        self.owners.retain(|_, owner| has.get_mut(owner).map(|count| *count += 1).is_some());
        let workers = has.len() as u64;
        let (least, most) = (count / workers, count.div_ceil(workers));
        let mut mine = has.remove(&me).unwrap_or(0);
        for partition in 0..count {
            if mine < most && !self.owners.contains_key(&partition) {
                self.owners.insert(partition, me);
                mine += 1;
            }
        }
        for partition in 0..count {
            let Some(owner) = self.owners.get_mut(&partition) else { continue };
            let Some(theirs) = has.get_mut(owner) else { continue };
            if mine < least && *theirs > least {
                *theirs -= 1;
                mine += 1;
                self.robbed.insert(std::mem::replace(owner, me));
            }
        }
        let owned = self.owners.iter().filter(|(_, owner)| **owner == me);
        let owned: BTreeSet<u64> = owned.map(|(partition, _)| *partition).collect();
        self.world.note(("beat", process, workers, &owned));
        let assigned = Assignment { owned, workers, round: self.round.clone() };
        Heartbeat { now, assigned: Some(assigned), paused: false }
    }

    /// Lets each worker look at its assignment again (`round.lua`).
    fn begin_round(&mut self, now: Millis, me: u64) {
        self.round = Some(format!("{now} {me}"));
    }

    /// Removes a worker (`leave.lua`).
    pub(crate) fn leave(&mut self, worker: u64) {
        let before = self.owners.len();
        self.owners.retain(|_, owner| *owner != worker);
        self.workers.remove(&worker);
        self.begin_round(self.now(), worker);
        if self.owners.len() < before {
            self.published.push(Notice::Left);
        }
    }

    /// Reads keys of a partition (`load.lua`).
    pub(crate) fn read_keys(
        &mut self,
        partition: u64,
        from: &Key,
        until: Millis,
        limit: usize,
    ) -> PartitionPage {
        let now = self.now();
        let due = &self.partitions.entry(partition).or_default().due;
        let (mut keys, mut more, mut beyond) = (Vec::new(), false, None);
        for key in due.range((Bound::Included(from.clone()), Bound::Unbounded)) {
            if key.0 > until {
                beyond = Some(key.0);
                break;
            }
            if keys.len() == limit {
                more = true;
                break;
            }
            keys.push(key.clone());
        }
        self.world.note(("page", partition, from, until, keys.len(), beyond));
        PartitionPage { now, keys, more, beyond }
    }

    /// Executes a batch (`batch.lua`).
    pub(crate) fn execute(
        &mut self,
        batch: &BatchRequest,
    ) -> Result<(Vec<Reply>, Millis), RequestError> {
        let now = self.now();
        let mut partition = self.partitions.remove(&batch.partition).unwrap_or_default();
        let result = self.execute_on(&mut partition, batch, now);
        self.partitions.insert(batch.partition, partition);
        result
    }

    fn execute_on(
        &mut self,
        partition: &mut Partition,
        batch: &BatchRequest,
        now: Millis,
    ) -> Result<(Vec<Reply>, Millis), RequestError> {
        if let Some((number, then, kept)) = partition.kept.get(&batch.process) {
            if *number == batch.number {
                let replies = kept.iter().map(|kept| partition.again(kept)).collect();
                return Ok((replies, *then));
            }
            if *number > batch.number {
                let error = DurableError::Io("TBLATE a batch was overtaken".to_owned());
                return Err(RequestError { kind: Kind::Fatal, error });
            }
        }
        let (mut replies, mut kept, mut changed) = (Vec::new(), Vec::new(), false);
        for operation in &batch.operations {
            let (reply, changes) = match operation {
                Some(operation) => self.apply(partition, operation, now),
                None => (Reply::Nothing, false),
            };
            self.world.note((operation.as_ref().map(Operation::id), changes, now));
            changed |= changes;
            kept.push(Kept::of(operation.as_ref(), &reply));
            replies.push(reply);
        }
        if changed || batch.settle {
            partition.kept.insert(batch.process, (batch.number, now, kept));
        }
        Ok((replies, now))
    }

    /// Executes an operation. Returns `true` with its reply if it has changed anything.
    fn apply(
        &mut self,
        partition: &mut Partition,
        operation: &Operation,
        now: Millis,
    ) -> (Reply, bool) {
        match operation {
            Operation::Insert(_) if self.is_full => (Reply::Refused, false),
            Operation::Insert(timer) => self.insert(partition, timer, now),
            Operation::Cancel(id) => match partition.timers.get(&**id).cloned() {
                None => (Reply::Cancelled(Cancelled::NotFound), false),
                Some(found) => {
                    let (cancelled, after) = found.cancelled();
                    self.write(partition, id, after, now);
                    (Reply::Cancelled(cancelled), true)
                }
            },
            Operation::Reset(id, due) => {
                let found = partition.timers.get(&**id).filter(|found| found.fence.is_none());
                let (Some(found), Ok(due)) = (found.cloned(), due.time(coming(now))) else {
                    return (Reply::Moved(false, 0), false);
                };
                self.write(partition, id, Some(found.moved(due)), now);
                (Reply::Moved(true, due), true)
            }
            Operation::Lease((_, id)) => self.lease(partition, id, now),
            Operation::Renew(id, fence) => match partition.held(id, *fence) {
                None => (Reply::Renewed(Renewed::Lost), false),
                Some(found) => {
                    let (length, cancelled) = (found.settings.lease, found.cancelled);
                    self.write(partition, id, Some(found.renewed(now)), now);
                    (Reply::Renewed(Renewed::Held { length, cancelled }), true)
                }
            },
            Operation::Finish(id, fence, finish) => match partition.held(id, *fence) {
                None => (Reply::Finished(Finished::TooLate, None), false),
                Some(found) => {
                    self.audit.finished(id, finish);
                    let ended = found.finished(finish.clone(), coming(now));
                    let Ended { finished, after, letter, .. } = ended;
                    if letter.is_some() {
                        self.audit.died(id);
                    }
                    let due = after.as_ref().map(Record::indexed);
                    self.write(partition, id, after, now);
                    (Reply::Finished(finished, due), true)
                }
            },
        }
    }

    fn insert(&mut self, partition: &mut Partition, timer: &Insert, now: Millis) -> (Reply, bool) {
        let (found, coming) = (partition.timers.get(&*timer.id), coming(now));
        let inserted = timer.due.time(coming).and_then(|due| {
            let (inserted, after) = Record::inserted(found, timer, due, coming)?;
            Ok((inserted, after, due))
        });
        match inserted {
            Err(error) => (Reply::Inserted(Err(error), 0), false),
            Ok((inserted, None, due)) => (Reply::Inserted(Ok(inserted), due), false),
            Ok((inserted, after, due)) => {
                self.write(partition, &timer.id, after, now);
                (Reply::Inserted(Ok(inserted), due), true)
            }
        }
    }

    fn lease(&mut self, partition: &mut Partition, id: &Arc<str>, now: Millis) -> (Reply, bool) {
        let Some(found) = partition.timers.get(id) else {
            return (Reply::Leased(Leasing::NotFound), false);
        };
        let due = found.indexed();
        if due > now {
            return (Reply::Leased(Leasing::NotDue { due, now }), false);
        }
        partition.fence = (partition.fence + 1).max(now);
        let lease = found.clone().leased(partition.fence, now);
        self.audit.leased(id, &lease, self.ahead);
        self.write(partition, id, Some(lease.record.clone()), now);
        (Reply::Leased(Leasing::Taken(Box::new(lease))), true)
    }

    /// Writes a record and its key, and publishes a key that is near. Does not publish the end of a
    /// renewed lease, which is later than the key that workers have.
    fn write(&mut self, partition: &mut Partition, id: &str, after: Option<Record>, now: Millis) {
        let id: Arc<str> = Arc::from(id);
        let before = partition.timers.remove(&id);
        let renewed = before.as_ref().zip(after.as_ref()).is_some_and(|(before, after)| {
            before.fence.is_some() && before.fence == after.fence && before.due <= after.due
        });
        if let Some(before) = before {
            partition.due.remove(&(before.indexed(), Arc::clone(&id)));
        }
        if let Some(after) = after {
            let key = (after.indexed(), Arc::clone(&id));
            if key.0 <= now + NOTIFY_AHEAD && !renewed {
                self.published.push(Notice::Added(key.clone()));
            }
            partition.due.insert(key);
            partition.timers.insert(id, after);
        }
    }
}

/// Returns the present, rounded up, so that a delay passes completely.
fn coming(now: Millis) -> Millis {
    now + 1
}
