//! [`Sleep`]: one timer of the wheel, as a future. The protocol is told in [`super`].

#![forbid(unsafe_code)]

use super::budget::yield_once;
use super::sleep_waker::{SleepWaker, WakerIdentity};
use super::timer::Timer;
use crate::{InsertError, Refusal, TimerId, Wheel, WheelInstant};
use futures_core::FusedFuture;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// A future that is ready when its deadline has come; made by [`Timer::sleep`].
///
/// It is armed in the wheel when it is first polled before its time, at the cost of an insert and
/// of no other allocation; dropping it cancels the timer, in O(1), without a lock. It moves freely
/// (`Unpin`). Polled after its end it gives the same result again.
///
/// # Errors
///
/// It ends with [`Refusal::Closed`] if the timer was shut down before its time had come, or its
/// wheel closed before it was armed, and with [`Refusal::AtCapacity`] if the wheel holds all it may
/// when it is to be armed. (That may happen again when another task than before polls it, if
/// somebody takes its place in that instant.) [`reset`](Self::reset) lets it try again. A `select!`
/// that takes any result of an idle time-out for its end closes connections when the timer is full:
/// look at the result.
///
/// The first poll that is refused wakes its task and returns `Pending`, and the next one tries
/// again before it returns the error: a loop over sleeps that are all refused lets other tasks have
/// their turn.
///
/// A sleep whose deadline has passed when it is first polled is ready at once, however often that
/// happens: a task that loops over sleeps without a delay holds its thread, unless it yields to its
/// runtime or awaits something else. (An [`Interval`](super::Interval) does that by itself.)
///
/// # Examples
///
/// A connection's idle time-out, pushed back with each packet:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::future::Timer;
///
/// let timer = Timer::spawn(Builder::new().driver())?;
/// let mut idle = timer.sleep(Duration::from_secs(30));
/// for _packet in 0..3 {
///     idle.reset_after(Duration::from_millis(5));
/// }
/// pollster::block_on(idle)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a sleep does nothing unless it is polled"]
pub struct Sleep {
    timer: Timer,
    deadline: WheelInstant,
    state: SleepState,
}

#[derive(Clone, Copy)]
enum SleepState {
    /// Not in the wheel. `yielded`: was refused, and has let the task go to be polled once more.
    Idle { yielded: bool },
    /// Was put into the wheel.
    Armed(ArmedSleep),
    /// Has resolved: its time has come.
    Elapsed,
    /// Has resolved: it cannot be armed.
    Refused(Refusal),
}

impl SleepState {
    /// Of a sleep that is made or made again: never polled.
    const NEW: SleepState = SleepState::Idle { yielded: false };
}

/// A sleep that was put into the wheel.
#[derive(Clone, Copy)]
struct ArmedSleep {
    id: TimerId,
    /// With that waker.
    waker: WakerIdentity,
    /// For when: no later than the sleep's deadline.
    at: WheelInstant,
    slack: Slack,
    /// Whether others know the id.
    id_shared: bool,
    /// Whether the deadline was moved earlier than the wheel may have noticed, and no poll has
    /// looked at the clock since.
    moved_earlier: bool,
    /// Whether a poll has seen since that the wheel [`covers`] it.
    confirmed: bool,
}

impl ArmedSleep {
    #[inline]
    fn new(id: TimerId, waker: WakerIdentity, at: WheelInstant, slack: Slack) -> Self {
        Self { id, waker, at, slack, id_shared: false, moved_earlier: false, confirmed: false }
    }

    /// Whether the wheel need not be told of a deadline: it wakes the task before, and not much.
    /// Not where the wheel has a bound: the sleep would give up its place, which another may take.
    #[inline]
    fn can_keep_timer(&self, wheel: &Wheel<SleepWaker>, deadline: WheelInstant) -> bool {
        let may = !self.id_shared && !wheel.is_closed() && !wheel.is_bounded();
        may && self.slack.reaches(self.at, deadline)
    }
}

