//! The laws of fleets, as `SIZES.md` states them.

use super::scenario::Size;

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
