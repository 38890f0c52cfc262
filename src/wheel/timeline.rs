//! [`Timeline`]: converts instants and delays into ticks and back, and bounds the life of a wheel.
//!
//! Deadlines are rounded **up** to a tick and the present is rounded **down**, so a timer
//! never fires before its deadline.

#![forbid(unsafe_code)]

use crate::wheel::tick::Tick;
use crate::wheel::wheel_instant::WheelInstant;
use std::time::{Duration, Instant};

/// The wheel's timeline: the position of tick `origin`, the length of a tick, and the lag of the
/// clock. All times are nanoseconds since its start, at most [`END`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeline {
    start: Instant,
    origin: Tick,
    /// The length of a tick.
    nanos: u64,
    lag: u64,
    /// The longest distance from the present to a deadline that is in range at any phase of the
    /// clock.
    reach: u64,
    /// Delays of fewer seconds are in range.
    usual_secs: u64,
    /// The lag, plus the amount that rounds up to a tick.
    rounding_lag: u64,
    per_tick: Divisor,
}

/// Repeated division by the same number, by a multiplication and a shift (Granlund and Montgomery,
/// *Division by invariant integers using multiplication*, PLDI 1994).
#[derive(Clone, Copy, Debug)]
struct Divisor {
    reciprocal: u64,
    shift: u32,
}

impl Divisor {
    /// The exclusive upper bound of dividends.
    const BOUND: u64 = 1 << 63;

    /// `divisor` is at least 2.
    fn new(divisor: u64) -> Self {
        // 2^shift < divisor <= 2^(shift + 1), so the reciprocal, rounded up, has 64 bits. It is too
        // large by less than one. For a dividend below 2^63, the quotient is therefore too large by
        // less than 2^63 / 2^(64 + shift), and that is less than 1 / divisor.
        let shift = (divisor - 1).ilog2();
        let reciprocal = (1_u128 << (64 + shift)) / u128::from(divisor) + 1;
        Self { reciprocal: u64::try_from(reciprocal).unwrap_or(u64::MAX), shift }
    }

    #[inline]
    fn divide(self, number: u64) -> u64 {
        debug_assert!(number < Self::BOUND);
        let product = u128::from(number) * u128::from(self.reciprocal);
        high(product) >> self.shift
    }
}

/// Returns the upper half.
#[allow(clippy::cast_possible_truncation, reason = "it is shifted")]
#[inline]
fn high(product: u128) -> u64 {
    (product >> 64) as u64
}

impl Timeline {
    /// Creates a timeline whose tick `origin` is at `start` and whose ticks are `nanos` ns long, by
    /// a clock that may lag by `lag`.
    pub(crate) fn new(start: Instant, origin: Tick, nanos: u64, lag: Duration) -> Self {
        let reach = nanos.saturating_mul(Tick::RANGE - 1).min(FARTHEST);
        let lag = narrow(lag);
        let (usual_secs, rounding_lag) = (reach.saturating_sub(lag) / NANOS, lag + nanos - 1);
        let per_tick = Divisor::new(nanos);
        Self { start, origin, nanos, lag, reach, usual_secs, rounding_lag, per_tick }
    }

    /// Converts an instant to this timeline. An instant outside of it becomes its start or its end.
    #[inline]
    pub(crate) fn wheel_instant(&self, instant: Instant) -> WheelInstant {
        let elapsed = instant.saturating_duration_since(self.start);
        match elapsed.as_secs() < END / NANOS {
            true => WheelInstant { nanos: whole_nanos(elapsed) },
            false => WheelInstant { nanos: END },
        }
    }

    /// Converts a point on this timeline to an instant.
    #[inline]
    pub(crate) fn read(&self, at: WheelInstant) -> Instant {
        self.start.checked_add(Duration::from_nanos(at.nanos)).unwrap_or(self.start)
    }

    /// Returns `now` plus `delay` (at most [`LIFE`]) and the lag. If `delay` is zero, returns
    /// `now`.
    #[inline]
    pub(crate) fn after(&self, delay: Duration, now: WheelInstant) -> WheelInstant {
        let delay = narrow(delay);
        let lag = if delay > 0 { self.lag } else { 0 };
        WheelInstant { nanos: (now.nanos + delay + lag).min(END) }
    }

