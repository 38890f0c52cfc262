//! [`Timers`]: what an event loop asks of its timers, whatever holds them.

use std::time::{Duration, Instant};

/// What a timer stands for: a connection of a loop, and which arming of its timer.
///
/// The number is never used again in its loop, so that a timer which fires while its connection
/// ends or is active again is recognised. (The wheel's ids would do; the map has none.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// The number of the loop.
    pub(crate) owner: usize,
    /// The connection's key in the loop's slab.
    pub(crate) key: usize,
    /// The number of the arming.
    pub(crate) number: u64,
}

/// The timers of one loop, or the loop's way to those that all share.
pub(crate) trait Timers: Send + 'static {
    type Id: Copy + Send;
    type Batch<'a>: Batch<Id = Self::Id>
    where
        Self: 'a;

    /// Begins what is to be done after the events of one poll.
    fn batch(&mut self) -> Self::Batch<'_>;

    /// Appends what is due, at most `limit`, if this loop is who sweeps.
    fn sweep(&mut self, limit: usize, due: &mut Vec<Token>);

    /// When this loop should sweep, the time-out of its poll.
    fn next_deadline(&mut self) -> Option<Instant>;
}

/// What is done to timers after the events of one poll, at one reading of the clock.
pub(crate) trait Batch {
    type Id;

    /// This timer will soon be asked for.
    fn prefetch(&self, id: Self::Id);

    /// Arms a timer; `None` if it is refused.
    fn insert(&mut self, token: Token, delay: Duration) -> Option<Self::Id>;

    /// Pushes a timer back; `false` if it has fired.
    fn reset(&mut self, id: &mut Self::Id, delay: Duration) -> bool;

    /// Ends a timer, if it has not fired.
    fn cancel(&mut self, id: Self::Id);
}

/// What the timers of all loops have in common.
pub(crate) trait Store: Send + Sync {
    /// How many are armed.
    fn armed(&self) -> u64;

    /// Once no loop is left: ends who sweeps for them.
    fn stop(&mut self);
}
