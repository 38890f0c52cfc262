//! [`Worker`], which takes keys that have fired, leases their timers, and runs the handler.

#![forbid(unsafe_code)]

use crate::api::timers::DurableTimers;
use crate::delivery::attempt::{Attempts, Delivery, STALLED};
use crate::delivery::feed::{Condition, Feed};
#[cfg(feature = "log")]
use crate::delivery::log::LogWriter;
use crate::delivery::permits::Permits;
use crate::delivery::ready::Registration;
use crate::delivery::report::Reporter;
use crate::error::DurableError;
use crate::model::event::{Event, Wait};
use crate::model::verdict::Verdict;
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Fuse, FusedFuture};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tourbillon::future::Sleep;

/// The default maximum duration of an attempt. Longer than most work, and short enough that a
/// worker whose handlers hang continues the same day.
const TIME_LIMIT: Duration = Duration::from_secs(3600);

/// The number of checks, one per second, before a page of the store is overdue.
const MISSED: u64 = 2;

/// The maximum time that an ending worker waits for the store to accept the attempts that it gives
/// back.
const GIVE_BACK: Duration = Duration::from_secs(1);

/// The longest time limit, a century.
const MAX_TIME_LIMIT: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Delivers timers. Created by [`DurableTimers::worker`].
///
/// The future of [`run`](Self::run) does all the work where it is polled. Move long computations
/// and blocking calls to a separate thread or task and await it, because a handler that blocks for
/// seconds stalls all other handlers and costs the worker its leases. Dropping the future stops the
/// worker at once. Attempts in progress fail when their leases run out, and are retried after the
/// backoff or become dead letters. For a clean shutdown use [`until`](Self::until) or
/// [`until_within`](Self::until_within).
///
/// Several workers of one store share the work, and the store gives each timer to one of them. In a
/// file, the workers of one [`DurableTimers`] and its clones load each timer once. In Redis, each
/// worker owns some of the partitions. Other workers take these over within some seconds if the
/// worker dies, and at once if it [ends](Self::until).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::{Backoff, DurableTimers, Options};
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-worker-{}", std::process::id()));
/// let timers = DurableTimers::open(&file)?;
/// let (done, mut all_done) = futures_channel::mpsc::unbounded::<()>();
/// let worker = timers
///     .worker()
///     .concurrency(16)
///     .observe(|event| println!("{event:?}"))
///     .until(async move { drop(futures_util::StreamExt::next(&mut all_done).await) });
///
/// let tries_again = Backoff::new(Duration::from_millis(1), Duration::from_millis(1));
/// let options = Options::new().backoff(tries_again);
/// pollster::block_on(async {
///     timers.insert("order 7", "unpaid", Duration::from_millis(5), options).await?;
///     worker
///         .run(move |delivery| {
///             let attempt = delivery.attempt;
///             let done = done.clone();
///             async move {
///                 if attempt == 1 {
///                     return Err("the mail server is busy");
///                 }
///                 let _ = done.unbounded_send(());
///                 Ok(())
///             }
///         })
///         .await?;
///     assert!(timers.is_empty().await?);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a worker does nothing unless it is run"]
pub struct Worker {
    timers: DurableTimers,
    concurrency: usize,
    time_limit: Duration,
    until: Fuse<BoxFuture<'static, ()>>,
    /// The time from the request to end until the run ends, even if handlers are still running.
    within: Option<Duration>,
    pub(super) reporter: Reporter,
}

impl DurableTimers {
    /// Creates a worker, to be configured before it runs.
    pub fn worker(&self) -> Worker {
        Worker::new(self.clone())
    }

    /// Delivers timers to `handler` like [`Worker::run`], until the future is dropped.
    ///
    /// # Errors
    ///
    /// Fails like [`Worker::run`].
    pub async fn run<H, F>(&self, handler: H) -> Result<(), DurableError>
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output: Into<Verdict>> + Send + 'static,
    {
        self.worker().run(handler).await
    }
}

