//! One shard: a slab of timers and a hierarchy of slots with their names.
//!
//! This is where the wheel's promises are kept. Each timer has two words: its **state**
//! ([`EntryState`]: generation, relinking flag, deadline) says
//! what may happen to it; its **link** ([`Link`]: generation, tick) says where it waits.
//!
//! # What must hold
//!
//! * **I1, filed.** Each armed timer has a name in a slot that is taken no later than its
//!   deadline (or in the overdue slot, or in the sweeper's hand), except while the operation that
//!   armed or reset it has not returned.
//! * **I2, the link tells the truth.** While the relinking flag is clear and the link's tick lies
//!   after the sweep, a name of this timer is in the slot that is taken at that tick, or in the
//!   sweeper's hand, except while the insert that armed it has not returned.
//!
//! A name whose timer has ended is *stale*: its generation has passed, and it is dropped when it
//! is met. Two names of one timer are harmless: the first that is due ends it.
//!
//! # The verbs
//!
//! **Insert.** Claim a vacant entry; write value and link; arm; file the name; fence; look at the
//! sweep again and, if the slot's turn has come, file once more ([`Shard::relink`]).
//!
//! **Cancel.** One exchange on the state ends the timer. Its name stays behind, stale.
//!
//! **Reset.** One exchange on the state sets the deadline. Then the link is read: if it names a
//! tick after the sweep and not after the new deadline, the name there will be met in time, and
//! the sweeper will read the new deadline. That is the common case: pushing a deadline back costs
//! one exchange and one load from the same cache line. Otherwise an earlier name is needed
//! ([`Shard::relink`]):
//!
//! 1. set the relinking flag (with the deadline, in the same exchange, when the link already
//!    shows that it will be needed); 2. file a name for the deadline; 3. exchange the link;
//!    4. fence; 5. if the sweep has passed the slot meanwhile, again from 2; 6. ring the alarm if
//!    the sweeper rests for too long; 7. clear the flag.
//!
//! A resetter that finds the flag already set does 2, 4, 5 and 6 only and leaves the link alone.
//!
//! **Meet** (the sweeper, for each name it has taken). Read the state. Another generation: stale.
//! Due: end the timer; the value is the sweeper's. Due later:
//!
//! 1. the flag is clear and the link names a tick after the sweep and not after the deadline, and
//!    not the slot that this name was taken from: another name waits there, and this one is
//!    redundant; confirm the state by an exchange to the same value and drop the name;
//! 2. otherwise, if the flag is clear, exchange the link to the tick of the new slot, file the
//!    name there, and confirm the state by an exchange to the same value; if that fails, somebody
//!    was faster: read the state again;
//! 3. while the flag is set, the link is the resetter's, and may come to tell of this very name:
//!    put it back into its slot, for the slot's next turn; if that is after the deadline, file
//!    another for the deadline; confirm as in 2.
//!
//! # The races
//!
//! **Reset against meet.** The states of an entry form one order, and all its exchanges
//! synchronise along it. If the reset comes before the sweeper's confirmation, the confirmation
//! fails and the sweeper reads the new deadline. If it comes after, the resetter sees the
//! sweeper's link, and the tick of its sweep, and does not rely on a name that was moved. A tick
//! promised in the link by the sweeper is always filed, even when its confirmation then fails.
//!
//! **A name met before its turn.** A sweep that moves on by more than one slot takes a slot for a
//! turn that is past, and may find in it a name that was filed a moment ago, by the tick just
//! announced, for the slot's next turn. The link then names this very slot, and so the name is
//! filed again, not taken for redundant. While a resetter holds the flag, the link may name this
//! slot now, or when the resetter has written it: so the name goes back there, whatever else is
//! filed, and the link tells the truth when the flag is cleared.
//!
//! **Reset against a redundant name.** The sweeper drops a name because the link names a later
//! tick L, and confirms the state after it has read L. A resetter whose exchange comes after that
//! sees L, or a link written later; one whose exchange comes before makes the confirmation fail.
//!
//! **A resetter held up between 2 and 3.** Its name may be met before the link says that it is
//! there: a link that lies would make a later resetter rely on nothing. If the name is met in its
//! turn, step 5 finds the sweep that met it; if before its turn, it is put back (meet, 3). Names
//! that are dropped out of turn ([`Shard::is_needed`]) are dropped only while the flag is clear.
//!
//! **A resetter held up between 1 and 7** keeps others from using the link, not from working:
//! they file names of their own. It cannot touch a later timer of the entry, nor the chain of
//! vacant entries: both its words hold its generation.
//!
//! **An inserter held up after choosing its slot** finds at its second look that the slot's turn
//! has come ([`crate::swept`]). What it filed there is met a revolution later, as stale,
//! redundant or, at worst, early, and then filed again.
//!
//! **Wake-ups.** Whoever relies on a name relies also on its filer having rung the alarm: an
//! insert rings before it returns its id, a resetter before it clears the flag (so a reset that
//! relies on a link looks at the flag once more, after the link), and the sweeper needs no ring.

