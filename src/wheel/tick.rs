//! Time in ticks: [`Tick`], and [`Timeline`], which converts instants into ticks and back.
//!
//! Deadlines are rounded **up** to a tick and the present is rounded **down**, so a timer whose
//! tick has come is never early. A [`Tick`] is absolute and never wraps. The packed words hold its
//! low [`Tick::LOW_BITS`] bits. [`Tick::near`] restores the rest from a tick known to be close:
//!
//! ```text
//!            PAST ticks                 AHEAD ticks
//!   ├─────────────────────────┼──────────────────────────────────────┤
//!                          swept                      one window = 2^38 ticks
//! ```

#![forbid(unsafe_code)]

use crate::wheel::wheel_instant::WheelInstant;
use std::time::{Duration, Instant};

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

/// The wheel's timeline: the position of tick `origin`, the length of a tick, and the lag of the
/// clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeline {
    start: Instant,
    origin: Tick,
    nanos: u64,
    lag: Duration,
    /// The lag in nanoseconds, for [`fast_tick_after`](Self::fast_tick_after).
    narrow_lag: u64,
    /// The number of nanoseconds from tick 0 to `start`. Zero if that is too long.
    before_start: u64,
    /// The same, plus the amount that rounds up to a tick.
    rounding: u64,
    /// The same, plus the lag.
    rounding_lag: u64,
    /// Delays of fewer seconds are for [`fast_tick_after`](Self::fast_tick_after), because together
    /// with the lag they are in range.
    fast_delay_secs: u64,
    /// The longest distance in nanoseconds for [`fast_tick_ahead`](Self::fast_tick_ahead). It is
    /// one tick less than the range, and at most a [`PART`], or zero.
    longest: u64,
    /// The same as `fast_delay_secs` in a wheel whose threads reuse readings of the clock, and zero
    /// in others. One check of a delay thus tells both.
    reusing_delay_secs: u64,
    /// The length of the range of distances for [`is_ahead_of_reused`](Self::is_ahead_of_reused),
    /// which is empty in a wheel whose threads do not reuse readings.
    reusing_range: u64,
    /// The least distance in that range.
    reusing_least: u64,
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
        let narrow_lag = narrow(lag).map_or(PART, |lag| lag.min(PART));
        let before_start = origin.0.saturating_mul(nanos);
        // If tick 0 is too far back, no case is on the fast path.
        let (before_start, longest) = match before_start <= PART {
            true => (before_start, nanos.saturating_mul(Tick::RANGE - 1).min(PART)),
            false => (0, 0),
        };
        let rounding = before_start + nanos - 1;
        Self {
            start,
            origin,
            nanos,
            lag,
            narrow_lag,
            before_start,
            rounding,
            rounding_lag: rounding + narrow_lag,
            fast_delay_secs: longest.saturating_sub(narrow_lag) / NANOS,
            longest,
            reusing_delay_secs: 0,
            reusing_range: 0,
            reusing_least: 0,
            per_tick: Divisor::new(nanos),
        }
    }

    /// Makes this the timeline of a wheel whose threads reuse readings of the clock that lag by at
    /// most `lag` nanoseconds.
    pub(crate) fn reusing_readings(self, lag: u64) -> Self {
        let Self { fast_delay_secs, longest, .. } = self;
        let reusing_range = longest.saturating_sub(lag);
        Self { reusing_delay_secs: fast_delay_secs, reusing_range, reusing_least: lag + 1, ..self }
    }

    /// Converts an instant to this timeline. An instant before its start becomes its start.
    #[inline]
    pub(crate) fn wheel_instant(&self, instant: Instant) -> WheelInstant {
        let Some(elapsed) = instant.checked_duration_since(self.start) else {
            return WheelInstant { nanos: 0 };
        };
        // Compared with a constant that an instruction can hold, of 68 years.
        if elapsed.as_secs() > u64::from(u32::MAX >> 1) {
            return far_wheel_instant(elapsed);
        }
        WheelInstant { nanos: elapsed.as_secs() * NANOS + u64::from(elapsed.subsec_nanos()) }
    }

    /// Converts a point on this timeline to an instant.
    #[inline]
    pub(crate) fn read(&self, at: WheelInstant) -> Instant {
        self.start.checked_add(Duration::from_nanos(at.nanos)).unwrap_or(self.start)
    }

    /// The fast path by delay. Returns the first tick at or after `delay` from now, with the lag
    /// added. Uses only integers. Applies to a delay that is not zero and definitely in range, at a
    /// time that is not absurd.
    #[inline]
    pub(crate) fn fast_tick_after(&self, delay: Duration, now: WheelInstant) -> Option<Tick> {
        self.tick_at(now.nanos + self.plain_nanos(delay)? + self.rounding_lag)
    }

    /// The variant of [`fast_tick_after`](Self::fast_tick_after) for a delay of so many
    /// [plain](Self::reusing_plain_nanos) nanoseconds, from a reading that is reused. Such a
    /// reading is not absurd (see [`farthest`](Self::farthest)).
    #[inline]
    pub(crate) fn tick_after_reused(&self, nanos: u64, now: WheelInstant) -> Tick {
        Tick(self.per_tick.divide(now.nanos + nanos + self.rounding_lag))
    }

    /// Returns `true` if a deadline is definitely in the future, by a reading that may be reused
    /// and lag, and in range of it. In a wheel whose threads do not reuse readings none is.
    #[inline]
    pub(crate) fn is_ahead_of_reused(&self, deadline: WheelInstant, now: WheelInstant) -> bool {
        // One comparison checks both ends of the range, because a difference below zero wraps.
        let ahead = deadline.nanos.wrapping_sub(now.nanos);
        ahead.wrapping_sub(self.reusing_least) < self.reusing_range
    }

    /// Returns the first tick at or after a deadline that is
    /// [ahead](Self::is_ahead_of_reused) of a reading.
    #[inline]
    pub(crate) fn tick_at_reused(&self, deadline: WheelInstant) -> Tick {
        Tick(self.per_tick.divide(deadline.nanos + self.rounding))
    }

    /// Returns the nanoseconds of a delay that is not zero and definitely in range.
    #[inline]
    pub(crate) fn plain_nanos(&self, delay: Duration) -> Option<u64> {
        plain_nanos(delay, self.fast_delay_secs)
    }

    /// As [`plain_nanos`](Self::plain_nanos), in a wheel whose threads reuse readings of the clock.
    /// In others there are none.
    #[inline]
    pub(crate) fn reusing_plain_nanos(&self, delay: Duration) -> Option<u64> {
        plain_nanos(delay, self.reusing_delay_secs)
    }

    /// Returns the point on this timeline that is `delay` from now, with the lag added. Without a
    /// delay that is now itself.
    #[inline]
    pub(crate) fn wheel_instant_after(&self, delay: Duration, now: WheelInstant) -> WheelInstant {
        match self.plain_nanos(delay) {
            Some(nanos) => WheelInstant { nanos: (now.nanos + nanos + self.narrow_lag).min(LAST) },
            None => self.wheel_instant_after_slow(delay, now),
        }
    }

    /// The variant of [`wheel_instant_after`](Self::wheel_instant_after) for a delay of so many
    /// [plain](Self::reusing_plain_nanos) nanoseconds, from a reading that is reused.
    #[inline]
    pub(crate) fn wheel_instant_after_reused(&self, nanos: u64, now: WheelInstant) -> WheelInstant {
        WheelInstant { nanos: now.nanos + nanos + self.narrow_lag }
    }

    #[cold]
    fn wheel_instant_after_slow(&self, delay: Duration, now: WheelInstant) -> WheelInstant {
        let far = WheelInstant { nanos: LAST };
        self.deadline(delay, now).map_or(far, |deadline| self.wheel_instant(deadline))
    }

    /// Returns the number of nanoseconds from now to a deadline, or `None` if it has passed or the
    /// number does not fit.
    #[inline]
    pub(crate) fn ahead(&self, deadline: Instant, now: WheelInstant) -> Option<u64> {
        let nanos = narrow(deadline.saturating_duration_since(self.start))?;
        nanos.checked_sub(now.nanos).filter(|&ahead| ahead > 0)
    }

    /// The fast path by deadline. Returns the first tick at or after a deadline that lies so many
    /// nanoseconds after now, at least one. Unlike [`fast_tick_after`](Self::fast_tick_after), it
    /// adds no lag.
    #[inline]
    pub(crate) fn fast_tick_ahead(&self, ahead: u64, now: WheelInstant) -> Option<Tick> {
        debug_assert!(ahead > 0);
        if ahead > self.longest {
            return None;
        }
        self.tick_at(now.nanos + ahead + self.rounding)
    }

    /// Returns a tick that no deadline in range of now exceeds, at a time that is not absurd: what
    /// is in range of it then stays below the [bound](Divisor::BOUND) of dividends.
    pub(crate) fn farthest(&self, now: WheelInstant) -> Option<Tick> {
        if self.longest == 0 || now.nanos >= LAST_REUSED {
            return None;
        }
        self.tick_at(now.nanos + self.before_start).map(|tick| tick.plus(Tick::RANGE + 1))
    }

    /// Returns the last tick at or before so many nanoseconds since tick 0, at a time that is not
    /// absurd.
    #[inline]
    fn tick_at(&self, nanos: u64) -> Option<Tick> {
        (nanos < Divisor::BOUND).then(|| Tick(self.per_tick.divide(nanos)))
    }

    /// Returns the deadline `delay` from now, with the lag added. Without a delay that is now
    /// itself.
    pub(crate) fn deadline(&self, delay: Duration, now: WheelInstant) -> Option<Instant> {
        if delay.is_zero() {
            return Some(self.read(now));
        }
        self.read(now).checked_add(delay.checked_add(self.lag)?)
    }

    /// Returns the longest delay that is in range at any phase of the clock. Deadlines are rounded
    /// up after the lag has been added.
    pub(crate) fn longest_delay(&self) -> Duration {
        self.duration(Tick::RANGE - 1).saturating_sub(self.lag)
    }

    /// Returns the last tick at or before `now`. A sweep at `now` may take this tick and no later
    /// one.
    #[inline]
    pub(crate) fn floor(&self, now: Instant) -> Tick {
        Tick(self.origin.0 + self.split(now).0)
    }

    /// Returns the first tick at or after `deadline`, or [`Tick::NEVER`] if it is out of any range.
    #[inline]
    pub(crate) fn ceil(&self, deadline: Instant) -> Tick {
        let (ticks, exact) = self.split(deadline);
        self.origin.plus(ticks).plus(u64::from(!exact))
    }

    /// Returns the instant of `tick`.
    #[inline]
    pub(crate) fn instant(&self, tick: Tick) -> Instant {
        let nanos = u128::from(tick.since(self.origin)) * u128::from(self.nanos);
        let seconds = u64::try_from(nanos / u128::from(NANOS)).unwrap_or(u64::MAX);
        let rest = u32::try_from(nanos % u128::from(NANOS)).unwrap_or(0);
        let elapsed = Duration::new(seconds, rest);
        self.start.checked_add(elapsed).unwrap_or(self.start)
    }

    /// Returns the point on this timeline of `tick`.
    #[cfg(any(feature = "future", modelled))]
    #[inline]
    pub(crate) fn wheel_instant_of(&self, tick: Tick) -> WheelInstant {
        WheelInstant { nanos: tick.since(self.origin).saturating_mul(self.nanos) }
    }

    /// Returns `ticks` as a duration, at most [`Duration::MAX`].
    pub(crate) fn duration(&self, ticks: u64) -> Duration {
        Duration::from_nanos(self.nanos)
            .checked_mul(u32::try_from(ticks).unwrap_or(u32::MAX))
            .filter(|_| u32::try_from(ticks).is_ok())
            .unwrap_or_else(|| self.instant(self.origin.plus(ticks)) - self.start)
    }

    /// Returns the number of whole ticks from the origin to `at`, and `true` if `at` is exactly
    /// that tick.
    #[inline]
    fn split(&self, at: Instant) -> (u64, bool) {
        let elapsed = at.saturating_duration_since(self.start);
        if let Some(nanos) = narrow(elapsed) {
            (nanos / self.nanos, nanos % self.nanos == 0)
        } else {
            let (nanos, tick) = (elapsed.as_nanos(), u128::from(self.nanos));
            let ticks = u64::try_from(nanos / tick).unwrap_or(u64::MAX);
            (ticks, nanos % tick == 0)
        }
    }
}

