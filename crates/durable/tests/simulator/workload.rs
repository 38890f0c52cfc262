//! The timers of a simulated fleet, and its handlers.

use super::audit::Audit;
use super::fleet::Fleet;
use super::process::Process;
use super::store::Simulated;
use super::world::SECOND;
use crate::api::timers::DurableTimers;
use crate::delivery::attempt::Delivery;
use crate::error::DurableError;
use crate::model::backoff::Backoff;
use crate::model::options::{Existing, Options};
use crate::model::verdict::Verdict;
use crate::store::{Cancelled, Inserted};
use std::sync::Arc;
use std::time::Duration;
use tourbillon::future::Timer;

/// How often the servers are looked at.
/// The handlers, by the first byte of a payload.
const KINDS: u8 = 12;
const SLOW: u8 = 7;
const LONGER_THAN_THE_LEASE: u8 = 8;
const FAILS_ONCE: u8 = 9;
const FAILS: u8 = 10;
const PANICS_ONCE: u8 = 11;

/// The lease of each timer.
const LEASE: Duration = Duration::from_secs(4);

impl Fleet {
    /// Starts the process that inserts timers, and changes some of them.
    pub(crate) fn insert_timers(self: &Arc<Self>) -> Arc<Process> {
        let process = Process::start(&self.world, 0);
        let store = Simulated::connect(&self.cluster, &process, self.setting.partitions);
        let timers = DurableTimers::new(store, &process.timer);
        let seconds = self.setting.length / SECOND - 120;
        for number in 0..self.setting.timers {
            let (inserted, delay, kind, change) = self.world.draw(|random| {
                let due = random.u64(..seconds * 1000);
                // Some are due soon, and some about where the windows of workers end.
                let delay = match random.u32(..3) {
                    0 => random.u64(..5000),
                    1 => random.u64(9000..12_000),
                    _ => random.u64(..=due),
                };
                let delay = delay.min(due);
                let change = (random.u32(..5) == 0).then(|| random.u64(..=delay + 100));
                (due - delay, delay, random.u8(..KINDS), change)
            });
            let (timers, timer) = (timers.clone(), process.timer.clone());
            let audit = Arc::clone(&self.audit);
            let resets = self.world.draw(|random| random.bool());
            process.spawn(async move {
                let millis = Duration::from_millis;
                let _ = timer.sleep(millis(inserted)).await;
                let id = format!("timer {number}");
                insert(&timers, &audit, &id, kind, millis(delay)).await;
                let Some(change) = change else { return };
                let _ = timer.sleep(millis(change)).await;
                match resets {
                    true => drop(timers.reset(&id, millis(delay.min(20_000) / 2)).await),
                    false => cancel(&timers, &audit, &id).await,
                }
            });
        }
        process
    }
}

async fn insert(timers: &DurableTimers, audit: &Audit, id: &str, kind: u8, delay: Duration) {
    let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(2));
    let options = Options::new().existing(Existing::Refuse).lease(LEASE).backoff(backoff);
    // So many attempts fail because of faults.
    let options = options.attempts(if kind == FAILS { 2 } else { 1000 });
    match timers.insert(id, vec![kind], delay, options).await.map_err(|error| error.reason) {
        Ok(Inserted::New) => audit.inserted(id),
        Err(DurableError::Unreachable(_) | DurableError::ReadOnly(_)) => {}
        other => audit.violated(format!("the insert of {id} was answered with {other:?}")),
    }
}

async fn cancel(timers: &DurableTimers, audit: &Audit, id: &str) {
    match timers.cancel(id).await {
        Ok(Cancelled::Removed) => audit.cancelled(id, true),
        Ok(Cancelled::Running) => audit.cancelled(id, false),
        Ok(Cancelled::NotFound) => audit.not_found(id),
        Err(_) => audit.may_be_cancelled(id),
    }
}

/// A handler that runs.
pub(crate) struct Handling {
    audit: Arc<Audit>,
    process: u64,
    id: Arc<str>,
    attempt: u32,
}

impl Handling {
    pub(crate) fn begin(audit: &Arc<Audit>, process: u64, delivery: &Delivery) -> Self {
        let (id, attempt) = (Arc::from(&*delivery.id), delivery.attempt);
        audit.begun(process, &id, attempt);
        Self { audit: Arc::clone(audit), process, id, attempt }
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        self.audit.ended(self.process, &self.id, self.attempt);
    }
}

pub(crate) async fn handle(_handling: Handling, timer: Timer, delivery: Delivery) -> Verdict {
    let kind = delivery.payload.first().copied().unwrap_or(0);
    let is_first = delivery.attempt == 1;
    let takes = match kind {
        SLOW => 2500,
        LONGER_THAN_THE_LEASE => 9000,
        kind => u64::from(kind) * 5,
    };
    let _ = timer.sleep(Duration::from_millis(takes)).await;
    match kind {
        FAILS => Verdict::Retry("fails".to_owned()),
        FAILS_ONCE if is_first => Verdict::Retry("fails once".to_owned()),
        PANICS_ONCE if is_first => std::panic::resume_unwind(Box::new("panics once")),
        _ => Verdict::Done,
    }
}
