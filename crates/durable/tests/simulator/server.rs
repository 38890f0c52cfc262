//! [`Server`], one of the servers of a store, which executes requests as the scripts of Redis do.
//!
//! The transitions are those of a store in a file ([`transitions`](crate::store::transitions)),
//! which the suites compare with their models. Batches, kept replies, heartbeats and notices follow
//! `redis/scripts`.

use super::audit::Audit;
use super::fleets::batch::{BatchScript, TimerState};
use super::fleets::commands::{self, Assigned};
use super::fleets::usage::{Request, Usage};
use super::partition::{Kept, Partition};
use super::requests::{Answered, BatchRequest, Operation, Reply};
use super::world::{MILLISECOND, Nanos, World, drifted};
use crate::error::DurableError;
use crate::model::clock::Millis;
use crate::model::key::Key;
use crate::model::record::{Dead, Record};
use crate::store::ownership::Round;
use crate::store::partitions::channels::Notice;
use crate::store::partitions::pages::PartitionPage;
use crate::store::partitions::{Assignment, Heartbeat};
use crate::store::remote::error::{Kind, RequestError};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::Bound;
use std::sync::Arc;

/// The time of a server's clock at the start of virtual time, 2027-01-15 08:00:00 UTC.
const START: Millis = 1_800_000_000_000;

/// How long a worker without a heartbeat counts as alive (`beat.lua`).
const GONE: Millis = 5000;

/// The clock of a server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerClock {
    /// How far it is ahead, in milliseconds.
    pub(crate) ahead: i64,
    /// Parts per million.
    pub(crate) drift: i64,
}

impl ServerClock {
    /// Returns what the clock shows at a time of the world, rounded down.
    pub(crate) fn shown(self, at: Nanos) -> Millis {
        (START + drifted(at, self.drift) / MILLISECOND).saturating_add_signed(self.ahead)
    }
}

/// Returns the name of a round, in which each worker looks at its assignment again (`round.lua`).
fn round_of(now: Millis, me: u64) -> String {
    format!("{now} {me}")
}

/// A server, with some of the partitions.
pub(crate) struct Server {
    pub(crate) world: World,
    pub(crate) audit: Arc<Audit>,
    /// The place among the servers.
    pub(crate) place: usize,
    pub(crate) clock: ServerClock,
    /// Set while the memory is full.
    pub(crate) is_full: bool,
    pub(crate) usage: Usage,
    data: Data,
    /// The data and the time of a replica that will take over.
    replica: Option<(Data, Nanos)>,
    /// The notices that were published by the request that is being executed, each with the
    /// partition of its channel, or on the channel of the store.
    pub(crate) published: Vec<(Option<u64>, Notice)>,
}

/// The data that a server keeps.
#[derive(Clone, Default)]
struct Data {
    partitions: BTreeMap<u64, Partition>,
    /// The workers, by the time of their last heartbeat.
    workers: BTreeMap<u64, Millis>,
    owners: BTreeMap<u64, u64>,
    /// Set while the store is paused.
    is_paused: bool,
    /// The round of the assignment.
    round: Option<String>,
    /// The workers from which another has taken partitions since their last heartbeat.
    robbed: BTreeSet<u64>,
    /// The processes of workers.
    processes: BTreeMap<u64, u64>,
}

/// The first key of a partition that is due.
pub(crate) struct Oldest {
    pub(crate) id: Arc<str>,
    /// How long it has been due, in milliseconds.
    pub(crate) late: Millis,
    /// When it was written.
    pub(crate) written: Nanos,
}

impl Server {
    pub(crate) fn new(world: &World, audit: &Arc<Audit>, place: usize, clock: ServerClock) -> Self {
        Self {
            world: world.clone(),
            audit: Arc::clone(audit),
            place,
            clock,
            is_full: false,
            usage: Usage::default(),
            data: Data::default(),
            replica: None,
            published: Vec::new(),
        }
    }

    /// Returns the time of the server's clock, rounded down.
    pub(crate) fn now(&self) -> Millis {
        self.clock.shown(self.world.now())
    }

    /// Returns the process of the owner of a partition.
    pub(crate) fn owner(&self, partition: u64) -> Option<u64> {
        self.data.processes.get(self.data.owners.get(&partition)?).copied()
    }

