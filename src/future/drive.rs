//! [`drive`] and [`undriven`]: a timer, or another wheel, that is swept by a future of the runtime
//! that uses it, without a thread.

#![forbid(unsafe_code)]

use super::budget::yield_once;
use super::drive_task::DriveTask;
use super::sleep_waker::SleepWaker;
use super::timer::Timer;
use crate::discard::discard_armed;
use crate::panics::quietly;
use crate::{BuildError, Builder, Expired, Sweeper, Wheel};
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// Creates a timer that is swept by a future instead of a thread.
///
/// Use it with a runtime of one thread, or of one thread for each core, that wants a wheel for each
/// thread (tokio's `current_thread`, monoio, glommio, compio). Spawn the [`Drive`] there. It calls
/// `sleep` to wait by the runtime's own means, for one sleep at a time, however many timers are
/// armed. Other threads may use the timer as well.
///
/// The builder configures the wheel and its clock. The wheel has one shard unless the builder sets
/// another number, and the builder's waker is not used. If a test pauses tokio's time, the clock
/// must be tokio's as well. `tourbillon::tokio::spawn`, of the feature `tokio`, does that.
///
/// # Errors
///
/// Fails like [`Builder::build`].
///
/// # Examples
///
/// With tokio: `drive(Builder::new(), tokio::time::sleep)`, and then `tokio::spawn(driving)`. In
/// this example another timer stands in for the runtime's, and a thread for its executor:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::future::{Timer, drive};
///
/// let runtime = Timer::spawn(Builder::new().driver())?;
/// let (timer, driving) = drive(Builder::new(), move |delay| runtime.sleep(delay))?;
/// let executor = std::thread::spawn(|| pollster::block_on(driving));
///
/// pollster::block_on(timer.sleep(Duration::from_millis(5)))?;
/// drop(timer); // the last one: the future ends
/// executor.join().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn drive<F, S>(builder: Builder, sleep: F) -> Result<(Timer, Drive<F, S>), BuildError>
where
    F: FnMut(Duration) -> S,
    S: Future,
{
    let (wheel, undriven) = undriven(builder)?;
    let timer = Timer::driven(wheel, Arc::clone(&undriven.task));
    Ok((timer, undriven.drive_by(sleep, |timer: Expired<SleepWaker>| timer.value.wake())))
}

/// Creates a wheel of any values that is swept by a future instead of a thread.
///
/// This is for a scheduler, a cache or keyed timers, if a runtime has one thread or one for each
/// core. It works like [`drive`], whose wheel has wakers as values. The future ends when the wheel
/// is closed and each armed timer has fired or was [drained](Wheel::drain). If timers were
/// cancelled instead, it ends when they would have fired or when the wheel is closed once more. If
/// the future is dropped before that, it closes the wheel and drops the values that have not fired.
///
/// The handler keeps its captured values until then. To end a cache or scheduler that it fires,
/// call its `shutdown`. Dropping the last handle elsewhere is not enough. The handler of
/// [`Scheduler::with_handler`](crate::scheduler::Scheduler::with_handler) does not hold the
/// scheduler, and ends with it.
///
/// # Errors
///
/// Fails like [`Builder::build`].
///
/// # Examples
///
/// A scheduler on tokio's clock, which tests may pause:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::future::undriven;
/// use tourbillon::scheduler::Scheduler;
/// # #[cfg(feature = "tokio")] {
/// use tourbillon::tokio::RuntimeClock;
///
/// let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
/// runtime.block_on(async {
///     let (wheel, undriven) = undriven(Builder::new().clock(RuntimeClock::current()))?;
///     let (scheduler, handler) = Scheduler::with_handler(wheel);
///     tokio::spawn(undriven.drive_by(tokio::time::sleep, handler));
///
///     let answer = scheduler.after(Duration::from_millis(5), || 42)?;
///     assert_eq!(answer.await?, 42);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn undriven<T: Send>(builder: Builder) -> Result<(Wheel<T>, Undriven<T>), BuildError> {
    let task = Arc::new(DriveTask::default());
    let woken = Arc::clone(&task);
    let (wheel, sweeper) = builder.or_shards(1).waker(move || woken.wake()).build()?;
    let moved = Arc::downgrade(&task);
    wheel.clock().subscribe(Box::new(move || {
        let task = moved.upgrade();
        task.inspect(|task| task.wake()).is_some()
    }));
    let swept = DrivenSweeper { wheel: wheel.clone(), sweeper: Some(sweeper) };
    Ok((wheel, Undriven { swept, task }))
}

/// The sweeper of a wheel that has no future yet; created by [`undriven`].
#[must_use = "nothing sweeps the wheel unless a future does"]
pub struct Undriven<T: Send> {
    swept: DrivenSweeper<T>,
    task: Arc<DriveTask>,
}

impl<T: Send> Undriven<T> {
    /// Returns the future that sweeps the wheel.
    ///
    /// It calls `sleep` to wait by the runtime's own means, and passes each expired timer to
    /// `handler`. A panic of the handler harms no other timer and is reported by the panic hook
    /// only.
    pub fn drive_by<F, S, H>(self, sleep: F, handler: H) -> Drive<F, S, H, T>
    where
        F: FnMut(Duration) -> S,
        S: Future,
        H: FnMut(Expired<T>),
    {
        let Self { swept, task } = self;
        Drive { swept, task, sleep, handler, until: None, sleeping: None }
    }
}

