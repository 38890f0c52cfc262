//! The entry state: what may happen to a timer, in one word.
//!
//! ```text
//!   63                     39  38   37                                        0
//!  ┌─────────────────────────┬─────┬───────────────────────────────────────────┐
//!  │     generation (25)     │  R  │         low bits of the deadline (38)     │
//!  └─────────────────────────┴─────┴───────────────────────────────────────────┘
//!
//!            arm (store: the claimer of a vacant entry is alone)
//!   Vacant ───────────────────────────────────────────► Armed ──┐ try_reset, try_confirm,
//!   even generation                             odd generation ◄┘ try_settle: same generation
//!      ▲                                                   │
//!      └────────────── try_end: generation + 1 ────────────┘
//! ```
//!
//! Generation and deadline lie in one word so that cancel, reset and expiry are each one
//! compare-and-swap on it and every race between them has one winner. Who moves the generation
//! on, by [`try_end`](AtomicEntryState::try_end), owns the value and the entry. No word of an
//! ended timer ever recurs, because a generation never does.
//!
//! **R, relinking.** Set when a resetter is filing an earlier name of this timer; only the thread
//! that set it may lower the entry's [`Link`](super::link::Link), and while it is set nobody
//! relies on the link. Cleared by the same thread ([`try_settle`](AtomicEntryState::try_settle)),
//! or by the timer's end. The protocol is in [`crate::shard`].

#![forbid(unsafe_code)]

use crate::bits::Field;
use crate::id::Generation;
use crate::sync::{AcqRel, Acquire, AtomicU64, Release};
use crate::tick::Tick;

const DEADLINE: Field = Field::low(Tick::LOW_BITS);
const RELINKING: Field = DEADLINE.above(1);
const GENERATION: Field = RELINKING.above(Generation::BITS);

/// A copied entry state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EntryState(u64);

impl EntryState {
    #[inline]
    fn new(generation: Generation, deadline: Tick, relinking: bool) -> Self {
        Self(
            GENERATION.put(u64::from(generation.0))
                | RELINKING.put(u64::from(relinking))
                | DEADLINE.put(deadline.low()),
        )
    }

    #[inline]
    fn vacant(generation: Generation) -> Self {
        debug_assert!(!generation.is_armed());
        Self(GENERATION.put(u64::from(generation.0)))
    }

    #[inline]
    pub(crate) fn generation(self) -> Generation {
        Generation(GENERATION.get_u32(self.0))
    }

    /// The deadline, restored by the sweep's place in time.
    #[inline]
    pub(crate) fn deadline(self, swept: Tick) -> Tick {
        Tick::near(DEADLINE.get(self.0), swept)
    }

    /// Whether a resetter is filing an earlier name of this timer.
    #[inline]
    pub(crate) fn is_relinking(self) -> bool {
        RELINKING.get(self.0) == 1
    }

    /// This armed state with another deadline.
    #[inline]
    pub(crate) fn with_deadline(self, deadline: Tick) -> Self {
        Self::new(self.generation(), deadline, self.is_relinking())
    }

    /// This armed state with the relinking flag set or cleared.
    #[inline]
    pub(crate) fn with_relinking(self, relinking: bool) -> Self {
        Self((self.0 & !RELINKING.put(1)) | RELINKING.put(u64::from(relinking)))
    }
}

/// The entry's state word.
#[derive(Debug)]
pub(crate) struct AtomicEntryState(AtomicU64);

impl AtomicEntryState {
    #[inline]
    pub(crate) fn new(vacant: Generation) -> Self {
        Self(AtomicU64::new(EntryState::vacant(vacant).0))
    }

    #[inline]
    pub(crate) fn load(&self) -> EntryState {
        // Acquire: pairs with the Release of whichever transition wrote the state, so that the
        // value and link written before it are seen.
        EntryState(self.0.load(Acquire))
    }

    /// Vacant → Armed, by the thread that has claimed the vacant entry.
    #[inline]
    pub(crate) fn arm(&self, generation: Generation, deadline: Tick) {
        debug_assert!(generation.is_armed());
        // Release: publishes value and link to whoever ends, resets or meets this timer; pairs
        // with the Acquire of `load` and of `swap`.
        self.0.store(EntryState::new(generation, deadline, false).0, Release);
    }

    /// Vacant → Vacant of a later generation, by the thread that alone holds the entry.
    #[inline]
    pub(crate) fn renew(&self, generation: Generation) {
        // Release: the vacant stack publishes the entry; kept so that a stale reader of the new
        // generation also sees what its holder did before.
        self.0.store(EntryState::vacant(generation).0, Release);
    }

    /// Armed → Vacant. `Ok` gives the caller the value and the entry, once.
    #[inline]
    pub(crate) fn try_end(&self, seen: EntryState) -> Result<Generation, EntryState> {
        let vacant = seen.generation().next();
        self.swap(seen, EntryState::vacant(vacant)).map(|()| vacant)
    }

    /// Armed → Armed, to the deadline and flag of `next`.
    #[inline]
    pub(crate) fn try_reset(&self, seen: EntryState, next: EntryState) -> Result<(), EntryState> {
        debug_assert_eq!(seen.generation(), next.generation());
        self.swap(seen, next)
    }

    /// Armed → the same: whoever resets after this sees what the caller wrote before it, and
    /// whoever reset before makes this fail.
    #[inline]
    pub(crate) fn try_confirm(&self, seen: EntryState) -> Result<(), EntryState> {
        self.swap(seen, seen)
    }

    /// Clears the relinking flag, by the thread that set it.
    #[inline]
    pub(crate) fn try_settle(&self, seen: EntryState) -> Result<(), EntryState> {
        self.swap(seen, seen.with_relinking(false))
    }

    #[inline]
    fn swap(&self, seen: EntryState, next: EntryState) -> Result<(), EntryState> {
        // AcqRel: the Acquire half sees what the previous transition published (the value, when
        // this one ends the timer; the sweeper's link, when it resets); the Release half
        // publishes this thread's link, or its use of the value, to the next one. Acquire on
        // failure: the loser acts on the state it is shown, as after `load`.
        match self.0.compare_exchange(seen.0, next.0, AcqRel, Acquire) {
            Ok(_) => Ok(()),
            Err(word) => Err(EntryState(word)),
        }
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::{AtomicEntryState, EntryState};
    use crate::id::Generation;
    use crate::tick::Tick;

    #[test]
    fn an_ended_timer_cannot_be_ended_again() {
        let state = AtomicEntryState::new(Generation(4));
        state.arm(Generation(5), Tick(9));
        let seen = state.load();
        assert_eq!(state.try_end(seen), Ok(Generation(6)));
        assert_eq!(state.try_end(seen), Err(EntryState::vacant(Generation(6))));
    }

    #[test]
    fn a_reset_keeps_the_generation_and_the_flag_is_its_own() {
        let state = AtomicEntryState::new(Generation(0));
        state.arm(Generation(1), Tick(9));
        let seen = state.load();
        let next = seen.with_deadline(Tick((1 << 40) + 3)).with_relinking(true);
        assert_eq!(state.try_reset(seen, next), Ok(()));
        assert_eq!(state.load().generation(), Generation(1));
        assert!(state.load().is_relinking());
        assert_eq!(state.load().deadline(Tick(1 << 40)), Tick((1 << 40) + 3));
        assert_eq!(state.try_settle(next), Ok(()));
        assert!(!state.load().is_relinking());
        assert_eq!(state.try_confirm(next), Err(next.with_relinking(false)));
    }
}
