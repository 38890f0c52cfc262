//! The tables of an embedded store, and all transitions on them, with their numbers in
//! `docs/DESIGN.md`.
//!
//! | table | key | value |
//! |---|---|---|
//! | `timers` | id | [`Record`] |
//! | `due` | due time, id | nothing |
//! | `labels` | label, id | nothing |
//! | `dead` | number | [`Dead`] |
//! | `letters` | [`OF_ID`] or [`OF_LABEL`], the id or the label, number of a dead letter | nothing |
//! | `meta` | `layout`, `fence`, `dead`, `leased`, `paused`, `retried` | a number |
//!
//! A timer has one record, and one key in `due` with the [indexed](Record::indexed) time of its
//! record. It has a key in `labels` for each label of its record, without the labels of its next
//! delivery. All are written in one transaction. A slice is a range of the keys of `due`. `leased`
//! is the number of records with a lease, which each transaction updates, and `retried` the latest
//! due time of any retry that was planned.
//!
//! **A key may be damaged on the disk**, because our checksums do not cover keys. Ids are therefore
//! bytes here, as the database would panic at a text that is not UTF-8. The checksum of a record
//! includes its id. Records are authoritative and the index is derived from them, so an operation
//! repairs the keys that it finds missing or misplaced in the index. If the order of keys is
//! broken, lookups may miss other keys as well, and a page reports that. `mend.rs` checks and
//! repairs both tables completely.

#![forbid(unsafe_code)]

use super::error::TransitionError;
use crate::error::DurableError;
use crate::model::bounds::LetterBounds;
use crate::model::clock::{Millis, Present};
use crate::model::condition::Condition;
use crate::model::key::{Change, Key};
use crate::model::label::Label;
use crate::model::record::{Dead, Record};
use crate::store::transitions::Ended;
use crate::store::{Cancelled, Due, Finish, Finished, Insert, Inserted, Leasing, Renewed};
use redb::{ReadableTable, TableDefinition, WriteTransaction};
use std::borrow::Cow;
use std::sync::Arc;

pub(super) const TIMERS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("timers");
pub(super) const DUE: TableDefinition<'_, (u64, &[u8]), ()> = TableDefinition::new("due");
pub(super) const LABELS: TableDefinition<'_, (&[u8], &[u8]), ()> = TableDefinition::new("labels");
pub(super) const DEAD: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("dead");
pub(super) const LETTERS: TableDefinition<'_, (u8, &[u8], u64), ()> =
    TableDefinition::new("letters");
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// The kinds of keys in `letters`.
pub(super) const OF_ID: u8 = 0;
pub(super) const OF_LABEL: u8 = 1;

/// Returns the id in a key as a text. Damaged bytes are replaced.
pub(super) fn named(id: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(id)
}

pub(super) fn record(id: &str, bytes: &[u8]) -> Result<Record, DurableError> {
    Record::decode(id, bytes).ok_or_else(|| DurableError::corrupt_timer(id))
}

/// The changes of a batch, for the workers.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) keys: Vec<Change>,
    /// Set if all workers have to load again.
    pub(super) reload: bool,
}

/// The parts of a timer's former record that its keys and the number of leases depend on.
#[derive(Clone, Debug)]
pub(super) struct Former {
    key: Millis,
    leased: bool,
    labels: Vec<Label>,
}

impl Former {
    pub(super) fn of(record: &Record) -> Self {
        let labels = record.settings.labels.clone();
        Self { key: record.indexed(), leased: record.fence.is_some(), labels }
    }
}

/// A batch of transitions.
pub(super) struct Transaction {
    pub(super) inner: WriteTransaction,
    pub(super) changes: Changes,
    /// The number of leases that began, less the number that ended.
    pub(super) leases: i64,
    /// The number of bytes of records that were read and written.
    pub(super) weight: usize,
}

impl Transaction {
    pub(super) fn new(inner: WriteTransaction) -> Self {
        Self { inner, changes: Changes::default(), leases: 0, weight: 0 }
    }

