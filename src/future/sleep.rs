//! [`Sleep`]: one timer of the wheel, as a future. See [`super`] for the protocol.

#![forbid(unsafe_code)]

use super::budget::yield_once;
use super::sleep_waker::{SleepWaker, WakerIdentity};
use super::timer::Timer;
use crate::{InsertError, Refusal, TimerId, Wheel, WheelInstant};
use futures_core::FusedFuture;
use std::cell::Cell;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// A future that completes when its deadline has passed.
///
/// It is created by [`Timer::sleep`]. The first poll before the deadline arms a timer in the wheel,
/// at the cost of an insert and of no other allocation. Dropping the sleep cancels the timer in
/// O(1), without a lock. A sleep is `Unpin`. If it is polled after it has completed, it returns the
/// same result again.
///
/// # Errors
///
/// - [`Refusal::Closed`] if the timer was shut down before the deadline, or its wheel was closed
///   before the sleep was armed.
/// - [`Refusal::AtCapacity`] if the wheel is full when the sleep is to be armed. This can happen
///   again when a different task polls the sleep, if another thread takes its place in the wheel at
///   that instant.
///
/// [`reset`](Self::reset) makes the sleep try again. Check the result, because a `select!` that
/// treats every completion as *idle* closes live connections when the timer is full.
///
/// The first poll that is refused wakes its task and returns `Pending`. The next one tries again
/// before it returns the error, so a loop over refused sleeps cannot starve other tasks.
///
/// A sleep whose deadline has passed when it is first polled is ready at once, however often that
/// happens. A task that loops over sleeps without a delay therefore holds its thread, unless it
/// yields to its runtime or awaits something else. An [`Interval`](super::Interval) does that by
/// itself.
///
/// # Examples
///
/// An idle timeout of a connection, which each packet restarts:
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
    /// Not in the wheel. New, or reset and not polled since.
    Idle,
    /// Not in the wheel. The sleep was refused and has yielded. The next refusal is returned.
    Yielded,
    /// Inserted into the wheel.
    Armed(ArmedSleep),
    /// Completed because its deadline has passed.
    Elapsed,
    /// Completed because it could not be armed.
    Refused(Refusal),
}

/// A sleep that was inserted into the wheel.
#[derive(Clone, Copy)]
struct ArmedSleep {
    id: TimerId,
    /// The waker that was inserted.
    waker: WakerIdentity,
    /// The deadline in the wheel, no later than the sleep's deadline.
    at: WheelInstant,
    slack: Slack,
    /// Set if the id was returned to the user.
    id_shared: bool,
    /// Set if the deadline was moved earlier than the wheel may have noticed, and no poll has read
    /// the clock since. Only then does the next poll read it. The sleep stays in the wheel, for a
    /// task that waits for its waker without polling.
    moved_earlier: bool,
    /// Set if a poll has seen since then that the wheel [`covers`] the sleep.
    confirmed: bool,
}

impl ArmedSleep {
    #[inline]
    fn new(id: TimerId, waker: WakerIdentity, at: WheelInstant, slack: Slack) -> Self {
        Self { id, waker, at, slack, id_shared: false, moved_earlier: false, confirmed: false }
    }

    /// Returns `true` if the timer in the wheel can stay as it is for a new deadline, because it
    /// fires before that but not much earlier.
    #[inline]
    fn can_keep_timer(&self, wheel: &Wheel<SleepWaker>, deadline: WheelInstant) -> bool {
        !wheel.is_closed() && self.slack.reaches(self.at, deadline)
    }
}

/// The maximum time between the deadline of a timer in the wheel and the later deadline of its
/// sleep.
///
/// It is half of the time that was left when the wheel was last updated. A sleep that is pushed
/// back repeatedly therefore updates the wheel once in a while, when half of its time is still
/// left, and otherwise writes only the sleep. A sleep that is left alone wakes its task too early
/// at most once, and that poll arms it again, as idle timeouts do in Jetty and Netty.
///
/// There is [no slack](Slack::NONE) if the id of the sleep was returned to the user, or if the
/// wheel has a capacity. The early expiry would give up the sleep's place, and another timer could
/// take it.
#[derive(Clone, Copy)]
struct Slack(u32);

