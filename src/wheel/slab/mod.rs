//! The slab: the storage of one shard's timers, and of the blocks of their references.
//!
//! Entries are in pages behind a [`page_table`]. Vacant ones are on one stack ([`vacant`]), last
//! in, first out. Some are in the threads' magazines ([`magazine`]), so that a cancel and the
//! insert after it use the same cache line and no other. To *claim* is to take a vacant entry, and
//! to *release* is to put one back. The sweeper pushes a whole [`Released`] chain at once. Pages
//! whose entries are all vacant go back to the system through the [`hoard`], which the sweeper runs
//! when far more entries are vacant than in use, or when a burst fires.

#![allow(clippy::inline_always, reason = "the common case is to be one function")]

pub(crate) mod entry;
pub(crate) mod hoard;
pub(crate) mod magazine;
pub(crate) mod next_visit;
pub(crate) mod page_layout;
pub(crate) mod page_remainder;
pub(crate) mod page_table;
pub(crate) mod state;
pub(crate) mod vacant;

use crate::wheel::id::Generation;
use crate::wheel::memory::Guard;
use crossbeam_utils::CachePadded;
use magazine::{Magazines, ROUNDS, Rounds};
use page_remainder::PageRemainder;
use page_table::{NoEntry, PageTable, SlabItem};
use state::EntryState;
use vacant::{AtomicVacantHead, VacantHead};

/// The entries of one kind of one shard.
#[derive(Debug)]
pub(crate) struct Slab<E: SlabItem> {
    page_table: PageTable<E>,
    vacant: CachePadded<Vacant>,
}

/// The vacant entries that are in no magazine.
#[derive(Debug)]
struct Vacant {
    stack: AtomicVacantHead,
    remainder: PageRemainder,
}

/// A vacant entry that one thread holds exclusively.
#[derive(Debug)]
pub(crate) struct Claimed<'g, E> {
    pub(crate) entry: &'g E,
    pub(crate) index: u32,
    /// Its vacant state. The refiling flag may have been cleared since.
    pub(crate) vacant: EntryState,
}

impl<E: SlabItem> Claimed<'_, E> {
    /// Advances the entry as if it had been used once more, and puts it before `next`. Returns its
    /// new generation.
    pub(crate) fn bump(&self, next: u32) -> Generation {
        let bumped = self.vacant.generation().next().next();
        self.entry.state().chain(bumped, next);
        bumped
    }
}

/// Vacant entries that one thread holds exclusively, chained by their states, on their way back to
/// the stack.
#[derive(Debug)]
pub(crate) struct Released {
    top: VacantHead,
    last: VacantHead,
    /// The entry that follows the last one, according to the state of the last one.
    after: u32,
}

impl Released {
    /// An empty chain, to be followed by no particular entry.
    pub(crate) const NONE: Released = Released::before(VacantHead::EMPTY);

    /// Creates an empty chain to be put before `head`.
    const fn before(head: VacantHead) -> Self {
        Self { top: VacantHead::EMPTY, last: VacantHead::EMPTY, after: head.index() }
    }

    /// Returns the entry that the state of the next gathered entry has to reference.
    pub(crate) fn next(&self) -> u32 {
        if self.top == VacantHead::EMPTY { self.after } else { self.top.index() }
    }

    fn add(&mut self, index: u32, vacant: Generation) {
        self.top = VacantHead::new(vacant, index);
        if self.last == VacantHead::EMPTY {
            self.last = self.top;
        }
    }
}

impl<E: SlabItem> Slab<E> {
    /// Creates a slab without entries. The generations of its entries start at `first`.
    pub(crate) fn new(page_bits: u32, first: Generation) -> Self {
        Self {
            page_table: PageTable::new(page_bits, first),
            vacant: CachePadded::new(Vacant {
                stack: AtomicVacantHead::new(),
                remainder: PageRemainder::new(),
            }),
        }
    }