use crate::alarm::Alarm;
use crate::hierarchy::geometry::{Geometry, Place, SlotIndex};
use crate::hierarchy::{Hierarchy, Taken};
use crate::id::TimerId;
use crate::reclaim::Guard;
use crate::slab::entry::Entry;
use crate::slab::link::Link;
use crate::slab::state::EntryState;
use crate::slab::trim::Trim;
use crate::slab::{Claimed, Released, Slab};
use crate::swept::{SweptTick, published};
use crate::tick::Tick;

/// One shard of the wheel.
#[derive(Debug)]
pub(crate) struct Shard<T> {
    number: usize,
    slab: Slab<T>,
    hierarchy: Hierarchy,
}

/// What a shard needs to know of the wheel around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings<'w> {
    pub(crate) swept: &'w SweptTick,
    pub(crate) alarm: &'w Alarm,
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

/// What the sweeper gathers while it meets names.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) filed: Filed,
    pub(crate) released: Released,
}

/// Where names were taken from, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// Their slot; `None` for what was overdue.
    pub(crate) slot: Option<SlotIndex>,
    /// How far the sweep had come.
    pub(crate) swept: Tick,
}

/// What came of meeting a name.
#[derive(Debug)]
#[must_use]
pub(crate) enum Met<T> {
    /// Its timer has ended.
    Stale,
    /// Another name of its timer waits in time.
    Redundant,
    /// Its timer is due later and waits anew.
    Refiled,
    /// Its timer has ended here, at its deadline.
    Due(T, Tick),
}

impl<T> Shard<T> {
    pub(crate) fn new(number: usize, geometry: Geometry) -> Self {
        Self { number, slab: Slab::new(geometry.page_bits), hierarchy: Hierarchy::new(geometry) }
    }

    /// Arms a timer. The value comes back when the slab's indices are used up.
    ///
    /// On return the caller has passed the fence of [`published`].
    pub(crate) fn insert(
        &self,
        value: T,
        deadline: Tick,
        around: Surroundings<'_>,
        filed: &mut Filed,
        guard: &Guard,
    ) -> Result<TimerId, T> {
        let Some(Claimed { entry, index, vacant }) = self.slab.claim(guard) else {
            return Err(value);
        };
        let generation = vacant.next();
        let id = TimerId::new(self.number, generation, index);
        let swept = around.swept.get();
        let place = self.hierarchy.place(deadline, swept);
        // SAFETY: the entry was claimed just above and is armed below.
        unsafe { entry.put(value) };
        entry.link.store(Link::filed(generation, at(place, swept)));
        entry.state.arm(generation, deadline);
        self.file(id, place, filed);
        published();
        if has_passed(place, around.swept.get()) {
            self.relink(entry, id, around, filed);
        } else {
            around.alarm.check(at(place, swept));
        }
        Ok(id)
    }

    /// Ends the timer that `id` names and answers its value.
    pub(crate) fn cancel(&self, id: TimerId, guard: &Guard) -> Option<T> {
        let entry = self.slab.entry(id, guard)?;
        self.end(entry, id, guard).map(|(value, _)| value)
    }

    /// Sets the deadline of the timer that `id` names.
    pub(crate) fn reset(
        &self,
        id: TimerId,
        deadline: Tick,
        around: Surroundings<'_>,
        filed: &mut Filed,
        guard: &Guard,
    ) -> Reset {
        let Some(entry) = self.slab.entry(id, guard) else {
            return Reset::NotArmed;
        };
        let mut seen = entry.state.load();
        let set = loop {
            if seen.generation() != id.generation() {
                return Reset::NotArmed;
            }
            // A first look at the link saves an exchange when an earlier name will be needed.
            let early = !seen.is_relinking() && !relies(entry, id, deadline, around.swept.get());
            let next = seen.with_deadline(deadline).with_relinking(seen.is_relinking() || early);
            match entry.state.try_reset(seen, next) {
                Ok(()) if early => break Some(true),
                Ok(()) if seen.is_relinking() => break Some(false),
                Ok(()) => break None,
                Err(now) => seen = now,
            }
        };
        match set {
            Some(held) => self.relink_as(held, entry, id, around, filed),
            None if relies(entry, id, deadline, around.swept.get()) => {
                // The link may have been lowered just now by a resetter that has not rung yet: its
                // flag is then still set, and the link's Acquire shows it.
                if entry.state.load().is_relinking() {
                    self.relink_as(false, entry, id, around, filed);
                }
            }
            None => self.relink(entry, id, around, filed),
        }
        Reset::Done
    }

