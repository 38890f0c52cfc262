//! Reading timers and dead letters in bounded steps, however many there are.

#![forbid(unsafe_code)]

pub(crate) mod horizon;
pub(crate) mod letters;
pub(crate) mod log;
pub(crate) mod walk;

use std::future::Future;
use tourbillon_durable::{DurableError, Label, Options};

/// The number of rows of a page.
pub(crate) const ROWS: usize = 50;

/// The number of rows that are read at a time.
pub(crate) const STEP: usize = 500;

/// The number of rows that are read for a page that shows only some of them.
pub(crate) const BUDGET: usize = 5000;

/// A page of a list.
#[derive(Debug)]
pub(crate) struct Page<T, P> {
    pub(crate) rows: Vec<T>,
    /// The position before which there are more rows.
    pub(crate) before: Option<P>,
    /// The position after which there are more rows, or may be.
    pub(crate) after: Option<P>,
    /// `true` if the page ends because its [budget](BUDGET) was used up.
    pub(crate) is_cut: bool,
}

/// The part of a list that a page shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Where<P> {
    Start,
    After(P),
    Before(P),
}

impl<T, P> Page<T, P> {
    /// Returns the page of rows that were found from a position on, or from the start if
    /// `is_first`.
    fn of(
        found: Found<T, P>,
        position: impl Fn(&T) -> P,
        is_backwards: bool,
        is_first: bool,
    ) -> Self {
        let Found { mut rows, more, is_cut } = found;
        let adjacent = rows.first().map(position).filter(|_| !is_first);
        if !is_backwards {
            return Self { rows, before: adjacent, after: more, is_cut };
        }
        rows.reverse();
        Self { rows, before: more, after: adjacent, is_cut }
    }
}

/// The rows that [`find`] has found.
#[derive(Debug)]
pub(crate) struct Found<T, P> {
    pub(crate) rows: Vec<T>,
    /// The position after which there are more rows, or may be.
    pub(crate) more: Option<P>,
    /// `true` if the search ended because its [budget](BUDGET) was used up.
    pub(crate) is_cut: bool,
}

/// Finds the first rows after a position that `keep` returns `true` for, as many as a page has.
/// `step` reads the rows after a position, and none at the end of the list.
pub(crate) async fn find<T, P, F>(
    from: Option<P>,
    position: impl Fn(&T) -> P,
    keep: impl Fn(&T) -> bool,
    step: impl Fn(Option<P>) -> F,
) -> Result<Found<T, P>, DurableError>
where
    P: Clone,
    F: Future<Output = Result<Vec<T>, DurableError>>,
{
    let (mut at, mut read, mut rows) = (from, 0, Vec::<T>::new());
    while read < BUDGET {
        let step = step(at).await?;
        let Some(last) = step.last() else { return Ok(Found { rows, more: None, is_cut: false }) };
        (at, read) = (Some(position(last)), read + step.len());
        for row in step.into_iter().filter(&keep) {
            if rows.len() == ROWS {
                let more = rows.last().map(position);
                return Ok(Found { rows, more, is_cut: false });
            }
            rows.push(row);
        }
    }
    let is_cut = rows.len() < ROWS;
    Ok(Found { rows, more: at, is_cut })
}

/// Returns `true` if the options have a label, or if none is asked for.
fn has_label(options: &Options, label: Option<&Label>) -> bool {
    label.is_none_or(|label| options.get_labels().any(|own| own == label))
}
