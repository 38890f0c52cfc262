//! The entry state: one word that decides every race for a timer.
//!
//! ```text
//!   63                                        26  25   24                      0
//!  ┌───────────────────────────────────────────┬─────┬─────────────────────────┐
//!  │ odd: low bits of the deadline (38)        │     │                         │
//!  │ even: index of the next vacant entry (30) │  R  │     generation (25)     │
//!  └───────────────────────────────────────────┴─────┴─────────────────────────┘
//!
//!               arm, try_arm: generation + 1
//!   Vacant ──────────────────────────────────► Armed ──┐ try_reset, try_revalidate:
//!   even generation                    odd generation ◄┘ same generation
//!      ▲                                          │
//!      └────── try_end: generation + 1 ───────────┘
//! ```
//!
//! Generation and deadline are in one word, so that cancel, reset and expiry are each one
//! compare-and-swap on it and every race between them has one winner. The thread that advances the
//! generation ([`try_end`](AtomicEntryState::try_end)) takes ownership of the value and the entry.
//! After its timer has ended, a state word never comes back, because generations only grow. While
//! the timer is armed, resets to and fro may repeat a word. (A page that is given back is
//! [zeroed](super::page_table). Its words are zero, which is no timer's state, until it is
//! installed again with later generations.)
//!
//! **R, refiling.** Set by a resetter that is filing a reference to this entry that is visited
//! earlier than the old ones. While it is set, only that thread may make the entry's
//! [`next_visit`](super::next_visit::AtomicNextVisit) describe a reference, and no thread relies on
//! `next_visit`. Only the same thread clears the flag
//! ([`clear_refiling`](AtomicEntryState::clear_refiling)). Every other transition preserves it,
//! even from one timer of the entry to the next. The protocol is in [`crate::wheel::ops`].

#![forbid(unsafe_code)]

#[cfg(any(modelled, tiny))]
use crate::sync::Relaxed;
use crate::sync::{AcqRel, Acquire, AtomicU64, Release};
use crate::wheel::bits::Field;
use crate::wheel::id::{Generation, TimerId};
use crate::wheel::tick::Tick;

/// Lowest, because a mask of more than 32 bits is an instruction of its own.
const GENERATION: Field = Field::low(Generation::BITS);
const REFILING: Field = GENERATION.above(1);
/// The generation and the flag.
const GENERATION_AND_FLAG: Field = Field::low(Generation::BITS + 1);
const DEADLINE: Field = REFILING.above(Tick::LOW_BITS);
/// 30 bits are used, but the field is read and written as 32.
const NEXT: Field = REFILING.above(32);

/// A copied entry state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EntryState(u64);

impl EntryState {
    /// Creates the state of a vacant entry before `next` in the chain of vacant entries.
    #[inline]
    pub(crate) fn vacant(generation: Generation, next: u32) -> Self {
        debug_assert!(!generation.is_armed());
        Self(GENERATION.put(u64::from(generation.0)) | NEXT.put(u64::from(next)))
    }

    #[inline]
    pub(crate) fn generation(self) -> Generation {
        Generation(GENERATION.get_u32(self.0))
    }

    /// Returns `true` if the entry holds the timer of `id`. The entry must be the one of the id.
    #[inline]
    pub(crate) fn is_of(self, id: TimerId) -> bool {
        GENERATION.get(self.0 ^ id.to_bits()) == 0
    }

    /// Returns `true` if the entry holds the timer of `id` and the refiling flag is clear. The
    /// entry must be the one of the id.
    #[inline]
    pub(crate) fn is_unflagged_of(self, id: TimerId) -> bool {
        GENERATION_AND_FLAG.get(self.0 ^ id.to_bits()) == 0
    }

    /// Returns `true` if the entry holds a timer.
    #[inline]
    pub(crate) fn is_armed(self) -> bool {
        self.generation().is_armed()
    }

    /// Returns the deadline, restored from its low bits and the sweep's tick. For armed states.
    #[inline]
    pub(crate) fn deadline(self, swept: Tick) -> Tick {
        Tick::near(DEADLINE.get(self.0), swept)
    }

