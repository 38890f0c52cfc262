//! [`Timers`], the operations of an event loop on timers in any structure.

use std::time::{Duration, Instant};

/// The connection and the arming that a timer belongs to.
///
/// The number is never used again in its loop, so a timer that fires while its connection ends or
/// becomes active is recognised. (The ids of the wheel would do, but the map has none.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// The number of the loop.
    pub(crate) owner: usize,
    /// The connection's key in the loop's slab.
    pub(crate) key: usize,
    /// The number of the arming.
    pub(crate) number: u64,
}

/// The timers of one loop, or the loop's access to shared timers.
pub(crate) trait Timers: Send + 'static {
    type Id: Copy + Send;
    type Batch<'a>: Batch<Id = Self::Id>
    where
        Self: 'a;

    /// Begins the operations that follow the events of one poll.
    fn batch(&mut self) -> Self::Batch<'_>;

    /// Appends at most `limit` tokens of due timers, if this loop sweeps.
    fn sweep(&mut self, limit: usize, due: &mut Vec<Token>);

    /// The deadline when this loop should sweep, for the timeout of its poll.
    fn next_deadline(&mut self) -> Option<Instant>;
}

/// Operations on timers after the events of one poll, at one clock reading.
pub(crate) trait Batch {
    type Id;

    /// Prefetches a timer that is used soon.
    fn prefetch(&self, id: Self::Id);

    /// Arms a timer. Returns `None` if it is refused.
    fn insert(&mut self, token: Token, delay: Duration) -> Option<Self::Id>;

    /// Pushes a timer back. Returns `false` if it has fired.
    fn reset(&mut self, id: &mut Self::Id, delay: Duration) -> bool;

    /// Cancels a timer that has not fired.
    fn cancel(&mut self, id: Self::Id);
}

/// Operations on the timers of all loops.
pub(crate) trait Store: Send + Sync {
    /// The number of armed timers.
    fn armed(&self) -> u64;

    /// Ends the sweeping thread after all loops have ended.
    fn stop(&mut self);
}
