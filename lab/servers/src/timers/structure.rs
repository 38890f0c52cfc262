//! The trait of all structures of timers.

use std::fmt::Debug;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The value of a timer, which names its owner.
pub trait Name: Clone + Debug + Ord + Send + Sync + 'static {}

impl<V: Clone + Debug + Ord + Send + Sync + 'static> Name for V {}

/// The timers of a server.
pub trait Timers<V: Name>: Debug + Send + 'static {
    /// The handle of an armed timer.
    type Id: Debug + Send;

    /// Operations that share one clock reading.
    type Batch<'a>: Batch<V, Id = Self::Id>
    where
        Self: 'a;

    /// Begins a batch of operations.
    fn batch(&mut self) -> Self::Batch<'_>;

    /// Appends the values of some due timers to `due`. If there are none, the task is woken when
    /// the next timer is due, also if that is armed later.
    fn poll_due(
        &mut self,
        context: &mut Context<'_>,
        records: &mut impl Records<V, Self::Id>,
        due: &mut Vec<V>,
    ) -> Poll<()>;

    /// The number of armed timers.
    fn armed(&self) -> usize;
}

/// A batch of operations on timers.
pub trait Batch<V> {
    /// The handle of an armed timer.
    type Id;

    /// The instant that delays count from.
    fn now(&self) -> Instant;

    /// Prefetches a timer that is used soon.
    fn prefetch(&self, _id: &Self::Id) {}

    /// Arms a timer.
    fn arm(&mut self, value: V, delay: Duration) -> Self::Id;

    /// Moves the deadline of a timer that has not fired. Returns `false` if it has.
    fn reset(&mut self, id: &mut Self::Id, value: &V, delay: Duration) -> bool;

    /// Cancels a timer. Returns `false` if it has fired.
    fn cancel(&mut self, id: Self::Id) -> bool;
}

/// The records of the owners of timers.
pub trait Records<V, Id> {
    /// The handle in the record with this name, if a timer is armed for it.
    fn timer(&mut self, name: &V) -> Option<&mut Id>;
}

/// The maximum number of timers that one call of [`Timers::poll_due`] returns.
pub(super) const DUE_AT_ONCE: usize = 256;