/// How much later than the wheel has it a deadline may be: half of what it was ahead when the wheel
/// was told. So a sleep that is pushed back again and again tells the wheel now and then, while
/// half of its time is still ahead; and one that is left alone wakes its task at most once too
/// early.
#[derive(Clone, Copy)]
struct Slack(u32);

impl Slack {
    /// In nanoseconds, as a power of two: the unit, so that some days fit.
    const SHIFT: u32 = 16;

    /// That of a sleep whose deadline is so far ahead. Beyond six days, less.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "what is left is less, and right as well")]
    fn of(ahead: u64) -> Self {
        Self((ahead >> (Self::SHIFT + 1)) as u32)
    }

    /// Whether a deadline is not earlier than `at`, and no more than this later.
    #[inline]
    fn reaches(self, at: WheelInstant, deadline: WheelInstant) -> bool {
        // An earlier one is far beyond, since the difference wraps.
        deadline.nanos.wrapping_sub(at.nanos) >> Self::SHIFT < u64::from(self.0)
    }
}

impl Timer {
    /// A future that is ready when `delay` has passed from now; at once for none.
    ///
    /// What lies beyond 438 years from the timer's making counts as that time.
    #[inline]
    pub fn sleep(&self, delay: Duration) -> Sleep {
        Sleep::new(self.share(), self.after(delay))
    }

    /// A future that is ready at `deadline`; at once if that has passed. (An instant before the
    /// timer was made counts as that of its making.)
    #[inline]
    pub fn sleep_until(&self, deadline: Instant) -> Sleep {
        Sleep::new(self.share(), self.wheel().wheel_instant(deadline))
    }
}

impl Sleep {
    #[inline]
    pub(super) fn new(timer: Timer, deadline: WheelInstant) -> Self {
        Self { timer, deadline, state: SleepState::NEW }
    }