    /// Returns the entry at `index`, regardless of its content.
    #[inline]
    pub(crate) fn entry<'g>(&'g self, index: u32, guard: &'g Guard) -> Option<&'g E> {
        self.page_table.entry(index, guard)
    }

    /// Claims a vacant entry.
    pub(crate) fn claim<'g>(&'g self, guard: &'g Guard) -> Result<Claimed<'g, E>, NoEntry> {
        let Rounds { top, .. } = self.take_rounds(1, guard)?;
        self.claimed(top, guard).ok_or(NoEntry::UsedUp)
    }

    /// Claims a vacant entry from the thread's magazines. Returns `None` if nothing is loaded
    /// there.
    #[inline(always)]
    pub(crate) fn claim_from<'g>(
        &'g self,
        magazines: &Magazines,
        guard: &'g Guard,
    ) -> Option<Claimed<'g, E>> {
        let index = magazines.top()?;
        let entry = self.entry(index, guard)?;
        let vacant = entry.state().load();
        magazines.pop(vacant.next());
        Some(Claimed { entry, index, vacant })
    }

    /// The slow path of [`claim_from`](Self::claim_from), which loads a magazine first.
    #[inline]
    pub(crate) fn load_and_claim<'g>(
        &'g self,
        magazines: &Magazines,
        guard: &'g Guard,
    ) -> Result<Claimed<'g, E>, NoEntry> {
        if !magazines.reload() {
            magazines.load(self.take_rounds(ROUNDS, guard)?);
        }
        self.claim_from(magazines, guard).ok_or(NoEntry::UsedUp)
    }

    /// Makes room in the thread's magazines. Returns the number of entries that were released.
    pub(crate) fn unload(&self, magazines: &Magazines, guard: &Guard) -> u32 {
        if magazines.with_room().is_some() {
            return 0;
        }
        magazines.unload().map_or(0, |rounds| {
            self.release_rounds(rounds, guard);
            rounds.count
        })
    }

    /// Releases the content of a thread's magazines.
    pub(crate) fn empty(&self, magazines: &Magazines, guard: &Guard) {
        magazines.take_all().for_each(|rounds| self.release_rounds(rounds, guard));
    }

    /// Starts a chain of entries to be released together.
    #[inline]
    pub(crate) fn begin_release(&self) -> Released {
        Released::before(self.vacant.stack.load())
    }

    /// Adds an entry to a chain that is on its way back. The entry is vacant and held by the caller
    /// alone, and its state references [`Released::next`].
    ///
    /// An exhausted entry is retired instead, and its page is removed with the last one.
    #[inline]
    pub(crate) fn gather(
        &self,
        released: &mut Released,
        index: u32,
        vacant: Generation,
        guard: &Guard,
    ) {
        if vacant == Generation::EXHAUSTED {
            self.page_table.retire(index, guard);
        } else {
            released.add(index, vacant);
        }
    }

    /// Releases the entries of timers that have ended.
    #[inline]
    pub(crate) fn release(&self, released: &mut Released, guard: &Guard) {
        let Released { top, last, mut after } = std::mem::replace(released, Released::NONE);
        if top == VacantHead::EMPTY {
            return;
        }
        let mut head = self.vacant.stack.load();
        loop {
            if after != head.index() {
                after = head.index();
                self.rechain(last, after, guard);
            }
            match self.vacant.stack.compare_exchange(head, top) {
                Ok(()) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Puts a vacant entry that the caller holds exclusively before another.
    fn rechain(&self, entry: VacantHead, before: u32, guard: &Guard) {
        if let Some(held) = self.entry_of(entry, guard) {
            held.state().chain(entry.generation(), before);
        }
    }

    /// Returns the number of entries, vacant or not.
    pub(crate) fn len(&self) -> u64 {
        u64::from(self.page_table.len())
    }

    /// Returns the number of entries in a page of the full size.
    pub(crate) fn page_len(&self) -> u64 {
        u64::from(self.page_table.layout().full_len())
    }

    /// Returns the number of bytes that the entries occupy.
    pub(crate) fn bytes(&self) -> usize {
        self.page_table.len() as usize * size_of::<E>()
    }

    /// Calls `visit` for each entry, with its index.
    pub(crate) fn for_each(&self, guard: &Guard, visit: impl FnMut(u32, &E)) {
        self.page_table.for_each(guard, visit);
    }

    /// Takes a vacant entry, if there is one.
    pub(crate) fn pop<'g>(&'g self, guard: &'g Guard) -> Option<Claimed<'g, E>> {
        let Rounds { top, .. } = self.vacant_rounds(1, guard)?;
        self.claimed(top, guard)
    }

    /// Takes up to `most` vacant entries, at least one.
    fn take_rounds(&self, most: u32, guard: &Guard) -> Result<Rounds, NoEntry> {
        self.vacant_rounds(most, guard).map_or_else(|| self.grow_rounds(most, guard), Ok)
    }

    /// Takes up to `most` of the existing vacant entries.
    fn vacant_rounds(&self, most: u32, guard: &Guard) -> Option<Rounds> {
        self.pop_rounds(most, guard).or_else(|| {
            let rounds = self.vacant.remainder.take(most)?;
            self.page_table.reinit(rounds, guard);
            Some(rounds)
        })
    }

    /// Pops up to `most` entries off the vacant stack.
    fn pop_rounds(&self, most: u32, guard: &Guard) -> Option<Rounds> {
        let mut head = self.vacant.stack.load();
        loop {
            if head == VacantHead::EMPTY {
                return None;
            }
            let Some((count, below)) = self.walk(head, most, guard) else {
                // The exchange returns the present head, which a load need not.
                head = self.vacant.stack.compare_exchange(head, head).err().unwrap_or(head);
                continue;
            };
            match self.vacant.stack.compare_exchange(head, below) {
                Ok(()) => return Some(Rounds { top: head.index(), count }),
                Err(now) => head = now,
            }
        }
    }

    /// Returns the number of entries from `head` on, at most `most`, and the head below them.
    ///
    /// Returns `None` if `head` is outdated. Anything read through an outdated head is discarded
    /// with it. An absent page, or a state of another generation, only shows this early. If `head`
    /// is still current, no thread has touched the entries below it, which are as they were pushed.
    fn walk(&self, head: VacantHead, most: u32, guard: &Guard) -> Option<(u32, VacantHead)> {
        let top = self.entry_of(head, guard)?.state().load();
        let mut seen = Some(top).filter(|top| top.generation() == head.generation())?;
        let mut count = 1;
        loop {
            let next = seen.next();
            if next == VacantHead::LAST {
                return Some((count, VacantHead::EMPTY));
            }
            let below = self.page_table.entry(next, guard)?.state().load();
            if below.is_armed() {
                return None;
            }
            if count == most {
                return Some((count, VacantHead::new(below.generation(), next)));
            }
            (seen, count) = (below, count + 1);
        }
    }

    /// Installs a page, keeps its first `most` entries, or all, and leaves the others to later
    /// claims.
    fn grow_rounds(&self, most: u32, guard: &Guard) -> Result<Rounds, NoEntry> {
        let (top, vacant) = self.page_table.install(guard)?;
        let layout = self.page_table.layout();
        let len = layout.len_of(layout.page_of(top));
        let kept = Rounds { top, count: most.min(len) };
        self.page_table.reinit(kept, guard);
        let others = Rounds { top: top + kept.count, count: len - kept.count };
        if others.count > 0 && !self.vacant.remainder.put(others) {
            // Another thread has installed a page at the same time.
            self.page_table.reinit(others, guard);
            let mut released = Released {
                top: VacantHead::new(vacant, others.top),
                last: VacantHead::new(vacant, top + len - 1),
                after: top + len,
            };
            self.release(&mut released, guard);
        }
        Ok(kept)
    }

    /// Creates the memory of an entry on no page, for models, which use it exclusively.
    #[cfg(all(modelled, not(crossbeam_loom)))]
    pub(crate) fn materialise(&self, index: u32) {
        self.page_table.materialise(index);
    }

    /// Releases one entry that the caller holds exclusively.
    pub(crate) fn release_one(&self, index: u32, guard: &Guard) {
        self.release_rounds(Rounds { top: index, count: 1 }, guard);
    }

    /// Pushes entries from a thread's magazines to the stack.
    ///
    /// Some may have come from the stack and not been used since. Each gets a later generation, so
    /// that no entry is on the stack twice with the same one.
    fn release_rounds(&self, Rounds { top, count }: Rounds, guard: &Guard) {
        let (mut released, mut index) = (self.begin_release(), top);
        for _ in 0..count {
            let Some(claimed) = self.claimed(index, guard) else { break };
            index = claimed.vacant.next();
            let bumped = claimed.bump(released.next());
            self.gather(&mut released, claimed.index, bumped, guard);
        }
        self.release(&mut released, guard);
    }

    /// Returns an entry that the caller holds exclusively.
    fn claimed<'g>(&'g self, index: u32, guard: &'g Guard) -> Option<Claimed<'g, E>> {
        let entry = self.entry(index, guard)?;
        Some(Claimed { entry, index, vacant: entry.state().load() })
    }

    #[inline]
    fn entry_of<'g>(&'g self, head: VacantHead, guard: &'g Guard) -> Option<&'g E> {
        if head == VacantHead::EMPTY {
            return None;
        }
        self.page_table.entry(head.index(), guard)
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::entry::Entry;
    use super::next_visit::AtomicNextVisit;
    use super::{Released, Rounds, Slab};
    use crate::wheel::id::Generation;
    use crate::wheel::memory::pin;
    use crate::wheel::tick::Tick;

    /// Advances `times` claimed entries to their last generation.
    fn exhaust(slab: &Slab<Entry<u8>>, times: u32) {
        let guard = pin();
        let mut released = Released::NONE;
        for _ in 0..times {
            let claimed = slab.claim(&guard).expect("indices and memory are left");
            slab.gather(&mut released, claimed.index, Generation::EXHAUSTED, &guard);
        }
        slab.release(&mut released, &guard);
    }

    #[test]
    fn an_exhausted_entry_is_never_claimed_again() {
        let (slab, guard) = (Slab::<Entry<u8>>::new(1, Generation::drawn()), pin());
        let first = slab.claim(&guard).unwrap().index;
        let second = slab.claim(&guard).unwrap().index;
        assert_ne!(first, second);
        exhaust(&slab, 1);
        for _ in 0..20 {
            let claimed = slab.claim(&guard).unwrap();
            assert!(claimed.index > 2, "exhausted, or still in use: {}", claimed.index);
        }
    }

    /// The system may refuse to take back the memory of a page, which then holds what it held.
    #[test]
    fn an_entry_of_a_page_that_comes_again_has_no_next_visit() {
        let (slab, guard) = (Slab::<Entry<u8>>::new(2, Generation::drawn()), pin());
        let claimed = slab.claim(&guard).unwrap();
        claimed.entry.next_visit.store(Tick(7));
        slab.page_table.reinit(Rounds { top: claimed.index, count: 1 }, &guard);
        assert_eq!(claimed.entry.next_visit.load(), AtomicNextVisit::NONE);
    }

    #[test]
    fn a_page_that_is_exhausted_goes_and_its_number_with_it() {
        let slab = Slab::<Entry<u8>>::new(2, Generation::drawn());
        let claim = || slab.claim(&pin()).map(|claimed| claimed.index);
        // A small page, and one of the full size.
        exhaust(&slab, 2 + 4);
        assert_eq!(slab.len(), 0);
        assert_eq!(claim(), Ok(6), "the generations of both pages are used up");
    }
}
