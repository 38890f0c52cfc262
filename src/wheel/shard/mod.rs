//! One shard: a slab of timers and a hierarchy of slots with the references to their entries.
//!
//! This is where the wheel's promises are kept. Each entry has two words: its **state**
//! ([`EntryState`]: generation, refiling flag, deadline) says what may happen to the timer in it;
//! its **next visit** ([`AtomicNextVisit`]: a tick) says when one of its references is visited.
//! References and `next_visit` belong to the entry and not to the timer: they outlive it, and the
//! entry's next timer uses them. A server that arms and cancels a timer for each request files a
//! reference once a revolution, not once a request.
//!
//! # Invariants
//!
//! * **I1, filed.** The entry of each armed timer has a reference in a slot that is taken no later
//!   than the deadline (or in the overdue slot, or in the sweeper's pending references), except
//!   while the operation that armed or reset it has not returned.
//! * **I2, the next visit is true.** While the refiling flag is clear and the `next_visit`'s tick
//!   lies after the sweep, a reference to this entry is in the slot that is taken at that tick, or
//!   in the sweeper's pending references, except while the insert that wrote `next_visit` has not
//!   returned. (Nobody has its id before that. So only the sweeper can end its timer, when the
//!   `next_visit`'s tick has passed; and a drain, which clears `next_visit`.)
//!
//! It is always right to promise less: a next visit may drop a reference. A
//! reference whose entry is vacant is *stale* and is discarded when it is visited, unless a
//! resetter may still rely on it. Two references to one entry are harmless: the first that is
//! visited when its timer is due ends it.
//!
//! [`protocol`] has the steps of each operation, and the races one by one; [`unfiled`] has what
//! they do where there is no memory for a reference, of which the other pages say nothing.

#![allow(clippy::inline_always, reason = "the common cases are to be one function each")]

pub(crate) mod arm;
mod lose;
mod protocol;
mod refile;
mod unfiled;
pub(crate) mod visit;

use crate::wheel::hierarchy::Hierarchy;
use crate::wheel::hierarchy::entry_ref::EntryRef;
use crate::wheel::hierarchy::geometry::{Geometry, Place};
use crate::wheel::id::{Generation, ShardNumber, TimerId};
use crate::wheel::memory::Guard;
use crate::wheel::prefetch::prefetch;
use crate::wheel::progress::Progress;
use crate::wheel::slab::Slab;
use crate::wheel::slab::entry::Entry;
use crate::wheel::slab::magazine::Magazines;
use crate::wheel::slab::next_visit::AtomicNextVisit;
use crate::wheel::slab::state::EntryState;
use crate::wheel::tick::Tick;
use unfiled::Unfiled;

/// One shard of the wheel.
#[derive(Debug)]
pub(crate) struct Shard<T> {
    pub(in crate::wheel) number: ShardNumber,
    pub(in crate::wheel) slab: Slab<Entry<T>>,
    pub(in crate::wheel) hierarchy: Hierarchy,
    unfiled: Unfiled,
}

/// Which deadline an operation has set, of which timer.
#[derive(Clone, Copy, Debug)]
struct Aim {
    id: TimerId,
    deadline: Tick,
}

/// The part that a thread takes in refiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refiler {
    /// The thread that has set the refiling flag: `next_visit` is its own.
    Owner,
    /// Another one, while the flag is set: it files a reference and leaves `next_visit` alone.
    Helper,
}

/// What came of giving a timer a deadline, by a reference that its entry may have.
#[derive(Debug)]
#[must_use]
pub(crate) enum Arm<F = ()> {
    /// The deadline is set.
    Done,
    /// It is set, but a reference in time is needed: [`Shard::see_to`].
    NotInTime,
    /// It is not set: no reference is visited in time.
    NoReference(F),
    /// It is not set: the timer has ended, or another thread is in the midst of something.
    Raced(F),
}