impl Worker {
    pub(crate) fn new(timers: DurableTimers) -> Self {
        let never: BoxFuture<'static, ()> = Box::pin(std::future::pending());
        Self {
            timers,
            concurrency: 64,
            time_limit: TIME_LIMIT,
            until: never.fuse(),
            within: None,
            reporter: Reporter::default(),
        }
    }

    /// Sets the maximum number of concurrent handlers. At least 1, by default 64.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency.max(1);
        self
    }

    /// Sets the maximum duration of an attempt, by default one hour. After that the handler's
    /// future is dropped and the attempt has failed, even though its lease could be renewed.
    /// Otherwise a handler that hangs would hold one of the worker's permits forever. A handler
    /// sees the limit as its [deadline](crate::DeliveryLease::deadline).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::{DurableTimers, Event, Options, Outcome};
    ///
    /// # let file = std::env::temp_dir().join(format!("tourbillon-limit-{}", std::process::id()));
    /// # let (done, mut end) = futures_channel::mpsc::unbounded::<()>();
    /// # let end = async move { drop(futures_util::StreamExt::next(&mut end).await) };
    /// let timers = DurableTimers::open(&file)?;
    /// let worker = timers.worker().time_limit(Duration::from_millis(10)).until(end);
    /// let worker = worker.observe(move |event| {
    ///     let Event::Attempt(attempt) = event else { return };
    ///     assert!(matches!(attempt.outcome, Outcome::Retry { .. }));
    /// #     drop(done.unbounded_send(()));
    /// });
    /// pollster::block_on(timers.insert("order 7", "unpaid", Duration::ZERO, Options::new()))?;
    /// pollster::block_on(worker.run(|_| std::future::pending::<Result<(), String>>()))?;
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit.min(MAX_TIME_LIMIT);
        self
    }

    /// Ends the run when `end` completes. The worker requests no further leases, and finishes the
    /// attempts that have begun. A timer whose lease is granted after that is
    /// [given back](crate::Outcome::GivenBack).
    ///
    /// The shutdown takes as long as the handlers, whose leases are renewed, up to their [time
    /// limit](Self::time_limit). To bound it, use [`until_within`](Self::until_within). If the
    /// store cannot be reached or written, the shutdown takes no longer than the last of the
    /// leases, because a handler's result does not count after its lease
    /// ([`Unanswered`](crate::Outcome::Unanswered)). The worker waits for pending lease requests,
    /// and to report its end to the store, for up to two seconds.
    pub fn until(mut self, end: impl Future<Output = ()> + Send + 'static) -> Self {
        let end: BoxFuture<'static, ()> = Box::pin(end);
        self.until = end.fuse();
        self
    }

    /// Ends the run like [`until`](Self::until), but stops handlers that are still running `limit`
    /// after `end` completes. Use it under a supervisor that kills the process some time after it
    /// was asked to end, as in a deploy.
    ///
    /// The futures of these handlers are dropped, and their attempts are [given
    /// back](crate::Outcome::GivenBack). The timers are due at once, for another worker, and the
    /// attempts do not count. The run waits for the store to accept that for up to a second more.
    /// An attempt that could not be given back ends with its lease, and counts as failed.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::{DurableTimers, Options};
    ///
    /// # let file = std::env::temp_dir().join(format!("tourbillon-within-{}", std::process::id()));
    /// let timers = DurableTimers::open(&file)?;
    /// let (begun, mut begins) = futures_channel::mpsc::unbounded::<()>();
    /// let end = async move { drop(futures_util::StreamExt::next(&mut begins).await) };
    /// let worker = timers.worker().until_within(end, Duration::from_millis(10));
    /// pollster::block_on(timers.insert("order 7", "unpaid", Duration::ZERO, Options::new()))?;
    /// pollster::block_on(worker.run(move |_| {
    ///     let _ = begun.unbounded_send(());
    ///     std::future::pending::<Result<(), String>>() // far longer than that
    /// }))?;
    /// let timer = pollster::block_on(timers.get("order 7"))?;
    /// assert!(timer.is_some_and(|timer| !timer.is_running() && timer.attempts == 0));
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn until_within(
        self,
        end: impl Future<Output = ()> + Send + 'static,
        limit: Duration,
    ) -> Self {
        Self { within: Some(limit), ..self.until(end) }
    }

    /// Calls `observe` with each [`Event`], on the thread that polls the run. The end of an attempt
    /// is reported once its outcome is durable. A panic in `observe` is caught and ignored.
    pub fn observe(mut self, observe: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.reporter.observe = Some(Box::new(observe));
        self
    }

    /// Records the events of this worker with the facade `metrics`. Call this after the recorder is
    /// installed. All metrics have the label `store`, with this value:
    ///
    /// - `tourbillon_durable_attempts_total`, by [`outcome`](crate::Outcome::name)
    /// - `tourbillon_durable_attempt_lateness_seconds` and
    ///   `tourbillon_durable_handler_duration_seconds`, histograms of attempts whose handler was
    ///   called
    /// - `tourbillon_durable_leases_lost_total`, by [`reason`](crate::LeaseLoss::name)
    /// - `tourbillon_durable_waits_total` and `tourbillon_durable_wait_duration_seconds`, by
    ///   [`reason`](crate::Wait::name)
    /// - `tourbillon_durable_attempts_not_logged_total`, with the feature `log`
    /// - `tourbillon_durable_notices_lost_total`, `tourbillon_durable_emptied_total`,
    ///   `tourbillon_durable_partitions_gained_total` and
    ///   `tourbillon_durable_partitions_lost_total`, which only a store in Redis increments
    ///
    /// All counters are registered at once, with the value zero. For gauges of the store see
    /// [`StatsGauges`](crate::StatsGauges).
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::DurableTimers;
    ///
    /// # let file = std::env::temp_dir().join(format!("tourbillon-meters-{}", std::process::id()));
    /// let timers = DurableTimers::open(&file)?;
    /// let worker = timers.worker().metrics("reminders"); // once the recorder is installed
    /// # drop((worker, timers));
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "metrics")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn metrics(mut self, store: &str) -> Self {
        self.reporter.metrics = Some(crate::delivery::export::WorkerMetrics::new(store));
        self
    }

    /// Delivers timers to `handler` until the worker [ends](Self::until), oldest first. The handler
    /// returns a [`Verdict`], or a `Result`, whose `Ok` acknowledges the delivery. An error, a
    /// panic, or the end of the lease leads to a retry.
    ///
    /// # Errors
    ///
    /// Fails if a file or Redis fails, if any store cannot be reached at the start or denies
    /// access, or if the store or the timer was shut down. In PostgreSQL a missing database,
    /// schema, table or function fails as well. Running attempts then fail when their leases run
    /// out. If a store temporarily cannot be written, a server cannot be reached, or PostgreSQL
    /// returns any other error, the worker waits instead, and reports it
    /// ([`Waiting`](Event::Waiting)). After an error, run another worker after a pause.
    pub async fn run<H, F>(self, handler: H) -> Result<(), DurableError>
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output: Into<Verdict>> + Send + 'static,
    {
        let Self { timers, concurrency, time_limit, until, within, reporter } = self;
        let feed = Feed::join(&timers.store, &timers.timer, &timers.feed).await?;
        #[cfg(feature = "log")]
        let log = reporter.log.as_ref().map(|queue| {
            let (store, timer) = (Arc::clone(&timers.store), timers.timer.clone());
            LogWriter::new(Arc::clone(queue), store, timer)
        });
        let handle = move |delivery: Delivery| -> BoxFuture<'static, Verdict> {
            Box::pin(handler(delivery).map(Into::into))
        };
        let ((end, ending), (cut, is_cut)) = (oneshot::channel(), oneshot::channel());
        let attempts = Attempts {
            store: Arc::clone(&timers.store),
            worker: feed.member,
            timer: timers.timer.clone(),
            window: Arc::clone(&feed.window),
            handle: Box::new(handle),
            reporter,
            overdue: AtomicUsize::new(0),
            ending: ending.shared(),
            cut: is_cut.shared(),
            time_limit,
            places: concurrency,
        };
        let mut run = Run {
            attempts: Arc::new(attempts),
            member: Some(Member { registration: Registration::new(&feed.ready), feed }),
            running: FuturesUnordered::new(),
            permits: Arc::new(Permits::new(concurrency)),
            until,
            end: Some(end),
            cut: Some(cut),
            within,
            limit: None,
            over: false,
            #[cfg(feature = "log")]
            log,
            leaving: None,
            checks: 0,
            wait: None,
        };
        std::future::poll_fn(|context| run.poll(context)).await
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("concurrency", &self.concurrency).finish_non_exhaustive()
    }
}

