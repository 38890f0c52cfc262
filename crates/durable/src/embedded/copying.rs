//! Writing timers and dead letters as they are in another store.

#![forbid(unsafe_code)]

use super::error::TransitionError;
use super::tables::{DEAD, Former, META, Transaction};
use crate::model::record::{Dead, Record};
use redb::ReadableTable;

impl Transaction {
    /// Writes a timer, in place of an existing one (D25).
    pub(super) fn copy_timer(&mut self, id: &str, record: &Record) -> Result<(), TransitionError> {
        let before = self.find(id)?.as_ref().map(Former::of);
        if record.attempt > 0 {
            self.note_retry(record.due)?;
        }
        self.write(id, before, Some(record))
    }

    /// Writes a dead letter unless it exists already (D26). Its number follows from its time, so
    /// that the order is kept and a letter that is copied again is found.
    pub(super) fn copy_letter(&mut self, dead: &Dead) -> Result<(), TransitionError> {
        let (bytes, mut number) = (dead.encode(), dead.first_number());
        let letters = self.inner.open_table(DEAD)?;
        loop {
            let found = letters.get(number)?;
            match found.map(|found| found.value() == bytes) {
                Some(true) => return Ok(()),
                Some(false) => number += 1,
                None => break,
            }
        }
        drop(letters);
        self.put_letter(number, dead)?;
        let mut meta = self.inner.open_table(META)?;
        let last = meta.get("dead")?.map_or(0, |last| last.value());
        meta.insert("dead", last.max(number))?;
        Ok(())
    }
}