    /// Returns the processes of the listed workers, with the ages of their last heartbeats.
    pub(crate) fn heartbeats(&self) -> impl Iterator<Item = (u64, Millis)> {
        let Data { workers, processes, .. } = &self.data;
        let age = |last: Millis| self.now().saturating_sub(last);
        workers.iter().filter_map(move |(me, last)| Some((*processes.get(me)?, age(*last))))
    }

    /// Returns the first key of a partition, if it is due.
    pub(crate) fn oldest(&self, partition: u64) -> Option<Oldest> {
        let partition = self.data.partitions.get(&partition)?;
        let (due, id) = partition.due.first()?;
        let late = self.now().checked_sub(*due)?;
        let written = partition.written.get(id).copied().unwrap_or(0);
        Some(Oldest { id: Arc::clone(id), late, written })
    }

    /// Returns all timers.
    pub(crate) fn timers(&self) -> Vec<(Arc<str>, Record)> {
        let timers = self.data.partitions.values().flat_map(|partition| &partition.timers);
        timers.map(|(id, record)| (Arc::clone(id), record.clone())).collect()
    }

    /// Returns the record of a timer.
    pub(crate) fn record(&self, partition: u64, id: &str) -> Option<Record> {
        self.data.partitions.get(&partition)?.timers.get(id).cloned()
    }

    /// Copies the data to a replica.
    pub(crate) fn replicate(&mut self) {
        self.replica = Some((self.data.clone(), self.world.now()));
    }

    /// Continues with the data of the replica.
    pub(crate) fn take_over(&mut self) {
        if let Some((data, copied)) = self.replica.take() {
            self.data = data;
            self.audit.lost_since(self.place, copied);
        }
    }

    /// Executes a heartbeat (`beat.lua`).
    pub(crate) fn beat(
        &mut self,
        me: u64,
        process: u64,
        count: u64,
        known: Option<&Round>,
    ) -> Heartbeat {
        let now = self.now();
        let paused = self.data.is_paused;
        let Data { workers, owners, round, robbed, processes, .. } = &mut self.data;
        processes.insert(me, process);
        let is_robbed = robbed.remove(&me);
        let all_live = workers.values().all(|last| *last + GONE >= now);
        let last = workers.insert(me, now);
        let is_known = |known: &Round| {
            round.as_ref() == Some(&known.name) && last == Some(known.last) && known.last <= now
        };
        if known.is_some_and(is_known) && !is_robbed && all_live {
            self.usage.add(Request::UsualBeat, commands::USUAL_BEAT);
            return Heartbeat { now, assigned: None, paused };
        }
        let mut assigns = Assigned::default();
        let before = workers.len();
        workers.retain(|worker, last| *worker == me || *last + GONE >= now);
        if workers.len() < before || round.is_none() {
            *round = Some(round_of(now, me));
            assigns.begins_round = true;
        }
        assigns.mended = before - workers.len();
        workers.values_mut().for_each(|last| *last = (*last).min(now));
        let mut has: BTreeMap<u64, u64> = workers.keys().map(|worker| (*worker, 0)).collect();
        owners.retain(|_, owner| has.get_mut(owner).map(|count| *count += 1).is_some());
        let workers = has.len() as u64;
        let (least, most) = (count / workers, count.div_ceil(workers));
        let mut mine = has.remove(&me).unwrap_or(0);
        for partition in 0..count {
            if mine < most && !owners.contains_key(&partition) {
                owners.insert(partition, me);
                mine += 1;
                assigns.taken += 1;
            }
        }
        for partition in 0..count {
            let Some(owner) = owners.get_mut(&partition) else { continue };
            let Some(theirs) = has.get_mut(owner) else { continue };
            if mine < least && *theirs > least {
                *theirs -= 1;
                mine += 1;
                robbed.insert(mem::replace(owner, me));
                assigns.taken += 1;
                assigns.robbed += 1;
            }
        }
        let owned = owners.iter().filter(|(_, owner)| **owner == me);
        let owned: BTreeSet<u64> = owned.map(|(partition, _)| *partition).collect();
        let round = round.clone();
        self.usage.add(Request::Beat { partitions: count, workers }, assigns.commands());
        self.audit.owns(process, &owned);
        self.world.note(("beat", process, workers, &owned));
        let assigned = Assignment { owned, workers, round };
        Heartbeat { now, assigned: Some(assigned), paused }
    }

