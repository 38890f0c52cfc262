//! The operations, one file each, to be read from top to bottom.
//!
//! | file | operation | called by |
//! |---|---|---|
//! | [`insert`] | arm a timer | any thread |
//! | [`cancel`] | end a timer | any thread |
//! | [`reset`] | move a deadline | any thread |
//! | [`refile`] | file a reference that is visited earlier | an insert or reset that needs it |
//! | [`visit`] | discard, requeue or expire a reference | the sweeper |
//! | [`drain`] | end all timers | any thread |
//!
//! [`protocol`] has the steps of all operations and the races between them.
//!
//! **Names.** An operation `x` does everything in the usual case, or nothing. Then it calls
//! `x_slow`, which does the whole operation again, in any case. Both end in the call of another
//! function and pass on its result, so that they need few registers. A function `try_x` may fail,
//! and leaves nothing done then. In each file, a function comes before those that only it calls.

pub(in crate::wheel) mod cancel;
pub(in crate::wheel) mod drain;
pub(in crate::wheel) mod insert;
pub(in crate::wheel) mod protocol;
pub(in crate::wheel) mod refile;
pub(in crate::wheel) mod reset;
pub(in crate::wheel) mod visit;

use crate::wheel::progress::Progress;
use crate::wheel::slab::entry::Entry;
use crate::wheel::slab::state::EntryState;
use crate::wheel::tick::Tick;

/// Returns `true` if the old reference on which an operation relies is still pending after the
/// exchange to `state`, which has no flag. Returns `false` if `next_visit` or the state has
/// changed, even if a reference is visited in time. `refiler_for` in [`refile`] then decides.
#[inline]
pub(super) fn still_pending<T>(
    entry: &Entry<T>,
    state: EntryState,
    next_visit: Tick,
    progress: &Progress,
) -> bool {
    entry.next_visit.load() == next_visit
        && progress.swept() < next_visit
        && entry.state.load() == state
}