    /// Writes the batch to the disk. After that none of it can be lost.
    pub(super) fn commit(self) -> Result<Changes, TransitionError> {
        if self.leases != 0 {
            let mut meta = self.inner.open_table(META)?;
            let leased = meta.get("leased")?.map_or(0, |leased| leased.value());
            meta.insert("leased", leased.saturating_add_signed(self.leases))?;
        }
        self.inner.commit()?;
        Ok(self.changes)
    }

    /// Returns the number of bytes of records that were read and written.
    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    pub(super) fn find(&mut self, id: &str) -> Result<Option<Record>, TransitionError> {
        let timers = self.inner.open_table(TIMERS)?;
        let Some(found) = timers.get(id.as_bytes())? else { return Ok(None) };
        self.weight += found.value().len();
        Ok(Some(record(id, found.value())?))
    }

    /// Writes the new record of a timer, or removes the timer, and updates its key.
    pub(super) fn write(
        &mut self,
        id: &str,
        before: Option<Former>,
        after: Option<&Record>,
    ) -> Result<(), TransitionError> {
        let mut timers = self.inner.open_table(TIMERS)?;
        let mut due = self.inner.open_table(DUE)?;
        let name: Arc<str> = Arc::from(id);
        if let Some(Former { key, leased, .. }) = &before {
            due.remove((*key, id.as_bytes()))?;
            self.leases -= i64::from(*leased);
        }
        self.leases += i64::from(after.is_some_and(|record| record.fence.is_some()));
        match after {
            Some(record) => {
                let bytes = record.encode(id);
                self.weight += bytes.len();
                timers.insert(id.as_bytes(), &bytes[..])?;
                due.insert((record.indexed(), id.as_bytes()), ())?;
            }
            None => drop(timers.remove(id.as_bytes())?),
        }
        let former = before.as_ref().map_or(&[][..], |former| &former.labels);
        self.relabel(id, former, after.map_or(&[], |record| &record.settings.labels))?;
        let removed = before.map(|former| (former.key, Arc::clone(&name)));
        let added = after.map(|record| (record.indexed(), name));
        self.changes.keys.push(Change { removed, added });
        Ok(())
    }

    /// Writes the labels of a timer into their index, in place of former ones.
    fn relabel(&self, id: &str, before: &[Label], after: &[Label]) -> Result<(), TransitionError> {
        if before == after {
            return Ok(());
        }
        let mut labels = self.inner.open_table(LABELS)?;
        for label in before.iter().filter(|label| !after.contains(label)) {
            labels.remove((label.as_str().as_bytes(), id.as_bytes()))?;
        }
        for label in after.iter().filter(|label| !before.contains(label)) {
            labels.insert((label.as_str().as_bytes(), id.as_bytes()), ())?;
        }
        Ok(())
    }

