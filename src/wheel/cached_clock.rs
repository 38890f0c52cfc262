//! A thread's last reading of the clock, which it may reuse for a bounded time.
//!
//! A precise reading costs more than the rest of a plain operation. Besides its own time, the
//! ordered read of the processor's counter keeps the thread from overlapping the cache misses of
//! neighbouring operations. Each thread therefore keeps its last reading together with the
//! [counter] from just before it, and reuses the reading until the counter has advanced by as many
//! [cycles] as it makes in [`TERM`]. Such a reading lags the clock by at most [`MAX_LAG`]. The
//! wheel adds this to every delay, as it adds the lag of the clock itself, so no timer fires early.
//!
//! Readings are reused only where the kernel computes its own clock from the counter, because a
//! wrong counter would then make the clock wrong too. Each new reading is compared with the last
//! one and the counter. If the clock has advanced by more than [`MAX_LAG`] in the cycles of one
//! term, the thread stops reusing readings. (The counter of a virtual machine may be slower than it
//! claims, and the kernel may switch to another clock.) The first reading is reused without that
//! check, since there is nothing to compare it with.

#![forbid(unsafe_code)]

use crate::counter;
use crate::sync::{AtomicU64, Relaxed};
use crate::wheel::wheel_instant::WheelInstant;
use std::time::Duration;

/// The most by which a reused reading may lag the clock.
pub(crate) const MAX_LAG: Duration = Duration::from_micros(100);

/// [`MAX_LAG`] in nanoseconds.
pub(crate) const MAX_LAG_NANOS: u64 = MAX_LAG.subsec_nanos() as u64;

/// The longest time for which a reading is reused, by the rate of the counter. The rest of
/// [`MAX_LAG`] covers the time between a reading of the clock and one of the counter.
const TERM: Duration = Duration::from_micros(80);

/// Returns the number of cycles for which a reading is reused. Zero if there is no counter or it is
/// too slow.
pub(crate) fn cycles() -> u64 {
    cycles_at(counter::rate())
}

/// Returns the number of whole cycles in [`TERM`] at this rate per second.
fn cycles_at(rate: u64) -> u64 {
    let cycles = u128::from(rate) * TERM.as_nanos() / Duration::from_secs(1).as_nanos();
    u64::try_from(cycles).unwrap_or(0)
}

/// One thread's last reading. No other thread uses it.
#[derive(Debug)]
pub(crate) struct CachedReading {
    /// The number of cycles for which it is reused. Zero if readings are not reused.
    lasts: AtomicU64,
    /// The counter just before the reading.
    since: AtomicU64,
    nanos: AtomicU64,
}

impl CachedReading {
    /// Creates a cache without a reading. Readings are reused for `lasts` cycles, or never if that
    /// is zero.
    ///
    /// The absent reading is as old as the counter can tell. A reading of the counter that follows
    /// may be somewhat less than this one, because processors do not order the two and a thread may
    /// move to another core.
    pub(crate) fn new(lasts: u64) -> Self {
        let since = AtomicU64::new(counter::read().wrapping_add(FARTHEST));
        Self { lasts: AtomicU64::new(lasts), since, nanos: AtomicU64::new(UNREAD) }
    }

    /// Returns the thread's last reading if it is still valid. Otherwise calls `read` and keeps the
    /// result for reuse if `may_last`.
    #[inline]
    pub(crate) fn reading(
        &self,
        read: impl FnOnce() -> WheelInstant,
        may_last: impl FnOnce(WheelInstant) -> bool,
    ) -> WheelInstant {
        self.reading_by(counter::read, read, may_last)
    }

    /// Returns the thread's last reading if it is still valid. In a wheel whose threads do not
    /// reuse readings none is, and the counter is not read, because in a virtual machine that may
    /// cost a call of the host.
    #[inline]
    pub(crate) fn last_reading(&self) -> Option<WheelInstant> {
        let lasts = self.lasts.load(Relaxed);
        (lasts > 0 && self.is_valid_at(counter::read(), lasts)).then(|| self.nanos())
    }

    #[inline]
    fn nanos(&self) -> WheelInstant {
        // Relaxed, as everywhere in this file: only the thread that holds the thread id comes here,
        // and it acquired the id from the last owner by an exchange.
        WheelInstant { nanos: self.nanos.load(Relaxed) }
    }

    #[inline]
    fn is_valid_at(&self, cycles: u64, lasts: u64) -> bool {
        cycles.wrapping_sub(self.since.load(Relaxed)) < lasts
    }

