//! Who is calling: a small number for each live thread.
//!
//! Numbers below [`Caller::OWN`] belong to one thread at a time, so that what is kept for a
//! number (a shard to prefer, a stripe of counters) is written by one thread only. A thread takes
//! the lowest free number at its first call and returns it when it ends. When all are taken, or
//! while a thread is being torn down, a shared number does.

#![forbid(unsafe_code)]

#[cfg(not(modelled))]
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// The number of a calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Under which its counts and its lease are kept.
    pub(crate) number: u32,
    /// By which its home shard is chosen.
    seat: u32,
}

impl Caller {
    /// How many numbers belong to one thread at a time.
    #[cfg(not(modelled))]
    pub(crate) const OWN: u32 = 256;
    /// In a model all threads share a number: its threads are one thread of the system.
    #[cfg(modelled)]
    pub(crate) const OWN: u32 = 0;

    /// The calling thread's number.
    #[inline]
    pub(crate) fn current() -> Caller {
        NUMBER.try_with(|number| number.0).unwrap_or(Caller::shared(0))
    }

    /// The number that all other threads share; they insert into different shards all the same.
    pub(crate) const fn shared(seat: u32) -> Caller {
        Caller { number: Self::OWN, seat }
    }

    /// Whether other threads count under the same number.
    #[inline]
    pub(crate) fn is_shared(self) -> bool {
        self.number == Self::OWN
    }

    /// Which of `shards` this caller inserts into.
    #[inline]
    pub(crate) fn home(self, shards: usize) -> usize {
        self.seat as usize % shards
    }
}

/// A number, returned when its thread ends.
struct Number(Caller);

thread_local! {
    static NUMBER: Number = Number::take();
}

/// One bit for each number in use.
static IN_USE: [AtomicU64; Caller::OWN as usize / 64] =
    [const { AtomicU64::new(0) }; Caller::OWN as usize / 64];

/// Where the next thread without a number of its own is to insert.
#[cfg(not(modelled))]
fn next_seat() -> u32 {
    static SEATS: AtomicU32 = AtomicU32::new(0);
    // Relaxed: any seat will do.
    SEATS.fetch_add(1, Relaxed)
}

/// Threads of a model insert into one shard: its executions must not differ by thread.
#[cfg(modelled)]
fn next_seat() -> u32 {
    0
}

impl Number {
    fn take() -> Number {
        for (index, word) in (0..).zip(&IN_USE) {
            // Relaxed: the exchange below decides.
            let mut seen = word.load(Relaxed);
            while seen != u64::MAX {
                let free = (!seen).trailing_zeros();
                // AcqRel: the Acquire half pairs with the Release of the number's last owner, so
                // that its counts are seen and carried on. Acquire on failure for the same.
                match word.compare_exchange(seen, seen | 1 << free, AcqRel, Acquire) {
                    Ok(_) => {
                        let number = 64 * index + free;
                        return Number(Caller { number, seat: number });
                    }
                    Err(now) => seen = now,
                }
            }
        }
        Number(Caller::shared(next_seat()))
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        let Caller { number, .. } = self.0;
        if let Some(word) = IN_USE.get(number as usize / 64) {
            // AcqRel: the Release half publishes this thread's counts to the next owner.
            word.fetch_and(!(1 << (number % 64)), AcqRel);
        }
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::Caller;
    use std::sync::Barrier;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the test is about threads")]
    fn live_threads_have_numbers_of_their_own() {
        let all_alive = Barrier::new(8);
        let mut numbers: Vec<u32> = std::thread::scope(|scope| {
            let number = || {
                let number = Caller::current().number;
                all_alive.wait();
                number
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(number)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 8);
        assert_eq!(Caller::current(), Caller::current());
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the test is about threads")]
    fn threads_that_share_a_number_insert_into_different_shards() {
        const SHARING: usize = 64;
        const THREADS: usize = Caller::OWN as usize + SHARING;
        let all_alive = Barrier::new(THREADS);
        let callers: Vec<(Caller, usize)> = std::thread::scope(|scope| {
            let caller = || {
                let caller = Caller::current();
                all_alive.wait();
                (caller, caller.home(4))
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(caller)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for shard in 0..4 {
            let home = |&&(caller, home): &&(Caller, usize)| caller.is_shared() && home == shard;
            // More, where other tests' threads have numbers of their own.
            assert!(callers.iter().filter(home).count() >= SHARING / 8, "{callers:?}");
        }
    }
}
