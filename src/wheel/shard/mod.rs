//! One shard: a slab of timers and a hierarchy of slots with the names of their entries.
//!
//! This is where the wheel's promises are kept. Each entry has two words: its **state**
//! ([`EntryState`]: generation, relinking flag, deadline) says what may happen to the timer in it;
//! its **link** ([`AtomicLink`]: a tick) says when one of its names is met. Names and link belong
//! to the entry and not to the timer: they outlive it, and the entry's next timer uses them. A
//! server that arms and cancels a timer for each request files a name once a revolution, not once
//! a request.
//!
//! # Invariants
//!
//! * **I1, filed.** The entry of each armed timer has a name in a slot that is taken no later than
//!   the deadline (or in the overdue slot, or in the sweeper's hand), except while the operation
//!   that armed or reset it has not returned.
//! * **I2, the link tells the truth.** While the relinking flag is clear and the link's tick lies
//!   after the sweep, a name of this entry is in the slot that is taken at that tick, or in the
//!   sweeper's hand, except while the insert that wrote the link has not returned. (Nobody has its
//!   id before that. So only the sweeper can end its timer, when the link's tick has passed; and a
//!   drain, which makes the link forget.)
//!
//! It is always right to promise less: a link may forget a name. A name whose entry is vacant is
//! *stale* and is dropped when it is met, unless a resetter may still rely on it. Two names of one
//! entry are harmless: the first that is met when its timer is due ends it.
//!
//! [`protocol`] has the steps of each operation, and the races one by one.

pub(crate) mod meet;
mod protocol;

use crate::wheel::front::Front;
use crate::wheel::front::swept::published;
use crate::wheel::hierarchy::geometry::{Geometry, Place, SlotIndex};
use crate::wheel::hierarchy::slot::Name;
use crate::wheel::hierarchy::{Hierarchy, Taken};
use crate::wheel::id::TimerId;
use crate::wheel::memory::Guard;
use crate::wheel::prefetch::prefetch;
use crate::wheel::slab::entry::Entry;
use crate::wheel::slab::link::AtomicLink;
use crate::wheel::slab::state::{AtomicEntryState, EntryState};
use crate::wheel::slab::trim::Trim;
use crate::wheel::slab::{Claimed, Released, Slab};
use crate::wheel::tick::Tick;
use std::collections::VecDeque;

/// One shard of the wheel.
#[derive(Debug)]
pub(crate) struct Shard<T> {
    number: usize,
    slab: Slab<T>,
    hierarchy: Hierarchy,
}

/// Which deadline an operation has set, of which timer.
#[derive(Clone, Copy, Debug)]
struct Aim {
    id: TimerId,
    deadline: Tick,
}

/// Who relinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The thread that has set the relinking flag: the link is its own.
    Holder,
    /// Another one, while the flag is set: it files a name and leaves the link alone.
    Beside,
}

/// What came of a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Reset {
    /// The timer has ended, or never was.
    NotArmed,
    /// The deadline is set.
    Done,
}

/// Names filed and blocks made by one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filed {
    pub(crate) names: u32,
    pub(crate) blocks: u32,
}

impl<T> Shard<T> {
    pub(crate) fn new(number: usize, geometry: Geometry) -> Self {
        Self {
            number,
            slab: Slab::new(geometry.page_bits),
            hierarchy: Hierarchy::new(number, geometry),
        }
    }

