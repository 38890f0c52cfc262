//! [`ReopeningFile`]: the file, which is opened again after a failure of the disk.
//!
//! After one failed read or write the database answers nothing any more, not even from what it has
//! in memory. So the file is closed then and opened again at once: what was committed is there, and
//! can be read, though nothing can be written yet. If it cannot be opened, whoever asks next tries
//! again (`threads.rs` has the pauses).
//!
//! The threads work under a lock that they share, and close under one that they do not: the file is
//! locked against other handles until the last of its transactions has gone.

#![forbid(unsafe_code)]

use super::super::error::DurableError;
use super::super::window::Watchers;
use super::file::{File, Opener};
use crate::panics::ignore_poison;
use crate::panics::quietly;
use std::sync::{Arc, RwLock, RwLockReadGuard};

pub(super) struct ReopeningFile {
    opener: Opener,
    open: RwLock<OpenFile>,
    watchers: Arc<Watchers>,
}

struct OpenFile {
    /// `None` while it cannot be opened.
    file: Option<File>,
    /// How often it has been closed.
    closed: u64,
}

impl ReopeningFile {
    pub(super) fn new(opener: Opener, file: File, watchers: Arc<Watchers>) -> Self {
        Self { opener, open: RwLock::new(OpenFile { file: Some(file), closed: 0 }), watchers }
    }

    /// Works on the open file. If the disk fails it is opened again before this returns.
    pub(super) fn with<R>(
        &self,
        work: impl FnOnce(&File) -> Result<R, DurableError>,
    ) -> Result<R, DurableError> {
        let mut open = self.read();
        if open.file.is_none() {
            let closed = open.closed;
            drop(open);
            self.open_again(closed)?;
            open = self.read();
        }
        let Some(file) = &open.file else {
            return Err(DurableError::ReadOnly("it is being opened again".to_owned()));
        };
        let done = work(file);
        let closed = open.closed;
        drop(open);
        if matches!(&done, Err(error) if error.passes()) {
            // If it cannot be opened yet, the next call says why.
            let _ = self.open_again(closed);
        }
        done
    }

    /// Closes the file, unless somebody has since it was closed so often, and opens it again.
    fn open_again(&self, closed: u64) -> Result<(), DurableError> {
        let mut open = ignore_poison(self.open.write());
        if open.closed != closed && open.file.is_some() {
            return Ok(());
        }
        open.closed += 1;
        // A database that has failed may panic.
        let failed = open.file.take();
        quietly(|| drop(failed));
        open.file = Some(self.opener.open(false)?);
        drop(open);
        // Only now it can be seen if the failed operation was done after all; and another process
        // may have had the file meanwhile. No lock is held, because a waker may drop the store.
        quietly(|| self.watchers.forget());
        Ok(())
    }

    fn read(&self) -> RwLockReadGuard<'_, OpenFile> {
        ignore_poison(self.open.read())
    }
}
