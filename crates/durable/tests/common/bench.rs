//! A bench for durable timers on any store. [`Place`] has the differences between stores.

#![allow(clippy::disallowed_methods, reason = "a worker has a thread of its own")]

use futures_channel::oneshot;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tourbillon::future::Timer;
use tourbillon::{Builder, ManualClock};
use tourbillon_durable::{
    AnyStore, Attempt, Backoff, Delivery, DurableError, DurableTimers, Embedded, Event, Options,
    Outcome, StoreOptions, Verdict, Worker,
};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MILLISECOND: Duration = Duration::from_millis(1);

/// A lease that is longer than the steps of a test. A worker may request a lease again, because a
/// notice of the timer was late. If the time is advanced meanwhile, the next occurrence is leased,
/// and its lease counts from the request.
#[allow(dead_code, reason = "each test binary uses a part")]
pub(crate) const LEASE: Duration = Duration::from_secs(43_200);

/// The number of dead letters that a store keeps, and how long it keeps them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds(pub(crate) u64, pub(crate) Duration);

impl Bounds {
    pub(crate) const NONE: Self = Self(u64::MAX, Duration::MAX);

    /// Returns the options of a store with these bounds, in virtual time.
    pub(crate) fn options(self, clock: &ManualClock) -> StoreOptions {
        let options = StoreOptions::new().max_dead_letters(self.0).max_dead_letter_age(self.1);
        options.clock(clock.clone())
    }
}

/// The location of a store, and its time.
pub(crate) trait Place: Send + Sync + 'static {
    /// Opens the store with its earlier contents and with bounds of its dead letters.
    fn open_with(&self, bounds: Bounds) -> AnyStore;

    /// Opens the store with its earlier contents.
    fn open(&self) -> AnyStore {
        self.open_with(Bounds::NONE)
    }

    /// The clock of the store and of the timers beside it.
    fn clock(&self) -> &ManualClock;

    /// Creates a timer that runs by the same time.
    fn timer(&self) -> Timer {
        let driver = Builder::new().clock(self.clock().clone()).driver();
        Timer::spawn(driver).expect("a thread starts")
    }

    /// Returns the wall time of the store.
    fn now(&self) -> SystemTime {
        self.clock().wall()
    }

    /// Advances the clock.
    fn advance(&self, step: Duration) {
        self.clock().advance(step);
    }

    /// Sets the store's wall clock back or forward, while no time passes.
    fn set_clock(&self, millis: i64) {
        let (now, step) = (self.now(), Duration::from_millis(millis.unsigned_abs()));
        self.clock().set_wall(if millis < 0 { now - step } else { now + step });
    }
}

/// Returns the start of virtual time, 2027-01-15 08:00:00 UTC.
pub(crate) fn start() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

/// Creates a clock at the start of virtual time.
pub(crate) fn clock() -> ManualClock {
    let clock = ManualClock::new();
    clock.set_wall(start());
    clock
}

/// A file that is removed with its test, and with its log of attempts.
pub(crate) struct TempFile(pub(crate) PathBuf);

impl TempFile {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("tourbillon-{}-{}", std::process::id(), COUNT.fetch_add(1, SeqCst));
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_file(self.0.with_extension("history"));
    }
}

/// An embedded store in virtual time.
pub(crate) struct OneFile {
    pub(crate) file: TempFile,
    pub(crate) clock: ManualClock,
}

impl OneFile {
    pub(crate) fn new() -> Self {
        Self { file: TempFile::new(), clock: clock() }
    }
}

impl Place for OneFile {
    fn open_with(&self, bounds: Bounds) -> AnyStore {
        let store = Embedded::open_with(&self.file.0, bounds.options(&self.clock));
        store.expect("the store opens").into()
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }
}

/// The timers of a place.
pub(crate) struct Bench<P: Place> {
    pub(crate) place: Arc<P>,
    timers: Option<DurableTimers>,
}

/// A worker on its own thread.
pub(crate) struct Running {
    pub(crate) events: Receiver<Attempt>,
    end: Arc<OnceLock<()>>,
    ending: Option<oneshot::Sender<()>>,
    thread: JoinHandle<Result<(), DurableError>>,
}

impl<P: Place> Bench<P> {
    pub(crate) fn new(place: P) -> Self {
        let timers = Some(DurableTimers::new(place.open(), &place.timer()));
        Self { place: Arc::new(place), timers }
    }

    pub(crate) fn timers(&self) -> &DurableTimers {
        self.timers.as_ref().expect("the timers are open")
    }

    /// Closes and reopens the store, after its workers have ended.
    pub(crate) fn reopen(&mut self) {
        self.reopen_with(Bounds::NONE);
    }