    /// Returns `now` plus `delay` and the lag, if the timeline has that point.
    pub(crate) fn checked_after(&self, delay: Duration, now: WheelInstant) -> Option<WheelInstant> {
        let at = self.after(delay, now);
        let lag = if delay.is_zero() { 0 } else { self.lag };
        let whole = delay.saturating_add(Duration::from_nanos(lag));
        (Duration::from_nanos(at.nanos - now.nanos) >= whole).then_some(at)
    }

    /// Returns the first tick at or after `delay` from now, with the lag added, if there is a delay
    /// and it is in range at any phase. Now is within the [`LIFE`] of the wheel.
    #[inline]
    pub(crate) fn tick_after(&self, delay: Duration, now: WheelInstant) -> Option<Tick> {
        if delay.as_secs() >= self.usual_secs {
            return None;
        }
        let delay = whole_nanos(delay);
        let tick = self.origin.0 + self.per_tick.divide(now.nanos + delay + self.rounding_lag);
        (delay > 0).then_some(Tick(tick))
    }

    /// Returns `true` if a deadline lies more than `lag` after `now`, and in range of it at any
    /// phase.
    #[inline]
    pub(crate) fn is_ahead(&self, deadline: WheelInstant, now: WheelInstant, lag: u64) -> bool {
        // One comparison checks both ends of the range, because a difference below zero wraps.
        deadline.nanos.wrapping_sub(now.nanos + lag + 1) < self.reach - lag
    }

    /// Returns the longest delay that is in range at any phase of the clock.
    pub(crate) fn longest_delay(&self) -> Duration {
        Duration::from_nanos(self.reach.saturating_sub(self.lag))
    }

    /// Returns the last tick at or before a time. A sweep at that time may take this tick and no
    /// later one.
    #[inline]
    pub(crate) fn floor(&self, at: WheelInstant) -> Tick {
        self.origin.plus(self.per_tick.divide(at.nanos))
    }

    /// Returns the first tick at or after a deadline.
    #[inline]
    pub(crate) fn ceil(&self, deadline: WheelInstant) -> Tick {
        self.origin.plus(self.per_tick.divide(deadline.nanos + self.nanos - 1))
    }

    /// Returns the point on this timeline of `tick`.
    #[inline]
    pub(crate) fn wheel_instant_of(&self, tick: Tick) -> WheelInstant {
        WheelInstant { nanos: tick.since(self.origin).saturating_mul(self.nanos) }
    }

    /// Rounds a deadline up to a tick.
    #[cfg(feature = "time")]
    #[inline]
    pub(crate) fn round_up(&self, deadline: WheelInstant) -> WheelInstant {
        let ticks = self.per_tick.divide(deadline.nanos + self.nanos - 1);
        WheelInstant { nanos: ticks * self.nanos }
    }

    /// Returns the instant of `tick`.
    #[inline]
    pub(crate) fn instant(&self, tick: Tick) -> Instant {
        self.read(self.wheel_instant_of(tick))
    }

    /// Returns `ticks` as a duration, at most 584 years.
    pub(crate) fn duration(&self, ticks: u64) -> Duration {
        Duration::from_nanos(self.nanos.saturating_mul(ticks))
    }
}

/// How long a wheel accepts timers after it was built: 146 years, in nanoseconds.
pub(crate) const LIFE: u64 = Divisor::BOUND / 2;

/// The end of a timeline. It is so much later than [`LIFE`] that no accepted deadline is
/// beyond it, and a tick can be added to it in a [dividend](Divisor::BOUND).
const END: u64 = Divisor::BOUND - (1 << 42);

/// The longest distance from the present to a deadline, 36 years.
pub(crate) const FARTHEST: u64 = LIFE / 4;

/// The nanoseconds of a second.
const NANOS: u64 = 1_000_000_000;

/// Returns the nanoseconds of a duration, at most [`LIFE`].
#[inline]
fn narrow(duration: Duration) -> u64 {
    if duration.as_secs() < LIFE / NANOS { whole_nanos(duration) } else { LIFE }
}

