//! Discards timers that no handler will receive.
//!
//! A layer discards armed timers when it ends, and a batch that its executor never runs.
//! Three rules hold for every discarded value:
//!
//! - It is dropped after the wheel has handed it over, under no guard and no lock of the crate. Its
//!   destructor may use the wheel and the layer.
//! - A panic of its destructor is caught, and does not affect other values.
//! - It does not wait for handles of the wheel or the layer, which may live on.
//!
//! A layer that returns its timers, as a shutdown does, does not discard them.

#![forbid(unsafe_code)]

use crate::panics::quietly;
use crate::wheel::Wheel;

/// Discards all timers of a wheel that the caller has closed, so none is missed. Returns their
/// number.
pub(crate) fn discard_armed<T>(wheel: &Wheel<T>) -> usize {
    debug_assert!(wheel.is_closed(), "an insert that races with the drain could be missed");
    discard(wheel.drain())
}

/// Discards timers that were taken out of a wheel. Returns their number.
pub(crate) fn discard<V>(timers: impl IntoIterator<Item = V>) -> usize {
    discard_by(timers, drop)
}

/// Discards timers as [`discard`] does. `end` drops one timer and whatever the layer keeps for it.
pub(crate) fn discard_by<V>(timers: impl IntoIterator<Item = V>, mut end: impl FnMut(V)) -> usize {
    timers.into_iter().map(|timer| quietly(|| end(timer))).count()
}
