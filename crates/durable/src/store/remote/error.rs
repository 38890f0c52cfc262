//! [`RequestError`], the reason why a request failed, which decides about a resend.
//!
//! **Resent unconditionally** are requests that were certainly not executed. **Resent under the
//! same number** are batches that may have been executed, with the reply lost. The server then
//! returns the reply that it has kept, or executes them.

#![forbid(unsafe_code)]

use crate::error::DurableError;

/// The kind of a [`RequestError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The request fails again when it is repeated.
    Fatal,
    /// The request can be executed after an operator has fixed the server, or nothing is known
    /// about the error. Workers wait, and callers get the error.
    Rejected,
    /// The request was not executed, and may be executed by another server or later.
    NotExecuted,
    /// The request may have been executed, and a copy of it may still arrive.
    Ambiguous,
    /// The request was not executed, because another transaction holds a lock of one of its
    /// operations.
    #[cfg(feature = "postgres")]
    Locked,
    /// The request was not executed, because its operations take too long together.
    #[cfg(feature = "postgres")]
    Slow,
}

/// The reason why a request failed.
#[derive(Debug)]
pub(crate) struct RequestError {
    pub(crate) kind: Kind,
    /// The error for a caller that does not retry.
    pub(crate) error: DurableError,
}

impl RequestError {
    /// Adds the address of the server to the message.
    pub(crate) fn at(self, address: &str) -> Self {
        Self { error: self.error.at(address), ..self }
    }

    /// Returns the error that makes workers repeat requests.
    pub(crate) fn temporary(&self) -> Option<&DurableError> {
        (self.kind != Kind::Fatal).then_some(&self.error)
    }

    /// Returns the reason for a caller that gives up because there is no reply.
    pub(crate) fn reason(&self) -> String {
        match &self.error {
            DurableError::Unreachable(what) => what.clone(),
            error => error.to_string(),
        }
    }
}
