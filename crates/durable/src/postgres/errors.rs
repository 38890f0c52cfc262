//! [`classified`], which turns the errors of a server into [`RequestError`]s.

#![forbid(unsafe_code)]

use super::connector::is_handshake;
use crate::error::DurableError;
use crate::store::remote::error::{Kind, RequestError};
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

/// Classifies an error.
pub(super) fn classified(error: &Error, setting: Setting) -> RequestError {
    let Setting { alone, credentials_change } = setting;
    let what = described(error);
    let Some(state) = error.code() else {
        return without_code(error, what, alone);
    };
    type Wrap = fn(String) -> DurableError;
    let (kind, wrap): (Kind, Wrap) = match state {
        &SqlState::LOCK_NOT_AVAILABLE => (Kind::Locked, DurableError::Unreachable),
        // Alone it may take less time than `statement_timeout`.
        &SqlState::QUERY_CANCELED => (Kind::Slow, DurableError::Unreachable),
        // The server has become a standby, or forbids writing.
        &SqlState::READ_ONLY_SQL_TRANSACTION if alone => (Kind::Rejected, DurableError::ReadOnly),
        &SqlState::READ_ONLY_SQL_TRANSACTION
        | &SqlState::T_R_SERIALIZATION_FAILURE
        | &SqlState::T_R_DEADLOCK_DETECTED
        | &SqlState::OBJECT_IN_USE
        | &SqlState::TOO_MANY_CONNECTIONS
        | &SqlState::CANNOT_CONNECT_NOW => (Kind::NotExecuted, DurableError::Unreachable),
        &SqlState::ADMIN_SHUTDOWN | &SqlState::CRASH_SHUTDOWN => {
            (Kind::Ambiguous, DurableError::Unreachable)
        }
        &SqlState::INVALID_PASSWORD | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION
            if credentials_change =>
        {
            (Kind::Rejected, DurableError::Denied)
        }
        &SqlState::INSUFFICIENT_PRIVILEGE
        | &SqlState::INVALID_PASSWORD
        | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION => (Kind::Fatal, DurableError::Denied),
        &SqlState::INVALID_CATALOG_NAME => (Kind::Fatal, DurableError::Address),
        &SqlState::UNDEFINED_TABLE
        | &SqlState::UNDEFINED_FUNCTION
        | &SqlState::INVALID_SCHEMA_NAME => (Kind::Fatal, DurableError::corrupt),
        // No memory, no space, or a limit of the server.
        state if state.code().starts_with("53") => (Kind::Rejected, DurableError::ReadOnly),
        state if state.code().starts_with("08") => (Kind::Ambiguous, DurableError::Unreachable),
        _ => (Kind::Rejected, DurableError::Io),
    };
    RequestError { kind, error: wrap(what) }
}

/// Classifies an error that the server did not send.
fn without_code(error: &Error, what: String, alone: bool) -> RequestError {
    let (kind, error) = if is_handshake(error) || is_alert(error) {
        (Kind::Rejected, DurableError::Tls(what))
    } else if alone && is_read_only(error) {
        (Kind::Rejected, DurableError::ReadOnly(what))
    } else if error.to_string().starts_with("invalid c") {
        (Kind::Fatal, DurableError::Address(what))
    } else {
        (Kind::Ambiguous, DurableError::Unreachable(what))
    };
    RequestError { kind, error }
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