    /// Removes a worker (`leave.lua`).
    pub(crate) fn leave(&mut self, worker: u64, process: u64) {
        self.audit.has_left(process);
        let before = self.data.owners.len();
        self.data.owners.retain(|_, owner| *owner != worker);
        self.data.workers.remove(&worker);
        self.data.round = Some(round_of(self.now(), worker));
        self.usage.add(Request::Leave, commands::leave(before - self.data.owners.len()));
        if self.data.owners.len() < before {
            self.published.push((None, Notice::Heartbeat));
        }
    }

    /// Notes that all partitions are paused, or that they are about to be resumed (`hold.lua`).
    pub(crate) fn mark_paused(&mut self, is_paused: bool) {
        self.data.is_paused = is_paused;
        self.published.push((None, Notice::Heartbeat));
    }

    /// Returns `true` if the store is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.data.is_paused
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
        let due = &self.data.partitions.entry(partition).or_default().due;
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
        let executed = commands::page(due, from, until, limit);
        self.usage.add(Request::Page { keys: keys.len() as u64 }, executed);
        self.world.note(("page", partition, from, until, keys.len(), beyond));
        PartitionPage { now, keys, more, beyond }
    }

    /// Executes a request for the time (`now.lua`).
    pub(crate) fn read_time(&mut self) -> Millis {
        self.usage.add(Request::Time, commands::TIME);
        self.now()
    }

    /// Returns the dead letters of some partitions.
    pub(crate) fn letters(&self) -> Vec<(u64, Dead)> {
        let letters = self.data.partitions.values().flat_map(|partition| &partition.letters);
        letters.map(|(number, letter)| (*number, letter.clone())).collect()
    }

    /// Executes a batch (`batch.lua`).
    pub(crate) fn execute(
        &mut self,
        batch: &BatchRequest,
    ) -> Result<(Vec<Answered>, Millis), RequestError> {
        let now = self.now();
        let place = self.data.partitions.entry(batch.partition).or_default();
        let mut partition = mem::take(place);
        let result = self.execute_on(&mut partition, batch, now);
        let notices = mem::take(&mut partition.added).into_iter().map(Notice::Added);
        self.published.extend(notices.map(|notice| (Some(batch.partition), notice)));
        self.data.partitions.insert(batch.partition, partition);
        result
    }

    fn execute_on(
        &mut self,
        partition: &mut Partition,
        batch: &BatchRequest,
        now: Millis,
    ) -> Result<(Vec<Answered>, Millis), RequestError> {
        if let Some((number, then, kept)) = partition.kept.get(&batch.process) {
            if *number >= batch.number {
                self.usage.add(Request::Batch { operations: 0 }, commands::ANSWERED);
            }
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
        let mut script = BatchScript::default();
        for call in &batch.calls {
            let operation = call.as_ref().map(|call| &call.operation);
            let number = call.as_ref().map_or(0, |call| call.number);
            let (before, added) = (TimerState::of(partition, call.as_ref()), partition.added.len());
            let (reply, changes) = match operation {
                Some(operation) => self.apply(partition, operation, (batch.partition, now)),
                None => (Reply::Nothing, false),
            };
            if let Some(operation) = operation {
                let states = (before, TimerState::of(partition, call.as_ref()));
                script.count(operation, states, changes, partition.added.len() - added);
            }
            self.world.note((operation.map(Operation::id), changes, now));
            self.audit.executed(number, self.place, changes);
            changed |= changes;
            let answered = Answered { number, reply };
            kept.push(Kept::of(operation, &answered));
            replies.push(answered);
        }
        let is_first = !partition.kept.contains_key(&batch.process);
        let operations = batch.calls.len() as u64;
        let executed = script.finished(partition, batch.settle, is_first);
        self.usage.add(Request::Batch { operations }, executed);
        if changed || batch.settle {
            partition.kept.insert(batch.process, (batch.number, now, kept));
        }
        Ok((replies, now))
    }
}