/// A worker's membership of a feed.
struct Member {
    /// Dropped first, so that the other workers are woken while there is a feed.
    registration: Registration,
    feed: Arc<Feed>,
}

/// A running worker.
struct Run {
    attempts: Arc<Attempts>,
    /// `None` once the worker is ending.
    member: Option<Member>,
    running: FuturesUnordered<BoxFuture<'static, Result<(), DurableError>>>,
    permits: Arc<Permits>,
    until: Fuse<BoxFuture<'static, ()>>,
    /// Dropping it notifies the attempts that the worker is ending.
    end: Option<oneshot::Sender<()>>,
    /// Dropping it makes the attempts stop their handlers and give the timers back.
    cut: Option<oneshot::Sender<()>>,
    within: Option<Duration>,
    /// The sleep until handlers are stopped, and then the sleep until the run waits for nothing
    /// more.
    limit: Option<Sleep>,
    /// Set once only the log is waited for.
    over: bool,
    #[cfg(feature = "log")]
    log: Option<LogWriter>,
    /// Reports to the store that the worker is ending. Set once it is.
    leaving: Option<Fuse<BoxFuture<'static, ()>>>,
    /// The number of checks of the store when the wait was last determined.
    checks: u64,
    /// The reason why the worker waits, and since when.
    wait: Option<(Wait, Instant)>,
}