/// The length of the common processors' cache lines, in bytes.
const LINE: usize = 64;

/// References filed and blocks made by one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Filed {
    pub(crate) references: u32,
    pub(crate) blocks: u32,
}

impl Filed {
    pub(crate) const NOTHING: Filed = Filed { references: 0, blocks: 0 };

    /// These, and more.
    pub(crate) fn and(self, more: Filed) -> Filed {
        Filed { references: self.references + more.references, blocks: self.blocks + more.blocks }
    }
}

impl<T> Shard<T> {
    pub(crate) fn new(number: usize, geometry: Geometry) -> Self {
        Self {
            number: ShardNumber::new(number),
            slab: Slab::new(geometry.page_bits, Generation::drawn()),
            hierarchy: Hierarchy::new(number, geometry),
            unfiled: Unfiled::new(),
        }
    }

    /// Ends the timer that `id` refers to and returns its value, and its last state.
    pub(crate) fn cancel(&self, id: TimerId, guard: &Guard) -> Option<(T, EntryState)> {
        let entry = self.slab.entry(id.index(), guard)?;
        self.end(entry, id, guard, || ())
    }

    /// As [`cancel`](Self::cancel), of a timer whose insert has not returned, and may have not
    /// filed the reference that the entry's `next_visit` tells of.
    pub(crate) fn withdraw(&self, id: TimerId, guard: &Guard) -> Option<T> {
        let entry = self.slab.entry(id.index(), guard)?;
        let clear = || entry.next_visit.store(AtomicNextVisit::NONE);
        self.end(entry, id, guard, clear).map(|(value, _)| value)
    }

    /// As [`cancel`](Self::cancel), in the common case: the entry goes into the caller's magazines,
    /// whose home this is. `None`: nothing was done, for want of room there, or because the timer
    /// has ended, or is being changed.
    #[inline(always)]
    pub(crate) fn cancel_into(
        &self,
        magazines: &Magazines,
        id: TimerId,
        guard: &Guard,
    ) -> Option<(T, EntryState)> {
        let entry = self.slab.entry(id.index(), guard)?;
        if size_of::<Entry<T>>() > LINE {
            // State and value lie in two cache lines.
            prefetch(entry);
        }
        let top = magazines.with_room()?;
        let seen = entry.state.load();
        let ended = EntryState::end_of(id, top);
        if !seen.is_unflagged_of(id) || ended.is_exhausted() {
            return None;
        }
        entry.state.try_end_to(seen, ended).ok()?;
        // SAFETY: the timer was ended just above and its entry is put away below.
        let value = unsafe { entry.take() };
        magazines.push(id.index());
        Some((value, seen))
    }

    /// Sets the deadline of the timer that `id` refers to, in the common case: a reference is
    /// visited in time, and nobody is refiling.
    #[inline(always)]
    pub(crate) fn push_back(
        &self,
        id: TimerId,
        deadline: Tick,
        progress: &Progress,
        guard: &Guard,
    ) -> Arm {
        let Some(entry) = self.slab.entry(id.index(), guard) else {
            return Arm::Raced(());
        };
        let (seen, next_visit) = (entry.state.load(), entry.next_visit.load());
        if !seen.is_unflagged_of(id) {
            return Arm::Raced(());
        }
        if !in_time(next_visit, deadline, progress.swept()) {
            return Arm::NoReference(());
        }
        let pushed = seen.with_deadline(deadline);
        if entry.state.try_reset(seen, pushed).is_err() {
            Arm::Raced(())
        } else if !still_waits(entry, pushed, next_visit, progress) {
            Arm::NotInTime
        } else {
            Arm::Done
        }
    }

    /// Sees to a reference in time for a timer whose deadline was set by a reference that its entry
    /// had.
    pub(crate) fn see_to(
        &self,
        id: TimerId,
        deadline: Tick,
        progress: &Progress,
        guard: &Guard,
    ) -> Filed {
        let entry = self.slab.entry(id.index(), guard);
        entry.map_or(Filed::NOTHING, |entry| self.rely(entry, Aim { id, deadline }, progress))
    }

