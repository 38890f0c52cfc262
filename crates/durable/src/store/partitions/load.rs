//! [`load`], the request of a worker for its heartbeat, its partitions, and their keys.

#![forbid(unsafe_code)]

use super::pages::{PartitionPage, merged, share};
use super::{Assignment, Heartbeat, Partitioned};
use crate::error::DurableError;
use crate::model::clock::Millis;
use crate::model::key::{Key, Page, first_from};
use crate::store::ownership::Round;
use crate::store::remote::host::Host;
use crate::store::remote::retry::RetryPolicy;
use futures_util::future::{join_all, select_ok};
use std::sync::Arc;
use std::time::Duration;

/// How far ahead of now keys are loaded at most. Servers publish changes further ahead, so that
/// every key added after a page is published.
const AHEAD: Millis = 15_000;

/// The owner of a timer has certainly failed to deliver it after this delay.
const LATE: Millis = 5000;

/// The number of another worker's timers that are taken over at a time.
const TAKEN_ON: usize = 64;

/// The number of partitions that are asked for the time, if the first does not reply.
const ASKED: usize = 8;

/// The head start of each partition over the next.
const HEAD_START: Duration = Duration::from_millis(100);

/// Sends a heartbeat, and loads keys of the worker's partitions.
pub(crate) async fn load<P: Partitioned>(
    store: &Arc<P>,
    worker: u64,
    from: Key,
    until: Millis,
    limit: usize,
) -> Result<Page, DurableError> {
    let now = heartbeat_or_time(store, worker).await?;
    let owned = store.ownership().readable(worker);
    let until = until.min(now + AHEAD);
    if store.ownership().is_paused(worker) {
        let keys = Vec::new();
        return Ok(Page { now, until, keys, more: false, paused: true, misplaced: None });
    }
    let share = share(limit, owned.len());
    let from = &from;
    let asked = owned.into_iter().map(|partition| async move {
        (partition, load_partition(&**store, partition, now, from, until, share).await)
    });
    let mut pages = Vec::new();
    for (partition, page) in join_all(asked).await {
        if unreachable(&page) {
            miss(store, worker, partition);
        } else {
            pages.extend(page?);
        }
    }
    let (mut keys, end) = merged(pages);
    let more = end.is_some() || keys.len() > limit;
    keys.truncate(limit);
    if !more && limit > keys.len() + TAKEN_ON {
        keys.extend(stragglers(&**store, worker, now).await?);
    }
    Ok(Page { now, until, keys, more, paused: false, misplaced: None })
}

/// Sends a heartbeat and returns the time, or returns the time of the first server that replies.
/// The list of workers is on one server. While that server cannot be reached, no worker can take
/// over a partition either, and each keeps its own.
async fn heartbeat_or_time<P: Partitioned>(
    store: &Arc<P>,
    worker: u64,
) -> Result<Millis, DurableError> {
    loop {
        let owned = store.ownership().readable(worker);
        // A worker that owns nothing cannot continue without a heartbeat.
        if owned.is_empty() || !store.ownership().has_lost_heartbeat(worker) {
            let said = heartbeat(&**store, worker).await;
            if !unreachable(&said) {
                return said;
            }
            go_on_without_heartbeat(store, worker);
        }
        let said = time_by(&**store, owned).await;
        if !unreachable(&said) {
            return said;
        }
    }
}

/// Sends a heartbeat. Updates the partitions that the worker owns, and returns the time.
async fn heartbeat(store: &impl Partitioned, worker: u64) -> Result<Millis, DurableError> {
    let ownership = store.ownership();
    // If there is no reply, the next heartbeat asks for the assignment.
    let known = ownership.take_round(worker);
    let Heartbeat { now, assigned, paused } = store.beat(worker, known.as_ref()).await?;
    let round = match assigned {
        Some(Assignment { owned, workers, round }) => {
            ownership.set_owned(worker, &owned);
            let spare = owned.is_empty() && workers > store.partitions();
            ownership.set_workers(worker, workers, spare);
            round.map(|name| Round { name, since: now, last: now })
        }
        None => known.map(|round| Round { last: now, ..round }),
    };
    ownership.set_round(worker, round.filter(|round| round.is_fresh(now)));
    ownership.set_paused(worker, paused);
    Ok(now)
}

