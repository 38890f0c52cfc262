//! Time in ticks: [`Tick`], its arithmetic, and the part of it that the packed words hold.
//!
//! A [`Tick`] is absolute and never wraps. The packed words hold its low [`Tick::LOW_BITS`] bits.
//! [`Tick::near`] restores the rest from a tick known to be close:
//!
//! ```text
//!            PAST ticks                 AHEAD ticks
//!   ├─────────────────────────┼──────────────────────────────────────┤
//!                          swept                      one window = 2^38 ticks
//! ```

#![forbid(unsafe_code)]

/// A number of ticks since the wheel's timeline began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tick(pub(crate) u64);

impl Tick {
    /// Later than every deadline.
    pub(crate) const NEVER: Tick = Tick(u64::MAX);

    /// The number of bits of a tick that the packed words hold.
    #[cfg(not(modelled))]
    pub(crate) const LOW_BITS: u32 = 38;
    /// Small enough for a model to cross the window.
    #[cfg(modelled)]
    pub(crate) const LOW_BITS: u32 = 9;

    /// The longest delay in ticks: 4.35 years at 1 ms.
    pub(crate) const RANGE: u64 = (1 << (Self::LOW_BITS - 1)) - 1;

    /// The distance in ticks by which a tick may lie behind the sweep and still be restored: 397
    /// days at 1 ms.
    pub(crate) const PAST: u64 = 1 << (Self::LOW_BITS - 3);

    /// The distance in ticks by which a tick may lie ahead of the sweep and still be restored. The
    /// surplus over [`RANGE`](Tick::RANGE) is for a sweep that lags behind the clock.
    pub(crate) const AHEAD: u64 = (1 << Self::LOW_BITS) - Self::PAST - 1;

    /// The longest rest or step of a sweeper in ticks, even if no timer is armed, so that the
    /// window advances: 99 days at 1 ms. References outside of the slots are checked at least as
    /// often.
    pub(crate) const MAX_REST: u64 = Self::PAST / 4;

    /// The distance in ticks by which a deadline may lie behind the sweep when it is set. The rest
    /// of [`PAST`](Tick::PAST) is for the time until the sweeper visits it.
    const OLDEST: u64 = Self::PAST / 2;

    /// Returns the part of the tick that the packed words hold.
    #[inline]
    pub(crate) const fn low(self) -> u64 {
        self.0 & ((1 << Self::LOW_BITS) - 1)
    }

    /// Returns the tick in the window around `reference` whose low part is `low`.
    #[inline]
    pub(crate) const fn near(low: u64, reference: Tick) -> Tick {
        let base = reference.0.wrapping_sub(Self::PAST);
        Tick(base.wrapping_add(Tick(low.wrapping_sub(base)).low()))
    }

    /// Returns this tick plus `ticks`, at most [`NEVER`](Tick::NEVER).
    #[inline]
    pub(crate) const fn plus(self, ticks: u64) -> Tick {
        Tick(self.0.saturating_add(ticks))
    }

    /// Returns this tick minus `ticks`, at least zero.
    #[inline]
    pub(crate) const fn minus(self, ticks: u64) -> Tick {
        Tick(self.0.saturating_sub(ticks))
    }

    /// Returns the oldest deadline that may be set when the sweep has reached this tick. A deadline
    /// that is long past need not be distinguished from one that has just passed.
    #[inline]
    pub(crate) const fn oldest(self) -> Tick {
        self.minus(Self::OLDEST)
    }

    /// Returns `true` if the deadline is so far behind the sweep that it may leave the window
    /// before the sweeper visits it, which happens once in [`MAX_REST`](Tick::MAX_REST).
    #[inline]
    pub(crate) const fn is_left_behind(self, swept: Tick) -> bool {
        swept.since(self) > Self::PAST - Self::MAX_REST
    }

    /// Returns the number of ticks from `earlier` to this one, or zero if this one is not later.
    #[inline]
    pub(crate) const fn since(self, earlier: Tick) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::Tick;

    #[test]
    fn a_tick_is_restored_from_its_low_part_anywhere_in_the_window() {
        for reference in [0, 1, 1 << 30, (1 << 38) - 1, 1 << 38, (1 << 38) + 77, 1 << 50] {
            let reference = Tick(reference);
            for tick in [
                reference.minus(Tick::PAST),
                reference,
                reference.plus(1),
                reference.plus(Tick::RANGE),
                reference.plus(Tick::AHEAD),
            ] {
                assert_eq!(Tick::near(tick.low(), reference), tick);
            }
        }
    }
}