    /// Returns the next vacant entry. For vacant states.
    #[inline]
    pub(crate) fn next(self) -> u32 {
        NEXT.get_u32(self.0)
    }

    /// Returns `true` if the entry's memory is as the system returned it, for the first time or
    /// again. No timer has used the entry since then, and no reference to it is relied upon.
    #[inline]
    pub(crate) fn is_pristine(self) -> bool {
        self.generation() == Generation::UNWRITTEN
    }

    /// Returns `true` if the refiling flag is set, because a resetter is filing a reference.
    #[inline]
    pub(crate) fn is_refiling(self) -> bool {
        REFILING.get(self.0) == 1
    }

    /// Returns this armed state with another deadline.
    #[inline]
    pub(crate) fn with_deadline(self, deadline: Tick) -> Self {
        debug_assert!(self.is_armed());
        Self(GENERATION_AND_FLAG.get(self.0) | DEADLINE.put(deadline.low()))
    }

    /// Returns this armed state with the refiling flag set.
    #[inline]
    pub(crate) fn refiling(self) -> Self {
        Self(self.0 | REFILING.put(1))
    }

    /// Returns the vacant state that ends this armed state, before `next`.
    #[inline]
    pub(crate) fn ended(self, next: u32) -> Self {
        let kept = GENERATION_AND_FLAG.get(self.0);
        Self(kept.wrapping_add(GENERATION.put(1)) | NEXT.put(u64::from(next)))
    }

    /// Returns the state that ends the timer of `id` while the refiling flag is clear, before
    /// `next`, or `None` if the entry is exhausted then. See [`ended`](Self::ended).
    #[inline]
    pub(crate) fn end_of(id: TimerId, next: u32) -> Option<Self> {
        let vacant = GENERATION_AND_FLAG.get(id.to_bits()) + GENERATION.put(1);
        let is_exhausted = vacant >= GENERATION.put(u64::from(Generation::EXHAUSTED.0));
        (!is_exhausted).then_some(Self(vacant | NEXT.put(u64::from(next))))
    }

    /// Returns the state of the timer of `id` with this deadline, while the refiling flag is clear.
    #[inline]
    pub(crate) fn of(id: TimerId, deadline: Tick) -> Self {
        // The flag's bit is zero in an id.
        Self(GENERATION_AND_FLAG.get(id.to_bits()) | DEADLINE.put(deadline.low()))
    }

    /// Returns the state of a timer with this deadline that replaces a vacant state.
    #[inline]
    fn armed(self, deadline: Tick) -> Self {
        Self::with_flag_of(self, self.generation().next(), DEADLINE.put(deadline.low()))
    }

    /// Returns a state of `generation`, with `rest` in the highest field and this state's flag.
    #[inline]
    fn with_flag_of(self, generation: Generation, rest: u64) -> Self {
        let flag = self.0 & REFILING.put(1);
        Self(GENERATION.put(u64::from(generation.0)) | flag | rest)
    }
}

/// The entry's state word, by default the word of a [pristine](EntryState::is_pristine) entry.
#[derive(Debug, Default)]
pub(crate) struct AtomicEntryState(AtomicU64);

impl AtomicEntryState {
    #[inline]
    pub(crate) fn load(&self) -> EntryState {
        // Acquire: pairs with the Release of the transition that wrote the state, so that the value
        // and the `next_visit` written before it are seen.
        EntryState(self.0.load(Acquire))
    }

    /// Vacant → Armed, by the thread that has claimed the entry for the timer of `id` and has seen
    /// it without the flag, which no thread can set meanwhile.
    #[inline]
    pub(crate) fn arm(&self, id: TimerId, deadline: Tick) {
        let armed = EntryState::of(id, deadline);
        debug_assert_eq!(self.load().generation().next(), armed.generation());
        // Release: publishes value and `next_visit` to the thread that ends, resets or visits this
        // timer; pairs with the Acquire of `load` and of `compare_exchange`.
        #[cfg(not(loom))]
        self.0.store(armed.0, Release);
        // Loom would put this store between the halves of the sweeper's revalidation: it does not
        // know that an exchange is one step in the word's order.
        #[cfg(loom)]
        self.0.swap(armed.0, Release);
    }