impl Slack {
    /// Each new deadline updates the wheel.
    const NONE: Slack = Slack(0);

    /// The unit is a power of two in nanoseconds, so that some days fit.
    const SHIFT: u32 = 16;

    /// Returns the slack of a sleep whose deadline is `ahead` nanoseconds away. It is less than
    /// half beyond six days.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "what is left is less, and right as well")]
    fn of(ahead: u64) -> Self {
        Self((ahead >> (Self::SHIFT + 1)) as u32)
    }

    /// Returns `true` if a deadline is not earlier than `at`, and later by no more than the slack.
    #[inline]
    fn reaches(self, at: WheelInstant, deadline: WheelInstant) -> bool {
        // An earlier deadline is far beyond, because the difference wraps.
        deadline.nanos.wrapping_sub(at.nanos) >> Self::SHIFT < u64::from(self.0)
    }
}

impl Timer {
    /// Creates a sleep that completes when `delay` has passed from now.
    ///
    /// A sleep without a delay is ready at once. A delay of more than 146 years is clamped to that.
    #[inline]
    pub fn sleep(&self, delay: Duration) -> Sleep {
        Sleep::new(self.share(), self.after(delay))
    }

    /// Creates a sleep that completes at `deadline`.
    ///
    /// A sleep whose deadline has passed is ready at once. An instant before the timer was created
    /// counts as the time of its creation.
    #[inline]
    pub fn sleep_until(&self, deadline: Instant) -> Sleep {
        Sleep::new(self.share(), self.wheel().wheel_instant(deadline))
    }

    /// Creates a sleep whose deadline is rounded up to a tick before it is compared with the clock.
    ///
    /// Without a delay it is therefore pending until the next tick, and not ready at once.
    #[cfg(feature = "time")]
    #[inline]
    pub(crate) fn into_sleep_to_tick(self, deadline: WheelInstant) -> Sleep {
        let tick = self.wheel().round_up(deadline);
        Sleep::new(self, tick)
    }
}

impl Sleep {
    #[inline]
    pub(super) fn new(timer: Timer, deadline: WheelInstant) -> Self {
        Self { timer, deadline, state: SleepState::Idle }
    }

