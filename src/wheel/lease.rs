//! Leases: a reading of the clock that its thread may use again for a moment.
//!
//! A precise reading costs a plain operation more than the wheel does: besides its own time, the
//! ordered read of the processor's counter keeps it from waiting for the memory of neighbouring
//! operations at once. So each caller keeps its last reading, with the [counter]
//! from just before it, and uses it again until the counter has gone on by so many
//! [cycles] as it makes in [`TERM`]. Such a reading lies behind the truth by at most
//! [`LEASE`], which is added to every delay as the clock's own lag is: nothing fires early.
//!
//! Readings are leased only where the kernel computes its own clock from the counter: if the
//! counter went wrong, the clock would too. Whenever a reading is renewed, the two of them are
//! compared with the counter. Should the clock have gone on by more than [`LEASE`] in the cycles of
//! one lease (the counter of a virtual machine may be slower than it says, and the kernel may turn
//! to another clock), the caller leases no more. Its first lease is taken on trust: there is
//! nothing to compare it with.

#![forbid(unsafe_code)]

use crate::counter;
use crate::sync::{AtomicU64, Relaxed};
use crate::wheel::wheel_instant::WheelInstant;
use std::time::Duration;

/// How far a leased reading may lie behind the clock.
pub(crate) const LEASE: Duration = Duration::from_micros(100);

/// How long a lease lasts at most, by the rate of the counter. The rest of [`LEASE`] is for what
/// two readings of clock and counter may differ by.
const TERM: Duration = Duration::from_micros(80);

/// How many cycles a lease lasts; none, where there is no counter or it is too slow.
pub(crate) fn cycles() -> u64 {
    cycles_at(counter::rate())
}

/// How many whole cycles there are in [`TERM`], at so many a second.
fn cycles_at(rate: u64) -> u64 {
    let cycles = u128::from(rate) * TERM.as_nanos() / Duration::from_secs(1).as_nanos();
    u64::try_from(cycles).unwrap_or(0)
}

/// One caller's last reading; only its thread uses it.
#[derive(Debug)]
pub(crate) struct Lease {
    /// How many cycles it lasts; none, if readings are not used again.
    lasts: AtomicU64,
    /// The counter just before the reading.
    since: AtomicU64,
    nanos: AtomicU64,
}

impl Lease {
    /// Readings are used again for so many cycles, from the next one on; or never.
    pub(crate) fn new(lasts: u64) -> Self {
        let since = AtomicU64::new(counter::read().wrapping_sub(lasts));
        Self { lasts: AtomicU64::new(lasts), since, nanos: AtomicU64::new(UNREAD) }
    }

    /// The caller's last reading, if its lease lasts, or the one that `read` makes; that may be
    /// used again if `may_last`.
    #[inline]
    pub(crate) fn reading(
        &self,
        read: impl FnOnce() -> WheelInstant,
        may_last: impl FnOnce(WheelInstant) -> bool,
    ) -> WheelInstant {
        self.reading_by(counter::read, read, may_last)
    }

    /// The caller's last reading, if its lease lasts.
    #[inline]
    pub(crate) fn last_reading(&self) -> Option<WheelInstant> {
        self.last_by(counter::read)
    }

    /// By this counter, which is not read where nothing is leased: that may cost a virtual machine
    /// a call of its host.
    #[inline]
    fn last_by(&self, counter: impl FnOnce() -> u64) -> Option<WheelInstant> {
        // Relaxed, as all here: only the thread that has the caller's number comes here, and it
        // got the number over an exchange from the one before.
        let lasts = self.lasts.load(Relaxed);
        if lasts == 0 {
            return None;
        }
        let lasts = counter().wrapping_sub(self.since.load(Relaxed)) < lasts;
        lasts.then(|| WheelInstant { nanos: self.nanos.load(Relaxed) })
    }

