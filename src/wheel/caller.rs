//! Who is calling: a small number for each live thread.
//!
//! Numbers below [`Caller::OWN`] belong to one thread at a time, so that what is kept for a
//! number ([`Local`](crate::wheel::local::Local)) is written by one thread only. A thread takes the
//! lowest free number at its first call and returns it when it ends. When all are taken, or while
//! a thread is being torn down, a shared number does.
//!
//! What is kept for a number goes from one owner to the next through the exchanges on its bit: who
//! takes a number sees what the last owner did under it. So a sweeper may take a number that is
//! free, see to what was left behind there, and put it back.

#![forbid(unsafe_code)]

use crate::sync::{AcqRel, Acquire, AtomicU32, AtomicU64, Relaxed};
use std::cell::Cell;

/// A calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Under which its [`Local`](crate::wheel::local::Local) is kept.
    pub(crate) number: u32,
    /// By which its home shard is chosen.
    seat: u32,
}

impl Caller {
    /// How many numbers belong to one thread at a time.
    #[cfg(not(modelled))]
    pub(crate) const OWN: u32 = 256;
    #[cfg(modelled)]
    pub(crate) const OWN: u32 = 2;

    /// Before its first call: no number at all.
    #[cfg(not(modelled))]
    const AT_FIRST: Caller = Caller { number: u32::MAX, seat: 0 };
    /// The threads of a model share a number, and a seat, unless the model says otherwise: they
    /// insert into one shard, whoever comes first.
    #[cfg(modelled)]
    const AT_FIRST: Caller = Caller::shared(0);

    /// The calling thread. Its number is above all others until it has [taken](Self::take) one.
    #[inline]
    pub(crate) fn current() -> Caller {
        CALLER.try_with(Cell::get).unwrap_or(Caller::shared(0))
    }

    /// The number that all other threads share; they insert into different shards all the same.
    pub(crate) const fn shared(seat: u32) -> Caller {
        Caller { number: Self::OWN, seat }
    }

    /// Which of `shards` this caller inserts into.
    #[inline]
    pub(crate) fn home(self, shards: usize) -> usize {
        self.seat as usize % shards
    }
}

/// Which numbers are in use.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// One bit for each.
    bits: [AtomicU64; WORDS],
    /// One more than the greatest that a thread has ever had.
    reached: AtomicU32,
}

const WORDS: usize = Caller::OWN.div_ceil(64) as usize;

impl Numbers {
    /// How many numbers have been in use, counted from the first: above, nothing is kept.
    ///
    /// Whoever has seen something of what a thread did under its number finds that counted.
    pub(crate) fn reached(&self) -> u32 {
        // Relaxed: a thread's number is counted before it does anything under it, and so is seen
        // by who has seen that.
        self.reached.load(Relaxed)
    }