    /// Returns the deadline. A reset [through the id](Self::id) is not included.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.wheel().instant(self.deadline)
    }

    /// Returns `true` if the deadline has passed by the timer's clock, whether or not the sleep was
    /// polled. Returns `false` if the sleep was refused.
    ///
    /// A poll does not read the clock, so an armed sleep is pending until the timer is swept, even
    /// after its deadline. If a future sweeps the timer ([`drive`](fn@super::drive)), a task that
    /// polls the sleep repeatedly without yielding to its runtime keeps that future from running.
    /// If the [id](Self::id) of the sleep was shared, other code may have reset the deadline, so
    /// this returns `true` only after the timer has fired.
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
            SleepState::Idle | SleepState::Yielded | SleepState::Armed(_) => self.has_passed(),
        }
    }

    /// Sets the deadline, earlier or later. O(1), lock-free.
    ///
    /// A sleep that has completed can be reset too. The reset neither polls the sleep nor wakes its
    /// task.
    ///
    /// A sleep that is pushed back by no more than half of the time it had leaves its timer in the
    /// wheel alone. Its task may be woken once at the old deadline, and the poll then waits for the
    /// new one, or finds that the [wheel was closed](Wheel::close) meanwhile. If the wheel has a
    /// capacity, the sleep keeps its place and updates its timer each time.
    ///
    /// A sleep that has fired or was never polled is armed by the next poll. A sleep that is moved
    /// to a deadline that has passed is ready at the next poll. A task that waits for it without
    /// polling is woken by the next sweep.
    #[inline]
    pub fn reset(&mut self, deadline: Instant) {
        self.move_to(self.wheel().wheel_instant(deadline), false);
    }

    /// Sets the deadline to `delay` from now, like [`reset`](Self::reset).
    #[inline]
    pub fn reset_after(&mut self, delay: Duration) {
        self.move_to(self.timer.after(delay), delay.is_zero());
    }

    /// Sets the deadline. `passed` is set if it is known to have passed.
    #[inline]
    fn move_to(&mut self, deadline: WheelInstant, passed: bool) {
        let moved_earlier = passed || deadline < self.deadline;
        self.deadline = deadline;
        let SleepState::Armed(armed) = &mut self.state else {
            self.state = SleepState::Idle;
            return;
        };
        armed.moved_earlier |= moved_earlier;
        if !armed.can_keep_timer(self.timer.wheel(), deadline) {
            self.update_wheel();
        }
    }

    /// Updates the deadline of the timer in the wheel.
    #[inline(never)]
    fn update_wheel(&mut self) {
        let (wheel, deadline) = (self.timer.wheel(), self.deadline);
        let SleepState::Armed(armed) = &mut self.state else { return };
        let id = armed.id;
        let slack = slack_on(wheel, wheel.ahead(deadline).unwrap_or(0));
        armed.slack = if armed.id_shared { Slack::NONE } else { slack };
        armed.at = deadline;
        armed.confirmed = false;
        match wheel.reset_at_wheel_instant(id, deadline) {
            Ok(true) => {}
            Ok(false) => self.state = SleepState::Idle,
            Err(_) => self.hop(id),
        }
    }

    /// Returns the id that other threads need to reset this sleep, or `None` if it is not armed.
    ///
    /// They call `timer.wheel().reset(id, delay)`. A sleep is armed once a poll has returned
    /// `Pending`, unless its deadline is beyond the wheel's range.
    ///
    /// **The id becomes stale** when the timer fires, even if a reset comes before the poll that
    /// would have completed the sleep. It also becomes stale when the sleep is reset beyond the
    /// wheel's range or when a different task polls it. A reset through a stale id returns `false`.
    /// Publish the id again after each `Pending`. The owner's next reset overrides all others.
    ///
    /// **Cancelling** through the id, or draining the wheel, completes a sleep whose id was shared
    /// as if its deadline had passed. If such a sleep is polled after the wheel was closed and is
    /// no longer armed, it completes with [`Refusal::Closed`], even if its deadline had passed.
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
        if covers(self.timer.wheel(), armed.id, self.deadline) == Some(true) {
            (armed.id_shared, armed.slack) = (true, Slack::NONE);
        }
        armed.id_shared.then_some(armed.id)
    }

    pub(crate) fn timer(&self) -> &Timer {
        &self.timer
    }

    /// Polls the sleep, but also completes it if its deadline has passed by the clock and the timer
    /// has not been swept since.
    ///
    /// This is for a task that is awake whatever the timer does. The thread that sweeps may be held
    /// up, or missing in a forked child.
    pub(crate) fn poll_by_clock(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        if !self.is_elapsed() {
            return Pin::new(self).poll(context);
        }
        self.disarm();
        self.elapse().map(Ok)
    }

    /// Sets the deadline, like [`reset`](Self::reset), but rounds it up to a tick. See
    /// [`Timer::into_sleep_to_tick`].
    #[cfg(feature = "time")]
    #[inline]
    pub(crate) fn reset_to_tick(&mut self, deadline: WheelInstant) {
        self.move_to(self.wheel().round_up(deadline), false);
    }

    /// Returns `true` if the sleep has completed or the next poll completes it.
    #[cfg(feature = "time")]
    pub(crate) fn is_ready(&self) -> bool {
        match self.state {
            SleepState::Elapsed | SleepState::Refused(_) => true,
            SleepState::Idle | SleepState::Yielded => self.has_passed(),
            SleepState::Armed(ArmedSleep { id, id_shared, moved_earlier, .. }) => {
                let may_have_ended = moved_earlier || !self.wheel().contains(id);
                may_have_ended && self.has_fired(id_shared)
            }
        }
    }

    fn wheel(&self) -> &Wheel<SleepWaker> {
        self.timer.wheel()
    }

    fn has_passed(&self) -> bool {
        self.wheel().has_passed(self.deadline)
    }

    /// Returns `true` if a timer that is no longer in the wheel has fired for good.
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

    /// Takes the waker out of the wheel, if it is there.
    #[inline]
    fn disarm(&self) {
        if let SleepState::Armed(ArmedSleep { id, .. }) = self.state {
            if let Some(wake) = self.wheel().cancel(id) {
                wake.forget();
            }
        }
    }

    /// Inserts the waker into the wheel unless the deadline has passed.
    fn arm(&mut self, task: &Waker) -> Poll<()> {
        // Cloned first, because values that are read before this call would have to be saved across
        // it.
        let (wake, waker) = SleepWaker::of(task);
        let ahead = Cell::new(0);
        match self.wheel().insert_unless_passed(wake, self.deadline, &ahead) {
            Err(refused) if ahead.get() == 0 => {
                refused.value.forget();
                self.elapse()
            }
            armed => {
                let armed = or_hop(self.wheel(), armed);
                self.finish_arming(armed, (waker, ahead.get()), task)
            }
        }
    }

    /// Sets the state to armed with this id.
    #[inline]
    fn set_armed(&mut self, id: TimerId, waker: WakerIdentity, slack: Slack) -> Poll<()> {
        self.state = SleepState::Armed(ArmedSleep::new(id, waker, self.deadline, slack));
        Poll::Pending
    }

    /// Sets the state to the outcome of an insert.
    #[inline]
    fn finish_arming(
        &mut self,
        armed: Result<TimerId, InsertError<SleepWaker>>,
        (waker, ahead): (WakerIdentity, u64),
        task: &Waker,
    ) -> Poll<()> {
        match armed {
            Ok(id) => self.set_armed(id, waker, slack_on(self.wheel(), ahead)),
            Err(InsertError { reason, value }) => {
                value.forget();
                if let SleepState::Idle = self.state {
                    self.state = SleepState::Yielded;
                    return yield_once(task);
                }
                self.refuse(reason)
            }
        }
    }

    #[inline(never)]
    fn poll_unarmed(&mut self, task: &Waker) -> Poll<()> {
        match self.state {
            SleepState::Idle | SleepState::Yielded => self.arm(task),
            _ => Poll::Ready(()),
        }
    }

    /// Handles a timer that is no longer in the wheel.
    fn poll_ended(&mut self, id_shared: bool, waker: &Waker) -> Poll<()> {
        if self.has_fired(id_shared) {
            return self.elapse();
        }
        if id_shared {
            return self.refuse(Refusal::Closed);
        }
        self.arm(waker)
    }

    /// Returns the result of a completed sleep.
    #[cold]
    #[inline(never)]
    fn result(&self) -> Result<(), Refusal> {
        match self.state {
            SleepState::Refused(refusal) => Err(refusal),
            _ => Ok(()),
        }
    }

    /// Polls the sleep. If it is ready, the [state](SleepState) determines the
    /// [result](Self::result).
    #[inline]
    fn poll_state(&mut self, task: &Waker) -> Poll<()> {
        let SleepState::Armed(armed) = self.state else {
            return self.poll_unarmed(task);
        };
        let ArmedSleep { id, waker, at, id_shared, moved_earlier, confirmed, .. } = armed;
        if waker != WakerIdentity::of(task) || moved_earlier && self.has_passed() {
            return self.replace_waker(id, id_shared, task);
        }
        // If the id was not shared, only the sweep or a drain can have ended the timer. Their words
        // are at hand, and the entry may be far away in memory. A stale tick makes this return
        // `Pending`, and the wake-up is then still to come.
        if confirmed && !id_shared && self.wheel().is_surely_armed(at) {
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

    /// Takes a place for the sleep in the wheel, for a task that is to poll it later.
    pub(super) fn take_place(&mut self) -> Result<(), Refusal> {
        match self.poll_at_once(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Err(refusal)) => Err(refusal),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        }
    }

    /// Polls the sleep of an owner that had a [place](Self::take_place) or was refused before. It
    /// is armed even if the wheel is at its capacity, and any other refusal is returned at once.
    pub(super) fn poll_admitted(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        let polled = self.poll_at_once(context);
        if let Poll::Ready(Err(Refusal::AtCapacity { .. })) = polled {
            return self.arm_admitted(context.waker()).map(|()| self.result());
        }
        polled
    }

    /// Polls the sleep, and returns a refusal before other tasks have had a turn.
    fn poll_at_once(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        if let SleepState::Idle = self.state {
            self.state = SleepState::Yielded;
        }
        Pin::new(self).poll(context)
    }

    #[cold]
    fn arm_admitted(&mut self, task: &Waker) -> Poll<()> {
        let Some(ahead) = self.wheel().ahead(self.deadline) else {
            return self.elapse();
        };
        let (wake, waker) = SleepWaker::of(task);
        let armed = self.wheel().insert_admitted(wake, self.deadline);
        self.finish_arming(armed, (waker, ahead), task)
    }

    /// Replaces the waker in the wheel, unless the deadline has passed. Called if a different task
    /// polls or the deadline was moved to the past.
    fn replace_waker(&mut self, id: TimerId, id_shared: bool, waker: &Waker) -> Poll<()> {
        let Some(taken) = self.wheel().cancel_with_deadline(id) else {
            return self.poll_ended(id_shared, waker);
        };
        taken.value.forget();
        if id_shared {
            // Other code may have moved it.
            self.deadline = self.wheel().wheel_instant(taken.deadline);
        }
        self.arm(waker)
    }

    /// Replaces the timer by a hop towards a deadline beyond the wheel's range. It cancels the
    /// timer and inserts the same waker again, so the id changes.
    fn hop(&mut self, id: TimerId) {
        let SleepState::Armed(ArmedSleep { waker, slack, .. }) = self.state else {
            return;
        };
        self.state = SleepState::Idle;
        if let Some(taken) = self.wheel().cancel_with_deadline(id) {
            // A waker that is refused wakes its task when it is dropped, and the poll that follows
            // returns the refusal.
            let armed = self.wheel().insert_at_wheel_instant(taken.value, self.deadline);
            if let Ok(id) = or_hop(self.wheel(), armed) {
                self.state = SleepState::Armed(ArmedSleep::new(id, waker, self.deadline, slack));
            }
        }
    }
}

/// Returns the slack of a sleep on this wheel whose deadline is `ahead` nanoseconds away.
#[inline]
fn slack_on(wheel: &Wheel<SleepWaker>, ahead: u64) -> Slack {
    if wheel.is_bounded() { Slack::NONE } else { Slack::of(ahead) }
}

/// Returns whether the wheel's timer fires no earlier than `deadline`, or `None` if there is no
/// timer. It fires earlier on a hop, and if the deadline had passed before it was set.
#[inline]
fn covers(wheel: &Wheel<SleepWaker>, id: TimerId, deadline: WheelInstant) -> Option<bool> {
    wheel.wheel_instant_of(id).map(|at| at >= deadline)
}

/// Inserts a waker that was refused because its deadline is beyond the wheel's range, at the end of
/// the range.
#[inline]
fn or_hop(
    wheel: &Wheel<SleepWaker>,
    armed: Result<TimerId, InsertError<SleepWaker>>,
) -> Result<TimerId, InsertError<SleepWaker>> {
    match armed {
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
        self.disarm();
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
        // It is smaller where pointers are shorter.
        assert!(size_of::<Sleep>() <= 56);
    }
}