    /// The deadline of the timer that `id` names.
    pub(crate) fn deadline(&self, id: TimerId, swept: &SweptTick, guard: &Guard) -> Option<Tick> {
        let state = self.slab.entry(id, guard)?.state.load();
        (state.generation() == id.generation()).then(|| state.deadline(swept.get()))
    }

    /// Meets a name.
    ///
    /// Entries of timers that end here, and what is filed, gather in `gathered`.
    pub(crate) fn meet(
        &self,
        id: TimerId,
        turn: Turn,
        gathered: &mut Gathered,
        guard: &Guard,
    ) -> Met<T> {
        let Some(entry) = self.slab.entry(id, guard) else {
            return Met::Stale;
        };
        let mut state = entry.state.load();
        while state.generation() == id.generation() {
            let deadline = state.deadline(turn.swept);
            let now = if deadline <= turn.swept {
                match entry.state.try_end(state) {
                    Ok(vacant) => {
                        // SAFETY: the timer was ended just above and its entry is released below.
                        let value = unsafe { entry.take() };
                        self.slab.gather(&mut gathered.released, entry, id.index(), vacant, guard);
                        return Met::Due(value, deadline);
                    }
                    Err(now) => now,
                }
            } else if self.is_redundant(entry, state, turn) {
                match entry.state.try_confirm(state) {
                    Ok(()) => return Met::Redundant,
                    Err(now) => now,
                }
            } else {
                match self.refile(entry, id, state, turn, &mut gathered.filed) {
                    Ok(()) => return Met::Refiled,
                    Err(now) => now,
                }
            };
            state = now;
        }
        Met::Stale
    }

    /// Whether a name that was taken from `slot` out of turn must be put back.
    pub(crate) fn is_needed(
        &self,
        id: TimerId,
        slot: SlotIndex,
        swept: Tick,
        guard: &Guard,
    ) -> bool {
        self.slab.entry(id, guard).is_some_and(|entry| {
            let state = entry.state.load();
            state.generation() == id.generation()
                && !self.is_redundant(entry, state, Turn { slot: Some(slot), swept })
        })
    }

