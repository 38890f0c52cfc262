//! [`Jitter`]: draws times to live around the requested one. No other file draws random numbers.

#![forbid(unsafe_code)]

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The range of the times to live, and the source of the next draw.
#[derive(Debug)]
pub(super) struct Jitter {
    percent: u32,
    seeds: AtomicU64,
}

impl Jitter {
    /// The largest jitter, in per cent to either side.
    pub(super) const MAX_PERCENT: u32 = 50;

    /// The step from one draw's seed to the next. It is odd, so that no seed recurs.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    /// Creates a jitter of `percent` to either side, which is reproducible if there is a `seed`.
    pub(super) fn new(percent: u32, seed: Option<u64>) -> Self {
        let seed = seed.unwrap_or_else(|| fastrand::u64(..));
        Self { percent, seeds: AtomicU64::new(seed) }
    }

    /// Returns a time to live around `ttl`, uniformly distributed within the bounds.
    pub(super) fn around(&self, ttl: Duration) -> Duration {
        if self.percent == 0 {
            return ttl;
        }
        let width = Self::width(ttl, self.percent);
        // Relaxed, because each draw needs a seed of its own, in any order.
        let seed = self.seeds.fetch_add(Self::STEP, Relaxed);
        let drawn = fastrand::Rng::with_seed(seed).u64(0..=2 * width);
        (ttl - Duration::from_nanos(width)).saturating_add(Duration::from_nanos(drawn))
    }

    /// Returns the shortest time to live that may be drawn around `ttl`.
    pub(super) fn least(ttl: Duration, percent: u32) -> Duration {
        ttl - Duration::from_nanos(Self::width(ttl, percent.min(Self::MAX_PERCENT)))
    }

    /// Returns the largest distance of a draw from `ttl`, in nanoseconds.
    fn width(ttl: Duration, percent: u32) -> u64 {
        let width = u64::try_from((ttl / 100 * percent).as_nanos()).unwrap_or(u64::MAX);
        width.min(u64::MAX / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::Jitter;
    use std::time::Duration;

    #[test]
    fn draws_fill_the_bounds_and_keep_them() {
        let jitter = Jitter::new(5, Some(7));
        let drawn: Vec<_> =
            (0..10_000).map(|_| jitter.around(Duration::from_secs(1)).as_millis()).collect();
        assert!(drawn.iter().all(|millis| (950..=1050).contains(millis)));
        for tenth in 0..10 {
            let part = 950 + tenth * 10..960 + tenth * 10;
            let count = drawn.iter().filter(|millis| part.contains(*millis)).count();
            assert!((850..1150).contains(&count), "{count} of 10000 in {part:?}");
        }
    }

    #[test]
    fn the_ends_of_the_range_do_not_overflow() {
        let widest = Jitter::new(Jitter::MAX_PERCENT, Some(1));
        for ttl in [Duration::from_nanos(1), Duration::MAX] {
            assert!(!widest.around(ttl).is_zero());
        }
        assert_eq!(Jitter::new(0, None).around(Duration::MAX), Duration::MAX);
    }
}
