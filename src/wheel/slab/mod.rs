//! The slab: where the timers of one shard live.
//!
//! Entries lie in pages behind a [`directory`]; vacant ones are on one stack ([`vacant`]), last
//! in, first out, so that a cancel and the insert after it meet in the same cache line. To
//! *claim* is to pop a vacant entry, to *release* to push one back; the sweeper pushes a whole
//! [`Released`] chain at once. Pages whose entries are all vacant go back to the system
//! through [`trim`], which the sweeper runs when far more entries are vacant than in use, or a
//! burst fires.

pub(crate) mod directory;
pub(crate) mod entry;
pub(crate) mod link;
pub(crate) mod state;
pub(crate) mod trim;
pub(crate) mod vacant;

use crate::wheel::id::Generation;
use crate::wheel::memory::Guard;
use crossbeam_utils::CachePadded;
use directory::Directory;
use entry::Entry;
use state::EntryState;
use vacant::{AtomicVacantHead, VacantHead};

/// The timers of one shard.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    directory: Directory<T>,
    vacant: CachePadded<AtomicVacantHead>,
}

/// A vacant entry that one thread holds alone.
#[derive(Debug)]
pub(crate) struct Claimed<'g, T> {
    pub(crate) entry: &'g Entry<T>,
    pub(crate) index: u32,
    /// Its vacant state; the relinking flag may have been cleared since.
    pub(crate) vacant: EntryState,
}

/// Vacant entries that one thread holds alone, chained by their states and on their way back to
/// the stack.
#[derive(Debug)]
pub(crate) struct Released {
    top: VacantHead,
    last: VacantHead,
    /// Which entry the last one's state says is vacant after it.
    after: u32,
}

impl Released {
    /// None, to be followed by nothing in particular.
    pub(crate) const NONE: Released = Released::before(VacantHead::EMPTY);

    /// None yet, to be put before `head`.
    const fn before(head: VacantHead) -> Self {
        Self { top: VacantHead::EMPTY, last: VacantHead::EMPTY, after: head.index() }
    }

    /// Which entry the state of the next to be gathered has to name.
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

impl<T> Slab<T> {
    pub(crate) fn new(page_bits: u32) -> Self {
        Self {
            directory: Directory::new(page_bits),
            vacant: CachePadded::new(AtomicVacantHead::new()),
        }
    }

    /// The entry at `index`, whatever lives in it.
    #[inline]
    pub(crate) fn entry<'g>(&'g self, index: u32, guard: &'g Guard) -> Option<&'g Entry<T>> {
        self.directory.entry(index, guard)
    }

    /// A vacant entry; `None` when the indices are used up.
    #[inline]
    pub(crate) fn claim<'g>(&'g self, guard: &'g Guard) -> Option<Claimed<'g, T>> {
        self.pop(guard).or_else(|| self.grow(guard))
    }

    /// Begins a chain that is to be released at once.
    #[inline]
    pub(crate) fn begin_release(&self) -> Released {
        Released::before(self.vacant.load())
    }

    /// Adds an entry to those on their way back: vacant, held by the caller alone, and its state
    /// names [`Released::next`].
    ///
    /// A worn entry is retired instead; with the last one of its page the page goes.
    #[inline]
    pub(crate) fn gather(
        &self,
        released: &mut Released,
        index: u32,
        vacant: Generation,
        guard: &Guard,
    ) {
        if vacant == Generation::WORN {
            self.directory.wear(index, guard);
        } else {
            released.add(index, vacant);
        }
    }

