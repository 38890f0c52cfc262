//! Timers beyond the capacity of a wheel, for the layers above.

#![forbid(unsafe_code)]

use crate::error::InsertError;
use crate::wheel::id::TimerId;
use crate::wheel::memory::pin;
use crate::wheel::ops::Call;
use crate::wheel::wheel::Wheel;
use crate::wheel::wheel_instant::WheelInstant;

impl<T: Send> Wheel<T> {
    /// Arms a timer even if the wheel is at its capacity, and at the end of the range if its
    /// deadline lies beyond. For an owner that occupies one place for as long as it lives and
    /// cannot be refused it.
    pub(crate) fn insert_over_capacity(
        &self,
        value: T,
        deadline: WheelInstant,
    ) -> Result<TimerId, InsertError<T>> {
        let engine = &self.inner.engine;
        let (thread, timeline) = (engine.threads.current(), &engine.timeline);
        let now = self.inner.now(thread);
        let tick = self.inner.tick_of(timeline.read(deadline), now);
        let tick = tick.or_else(|_| engine.tick_after(timeline.longest_delay(), now));
        engine.insert_over_capacity(Call { thread, guard: &pin() }, value, tick)
    }
}
