//! The requests to a [`Server`](super::server::Server) and their replies.

use crate::error::DurableError;
use crate::model::clock::Millis;
use crate::model::key::Key;
use crate::store::{Cancelled, Due, Finish, Finished, Insert, Inserted, Leasing, Renewed};

/// An operation of a batch, with a number that no other one has.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) number: u64,
    pub(crate) operation: Operation,
}

/// The effect of an operation.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Insert(Insert),
    Cancel(String),
    Reset(String, Due),
    RunNow(String),
    Pause(String, bool),
    /// Pauses the partition, or resumes it.
    Hold(bool),
    Lease(Key),
    Renew(String, u64),
    Finish(String, u64, Finish),
    Redrive(u64),
}

impl Operation {
    /// Returns its name, and the id of its timer.
    pub(crate) fn id(&self) -> (&'static str, &str) {
        match self {
            Self::Insert(timer) => ("insert", &timer.id),
            Self::Cancel(id) => ("cancel", id),
            Self::Reset(id, _) => ("reset", id),
            Self::RunNow(id) => ("run now", id),
            Self::Pause(id, _) => ("pause", id),
            Self::Hold(_) => ("hold", ""),
            Self::Lease((_, id)) => ("lease", id),
            Self::Renew(id, _) => ("renew", id),
            Self::Finish(id, ..) => ("finish", id),
            Self::Redrive(_) => ("redrive", ""),
        }
    }
}

/// The result of an operation.
#[derive(Debug)]
pub(crate) enum Reply {
    Inserted(Result<Inserted, DurableError>, Millis),
    Cancelled(Cancelled),
    /// Set if the operation has changed the timer, with the time in its key.
    Changed(Result<bool, DurableError>, Millis),
    Leased(Leasing),
    Renewed(Renewed),
    /// With the next due time, if there is one.
    Finished(Finished, Option<Millis>),
    /// To an operation whose caller has timed out.
    Nothing,
    /// A full memory.
    Refused,
}

impl Reply {
    /// Returns a copy of a reply without a record.
    pub(crate) fn copy(&self) -> Self {
        match self {
            Self::Inserted(inserted, due) => Self::Inserted(inserted.clone(), *due),
            Self::Cancelled(cancelled) => Self::Cancelled(*cancelled),
            Self::Changed(changed, due) => Self::Changed(changed.clone(), *due),
            Self::Leased(Leasing::NotDue { due, now }) => {
                Self::Leased(Leasing::NotDue { due: *due, now: *now })
            }
            Self::Leased(Leasing::Paused) => Self::Leased(Leasing::Paused),
            Self::Leased(_) => Self::Leased(Leasing::NotFound),
            Self::Renewed(renewed) => Self::Renewed(*renewed),
            Self::Finished(finished, due) => Self::Finished(*finished, *due),
            Self::Nothing => Self::Nothing,
            Self::Refused => Self::Refused,
        }
    }
}

/// The reply to a call with this number, which is 0 if its caller had timed out.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) number: u64,
    pub(crate) reply: Reply,
}

/// A batch of operations on a partition.
#[derive(Debug)]
pub(crate) struct BatchRequest {
    pub(crate) partition: u64,
    pub(crate) process: u64,
    pub(crate) number: u64,
    /// Set if a copy of the batch or of an earlier one may still arrive.
    pub(crate) settle: bool,
    pub(crate) calls: Vec<Option<Call>>,
}