    /// Gives back entries of timers that have ended.
    #[inline]
    pub(crate) fn release(&self, released: &mut Released, guard: &Guard) {
        let Released { top, last, mut after } = std::mem::replace(released, Released::NONE);
        if top == VacantHead::EMPTY {
            return;
        }
        let mut head = self.vacant.load();
        loop {
            if after != head.index() {
                after = head.index();
                self.rechain(last, after, guard);
            }
            match self.vacant.replace(head, top) {
                Ok(()) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Puts a vacant entry that the caller alone holds before another.
    fn rechain(&self, entry: VacantHead, before: u32, guard: &Guard) {
        if let Some(held) = self.entry_of(entry, guard) {
            held.state.chain(entry.generation(), before);
        }
    }

    /// How many entries there are, vacant or not.
    pub(crate) fn len(&self) -> u64 {
        u64::from(self.directory.pages()) * self.page_len()
    }

    /// How many entries a page has.
    pub(crate) fn page_len(&self) -> u64 {
        u64::from(self.directory.page_len())
    }

    /// How many bytes the entries take.
    pub(crate) fn bytes(&self) -> usize {
        self.directory.pages() as usize * self.directory.page_bytes()
    }

    /// Calls `visit` for each entry, with its index.
    pub(crate) fn for_each(&self, guard: &Guard, visit: impl FnMut(u32, &Entry<T>)) {
        self.directory.for_each(guard, visit);
    }

    /// Pops the top of the vacant stack.
    #[inline]
    fn pop<'g>(&'g self, guard: &'g Guard) -> Option<Claimed<'g, T>> {
        let mut head = self.vacant.load();
        loop {
            if head == VacantHead::EMPTY {
                return None;
            }
            // Whatever is read through a head that has moved on is discarded with it: a page
            // that is not there, or a state of another generation, only says so early.
            let top = self.entry_of(head, guard).map(|entry| (entry, entry.state.load()));
            let top = top.filter(|(_, vacant)| vacant.generation() == head.generation());
            let next = top.and_then(|(_, vacant)| self.head_at(vacant.next(), guard));
            let (Some((entry, vacant)), Some(next)) = (top, next) else {
                // The exchange shows the present head, which a load need not.
                head = self.vacant.replace(head, head).err().unwrap_or(head);
                continue;
            };
            match self.vacant.replace(head, next) {
                Ok(()) => return Some(Claimed { entry, index: head.index(), vacant }),
                Err(now) => head = now,
            }
        }
    }

    /// Puts in a page, keeps its first entry and releases the others.
    fn grow<'g>(&'g self, guard: &'g Guard) -> Option<Claimed<'g, T>> {
        let (index, vacant) = self.directory.install(guard)?;
        let last = index + self.directory.page_len() - 1;
        let mut others = Released {
            top: VacantHead::new(vacant, index + 1),
            last: VacantHead::new(vacant, last),
            after: last + 1,
        };
        self.release(&mut others, guard);
        let entry = self.directory.entry(index, guard)?;
        Some(Claimed { entry, index, vacant: EntryState::vacant(vacant, index + 1) })
    }

    #[inline]
    fn entry_of<'g>(&'g self, head: VacantHead, guard: &'g Guard) -> Option<&'g Entry<T>> {
        if head == VacantHead::EMPTY {
            return None;
        }
        self.directory.entry(head.index(), guard)
    }

    /// The head that has the vacant entry `index` on top; `None` if it is not vacant after all.
    #[inline]
    fn head_at(&self, index: u32, guard: &Guard) -> Option<VacantHead> {
        if index == VacantHead::LAST {
            return Some(VacantHead::EMPTY);
        }
        let generation = self.directory.entry(index, guard)?.state.load().generation();
        (!generation.is_armed()).then(|| VacantHead::new(generation, index))
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::{Released, Slab};
    use crate::wheel::id::Generation;
    use crate::wheel::memory::pin;

    /// Ends the uses of `times` claimed entries, as if their last generation had passed.
    fn wear_out(slab: &Slab<u8>, times: u32) {
        let guard = pin();
        let mut released = Released::NONE;
        for _ in 0..times {
            let claimed = slab.claim(&guard).expect("indices are left");
            slab.gather(&mut released, claimed.index, Generation::WORN, &guard);
        }
        slab.release(&mut released, &guard);
    }

    #[test]
    fn a_worn_entry_is_never_claimed_again() {
        let (slab, guard) = (Slab::<u8>::new(1), pin());
        let first = slab.claim(&guard).unwrap().index;
        let second = slab.claim(&guard).unwrap().index;
        assert_ne!(first, second);
        wear_out(&slab, 1);
        for _ in 0..20 {
            let claimed = slab.claim(&guard).unwrap();
            assert!(claimed.index > 2, "worn, or still in use: {}", claimed.index);
        }
    }

    #[test]
    fn a_page_that_is_worn_out_goes_and_its_number_with_it() {
        let slab = Slab::<u8>::new(2);
        wear_out(&slab, 4);
        assert_eq!(slab.len(), 0);
        let claimed = slab.claim(&pin()).map(|claimed| claimed.index);
        assert_eq!(claimed, Some(4), "the generations of page 0 are used up");
    }
}
