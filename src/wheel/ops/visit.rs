//! Visit: discards, requeues or expires each reference that the sweeper has taken. The steps and
//! their races are in [`protocol`](super::protocol).

use crate::wheel::hierarchy::block::EntryRef;
use crate::wheel::hierarchy::geometry::{Place, SlotIndex};
use crate::wheel::id::TimerId;
use crate::wheel::memory::Guard;
use crate::wheel::shard::{Filed, Shard, visit_tick};
use crate::wheel::slab::Released;
use crate::wheel::slab::entry::Entry;
use crate::wheel::slab::hoard::Hoard;
use crate::wheel::slab::next_visit::AtomicNextVisit;
use crate::wheel::slab::state::EntryState;
use crate::wheel::tick::Tick;

/// The results of several visits.
#[derive(Debug)]
pub(crate) struct Gathered<'h> {
    pub(crate) requeued: Requeued,
    pub(crate) released: Released,
    /// Receives the entries of timers that end, instead of `released`, while the sweeper hoards.
    pub(crate) hoard: Option<&'h mut Hoard>,
}

/// The number of references that the sweeper has filed, and the earliest expiry of their slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requeued {
    pub(crate) filed: Filed,
    pub(crate) earliest: Tick,
}

impl Requeued {
    pub(crate) const NOTHING: Requeued = Requeued { filed: Filed::NOTHING, earliest: Tick::NEVER };

    /// Files a reference.
    fn file<T>(&mut self, shard: &Shard<T>, reference: EntryRef, place: Place) {
        self.filed = self.filed.and(shard.file(reference.index(), place));
        if let Place::Slot { at, .. } = place {
            self.earliest = self.earliest.min(at);
        }
    }
}

/// The expiry of a slot, at which its references are visited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotExpiry {
    /// The slot from which they were taken. `None` for overdue references.
    pub(crate) slot: Option<SlotIndex>,
    /// The tick that the sweep has reached.
    pub(crate) swept: Tick,
}

/// The outcome of a visit.
#[derive(Debug)]
#[must_use]
pub(crate) enum VisitOutcome<T> {
    /// Its entry holds no timer, or another reference to the entry is visited in time.
    Discarded,
    /// It was filed again.
    Requeued,
    /// Its timer has reached its deadline and was ended here.
    Expired(T, TimerId, Tick),
}

impl<T> Shard<T> {
    /// Visits a reference. Adds the entries of timers that end here, and the references filed, to
    /// `gathered`.
    #[inline]
    pub(crate) fn visit(
        &self,
        reference: EntryRef,
        expiry: SlotExpiry,
        gathered: &mut Gathered<'_>,
        guard: &Guard,
    ) -> VisitOutcome<T> {
        let Some(entry) = self.slab.entry(reference.index(), guard) else {
            return VisitOutcome::Discarded;
        };
        let mut state = entry.state.load();
        loop {
            let deadline = state.deadline(expiry.swept);
            let visited = if state.is_armed() && deadline <= expiry.swept {
                let next = match &mut gathered.hoard {
                    Some(hoard) => hoard.next(&self.slab, reference.index()),
                    None => gathered.released.next(),
                };
                entry.state.try_end(state, next).map(|vacant| {
                    // SAFETY: the exchange above has ended the timer, and the entry is gathered
                    // below (I3).
                    let value = unsafe { entry.take() };
                    self.settle_next_visit(entry, reference, state, expiry, &mut gathered.requeued);
                    let (index, released) = (reference.index(), &mut gathered.released);
                    match &mut gathered.hoard {
                        Some(hoard) => hoard.add(&self.slab, index, vacant, guard),
                        None => self.slab.gather(released, index, vacant, guard),
                    }
                    let id = TimerId::new(self.number, state.generation(), index);
                    VisitOutcome::Expired(value, id, deadline)
                })
            } else {
                self.try_discard(entry, state, expiry).and_then(|discarded| match discarded {
                    true => Ok(VisitOutcome::Discarded),
                    false => {
                        self.try_requeue(entry, reference, state, expiry, &mut gathered.requeued)
                    }
                })
            };
            match visited {
                Ok(visited) => return visited,
                Err(now) => state = now,
            }
        }
    }