/// The last time that a clock may show, in nanoseconds. Four [`PART`]s can be added to it: for the
/// distance ahead, the lag, the time before the start, and a tick.
const LAST: u64 = u64::MAX - 4 * PART;

/// The exclusive upper bound of readings that are reused: 146 years, in nanoseconds. Four [`PART`]s
/// can be added to one that is not greater, and the sum is a dividend.
const LAST_REUSED: u64 = Divisor::BOUND - 4 * PART;

/// 36 years, in nanoseconds.
const PART: u64 = Divisor::BOUND / 8;

/// The nanoseconds of a second.
const NANOS: u64 = 1_000_000_000;

/// Returns the nanoseconds of a delay that is not zero and has fewer than `secs` seconds.
#[inline]
fn plain_nanos(delay: Duration, secs: u64) -> Option<u64> {
    if delay.as_secs() >= secs {
        return None;
    }
    let nanos = delay.as_secs() * NANOS + u64::from(delay.subsec_nanos());
    (nanos > 0).then_some(nanos)
}

/// Returns the instant `elapsed` after the start, or the last one.
#[cold]
fn far_wheel_instant(elapsed: Duration) -> WheelInstant {
    WheelInstant { nanos: narrow(elapsed).map_or(LAST, |nanos| nanos.min(LAST)) }
}

