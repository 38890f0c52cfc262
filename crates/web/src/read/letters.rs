//! Reading dead letters, newest first, and [`Filter`].

#![forbid(unsafe_code)]

use crate::read::{Page, STEP, Where, find, has_label};
use std::time::SystemTime;
use tourbillon_durable::{DeadLetter, DurableError, DurableTimers, Label};

/// The dead letters to show, redrive or delete.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    /// Only letters of timers whose ids begin with this.
    pub(crate) prefix: String,
    /// Only letters of timers with this label.
    pub(crate) label: Option<Label>,
    /// Only letters of timers that died at this time or later.
    pub(crate) from: Option<SystemTime>,
    /// Only letters of timers that died before this time.
    pub(crate) until: Option<SystemTime>,
}

impl Filter {
    /// Returns `true` if the filter keeps all letters.
    pub(crate) fn is_all(&self) -> bool {
        self.prefix.is_empty()
            && self.label.is_none()
            && self.from.is_none()
            && self.until.is_none()
    }

    pub(crate) fn keeps(&self, letter: &DeadLetter) -> bool {
        letter.id.starts_with(&self.prefix)
            && has_label(&letter.options, self.label.as_ref())
            && self.from.is_none_or(|from| letter.died >= from)
            && self.until.is_none_or(|until| letter.died < until)
    }
}

/// Reads a page of dead letters, newest first. Positions are numbers of letters.
pub(crate) async fn page(
    timers: &DurableTimers,
    filter: &Filter,
    from: Where<u64>,
) -> Result<Page<DeadLetter, u64>, DurableError> {
    let (is_backwards, at) = match from {
        Where::Start => (false, None),
        Where::After(number) => (false, Some(number)),
        Where::Before(number) => (true, Some(number)),
    };
    let number = |letter: &DeadLetter| letter.number;
    let step = |at| async move {
        match is_backwards {
            false => timers.newest_dead_letters(at, STEP).await,
            true => timers.dead_letters(at, STEP).await,
        }
    };
    let found = find(at, number, |letter| filter.keeps(letter), step).await?;
    Ok(Page::of(found, number, is_backwards, at.is_none()))
}
