//! The dead letters of an embedded store.

#![forbid(unsafe_code)]

use super::error::TransitionError;
use super::snapshot::{Snapshot, page};
use super::tables::{DEAD, LETTERS, OF_ID, OF_LABEL, Transaction};
use crate::error::DurableError;
use crate::model::bounds::LetterBounds;
use crate::model::clock::Millis;
use crate::model::record::{Dead, Record};
use crate::store::{Letters, LettersOf};
use redb::{AccessGuard, ReadableTable, ReadableTableMetadata};
use std::ops::Bound;

fn letter(number: u64, bytes: &[u8]) -> Result<Dead, DurableError> {
    Dead::decode(bytes).ok_or_else(|| DurableError::corrupt_letter(number))
}

/// Returns the keys of a letter in `letters`, without its number.
fn names(dead: &Dead) -> impl Iterator<Item = (u8, &[u8])> {
    let labels = dead.record.settings.labels.iter();
    let labels = labels.map(|label| (OF_LABEL, label.as_str().as_bytes()));
    std::iter::once((OF_ID, dead.id.as_bytes())).chain(labels)
}

/// Returns the number of a letter, and when it was given up. A letter that cannot be read is never
/// too old.
pub(super) fn letter_age(
    (number, bytes): (AccessGuard<'_, u64>, AccessGuard<'_, &'static [u8]>),
) -> (u64, Millis) {
    let died = Dead::decode(bytes.value()).map_or(Millis::MAX, |dead| dead.died);
    (number.value(), died)
}

impl Transaction {
    /// Adds the dead letter of D18.
    pub(super) fn add_letter(&mut self, dead: Dead) -> Result<(), TransitionError> {
        let number = self.number("dead")?;
        self.put_letter(number, &dead)
    }

    /// Writes a letter under a free number, with its keys.
    pub(super) fn put_letter(&self, number: u64, dead: &Dead) -> Result<(), TransitionError> {
        self.inner.open_table(DEAD)?.insert(number, &dead.encode()[..])?;
        let mut letters = self.inner.open_table(LETTERS)?;
        for (kind, name) in names(dead) {
            letters.insert((kind, name, number), ())?;
        }
        Ok(())
    }

    /// Removes a letter and its keys. Returns `false` if there is none. If the letter cannot be
    /// read, its keys stay and lead to no letter.
    fn remove_letter(&self, number: u64) -> Result<bool, TransitionError> {
        let mut dead = self.inner.open_table(DEAD)?;
        let Some(removed) = dead.remove(number)? else { return Ok(false) };
        if let Some(dead) = Dead::decode(removed.value()) {
            let mut letters = self.inner.open_table(LETTERS)?;
            for (kind, name) in names(&dead) {
                letters.remove((kind, name, number))?;
            }
        }
        Ok(true)
    }

    /// Deletes some of the oldest letters beyond the bounds (D23). A letter that cannot be read, or
    /// was written when the clock was ahead, has no age, and the letters behind it can be deleted.
    pub(super) fn trim_letters(
        &mut self,
        bounds: &LetterBounds,
        now: Millis,
    ) -> Result<(), TransitionError> {
        if bounds.is_unbounded() {
            return Ok(());
        }
        let dead = self.inner.open_table(DEAD)?;
        let (mut count, mut excess) = (dead.len()?, Vec::new());
        for entry in dead.iter()?.take(LetterBounds::AHEAD) {
            let (number, died) = letter_age(entry?);
            if bounds.exclude(count, died, now) {
                excess.push(number);
                count -= 1;
            } else if died <= now {
                break;
            }
            if excess.len() == LetterBounds::AT_ONCE {
                break;
            }
        }
        drop(dead);
        excess.into_iter().try_for_each(|number| self.remove_letter(number).map(drop))
    }

    fn find_dead(&mut self, number: u64) -> Result<Option<Dead>, TransitionError> {
        let dead = self.inner.open_table(DEAD)?;
        let Some(found) = dead.get(number)? else { return Ok(None) };
        self.weight += found.value().len();
        Ok(Some(letter(number, found.value())?))
    }

    /// Dead letter → resting, due now (D21).
    pub(super) fn redrive(&mut self, number: u64, now: Millis) -> Result<bool, TransitionError> {
        let Some(dead) = self.find_dead(number)? else { return Ok(false) };
        if self.find(&dead.id)?.is_some() {
            return Err(DurableError::Exists.into());
        }
        self.remove_letter(number)?;
        let mut record = Record { due: now, attempt: 0, ..dead.record };
        record.settings.time_to_live = None;
        self.write(&dead.id, None, Some(&record))?;
        Ok(true)
    }

    /// Dead letter → nothing (D22).
    pub(super) fn delete_dead_letter(&mut self, number: u64) -> Result<bool, TransitionError> {
        self.remove_letter(number)
    }
}

impl Snapshot {
    pub(super) fn letter(&self, number: u64) -> Result<Option<Dead>, TransitionError> {
        let dead = self.0.open_table(DEAD)?;
        let found = dead.get(number)?;
        found.map(|bytes| Ok(letter(number, bytes.value())?)).transpose()
    }

    pub(super) fn dead(
        &self,
        letters: Letters,
        limit: usize,
    ) -> Result<Vec<(u64, Dead)>, TransitionError> {
        let dead = self.0.open_table(DEAD)?;
        let bound = |number: Option<u64>| number.map_or(Bound::Unbounded, Bound::Excluded);
        let read = |number, bytes: &[u8]| Ok((number, letter(number, bytes)?));
        match letters {
            Letters::After(number) => {
                page(dead.range::<u64>((bound(number), Bound::Unbounded))?, limit, read)
            }
            Letters::Before(number) => {
                page(dead.range::<u64>((Bound::Unbounded, bound(number)))?.rev(), limit, read)
            }
        }
    }
    pub(super) fn letters_of(
        &self,
        of: &LettersOf,
        letters: Letters,
        limit: usize,
    ) -> Result<Vec<u64>, TransitionError> {
        let index = self.0.open_table(LETTERS)?;
        let (kind, name) = match of {
            LettersOf::Id(id) => (OF_ID, id.as_bytes()),
            LettersOf::Label(label) => (OF_LABEL, label.as_str().as_bytes()),
        };
        let bound = |number: Option<u64>, end| match number {
            Some(number) => Bound::Excluded((kind, name, number)),
            None => Bound::Included((kind, name, end)),
        };
        let (first, last) = (bound(None, 0), bound(None, u64::MAX));
        let mut numbers = Vec::new();
        match letters {
            Letters::After(number) => {
                let range = index.range::<(u8, &[u8], u64)>((bound(number, 0), last))?;
                for entry in range.take(limit) {
                    numbers.push(entry?.0.value().2);
                }
            }
            Letters::Before(number) => {
                let range = index.range::<(u8, &[u8], u64)>((first, bound(number, u64::MAX)))?;
                for entry in range.rev().take(limit) {
                    numbers.push(entry?.0.value().2);
                }
            }
        }
        Ok(numbers)
    }
}
