//! [`trim`], which deletes dead letters beyond the bounds of a store, and [`Trimmer`], which does
//! so for a worker.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::model::bounds::LetterBounds;
use crate::store::{Answer, MAX_PAGE, Store};
use futures_util::FutureExt;
use futures_util::future::try_join_all;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The number of checks of the store between two steps, unless there is more to delete.
const CHECKS: u32 = 60;

/// Deletes up to [`MAX_PAGE`] of the oldest letters beyond the bounds. Returns the number of
/// deleted letters, and `true` if there may be more.
pub(crate) async fn trim(
    store: Arc<dyn Store>,
    bounds: LetterBounds,
) -> Result<(u64, bool), DurableError> {
    let now = store.now().await?;
    // Counted after the page was read. Letters that another process deletes in between are on the
    // page and not counted, so younger letters stay.
    let mut page = store.letter_ages(None, MAX_PAGE).await?;
    let mut count = store.len().await?.1;
    let excess = loop {
        let left = (0..=count).rev();
        // A letter that cannot be read, or was written when the clock was ahead, has no age. It
        // stays, but the letters behind it can be deleted.
        let excess = page.iter().zip(left);
        let excess = excess.filter(|((_, died), left)| bounds.exclude(*left, *died, now));
        let excess: Vec<u64> = excess.map(|((number, _), _)| *number).collect();
        match page.last() {
            Some((last, _)) if excess.is_empty() && page.iter().all(|(_, died)| *died > now) => {
                count = count.saturating_sub(page.len() as u64);
                page = store.letter_ages(Some(*last), MAX_PAGE).await?;
            }
            _ => break excess,
        }
    };
    let delete = excess.into_iter().map(|number| store.delete_dead_letter(number));
    let done = try_join_all(delete).await?;
    let more = !done.is_empty();
    Ok((done.into_iter().map(u64::from).sum(), more))
}

/// Applies the bounds of a store in steps, while a worker runs.
pub(crate) struct Trimmer {
    bounds: LetterBounds,
    /// The number of checks before the next step.
    checks: u32,
    step: Option<Answer<(u64, bool)>>,
}

impl Trimmer {
    pub(crate) fn new(bounds: LetterBounds) -> Self {
        Self { bounds, checks: 1, step: None }
    }

    /// Counts a check of the store, and begins the next step at its time.
    pub(crate) fn count_check(&mut self, store: &Arc<dyn Store>) {
        self.checks = self.checks.saturating_sub(1);
        if self.checks == 0 && self.step.is_none() && !self.bounds.is_unbounded() {
            self.step = Some(Box::pin(trim(Arc::clone(store), self.bounds)));
        }
    }

    /// Continues a step. If it fails, the next step tries again, and the worker notices a failed
    /// store by its other requests.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) {
        let Some(step) = &mut self.step else { return };
        let Poll::Ready(done) = step.poll_unpin(context) else { return };
        self.step = None;
        self.checks = if matches!(done, Ok((_, true))) { 1 } else { CHECKS };
    }
}
