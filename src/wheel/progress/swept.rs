//! The tick that the sweep has reached: one for the whole wheel, written by the sweeper alone.
//!
//! The sweeper [publishes](SweptTick::publish) a tick before it takes the slots that expire by it
//! (S2 of the [handshake](super)). A filer chooses its slot by the tick it reads, and reads the
//! tick again if the sweeper does not expect its reference (F6). The fences S2 and F5 are ordered
//! in one of two ways:
//!
//! * F5 is first. Then the sweeper accepts the report after S2, or has accepted it before, and the
//!   scan of the shard that follows finds the reference.
//! * S2 is first. Then F6 finds the published tick, and so detects that the slot has expired. The
//!   filer files the reference again in a slot that is still to come.
//!
//! F2 also orders the check of the closed flag. An inserter that files no reference, and arms by an
//! exchange, passes no fence.

#![forbid(unsafe_code)]

use crate::sync::{AtomicU64, Relaxed, SeqCst, fence};
use crate::wheel::tick::Tick;

/// The tick that the sweep has reached.
#[derive(Debug)]
pub(crate) struct SweptTick(AtomicU64);

impl SweptTick {
    pub(crate) fn new(origin: Tick) -> Self {
        Self(AtomicU64::new(origin.0))
    }

    #[inline]
    pub(crate) fn get(&self) -> Tick {
        // Relaxed. A stale tick is harmless:
        // - in an insert it may choose a slot that has already expired; the sweeper then does not
        //   expect the reference, and the re-check finds that; the fence before orders its load;
        // - next to `next_visit` it may make a past visit look pending; but then this thread's
        //   exchange on the state precedes the sweeper's revalidation, which would have published
        //   the new tick;
        // - in a sleep's poll the wake-up is still to come.
        Tick(self.0.load(Relaxed))
    }

    /// Step S2. From here on the slots up to `tick` are being taken.
    #[inline]
    pub(crate) fn publish(&self, tick: Tick) {
        // Relaxed: ordered by the fence.
        self.0.store(tick.0, Relaxed);
        full_fence();
    }
}

/// A fence between a thread's own publication and its check of what other threads published. Both
/// sides of each such pair call it:
///
/// - filer and sweeper ([`SweptTick`], [`next_scan`](super::next_scan));
/// - filer and resting sweeper ([`Wakeup`](crate::wheel::progress::wakeup::Wakeup));
/// - inserter and closer ([`Engine`](crate::wheel::engine::Engine)).
#[inline]
pub(crate) fn full_fence() {
    // SeqCst: orders a store before a load of another word, against the same with the words
    // exchanged. No weaker fence does. Its partner is the other side's call of this function.
    fence(SeqCst);
}
