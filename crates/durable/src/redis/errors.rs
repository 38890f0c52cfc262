//! [`Fault`], the classification of request errors, which decides about a resend.
//!
//! **Resent unconditionally** are requests that were certainly not executed (connection refused,
//! slot moved, server still loading). **Resent under the same number** are batches that may have
//! been executed, with the reply lost (`batch.rs`). The script then returns the reply that it has
//! kept, or executes them.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// The messages of Redis 7.0 and later about a missing permission within a script.
const DENIED: [&str; 2] = ["The user executing the script can't", "ACL failure in script"];

/// The messages of `rustls` about a certificate.
const TLS: [&str; 2] = ["invalid peer certificate", "received fatal alert"];

/// The setting of a node, which affects the classification of its errors.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setting {
    pub(super) is_cluster: bool,
    /// Set if sentinels know the present master.
    pub(super) has_sentinels: bool,
    /// Set if the credentials can change, so that workers wait for new credentials.
    pub(super) credentials_change: bool,
}

/// The reason why a request failed.
pub(super) enum Fault {
    Fatal(DurableError),
    /// The request was not executed, and can be executed after an operator has fixed the server.
    /// Workers wait.
    Rejected(DurableError),
    /// The request was not executed.
    NotExecuted(String),
    /// The request may have been executed.
    Ambiguous(String),
}

impl Fault {
    /// Classifies an error of a node.
    pub(super) fn of(error: &RedisError, setting: Setting) -> Self {
        use ServerErrorKind as Server;
        let what = error.to_string();
        match error.kind() {
            _ if TLS.iter().any(|said| what.contains(said)) => {
                Self::Rejected(DurableError::Tls(what))
            }
            ErrorKind::AuthenticationFailed if setting.credentials_change => {
                Self::Rejected(DurableError::Denied(what))
            }
            ErrorKind::Server(Server::Moved | Server::Ask) if !setting.is_cluster => {
                let advice = "the node belongs to a cluster, use `Redis::connect_cluster`";
                Self::Fatal(DurableError::Address(format!("{advice} ({what})")))
            }
            ErrorKind::Server(
                Server::Moved
                | Server::Ask
                | Server::TryAgain
                | Server::ClusterDown
                | Server::BusyLoading
                | Server::MasterDown
                | Server::NoScript,
            ) => Self::NotExecuted(what),
            // The master has just become a replica, and the other nodes or the sentinels know its
            // successor.
            ErrorKind::Server(Server::ReadOnly) if setting.is_cluster || setting.has_sentinels => {
                Self::NotExecuted(what)
            }
            // The next connection may lead to the new master.
            ErrorKind::Server(Server::ReadOnly) => Self::Rejected(DurableError::ReadOnly(what)),
            ErrorKind::Server(Server::NoPerm) | ErrorKind::AuthenticationFailed => {
                Self::Fatal(DurableError::Denied(what))
            }
            ErrorKind::Server(Server::ResponseError) if what.contains("non local key") => {
                Self::NotExecuted(what)
            }
            ErrorKind::Server(Server::ResponseError)
                if DENIED.iter().any(|said| what.contains(said)) =>
            {
                Self::Fatal(DurableError::Denied(what))
            }
            ErrorKind::Extension => extension(error.code().unwrap_or_default(), what, setting),
            ErrorKind::MasterNameNotFoundBySentinel => Self::NotExecuted(what),
            ErrorKind::Io if error.is_connection_refusal() => Self::NotExecuted(what),
            ErrorKind::Io | ErrorKind::Parse => Self::Ambiguous(what),
            ErrorKind::InvalidClientConfig => Self::Fatal(DurableError::Address(what)),
            _ => Self::Fatal(DurableError::Io(what)),
        }
    }

    /// Adds the address of the node to the message.
    pub(super) fn at(self, address: &str) -> Self {
        match self {
            Self::Fatal(error) => Self::Fatal(error.at(address)),
            Self::Rejected(error) => Self::Rejected(error.at(address)),
            Self::NotExecuted(what) => Self::NotExecuted(format!("{address}: {what}")),
            Self::Ambiguous(what) => Self::Ambiguous(format!("{address}: {what}")),
        }
    }

    /// Returns the error that makes workers repeat requests.
    pub(super) fn temporary(&self) -> Option<DurableError> {
        match self {
            Self::Fatal(_) => None,
            Self::Rejected(error) => Some(error.clone()),
            Self::NotExecuted(what) | Self::Ambiguous(what) => {
                Some(DurableError::Unreachable(what.clone()))
            }
        }
    }

    /// Converts to the error for a caller that does not retry.
    pub(super) fn into_error(self) -> DurableError {
        match self {
            Self::Fatal(error) | Self::Rejected(error) => error,
            Self::NotExecuted(what) | Self::Ambiguous(what) => DurableError::Unreachable(what),
        }
    }
}

/// Converts the error of a connection that cannot be established.
pub(super) fn refused(error: &RedisError) -> DurableError {
    Fault::of(error, Setting::default()).into_error()
}

fn extension(code: &str, what: String, setting: Setting) -> Fault {
    Fault::Fatal(match code {
        "NOAUTH" | "WRONGPASS" if setting.credentials_change => {
            return Fault::Rejected(DurableError::Denied(what));
        }
        "NOAUTH" | "WRONGPASS" => DurableError::Denied(what),
        "MISCONF" | "NOREPLICAS" | "OOM" => return Fault::Rejected(DurableError::ReadOnly(what)),
        "TBCORRUPT" => DurableError::corrupt(what),
        // Another script is running for long.
        "BUSY" => return Fault::NotExecuted(what),
        _ => DurableError::Io(what),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_that_has_become_a_replica_is_left_for_another() {
        let read_only = ErrorKind::Server(ServerErrorKind::ReadOnly);
        let said = RedisError::from((read_only, "a replica takes no writes"));
        let alone = Setting::default();
        for setting in
            [Setting { is_cluster: true, ..alone }, Setting { has_sentinels: true, ..alone }]
        {
            let fault = Fault::of(&said, setting);
            assert!(matches!(fault, Fault::NotExecuted(_)), "another is known: {setting:?}");
        }
        let alone = Fault::of(&said, alone);
        assert!(matches!(alone, Fault::Rejected(DurableError::ReadOnly(_))), "it may have none");
    }
}
