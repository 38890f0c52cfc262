//! One shard: a slab of timers and a hierarchy of slots with the names of their entries.
//!
//! This is where the wheel's promises are kept. Each entry has two words: its **state**
//! ([`EntryState`]: generation, relinking flag, deadline) says what may happen to the timer in it;
//! its **link** ([`AtomicLink`]: a tick) says when one of its names is met. Names and link belong
//! to the entry and not to the timer: they outlive it, and the entry's next timer uses them. A
//! server that arms and cancels a timer for each request files a name once a revolution, not once
//! a request.
//!
//! # What must hold
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
//! To tell less is always right: a link may forget a name. A name whose entry is vacant is *stale*
//! and is dropped when it is met, unless a resetter may still tell of it. Two names of one entry
//! are harmless: the first that is met when its timer is due ends it.
//!
//! # The verbs
//!
//! **Insert.** Claim a vacant entry and write the value. If the link tells of a name that will be
//! met in time, arm by an exchange, and look at the link again, as a reset does. Otherwise write
//! the link; arm by a store; file the name; fence; look at the sweep again and, if the slot's turn
//! has come, file once more ([`Shard::relink`]). If a resetter of an earlier timer still holds the
//! relinking flag, arm by an exchange that keeps it, and leave the link alone.
//!
//! **Cancel.** One exchange on the state ends the timer. Name and link stay.
//!
//! **Reset.** One exchange on the state sets the deadline. Then the link is read: if its tick lies
//! after the sweep and not after the new deadline, the name there will be met in time, and the
//! sweeper will read the new deadline. That is the common case: pushing a deadline back costs one
//! exchange and one load from the same cache line. Otherwise an earlier name is needed
//! ([`Shard::relink`]):
//!
//! 1. set the relinking flag (with the deadline, in the same exchange, when the link already
//!    shows that it will be needed); 2. file a name, a quarter sooner; 3. exchange the link;
//!    4. fence; 5. if the sweep has passed the slot meanwhile, again from 2; 6. ring the alarm if
//!    the sweeper rests for too long; 7. clear the flag.
//!
//! A resetter that finds the flag already set does 2, 4, 5 and 6 only and leaves the link alone.
//!
//! **Meet** (the sweeper, for each name it has taken). Read the state. Due: end the timer; the
//! value is the sweeper's. If the link tells of this name for a later turn, let it tell of nothing;
//! if the flag is set, put the name back as in 4. Not due: while the flag is clear, read the link:
//!
//! 1. no timer lives here: the name is stale. If the link tells of the slot that it was taken
//!    from, let it tell of nothing; confirm the state by an exchange to the same value; drop it;
//! 2. the link's tick lies after the sweep and not after the deadline, and is not the slot that
//!    this name was taken from: another name waits there, and this one is redundant; confirm the
//!    state, and drop it;
//! 3. otherwise exchange the link to the tick of the new slot, file the name there, and confirm
//!    the state.
//!
//! A confirmation that fails says that somebody was faster: read the state again. While the flag
//! is set, the link is the resetter's, and may come to tell of this very name:
//!
//! 4. put it back into its slot, for the slot's next turn; if that is after the deadline, file
//!    another for the deadline; confirm.
//!
//! # The races
//!
//! **Reset or insert against meet.** The states of an entry form one order, and all its exchanges
//! synchronise along it. If the reset (or the arming, by exchange) comes before the sweeper's
//! confirmation, the confirmation fails and the sweeper reads the new state. If it comes after,
//! the resetter sees the sweeper's link, and the tick of its sweep, and does not rely on a name
//! that was moved or dropped. A tick promised in the link by the sweeper is always filed, even
//! when its confirmation then fails. An insert that arms by a store relies on nothing but the
//! name it files.
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
//! turn, step 5 finds the sweep that met it; if before its turn, it is put back (meet, 4), also
//! when it has ended its timer.
//!
//! **A resetter held up between 1 and 7** keeps others from using the link, not from working:
//! they file names of their own. Its timer may end and the entry be claimed, armed, even be taken
//! out with its page: the flag stays until that thread clears it, whatever lives in the entry by
//! then, and what it writes into the link is true of the entry.
//!
//! **The sweeper's exchange of the link against an inserter's store.** Each tells of a name that
//! its writer files, or of nothing; whichever comes last, the link tells the truth.
//!
//! **An inserter held up after choosing its slot** finds at its second look that the slot's turn
//! has come ([`crate::wheel::sweep::swept`]). What it filed there is met a revolution later, as stale,
//! redundant or, at worst, early, and then filed again.
//!
//! **An inserter or resetter held up while the sweep leaps.** The state holds the low bits of a
//! deadline, which mean another once the sweep has left it behind by
//! [`PAST`](crate::wheel::tick::Tick::PAST). So the second look also asks how far behind the deadline is:
//!
//! * at most `PAST - LONGEST_REST`: the name is in a slot still to come, or it is overdue and the
//!   sweeper, which takes what is overdue once in `LONGEST_REST`, meets it within `PAST`;
//! * more: the bits may mean another deadline already, by which the sweeper may have filed a name
//!   2^38 ticks ahead. The operation exchanges its own deadline for the oldest one that can be
//!   told, files once more, and looks again ([`Shard::relink`]). If another thread has set another
//!   deadline meanwhile, that thread sees to it. If it has set one with the very same bits, the
//!   exchange stands for this operation, which has not returned and so may come after the other.
//!
//! **Wake-ups.** Whoever relies on a name relies also on its filer having rung the alarm: an
//! insert rings before it returns its id, a resetter before it clears the flag (so whoever relies
//! on a link looks at the flag once more, after the link), and the sweeper needs no ring.

