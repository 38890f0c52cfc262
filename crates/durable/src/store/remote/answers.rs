//! The numbers that both servers answer to operations, and their meanings. A number above 2 is the
//! reason why nothing was done, or the outcome of an insert.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::model::clock::{LATEST, Millis, system};
use crate::store::{Cancelled, Finished, Inserted, Renewed};

/// Returns the error for a reply that no server of this version sends.
pub(crate) fn unexpected_reply() -> DurableError {
    DurableError::corrupt("unexpected reply of the server")
}

/// Reads the answer to an insert.
pub(crate) fn inserted(answer: i32) -> Result<Inserted, DurableError> {
    match answer {
        0 => Ok(Inserted::New),
        1 => Ok(Inserted::Kept),
        2 => Ok(Inserted::Replaced),
        5 => Ok(Inserted::Next),
        6 => Ok(Inserted::Updated),
        reason => Err(refused(reason)),
    }
}

/// Reads the answer to a cancel.
pub(crate) fn cancelled(answer: i32) -> Result<Cancelled, DurableError> {
    match answer {
        0 => Ok(Cancelled::NotFound),
        1 => Ok(Cancelled::Removed),
        2 => Ok(Cancelled::Running),
        reason => Err(refused(reason)),
    }
}

/// Reads the answer to any other change of a timer or a dead letter. Returns `false` if there is
/// none that can be changed.
pub(crate) fn changed(answer: i32) -> Result<bool, DurableError> {
    match answer {
        0 => Ok(false),
        1 => Ok(true),
        reason => Err(refused(reason)),
    }
}

/// Reads the answer to the end of an attempt.
pub(crate) fn finished(answer: i32) -> Result<Finished, DurableError> {
    match answer {
        0 => Ok(Finished::TooLate),
        1 => Ok(Finished::Accepted),
        2 => Ok(Finished::Cancelled),
        reason => Err(refused(reason)),
    }
}

/// Reads the answer to a renewal, with the length of the lease.
pub(crate) fn renewed(answer: i32, length: Option<Millis>) -> Result<Renewed, DurableError> {
    match (answer, length) {
        (0, _) => Ok(Renewed::Lost),
        (1, Some(length)) => Ok(Renewed::Held { length, cancelled: false }),
        (2, Some(length)) => Ok(Renewed::Held { length, cancelled: true }),
        (reason, _) => Err(refused(reason)),
    }
}

fn refused(reason: i32) -> DurableError {
    match reason {
        3 => DurableError::Exists,
        4 => DurableError::BeyondRange { latest: system(LATEST) },
        7 => DurableError::Changed,
        8 => DurableError::Running,
        _ => unexpected_reply(),
    }
}