    /// Reopens the store with bounds of its dead letters.
    pub(crate) fn reopen_with(&mut self, bounds: Bounds) {
        self.timers = None;
        self.timers = Some(DurableTimers::new(self.place.open_with(bounds), &self.place.timer()));
    }

    pub(crate) fn advance(&self, step: Duration) {
        self.place.advance(step);
    }

    pub(crate) fn now(&self) -> SystemTime {
        self.place.now()
    }

    /// Runs a worker whose handlers check that they are not early.
    pub(crate) fn work<H, F, E>(&self, concurrency: usize, handler: H) -> Running
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        self.work_by(concurrency, handler)
    }

    /// Like [`work`](Self::work), with handlers that return verdicts.
    pub(crate) fn work_by<H, F>(&self, concurrency: usize, handler: H) -> Running
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output: Into<Verdict>> + Send + 'static,
    {
        self.run(self.timers().worker().concurrency(concurrency), handler)
    }

    /// Like [`work_by`](Self::work_by), with a worker that has other settings.
    pub(crate) fn run<H, F>(&self, worker: Worker, handler: H) -> Running
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output: Into<Verdict>> + Send + 'static,
    {
        let (send, events) = channel();
        let (ending, ends) = oneshot::channel::<()>();
        let place = Arc::clone(&self.place);
        let early = Arc::new(OnceLock::new());
        let seen = Arc::clone(&early);
        let worker = worker.observe(attempts(send)).until(async move {
            let _ = ends.await;
        });
        let run = worker.run(move |delivery: Delivery| {
            if place.now() < delivery.planned {
                let _ = seen.set(());
            }
            handler(delivery)
        });
        Running { end: early, ending: Some(ending), ..Running::of(run, events) }
    }

    /// Runs a worker that acknowledges everything.
    pub(crate) fn work_well(&self) -> Running {
        self.work(64, |_| async { Ok::<(), String>(()) })
    }
}

impl Running {
    /// Runs a worker that is asked to end by other means.
    pub(crate) fn of(
        run: impl Future<Output = Result<(), DurableError>> + Send + 'static,
        events: Receiver<Attempt>,
    ) -> Self {
        let thread = std::thread::spawn(move || pollster::block_on(run));
        Self { events, end: Arc::default(), ending: None, thread }
    }

    /// Returns the outcome of the next attempt. The limit keeps a broken build from hanging.
    pub(crate) fn next(&self) -> Attempt {
        self.events.recv_timeout(Duration::from_secs(60)).expect("an attempt ends")
    }

    /// Returns the ids of the next attempts, which must all be acknowledged.
    pub(crate) fn acknowledged(&self, count: usize) -> Vec<String> {
        let next = |_| {
            let event = self.next();
            assert_eq!(event.outcome, Outcome::Acknowledged, "{event:?}");
            event.id
        };
        (0..count).map(next).collect()
    }

    /// Asks the worker to end, without waiting for it.
    pub(crate) fn end(mut self) -> Self {
        drop(self.ending.take());
        self
    }

    /// Ends the worker cleanly. Returns the outcomes that were not taken yet.
    pub(crate) fn stop(mut self) -> Vec<Attempt> {
        drop(self.ending.take());
        let ended = self.thread.join().expect("the worker does not panic");
        assert_eq!(ended, Ok(()));
        assert!(self.end.get().is_none(), "something was delivered early");
        self.events.iter().collect()
    }
}

/// Returns an observer that sends the attempts.
pub(crate) fn attempts(send: Sender<Attempt>) -> impl Fn(&Event) + Send + Sync + 'static {
    move |event| {
        if let Event::Attempt(attempt) = event {
            let _ = send.send(attempt.clone());
        }
    }
}

pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    pollster::block_on(future)
}

/// Returns options with waits of seconds and three attempts.
pub(crate) fn quick() -> Options {
    Options::new().backoff(Backoff::new(SECOND, 4 * SECOND)).attempts(3)
}

/// Runs each test on a new place of each store.
#[allow(unused_macros, reason = "each test binary uses a part")]
macro_rules! suite {
    ($($test:ident),* $(,)?) => {
        mod embedded {
            $(
                #[test]
                fn $test() {
                    use crate::common::bench::{Bench, OneFile};
                    super::$test(Bench::new(OneFile::new()));
                }
            )*
        }

        #[cfg(feature = "postgres")]
        mod postgres {
            $(
                #[test]
                fn $test() {
                    if let Some(bench) = crate::common::postgres::OneSchema::bench() {
                        super::$test(bench);
                    }
                }
            )*
        }

        #[cfg(feature = "redis")]
        mod redis {
            $(
                #[test]
                fn $test() {
                    if let Some(bench) = crate::common::redis::OneNode::bench() {
                        super::$test(bench);
                    }
                }
            )*
        }
    };
}

#[allow(unused_imports, reason = "each test binary uses a part")]
pub(crate) use suite;