/// Returns the nanoseconds of a duration that is shorter than the timeline.
#[inline]
fn whole_nanos(duration: Duration) -> u64 {
    duration.as_secs() * NANOS + u64::from(duration.subsec_nanos())
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::{Divisor, END, FARTHEST, LIFE, NANOS, Timeline};
    use crate::clock::ManualClock;
    use crate::wheel::tick::Tick;
    use crate::wheel::wheel_instant::WheelInstant;
    use std::time::Duration;

    fn timeline(nanos: u64) -> Timeline {
        Timeline::new(ManualClock::new().start(), Tick(5), nanos, Duration::ZERO)
    }

    fn at(nanos: u64) -> WheelInstant {
        WheelInstant { nanos }
    }

    #[test]
    fn deadlines_round_up_and_the_present_rounds_down() {
        let line = timeline(1_000_000);
        let between = line.wheel_instant(line.instant(Tick(5)) + Duration::from_nanos(1_500_000));
        assert_eq!((line.ceil(between), line.floor(between)), (Tick(7), Tick(6)));
        let exact = line.wheel_instant_of(Tick(9));
        assert_eq!((line.ceil(exact), line.floor(exact)), (Tick(9), Tick(9)));
        assert_eq!(line.instant(Tick(9)), line.read(exact));
    }

    #[test]
    fn a_delay_and_its_deadline_mean_the_same_tick() {
        let lag = Duration::from_nanos(1_500);
        let line = Timeline::new(ManualClock::new().start(), Tick(5), 1_000, lag);
        for now in [0, 1, 999, 1_000, 77_777, LIFE].map(at) {
            for delay in [1, 499, 500, 501, 1_000, u64::from(u32::MAX)] {
                let delay = Duration::from_nanos(delay);
                let deadline = line.after(delay, now);
                assert_eq!(line.tick_after(delay, now), Some(line.ceil(deadline)));
                assert_eq!(line.read(deadline), line.read(now) + delay + lag);
            }
            assert_eq!(line.after(Duration::ZERO, now), now);
            assert_eq!(line.tick_after(Duration::ZERO, now), None);
            assert_eq!(line.tick_after(Duration::MAX, now), None);
        }
    }

    #[test]
    fn a_deadline_is_ahead_of_a_reading_beyond_its_lag_and_within_range() {
        let line = timeline(1_000_000);
        let now = at(5_000);
        let ahead = |nanos: u64, lag| line.is_ahead(at(now.nanos.wrapping_add(nanos)), now, lag);
        for lag in [0, 100] {
            assert!([lag + 1, line.reach].iter().all(|&nanos| ahead(nanos, lag)));
            let not = [0, lag, line.reach + 1, u64::MAX, u64::MAX - 4_999];
            assert!(!not.iter().any(|&nanos| ahead(nanos, lag)));
        }
    }

    #[test]
    fn an_instant_outside_of_the_timeline_is_its_start_or_its_end() {
        let line = timeline(1_000);
        let before = line.instant(Tick(5)).checked_sub(Duration::from_secs(1)).unwrap();
        assert_eq!(line.wheel_instant(before), at(0));
        let far = line.instant(Tick(5)) + Duration::from_secs(1 << 40);
        assert_eq!(line.wheel_instant(far), at(END));
    }

    /// Wherever the clock stands in the life of a wheel, no sum overflows, and no deadline is
    /// clamped.
    #[test]
    fn the_longest_delay_fits_the_timeline() {
        for tick in [1_000, 1_000_000, 3_600_000_000_000] {
            let lag = Duration::from_secs(9);
            let line = Timeline::new(ManualClock::new().start(), Tick(1 << 60), tick, lag);
            for now in [0, NANOS, LIFE].map(at) {
                let longest = line.longest_delay();
                let deadline = line.after(longest, now);
                let ahead = deadline.nanos - now.nanos;
                assert!(ahead <= FARTHEST && deadline.nanos < END);
                assert!(line.ceil(deadline).since(line.floor(now)) <= Tick::RANGE);
                let whole = Duration::from_secs(longest.as_secs() - 1);
                assert_eq!(line.tick_after(whole, now), Some(line.ceil(line.after(whole, now))));
                assert!(line.after(Duration::MAX, now) > deadline);
            }
            assert!(line.ceil(at(END)) >= line.floor(at(END)));
            assert_eq!(line.duration(3), Duration::from_nanos(3 * tick));
        }
    }

    #[test]
    fn a_divisor_divides() {
        for divisor in [2, 3, 5, 1_000, 1 << 20, 1_000_000, (1 << 20) + 1, 3_600_000_000_000] {
            let by_it = Divisor::new(divisor);
            let multiples = [0, 1, 2, 77, Divisor::BOUND / divisor].map(|times| times * divisor);
            for number in multiples.into_iter().flat_map(|at| [at.saturating_sub(1), at, at + 1]) {
                if number < Divisor::BOUND {
                    assert_eq!(by_it.divide(number), number / divisor, "{number} / {divisor}");
                }
            }
            assert_eq!(by_it.divide(Divisor::BOUND - 1), (Divisor::BOUND - 1) / divisor);
        }
    }
}
