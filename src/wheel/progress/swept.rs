//! How far the sweep has come: one tick for the whole wheel, written by the sweeper alone.
//!
//! The sweeper [`publish`](SweptTick::publish)s a tick before it takes the slots whose expiry
//! has come by it. An inserter chooses its slot by the tick it reads, publishes, passes a fence
//! and reads again. The two fences are ordered one way or the other:
//!
//! 1. the inserter's first: then the sweeper's check of the occupied slots, after its own fence,
//!    finds the reference;
//! 2. the sweeper's first: then the inserter's re-check finds the published tick, knows that
//!    its slot's expiry has passed, and files the reference again in a slot still to come.
//!
//! The same fence of the inserter serves its looks at the
//! [`wakeup`](crate::wheel::progress::wakeup) and at whether the wheel is closed. One that files no
//! reference, and arms by an exchange, passes none.

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
        // Relaxed: an old tick leads to a slot whose expiry may have passed, which the re-check
        // of step 2 finds; for that look the fence orders this load. Beside a next visit, an old
        // tick makes the reference that it tells of look as if it were still to come: then this
        // thread's exchange of the state came before the sweeper's revalidation, which would have
        // brought the new one. A sleep's poll may read an old one: its wake-up is then still to
        // come.
        Tick(self.0.load(Relaxed))
    }

    /// Steps one of the sweeper: from here on the slots up to `tick` are being taken.
    #[inline]
    pub(crate) fn publish(&self, tick: Tick) {
        // Relaxed: ordered by the fence.
        self.0.store(tick.0, Relaxed);
        full_fence();
    }
}

/// The fence between publishing something and looking at what others published, on both sides of
/// each such pair: inserter and sweeper ([`SweptTick`]), inserter and resting sweeper
/// ([`Wakeup`](crate::wheel::progress::wakeup::Wakeup)), inserter and closer
/// ([`Engine`](crate::wheel::engine::Engine)).
#[inline]
pub(crate) fn full_fence() {
    // SeqCst: a store followed by a load of another word, against the same the other way round;
    // no weaker fence orders these. Its partner is the other side's call of this function.
    fence(SeqCst);
}