    /// Returns `true` if a reference that was taken early has to be filed again, and `false` if it
    /// is discarded.
    #[inline]
    pub(crate) fn is_needed(&self, reference: EntryRef, expiry: SlotExpiry, guard: &Guard) -> bool {
        let Some(entry) = self.slab.entry(reference.index(), guard) else {
            return false;
        };
        let mut state = entry.state.load();
        loop {
            match self.try_discard(entry, state, expiry) {
                Ok(discarded) => return !discarded,
                Err(now) => state = now,
            }
        }
    }

    /// Completes V1: ensures, after the visit has ended the timer, that `next_visit` does not
    /// describe a reference that is gone. `ended` is the last state of the timer. The entry has not
    /// been released yet.
    #[inline]
    fn settle_next_visit(
        &self,
        entry: &Entry<T>,
        reference: EntryRef,
        ended: EntryState,
        SlotExpiry { slot, swept }: SlotExpiry,
        requeued: &mut Requeued,
    ) {
        let Some(slot) = slot else { return };
        let next_visit = entry.next_visit.load();
        if ended.is_refiling() {
            requeued.file(self, reference, self.hierarchy.next_expiry_of(slot, swept));
        } else if swept < next_visit && self.hierarchy.is_taken_at(slot, next_visit) {
            // The flag was clear when the timer ended, and no thread can have set it since.
            entry.next_visit.clear();
        }
    }

    /// Does V3 and V4 for a reference that is not due. Returns `true` if it may be discarded.
    /// Fails with the present state if the state has changed.
    #[inline]
    fn try_discard(
        &self,
        entry: &Entry<T>,
        state: EntryState,
        SlotExpiry { slot, swept }: SlotExpiry,
    ) -> Result<bool, EntryState> {
        if state.is_refiling() {
            return Ok(false);
        }
        if state.is_pristine() {
            // Its page may have been removed, so no thread writes there.
            return Ok(true);
        }
        let next_visit = entry.next_visit.load();
        let ahead = swept < next_visit;
        let here = ahead && slot.is_some_and(|slot| self.hierarchy.is_taken_at(slot, next_visit));
        if state.is_armed() {
            if here || !ahead || next_visit > state.deadline(swept) {
                return Ok(false);
            }
        } else if here
            && entry.next_visit.compare_exchange(next_visit, AtomicNextVisit::NONE).is_err()
        {
            // Not a load: a failed exchange returns the newest state, and a load may be stale.
            return entry.state.try_revalidate(state).and(Err(state));
        }
        entry.state.try_revalidate(state).map(|()| true)
    }

    /// Does V2 and V5 for a reference that is not due. Fails with the present state if the
    /// state has changed.
    fn try_requeue(
        &self,
        entry: &Entry<T>,
        reference: EntryRef,
        state: EntryState,
        SlotExpiry { slot, swept }: SlotExpiry,
        requeued: &mut Requeued,
    ) -> Result<VisitOutcome<T>, EntryState> {
        let deadline = state.deadline(swept);
        let place = self.hierarchy.place(deadline, swept);
        if state.is_refiling() {
            let kept = slot.map(|slot| self.hierarchy.next_expiry_of(slot, swept));
            if let Some(kept) = kept {
                requeued.file(self, reference, kept);
            }
            if !state.is_armed() || kept.is_some_and(|kept| visit_tick(kept, swept) <= deadline) {
                let visited =
                    if kept.is_some() { VisitOutcome::Requeued } else { VisitOutcome::Discarded };
                return entry.state.try_revalidate(state).map(|()| visited);
            }
        } else {
            let next_visit = entry.next_visit.load();
            if entry.next_visit.compare_exchange(next_visit, visit_tick(place, swept)).is_err() {
                // Not a load: a failed exchange returns the newest state, and a load may be stale.
                return entry.state.try_revalidate(state).and(Err(state));
            }
        }
        requeued.file(self, reference, place);
        entry.state.try_revalidate(state).map(|()| VisitOutcome::Requeued)
    }
}
