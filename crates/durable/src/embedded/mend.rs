//! The check and the repair of an embedded store.
//!
//! A bit that the disk has flipped in a key leaves both tables readable. A record is then stored
//! under another id, or a key of `due` or `labels` has no record. If the order of keys is broken,
//! lookups also miss neighbouring keys. Therefore [`Snapshot::check`] looks up every row as the
//! other operations do, and [`Transaction::repair`] rewrites the tables instead of changing single
//! rows.

#![forbid(unsafe_code)]

use super::error::TransitionError;
use super::snapshot::Snapshot;
use super::tables::{DUE, LABELS, META, TIMERS, Transaction, named};
use crate::model::check::{Checked, Cursor, Finding, LeaseCounter};
use crate::model::clock::Millis;
use crate::model::key::{Change, Key};
use crate::model::record::Record;
use crate::store::MAX_LIST_BYTES;
use redb::{ReadableTable, TableDefinition};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

/// The maximum number of rows that one step of a check reads.
const STEP: usize = 1000;

/// The parts of a check.
const RECORDS: u64 = 0;
const INDEX: u64 = 1;
const LABEL_INDEX: u64 = 2;

/// The tables of a repair until they replace the originals.
const NEW_TIMERS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("timers, repaired");
const NEW_DUE: TableDefinition<'_, (u64, &[u8]), ()> = TableDefinition::new("due, repaired");
const NEW_LABELS: TableDefinition<'_, (&[u8], &[u8]), ()> =
    TableDefinition::new("labels, repaired");

impl Snapshot {
    /// Runs one step of a check, either of records with their keys or of keys with their records.
    pub(super) fn check(&self, from: &Cursor) -> Result<Checked, TransitionError> {
        match from.part {
            RECORDS => self.check_records(&from.after),
            INDEX => self.check_index(&from.after),
            _ => self.check_labels(&from.after),
        }
    }

    fn check_records(&self, after: &Key) -> Result<Checked, TransitionError> {
        let (timers, due) = (self.0.open_table(TIMERS)?, self.0.open_table(DUE)?);
        let labels = self.0.open_table(LABELS)?;
        let counter = self.lease_counter()?;
        let mut checked = Checked { counter: Some(counter), ..Checked::default() };
        let (mut last, mut length) = (None, 0);
        for row in timers.range::<&[u8]>((Excluded(after.1.as_bytes()), Unbounded))?.take(STEP) {
            let (key, bytes) = row?;
            let (key, bytes) = (key.value(), bytes.value());
            let id = named(key);
            checked.timers += 1;
            checked.leased += u64::from(Record::is_leased(bytes));
            match Record::decode(&id, bytes) {
                None => checked.findings.push(Finding::Unreadable { id: id.clone().into_owned() }),
                Some(record) => {
                    let mut found =
                        timers.get(key)?.is_some() && due.get((record.indexed(), key))?.is_some();
                    for label in &record.settings.labels {
                        found &= labels.get((label.as_str().as_bytes(), key))?.is_some();
                    }
                    if !found {
                        checked.findings.push(Finding::Unindexed { id: id.clone().into_owned() });
                    }
                }
            }
            last = Some((0, Arc::from(id)));
            length += bytes.len();
            if length >= MAX_LIST_BYTES {
                break;
            }
        }
        checked.next = goes_on(RECORDS, after, last).or(Some(Cursor::part(INDEX)));
        Ok(checked)
    }

    fn lease_counter(&self) -> Result<LeaseCounter, TransitionError> {
        let meta = self.0.open_table(META)?;
        let number = |name| Ok::<_, TransitionError>(meta.get(name)?.map_or(0, |it| it.value()));
        let counted = i64::try_from(number("leased")?).unwrap_or(i64::MAX);
        Ok(LeaseCounter { counted, fence: number("fence")? })
    }

    fn check_index(&self, after: &Key) -> Result<Checked, TransitionError> {
        let (timers, due) = (self.0.open_table(TIMERS)?, self.0.open_table(DUE)?);
        let (mut checked, mut last) = (Checked::default(), None);
        let from = (after.0, after.1.as_bytes());
        for row in due.range::<(u64, &[u8])>((Excluded(from), Unbounded))?.take(STEP) {
            let key = row?.0;
            let (time, id) = (key.value().0, named(key.value().1));
            checked.keys += 1;
            let stray = match timers.get(key.value().1)? {
                None => true,
                // An unreadable record is found among the records.
                Some(found) => {
                    Record::decode(&id, found.value()).is_some_and(|it| it.indexed() != time)
                }
            };
            if stray {
                checked.findings.push(Finding::stray(time, &id));
            }
            last = Some((time, Arc::from(id)));
        }
        checked.next = goes_on(INDEX, after, last).or(Some(Cursor::part(LABEL_INDEX)));
        Ok(checked)
    }