impl Run {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), DurableError>> {
        loop {
            if self.over {
                #[cfg(feature = "log")]
                if let Some(log) = &mut self.log {
                    let report = |event| self.attempts.reporter.report(&event);
                    std::task::ready!(log.poll_last(context, report));
                    self.report_events();
                }
                return Poll::Ready(Ok(()));
            }
            if self.until.poll_unpin(context).is_ready() {
                self.end = None;
                let timer = &self.attempts.timer;
                self.limit = self.within.map(|within| timer.sleep(within));
                if let Some(member) = self.member.take() {
                    let left = timer.timeout(STALLED, member.feed.leave());
                    let left: BoxFuture<'static, ()> = Box::pin(left.map(drop));
                    self.leaving = Some(left.fuse());
                }
            }
            if let Some(limit) = &mut self.limit
                && let Poll::Ready(Ok(())) = Pin::new(limit).poll(context)
            {
                if self.cut.take().is_none() {
                    self.running = FuturesUnordered::new();
                    self.over = true;
                    continue;
                }
                self.limit = Some(self.attempts.timer.sleep(GIVE_BACK));
                continue;
            }
            let mut moved = self.poll_running(context)?;
            if let Some(leaving) = &mut self.leaving {
                // If the report to the store fails, the store notices in the end.
                let left = leaving.is_terminated() || leaving.poll_unpin(context).is_ready();
                if left && self.running.is_empty() {
                    self.over = true;
                    continue;
                }
            } else {
                moved |= self.poll_feed(context)?;
                moved |= self.begin();
            }
            if !moved {
                #[cfg(feature = "log")]
                if let Some(log) = &mut self.log {
                    let report = |event| self.attempts.reporter.report(&event);
                    let _ = log.poll(context, report);
                }
                return Poll::Pending;
            }
        }
    }

    fn poll_running(&mut self, context: &mut Context<'_>) -> Result<bool, DurableError> {
        match self.running.poll_next_unpin(context) {
            Poll::Ready(Some(ended)) => ended.map(|()| true),
            Poll::Ready(None) | Poll::Pending => Ok(false),
        }
    }

    fn poll_feed(&mut self, context: &Context<'_>) -> Result<bool, DurableError> {
        let Some(Member { registration, feed }) = &self.member else { return Ok(false) };
        registration.register(context.waker());
        let polled = feed.poll();
        self.report_events();
        if matches!(polled, Err(DurableError::Emptied)) {
            self.attempts.reporter.report(&Event::Emptied);
        }
        let polled = polled?;
        if let Some((due, id)) = polled.misplaced {
            self.attempts.report_unreadable(&id, due, &DurableError::out_of_order(&id));
        }
        let condition = feed.condition();
        if std::mem::replace(&mut self.checks, condition.checks) != condition.checks {
            let reason = self.wait_reason(condition, feed.ready.len());
            self.set_wait(reason);
        }
        Ok(polled.moved)
    }

    /// Reports what the store has noticed.
    fn report_events(&self) {
        let Attempts { store, worker, reporter, .. } = &*self.attempts;
        store.take_events(*worker).iter().for_each(|event| reporter.report(event));
    }

    /// Returns why the worker waits, while `ready` fired keys wait for a worker.
    fn wait_reason(&self, condition: Condition, ready: usize) -> Option<Wait> {
        // The task that polls the attempts also reads the number, so no other memory depends on it.
        let overdue = self.attempts.overdue.load(Relaxed);
        if overdue > 0 || condition.pending >= MISSED {
            return Some(match self.attempts.store.trouble() {
                Some(DurableError::ReadOnly(_)) => Wait::StoreReadOnly,
                Some(DurableError::Denied(_)) => Wait::StoreDenied,
                _ => Wait::StoreAway,
            });
        }
        let busy = ready > 0 && self.permits.try_acquire().is_none();
        let paused = condition.paused.then_some(Wait::StorePaused);
        let Attempts { store, worker, .. } = &*self.attempts;
        let spare = store.is_spare(*worker).then_some(Wait::NoPartition);
        paused.or(busy.then_some(Wait::Busy)).or(spare)
    }

    /// Reports that the worker waits, or no longer waits.
    fn set_wait(&mut self, reason: Option<Wait>) {
        if self.wait.map(|(reason, _)| reason) == reason {
            return;
        }
        let Attempts { store, timer, reporter, .. } = &*self.attempts;
        let now = timer.now();
        let before = std::mem::replace(&mut self.wait, reason.map(|reason| (reason, now)));
        if let Some((reason, since)) = before {
            let waited = now.saturating_duration_since(since);
            reporter.report(&Event::Resumed { reason, waited });
        }
        if let Some(reason) = reason {
            let fails = matches!(reason, Wait::StoreAway | Wait::StoreReadOnly | Wait::StoreDenied);
            let error = store.trouble().filter(|_| fails);
            reporter.report(&Event::Waiting { reason, error });
        }
    }

    /// Starts deliveries while there are keys and permits. Returns `true` if it started any.
    fn begin(&mut self) -> bool {
        let Some(Member { registration, .. }) = &self.member else { return false };
        let mut begun = false;
        while let Some(permit) = self.permits.try_acquire() {
            let Some(claim) = registration.take() else { return begun };
            begun = true;
            if self.attempts.store.is_withheld(self.attempts.worker, &claim.key.1) {
                // The part of the store that has this timer does not respond. The timer is loaded
                // again when it does.
                claim.settle();
            } else {
                self.running.push(Box::pin(Arc::clone(&self.attempts).deliver(claim, permit)));
            }
        }
        registration.pass();
        begun
    }
}
