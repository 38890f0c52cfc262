//! The laws of fleets, as `SIZES.md` states them.

use super::herd::Herd;
use super::scenario::Size;
use crate::simulator::world::SECOND;

/// Returns the commands per second at rest.
pub(super) fn commands_at_rest(size: Size) -> f64 {
    // A single worker has no foreign partition to check.
    let each = if size.workers == 1 { 7.0 } else { 12.0 };
    each * size.workers as f64 + size.partitions as f64 / 6.0
}

/// Returns the mean time from the last heartbeat of a worker that has died until its partitions
/// are shared, in milliseconds. They are free after five seconds, and the last of the others has
/// its next heartbeat within a second.
pub(super) fn millis_after_death(size: Size) -> f64 {
    let workers = size.workers as f64;
    5000.0 + 1000.0 * workers / (workers + 1.0)
}

/// Returns how long it takes until the last timer of a herd has begun, in milliseconds after it is
/// due. A handler is occupied for 100 ms and two requests. A delivery takes 30 µs of the server.
pub(super) fn millis_of_herd(herd: &Herd) -> u64 {
    let (timers, handlers) = (herd.timers as f64, (herd.size.workers * herd.concurrency) as f64);
    let (handling, server) = (timers * 0.103 / handlers, timers * 0.000_030);
    let spread = herd.spread as f64 / SECOND as f64;
    ((handling.max(server) - spread).max(0.0) * 1000.0) as u64
}
