//! A small id for each calling thread.
//!
//! Ids below [`ThreadId::OWN`] belong to one thread at a time, so that the [state][ThreadState]
//! kept for an id is written by one thread only. A thread acquires the lowest free id at its first
//! call and releases it when it ends. If all are taken, or while a thread is being torn down, the
//! thread uses an id that it shares with others.
//!
//! Per-thread state is handed over through the bit of its id, because acquiring an id synchronises
//! with its last release. The sweeper uses this to borrow a free id, flush what an exited thread
//! left there, and release it again.
//!
//! [ThreadState]: crate::wheel::thread_state::ThreadState

#![forbid(unsafe_code)]

use crate::sync::{AcqRel, Acquire, AtomicU32, AtomicU64, Relaxed};
use std::cell::Cell;

/// The id of a calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadId {
    /// The index of its [state](crate::wheel::thread_state::ThreadState).
    pub(crate) index: u32,
    /// The number from which its home shard is derived.
    seed: u32,
}

impl ThreadId {
    /// The number of ids that belong to one thread at a time.
    #[cfg(not(modelled))]
    pub(crate) const OWN: u32 = 256;
    #[cfg(modelled)]
    pub(crate) const OWN: u32 = 2;

    /// The value before the first call of a thread: no id.
    #[cfg(not(modelled))]
    const UNASSIGNED: ThreadId = ThreadId { index: u32::MAX, seed: 0 };
    /// The threads of a model share an id, and a home shard, unless the model says otherwise.
    #[cfg(modelled)]
    const UNASSIGNED: ThreadId = ThreadId::shared(0);

    /// Returns the id of the calling thread. Its index exceeds the index of every id until the
    /// thread has [acquired](Self::get_or_acquire) one.
    #[inline]
    pub(crate) fn current() -> ThreadId {
        THREAD_ID.try_with(Cell::get).unwrap_or(ThreadId::shared(0))
    }

    /// Returns the id that all further threads share. Their home shards differ nevertheless.
    pub(crate) const fn shared(seed: u32) -> ThreadId {
        ThreadId { index: Self::OWN, seed }
    }

    /// Returns the home shard of the thread, out of `shards`.
    #[inline]
    pub(crate) fn home(self, shards: usize) -> usize {
        self.seed as usize % shards
    }
}

/// The ids in use.
#[derive(Debug)]
pub(crate) struct ThreadIds {
    /// One bit for each id.
    bits: [AtomicU64; WORDS],
    /// One more than the greatest index that a thread has ever had.
    reached: AtomicU32,
}

const WORDS: usize = ThreadId::OWN.div_ceil(64) as usize;

impl ThreadIds {
    /// Returns the number of ids that have been in use, counted from the first. No state is kept
    /// for the others.
    ///
    /// A thread that has seen an effect of another thread finds the id of that thread counted.
    pub(crate) fn reached(&self) -> u32 {
        // Relaxed: an id is counted before its thread does anything, so a thread that has seen
        // any of that also sees the count.
        self.reached.load(Relaxed)
    }