    /// Sets the deadline of the timer that `id` refers to. `None`: it has ended, or never was.
    pub(crate) fn reset(
        &self,
        id: TimerId,
        deadline: Tick,
        progress: &Progress,
        guard: &Guard,
    ) -> Option<Filed> {
        let entry = self.slab.entry(id.index(), guard)?;
        let aim = Aim { id, deadline };
        let mut seen = entry.state.load();
        loop {
            if seen.generation() != id.generation() {
                return None;
            }
            // A first check of `next_visit` saves an exchange when an earlier reference will be
            // needed.
            let free = !seen.is_refiling();
            let early = free && !in_time(entry.next_visit.load(), deadline, progress.swept());
            let next = seen.with_deadline(deadline);
            let next = if early { next.refiling() } else { next };
            match entry.state.try_reset(seen, next) {
                Ok(()) if early => {
                    return Some(self.refile_as(Refiler::Owner, entry, aim, progress));
                }
                Ok(()) if free => return Some(self.rely(entry, aim, progress)),
                Ok(()) => return Some(self.refile_as(Refiler::Helper, entry, aim, progress)),
                Err(now) => seen = now,
            }
        }
    }

    /// Whether the timer that `id` refers to is armed.
    #[inline]
    pub(crate) fn contains(&self, id: TimerId, guard: &Guard) -> bool {
        let entry = self.slab.entry(id.index(), guard);
        entry.is_some_and(|entry| entry.state.load().is_of(id))
    }

    /// The deadline of the timer that `id` refers to.
    pub(crate) fn deadline(&self, id: TimerId, progress: &Progress, guard: &Guard) -> Option<Tick> {
        let state = self.slab.entry(id.index(), guard)?.state.load();
        (state.generation() == id.generation()).then(|| state.deadline(progress.swept()))
    }

    /// Calls `visit` with the deadline of each armed timer, as it is when it is looked at. Not with
    /// its id, which nobody may have before its insert has returned.
    pub(crate) fn for_each_armed(
        &self,
        progress: &Progress,
        guard: &Guard,
        mut visit: impl FnMut(Tick),
    ) {
        self.slab.for_each(guard, |_, entry| {
            let state = entry.state.load();
            if state.is_armed() {
                visit(state.deadline(progress.swept()));
            }
        });
    }

    /// Calls `hand_back` with each armed timer after ending it.
    pub(crate) fn drain(
        &self,
        progress: &Progress,
        guard: &Guard,
        mut hand_back: impl FnMut(TimerId, Tick, T),
    ) {
        self.slab.for_each(guard, |index, entry| {
            // An exchange, not a look: of an insert that arms by an exchange as well, this is
            // before it, and shows it that the wheel was closed, or after it, and sees its timer.
            let mut state = entry.state.load();
            // One that is pristine may be on a page that is away, where nobody writes. The first
            // timer that comes to live there is armed by a store, and a fence.
            while !state.is_pristine() {
                match entry.state.try_revalidate(state) {
                    Ok(()) => break,
                    Err(now) => state = now,
                }
            }
            if !state.is_armed() {
                return;
            }
            let id = TimerId::new(self.number, state.generation(), index);
            // The insert that armed this timer may not have filed the reference that its
            // `next_visit` tells of.
            let clear = || entry.next_visit.store(AtomicNextVisit::NONE);
            if let Some((value, ended)) = self.end(entry, id, guard, clear) {
                hand_back(id, ended.deadline(progress.swept()), value);
            }
        });
    }

    /// Begins to fetch the entry at `index`, so that the misses of several overlap.
    #[inline]
    pub(crate) fn prefetch(&self, index: u32, guard: &Guard) {
        if let Some(entry) = self.slab.entry(index, guard) {
            prefetch(entry);
        }
    }

