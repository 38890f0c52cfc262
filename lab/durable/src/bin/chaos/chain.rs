//! [`judge`], the verdict on a timer that repeats.
//!
//! The planned times of its deliveries form a chain. It begins with a time that was requested and
//! ends with a delivery whose handler cancels the timer, or earlier by a cancel of this process.
//! These properties are audited:
//!
//! - No planned time begins early, and each ends at most once.
//! - Each delivery before the last one has ended, by an acknowledgement or a dead letter.
//! - Two successive planned times are a whole number of intervals apart. Times between them had
//!   passed when the first delivery was leased for its last attempt, so that it made up for them
//!   ([`Misfire::Once`]). No other time is left out.
//! - A time that had passed then is not delivered any more. A worker logs when the lease began only
//!   to within [`LEASE`], so this is known of times that had passed that long before.
//! - The chain does not end earlier, and does not continue after the acknowledgement of a delivery
//!   whose handler has cancelled it, or after a cancel.
//!
//! [`Misfire::Once`]: tourbillon_durable::Misfire::Once

use crate::plan::LEASE;
use crate::seen::{Broken, Conditions, Seen};
use crate::story::{Cancelled, Fate, Story};
use std::collections::HashMap;

/// The findings about a timer that repeats.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    pub(crate) broken: Broken,
    /// Its last delivery cancelled it.
    pub(crate) is_complete: bool,
    /// The number of times that the previous delivery made up for.
    pub(crate) missed: usize,
}

pub(crate) fn judge(
    story: &Story,
    every: u64,
    seen: &HashMap<u64, Seen>,
    run: &Conditions,
) -> Chain {
    let mut chain = Chain::default();
    let mut seen: Vec<(u64, &Seen)> = seen.iter().map(|(planned, one)| (*planned, one)).collect();
    seen.sort_unstable_by_key(|(planned, _)| *planned);
    let is_start = |planned: u64| story.deliveries.iter().any(|(start, _)| *start == planned);
    for (planned, one) in &seen {
        chain.broken.add(*planned, one, story, run);
        chain.broken.stale |= has_begun_after_cancel(one, story, run);
    }
    chain.broken.stale |= seen.first().is_some_and(|(planned, _)| !is_start(*planned));
    for pair in seen.windows(2) {
        let [(planned, one), (next, _)] = *pair else { continue };
        // An insert without a reply may be repeated after the end.
        if is_start(next) && one.ends_repetition {
            continue;
        }
        chain.broken.lost |= !one.has_ended();
        chain.broken.stale |= one.cancelled;
        chain.broken.stale |= one.ends_repetition && (one.acknowledged > 0 || one.untold);
        let (earliest, latest) = leased(one, run);
        let is_on_time = (next - planned).is_multiple_of(every) && next > earliest;
        let made_up = next.saturating_sub(every) <= latest.max(planned);
        chain.broken.stale |= !is_on_time;
        chain.broken.lost |= !made_up;
        chain.missed += usize::try_from((next - planned) / every - 1).unwrap_or(usize::MAX);
    }
    let last = seen.last().map(|(_, one)| *one);
    let is_ended = last.is_some_and(|one| one.ends_repetition);
    chain.broken.lost |= !is_ended && story.cancelled == Cancelled::No;
    chain.broken.stale |=
        last.is_some_and(|one| one.cancelled && !is_ended && story.cancelled == Cancelled::No);
    chain.is_complete = is_ended && story.cancelled != Cancelled::Yes;
    chain
}

fn has_begun_after_cancel(one: &Seen, story: &Story, run: &Conditions) -> bool {
    story.deliveries.iter().any(|(_, fate)| match fate {
        Fate::Gone(since) => one.begun.iter().any(|at| *at > since + run.clocks.slack()),
        _ => false,
    })
}

/// Returns the earliest and the latest possible time of the last lease of a delivery that has
/// ended, by the clock of the store.
fn leased(one: &Seen, run: &Conditions) -> (u64, u64) {
    let lease = u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX);
    match (one.leased, one.begun.iter().max()) {
        (Some(leased), _) => (leased.saturating_sub(lease), leased),
        // The worker was killed before it could log the end, which followed the start.
        (None, Some(begun)) if one.letters == 0 => (0, begun + run.clocks.ahead()),
        // The last attempt of a dead letter may have ended without a call of the handler.
        (None, _) => (0, u64::MAX),
    }
}
