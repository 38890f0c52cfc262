//! [`Metrics`]: a copy of a wheel's counters.

#![forbid(unsafe_code)]

use crate::wheel::counters::{LATENESS_BUCKETS, SweepCount, ThreadCount};
use crate::wheel::engine::Engine;
use std::time::Duration;

/// The counters of a wheel. They are read one by one while the wheel is in use, so they are
/// consistent with each other only if no operation is in progress.
///
/// # Examples
///
/// Every timer is accounted for:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Builder, ManualClock};
///
/// let clock = ManualClock::new();
/// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
/// let idle = wheel.insert("idle", Duration::from_secs(30))?;
/// let request = wheel.insert("request", Duration::from_secs(1))?;
/// wheel.insert("heartbeat", Duration::from_secs(1))?;
/// wheel.reset(idle, Duration::from_secs(60))?;
/// wheel.cancel(request);
/// clock.advance(Duration::from_secs(1));
/// let _ = sweeper.sweep(|_| ());
///
/// let metrics = wheel.metrics();
/// assert_eq!((metrics.inserted, metrics.reset), (3, 1));
/// assert_eq!((metrics.armed, metrics.cancelled, metrics.fired), (1, 1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Timers that are armed now.
    pub armed: u64,
    /// Timers ever armed.
    pub inserted: u64,
    /// Resets that took effect.
    pub reset: u64,
    /// Timers ended by a cancel.
    pub cancelled: u64,
    /// Timers that reached their deadline and were handed over, to a handler or to an executor that
    /// may have dropped them since.
    pub fired: u64,
    /// Timers returned by a drain, or by an insert that found the wheel closing or the memory
    /// exhausted.
    pub returned: u64,
    /// References in slots beyond one for each armed timer. A reference becomes stale when its
    /// timer is cancelled or moves to another slot, and is discarded when its slot is swept.
    pub stale_references: u64,
    /// References moved to another slot because theirs was swept before the timer's deadline.
    pub requeued: u64,
    /// Sweeps so far.
    pub sweeps: u64,
    /// The duration of the longest sweep.
    pub longest_sweep: Duration,
    /// The delay between the deadlines of timers and the sweeps that collected them.
    pub lateness: Lateness,
    /// Bytes that timers and the references in slots occupy now.
    pub bytes: u64,
    /// The lateness with which the handlers of timers began. It exceeds
    /// [`lateness`](Self::lateness) by the time for which timers waited for the executor and for
    /// earlier handlers of their batch. Empty without a driver.
    ///
    /// After 16 handlers of a batch that took less than 640 ns each, the clock is read once for 16
    /// handlers. These may be counted up to 10 µs too early. If one of them is slow, all but the
    /// first are counted as if they had begun when the last one ended.
    pub handler_lateness: Lateness,
    /// Timers handed to the executor whose handlers have not ended, including those not yet
    /// started. Zero without a driver. Without a
    /// [bound](crate::DriverBuilder::max_in_flight), up to 15 quick handlers that have ended may
    /// still be counted.
    pub timers_in_flight: u64,
    /// Batches handed to the executor that have not ended. Zero without a driver.
    pub batches_in_flight: u64,
    /// Handlers that panicked. Zero without a driver.
    pub handler_panics: u64,
}

/// A histogram of the lateness of timers. The bounds of its buckets are powers of two of a
/// microsecond.
///
/// # Examples
///
/// Four timers, swept 3, 2, 1 and 0 ms after their deadlines:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Builder, ManualClock};
///
/// let clock = ManualClock::new();
/// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
/// for millis in 1..=4 {
///     wheel.insert("soon", Duration::from_millis(millis))?;
/// }
/// clock.advance(Duration::from_millis(4));
/// let _ = sweeper.sweep(|_| ());
///
/// let lateness = wheel.metrics().lateness;
/// assert_eq!(lateness.quantile(0.5), Duration::from_micros(1024)); // 1 ms, rounded up
/// let late = lateness.buckets().filter(|(bound, _)| *bound > Duration::from_millis(2));
/// assert_eq!(late.map(|(_, timers)| timers).sum::<u64>(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    counts: Vec<u64>,
}

impl Lateness {
    /// Returns the lateness that the fraction `quantile` of all fired timers did not exceed,
    /// rounded up to a power of two of a microsecond. Fractions outside of 0 to 1 are clamped. Zero
    /// if no timer has fired.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Builder, ManualClock};
    ///
    /// let clock = ManualClock::new();
    /// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
    /// wheel.insert((), Duration::from_millis(10))?;
    /// clock.advance(Duration::from_millis(13));
    /// assert_eq!(sweeper.sweep(|_| ()).expired, 1);
    ///
    /// let worst = wheel.metrics().lateness.quantile(1.0);
    /// assert_eq!(worst, Duration::from_micros(4096)); // 3 ms, rounded up
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Duration {
        let total: u64 = self.counts.iter().sum();
        let mut below = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            below += count;
            if count > 0 && below as f64 >= quantile.clamp(0.0, 1.0) * total as f64 {
                return Self::upper_bound(bucket);
            }
        }
        Duration::ZERO
    }

    /// Returns the upper bound of each bucket with the number of timers in it. A bucket counts the
    /// timers that were later than the previous bound and at most as late as its own.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.counts.iter().enumerate().map(|(bucket, &count)| (Self::upper_bound(bucket), count))
    }

    /// Creates a histogram from the counts of its buckets.
    pub(crate) fn of(counts: Vec<u64>) -> Self {
        Self { counts }
    }

    /// Returns the bucket for a lateness. Bucket 0 is for up to 1 µs, bucket n for up to 2^n µs.
    pub(crate) fn bucket(late: Duration) -> usize {
        let parts = u64::from(late.subsec_nanos().div_ceil(1000));
        let micros = late.as_secs().saturating_mul(1_000_000).saturating_add(parts);
        let most = 1 << (LATENESS_BUCKETS - 1);
        micros.clamp(1, most).next_power_of_two().ilog2() as usize
    }

    fn upper_bound(bucket: usize) -> Duration {
        Duration::from_micros(1 << bucket)
    }
}

impl Metrics {
    pub(crate) fn of<T>(engine: &Engine<T>) -> Self {
        let counters = engine.progress.counters();
        let armed = engine.armed();
        Self {
            armed,
            inserted: engine.threads.sum(ThreadCount::Inserted),
            reset: engine.threads.sum(ThreadCount::Reset),
            cancelled: engine.threads.sum(ThreadCount::Cancelled),
            fired: counters.get(SweepCount::Fired),
            returned: engine.threads.sum(ThreadCount::Returned),
            stale_references: engine.references().saturating_sub(armed),
            requeued: counters.get(SweepCount::Requeued),
            sweeps: counters.get(SweepCount::Sweeps),
            longest_sweep: Duration::from_nanos(counters.longest_nanos()),
            lateness: Lateness::of(counters.lateness()),
            bytes: engine.bytes(),
            ..Self::default()
        }
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::Lateness;
    use std::time::Duration;

    #[test]
    fn lateness_falls_into_the_bucket_of_its_upper_bound() {
        for (late, bound) in [(0, 1), (1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (4097, 8192)] {
            let bucket = Lateness::bucket(Duration::from_micros(late));
            assert_eq!(Lateness::upper_bound(bucket), Duration::from_micros(bound));
        }
        assert_eq!(Lateness::bucket(Duration::MAX), super::LATENESS_BUCKETS - 1);
    }
}