pub(crate) mod meet;

use crate::wheel::hierarchy::geometry::{Geometry, Place, SlotIndex};
use crate::wheel::hierarchy::slot::Name;
use crate::wheel::hierarchy::{Hierarchy, Taken};
use crate::wheel::id::TimerId;
use crate::wheel::prefetch::prefetch;
use crate::wheel::reclaim::Guard;
use crate::wheel::slab::entry::Entry;
use crate::wheel::slab::link::AtomicLink;
use crate::wheel::slab::state::{AtomicEntryState, EntryState};
use crate::wheel::slab::trim::Trim;
use crate::wheel::slab::{Claimed, Released, Slab};
use crate::wheel::sweep::alarm::Alarm;
use crate::wheel::sweep::swept::{SweptTick, published};
use crate::wheel::tick::Tick;

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

/// Which deadline an operation has set, of which timer.
#[derive(Clone, Copy, Debug)]
struct Aim {
    id: TimerId,
    deadline: Tick,
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
        around: Surroundings<'_>,
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
        let swept = around.swept.get();
        if vacant.is_relinking() || in_time(entry.link.load(), deadline, swept) {
            let armed = arm(entry, vacant, deadline);
            published();
            if armed.is_relinking() {
                self.relink_as(false, entry, aim, around, filed);
            } else {
                self.rely(entry, aim, around, filed);
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
        if has_passed(place, deadline, around.swept.get()) {
            self.relink(entry, aim, around, filed);
        } else {
            around.alarm.check(at(place, swept));
        }
        Ok(id)
    }

    /// Ends the timer that `id` names and answers its value, and its last state.
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
        around: Surroundings<'_>,
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
            let early = free && !in_time(entry.link.load(), deadline, around.swept.get());
            let next = seen.with_deadline(deadline);
            let next = if early { next.relinking() } else { next };
            match entry.state.try_reset(seen, next) {
                Ok(()) if early => self.relink_as(true, entry, aim, around, filed),
                Ok(()) if free => self.rely(entry, aim, around, filed),
                Ok(()) => self.relink_as(false, entry, aim, around, filed),
                Err(now) => {
                    seen = now;
                    continue;
                }
            }
            return Reset::Done;
        }
    }

    /// The deadline of the timer that `id` names.
    pub(crate) fn deadline(&self, id: TimerId, swept: &SweptTick, guard: &Guard) -> Option<Tick> {
        let state = self.slab.entry(id.index(), guard)?.state.load();
        (state.generation() == id.generation()).then(|| state.deadline(swept.get()))
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
            if !state.is_armed() {
                return;
            }
            let id = TimerId::new(self.number, state.generation(), index);
            // The insert that armed this timer may not have filed the name that its link tells of.
            let forget = || entry.link.store(AtomicLink::NONE);
            if let Some((value, ended)) = self.end(entry, id, guard, forget) {
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
    pub(crate) fn take_due(&self, from: Tick, to: Tick, taken: &mut Vec<Taken>) {
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
    /// Ends a timer, calls `between` and releases its entry. Answers its value and its last state.
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
    fn rely(&self, entry: &Entry<T>, aim: Aim, around: Surroundings<'_>, filed: &mut Filed) {
        if !in_time(entry.link.load(), aim.deadline, around.swept.get()) {
            self.relink(entry, aim, around, filed);
        } else if entry.state.load().is_relinking() {
            // The link may have been lowered just now by a resetter that has not rung yet: its
            // flag is then still set, and the link's Acquire shows it.
            self.relink_as(false, entry, aim, around, filed);
        }
    }

    // In C, for `ci/genmc`: `relink`.
    /// Files an earlier name of an armed timer, as the holder of the relinking flag if it is free.
    #[inline(never)]
    fn relink(&self, entry: &Entry<T>, aim: Aim, around: Surroundings<'_>, filed: &mut Filed) {
        let mut seen = entry.state.load();
        while seen.generation() == aim.id.generation() {
            if seen.is_relinking() {
                return self.relink_as(false, entry, aim, around, filed);
            }
            match entry.state.try_reset(seen, seen.relinking()) {
                Ok(()) => return self.relink_as(true, entry, aim, around, filed),
                Err(now) => seen = now,
            }
        }
    }

    /// Steps 2 to 7 of relinking; `held` says whether this thread has set the flag.
    #[inline(never)]
    fn relink_as(
        &self,
        held: bool,
        entry: &Entry<T>,
        Aim { id, mut deadline }: Aim,
        around: Surroundings<'_>,
        filed: &mut Filed,
    ) {
        // In C, for `ci/genmc`: `relink_as`.
        let _flag = held.then(|| Flag(&entry.state));
        loop {
            let mut state = entry.state.load();
            if state.generation() != id.generation() {
                break;
            }
            let swept = around.swept.get();
            if deadline.is_left_behind(swept) {
                state = renew(entry, state, deadline, swept.oldest());
                deadline = swept.oldest();
                if state.generation() != id.generation() {
                    break;
                }
            }
            let place = self.hierarchy.place(ahead_of(state.deadline(swept), swept), swept);
            self.file(id.index(), place, filed);
            if held {
                set_link(&entry.link, place, swept);
            }
            published();
            if has_passed(place, deadline, around.swept.get()) {
                continue;
            }
            around.alarm.check(at(place, swept));
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
