//! A stream of timers, the worker that delivers them, and how late they are.

use crate::Failure;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tourbillon_durable::{Delivery, DurableError, DurableTimers, Existing, Options};

/// Inserts timers at a fixed interval, each due a quarter of a second ahead. Returns the ids of the
/// acknowledged ones.
pub(crate) fn stream(
    timers: &DurableTimers,
    name: &str,
    count: usize,
    step: Duration,
) -> JoinHandle<BTreeSet<String>> {
    let (timers, name) = (timers.clone(), name.to_owned());
    tokio::spawn(async move {
        let mut calls = Vec::new();
        let mut ticks = tokio::time::interval(step);
        for number in 0..count {
            ticks.tick().await;
            let (timers, id) = (timers.clone(), format!("{name} {number}"));
            calls.push(tokio::spawn(async move {
                let options = Options::new().existing(Existing::Keep);
                let inserted = timers.insert(&id, "", Duration::from_millis(250), options).await;
                inserted.is_ok().then_some(id)
            }));
        }
        join_all(calls).await.into_iter().filter_map(Result::ok).flatten().collect()
    })
}

/// A timer that was delivered.
pub(crate) struct Seen {
    pub(crate) id: String,
    planned: SystemTime,
    late: Duration,
}

/// A worker that acknowledges everything.
pub(crate) struct Work {
    pub(crate) seen: Receiver<Seen>,
    end: futures_channel::oneshot::Sender<()>,
    pub(crate) run: JoinHandle<Result<(), DurableError>>,
}

impl Work {
    pub(crate) fn of(timers: &DurableTimers) -> Self {
        let (send, seen) = channel();
        let (end, ends) = futures_channel::oneshot::channel::<()>();
        let worker = timers.worker().until(async move {
            let _ = ends.await;
        });
        let run = worker.run(move |Delivery { id, planned, .. }| {
            let late = SystemTime::now().duration_since(planned).unwrap_or_default();
            // The worker ends without further requests.
            drop(send.send(Seen { id, planned, late }));
            async { Ok::<(), String>(()) }
        });
        Self { seen, end, run: tokio::spawn(run) }
    }

    /// Waits until all of these are delivered. Returns `false` after half a minute.
    pub(crate) async fn until_all_have_come(
        &self,
        all: &BTreeSet<String>,
        seen: &mut Vec<Seen>,
    ) -> bool {
        for _ in 0..300 {
            seen.extend(self.seen.try_iter());
            let come: BTreeSet<&String> = seen.iter().map(|seen| &seen.id).collect();
            if all.iter().all(|id| come.contains(id)) {
                return true;
            }
            sleep(Duration::from_millis(100)).await;
        }
        false
    }

    /// Returns `true` if the worker has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.run.is_finished()
    }

    pub(crate) async fn end(self) -> Result<(), Failure> {
        drop(self.end);
        Ok(self.run.await??)
    }
}

/// The lateness of timers.
pub(crate) struct Lateness {
    pub(crate) p99: Duration,
    most: Duration,
}

impl Lateness {
    /// Returns the lateness of timers that were due from that time on.
    pub(crate) fn of(seen: &[Seen], from: SystemTime) -> Self {
        let since = seen.iter().filter(|seen| seen.planned >= from);
        let mut late: Vec<Duration> = since.map(|seen| seen.late).collect();
        late.sort_unstable();
        let at = |place: usize| late.get(place).copied().unwrap_or(Duration::MAX);
        Self { p99: at(late.len() * 99 / 100), most: at(late.len().saturating_sub(1)) }
    }
}

impl std::fmt::Display for Lateness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { p99, most } = self;
        write!(f, "p99 {} ms, at most {} ms late", p99.as_millis(), most.as_millis())
    }
}