    /// How many entries the slab may have.
    pub(crate) fn most_entries(&self) -> u64 {
        TimerId::INDICES - self.slab.page_len()
    }

    /// Ends a timer, calls `between` and releases its entry. Returns its value and its last state.
    #[inline]
    fn end(
        &self,
        entry: &Entry<T>,
        id: TimerId,
        guard: &Guard,
        between: impl FnOnce(),
    ) -> Option<(T, EntryState)> {
        let mut seen = entry.state.load();
        let mut released = self.slab.begin_release();
        while seen.generation() == id.generation() {
            match entry.state.try_end(seen, released.next()) {
                Ok(vacant) => {
                    // SAFETY: the timer was ended just above and its entry is released below.
                    let value = unsafe { entry.take() };
                    between();
                    self.slab.gather(&mut released, id.index(), vacant, guard);
                    self.slab.release(&mut released, guard);
                    return Some((value, seen));
                }
                Err(now) => seen = now,
            }
        }
        None
    }

    /// Sees to a reference in time for a timer whose state was exchanged while the flag was clear:
    /// the one that `next_visit` tells of, or a new one.
    #[inline]
    fn rely(&self, entry: &Entry<T>, aim: Aim, progress: &Progress) -> Filed {
        match needs(entry, aim.deadline, progress) {
            None => Filed::NOTHING,
            Some(Refiler::Owner) => self.refile(entry, aim, progress),
            Some(Refiler::Helper) => self.refile_as(Refiler::Helper, entry, aim, progress),
        }
    }

    /// Files a reference; `None`: there is no memory for it ([`unfiled`]).
    #[inline(always)]
    fn file(&self, index: u32, place: Place) -> Option<Filed> {
        let made = self.hierarchy.file(EntryRef::new(index), place)?;
        Some(Filed { references: 1, blocks: u32::from(made) })
    }
}

/// Whether a timer whose state was exchanged while the flag was clear needs a reference, for which
/// its `next_visit` has to be looked at once more; and in which part to file it.
#[inline]
fn needs<T>(entry: &Entry<T>, deadline: Tick, progress: &Progress) -> Option<Refiler> {
    if !in_time(entry.next_visit.load(), deadline, progress.swept()) {
        return Some(Refiler::Owner);
    }
    // `next_visit` may have been lowered just now by a resetter that has not woken the sweeper yet:
    // its flag is then still set, and the `next_visit`'s Acquire shows it.
    entry.state.load().is_refiling().then_some(Refiler::Helper)
}

/// Whether the reference that was relied on is definitely pending, after the exchange to `state`,
/// which has no flag: as [`needs`] finds out, but for a next visit that tells of another by now, or
/// another state.
#[inline]
fn still_waits<T>(
    entry: &Entry<T>,
    state: EntryState,
    next_visit: Tick,
    progress: &Progress,
) -> bool {
    entry.next_visit.load() == next_visit
        && progress.swept() < next_visit
        && entry.state.load() == state
}

/// Whether a next visit tells of a reference still to come, and not after `deadline`.
#[inline]
fn in_time(next_visit: Tick, deadline: Tick, swept: Tick) -> bool {
    swept < next_visit && next_visit <= deadline
}

/// When a reference at `place` is visited, if the sweep was at `swept` when it was filed.
#[inline]
fn at(place: Place, swept: Tick) -> Tick {
    match place {
        Place::Overdue => swept,
        Place::Slot { at, .. } => at,
    }
}

/// Whether the sweep, at `swept`, may not visit a reference at `place` before the expiry of its
/// slot comes once more. What is overdue it visits soon, and in time but for one case: it has left
/// the deadline behind.
#[inline]
fn has_passed(place: Place, deadline: Tick, swept: Tick) -> bool {
    match place {
        Place::Overdue => deadline.is_left_behind(swept),
        Place::Slot { at, .. } => at <= swept,
    }
}