    #[inline]
    fn reading_by(
        &self,
        counter: impl Fn() -> u64,
        read: impl FnOnce() -> WheelInstant,
        may_last: impl FnOnce(WheelInstant) -> bool,
    ) -> WheelInstant {
        let lasts = self.lasts.load(Relaxed);
        if lasts == 0 {
            return read();
        }
        if self.is_valid_at(counter(), lasts) {
            return self.nanos();
        }
        let (cycles, now) = (counter(), read());
        let outrun = |cycles| self.is_outrun(now, cycles, lasts);
        if outrun(cycles) && outrun(counter()) {
            self.lasts.store(0, Relaxed);
        } else if may_last(now) {
            self.nanos.store(now.nanos, Relaxed);
            self.since.store(cycles, Relaxed);
        }
        now
    }

    /// Returns `true` if the clock has advanced by more, since the last reading, than the counter
    /// permits. The counter of the last reading was read before it. If `cycles` was read after
    /// `now`, the answer is certain. If it was read before `now`, the thread may have been delayed
    /// in between.
    fn is_outrun(&self, now: WheelInstant, cycles: u64, lasts: u64) -> bool {
        let last = self.nanos.load(Relaxed);
        let elapsed = now.nanos.saturating_sub(last);
        last != UNREAD && outruns(elapsed, cycles.wrapping_sub(self.since.load(Relaxed)), lasts)
    }
}

/// Returns `true` if `nanos` is more than [`MAX_LAG`] for each term of `lasts` cycles in `cycles`.
fn outruns(nanos: u64, cycles: u64, lasts: u64) -> bool {
    u128::from(nanos) * u128::from(lasts) > u128::from(cycles) * MAX_LAG.as_nanos()
}

/// The value of a reading before the first one.
const UNREAD: u64 = 0;