    #[inline]
    fn reading_by(
        &self,
        counter: impl Fn() -> u64,
        read: impl FnOnce() -> WheelInstant,
        may_last: impl FnOnce(WheelInstant) -> bool,
    ) -> WheelInstant {
        if let Some(now) = self.last_by(&counter) {
            return now;
        }
        let lasts = self.lasts.load(Relaxed);
        if lasts == 0 {
            return read();
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

    /// Whether the clock has gone on by more, since the last reading, than the counter allows for.
    /// That was read before the last reading; read after this one, it tells for sure. (Read before
    /// it, the thread may have been held up in between.)
    fn is_outrun(&self, now: WheelInstant, cycles: u64, lasts: u64) -> bool {
        let last = self.nanos.load(Relaxed);
        let elapsed = now.nanos.saturating_sub(last);
        last != UNREAD && outruns(elapsed, cycles.wrapping_sub(self.since.load(Relaxed)), lasts)
    }
}

/// Returns `true` if `nanos` is more than [`LEASE`] for each lease of `lasts` cycles in `cycles`.
fn outruns(nanos: u64, cycles: u64, lasts: u64) -> bool {
    u128::from(nanos) * u128::from(lasts) > u128::from(cycles) * LEASE.as_nanos()
}

/// Nothing was read yet, or the moment at which the wheel was built.
const UNREAD: u64 = 0;

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::{LEASE, Lease, cycles, cycles_at, outruns};
    use crate::clock::{Clock, MonotonicClock};
    use crate::counter;
    use crate::wheel::wheel_instant::WheelInstant;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::{Duration, Instant};

    /// The cycles of a lease, in tests that bring their own counter.
    const CYCLES: u64 = 1 << 15;

    /// Returns `true` if the counter can be trusted. Arm's tells its rate, whatever the clock is.
    fn is_trusted() -> bool {
        cfg!(target_arch = "aarch64") && counter::rate() > 0 || counter::is_the_clocks()
    }

    /// How long a lease lasts, by a count over 20 ms: too long, if the thread was held up between a
    /// reading of the clock and one of the counter.
    fn measured_lease() -> Duration {
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
    fn a_lease_is_no_longer_than_what_is_added_for_it() {
        if is_trusted() {
            let measured = (0..3).map(|_| measured_lease()).min().unwrap();
            assert!(measured < LEASE, "{measured:?} by the true counter");
        }
    }

    /// However long the thread is held up between two lines: what is used again was no older than
    /// a lease when the counter was read, and the clock was read before that.
    #[test]
    fn a_reading_that_is_used_again_is_no_older_than_a_lease() {
        if !is_trusted() {
            return;
        }
        let (start, lease) = (MonotonicClock.now(), Lease::new(cycles()));
        let since = |now: Instant| u64::try_from(now.duration_since(start).as_nanos()).unwrap() + 1;
        let mut used_again = 0;
        while used_again < 10_000 {
            let before = since(MonotonicClock.now());
            let read = || WheelInstant { nanos: since(MonotonicClock.now()) };
            let reading = lease.reading(read, |_| true).nanos;
            used_again += u32::from(reading < before);
            assert!(before.saturating_sub(reading) < 100_000, "{reading} at {before}");
            assert!(lease.lasts.load(Relaxed) > 0, "the counter is slower than it says");
        }
    }

    #[test]
    fn a_lease_of_any_counter_is_shorter_than_what_is_added_for_it() {
        for rate in [1_000_000, 24_000_000, 62_500_000, 1_000_000_000, u64::from(u32::MAX)] {
            let cycles = cycles_at(rate);
            let nanos = u128::from(cycles) * 1_000_000_000 / u128::from(rate);
            assert!((79_000..=80_000).contains(&nanos), "{cycles} at {rate} a second: {nanos} ns");
        }
        assert_eq!([0, 1, 12_499].map(cycles_at), [0; 3], "too slow to tell");
    }

    #[test]
    fn a_reading_is_used_again_until_its_lease_ends() {
        let lease = Lease::new(CYCLES);
        let start = lease.since.load(Relaxed).wrapping_add(CYCLES);
        let reading = |after: u64, nanos| {
            let cycles = start.wrapping_add(after);
            lease.reading_by(|| cycles, || WheelInstant { nanos }, |_| true).nanos
        };
        assert_eq!(reading(0, 10), 10);
        assert_eq!(reading(CYCLES - 1, 11), 10);
        assert_eq!(reading(CYCLES, 12), 12);
        assert_eq!(reading(2 * CYCLES - 1, 13), 12);
        // The counter of another core, or after a sleep of the machine, that has gone back.
        assert_eq!(reading(CYCLES - 1, 14), 14);
    }

    #[test]
    fn a_reading_that_may_not_last_is_not_used_again() {
        let lease = Lease::new(CYCLES);
        for nanos in 1..4 {
            assert_eq!(lease.reading(|| WheelInstant { nanos }, |_| false).nanos, nanos);
        }
    }

    #[test]
    fn a_clock_that_outruns_the_counter_is_leased_no_more() {
        let lease = Lease::new(CYCLES);
        let start = lease.since.load(Relaxed).wrapping_add(CYCLES);
        let reading = |counts: [u64; 2], nanos| {
            // Before the lease is looked at, and the clock, or after that.
            let counted = std::cell::Cell::new(0);
            let counter = || {
                counted.set(counted.get() + 1);
                start.wrapping_add(counts[usize::from(counted.get() > 2)])
            };
            lease.reading_by(counter, || WheelInstant { nanos }, |_| true).nanos
        };
        let lasts = || lease.lasts.load(Relaxed) > 0;
        assert_eq!(reading([0, 0], 50), 50);
        // At 1 GHz; then held up for long between the counter and the clock.
        assert_eq!(reading([CYCLES, CYCLES], CYCLES + 50), CYCLES + 50);
        assert_eq!(reading([2 * CYCLES, 9 * CYCLES], 8 * CYCLES), 8 * CYCLES);
        // The counter goes back, and the clock does not.
        assert_eq!(reading([0, 0], 9 * CYCLES), 9 * CYCLES);
        assert!(lasts());
        // By a counter of 0.1 GHz.
        assert_eq!(reading([CYCLES, CYCLES], 19 * CYCLES), 19 * CYCLES);
        assert!(!lasts());
        assert_eq!(reading([CYCLES, CYCLES], 20 * CYCLES), 20 * CYCLES);
    }

    #[test]
    fn how_much_time_a_counter_allows_for() {
        let lease = u64::try_from(LEASE.as_nanos()).unwrap();
        for times in [1, 7, 1 << 40] {
            assert!(!outruns(times * lease, times * CYCLES, CYCLES));
            assert!(outruns(times * lease + 1, times * CYCLES, CYCLES));
        }
        assert!(!outruns(0, 0, CYCLES) && outruns(1, 0, CYCLES));
        assert!(!outruns(u64::MAX, u64::MAX, CYCLES));
    }

    #[test]
    fn who_has_no_lease_reads_each_time() {
        let lease = Lease::new(0);
        for nanos in 1..4 {
            assert_eq!(lease.reading(|| WheelInstant { nanos }, |_| true).nanos, nanos);
        }
    }
}