    /// When it is due. (A reset [by its id](Self::id) is not seen here.)
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.wheel().instant(self.deadline)
    }

    /// Returns `true` if its deadline has passed by the timer's clock, whether or not it was
    /// polled, and `false` if it was refused.
    ///
    /// A poll does not read the clock, so an armed sleep is pending until the timer is swept, even
    /// after its deadline. If a future sweeps the timer ([`drive`](fn@super::drive)), a task that
    /// polls the sleep repeatedly without yielding to its runtime keeps that future from running.
    /// If the id of the sleep was [handed out](Self::id), other code may have reset its deadline,
    /// so this returns `true` only after the timer has fired.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tourbillon::Builder;
    /// use tourbillon::future::Timer;
    ///
    /// let timer = Timer::spawn(Builder::new().driver())?;
    /// let mut pause = timer.sleep_until(Instant::now() + Duration::from_secs(3600));
    /// assert!(!pause.is_elapsed());
    /// pause.reset(Instant::now());
    /// assert!(pause.is_elapsed() && pause.deadline() <= Instant::now());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_elapsed(&self) -> bool {
        match self.state {
            SleepState::Elapsed => true,
            SleepState::Refused(_) => false,
            SleepState::Armed(ArmedSleep { id, id_shared: true, .. }) => {
                !self.wheel().contains(id) && self.has_fired(true)
            }
            SleepState::Idle { .. } | SleepState::Armed(_) => self.has_passed(),
        }
    }

    /// Sets the deadline, earlier or later, also of a sleep that has ended. O(1), lock-free; it is
    /// neither polled nor woken.
    ///
    /// A sleep that is pushed back by no more than half of the time it had notes that, and no more:
    /// its task may be woken once at the old deadline, and its poll then waits for the new one (or
    /// finds that the [wheel was closed](Wheel::close) meanwhile). Where the wheel has a bound, the
    /// sleep keeps its place, and the wheel is told each time.
    ///
    /// A sleep that had fired, or was never polled, is armed by the next poll. One that is moved
    /// back to a deadline that has passed is ready at the next poll; whoever waits for it without
    /// polling is woken by the next sweep.
    #[inline]
    pub fn reset(&mut self, deadline: Instant) {
        self.move_to(self.wheel().wheel_instant(deadline), false);
    }

    /// As [`reset`](Self::reset), to `delay` from now.
    #[inline]
    pub fn reset_after(&mut self, delay: Duration) {
        self.move_to(self.timer.after(delay), delay.is_zero());
    }

    /// Sets the deadline; `passed`: it is known to have passed.
    #[inline]
    fn move_to(&mut self, deadline: WheelInstant, passed: bool) {
        let moved_earlier = passed || deadline < self.deadline;
        self.deadline = deadline;
        let SleepState::Armed(armed) = &mut self.state else {
            self.state = SleepState::NEW;
            return;
        };
        armed.moved_earlier |= moved_earlier;
        if !armed.can_keep_timer(self.timer.wheel(), deadline) {
            self.update_wheel();
        }
    }

    /// Sets the deadline of the timer in the wheel.
    #[inline(never)]
    fn update_wheel(&mut self) {
        let (wheel, deadline) = (self.timer.wheel(), self.deadline);
        let SleepState::Armed(armed) = &mut self.state else { return };
        let id = armed.id;
        armed.slack = Slack::of(wheel.ahead(deadline).unwrap_or(0));
        armed.at = deadline;
        armed.confirmed = false;
        match wheel.reset_at_wheel_instant(id, deadline) {
            Ok(true) => {}
            Ok(false) => self.state = SleepState::NEW,
            Err(_) => self.hop(id),
        }
    }

    /// The id by which others may reset the deadline: `timer.wheel().reset(id, delay)`.
    ///
    /// `None` if it is not armed (it is once a poll has returned `Pending`), or its deadline lies
    /// beyond the wheel's range. The id names this sleep until its timer fires (also if a reset
    /// comes before the poll that would have ended it), it is reset to a deadline beyond the range,
    /// or another task than before polls it; a reset by the id then returns `false`. So tell it
    /// anew after each poll that returns `Pending`, and know that the owner's next reset undoes
    /// another's. A cancel by it, or a drain of the wheel, ends a sleep whose id was handed out at
    /// once, as if its time had come. Polled after the wheel was closed, it resolves to
    /// [`Refusal::Closed`] if it is not armed any more, also if its time had come.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    /// use tourbillon::future::Timer;
    ///
    /// let timer = Timer::spawn(Builder::new().driver())?;
    /// let mut hour = timer.sleep(Duration::from_secs(3600));
    /// pollster::block_on(std::future::poll_fn(|context| {
    ///     if let Some(id) = hour.id() {
    ///         // From any thread:
    ///         timer.wheel().reset(id, Duration::from_millis(5))?;
    ///     } else {
    ///         context.waker().wake_by_ref();
    ///     }
    ///     std::pin::Pin::new(&mut hour).poll(context)
    /// }))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn id(&mut self) -> Option<TimerId> {
        if matches!(&self.state, SleepState::Armed(armed) if armed.at != self.deadline) {
            self.update_wheel();
        }
        let SleepState::Armed(armed) = &mut self.state else {
            return None;
        };
        armed.id_shared |= covers(self.timer.wheel(), armed.id, self.deadline) == Some(true);
        armed.id_shared.then_some(armed.id)
    }

    pub(crate) fn timer(&self) -> &Timer {
        &self.timer
    }

    /// Polls the sleep, which has also elapsed if its deadline has passed by the clock, even if the
    /// timer has not been swept since.
    ///
    /// For a task that is awake whatever the timer does: the thread that sweeps may be held up, or
    /// missing in a forked child.
    pub(crate) fn poll_by_clock(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        match self.is_elapsed() {
            true => Poll::Ready(Ok(())),
            false => Pin::new(self).poll(context),
        }
    }

    fn wheel(&self) -> &Wheel<SleepWaker> {
        self.timer.wheel()
    }

    fn has_passed(&self) -> bool {
        self.wheel().has_passed(self.deadline)
    }

    /// Whether a timer that is gone has fired for good.
    fn has_fired(&self, id_shared: bool) -> bool {
        match id_shared {
            true => !self.wheel().is_closed(),
            false => self.has_passed(),
        }
    }

    fn elapse(&mut self) -> Poll<()> {
        self.state = SleepState::Elapsed;
        Poll::Ready(())
    }

    fn refuse(&mut self, refusal: Refusal) -> Poll<()> {
        self.state = SleepState::Refused(refusal);
        Poll::Ready(())
    }

    /// Puts the waker into the wheel, unless the time has come.
    fn arm(&mut self, task: &Waker) -> Poll<()> {
        let wheel = self.timer.wheel();
        let Some(soon) = wheel.soon(self.deadline) else {
            return self.arm_by_the_clock(task);
        };
        let slack = Slack::of(soon.ahead);
        let (wake, waker) = SleepWaker::of(task);
        match wheel.insert_soon(wake, soon) {
            Ok(id) => self.set_armed(id, waker, slack),
            Err(wake) => {
                let armed = wheel.insert_soon_any(wake, soon);
                self.finish_arming(armed, (waker, slack), task)
            }
        }
    }

    /// As [`arm`](Self::arm), where the last reading of the clock does not tell that the deadline
    /// is still to come and in range.
    #[inline(never)]
    fn arm_by_the_clock(&mut self, task: &Waker) -> Poll<()> {
        let Some(ahead) = self.wheel().ahead(self.deadline) else {
            return self.elapse();
        };
        let slack = Slack::of(ahead);
        let (wake, waker) = SleepWaker::of(task);
        let armed = insert(self.wheel(), wake, self.deadline);
        self.finish_arming(armed, (waker, slack), task)
    }

    /// Notes that its timer has this id.
    #[inline]
    fn set_armed(&mut self, id: TimerId, waker: WakerIdentity, slack: Slack) -> Poll<()> {
        self.state = SleepState::Armed(ArmedSleep::new(id, waker, self.deadline, slack));
        Poll::Pending
    }

    /// Notes what came of arming.
    #[inline(never)]
    fn finish_arming(
        &mut self,
        armed: Result<TimerId, InsertError<SleepWaker>>,
        (waker, slack): (WakerIdentity, Slack),
        task: &Waker,
    ) -> Poll<()> {
        match armed {
            Ok(id) => self.set_armed(id, waker, slack),
            Err(InsertError { reason, value }) => {
                value.forget();
                if let SleepState::Idle { yielded: false } = self.state {
                    self.state = SleepState::Idle { yielded: true };
                    return yield_once(task);
                }
                self.refuse(reason)
            }
        }
    }

    /// The timer is not in the wheel any more.
    fn poll_ended(&mut self, id_shared: bool, waker: &Waker) -> Poll<()> {
        if self.has_fired(id_shared) {
            return self.elapse();
        }
        if id_shared {
            return self.refuse(Refusal::Closed);
        }
        self.arm(waker)
    }

    /// The result of a sleep that has ended.
    #[cold]
    #[inline(never)]
    fn result(&self) -> Result<(), Refusal> {
        match self.state {
            SleepState::Refused(refusal) => Err(refusal),
            _ => Ok(()),
        }
    }

    /// Polls: ready when the [state](SleepState) tells the [result](Self::result).
    #[inline]
    fn poll_state(&mut self, task: &Waker) -> Poll<()> {
        match self.state {
            SleepState::Idle { .. } => self.arm(task),
            SleepState::Armed(ArmedSleep {
                id,
                waker,
                at,
                id_shared,
                moved_earlier,
                confirmed,
                ..
            }) => {
                if waker != WakerIdentity::of(task) || moved_earlier && self.has_passed() {
                    return self.replace_waker(id, id_shared, task);
                }
                // Who has not been told its id has not moved it, and so its entry, which may be far
                // away, need not be looked at.
                if confirmed && !id_shared && self.wheel().surely_waits(at) {
                    return Poll::Pending;
                }
                let Some(confirmed) = covers(self.wheel(), id, at) else {
                    return self.poll_ended(id_shared, task);
                };
                if let SleepState::Armed(armed) = &mut self.state {
                    (armed.moved_earlier, armed.confirmed) = (false, confirmed);
                }
                Poll::Pending
            }
            SleepState::Elapsed | SleepState::Refused(_) => Poll::Ready(()),
        }
    }

    /// As a poll, but the wheel takes the sleep also if it is at its capacity. Another refusal is
    /// returned at once.
    pub(super) fn poll_over_capacity(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Refusal>> {
        if let SleepState::Idle { yielded } = &mut self.state {
            *yielded = true;
        }
        let polled = Pin::new(&mut *self).poll(context);
        if let Poll::Ready(Err(Refusal::AtCapacity { .. })) = polled {
            return self.arm_over_capacity(context.waker()).map(|()| self.result());
        }
        polled
    }

    #[cold]
    fn arm_over_capacity(&mut self, task: &Waker) -> Poll<()> {
        let Some(ahead) = self.wheel().ahead(self.deadline) else {
            return self.elapse();
        };
        let (wake, waker) = SleepWaker::of(task);
        let armed = self.wheel().insert_over_capacity(wake, self.deadline);
        self.finish_arming(armed, (waker, Slack::of(ahead)), task)
    }

    /// Another task than before polls, or the deadline was moved to the past: takes the waker out
    /// and, if the time has not come, puts the task's in its place.
    fn replace_waker(&mut self, id: TimerId, id_shared: bool, waker: &Waker) -> Poll<()> {
        let Some(taken) = self.wheel().cancel_with_deadline(id) else {
            return self.poll_ended(id_shared, waker);
        };
        taken.value.forget();
        if id_shared {
            // Others may have moved it.
            self.deadline = self.wheel().wheel_instant(taken.deadline);
        }
        self.arm(waker)
    }

    /// The deadline was reset beyond the wheel's range: the same waker hops towards it.
    fn hop(&mut self, id: TimerId) {
        let SleepState::Armed(ArmedSleep { waker, slack, .. }) = self.state else {
            return;
        };
        self.state = SleepState::NEW;
        if let Some(taken) = self.wheel().cancel_with_deadline(id) {
            // A waker that is refused is dropped, and so wakes: the poll that follows will tell.
            if let Ok(id) = insert(self.wheel(), taken.value, self.deadline) {
                self.state = SleepState::Armed(ArmedSleep::new(id, waker, self.deadline, slack));
            }
        }
    }
}

