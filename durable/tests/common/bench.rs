//! A bench for durable timers on any store: [`Place`] is what differs between stores.

#![allow(clippy::disallowed_methods, reason = "a worker has a thread of its own")]

use futures_channel::oneshot;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tourbillon::future::Timer;
use tourbillon::{Builder, ManualClock};
use tourbillon_durable::{
    AnyStore, Backoff, Delivery, DurableError, DurableTimers, Embedded, Event, Options, Outcome,
};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MILLISECOND: Duration = Duration::from_millis(1);

/// Where a store is, and its time.
pub(crate) trait Place: Send + Sync + 'static {
    /// Opens the store; what was there before is there.
    fn open(&self) -> AnyStore;

    /// The clock of the store and of the timers beside it.
    fn clock(&self) -> &ManualClock;

    /// A timer that runs by the same time.
    fn timer(&self) -> Timer {
        let driver = Builder::new().clock(self.clock().clone()).driver();
        Timer::spawn(driver).expect("a thread starts")
    }

    /// The store's time of day.
    fn now(&self) -> SystemTime {
        self.clock().wall()
    }

    /// Lets time pass.
    fn advance(&self, step: Duration) {
        self.clock().advance(step);
    }

    /// Sets the store's wall clock back, or forward, while no time passes.
    fn set_clock(&self, millis: i64) {
        let (now, step) = (self.now(), Duration::from_millis(millis.unsigned_abs()));
        self.clock().set_wall(if millis < 0 { now - step } else { now + step });
    }
}

/// When virtual time begins: 2027-01-15 08:00:00 UTC.
pub(crate) fn start() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

/// A clock at the beginning of virtual time.
pub(crate) fn clock() -> ManualClock {
    let clock = ManualClock::new();
    clock.set_wall(start());
    clock
}

/// A file that goes with its test.
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
    fn open(&self) -> AnyStore {
        let store = Embedded::open_with_clock(&self.file.0, self.clock.clone());
        store.expect("the store opens").into()
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }
}

/// Timers in a place.
pub(crate) struct Bench<P: Place> {
    pub(crate) place: Arc<P>,
    timers: Option<DurableTimers>,
}

/// A worker on a thread of its own.
pub(crate) struct Running {
    pub(crate) events: Receiver<Event>,
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

    /// Ends the store and opens it again. Workers have ended before.
    pub(crate) fn reopen(&mut self) {
        self.timers = None;
        self.timers = Some(DurableTimers::new(self.place.open(), &self.place.timer()));
    }

    pub(crate) fn advance(&self, step: Duration) {
        self.place.advance(step);
    }

    pub(crate) fn now(&self) -> SystemTime {
        self.place.now()
    }

    /// Runs a worker; each handler checks that it is not early.
    pub(crate) fn work<H, F, E>(&self, concurrency: usize, handler: H) -> Running
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        let (send, events) = channel();
        let (ending, ends) = oneshot::channel::<()>();
        let place = Arc::clone(&self.place);
        let early = Arc::new(OnceLock::new());
        let seen = Arc::clone(&early);
        let worker = self.timers().worker().concurrency(concurrency);
        let worker =
            worker.observe(move |event| drop(send.send(event.clone()))).until(async move {
                let _ = ends.await;
            });
        let run = worker.run(move |delivery: Delivery| {
            if place.now() < delivery.planned {
                let _ = seen.set(());
            }
            handler(delivery)
        });
        let thread = std::thread::spawn(move || pollster::block_on(run));
        Running { events, end: early, ending: Some(ending), thread }
    }

    /// A worker that acknowledges everything.
    pub(crate) fn work_well(&self) -> Running {
        self.work(64, |_| async { Ok::<(), String>(()) })
    }
}

impl Running {
    /// The end of the next attempt. The limit is for a broken build: it would hang.
    pub(crate) fn next(&self) -> Event {
        self.events.recv_timeout(Duration::from_secs(60)).expect("an attempt ends")
    }

    /// The ids of the next so many attempts, which are all acknowledged.
    pub(crate) fn acknowledged(&self, count: usize) -> Vec<String> {
        let next = |_| {
            let event = self.next();
            assert_eq!(event.outcome, Outcome::Acknowledged, "{event:?}");
            event.id
        };
        (0..count).map(next).collect()
    }

    /// Tells the worker to end, and waits for nothing: it begins no more.
    pub(crate) fn end(mut self) -> Self {
        drop(self.ending.take());
        self
    }

    /// Ends the worker in peace: what had ended by then and was not taken yet.
    pub(crate) fn stop(mut self) -> Vec<Event> {
        drop(self.ending.take());
        let ended = self.thread.join().expect("the worker does not panic");
        assert_eq!(ended, Ok(()));
        assert!(self.end.get().is_none(), "something was delivered early");
        self.events.iter().collect()
    }
}

pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    pollster::block_on(future)
}

/// Waits of seconds, three attempts.
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