    /// Calls `hand_back` with each armed timer after ending it.
    pub(crate) fn drain(
        &self,
        swept: &SweptTick,
        guard: &Guard,
        mut hand_back: impl FnMut(TimerId, Tick, T),
    ) {
        self.slab.for_each(guard, |index, entry| {
            let state = entry.state.load();
            if !state.generation().is_armed() {
                return;
            }
            let id = TimerId::new(self.number, state.generation(), index);
            if let Some((value, ended)) = self.end(entry, id, guard) {
                hand_back(id, ended.deadline(swept.get()), value);
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

    /// Begins to fetch the entry that `id` names, so that the misses of several overlap.
    pub(crate) fn touch(&self, id: TimerId, guard: &Guard) {
        if let Some(entry) = self.slab.entry(id, guard) {
            let _ = entry.state.load();
        }
    }

    /// Takes the names that are overdue.
    pub(crate) fn take_overdue(&self, swept: Tick) -> Option<Taken> {
        self.hierarchy.take_overdue(swept)
    }

    /// Takes every occupied slot whose turn is after `from` and not after `to`.
    pub(crate) fn take_due(&self, from: Tick, to: Tick, taken: &mut Vec<Taken>) {
        self.hierarchy.take_due(from, to, taken);
    }

    /// Takes one slot out of turn, if it is occupied.
    pub(crate) fn take_early(&self, slot: SlotIndex, swept: Tick) -> Option<Taken> {
        self.hierarchy.take_early(slot, swept)
    }

    /// Puts a name that was taken early back into its slot.
    pub(crate) fn put_back(&self, id: TimerId, slot: SlotIndex, at: Tick, filed: &mut Filed) {
        filed.blocks += u32::from(self.hierarchy.put_back(id, slot, at));
    }

    /// The first occupied slot from `from` on, in a row of all slots.
    pub(crate) fn next_occupied(&self, from: SlotIndex) -> Option<SlotIndex> {
        self.hierarchy.next_occupied(from)
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

    /// Ends a timer and releases its entry. Answers its value and its last state.
    fn end(&self, entry: &Entry<T>, id: TimerId, guard: &Guard) -> Option<(T, EntryState)> {
        let mut seen = entry.state.load();
        while seen.generation() == id.generation() {
            match entry.state.try_end(seen) {
                Ok(vacant) => {
                    // SAFETY: the timer was ended just above and its entry is released below.
                    let value = unsafe { entry.take() };
                    let mut released = Released::NONE;
                    self.slab.gather(&mut released, entry, id.index(), vacant, guard);
                    self.slab.release(&mut released, guard);
                    return Some((value, seen));
                }
                Err(now) => seen = now,
            }
        }
        None
    }

    /// Files an earlier name of an armed timer, as the holder of the relinking flag if it is free.
    fn relink(&self, entry: &Entry<T>, id: TimerId, around: Surroundings<'_>, filed: &mut Filed) {
        let mut seen = entry.state.load();
        while seen.generation() == id.generation() {
            if seen.is_relinking() {
                return self.relink_as(false, entry, id, around, filed);
            }
            match entry.state.try_reset(seen, seen.with_relinking(true)) {
                Ok(()) => return self.relink_as(true, entry, id, around, filed),
                Err(now) => seen = now,
            }
        }
    }

    /// Steps 2 to 7 of relinking; `held` says whether this thread has set the flag.
    fn relink_as(
        &self,
        held: bool,
        entry: &Entry<T>,
        id: TimerId,
        around: Surroundings<'_>,
        filed: &mut Filed,
    ) {
        loop {
            let state = entry.state.load();
            if state.generation() != id.generation() {
                return;
            }
            let swept = around.swept.get();
            let place = self.hierarchy.place(state.deadline(swept), swept);
            self.file(id, place, filed);
            if held {
                set_link(entry, id, place, swept);
            }
            published();
            if has_passed(place, around.swept.get()) {
                continue;
            }
            around.alarm.check(at(place, swept));
            break;
        }
        let mut seen = entry.state.load();
        while held && seen.generation() == id.generation() {
            match entry.state.try_settle(seen) {
                Ok(()) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Whether another name of the timer than the one taken now waits in time.
    fn is_redundant(&self, entry: &Entry<T>, state: EntryState, turn: Turn) -> bool {
        let (link, Turn { slot, swept }) = (entry.link.load(), turn);
        !state.is_relinking()
            && link.generation() == state.generation()
            && in_time(link, state.deadline(swept), swept)
            && !slot.is_some_and(|slot| self.hierarchy.is_taken_at(slot, link.filed_at(swept)))
    }

    /// Steps 2 and 3 of meeting a name that is due later. The present state, if it did not come
    /// about.
    fn refile(
        &self,
        entry: &Entry<T>,
        id: TimerId,
        state: EntryState,
        Turn { slot, swept }: Turn,
        filed: &mut Filed,
    ) -> Result<(), EntryState> {
        let deadline = state.deadline(swept);
        let place = self.hierarchy.place(deadline, swept);
        if state.is_relinking() {
            if let Some(slot) = slot {
                let kept = self.hierarchy.next_turn_of(slot, swept);
                self.file(id, kept, filed);
                if at(kept, swept) <= deadline {
                    return entry.state.try_confirm(state);
                }
            }
        } else {
            let link = entry.link.load();
            let next = Link::filed(id.generation(), at(place, swept));
            if link.generation() != id.generation() || entry.link.replace(link, next).is_err() {
                // The exchange shows the present state, which a load need not.
                return entry.state.try_confirm(state).and(Err(state));
            }
        }
        self.file(id, place, filed);
        entry.state.try_confirm(state)
    }

    fn file(&self, id: TimerId, place: Place, filed: &mut Filed) {
        filed.names += 1;
        filed.blocks += u32::from(self.hierarchy.file(id, place));
    }
}

/// Whether a reset to `deadline` may rely on the name that the entry's link tells of.
fn relies<T>(entry: &Entry<T>, id: TimerId, deadline: Tick, swept: Tick) -> bool {
    let link = entry.link.load();
    link.generation() == id.generation() && in_time(link, deadline, swept)
}

/// Whether the link tells of a name still to come, and not after `deadline`.
fn in_time(link: Link, deadline: Tick, swept: Tick) -> bool {
    let at = link.filed_at(swept);
    swept < at && at <= deadline
}

/// Step 3 of relinking: the link tells of the name just filed, unless it tells of an earlier one
/// or the timer has ended.
fn set_link<T>(entry: &Entry<T>, id: TimerId, place: Place, swept: Tick) {
    let Place::Slot { at, .. } = place else {
        return;
    };
    let mut seen = entry.link.load();
    while seen.generation() == id.generation() && !in_time(seen, at, swept) {
        match entry.link.replace(seen, Link::filed(id.generation(), at)) {
            Ok(()) => return,
            Err(now) => seen = now,
        }
    }
}

/// When a name at `place` is met, if the sweep was at `swept` when it was filed.
fn at(place: Place, swept: Tick) -> Tick {
    match place {
        Place::Overdue => swept,
        Place::Slot { at, .. } => at,
    }
}

/// Whether the turn of the slot has come by `swept`. Overdue names are met by every sweep.
fn has_passed(place: Place, swept: Tick) -> bool {
    matches!(place, Place::Slot { at, .. } if at <= swept)
}
