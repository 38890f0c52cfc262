//! [`RuntimeTimer`]: the timer of a runtime whose clock a test has paused.
//!
//! Such a runtime has a wheel of its own, which a task sweeps by the runtime's clock. The ticks of
//! the wheel start when the ticks of tokio's timer start, so that deadlines are rounded alike. The
//! task sleeps by tokio's means until the next expiry, and time advances to it when the runtime is
//! idle. While no timer is armed the task does not sleep, and time stands still.
//!
//! The clock of a runtime is the system's unless a test has paused it, because a frozen clock shows
//! the same time twice, and a clock that was resumed is behind the system's or ahead of it.

#![forbid(unsafe_code)]

use crate::future::{SleepWaker, Timer};
use crate::panics::{ignore_poison, quietly};
use crate::tokio::RuntimeClock;
use crate::{Builder, Clock, Expired, Sweeper, Wheel};
use ::tokio::runtime::{Handle, Id, RuntimeFlavor};
use ::tokio::task::{coop, yield_now};
use ::tokio::time::{Instant, Sleep, sleep_until};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The runtimes whose clocks are not the system's.
static RUNTIMES: Mutex<Vec<(Id, RuntimeTimer)>> = Mutex::new(Vec::new());

/// Moves the paused clock of the runtime forward.
///
/// Sleeps whose deadlines have passed are woken in one go when it returns. To let time pass with
/// each of them in turn, use [`sleep`](super::sleep()).
///
/// # Panics
///
/// Panics if the clock is not paused, outside of a runtime, and if the clock overflows.
///
/// # Examples
///
/// ```
/// use tourbillon::time::{self, Duration, Instant};
///
/// # let mut runtime = tokio::runtime::Builder::new_current_thread();
/// # let runtime = runtime.enable_time().start_paused(true).build()?;
/// # runtime.block_on(async {
/// let start = Instant::now();
/// let hour = tokio::spawn(time::sleep(Duration::from_secs(3600)));
/// tokio::task::yield_now().await;
/// time::advance(Duration::from_secs(3600)).await;
/// hour.await.unwrap();
/// assert_eq!(start.elapsed(), Duration::from_secs(3600));
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
pub async fn advance(duration: Duration) {
    ::tokio::time::advance(duration).await;
    // The task that sweeps was woken meanwhile, and runs before this returns.
    yield_now().await;
}

/// The timer of a runtime, and the task that sweeps it. When it is dropped, the task sweeps once
/// more, and then no longer sleeps until a deadline that was cancelled.
#[derive(Clone, Debug)]
pub(super) struct RuntimeTimer {
    timer: Timer,
    task: Arc<SweepingTask>,
}

impl RuntimeTimer {
    /// Returns the timer of the current runtime, unless its clock is the system's.
    pub(super) fn current() -> Option<Self> {
        let runtime = Handle::try_current().ok()?;
        // Others cannot be paused.
        if runtime.runtime_flavor() != RuntimeFlavor::CurrentThread {
            return None;
        }
        let id = runtime.id();
        let mut runtimes = ignore_poison(RUNTIMES.lock());
        // A timer ends with its runtime.
        runtimes.retain(|(_, known)| !known.timer.wheel().is_closed());
        if let Some((_, known)) = runtimes.iter().find(|(known, _)| *known == id) {
            return Some(known.clone());
        }
        if shows_the_systems_time(&runtime) {
            return None;
        }
        let spawned = Self::spawn(&runtime);
        runtimes.push((id, spawned.clone()));
        Some(spawned)
    }

    #[allow(clippy::expect_used, reason = "the defaults are in range")]
    fn spawn(runtime: &Handle) -> Self {
        let (clock, task) = (RuntimeClock::of(runtime), Arc::<SweepingTask>::default());
        let woken = Arc::clone(&task);
        let builder = Builder::new().clock(clock).shards(1).waker(move || woken.wake());
        let built = builder.start(start_of_a_tick().into_std()).build();
        let (wheel, sweeper) = built.expect("the defaults are in range");
        let timer = Timer::new(wheel.clone());
        let sweeping = Sweeping { wheel, sweeper, task: Arc::clone(&task), sleeping: None };
        drop(runtime.spawn(sweeping));
        Self { timer, task }
    }

    pub(super) fn timer(&self) -> Timer {
        self.timer.share()
    }
}

impl Drop for RuntimeTimer {
    fn drop(&mut self) {
        self.task.wake();
    }
}

/// The task that sweeps, once it was polled.
#[derive(Debug, Default)]
struct SweepingTask(Mutex<Option<Waker>>);

impl SweepingTask {
    fn set(&self, task: Option<Waker>) {
        *ignore_poison(self.0.lock()) = task;
    }

    /// Makes the task sweep once more.
    fn wake(&self) {
        let task = ignore_poison(self.0.lock()).clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// Returns `false` if the clock of the current runtime is paused or was paused before.
#[allow(clippy::disallowed_methods, reason = "a paused clock is told by the system's")]
fn shows_the_systems_time(runtime: &Handle) -> bool {
    let before = std::time::Instant::now();
    let shown = Instant::now().into_std();
    let after = std::time::Instant::now();
    (before..=after).contains(&shown) && RuntimeClock::of(runtime).is_running()
}

/// Returns the start of a tick of the current runtime's timer, in the past.
///
/// The timer's ticks are not public. A new sleep is ready at its first poll if its deadline is not
/// later than the tick that the timer has reached, so bisection finds the start of that tick.
fn start_of_a_tick() -> Instant {
    let now = Instant::now();
    let (mut back, mut pending) = (Duration::from_millis(1), now + Duration::from_millis(1));
    let mut elapsed = loop {
        match now.checked_sub(back) {
            Some(at) if has_elapsed(at) => break at,
            Some(at) => pending = at,
            None => return now,
        }
        back *= 2;
    };
    while pending - elapsed > Duration::from_nanos(1) {
        let middle = elapsed + (pending - elapsed) / 2;
        match has_elapsed(middle) {
            true => elapsed = middle,
            false => pending = middle,
        }
    }
    elapsed
}

/// Returns `true` if a sleep of the current runtime is ready at its first poll.
fn has_elapsed(deadline: Instant) -> bool {
    let probe = pin!(coop::unconstrained(sleep_until(deadline)));
    probe.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// The task that sweeps the wheel of a runtime.
struct Sweeping {
    wheel: Wheel<SleepWaker>,
    sweeper: Sweeper<SleepWaker>,
    task: Arc<SweepingTask>,
    sleeping: Option<Pin<Box<Sleep>>>,
}

impl Future for Sweeping {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.task.set(Some(context.waker().clone()));
        loop {
            let _fired =
                this.sweeper.sweep(|timer: Expired<SleepWaker>| quietly(|| timer.value.wake()));
            // If no timer is left, the wheel wants sweeps at once until it has discarded all
            // references, so the clock does not advance for a timer that was cancelled.
            let Some(next) = this.sweeper.next_deadline().map(Instant::from_std) else {
                this.sleeping = None;
                return Poll::Pending;
            };
            let sleeping = this.sleeping.get_or_insert_with(|| Box::pin(sleep_until(next)));
            if sleeping.deadline() != next {
                sleeping.as_mut().reset(next);
            }
            if sleeping.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Sweeping {
    fn drop(&mut self) {
        // A sleep that another thread polls continues on the timer of the process.
        self.task.set(None);
        self.wheel.close();
        drop(self.wheel.drain());
    }
}