/// Returns the nanoseconds of a duration if they fit a `u64`, whose arithmetic is cheap.
#[inline]
fn narrow(duration: Duration) -> Option<u64> {
    let fits = duration.as_secs() < u64::MAX / NANOS;
    fits.then(|| duration.as_secs() * NANOS + u64::from(duration.subsec_nanos()))
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::{Divisor, LAST_REUSED, Tick, Timeline};
    use crate::clock::ManualClock;
    use crate::wheel::wheel_instant::WheelInstant;
    use std::time::Duration;

    fn timeline(nanos: u64) -> Timeline {
        Timeline::new(ManualClock::new().start(), Tick(5), nanos, Duration::ZERO)
    }

    #[test]
    fn deadlines_round_up_and_the_present_rounds_down() {
        let line = timeline(1_000_000);
        let at = line.instant(Tick(5)) + Duration::from_nanos(1_500_000);
        assert_eq!(line.ceil(at), Tick(7));
        assert_eq!(line.floor(at), Tick(6));
        let exact = line.instant(Tick(9));
        assert_eq!((line.ceil(exact), line.floor(exact)), (Tick(9), Tick(9)));
    }

    #[test]
    fn a_delay_and_its_deadline_mean_the_same_tick() {
        let lag = Duration::from_nanos(1_500);
        let line = Timeline::new(ManualClock::new().start(), Tick(5), 1_000, lag);
        let reusing = line.reusing_readings(1_500);
        for past in [0, 1, 999, 1_000, 77_777] {
            let now = line.wheel_instant(line.instant(Tick(5)) + Duration::from_nanos(past));
            for delay in [1, 499, 500, 501, 1_000, u64::from(u32::MAX)] {
                let delay = Duration::from_nanos(delay);
                let deadline = line.deadline(delay, now).unwrap();
                assert_eq!(line.fast_tick_after(delay, now), Some(line.ceil(deadline)));
                let nanos = reusing.reusing_plain_nanos(delay).unwrap();
                assert_eq!(reusing.tick_after_reused(nanos, now), line.ceil(deadline));
                let at = reusing.wheel_instant_after_reused(nanos, now);
                assert_eq!(at, line.wheel_instant(deadline));
                assert_eq!(reusing.tick_at_reused(at), line.ceil(deadline));
                assert_eq!(deadline, line.read(now) + delay + lag);
            }
            assert_eq!(line.fast_tick_after(Duration::ZERO, now), None);
            assert_eq!(line.fast_tick_after(Duration::MAX, now), None);
        }
    }

    #[test]
    fn a_deadline_is_ahead_of_a_reading_beyond_its_lag_and_within_range() {
        let line = timeline(1_000_000);
        let reusing = line.reusing_readings(100);
        let now = WheelInstant { nanos: 5_000 };
        let ahead = |line: Timeline, nanos: u64| {
            line.is_ahead_of_reused(WheelInstant { nanos: now.nanos.wrapping_add(nanos) }, now)
        };
        assert!([101, line.longest].iter().all(|&nanos| ahead(reusing, nanos)));
        let not = [0, 1, 100, line.longest + 1, u64::MAX, u64::MAX - 4_999];
        assert!(!not.iter().any(|&nanos| ahead(reusing, nanos)));
        assert!(![101, line.longest].iter().any(|&nanos| ahead(line, nanos)), "it reuses none");
        assert_eq!(line.reusing_plain_nanos(Duration::from_secs(1)), None);
        assert_eq!(reusing.reusing_plain_nanos(Duration::from_secs(1)), Some(1_000_000_000));
    }

    #[test]
    fn a_reading_near_the_end_of_the_numbers_is_not_reused() {
        let line = timeline(1_000);
        let farthest = |nanos| line.farthest(WheelInstant { nanos });
        assert!(farthest(LAST_REUSED - 1).is_some());
        assert_eq!(farthest(LAST_REUSED), None);
    }

    #[test]
    fn an_instant_before_the_start_is_the_first_tick() {
        let line = timeline(1_000);
        let before = line.instant(Tick(5)).checked_sub(Duration::from_secs(1)).unwrap();
        assert_eq!(line.ceil(before), Tick(5));
    }

    #[test]
    fn far_instants_do_not_overflow() {
        let line = timeline(2);
        let far = line.instant(Tick(5)) + Duration::from_secs(1 << 40);
        assert!(line.ceil(far) > Tick(1 << 60));
        assert_eq!(line.duration(3), Duration::from_nanos(6));
        assert_eq!(line.duration(1 << 40), Duration::from_nanos(1 << 41));
        let absurd = line.wheel_instant(far);
        assert_eq!(line.fast_tick_after(Duration::from_secs(1), absurd), None);
        assert_eq!(line.fast_tick_ahead(1, absurd), None);
        assert_eq!(line.farthest(absurd), None);
    }

    #[test]
    fn where_tick_0_lies_too_far_back_no_case_is_a_common_one() {
        let (start, second) = (ManualClock::new().start(), Duration::from_secs(1));
        let line = Timeline::new(start, Tick(1 << 60), 1_000_000, Duration::ZERO);
        let now = line.wheel_instant(start);
        assert_eq!((line.fast_tick_after(second, now), line.fast_tick_ahead(1, now)), (None, None));
        assert_eq!(line.farthest(now), None);
        assert_eq!(line.ceil(start + second), Tick((1 << 60) + 1_000));
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
