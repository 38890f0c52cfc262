//! [`SlabItem`]: what lives in a slab.

use super::state::AtomicEntryState;
use crate::panics::DropEach;
use crate::wheel::memory::Zeroable;

/// What lives in a slab: a timer ([`Entry`](super::entry::Entry)), or a block of references
/// ([`Block`](crate::wheel::hierarchy::block::Block)).
pub(crate) trait SlabItem: Zeroable {
    /// Whose bits say whether it is vacant, and what is vacant after it.
    fn state(&self) -> &AtomicEntryState;

    /// Forgets whatever is told of the entry beside its state; by who alone holds it, vacant, on a
    /// page that was put in.
    fn reinit(&self);

    /// Drops the value, if it has one.
    ///
    /// # Safety
    ///
    /// - The slab is going: nobody else touches the entry, nor does the caller again.
    unsafe fn drop_value(&self, values: &mut DropEach);
}
