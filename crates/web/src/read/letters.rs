//! Reading dead letters, newest first, and [`Filter`].

#![forbid(unsafe_code)]

use crate::read::{Page, STEP, Where, find};
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

    /// Returns the next older letters before a number. They have the label of the filter, and it
    /// need not [keep](Self::keeps) them otherwise.
    pub(crate) async fn older(
        &self,
        timers: &DurableTimers,
        before: Option<u64>,
    ) -> Result<Vec<DeadLetter>, DurableError> {
        match &self.label {
            Some(label) => timers.newest_dead_letters_with_label(label, before, STEP).await,
            None => timers.newest_dead_letters(before, STEP).await,
        }
    }

    /// Like [`older`](Self::older), with the next newer letters after a number.
    async fn newer(
        &self,
        timers: &DurableTimers,
        after: Option<u64>,
    ) -> Result<Vec<DeadLetter>, DurableError> {
        match &self.label {
            Some(label) => timers.dead_letters_with_label(label, after, STEP).await,
            None => timers.dead_letters(after, STEP).await,
        }
    }

    /// Returns `true` if the filter keeps a letter that has its label.
    pub(crate) fn keeps(&self, letter: &DeadLetter) -> bool {
        letter.id.starts_with(&self.prefix)
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
            false => filter.older(timers, at).await,
            true => filter.newer(timers, at).await,
        }
    };
    let found = find(at, number, |letter| filter.keeps(letter), step).await?;
    Ok(Page::of(found, number, is_backwards, at.is_none()))
}