    /// Takes this number, if it is free: what is kept for it is the caller's, until it puts the
    /// number back.
    pub(crate) fn take(&self, number: u32) -> bool {
        let (word, bit) = (&self.bits[number as usize / 64], 1 << (number % 64));
        // Relaxed: the exchange below decides.
        let mut seen = word.load(Relaxed);
        while seen & bit == 0 {
            // AcqRel: the Acquire half pairs with the Release of `put_back`, so that what the last
            // owner did under the number is seen. Acquire on failure for the same.
            match word.compare_exchange(seen, seen | bit, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Whether nobody has this number, at this moment.
    pub(crate) fn is_free(&self, number: u32) -> bool {
        // Relaxed: a guess.
        self.bits[number as usize / 64].load(Relaxed) & 1 << (number % 64) == 0
    }

    /// Takes the lowest number that is free, for the calling thread.
    fn take_lowest(&self) -> Option<Caller> {
        let number = (0..Caller::OWN).find(|&number| self.take(number))?;
        // Relaxed: as in `reached`.
        self.reached.fetch_max(number + 1, Relaxed);
        Some(Caller { number, seat: number })
    }

    /// The number is free again.
    pub(crate) fn put_back(&self, number: u32) {
        // AcqRel: the Release half publishes what is kept for the number to its next owner.
        self.bits[number as usize / 64].fetch_and(!(1 << (number % 64)), AcqRel);
    }
}

#[cfg(not(modelled))]
use of_the_process::CALLER;
#[cfg(not(modelled))]
pub(crate) use of_the_process::numbers;

/// Numbers are the process's, not a wheel's.
#[cfg(not(modelled))]
mod of_the_process {
    use super::{AtomicU32, AtomicU64, Caller, Cell, Numbers, Relaxed, WORDS};

    /// The numbers in use.
    pub(crate) fn numbers() -> &'static Numbers {
        static NUMBERS: Numbers =
            Numbers { bits: [const { AtomicU64::new(0) }; WORDS], reached: AtomicU32::new(0) };
        &NUMBERS
    }

    /// Puts its thread's number back when the thread ends, if it has one.
    struct Return(Cell<Option<u32>>);

    impl Drop for Return {
        fn drop(&mut self) {
            // What other destructors of this thread still call, they call as one of many. (Where
            // the system has thread-locals by keys alone, the other one may have gone.)
            let _gone = CALLER.try_with(|caller| caller.set(Caller::shared(0)));
            if let Some(number) = self.0.take() {
                numbers().put_back(number);
            }
        }
    }

    thread_local! {
        /// Read by each operation, and so without a destructor.
        pub(super) static CALLER: Cell<Caller> = const { Cell::new(Caller::AT_FIRST) };

        static RETURN: Return = const { Return(Cell::new(None)) };
    }

    impl Caller {
        /// Takes a number for the calling thread, which has none.
        #[cold]
        pub(crate) fn take() -> Caller {
            // Relaxed: any seat will do.
            static SEATS: AtomicU32 = AtomicU32::new(0);
            let own = RETURN.try_with(|returned| {
                let own = numbers().take_lowest();
                returned.0.set(own.map(|own| own.number));
                own
            });
            let own = own.ok().flatten();
            let caller = own.unwrap_or_else(|| Caller::shared(SEATS.fetch_add(1, Relaxed)));
            let _gone = CALLER.try_with(|cell| cell.set(caller));
            caller
        }
    }
}

#[cfg(modelled)]
use of_a_model::CALLER;
#[cfg(modelled)]
pub(crate) use of_a_model::numbers;

/// A model's threads have the numbers that it gives them, and each wheel its own.
#[cfg(modelled)]
mod of_a_model {
    use super::{AtomicU32, AtomicU64, Caller, Cell, Numbers};
    use crate::sync::modelled_thread_local;

    modelled_thread_local! {
        pub(super) static CALLER: Cell<Caller> = Cell::new(Caller::AT_FIRST);
    }

    pub(crate) fn numbers() -> Numbers {
        let bits = std::array::from_fn(|_| AtomicU64::new(0));
        Numbers { bits, reached: AtomicU32::new(0) }
    }

    impl Caller {
        /// A thread of a model has a number.
        pub(crate) fn take() -> Caller {
            Caller::AT_FIRST
        }

        /// The calling thread takes a number, until it [gets up](Self::get_up), if one is free and
        /// it has none.
        pub(crate) fn sit_down(numbers: &Numbers) {
            if Caller::current() != Caller::AT_FIRST {
                return;
            }
            let own = numbers.take_lowest();
            CALLER.with(|caller| caller.set(own.unwrap_or(Caller::AT_FIRST)));
        }

        /// The calling thread puts its number back.
        pub(crate) fn get_up(numbers: &Numbers) {
            let Caller { number, .. } = CALLER.with(|caller| caller.replace(Caller::AT_FIRST));
            if number < Caller::OWN {
                numbers.put_back(number);
            }
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
                let number = Caller::take().number;
                all_alive.wait();
                number
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(number)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 8);
        let taken = Caller::take();
        assert_eq!(Caller::current(), taken);
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the test is about threads")]
    fn threads_that_share_a_number_insert_into_different_shards() {
        const SHARING: usize = 64;
        const THREADS: usize = Caller::OWN as usize + SHARING;
        let all_alive = Barrier::new(THREADS);
        let callers: Vec<(Caller, usize)> = std::thread::scope(|scope| {
            let caller = || {
                let caller = Caller::take();
                all_alive.wait();
                (caller, caller.home(4))
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(caller)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for shard in 0..4 {
            let home =
                |&&(caller, home): &&(Caller, usize)| caller.number == Caller::OWN && home == shard;
            // More, where other tests' threads have numbers of their own.
            assert!(callers.iter().filter(home).count() >= SHARING / 8, "{callers:?}");
        }
    }
}
