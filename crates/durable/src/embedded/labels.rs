//! Reading timers by their labels.

#![forbid(unsafe_code)]

use super::error::TransitionError;
use super::snapshot::Snapshot;
use super::tables::{LABELS, TIMERS, named};
use crate::model::label::Label;
use crate::model::record::Record;
use crate::store::{Ids, MAX_LIST_BYTES};
use std::ops::Bound;

/// The maximum number of keys that one step of a count reads.
const STEP: usize = 10_000;

impl Snapshot {
    pub(super) fn label_ids(
        &self,
        label: &Label,
        ids: &Ids,
        limit: usize,
    ) -> Result<Vec<String>, TransitionError> {
        let labels = self.0.open_table(LABELS)?;
        let label = label.as_str();
        // The first key after all keys of the label, because no label has a control character.
        let end = format!("{label}\0");
        let (first, last) = ((label.as_bytes(), &[][..]), (end.as_bytes(), &[][..]));
        let mut found = Vec::new();
        let mut add = |id: &[u8]| found.push(named(id).into_owned());
        match ids {
            Ids::After(id) => {
                let from = match id {
                    Some(id) => Bound::Excluded((label.as_bytes(), id.as_bytes())),
                    None => Bound::Included(first),
                };
                let range = labels.range::<(&[u8], &[u8])>((from, Bound::Excluded(last)))?;
                for entry in range.take(limit) {
                    add(entry?.0.value().1);
                }
            }
            Ids::Before(id) => {
                let to = id.as_ref().map_or(last, |id| (label.as_bytes(), id.as_bytes()));
                let range = labels.range::<(&[u8], &[u8])>(first..to)?;
                for entry in range.rev().take(limit) {
                    add(entry?.0.value().1);
                }
            }
        }
        Ok(found)
    }

    /// Runs one step of a count, from the first id or after the last one of the step before.
    /// Returns the last id of the step unless it is the last step.
    pub(super) fn label_len(
        &self,
        label: &Label,
        after: Option<String>,
    ) -> Result<(u64, Option<String>), TransitionError> {
        let ids = self.label_ids(label, &Ids::After(after), STEP)?;
        let next = ids.last().filter(|_| ids.len() == STEP);
        Ok((ids.len() as u64, next.cloned()))
    }

    /// Returns the timers with the first of some ids, as far as they are not long.
    pub(super) fn get_each(
        &self,
        ids: &[String],
    ) -> Result<Vec<(String, Option<Record>)>, TransitionError> {
        let timers = self.0.open_table(TIMERS)?;
        let (mut list, mut length) = (Vec::new(), 0);
        for id in ids {
            let found = timers.get(id.as_bytes())?;
            length += found.as_ref().map_or(0, |bytes| bytes.value().len());
            let record = found.and_then(|bytes| Record::decode(id, bytes.value()));
            list.push((id.clone(), record));
            if length >= MAX_LIST_BYTES {
                break;
            }
        }
        Ok(list)
    }
}
