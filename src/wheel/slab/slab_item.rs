//! [`SlabItem`]: the content of a slab.

use super::state::AtomicEntryState;
use crate::panics::DropEach;
use crate::wheel::memory::Zeroable;

/// An item of a slab: a timer ([`Entry`](super::entry::Entry)), or a block of references
/// ([`Block`](crate::wheel::hierarchy::block::Block)).
pub(crate) trait SlabItem: Zeroable {
    /// Returns the state, which shows whether the item is vacant, and the vacant item after it.
    fn state(&self) -> &AtomicEntryState;

    /// Forgets what the item records beside its state. Called by the thread that holds it
    /// exclusively, vacant, on a newly installed page.
    fn reinit(&self);

    /// Drops the value, if it has one.
    ///
    /// # Safety
    ///
    /// - The slab is being dropped. No other thread accesses the item, and the caller does not
    ///   access it again.
    unsafe fn drop_value(&self, values: &mut DropEach);
}
