//! Reading timers and dead letters in bounded steps, however many there are.

#![forbid(unsafe_code)]

pub(crate) mod horizon;
pub(crate) mod letters;
pub(crate) mod walk;

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