    // In C, for `ci/genmc`: `insert`.
    /// Arms a timer. The value comes back when the slab's indices are used up.
    ///
    /// On return the caller has passed the fence of [`published`].
    #[inline]
    pub(crate) fn insert(
        &self,
        value: T,
        deadline: Tick,
        front: &Front,
        filed: &mut Filed,
        guard: &Guard,
    ) -> Result<TimerId, T> {
        let Some(Claimed { entry, index, vacant }) = self.slab.claim(guard) else {
            return Err(value);
        };
        let id = TimerId::new(self.number, vacant.generation().next(), index);
        let aim = Aim { id, deadline };
        // SAFETY: the entry was claimed just above and is armed below.
        unsafe { entry.put(value) };
        let swept = front.swept();
        if vacant.is_relinking() || in_time(entry.link.load(), deadline, swept) {
            let armed = arm(entry, vacant, deadline);
            published();
            if armed.is_relinking() {
                self.relink_as(Role::Beside, entry, aim, front, filed);
            } else {
                self.rely(entry, aim, front, filed);
            }
            return Ok(id);
        }
        let place = self.hierarchy.place(deadline, swept);
        // Also when it tells of nothing: a store does not show later resetters what the sweeper
        // has written, unless it is overwritten here.
        entry.link.store(at(place, swept));
        entry.state.arm(vacant, deadline);
        self.file(index, place, filed);
        published();
        if has_passed(place, deadline, front.swept()) {
            self.relink(entry, aim, front, filed);
        } else {
            front.alarm().check(at(place, swept));
        }
        Ok(id)
    }

    /// Ends the timer that `id` names and returns its value, and its last state.
    #[inline]
    pub(crate) fn cancel(&self, id: TimerId, guard: &Guard) -> Option<(T, EntryState)> {
        let entry = self.slab.entry(id.index(), guard)?;
        // State and value may lie in two cache lines.
        prefetch(entry);
        self.end(entry, id, guard, || ())
    }

    // In C, for `ci/genmc`: `reset`.
    /// Sets the deadline of the timer that `id` names.
    #[inline]
    pub(crate) fn reset(
        &self,
        id: TimerId,
        deadline: Tick,
        front: &Front,
        filed: &mut Filed,
        guard: &Guard,
    ) -> Reset {
        let Some(entry) = self.slab.entry(id.index(), guard) else {
            return Reset::NotArmed;
        };
        let aim = Aim { id, deadline };
        let mut seen = entry.state.load();
        loop {
            if seen.generation() != id.generation() {
                return Reset::NotArmed;
            }
            // A first look at the link saves an exchange when an earlier name will be needed.
            let free = !seen.is_relinking();
            let early = free && !in_time(entry.link.load(), deadline, front.swept());
            let next = seen.with_deadline(deadline);
            let next = if early { next.relinking() } else { next };
            match entry.state.try_reset(seen, next) {
                Ok(()) if early => self.relink_as(Role::Holder, entry, aim, front, filed),
                Ok(()) if free => self.rely(entry, aim, front, filed),
                Ok(()) => self.relink_as(Role::Beside, entry, aim, front, filed),
                Err(now) => {
                    seen = now;
                    continue;
                }
            }
            return Reset::Done;
        }
    }

    /// The deadline of the timer that `id` names.
    pub(crate) fn deadline(&self, id: TimerId, front: &Front, guard: &Guard) -> Option<Tick> {
        let state = self.slab.entry(id.index(), guard)?.state.load();
        (state.generation() == id.generation()).then(|| state.deadline(front.swept()))
    }

    /// Calls `hand_back` with each armed timer after ending it.
    pub(crate) fn drain(
        &self,
        front: &Front,
        guard: &Guard,
        mut hand_back: impl FnMut(TimerId, Tick, T),
    ) {
        self.slab.for_each(guard, |index, entry| {
            let state = entry.state.load();
            if !state.is_armed() {
                return;
            }
            let id = TimerId::new(self.number, state.generation(), index);
            // The insert that armed this timer may not have filed the name that its link tells of.
            let forget = || entry.link.store(AtomicLink::NONE);
            if let Some((value, ended)) = self.end(entry, id, guard, forget) {
                hand_back(id, ended.deadline(front.swept()), value);
            }
        });
    }

    /// Gives back entries of timers that were met and had ended.
    pub(crate) fn release(&self, released: &mut Released, guard: &Guard) {
        self.slab.release(released, guard);
    }

    /// The first tick after `swept` at which an occupied slot is taken.
    pub(crate) fn next_turn(&self, swept: Tick) -> Option<Tick> {
        self.hierarchy.next_turn(swept)
    }

    /// Whether names are overdue.
    pub(crate) fn has_overdue(&self) -> bool {
        self.hierarchy.has_overdue()
    }

