//! [`Fault`], the classification of the errors of a server.

#![forbid(unsafe_code)]

use super::connector::is_handshake;
use crate::error::DurableError;
use std::io;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// The setting of a server, which affects the classification of its errors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// Set if no other server is configured.
    pub(super) alone: bool,
    /// Set if the credentials can change, so that workers wait for new credentials.
    pub(super) credentials_change: bool,
}

/// The reason why a request failed.
#[derive(Debug)]
pub(super) enum Fault {
    /// The request fails again when it is repeated.
    Fatal(DurableError),
    /// The request can be executed after an operator has fixed the server, or nothing is known
    /// about the error. Workers wait.
    Rejected(DurableError),
    /// Another transaction holds a lock of one of the operations.
    Locked(String),
    /// The operations take too long together.
    Slow(String),
    /// Another connection may succeed, or the same one later. `lost` is set if the request may have
    /// been executed.
    Passing { why: String, lost: bool },
}

impl Fault {
    /// Classifies an error.
    pub(super) fn of(error: &Error, setting: Setting) -> Self {
        let Setting { alone, credentials_change } = setting;
        let what = described(error);
        let Some(state) = error.code() else {
            return Self::without_code(error, what, alone);
        };
        let passing = |why| Self::Passing { why, lost: false };
        match state {
            &SqlState::LOCK_NOT_AVAILABLE => Self::Locked(what),
            // Alone it may take less time than `statement_timeout`.
            &SqlState::QUERY_CANCELED => Self::Slow(what),
            // The server has become a standby, or forbids writing.
            &SqlState::READ_ONLY_SQL_TRANSACTION if alone => {
                Self::Rejected(DurableError::ReadOnly(what))
            }
            &SqlState::READ_ONLY_SQL_TRANSACTION
            | &SqlState::T_R_SERIALIZATION_FAILURE
            | &SqlState::T_R_DEADLOCK_DETECTED
            | &SqlState::OBJECT_IN_USE
            | &SqlState::TOO_MANY_CONNECTIONS
            | &SqlState::CANNOT_CONNECT_NOW => passing(what),
            &SqlState::ADMIN_SHUTDOWN | &SqlState::CRASH_SHUTDOWN => {
                Self::Passing { why: what, lost: true }
            }
            &SqlState::INVALID_PASSWORD | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION
                if credentials_change =>
            {
                Self::Rejected(DurableError::Denied(what))
            }
            &SqlState::INSUFFICIENT_PRIVILEGE
            | &SqlState::INVALID_PASSWORD
            | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
                Self::Fatal(DurableError::Denied(what))
            }
            &SqlState::INVALID_CATALOG_NAME => Self::Fatal(DurableError::Address(what)),
            &SqlState::UNDEFINED_TABLE
            | &SqlState::UNDEFINED_FUNCTION
            | &SqlState::INVALID_SCHEMA_NAME => Self::Fatal(DurableError::corrupt(what)),
            // No memory, no space, or a limit of the server.
            state if state.code().starts_with("53") => Self::Rejected(DurableError::ReadOnly(what)),
            state if state.code().starts_with("08") => Self::Passing { why: what, lost: true },
            _ => Self::Rejected(DurableError::Io(what)),
        }
    }

    /// Classifies an error that the server did not send.
    fn without_code(error: &Error, what: String, alone: bool) -> Self {
        let text = error.to_string();
        if is_handshake(error) || is_alert(error) {
            return Self::Rejected(DurableError::Tls(what));
        }
        if alone && is_read_only(error) {
            return Self::Rejected(DurableError::ReadOnly(what));
        }
        if text.starts_with("invalid c") {
            return Self::Fatal(DurableError::Address(what));
        }
        Self::Passing { why: what, lost: true }
    }

    /// Adds the address of the server to the message.
    pub(super) fn at(self, address: &str) -> Self {
        match self {
            Self::Fatal(error) => Self::Fatal(error.at(address)),
            Self::Rejected(error) => Self::Rejected(error.at(address)),
            Self::Locked(why) => Self::Locked(format!("{address}: {why}")),
            Self::Slow(why) => Self::Slow(format!("{address}: {why}")),
            Self::Passing { why, lost } => Self::Passing { why: format!("{address}: {why}"), lost },
        }
    }

    /// Returns the error that makes workers repeat requests.
    pub(super) fn temporary(&self) -> Option<DurableError> {
        match self {
            Self::Fatal(_) => None,
            Self::Rejected(error) => Some(error.clone()),
            Self::Locked(why) | Self::Slow(why) | Self::Passing { why, .. } => {
                Some(DurableError::Unreachable(why.clone()))
            }
        }
    }

    /// Converts to the error for a caller that does not retry.
    pub(super) fn into_error(self) -> DurableError {
        match self {
            Self::Fatal(error) | Self::Rejected(error) => error,
            Self::Locked(why) | Self::Slow(why) | Self::Passing { why, .. } => {
                DurableError::Unreachable(why)
            }
        }
    }
}

/// Returns the error of the connection, unless the server sent it.
fn io_error(error: &Error) -> Option<&io::Error> {
    std::error::Error::source(error).and_then(|source| source.downcast_ref())
}

/// Returns `true` if the client left a server that cannot be written. If the error came from the
/// system, it would have a number.
fn is_read_only(error: &Error) -> bool {
    io_error(error).is_some_and(|error| {
        error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none()
    })
}

/// Returns `true` if the server refused the client certificate after the handshake.
#[cfg(feature = "postgres-tls")]
fn is_alert(error: &Error) -> bool {
    let error = io_error(error).and_then(io::Error::get_ref);
    error.is_some_and(|error| matches!(error.downcast_ref(), Some(rustls::Error::AlertReceived(_))))
}

#[cfg(not(feature = "postgres-tls"))]
fn is_alert(_: &Error) -> bool {
    false
}

/// Returns the server's message, or the cause of the connection failure.
fn described(error: &Error) -> String {
    if let Some(said) = error.as_db_error() {
        let hint = said.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
        return format!("{} (SQLSTATE {}){hint}", said.message(), said.code().code());
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        source = inner.source();
    }
    text
}