    /// Vacant → Armed, by the thread that has claimed the entry. It observes the sweeper's writes
    /// before the last revalidation of the vacant state.
    #[inline]
    pub(crate) fn try_arm(
        &self,
        seen: EntryState,
        deadline: Tick,
    ) -> Result<EntryState, EntryState> {
        debug_assert!(!seen.is_armed());
        let armed = seen.armed(deadline);
        self.compare_exchange(seen, armed).map(|()| armed)
    }

    /// The variant of [`try_arm`](Self::try_arm) for an entry that was seen without the flag, which
    /// sets the state [of](EntryState::of) a timer.
    #[inline]
    pub(crate) fn try_arm_unflagged(
        &self,
        seen: EntryState,
        armed: EntryState,
    ) -> Result<(), EntryState> {
        debug_assert!(!seen.is_refiling() && seen.generation().next() == armed.generation());
        self.compare_exchange(seen, armed)
    }

    /// Writes the state of an entry whose page has just been installed. No other thread changes it.
    #[inline]
    pub(crate) fn put(&self, state: EntryState) {
        // Release: the vacant stack publishes the entry. This ordering makes a thread that looks
        // for a timer of the page that was here before also see what its holder did.
        #[cfg(not(loom))]
        self.0.store(state.0, Release);
        // As in `arm`: a drain revalidates the states of a page that has just been put in.
        #[cfg(loom)]
        self.0.swap(state.0, Release);
    }

    /// Makes the entry [pristine](EntryState::is_pristine), by writing zeros. For the models, whose
    /// memory is not the system's.
    #[cfg(any(modelled, tiny))]
    pub(crate) fn zero(&self) {
        // Relaxed: a thread that installs the page again is ordered after it by the page table; a
        // thread that reads before may find either. An exchange, which loom keeps whole against
        // others.
        self.0.swap(EntryState::vacant(Generation::UNWRITTEN, 0).0, Relaxed);
    }

    /// Vacant → Vacant, of the same generation or a later one, before `next`, by the thread that
    /// holds the entry exclusively.
    #[inline]
    pub(crate) fn chain(&self, generation: Generation, next: u32) {
        let mut seen = self.load();
        // Other threads may clear the flag, once, or revalidate the state.
        while let Err(now) =
            self.compare_exchange(seen, seen.with_flag_of(generation, NEXT.put(next.into())))
        {
            seen = now;
        }
    }

    /// Armed → Vacant, before `next`. `Ok` gives the caller ownership of the value and the entry,
    /// once.
    #[inline]
    pub(crate) fn try_end(&self, seen: EntryState, next: u32) -> Result<Generation, EntryState> {
        let ended = seen.ended(next);
        self.try_end_to(seen, ended).map(|()| ended.generation())
    }

    /// The variant of [`try_end`](Self::try_end) with a precomputed [end](EntryState::ended) of
    /// `seen`.
    #[inline]
    pub(crate) fn try_end_to(&self, seen: EntryState, ended: EntryState) -> Result<(), EntryState> {
        debug_assert!(seen.is_armed() && !ended.is_armed());
        self.compare_exchange(seen, ended)
    }

    /// Armed → Armed, to the deadline and flag of `next`.
    #[inline]
    pub(crate) fn try_reset(&self, seen: EntryState, next: EntryState) -> Result<(), EntryState> {
        debug_assert_eq!(seen.generation(), next.generation());
        self.compare_exchange(seen, next)
    }

    /// Confirms the state without changing it. A later reset or arm observes the caller's earlier
    /// writes. An earlier one makes this fail, unless the state is the same again.
    #[inline]
    pub(crate) fn try_revalidate(&self, seen: EntryState) -> Result<(), EntryState> {
        self.compare_exchange(seen, seen)
    }

    /// Clears the refiling flag. Called by the thread that set it, whose timer may have ended.
    #[inline]
    pub(crate) fn clear_refiling(&self) {
        // AcqRel:
        // - the Release half publishes `next_visit`, and that its reference has been filed, to each
        //   thread that finds the flag clear;
        // - the Acquire half keeps the order of the states unbroken.
        let before = EntryState(self.0.fetch_and(!REFILING.put(1), AcqRel));
        // The flag is lost only on a page that is exhausted.
        debug_assert!(before.is_refiling() || before.is_pristine(), "another's flag: {before:?}");
    }

