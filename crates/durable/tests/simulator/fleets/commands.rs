//! The commands that the scripts of Redis execute, counted as `INFO stats` counts them: the call of
//! a script counts as one, and so does each command in it.

use crate::model::clock::Millis;
use crate::model::key::{Key, first_from};
use std::collections::BTreeSet;
use std::ops::Range;

/// The length of a slice (`common.lua`).
const SLICE: Millis = 600_000;

/// The number of members that `load.lua` reads first. Each further step is twice as long.
const FIRST_STEP: usize = 16;

/// A subscription, or the ping of one.
pub(crate) const PLAIN: u64 = 1;

/// The time of a server (`now.lua`).
pub(crate) const TIME: u64 = 2;

/// A batch that has a reply already, or was overtaken (`batch.lua`).
pub(crate) const ANSWERED: u64 = 3;

/// A heartbeat of a worker whose assignment has not changed (`beat.lua`).
pub(crate) const USUAL_BEAT: u64 = 6;

/// The changes that a heartbeat with an assignment makes.
#[derive(Default)]
pub(crate) struct Assigned {
    /// The workers that were removed, or had a heartbeat in the future.
    pub(crate) mended: usize,
    pub(crate) taken: usize,
    /// The number of taken partitions that had an owner.
    pub(crate) robbed: usize,
    pub(crate) begins_round: bool,
}

impl Assigned {
    /// Returns the commands of the heartbeat, which also reads the lists of workers and of owners.
    pub(crate) fn commands(&self) -> u64 {
        let changes = self.mended + self.taken + self.robbed + usize::from(self.begins_round);
        USUAL_BEAT + 2 + changes as u64
    }
}

/// Returns the number of commands when a worker with this many partitions leaves (`leave.lua`).
pub(crate) fn leave(freed: usize) -> u64 {
    7 + freed as u64 + u64::from(freed > 0)
}

/// Returns the number of the slice of a due time.
pub(super) fn slice(due: Millis) -> Millis {
    due / SLICE
}

/// Returns the keys of a slice that are due at or after a time.
fn of_slice(number: Millis, from: Millis) -> Range<Key> {
    first_from(from.max(number * SLICE))..first_from((number + 1) * SLICE)
}

/// Returns `true` if a slice has no keys.
pub(super) fn is_empty(due: &BTreeSet<Key>, number: Millis) -> bool {
    due.range(of_slice(number, 0)).next().is_none()
}

/// Returns the commands of a page (`load.lua`).
pub(crate) fn page(due: &BTreeSet<Key>, from: &Key, until: Millis, limit: usize) -> u64 {
    // The call, `PERSIST` and `TIME`.
    let (mut commands, mut slices, mut left) = (3, 0, limit);
    let mut next = Some(slice(from.0));
    let mut is_found = false;
    while let Some(number) = next.filter(|_| !is_found) {
        if number > slice(until) {
            // The first key of the slice.
            (slices, commands, is_found) = (slices + 1, commands + 1, true);
            break;
        }
        if !is_empty(due, number) {
            slices += 1;
            let mut visited = 0;
            for key in due.range(of_slice(number, from.0)) {
                visited += 1;
                let is_read = key >= from;
                is_found = key.0 > until || is_read && left == 0;
                if is_found {
                    break;
                }
                left -= usize::from(is_read);
            }
            commands += steps(visited, is_found);
        }
        let mut later = due.range(first_from((number + 1) * SLICE)..);
        next = later.next().map(|key| slice(key.0));
    }
    commands + steps(slices, is_found)
}

/// Returns the number of steps in which this many members are read. If the last of them does not
/// end the search, another step may be needed to find that there are no more.
fn steps(visited: usize, ends: bool) -> u64 {
    let (mut read, mut step, mut steps) = (FIRST_STEP, FIRST_STEP, 1);
    while if ends { read < visited } else { read <= visited } {
        step *= 2;
        read += step;
        steps += 1;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn keys(due: impl IntoIterator<Item = Millis>) -> BTreeSet<Key> {
        due.into_iter()
            .enumerate()
            .map(|(place, due)| (due, Arc::from(place.to_string())))
            .collect()
    }

    #[test]
    fn a_page_reads_the_index_and_the_slices_before_its_end() {
        let first = first_from(1000);
        let commands = |due: &BTreeSet<Key>| page(due, &first, 11_000, 4096);
        assert_eq!(commands(&keys([])), 4, "an empty index");
        assert_eq!(commands(&keys([SLICE * 2])), 5, "the first key of a later slice");
        assert_eq!(commands(&keys([12_000])), 5, "a later key of the same slice");
        assert_eq!(commands(&keys([2000, SLICE * 2])), 6, "a key, and a later slice");
        assert_eq!(commands(&keys([2000; 15])), 5, "the end of the slice is in the first step");
        assert_eq!(commands(&keys([2000; 16])), 6, "it may have more");
    }
}
