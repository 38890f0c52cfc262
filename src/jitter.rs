//! [`Jitter`]: a delay that spreads load.

#![forbid(unsafe_code)]

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// An additional delay between zero and a bound, so that timers that are armed together do not fire
/// together. It is drawn at random each time, or fixed for each name.
///
/// Without it, the clients of a server that was restarted come back at the same time and stay in
/// step. Add a jitter to the delays of plain timers and of timers by key. Closures and ticks have
/// it as a setting ([`By::jitter`](crate::scheduler::By::jitter)).
///
/// # Examples
///
/// Delays of 30 to 33 seconds:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Builder, Jitter};
///
/// let (wheel, _sweeper) = Builder::new().build()?;
/// let delay = Duration::from_secs(30);
/// let jitter = Jitter::up_to(delay / 10);
/// for client in 0..1000 {
///     wheel.insert(client, delay + jitter.draw())?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The same delay for a client each time, which a test can rely on:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Jitter;
///
/// let delay = Duration::from_secs(30);
/// let of = |client: &str| delay + Jitter::fixed(client, delay / 10).draw();
/// assert_eq!(of("client 7"), of("client 7"));
/// assert_ne!(of("client 7"), of("client 8"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Jitter {
    most: Duration,
    /// The hash of the name, or `None` for a random jitter.
    name: Option<u64>,
}

impl Jitter {
    /// Creates a jitter that is drawn at random each time. It is at most `most`, and each number of
    /// nanoseconds is equally likely.
    #[must_use]
    pub const fn up_to(most: Duration) -> Self {
        Self { most, name: None }
    }

    /// Creates a jitter of at most `most` that depends only on `name` and `most`. It is the same at
    /// each draw, on each machine and in each release. (systemd's `FixedRandomDelay`, and `H` in
    /// Jenkins.)
    ///
    /// It is `(most + 1 ns) * hash / 2^64`, rounded down to nanoseconds. The hash is the 64-bit
    /// FNV-1a hash of the bytes of `name`, followed by the finaliser of MurmurHash3 (`fmix64`).
    /// A client that chooses its name can choose its jitter.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Jitter;
    ///
    /// let jitter = Jitter::fixed("invoices", Duration::from_secs(3600));
    /// assert_eq!(jitter.draw(), Duration::from_nanos(248_110_729_604)); // 4 minutes
    /// ```
    #[must_use]
    pub fn fixed(name: impl AsRef<[u8]>, most: Duration) -> Self {
        Self { most, name: Some(hash(name.as_ref())) }
    }

    /// Returns a delay for one timer.
    #[must_use]
    pub fn draw(self) -> Duration {
        if self.most.is_zero() {
            return Duration::ZERO;
        }
        // The keys of the standard library's hasher are random and differ at each call.
        let drawn = u128::from(self.name.unwrap_or_else(|| RandomState::new().hash_one(())));
        // 2^64 ns are 584 years. Longer jitters are clamped to that.
        let width = u64::try_from(self.most.as_nanos()).unwrap_or(u64::MAX);
        let nanos = (drawn * (u128::from(width) + 1)) >> 64;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(width))
    }
}

/// Creates a jitter that is drawn at random each time, as [`Jitter::up_to`] does.
impl From<Duration> for Jitter {
    fn from(most: Duration) -> Self {
        Self::up_to(most)
    }
}

/// Returns a hash that never changes. FNV-1a alone leaves the upper half almost the same for names
/// that differ in their last byte only, so its bits are mixed.
fn hash(name: &[u8]) -> u64 {
    let fnv = name.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (fnv ^ (fnv >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ (mixed >> 33)
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::Jitter;
    use std::time::Duration;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Computed by another program.
    #[test]
    fn a_fixed_jitter_is_the_same_in_each_release() {
        let nanos = |name: &str| Jitter::fixed(name, HOUR).draw().as_nanos();
        let all = ["", "report", "invoices", "job 1", "job 2"].map(nanos);
        let expected = [3372370014206, 2260359782316, 248110729604, 837687144311, 2921740990735];
        assert_eq!(all, expected);
    }

    #[test]
    fn similar_names_spread_evenly() {
        let mut minutes = [0; 60];
        for job in 0..6000 {
            let jitter = Jitter::fixed(format!("job {job}"), HOUR - Duration::from_nanos(1)).draw();
            minutes[usize::try_from(jitter.as_secs() / 60).unwrap()] += 1;
        }
        assert!(minutes.iter().all(|jobs| (60..140).contains(jobs)), "{minutes:?}");
    }

    #[test]
    fn the_ends_of_the_range_do_not_overflow() {
        assert_eq!(Jitter::default().draw(), Duration::ZERO);
        assert_eq!(Jitter::fixed("a name", Duration::ZERO).draw(), Duration::ZERO);
        assert!(Jitter::fixed("report", Duration::MAX).draw() > HOUR);
        assert!((0..100).all(|_| Jitter::up_to(HOUR).draw() <= HOUR));
    }
}