    /// Begins to fetch the entry at `index`, so that the misses of several overlap.
    #[inline]
    pub(crate) fn prefetch(&self, index: u32, guard: &Guard) {
        if let Some(entry) = self.slab.entry(index, guard) {
            prefetch(entry);
        }
    }

    /// Takes the names that are overdue.
    pub(crate) fn take_overdue(&self, swept: Tick) -> Option<Taken> {
        self.hierarchy.take_overdue(swept)
    }

    /// Takes every occupied slot whose turn is after `from` and not after `to`.
    pub(crate) fn take_due(&self, from: Tick, to: Tick, taken: &mut VecDeque<Taken>) {
        self.hierarchy.take_due(from, to, taken);
    }

    /// Takes one slot out of turn, if it is occupied.
    pub(crate) fn take_early(&self, slot: SlotIndex, swept: Tick) -> Option<Taken> {
        self.hierarchy.take_early(slot, swept)
    }

    /// Puts a name that was taken early back into its slot.
    pub(crate) fn put_back(&self, name: Name, slot: SlotIndex, at: Tick, filed: &mut Filed) {
        filed.blocks += u32::from(self.hierarchy.put_back(name, slot, at));
    }

    /// The first occupied slot from `from` on, in a row of all slots.
    pub(crate) fn next_occupied(&self, from: SlotIndex) -> Option<SlotIndex> {
        self.hierarchy.next_occupied(from)
    }

    /// How many entries the slab may have.
    pub(crate) fn most_entries(&self) -> u64 {
        TimerId::INDICES - self.slab.page_len()
    }

    /// How many entries the slab has, vacant or not.
    pub(crate) fn entries(&self) -> u64 {
        self.slab.len()
    }

    /// How many bytes the slab's entries take.
    pub(crate) fn slab_bytes(&self) -> usize {
        self.slab.bytes()
    }

    /// Hoards up to `slice` vacant entries, to give whole pages back. `true` when a round ends.
    pub(crate) fn trim(&self, trim: &mut Trim, slice: usize, guard: &Guard) -> bool {
        trim.advance(&self.slab, slice, guard)
    }

    /// Gives back what was hoarded.
    pub(crate) fn give_back(&self, trim: &mut Trim, guard: &Guard) {
        trim.give_back(&self.slab, guard);
    }

    // In C, for `ci/genmc`: `cancel`.
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

    // In C, for `ci/genmc`: `rely`.
    /// Sees to a name in time for a timer whose state was exchanged while the flag was clear: the
    /// one that the link tells of, or a new one.
    #[inline]
    fn rely(&self, entry: &Entry<T>, aim: Aim, front: &Front, filed: &mut Filed) {
        if !in_time(entry.link.load(), aim.deadline, front.swept()) {
            self.relink(entry, aim, front, filed);
        } else if entry.state.load().is_relinking() {
            // The link may have been lowered just now by a resetter that has not rung yet: its
            // flag is then still set, and the link's Acquire shows it.
            self.relink_as(Role::Beside, entry, aim, front, filed);
        }
    }

    // In C, for `ci/genmc`: `relink`.
    /// Files an earlier name of an armed timer, as the holder of the relinking flag if it is free.
    #[inline(never)]
    fn relink(&self, entry: &Entry<T>, aim: Aim, front: &Front, filed: &mut Filed) {
        let mut seen = entry.state.load();
        while seen.generation() == aim.id.generation() {
            if seen.is_relinking() {
                return self.relink_as(Role::Beside, entry, aim, front, filed);
            }
            match entry.state.try_reset(seen, seen.relinking()) {
                Ok(()) => return self.relink_as(Role::Holder, entry, aim, front, filed),
                Err(now) => seen = now,
            }
        }
    }

