//! The callers of a fleet, which insert timers and change them, and the handlers.

use super::audit::Audit;
use super::faults::Kind;
use super::fleet::Fleet;
use super::plan::Plan;
use super::process::Process;
use super::store::Simulated;
use super::timers::{Change, TimerPlan, handlers};
use super::world::{MILLISECOND, Nanos, SECOND};
use crate::api::timers::DurableTimers;
use crate::delivery::attempt::Delivery;
use crate::error::DurableError;
use crate::model::backoff::Backoff;
use crate::model::options::{Existing, Options};
use crate::model::verdict::Verdict;
use crate::store::{Cancelled, Inserted};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tourbillon::future::Timer;

/// The lease of each timer.
const LEASE: Duration = Duration::from_secs(4);

/// How long before the end repetitions are cancelled, and dead letters are redriven.
const WIND_UP: u64 = 110 * SECOND;

/// The wait before an operation without a reply is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// A caller of the store.
#[derive(Clone)]
struct Caller {
    timers: DurableTimers,
    audit: Arc<Audit>,
    timer: Timer,
}

impl Fleet {
    /// Starts the process that inserts timers, and changes some of them.
    pub(crate) fn start_callers(&self, plan: &Plan) -> Arc<Process> {
        let process = Process::start(&self.world, 0);
        let store = Simulated::connect(&self.cluster, &process, self.setting.partitions);
        let timers = DurableTimers::new(store, &process.timer);
        let (audit, timer) = (Arc::clone(&self.audit), process.timer.clone());
        let caller = Caller { timers, audit, timer };
        let wind_up = self.setting.length.saturating_sub(WIND_UP) / MILLISECOND;
        for timer in &plan.timers {
            process.spawn(caller.clone().call(timer.clone(), wind_up));
        }
        for fault in &plan.faults {
            if let Kind::Pause { slow } = fault.kind {
                let (cluster, number) = (Arc::clone(&self.cluster), process.number);
                let slow = move |is_slow| {
                    cluster.set_slow_process(number, if is_slow { slow } else { 0 });
                };
                process.spawn(caller.clone().pause_store(fault.begin, fault.length, slow));
            }
        }
        process.spawn(async move {
            caller.pass(wind_up).await;
            caller.redrive_letters().await;
        });
        process
    }
}

impl Caller {
    /// Waits for so many milliseconds.
    async fn pass(&self, millis: u64) {
        let _ = self.timer.sleep(Duration::from_millis(millis)).await;
    }

    /// Does what a plan says about a timer.
    async fn call(self, plan: TimerPlan, wind_up: u64) {
        let id = format!("timer {}", plan.number);
        self.pass(plan.inserted).await;
        self.insert(&id, &plan, Existing::Refuse, plan.delay).await;
        let mut passed = plan.inserted;
        for (wait, change) in &plan.changes {
            self.pass(*wait).await;
            passed += wait;
            if let Change::Pause(length) = change {
                passed += length;
            }
            self.change(&id, &plan, *change).await;
        }
        if plan.every.is_some() {
            self.pass(wind_up.saturating_sub(passed)).await;
            while self.cancel(&id).await.is_err() {
                let _ = self.timer.sleep(AGAIN).await;
            }
        }
    }

    async fn change(&self, id: &str, plan: &TimerPlan, change: Change) {
        let changed = match change {
            Change::Cancel => return drop(self.cancel(id).await),
            Change::Keep(delay) => return self.insert(id, plan, Existing::Keep, delay).await,
            Change::Update(delay) => return self.insert(id, plan, Existing::Update, delay).await,
            Change::Replace(delay) => {
                return self.insert(id, plan, Existing::Replace, delay).await;
            }
            Change::Reset(delay) => self.timers.reset(id, Duration::from_millis(delay)).await,
            Change::RunNow => self.timers.run_now(id).await,
            Change::Pause(length) => {
                let paused = self.timers.pause_timer(id).await;
                self.pass(length).await;
                while self.timers.resume_timer(id).await.is_err() {
                    let _ = self.timer.sleep(AGAIN).await;
                }
                paused
            }
        };
        if let Err(error) = changed
            && !matches!(error, DurableError::Unreachable(_) | DurableError::Running)
        {
            self.audit.violated(format!("{change:?} of {id} was answered with {error}"));
        }
    }