    /// Acquires this id if it is free. Its state then belongs to the caller until the
    /// [release](Self::release).
    pub(crate) fn acquire(&self, index: u32) -> bool {
        let (word, bit) = (&self.bits[index as usize / 64], 1 << (index % 64));
        // Relaxed: the exchange below decides.
        let mut seen = word.load(Relaxed);
        while seen & bit == 0 {
            // AcqRel: the Acquire half pairs with the Release of `release`, so that what the last
            // owner did with the state is seen. Acquire on failure for the same.
            match word.compare_exchange(seen, seen | bit, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Returns `true` if the id is free at the time of the call.
    pub(crate) fn is_free(&self, index: u32) -> bool {
        // Relaxed: an estimate.
        self.bits[index as usize / 64].load(Relaxed) & 1 << (index % 64) == 0
    }

    /// Acquires the lowest free id.
    fn acquire_lowest(&self) -> Option<ThreadId> {
        let index = (0..ThreadId::OWN).find(|&index| self.acquire(index))?;
        // Relaxed: as in `reached`.
        self.reached.fetch_max(index + 1, Relaxed);
        Some(ThreadId { index, seed: index })
    }

    /// Frees the id.
    pub(crate) fn release(&self, index: u32) {
        // AcqRel: the Release half publishes the state of the id to its next owner.
        self.bits[index as usize / 64].fetch_and(!(1 << (index % 64)), AcqRel);
    }
}

#[cfg(not(modelled))]
use per_process::THREAD_ID;
#[cfg(not(modelled))]
pub(crate) use per_process::thread_ids;

/// Ids belong to the process, and not to a wheel.
#[cfg(not(modelled))]
mod per_process {
    use super::{AtomicU32, AtomicU64, Cell, Relaxed, ThreadId, ThreadIds, WORDS};

    /// The ids in use.
    pub(crate) fn thread_ids() -> &'static ThreadIds {
        static THREAD_IDS: ThreadIds =
            ThreadIds { bits: [const { AtomicU64::new(0) }; WORDS], reached: AtomicU32::new(0) };
        &THREAD_IDS
    }

    /// Releases the id of its thread when the thread ends, if it has one.
    struct Return(Cell<Option<u32>>);

    impl Drop for Return {
        fn drop(&mut self) {
            // Other destructors of this thread may still call the wheel, under the shared id. (If
            // the system has thread-locals only by keys, `THREAD_ID` may already have been
            // destroyed.)
            let _gone = THREAD_ID.try_with(|id| id.set(ThreadId::shared(0)));
            if let Some(index) = self.0.take() {
                thread_ids().release(index);
            }
        }
    }

    thread_local! {
        /// Read by each operation, so it has no destructor.
        pub(super) static THREAD_ID: Cell<ThreadId> = const { Cell::new(ThreadId::UNASSIGNED) };

        static RETURN: Return = const { Return(Cell::new(None)) };
    }

    impl ThreadId {
        /// Returns the id of the calling thread, after acquiring one if it has none.
        #[cold]
        pub(crate) fn get_or_acquire() -> ThreadId {
            let current = ThreadId::current();
            if current != ThreadId::UNASSIGNED {
                return current;
            }
            // Relaxed: any seed will do.
            static SEEDS: AtomicU32 = AtomicU32::new(0);
            let own = RETURN.try_with(|returned| {
                let own = thread_ids().acquire_lowest();
                returned.0.set(own.map(|own| own.index));
                own
            });
            let own = own.ok().flatten();
            let id = own.unwrap_or_else(|| ThreadId::shared(SEEDS.fetch_add(1, Relaxed)));
            let _gone = THREAD_ID.try_with(|cell| cell.set(id));
            id
        }
    }
}

#[cfg(modelled)]
use per_model::THREAD_ID;
#[cfg(modelled)]
pub(crate) use per_model::thread_ids;

/// The threads of a model have the ids that it gives them, and each wheel has its own ids.
#[cfg(modelled)]
mod per_model {
    use super::{AtomicU32, AtomicU64, Cell, ThreadId, ThreadIds};
    use crate::sync::modelled_thread_local;

    modelled_thread_local! {
        pub(super) static THREAD_ID: Cell<ThreadId> = Cell::new(ThreadId::UNASSIGNED);
    }

    pub(crate) fn thread_ids() -> ThreadIds {
        let bits = std::array::from_fn(|_| AtomicU64::new(0));
        ThreadIds { bits, reached: AtomicU32::new(0) }
    }

    impl ThreadId {
        /// Returns the id of the calling thread. Each thread of a model has one.
        pub(crate) fn get_or_acquire() -> ThreadId {
            ThreadId::current()
        }

        /// Acquires an id for the calling thread until the [release](Self::release_to), if one is
        /// free and the thread has none.
        pub(crate) fn acquire_from(ids: &ThreadIds) {
            if ThreadId::current() != ThreadId::UNASSIGNED {
                return;
            }
            let own = ids.acquire_lowest();
            THREAD_ID.with(|id| id.set(own.unwrap_or(ThreadId::UNASSIGNED)));
        }

        /// Releases the id of the calling thread.
        pub(crate) fn release_to(ids: &ThreadIds) {
            let ThreadId { index, .. } = THREAD_ID.with(|id| id.replace(ThreadId::UNASSIGNED));
            if index < ThreadId::OWN {
                ids.release(index);
            }
        }
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::ThreadId;
    use std::cell::RefCell;
    use std::sync::{Barrier, mpsc};

    /// The next owner of the id may use its state from then on.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "the test is about threads")]
    fn a_thread_that_has_returned_its_id_uses_that_of_all() {
        struct Last(mpsc::Sender<ThreadId>);

        impl Drop for Last {
            fn drop(&mut self) {
                self.0.send(ThreadId::get_or_acquire()).unwrap();
            }
        }

        thread_local!(static LAST: RefCell<Option<Last>> = const { RefCell::new(None) });

        // Other tests may have all ids for a while.
        loop {
            let (send, last) = mpsc::channel();
            let thread = std::thread::spawn(move || {
                // Created before the thread has an id, and so destroyed after it has returned it.
                LAST.set(Some(Last(send)));
                ThreadId::get_or_acquire()
            });
            let own = thread.join().unwrap();
            assert_eq!(last.try_recv().unwrap().index, ThreadId::OWN);
            if own.index < ThreadId::OWN {
                break;
            }
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the test is about threads")]
    fn the_id_of_a_thread_that_has_ended_is_acquired_again() {
        let index = || std::thread::spawn(ThreadId::get_or_acquire).join().unwrap().index;
        for _ in 0..2 * ThreadId::OWN {
            index();
        }
        // Other tests may have all ids for a while.
        assert!((0..20_000).any(|_| index() < ThreadId::OWN));
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the test is about threads")]
    fn live_threads_have_ids_of_their_own() {
        let all_alive = Barrier::new(8);
        let mut indices: Vec<u32> = std::thread::scope(|scope| {
            let index = || {
                let index = ThreadId::get_or_acquire().index;
                all_alive.wait();
                index
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(index)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        indices.sort_unstable();
        indices.dedup();
        assert_eq!(indices.len(), 8);
        let taken = ThreadId::get_or_acquire();
        assert_eq!(ThreadId::current(), taken);
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the test is about threads")]
    fn threads_that_share_an_id_insert_into_different_shards() {
        const SHARING: usize = 64;
        const THREADS: usize = ThreadId::OWN as usize + SHARING;
        let all_alive = Barrier::new(THREADS);
        let ids: Vec<(ThreadId, usize)> = std::thread::scope(|scope| {
            let id = || {
                let id = ThreadId::get_or_acquire();
                all_alive.wait();
                (id, id.home(4))
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(id)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for shard in 0..4 {
            let home =
                |&&(id, home): &&(ThreadId, usize)| id.index == ThreadId::OWN && home == shard;
            // More, where other tests' threads have indices of their own.
            assert!(ids.iter().filter(home).count() >= SHARING / 8, "{ids:?}");
        }
    }
}
