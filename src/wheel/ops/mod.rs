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
//! [`protocol`] has the steps of all operations and the races between them. Here, an operation `x`
//! is the fast path and `x_slow` is everything else. Elsewhere a fast path is `try_x` or `fast_x`,
//! and `x` is the general case. In each file, a function comes before those that only it calls.

pub(in crate::wheel) mod cancel;
pub(in crate::wheel) mod drain;
pub(in crate::wheel) mod insert;
pub(in crate::wheel) mod protocol;
pub(in crate::wheel) mod refile;
pub(in crate::wheel) mod reset;
pub(in crate::wheel) mod visit;

use crate::wheel::id::TimerId;
use crate::wheel::memory::Guard;
use crate::wheel::progress::Progress;
use crate::wheel::slab::entry::Entry;
use crate::wheel::slab::state::EntryState;
use crate::wheel::thread_state::ThreadState;
use crate::wheel::tick::Tick;
use std::hint::black_box;

/// The calling thread and its guard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'g> {
    /// The state that is kept for this thread.
    pub(crate) thread: &'g ThreadState,
    pub(crate) guard: &'g Guard,
}

/// Returns `result`, and hides its value from the optimiser.
///
/// A fast path ends in a call of a function that is not inlined. The call is a jump only if its
/// result is returned as it is. If the optimiser knew the result of the called function, it would
/// build it again in the caller, after the call, and the fast path would have to save registers
/// for that.
#[inline]
pub(crate) fn opaque<R>(result: R) -> R {
    black_box(result)
}

/// Returns the value of an insert that is refused.
///
/// Not inlined, for the reason given at [`opaque`].
#[cold]
#[inline(never)]
pub(crate) fn hand_back<T>(value: T) -> Result<TimerId, T> {
    opaque(Err(value))
}

/// Returns `true` if the old reference on which an operation relies is still pending after the
/// exchange to `state`, which has no flag. Returns `false` if `next_visit` or the state has
/// changed, even if a reference is visited in time. `refiler_needed` in [`refile`] then decides.
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