    async fn insert(&self, id: &str, plan: &TimerPlan, existing: Existing, delay: u64) {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(2));
        let options = Options::new().existing(existing).lease(LEASE).backoff(backoff);
        // So many attempts fail because of faults.
        let attempts = if plan.handler == handlers::FAILS { 2 } else { 1000 };
        let mut options = options.attempts(attempts);
        if let Some(every) = plan.every {
            options = options.every(Duration::from_millis(every));
        }
        let (payload, delay) = (vec![plan.handler], Duration::from_millis(delay));
        self.audit.inserts(id);
        let inserted = self.timers.insert(id, payload, delay, options).await;
        match inserted.map_err(|error| error.reason) {
            Ok(inserted) if existing != Existing::Refuse || inserted == Inserted::New => {
                self.audit.inserted(id);
            }
            Err(DurableError::Unreachable(_) | DurableError::ReadOnly(_)) => {}
            other => {
                self.audit.violated(format!("the insert of {id} was answered with {other:?}"));
            }
        }
    }

    async fn cancel(&self, id: &str) -> Result<(), DurableError> {
        let cancelled = self.timers.cancel(id).await;
        match cancelled {
            Ok(Cancelled::NotFound) => self.audit.not_found(id),
            Ok(cancelled) => self.audit.cancelled(id, cancelled == Cancelled::Removed),
            Err(_) => self.audit.cancelled(id, false),
        }
        cancelled.map(drop)
    }

    /// Pauses the store at a time, and resumes it after so long. `slow` makes requests slow.
    async fn pause_store(self, begin: Nanos, length: Nanos, slow: impl Fn(bool)) {
        self.pass(begin / MILLISECOND).await;
        let over = self.timer.sleep(Duration::from_nanos(length));
        while self.timers.pause().await.is_err() {
            let _ = self.timer.sleep(AGAIN).await;
        }
        self.audit.paused(true);
        let _ = over.await;
        self.audit.paused(false);
        slow(true);
        while self.timers.resume().await.is_err() {
            let _ = self.timer.sleep(AGAIN).await;
        }
        slow(false);
    }

    /// Redrives all dead letters, once.
    async fn redrive_letters(&self) {
        let Ok(letters) = self.timers.dead_letters(None, 1000).await else { return };
        for letter in letters {
            if let Err(error) = self.timers.redrive(letter.number).await
                && !matches!(error, DurableError::Unreachable(_) | DurableError::Exists)
            {
                self.audit.violated(format!("a redrive was answered with {error}"));
            }
        }
    }
}

/// A handler that runs.
pub(crate) struct Handling {
    audit: Arc<Audit>,
    process: u64,
    attempt: (Arc<str>, SystemTime, u32),
}

impl Handling {
    pub(crate) fn begin(audit: &Arc<Audit>, process: u64, delivery: &Delivery) -> Self {
        let attempt = (Arc::from(&*delivery.id), delivery.planned, delivery.attempt);
        audit.begun(process, &attempt);
        Self { audit: Arc::clone(audit), process, attempt }
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        self.audit.ended(self.process, &self.attempt);
    }
}

/// Handles a delivery as its payload says, and takes so much longer.
pub(crate) async fn handle(
    _handling: Handling,
    timer: Timer,
    delivery: Delivery,
    longer: Duration,
) -> Verdict {
    let kind = delivery.payload.first().copied().unwrap_or(handlers::QUICK);
    let is_first = delivery.attempt == 1;
    let takes = match kind {
        handlers::SLOW => 2500,
        handlers::LONGER_THAN_THE_LEASE => 9000,
        handlers::LIKE_A_WEBHOOK => 100,
        _ => 10,
    };
    let _ = timer.sleep(Duration::from_millis(takes) + longer).await;
    match kind {
        handlers::FAILS => Verdict::Retry("fails".to_owned()),
        handlers::FAILS_ONCE if is_first => Verdict::Retry("fails once".to_owned()),
        handlers::PANICS_ONCE if is_first => std::panic::resume_unwind(Box::new("panics once")),
        handlers::ASKS_AGAIN if is_first => {
            Verdict::Again { after: Duration::from_millis(500), counted: true }
        }
        _ => Verdict::Done,
    }
}