pin_project! {
    /// A future that sweeps a timer or another wheel.
    ///
    /// It is created by [`drive`] and [`Undriven::drive_by`]. The future of a timer is ready when
    /// the timer is [shut down](Timer::shutdown) or the last of its clones and sleeps is dropped.
    /// If the future is dropped before that, each waiting sleep completes with
    /// [`Refusal::Closed`](crate::Refusal::Closed). A poll fires at most some thousands of timers
    /// and then yields to other tasks.
    #[must_use = "nothing sweeps the timer unless it is polled"]
    pub struct Drive<F, S, H = fn(Expired<SleepWaker>), T = SleepWaker>
    where
        T: Send,
    {
        swept: DrivenSweeper<T>,
        task: Arc<DriveTask>,
        sleep: F,
        handler: H,
        // When `sleeping` ends.
        until: Option<Instant>,
        #[pin]
        sleeping: Option<S>,
    }
}

/// The sweeper of a wheel. After it has ended, no timer waits any more.
struct DrivenSweeper<T: Send> {
    wheel: Wheel<T>,
    sweeper: Option<Sweeper<T>>,
}

impl<T: Send> DrivenSweeper<T> {
    /// Drops the sweeper and discards the timers that have not fired. Idempotent.
    fn end(&mut self) {
        // This closes the wheel, which keeps the timers that the sweeper had in hand for the drain.
        self.sweeper = None;
        // A waker that is dropped wakes its task.
        discard_armed(&self.wheel);
    }
}

impl<T: Send> Drop for DrivenSweeper<T> {
    fn drop(&mut self) {
        self.end();
    }
}

/// The maximum number of timers that one sweep fires.
const SHARE: usize = 256;

/// The maximum number of sweeps in one poll, if its sleeps end at once.
const SWEEPS: usize = 8;

impl<F, S, H, T> Future for Drive<F, S, H, T>
where
    F: FnMut(Duration) -> S,
    S: Future,
    H: FnMut(Expired<T>),
    T: Send,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        // Before the sweep, so that a thread that arms an earlier timer after it finds the task
        // here.
        this.task.register(context.waker());
        let DrivenSweeper { wheel, sweeper: Some(sweeper) } = this.swept else {
            return Poll::Ready(());
        };
        for _ in 0..SWEEPS {
            let sweep = sweeper.sweep_some(SHARE, |timer| quietly(|| (this.handler)(timer)));
            if !sweep.finished {
                return yield_once(context.waker());
            }
            if wheel.is_closed() && (wheel.is_empty() || this.task.has_ended()) {
                this.sleeping.set(None);
                this.swept.end();
                return Poll::Ready(());
            }
            // The wheel's range of deadlines moves with the sweeps.
            let latest = wheel.clock().now().checked_add(sweeper.longest_rest());
            let next = sweep.next_deadline.into_iter().chain(latest).min();
            match next.and_then(|next| wheel.clock().timeout(next)) {
                // The clock is moved by hand, and wakes the task then.
                None => {
                    *this.until = None;
                    this.sleeping.set(None);
                    return Poll::Pending;
                }
                Some(Duration::ZERO) => return yield_once(context.waker()),
                // A sleep that ends sooner than necessary is kept, and the sweep after it checks
                // again.
                Some(rest) if this.until.is_none() || *this.until > next => {
                    let sleeping = (this.sleep)(rest);
                    *this.until = next;
                    this.sleeping.set(Some(sleeping));
                }
                Some(_) => {}
            }
            if let Some(sleeping) = this.sleeping.as_mut().as_pin_mut() {
                ready!(sleeping.poll(context));
            }
            *this.until = None;
        }
        yield_once(context.waker())
    }
}

impl<F, S, H, T: Send> fmt::Debug for Drive<F, S, H, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drive").field("until", &self.until).finish_non_exhaustive()
    }
}

impl<T: Send> fmt::Debug for Undriven<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Undriven").field("wheel", &self.swept.wheel).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::*;
    use crate::ManualClock;
    use std::pin::pin;
    use std::task::Waker;

    /// Timers that a shutdown has left may be counted for a while by a concurrent cancel.
    #[test]
    fn it_ends_by_a_shutdown_whatever_the_wheel_counts() {
        let builder = Builder::new().clock(ManualClock::new());
        let (timer, mut driving) = drive(builder, |_| std::future::pending::<()>()).unwrap();
        let (mut context, mut sleep) =
            (Context::from_waker(Waker::noop()), pin!(timer.sleep(Duration::from_secs(1))));
        assert!(sleep.as_mut().poll(&mut context).is_pending());
        timer.wheel().close();
        assert!(pin!(&mut driving).poll(&mut context).is_pending());
        driving.task.end();
        assert!(pin!(&mut driving).poll(&mut context).is_ready());
        let closed = Err(crate::Refusal::Closed);
        assert_eq!(sleep.poll(&mut context), Poll::Ready(closed), "and nobody waits for it");
    }
}