/// Whether the wheel has a timer for no earlier than its deadline, if it has it: earlier on a hop,
/// and where the deadline had passed before it was set.
#[inline]
fn covers(wheel: &Wheel<SleepWaker>, id: TimerId, deadline: WheelInstant) -> Option<bool> {
    wheel.wheel_instant_of(id).map(|at| at >= deadline)
}

/// Arms a waker, at the end of the range if its deadline lies beyond.
#[inline]
fn insert(
    wheel: &Wheel<SleepWaker>,
    wake: SleepWaker,
    deadline: WheelInstant,
) -> Result<TimerId, InsertError<SleepWaker>> {
    match wheel.insert_at_wheel_instant(wake, deadline) {
        Err(InsertError { reason: Refusal::BeyondRange(_), value }) => {
            wheel.insert(value, wheel.longest_delay())
        }
        done => done,
    }
}

impl Future for Sleep {
    type Output = Result<(), Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_state(context.waker()).map(|()| self.result())
    }
}

impl FusedFuture for Sleep {
    fn is_terminated(&self) -> bool {
        matches!(self.state, SleepState::Elapsed | SleepState::Refused(_))
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let SleepState::Armed(ArmedSleep { id, .. }) = self.state {
            if let Some(wake) = self.wheel().cancel(id) {
                wake.forget();
            }
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::Sleep;

    #[test]
    fn a_sleep_is_small_and_goes_anywhere() {
        fn goes_anywhere<T: Send + Sync + Unpin + 'static>() {}
        goes_anywhere::<Sleep>();
        // Smaller where pointers are shorter.
        assert!(size_of::<Sleep>() <= 56);
    }
}