/// The number of cycles from an absent reading to the count at its creation, and on to the counts
/// at which it would seem valid.
const FARTHEST: u64 = 1 << 63;

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::{CachedReading, FARTHEST, MAX_LAG, cycles, cycles_at, outruns};
    use crate::clock::{Clock, MonotonicClock};
    use crate::counter;
    use crate::wheel::wheel_instant::WheelInstant;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::{Duration, Instant};

    /// The cycles of a term, in tests that bring their own counter.
    const CYCLES: u64 = 1 << 15;

    /// Returns `true` if the counter can be trusted. Arm's reports its rate, whatever the clock is.
    fn is_trusted() -> bool {
        cfg!(target_arch = "aarch64") && counter::rate() > 0 || counter::is_the_clocks()
    }

    /// Measures the time for which a reading is reused, by a count over 20 ms. The result is too
    /// long if the thread was delayed between a reading of the clock and one of the counter.
    fn measured_term() -> Duration {
        let (begun, first) = (MonotonicClock.now(), counter::read());
        while MonotonicClock.now().duration_since(begun) < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        let counted = counter::read().wrapping_sub(first);
        let elapsed = MonotonicClock.now().duration_since(begun);
        let nanos = elapsed.as_nanos() * u128::from(cycles()) / u128::from(counted);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    #[test]
    fn a_term_is_no_longer_than_what_is_added_for_it() {
        if is_trusted() {
            let measured = (0..3).map(|_| measured_term()).min().unwrap();
            assert!(measured < MAX_LAG, "{measured:?} by the true counter");
        }
    }

    /// However long the thread stalls between two lines, a reused reading was no older than
    /// [`MAX_LAG`] when the counter was read, and the clock was read before that.
    #[test]
    fn a_reused_reading_is_no_older_than_its_bound() {
        if !is_trusted() {
            return;
        }
        let (start, clock) = (MonotonicClock.now(), CachedReading::new(cycles()));
        let since = |now: Instant| u64::try_from(now.duration_since(start).as_nanos()).unwrap() + 1;
        let mut used_again = 0;
        while used_again < 10_000 {
            let before = since(MonotonicClock.now());
            let read = || WheelInstant { nanos: since(MonotonicClock.now()) };
            let reading = clock.reading(read, |_| true).nanos;
            used_again += u32::from(reading < before);
            assert!(before.saturating_sub(reading) < 100_000, "{reading} at {before}");
            assert!(clock.lasts.load(Relaxed) > 0, "the counter is slower than it says");
        }
    }

    #[test]
    fn a_term_of_any_counter_is_shorter_than_what_is_added_for_it() {
        for rate in [1_000_000, 24_000_000, 62_500_000, 1_000_000_000, u64::from(u32::MAX)] {
            let cycles = cycles_at(rate);
            let nanos = u128::from(cycles) * 1_000_000_000 / u128::from(rate);
            assert!((79_000..=80_000).contains(&nanos), "{cycles} at {rate} a second: {nanos} ns");
        }
        assert_eq!([0, 1, 12_499].map(cycles_at), [0; 3], "too slow to tell");
    }

    #[test]
    fn a_reading_is_reused_until_its_term_ends() {
        let clock = CachedReading::new(CYCLES);
        let start = clock.since.load(Relaxed).wrapping_add(FARTHEST);
        let reading = |after: u64, nanos| {
            let cycles = start.wrapping_add(after);
            clock.reading_by(|| cycles, || WheelInstant { nanos }, |_| true).nanos
        };
        assert_eq!(reading(0, 10), 10);
        assert_eq!(reading(CYCLES - 1, 11), 10);
        assert_eq!(reading(CYCLES, 12), 12);
        assert_eq!(reading(2 * CYCLES - 1, 13), 12);
        // A counter that has gone back, because it is that of another core or the machine has
        // slept.
        assert_eq!(reading(CYCLES - 1, 14), 14);
    }

    #[test]
    fn an_absent_reading_is_never_valid() {
        for behind in [0, 1, CYCLES / 4, CYCLES / 2] {
            let clock = CachedReading::new(CYCLES);
            let count = counter::read().wrapping_sub(behind);
            let now = clock.reading_by(|| count, || WheelInstant { nanos: 7 }, |_| true);
            assert_eq!(now.nanos, 7, "{behind} cycles before the present count");
        }
    }

    #[test]
    fn a_reading_that_may_not_last_is_not_reused() {
        let clock = CachedReading::new(CYCLES);
        for nanos in 1..4 {
            assert_eq!(clock.reading(|| WheelInstant { nanos }, |_| false).nanos, nanos);
        }
    }

    #[test]
    fn a_clock_that_outruns_the_counter_is_cached_no_more() {
        let clock = CachedReading::new(CYCLES);
        let start = clock.since.load(Relaxed).wrapping_add(FARTHEST);
        let reading = |counts: [u64; 2], nanos| {
            // The first two calls, before the clock is read, return another count than later ones.
            let counted = std::cell::Cell::new(0);
            let counter = || {
                counted.set(counted.get() + 1);
                start.wrapping_add(counts[usize::from(counted.get() > 2)])
            };
            clock.reading_by(counter, || WheelInstant { nanos }, |_| true).nanos
        };
        let lasts = || clock.lasts.load(Relaxed) > 0;
        assert_eq!(reading([0, 0], 50), 50);
        // At 1 GHz, with a long delay between the counter and the clock.
        assert_eq!(reading([CYCLES, CYCLES], CYCLES + 50), CYCLES + 50);
        assert_eq!(reading([2 * CYCLES, 9 * CYCLES], 8 * CYCLES), 8 * CYCLES);
        // The counter goes back, and the clock does not.
        assert_eq!(reading([0, 0], 9 * CYCLES), 9 * CYCLES);
        assert!(lasts());
        // A counter of 0.1 GHz.
        assert_eq!(reading([CYCLES, CYCLES], 19 * CYCLES), 19 * CYCLES);
        assert!(!lasts());
        assert_eq!(reading([CYCLES, CYCLES], 20 * CYCLES), 20 * CYCLES);
    }

    #[test]
    fn how_much_time_a_counter_allows_for() {
        let lag = u64::try_from(MAX_LAG.as_nanos()).unwrap();
        for times in [1, 7, 1 << 40] {
            assert!(!outruns(times * lag, times * CYCLES, CYCLES));
            assert!(outruns(times * lag + 1, times * CYCLES, CYCLES));
        }
        assert!(!outruns(0, 0, CYCLES) && outruns(1, 0, CYCLES));
        assert!(!outruns(u64::MAX, u64::MAX, CYCLES));
    }

    #[test]
    fn a_thread_that_caches_nothing_reads_each_time() {
        let clock = CachedReading::new(0);
        for nanos in 1..4 {
            assert_eq!(clock.reading(|| WheelInstant { nanos }, |_| true).nanos, nanos);
        }
    }
}
