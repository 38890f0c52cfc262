//! [`ReopeningFile`], which reopens the file after a failure of the disk.
//!
//! After one failed read or write the database rejects every operation, even those that need only
//! its memory. The file is therefore closed and reopened at once. Committed data can then be read,
//! even if nothing can be written yet. If reopening fails, the next caller tries again
//! (`threads.rs` has the pauses).
//!
//! The threads work under a shared lock and close the file under an exclusive one, because the file
//! stays locked against other handles until the last of its transactions is dropped.

#![forbid(unsafe_code)]

use super::file::{File, Opener};
use crate::error::DurableError;
use crate::panics::ignore_poison;
use crate::panics::quietly;
use crate::store::window::Watchers;
use std::sync::{Arc, RwLock, RwLockReadGuard};

pub(super) struct ReopeningFile {
    opener: Opener,
    open: RwLock<OpenFile>,
    watchers: Arc<Watchers>,
}

struct OpenFile {
    /// `None` while the file cannot be opened.
    file: Option<File>,
    /// The number of times that the file was closed.
    closed: u64,
}

impl ReopeningFile {
    pub(super) fn new(opener: Opener, file: File, watchers: Arc<Watchers>) -> Self {
        Self { opener, open: RwLock::new(OpenFile { file: Some(file), closed: 0 }), watchers }
    }

    /// Works on the open file. If the disk fails, reopens the file before returning.
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
            return Err(DurableError::ReadOnly("the file is being reopened".to_owned()));
        };
        let done = work(file);
        let closed = open.closed;
        drop(open);
        if matches!(&done, Err(error) if error.is_temporary()) {
            // If the file cannot be opened yet, the next call reports the reason.
            let _ = self.open_again(closed);
        }
        done
    }

    /// Closes and reopens the file, unless another thread has done so since the file was closed
    /// `closed` times.
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
        // The windows load again, because only now can it be seen whether the failed operation was
        // executed, and another process may have had the file meanwhile. No lock is held, because a
        // waker may drop the store.
        quietly(|| self.watchers.invalidate());
        Ok(())
    }

    fn read(&self) -> RwLockReadGuard<'_, OpenFile> {
        ignore_poison(self.open.read())
    }
}