    #[inline]
    fn compare_exchange(&self, seen: EntryState, next: EntryState) -> Result<(), EntryState> {
        // AcqRel on success, Acquire on failure:
        // - the Acquire half observes what the previous transition published: the value, when this
        //   one ends the timer, or the sweeper's `next_visit`, when it resets;
        // - the Release half publishes this thread's `next_visit`, or its use of the value, to the
        //   next one;
        // - on failure, the loser acts on the state it is shown, as after `load`.
        match self.0.compare_exchange(seen.0, next.0, AcqRel, Acquire) {
            Ok(_) => Ok(()),
            Err(word) => Err(EntryState(word)),
        }
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::{AtomicEntryState, EntryState};
    use crate::wheel::id::{Generation, ShardNumber, TimerId};
    use crate::wheel::tick::Tick;

    /// A timer of generation 5, due at 9.
    fn armed() -> AtomicEntryState {
        let state = AtomicEntryState::default();
        assert!(state.load().is_pristine());
        state.put(EntryState::vacant(Generation(4), 7));
        assert_eq!(state.load().next(), 7);
        state.arm(TimerId::new(ShardNumber::new(255), Generation(5), u32::MAX >> 2), Tick(9));
        assert_eq!(state.load().deadline(Tick(0)), Tick(9));
        state
    }

    #[test]
    fn an_ended_timer_cannot_be_ended_again() {
        let state = armed();
        let seen = state.load();
        assert_eq!(state.try_end(seen, 3), Ok(Generation(6)));
        assert_eq!(state.try_end(seen, 3), Err(EntryState::vacant(Generation(6), 3)));
    }

    #[test]
    fn an_end_by_its_id_is_that_by_its_state() {
        let exhausted = Generation::EXHAUSTED.0;
        for (generation, shard) in [(1, 0), (5, 255), (exhausted - 3, 7), (exhausted - 1, 255)] {
            let id = TimerId::new(ShardNumber::new(shard), Generation(generation), 77);
            let armed = EntryState::of(id, Tick(u64::MAX));
            let ended = armed.ended((1 << 30) - 1);
            assert_eq!(ended.next(), (1 << 30) - 1);
            let is_exhausted = generation == exhausted - 1;
            let expected = (!is_exhausted).then_some(ended);
            assert_eq!(EntryState::end_of(id, (1 << 30) - 1), expected);
            assert!(armed.is_unflagged_of(id) && !armed.refiling().is_unflagged_of(id));
        }
    }

    #[test]
    fn a_reset_keeps_the_generation_and_the_flag_is_its_own() {
        let state = armed();
        let seen = state.load();
        let next = seen.with_deadline(Tick((1 << 40) + 3)).refiling();
        assert_eq!(state.try_reset(seen, next), Ok(()));
        assert_eq!(state.load().generation(), Generation(5));
        assert!(state.load().is_refiling());
        assert_eq!(state.load().deadline(Tick(1 << 40)), Tick((1 << 40) + 3));
        state.clear_refiling();
        assert!(!state.load().is_refiling());
        assert_eq!(state.try_revalidate(next), Err(state.load()));
    }

    #[test]
    fn the_flag_outlives_its_timer() {
        let state = armed();
        let seen = state.load();
        assert_eq!(state.try_reset(seen, seen.refiling()), Ok(()));
        assert_eq!(state.try_end(state.load(), 3), Ok(Generation(6)));
        state.chain(Generation(8), 11);
        let vacant = state.load();
        assert!(vacant.is_refiling() && vacant.next() == 11);
        let armed = state.try_arm(vacant, Tick(10)).unwrap();
        assert!(armed.is_refiling() && armed.generation() == Generation(9));
        state.clear_refiling();
        assert_eq!(state.load().deadline(Tick(0)), Tick(10));
        assert!(!state.load().is_refiling());
    }
}