    /// Checks the keys of labels. A cursor has the label and the id of a key in place of an id. No
    /// label has a control character, so the order is the same.
    fn check_labels(&self, after: &Key) -> Result<Checked, TransitionError> {
        let (timers, labels) = (self.0.open_table(TIMERS)?, self.0.open_table(LABELS)?);
        let (mut checked, mut last) = (Checked::default(), None);
        let from = after.1.split_once('\0').unwrap_or_default();
        let from = (from.0.as_bytes(), from.1.as_bytes());
        for row in labels.range::<(&[u8], &[u8])>((Excluded(from), Unbounded))?.take(STEP) {
            let key = row?.0;
            let (label, id) = key.value();
            let found = timers.get(id)?;
            let (label, id) = (named(label), named(id));
            // An unreadable record is found among the records.
            let stray = found.is_none_or(|found| {
                let record = Record::decode(&id, found.value());
                record.is_some_and(|it| !it.settings.labels.iter().any(|it| it.as_str() == label))
            });
            if stray {
                let (id, label) = (id.clone().into_owned(), label.clone().into_owned());
                checked.findings.push(Finding::StrayLabel { id, label });
            }
            last = Some((0, Arc::from(format!("{label}\0{id}"))));
        }
        checked.next = goes_on(LABEL_INDEX, after, last);
        Ok(checked)
    }
}

/// Returns the position after the last row, or `None` if there was no row or damaged keys are out
/// of order. The records behind such keys are found through the other table.
fn goes_on(part: u64, after: &Key, last: Option<Key>) -> Option<Cursor> {
    last.filter(|last| last > after).map(|after| Cursor { part, after })
}

/// A key of the index without a readable record that is due at its time.
type Loose = (Millis, Vec<u8>);

impl Transaction {
    /// Rewrites the tables, with each record under its own id and the keys of each, and counts the
    /// leases again.
    pub(super) fn repair(&mut self) -> Result<(), TransitionError> {
        let loose = self.loose()?;
        self.copy(&loose)?;
        self.inner.delete_table(TIMERS)?;
        self.inner.delete_table(DUE)?;
        self.inner.delete_table(LABELS)?;
        self.inner.rename_table(NEW_TIMERS, TIMERS)?;
        self.inner.rename_table(NEW_DUE, DUE)?;
        self.inner.rename_table(NEW_LABELS, LABELS)?;
        Ok(())
    }

    fn loose(&self) -> Result<Vec<Loose>, TransitionError> {
        let (timers, due) = (self.inner.open_table(TIMERS)?, self.inner.open_table(DUE)?);
        let mut loose = Vec::new();
        for row in due.iter()? {
            let key = row?.0;
            let (time, id) = key.value();
            let found = timers.get(id)?;
            let found = found.and_then(|found| Record::decode(&named(id), found.value()));
            if found.is_none_or(|record| record.indexed() != time) {
                loose.push((time, id.to_vec()));
            }
        }
        Ok(loose)
    }

    fn copy(&mut self, loose: &[Loose]) -> Result<(), TransitionError> {
        let (timers, due) = (self.inner.open_table(TIMERS)?, self.inner.open_table(DUE)?);
        let mut new_timers = self.inner.open_table(NEW_TIMERS)?;
        let mut new_due = self.inner.open_table(NEW_DUE)?;
        let mut new_labels = self.inner.open_table(NEW_LABELS)?;
        let (mut unreadable, mut leased) = (Vec::new(), 0);
        for row in timers.iter()? {
            let (key, bytes) = row?;
            let (id, bytes) = (named(key.value()), bytes.value());
            leased += u64::from(Record::is_leased(bytes));
            let Some((id, record)) = owner(&id, bytes, loose) else {
                unreadable.push((id.into_owned(), bytes.to_vec()));
                continue;
            };
            let time = record.indexed();
            for label in &record.settings.labels {
                new_labels.insert((label.as_str().as_bytes(), id.as_bytes()), ())?;
            }
            new_timers.insert(id.as_bytes(), bytes)?;
            new_due.insert((time, id.as_bytes()), ())?;
            if due.get((time, id.as_bytes()))?.is_none() {
                let added = Some((time, Arc::from(id)));
                self.changes.keys.push(Change { removed: None, added });
            }
        }
        for (mut id, bytes) in unreadable {
            // A record without a known id must not replace another.
            while new_timers.get(id.as_bytes())?.is_some() {
                id.push(char::REPLACEMENT_CHARACTER);
            }
            new_timers.insert(id.as_bytes(), &bytes[..])?;
            // Workers continue to report it.
            for (time, of) in loose.iter().filter(|(_, of)| *named(of) == id) {
                new_due.insert((*time, &of[..]), ())?;
            }
        }
        // Includes the leases of this transaction.
        self.inner.open_table(META)?.insert("leased", leased)?;
        self.leases = 0;
        for (time, id) in loose {
            if new_due.get((*time, &id[..]))?.is_none() {
                let removed = Some((*time, Arc::from(named(id))));
                self.changes.keys.push(Change { removed, added: None });
            }
        }
        Ok(())
    }
}

/// Returns the id that a record belongs to, and the record. The record is stored under this id, or
/// else the id comes from a key without a record with the same due time.
fn owner<'a>(id: &'a str, bytes: &[u8], loose: &'a [Loose]) -> Option<(&'a str, Record)> {
    if let Some(record) = Record::decode(id, bytes) {
        return Some((id, record));
    }
    loose.iter().find_map(|(time, id)| {
        let id = std::str::from_utf8(id).ok()?;
        let record = Record::decode(id, bytes)?;
        (record.indexed() == *time).then_some((id, record))
    })
}
