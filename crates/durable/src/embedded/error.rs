//! [`TransitionError`], and the translation of the database's errors.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The reason why a transition failed.
#[derive(Debug)]
pub(super) enum TransitionError {
    /// The transition changed nothing, and the rest of the batch continues.
    Rejected(DurableError),
    /// The database failed, and the whole batch is rolled back.
    Failed(DurableError),
}

impl From<DurableError> for TransitionError {
    fn from(error: DurableError) -> Self {
        Self::Rejected(error)
    }
}

impl From<TransitionError> for DurableError {
    fn from(error: TransitionError) -> Self {
        match error {
            TransitionError::Rejected(error) | TransitionError::Failed(error) => error,
        }
    }
}

macro_rules! faults {
    ($($error:ident),*) => {$(
        impl From<redb::$error> for TransitionError {
            fn from(error: redb::$error) -> Self {
                Self::Failed(convert(error.into()))
            }
        }
    )*};
}

faults!(TransactionError, TableError, StorageError, CommitError, DatabaseError, CompactionError);

fn convert(error: redb::Error) -> DurableError {
    match error {
        redb::Error::DatabaseAlreadyOpen => DurableError::Locked(
            "another process, or another handle of this one, has the file open".to_owned(),
        ),
        redb::Error::Corrupted(_)
        | redb::Error::UpgradeRequired(_)
        | redb::Error::TableTypeMismatch { .. }
        | redb::Error::TableIsMultimap(_)
        | redb::Error::TypeDefinitionChanged { .. }
        | redb::Error::TableDoesNotExist(_) => DurableError::corrupt(error.to_string()),
        redb::Error::PreviousIo => DurableError::Io("an earlier read or write failed".to_owned()),
        redb::Error::Io(error) => {
            let what = error.to_string();
            match error.kind() {
                // The database reports nothing else for a file of another kind.
                ErrorKind::InvalidData => DurableError::corrupt("the file is not a redb database"),
                ErrorKind::UnexpectedEof => DurableError::corrupt(what),
                ErrorKind::PermissionDenied
                | ErrorKind::ReadOnlyFilesystem
                | ErrorKind::StorageFull
                | ErrorKind::QuotaExceeded => DurableError::ReadOnly(what),
                _ => DurableError::Io(what),
            }
        }
        _ => DurableError::Io(error.to_string()),
    }
}

/// Converts an error of the file system.
pub(super) fn io(error: std::io::Error) -> DurableError {
    convert(redb::Error::Io(error))
}

/// Calls the database, and converts a panic to an error. The database asserts what it reads from a
/// damaged file, and its thread must keep running for the other callers.
pub(super) fn asserted<R>(
    work: impl FnOnce() -> Result<R, TransitionError>,
) -> Result<R, DurableError> {
    let worked = catch_unwind(AssertUnwindSafe(work));
    let panicked = |_| Err(DurableError::corrupt("the database panicked").into());
    worked.unwrap_or_else(panicked).map_err(DurableError::from)
}

/// Returns the error of an operation that failed before its commit and was certainly not executed.
pub(super) fn not_executed(error: DurableError) -> DurableError {
    match error {
        DurableError::Io(what) => DurableError::ReadOnly(what),
        error => error,
    }
}

/// Returns the error of an operation that failed during its commit and may have been executed.
pub(super) fn ambiguous(error: DurableError) -> DurableError {
    match error {
        DurableError::ReadOnly(what) => DurableError::Io(what),
        error => error,
    }
}