    /// Returns `true` if the index contains the key.
    fn is_indexed(&self, key: &Key) -> Result<bool, TransitionError> {
        let (time, id) = (key.0, &*key.1);
        let due = self.inner.open_table(DUE)?;
        if due.get((time, id.as_bytes()))?.is_some() {
            return Ok(true);
        }
        // The character that replaces damaged bytes of an id.
        if !id.contains(char::REPLACEMENT_CHARACTER) {
            return Ok(false);
        }
        for entry in due.range((time, &[][..])..(time.saturating_add(1), &[][..]))? {
            if named(entry?.0.value().1) == id {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Restores the key of an intact record if damage has removed it from the index.
    fn index(&mut self, id: &str, due: Millis) -> Result<(), TransitionError> {
        let key: Key = (due, Arc::from(id));
        if !self.is_indexed(&key)? {
            self.inner.open_table(DUE)?.insert((due, id.as_bytes()), ())?;
            self.changes.keys.push(Change { removed: None, added: Some(key) });
        }
        Ok(())
    }

    /// Returns the next number of a sequence, which starts at 1.
    pub(super) fn number(&self, of: &str) -> Result<u64, TransitionError> {
        let mut meta = self.inner.open_table(META)?;
        let number = meta.get(of)?.map_or(0, |last| last.value()) + 1;
        meta.insert(of, number)?;
        Ok(number)
    }

    /// Notes the time of a retry.
    pub(super) fn note_retry(&self, due: Millis) -> Result<(), TransitionError> {
        let mut meta = self.inner.open_table(META)?;
        let latest = meta.get("retried")?.map_or(0, |latest| latest.value());
        if latest < due {
            meta.insert("retried", due)?;
        }
        Ok(())
    }

    /// Nothing → resting (D1). If the id exists, the chosen policy decides: the timer is kept (D2),
    /// refused (D4), replaced (D5) or updated (D6). A timer that is kept but may end with its
    /// running attempt gets the new one as its next delivery (D3).
    pub(super) fn insert(
        &mut self,
        timer: &Insert,
        now: Millis,
    ) -> Result<Inserted, TransitionError> {
        let due = timer.due.time(now)?;
        let before = self.find(&timer.id)?;
        let (inserted, after) = Record::inserted(before.as_ref(), timer, due, now)?;
        let former = before.as_ref().map(Former::of);
        match (after, &before) {
            (Some(after), _) => self.write(&timer.id, former, Some(&after))?,
            (None, Some(kept)) => self.index(&timer.id, kept.indexed())?,
            (None, None) => {}
        }
        Ok(inserted)
    }

    /// Resting → nothing (D7). Leased → leased and cancelled, without its repetition rule and its
    /// next delivery (D8).
    pub(super) fn cancel(
        &mut self,
        id: &str,
        only: Option<&Condition>,
    ) -> Result<Cancelled, TransitionError> {
        let found = self.find(id)?;
        Condition::check(only, found.as_ref())?;
        let Some(found) = found else { return Ok(Cancelled::NotFound) };
        let before = Some(Former::of(&found));
        let (cancelled, after) = found.cancelled();
        self.write(id, before, after.as_ref())?;
        Ok(cancelled)
    }

    /// Resting → resting with another due and planned time, no attempts and no order (D9).
    pub(super) fn reset(
        &mut self,
        id: &str,
        due: Due,
        now: Millis,
    ) -> Result<bool, TransitionError> {
        let due = due.time(now)?;
        match self.find(id)? {
            Some(found) if found.fence.is_none() => {
                let before = Some(Former::of(&found));
                self.write(id, before, Some(&found.moved(due)))?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Resting or paused → the same and due now (D27).
    pub(super) fn run_now(&mut self, id: &str, now: Millis) -> Result<bool, TransitionError> {
        let Some(mut found) = self.find(id)? else { return Ok(false) };
        let before = Some(Former::of(&found));
        found.order(now)?;
        self.write(id, before, Some(&found))?;
        Ok(true)
    }

    /// Any state → the same, paused and without an order (D10), or not paused (D11).
    pub(super) fn pause_timer(
        &mut self,
        id: &str,
        pauses: bool,
        only: Option<&Condition>,
    ) -> Result<bool, TransitionError> {
        let found = self.find(id)?;
        Condition::check(only, found.as_ref())?;
        let Some(mut found) = found else { return Ok(false) };
        let before = Some(Former::of(&found));
        (found.paused, found.run_now) = (pauses, false);
        if pauses {
            found.return_to_plan();
        }
        self.write(id, before, Some(&found))?;
        Ok(true)
    }

    /// Pauses the store, so that no lease is granted, or resumes it (D12).
    pub(super) fn pause(&mut self, pauses: bool) -> Result<(), TransitionError> {
        self.inner.open_table(META)?.insert("paused", u64::from(pauses))?;
        self.changes.reload = true;
        Ok(())
    }

    fn is_paused(&self) -> Result<bool, TransitionError> {
        let meta = self.inner.open_table(META)?;
        Ok(meta.get("paused")?.is_some_and(|paused| paused.value() != 0))
    }

    /// Resting and due → leased, with one more attempt (D13). Leased with an expired lease → leased
    /// again (D14). With `takes_over`, a paused store still grants an expired lease.
    pub(super) fn lease(
        &mut self,
        key: &Key,
        now: Millis,
        takes_over: bool,
    ) -> Result<Leasing, TransitionError> {
        let id = &*key.1;
        let found = match self.find(id) {
            Ok(Some(found)) => found,
            Ok(None) if self.is_indexed(key)? => {
                return Ok(Leasing::Unreadable(DurableError::missing_timer(id)));
            }
            Ok(None) => return Ok(Leasing::NotFound),
            Err(TransitionError::Rejected(error)) => return Ok(Leasing::Unreadable(error)),
            Err(broken) => return Err(broken),
        };
        let indexed = found.indexed();
        if indexed != key.0 && self.is_indexed(key)? {
            // The due time in the key is damaged, and the record's is right.
            self.inner.open_table(DUE)?.remove((key.0, id.as_bytes()))?;
            self.changes.keys.push(Change { removed: Some(key.clone()), added: None });
            self.index(id, indexed)?;
        }
        if indexed > now {
            return Ok(Leasing::NotDue { due: indexed, now });
        }
        if self.is_paused()? && !(takes_over && found.fence.is_some()) {
            return Ok(Leasing::Paused);
        }
        let fence = self.number("fence")?;
        let before = Some(Former::of(&found));
        let lease = found.leased(fence, now);
        self.write(id, before, Some(&lease.record))?;
        Ok(Leasing::Taken(Box::new(lease)))
    }

    /// Leased under this fencing token → leased for as long again, from now on (D15).
    pub(super) fn renew(
        &mut self,
        id: &str,
        fence: u64,
        now: Millis,
    ) -> Result<Renewed, TransitionError> {
        let found = self.find(id)?.filter(|record| record.fence == Some(fence));
        let Some(found) = found else { return Ok(Renewed::Lost) };
        let (before, length) = (Some(Former::of(&found)), found.settings.lease);
        let cancelled = found.cancelled;
        self.write(id, before, Some(&found.renewed(now)))?;
        Ok(Renewed::Held { length, cancelled })
    }

    /// Leased under this fencing token → the next delivery, which was inserted meanwhile or belongs
    /// to the repetition, or nothing (D16). A failed attempt leads to a retry (D17) or adds a dead
    /// letter (D18). A cancelled timer that is not done has no other attempt and becomes no letter
    /// (D19).
    pub(super) fn finish(
        &mut self,
        id: &str,
        fence: u64,
        finish: Finish,
        bounds: &LetterBounds,
        now: Present,
    ) -> Result<Finished, TransitionError> {
        let found = self.find(id)?.filter(|record| record.fence == Some(fence));
        let Some(found) = found else { return Ok(Finished::TooLate) };
        let before = Some(Former::of(&found));
        let Ended { finished, after, is_retry, letter } = found.finished(finish, now.coming);
        if let Some(after) = after.as_ref().filter(|_| is_retry) {
            self.note_retry(after.due)?;
        }
        if let Some((reason, record)) = letter {
            self.add_letter(Dead { id: id.to_owned(), died: now.passed, reason, record })?;
            self.trim_letters(bounds, now.passed)?;
        }
        self.write(id, before, after.as_ref())?;
        Ok(finished)
    }

    /// Timer with an unreadable record, or with keys only → nothing (D24).
    pub(super) fn discard(&mut self, id: &str) -> Result<bool, TransitionError> {
        match self.find(id) {
            Ok(Some(_)) => return Ok(false),
            Ok(None) | Err(TransitionError::Rejected(_)) => {}
            Err(broken) => return Err(broken),
        }
        let mut timers = self.inner.open_table(TIMERS)?;
        let removed = timers.remove(id.as_bytes())?.map(|bytes| Record::is_leased(bytes.value()));
        self.leases -= i64::from(removed == Some(true));
        // The due time of the timer is no longer known.
        let mut due = self.inner.open_table(DUE)?;
        let keys = due.iter()?.map(|entry| entry.map(|(key, _)| key));
        let mut some = Vec::new();
        for key in keys {
            let key = key?;
            let (time, of) = key.value();
            if named(of) == id {
                some.push((time, of.to_vec()));
            }
        }
        for (time, of) in &some {
            due.remove((*time, &of[..]))?;
            self.changes.keys.push(Change { removed: Some((*time, Arc::from(id))), added: None });
        }
        Ok(removed.is_some() || !some.is_empty())
    }
}
