//! The methods of [`Wheel`] for the layers of this crate, which its documentation does not show.
//! Most take or return deadlines as [`WheelInstant`]s, as sleeps do.

#![forbid(unsafe_code)]

use crate::error::{BeyondRange, InsertError};
use crate::sync::{Arc, Process, SetInChild};
#[cfg(any(feature = "future", modelled))]
use crate::wheel::engine::Admission;
use crate::wheel::id::TimerId;
use crate::wheel::shared::Shared;
#[cfg(any(feature = "future", modelled))]
use crate::wheel::shared::{Deadline, UnlessPassed};
use crate::wheel::wheel::Wheel;
use crate::wheel::wheel_instant::WheelInstant;
#[cfg(any(feature = "future", modelled))]
use std::cell::Cell;
use std::time::{Duration, Instant};

impl<T: Send> Wheel<T> {
    /// Converts an instant to the wheel's own timeline.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tourbillon::Builder;
    ///
    /// let (wheel, _sweeper) = Builder::new().build()?;
    /// let [soon, later] = [1, 2].map(|seconds| Instant::now() + Duration::from_secs(seconds));
    /// assert!(wheel.wheel_instant(soon) < wheel.wheel_instant(later));
    /// assert_eq!(wheel.instant(wheel.wheel_instant(soon)), soon);
    /// # wheel.insert((), Duration::ZERO)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn wheel_instant(&self, at: Instant) -> WheelInstant {
        self.shared.engine.timeline.wheel_instant(at)
    }

    /// Converts a [`WheelInstant`] to an [`Instant`].
    #[doc(hidden)]
    #[must_use]
    pub fn instant(&self, at: WheelInstant) -> Instant {
        self.shared.engine.timeline.read(at)
    }

    /// Returns the deadline of a timer that is armed now with this delay. The clock's lag is
    /// included. A deadline without a delay has already passed.
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn wheel_instant_after(&self, delay: Duration) -> WheelInstant {
        self.shared.wheel_instant_after(delay)
    }

    /// Returns `true` if `at` has passed by the clock.
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn has_passed(&self, at: WheelInstant) -> bool {
        self.shared.ahead(at).is_none()
    }

    /// Arms a timer, as [`insert_at`](Self::insert_at) does, at a [`WheelInstant`].
    ///
    /// # Errors
    ///
    /// Fails like [`insert`](Self::insert).
    #[doc(hidden)]
    #[inline]
    pub fn insert_at_wheel_instant(
        &self,
        value: T,
        deadline: WheelInstant,
    ) -> Result<TimerId, InsertError<T>> {
        self.shared.insert(value, deadline)
    }

    /// Moves a deadline, as [`reset_at`](Self::reset_at) does, to a [`WheelInstant`].
    ///
    /// # Errors
    ///
    /// Fails like [`reset`](Self::reset).
    #[doc(hidden)]
    #[inline]
    pub fn reset_at_wheel_instant(
        &self,
        id: TimerId,
        deadline: WheelInstant,
    ) -> Result<bool, BeyondRange> {
        self.shared.result_of(self.shared.reset(id, deadline))
    }

    /// Rounds a deadline up to a tick.
    #[cfg(feature = "time")]
    #[inline]
    pub(crate) fn round_up(&self, deadline: WheelInstant) -> WheelInstant {
        self.shared.engine.timeline.round_up(deadline)
    }

    /// Returns the deadline of an armed timer, as the wheel has rounded it.
    #[cfg(any(feature = "future", modelled))]
    #[inline]
    pub(crate) fn wheel_instant_of(&self, id: TimerId) -> Option<WheelInstant> {
        let engine = &self.shared.engine;
        engine.deadline(id).map(|tick| engine.timeline.wheel_instant_of(tick))
    }

    /// Returns `true` only if a timer armed for `deadline` or later, whose id its owner has not
    /// shared, has not ended. Does not touch the entry. `false` is inconclusive.
    #[cfg(any(feature = "future", modelled))]
    #[inline]
    pub(crate) fn is_surely_armed(&self, deadline: WheelInstant) -> bool {
        self.shared.engine.is_surely_armed(deadline)
    }

    /// Returns the number of nanoseconds until `at`, as far as the clock was read, or `None` if it
    /// has passed.
    #[cfg(any(feature = "future", modelled))]
    #[inline]
    pub(crate) fn ahead(&self, at: WheelInstant) -> Option<u64> {
        self.shared.ahead(at)
    }

    /// Returns `true` if the wheel limits the number of armed timers.
    #[cfg(any(feature = "future", modelled))]
    pub(crate) fn is_bounded(&self) -> bool {
        self.capacity().is_some()
    }

    /// Arms a timer, unless its deadline has passed. Writes the number of nanoseconds until then to
    /// `ahead`, or zero.
    #[cfg(any(feature = "future", modelled))]
    #[inline]
    pub(crate) fn insert_unless_passed(
        &self,
        value: T,
        at: WheelInstant,
        ahead: &Cell<u64>,
    ) -> Result<TimerId, InsertError<T>> {
        self.shared.insert(value, UnlessPassed { at, ahead })
    }

    /// Arms a timer even if the wheel is at its capacity, and at the end of the range if its
    /// deadline lies beyond. Its owner was admitted or refused before, and has at most one timer.
    #[cfg(any(feature = "future", modelled))]
    pub(crate) fn insert_admitted(
        &self,
        value: T,
        deadline: WheelInstant,
    ) -> Result<TimerId, InsertError<T>> {
        let engine = &self.shared.engine;
        let (thread, timeline) = (engine.threads.current(), &engine.timeline);
        let now = self.shared.now(thread);
        let farthest = timeline.after(timeline.longest_delay(), now);
        let tick = deadline.min(farthest).tick(&self.shared, thread);
        engine.insert_slow(thread, value, tick, Admission::Always)
    }
}

impl<T> Wheel<T> {
    /// Returns the number of shards.
    pub(crate) fn shards(&self) -> usize {
        self.shared.engine.shards.len()
    }

    /// Closes the wheel in every child process that is forked while the returned value exists. This
    /// is for a wheel whose sweeper runs on a thread of `process`, which its children do not have.
    pub(crate) fn close_in_children(&self, process: Process) -> ClosedInChildren<T> {
        SetInChild::new(Arc::clone(&self.shared), process)
    }
}

/// Closes a wheel in every child process that is forked while this value exists.
pub(crate) type ClosedInChildren<T> = SetInChild<Shared<T>>;
