//! The laws of fleets, as `SIZES.md` states them.

use super::herd::Herd;
use super::scenario::Size;
use crate::simulator::world::SECOND;
use std::time::Duration;

/// Returns the commands per second at rest.
pub(super) fn commands_at_rest(size: Size) -> f64 {
    // A single worker has no foreign partition to check.
    let each = if size.workers == 1 { 7.0 } else { 12.0 };
    each * size.workers as f64 + size.partitions as f64 / 6.0
}

/// Returns the mean time from the last heartbeat of a worker that has died until its partitions are
/// shared, in milliseconds. They are free after five seconds. The last of the other workers then
/// sends its heartbeat after `W / (W + 1)` seconds on average.
pub(super) fn millis_after_death(size: Size) -> f64 {
    let workers = size.workers as f64;
    5000.0 + 1000.0 * workers / (workers + 1.0)
}

/// Returns how late the last timer of a herd is. Each timer occupies a handler for 100 ms and two
/// requests, and takes 30 µs of the server.
pub(super) fn lateness_of_herd(herd: &Herd) -> Duration {
    let (timers, handlers) = (herd.timers as f64, (herd.size.workers * herd.concurrency) as f64);
    let (handling, server) = (timers * 0.103 / handlers, timers * 0.000_030);
    let spread = herd.spread as f64 / SECOND as f64;
    Duration::from_secs_f64((handling.max(server) - spread).max(0.0))
}
