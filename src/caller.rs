//! Who is calling: a small number for each live thread.
//!
//! Numbers below [`Caller::OWN`] belong to one thread at a time, so that what is kept for a
//! number (a shard to prefer, a stripe of counters) is written by one thread only. A thread takes
//! the lowest free number at its first call and returns it when it ends. When all are taken, or
//! while a thread is being torn down, the shared number does; threads that share it still insert
//! into shards of their own ([`Caller::home`]).

#![forbid(unsafe_code)]

use std::sync::atomic::AtomicU64;
#[cfg(not(modelled))]
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// The number of a calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller(pub(crate) usize);

impl Caller {
    /// How many numbers belong to one thread at a time.
    #[cfg(not(modelled))]
    pub(crate) const OWN: usize = 256;
    /// In a model all threads share a number: its threads are one thread of the system.
    #[cfg(modelled)]
    pub(crate) const OWN: usize = 0;

    /// The number that all other threads share.
    pub(crate) const SHARED: Caller = Caller(Self::OWN);

    /// The calling thread's number.
    #[inline]
    pub(crate) fn current() -> Caller {
        NUMBER.try_with(|number| number.0).unwrap_or(Caller::SHARED)
    }

    /// Which of `shards` this caller, the calling thread, inserts into.
    #[inline]
    pub(crate) fn home(self, shards: usize) -> usize {
        let number = if self == Self::SHARED { seat() } else { self.0 };
        number % shards
    }
}

/// A number of the calling thread's own, for those that share [`Caller::SHARED`]: they would all
/// insert into one shard.
#[cfg(not(modelled))]
#[cold]
fn seat() -> usize {
    static SEATS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        // Relaxed: any number will do.
        static SEAT: usize = SEATS.fetch_add(1, Relaxed);
    }
    SEAT.try_with(|seat| *seat).unwrap_or(0)
}

/// All threads of a model insert into one shard: its executions must not differ by thread.
#[cfg(modelled)]
fn seat() -> usize {
    0
}

/// A number, returned when its thread ends.
struct Number(Caller);

thread_local! {
    static NUMBER: Number = Number::take();
}

/// One bit for each number in use.
static IN_USE: [AtomicU64; Caller::OWN / 64] = [const { AtomicU64::new(0) }; Caller::OWN / 64];

impl Number {
    fn take() -> Number {
        for (index, word) in IN_USE.iter().enumerate() {
            // Relaxed: the exchange below decides.
            let mut seen = word.load(Relaxed);
            while seen != u64::MAX {
                let free = (!seen).trailing_zeros();
                // AcqRel: the Acquire half pairs with the Release of the number's last owner, so
                // that its counts are seen and carried on. Acquire on failure for the same.
                match word.compare_exchange(seen, seen | 1 << free, AcqRel, Acquire) {
                    Ok(_) => return Number(Caller(index * 64 + free as usize)),
                    Err(now) => seen = now,
                }
            }
        }
        Number(Caller::SHARED)
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        let Caller(number) = self.0;
        if let Some(word) = IN_USE.get(number / 64) {
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
        let mut numbers: Vec<usize> = std::thread::scope(|scope| {
            let number = || {
                let number = Caller::current().0;
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
        let all_alive = Barrier::new(Caller::OWN + SHARING);
        let callers: Vec<(Caller, usize)> = std::thread::scope(|scope| {
            let caller = || {
                let caller = Caller::current();
                all_alive.wait();
                (caller, caller.home(4))
            };
            let threads: Vec<_> = (0..Caller::OWN + SHARING).map(|_| scope.spawn(caller)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for shard in 0..4 {
            let home = |&&(caller, home): &&_| caller == Caller::SHARED && home == shard;
            // More, where other tests' threads have numbers of their own.
            assert!(callers.iter().filter(home).count() >= SHARING / 8, "{callers:?}");
        }
    }
}