/// Lets a worker load its keys without heartbeats until the server with the list of workers
/// replies.
fn go_on_without_heartbeat<P: Partitioned>(store: &Arc<P>, worker: u64) {
    if !store.ownership().heartbeat_lost(worker) {
        return;
    }
    let server = Arc::clone(store);
    store.engine().host.spawn(async move {
        // The task ends when the worker has left.
        while server.ownership().has_lost_heartbeat(worker) {
            if !unreachable(&server.reach_workers().await) {
                return server.ownership().heartbeat_answered(worker);
            }
        }
    });
}

/// Returns the time of the first partition that replies. Each has a head start over the next,
/// because the clocks of two servers differ and the same server should reply each time.
pub(crate) async fn time_by(
    store: &impl Partitioned,
    partitions: impl IntoIterator<Item = u64>,
) -> Result<Millis, DurableError> {
    let mut start = Duration::ZERO;
    let asked: Vec<_> = partitions
        .into_iter()
        .take(ASKED)
        .map(|partition| {
            let wait = start;
            start += HEAD_START;
            Box::pin(async move {
                store.engine().host.sleep(wait).await;
                store.now_of(partition, RetryPolicy::Page).await
            })
        })
        .collect();
    if asked.is_empty() {
        return Err(DurableError::Unreachable("no partition can be reached".to_owned()));
    }
    Ok(select_ok(asked).await?.0)
}

/// Returns keys that another worker should have delivered long ago.
async fn stragglers(
    store: &impl Partitioned,
    worker: u64,
    now: Millis,
) -> Result<Vec<Key>, DurableError> {
    let until = now.saturating_sub(LATE);
    let Some(partition) = store.ownership().next_foreign_partition(worker, store.partitions(), now)
    else {
        return Ok(Vec::new());
    };
    let page = load_partition(store, partition, now, &first_from(0), until, TAKEN_ON).await;
    if unreachable(&page) { Ok(Vec::new()) } else { Ok(page?.map_or(Vec::new(), |page| page.keys)) }
}

/// Continues without a partition, and tries it until it can be read.
fn miss<P: Partitioned>(store: &Arc<P>, worker: u64, partition: u64) {
    if !store.ownership().miss(worker, partition) {
        return;
    }
    let server = Arc::clone(store);
    store.engine().host.spawn(async move {
        // A worker that has left, as it does when its store is dropped, misses nothing.
        while server.ownership().has_missed(worker, partition) {
            let first = first_from(0);
            let page = server.read_keys(partition, &first, 0, 1, RetryPolicy::Page).await;
            // The next page reports any other error.
            if !unreachable(&page) {
                return server.ownership().found(worker, partition);
            }
        }
    });
}

/// Loads keys of a partition, or returns `None` if it can have none in this range.
async fn load_partition(
    store: &impl Partitioned,
    partition: u64,
    now: Millis,
    from: &Key,
    until: Millis,
    limit: usize,
) -> Result<Option<PartitionPage>, DurableError> {
    let idle = store.idle();
    let Some(notices) = idle.asked(partition, now, from.0, until) else { return Ok(None) };
    let page = store.read_keys(partition, from, until, limit, RetryPolicy::Probe).await?;
    if !page.more {
        idle.page(partition, notices, page.now, (from.0, until), page.beyond);
    }
    Ok(Some(page))
}

/// Marks the partition of a timer as slow to reply to a worker until it is dropped.
pub(crate) struct Stall<P: Partitioned> {
    store: Arc<P>,
    worker: u64,
    partition: u64,
}

impl<P: Partitioned> Stall<P> {
    /// Notes that a worker has waited long for a reply about a timer.
    pub(crate) fn begin(store: &Arc<P>, worker: u64, id: &str) -> Self {
        let partition = store.partition_of(id);
        store.ownership().stall(worker, partition);
        Self { store: Arc::clone(store), worker, partition }
    }
}

impl<P: Partitioned> Drop for Stall<P> {
    fn drop(&mut self) {
        self.store.ownership().unstall(self.worker, self.partition);
    }
}

fn unreachable<T>(said: &Result<T, DurableError>) -> bool {
    matches!(said, Err(DurableError::Unreachable(_)))
}
