//! A timer in virtual time that is swept by hand, and tasks that poll and count their wakes.

use super::Shape;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tourbillon::future::{SleepWaker, Timer};
use tourbillon::{Builder, Clock, Expired, ManualClock, Sweeper, Wheel};

/// A timer in virtual time, swept by hand.
pub(crate) struct Sandbox {
    pub(crate) clock: ManualClock,
    pub(crate) sweeper: Sweeper<SleepWaker>,
    pub(crate) timer: Timer,
    pub(crate) tick: Duration,
}

impl Sandbox {
    /// Creates a timer with ticks of a millisecond.
    pub(crate) fn new() -> Self {
        Self::of(Builder::new())
    }

    pub(crate) fn of(builder: Builder) -> Self {
        let clock = ManualClock::new();
        let (wheel, sweeper) =
            builder.clock(clock.clone()).build().expect("the builder is in range");
        Self::on(wheel, sweeper, clock)
    }

    pub(crate) fn on(
        wheel: Wheel<SleepWaker>,
        sweeper: Sweeper<SleepWaker>,
        clock: ManualClock,
    ) -> Self {
        let tick = wheel.resolution();
        Self { clock, sweeper, timer: Timer::new(wheel), tick }
    }

    pub(crate) fn shaped(shape: Shape) -> Self {
        let builder = Builder::new().resolution(shape.tick).shards(shape.shards);
        Self::of(builder.__shape(shape.geometry, shape.first_tick))
    }

    /// Moves the clock on and wakes the expired wakers. Returns their number.
    pub(crate) fn advance(&mut self, step: Duration) -> usize {
        self.clock.advance(step);
        self.sweeper.sweep(|timer| timer.value.wake()).expired
    }

    /// Moves the clock on and returns the expired wakers without waking them, to hold the instant
    /// of expiry.
    pub(crate) fn take(&mut self, step: Duration) -> Vec<Expired<SleepWaker>> {
        self.clock.advance(step);
        let mut taken = Vec::new();
        let _ = self.sweeper.sweep(|timer| taken.push(timer));
        taken
    }

    /// Moves the clock to the next sweep, and sweeps.
    pub(crate) fn leap(&mut self) {
        let next = self.sweeper.next_deadline().expect("something is armed");
        self.advance(next.saturating_duration_since(self.clock.now()));
    }

    /// Returns the number of sleeps in the wheel.
    pub(crate) fn armed(&self) -> usize {
        self.timer.wheel().len()
    }

    /// Returns the number of inserts into the wheel.
    pub(crate) fn inserted(&self) -> u64 {
        self.timer.wheel().metrics().inserted
    }

    pub(crate) fn since_start(&self, at: Instant) -> Duration {
        at - self.clock.start()
    }
}

/// Runs a test on timers of all shapes.
pub(crate) fn with_sandboxes(mut test: impl FnMut(Sandbox)) {
    for shape in super::shapes() {
        test(Sandbox::shaped(shape));
    }
}

/// A task that polls, and counts its wakes.
pub(crate) struct Task {
    wakes: Arc<Wakes>,
    waker: Waker,
}

#[derive(Default)]
struct Wakes(AtomicU32);

impl std::task::Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

impl Task {
    pub(crate) fn new() -> Self {
        let wakes = Arc::new(Wakes::default());
        Self { waker: Waker::from(Arc::clone(&wakes)), wakes }
    }

    pub(crate) fn poll<F: Future + Unpin>(&self, future: &mut F) -> Poll<F::Output> {
        Pin::new(future).poll(&mut self.context())
    }

    /// Polls a future that yields before it is refused. Checks that it was woken for that, and
    /// polls again.
    pub(crate) fn refused<F: Future + Unpin>(&self, future: &mut F) -> Poll<F::Output> {
        assert!(self.poll(future).is_pending());
        assert_eq!(self.wakes(), 1, "nobody else would poll again");
        self.poll(future)
    }

    pub(crate) fn context(&self) -> Context<'_> {
        Context::from_waker(&self.waker)
    }

    /// Returns the number of wakes since the last call.
    pub(crate) fn wakes(&self) -> u32 {
        self.wakes.0.swap(0, Relaxed)
    }

    /// Returns the number of its wakers that are held elsewhere.
    pub(crate) fn held(&self) -> usize {
        Arc::strong_count(&self.wakes) - 2
    }
}

/// Creates a waker that calls `wake` each time.
pub(crate) fn waker(wake: impl Fn() + Send + Sync + 'static) -> Waker {
    struct Told<F>(F);
    impl<F: Fn() + Send + Sync + 'static> std::task::Wake for Told<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }
    Waker::from(Arc::new(Told(wake)))
}