    /// Steps 2 to 7 of relinking.
    #[inline(never)]
    fn relink_as(
        &self,
        role: Role,
        entry: &Entry<T>,
        Aim { id, mut deadline }: Aim,
        front: &Front,
        filed: &mut Filed,
    ) {
        // In C, for `ci/genmc`: `relink_as`.
        let _flag = (role == Role::Holder).then(|| Flag(&entry.state));
        loop {
            let mut state = entry.state.load();
            if state.generation() != id.generation() {
                break;
            }
            let swept = front.swept();
            if deadline.is_left_behind(swept) {
                state = renew(entry, state, deadline, swept.oldest());
                deadline = swept.oldest();
                if state.generation() != id.generation() {
                    break;
                }
            }
            let place = self.hierarchy.place(ahead_of(state.deadline(swept), swept), swept);
            self.file(id.index(), place, filed);
            if role == Role::Holder {
                set_link(&entry.link, place, swept);
            }
            published();
            if has_passed(place, deadline, front.swept()) {
                continue;
            }
            front.alarm().check(at(place, swept));
            break;
        }
    }

    #[inline]
    fn file(&self, index: u32, place: Place, filed: &mut Filed) {
        filed.names += 1;
        filed.blocks += u32::from(self.hierarchy.file(Name::new(index), place));
    }
}

/// The relinking flag of an entry, held: cleared at the end, also if the waker panics.
struct Flag<'e>(&'e AtomicEntryState);

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        self.0.settle();
    }
}

// In C, for `ci/genmc`: `ahead_of`.
/// Where to file a timer that was pulled forward to `deadline`: a quarter of the way sooner,
/// because a timer that was pulled forward once is likely to be again, and then relies on this
/// name.
#[inline]
fn ahead_of(deadline: Tick, swept: Tick) -> Tick {
    deadline.minus(deadline.since(swept) / 4)
}

// In C, for `ci/genmc`: `arm`.
/// Arms by an exchange, which keeps the relinking flag of a resetter that was held up.
#[inline]
fn arm<T>(entry: &Entry<T>, mut vacant: EntryState, deadline: Tick) -> EntryState {
    loop {
        match entry.state.try_arm(vacant, deadline) {
            Ok(armed) => return armed,
            // That resetter has cleared it.
            Err(now) => vacant = now,
        }
    }
}

/// Gives a timer whose deadline the sweep has left behind the oldest one that can be told, unless
/// another has reset it since. Returns its state after that.
#[cold]
fn renew<T>(entry: &Entry<T>, mut state: EntryState, deadline: Tick, oldest: Tick) -> EntryState {
    let generation = state.generation();
    while state.generation() == generation && state == state.with_deadline(deadline) {
        let renewed = state.with_deadline(oldest);
        match entry.state.try_reset(state, renewed) {
            Ok(()) => return renewed,
            Err(now) => state = now,
        }
    }
    state
}

/// Whether a link tells of a name still to come, and not after `deadline`.
#[inline]
fn in_time(link: Tick, deadline: Tick, swept: Tick) -> bool {
    // In C, for `ci/genmc`: `in_time`.
    swept < link && link <= deadline
}

// In C, for `ci/genmc`: `set_link`.
/// Step 3 of relinking: the link tells of the name just filed, unless it tells of an earlier one.
fn set_link(link: &AtomicLink, place: Place, swept: Tick) {
    let Place::Slot { at, .. } = place else {
        return;
    };
    let mut seen = link.load();
    while !in_time(seen, at, swept) {
        match link.replace(seen, at) {
            Ok(()) => return,
            Err(now) => seen = now,
        }
    }
}

/// When a name at `place` is met, if the sweep was at `swept` when it was filed.
#[inline]
fn at(place: Place, swept: Tick) -> Tick {
    match place {
        Place::Overdue => swept,
        Place::Slot { at, .. } => at,
    }
}

/// Whether the sweep, at `swept`, may not meet a name at `place` before the turn of its slot comes
/// round once more. What is overdue it meets soon, and in time but for one case: it has left the
/// deadline behind.
// In C, for `ci/genmc`: `has_passed`, without that case: the ports have no window.
#[inline]
fn has_passed(place: Place, deadline: Tick, swept: Tick) -> bool {
    match place {
        Place::Overdue => deadline.is_left_behind(swept),
        Place::Slot { at, .. } => at <= swept,
    }
}
