//! [`classified`], which turns the errors of a node into [`RequestError`]s.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::store::remote::error::{Kind, RequestError};
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

/// Classifies an error of a node.
pub(super) fn classified(error: &RedisError, setting: Setting) -> RequestError {
    use ServerErrorKind as Server;
    type Wrap = fn(String) -> DurableError;
    let what = error.to_string();
    let (kind, wrap): (Kind, Wrap) = match error.kind() {
        _ if TLS.iter().any(|said| what.contains(said)) => (Kind::Rejected, DurableError::Tls),
        ErrorKind::AuthenticationFailed if setting.credentials_change => {
            (Kind::Rejected, DurableError::Denied)
        }
        ErrorKind::Server(Server::Moved | Server::Ask) if !setting.is_cluster => {
            let advice = "the node belongs to a cluster, use `Redis::connect_cluster`";
            let error = DurableError::Address(format!("{advice} ({what})"));
            return RequestError { kind: Kind::Fatal, error };
        }
        ErrorKind::Server(
            Server::Moved
            | Server::Ask
            | Server::TryAgain
            | Server::ClusterDown
            | Server::BusyLoading
            | Server::MasterDown
            | Server::NoScript,
        ) => (Kind::NotExecuted, DurableError::Unreachable),
        // The master has just become a replica, and the other nodes or the sentinels know its
        // successor.
        ErrorKind::Server(Server::ReadOnly) if setting.is_cluster || setting.has_sentinels => {
            (Kind::NotExecuted, DurableError::Unreachable)
        }
        // The next connection may lead to the new master.
        ErrorKind::Server(Server::ReadOnly) => (Kind::Rejected, DurableError::ReadOnly),
        ErrorKind::Server(Server::NoPerm) | ErrorKind::AuthenticationFailed => {
            (Kind::Fatal, DurableError::Denied)
        }
        ErrorKind::Server(Server::ResponseError) if what.contains("non local key") => {
            (Kind::NotExecuted, DurableError::Unreachable)
        }
        ErrorKind::Server(Server::ResponseError)
            if DENIED.iter().any(|said| what.contains(said)) =>
        {
            (Kind::Fatal, DurableError::Denied)
        }
        ErrorKind::Extension => match error.code().unwrap_or_default() {
            "NOAUTH" | "WRONGPASS" if setting.credentials_change => {
                (Kind::Rejected, DurableError::Denied)
            }
            "NOAUTH" | "WRONGPASS" => (Kind::Fatal, DurableError::Denied),
            "MISCONF" | "NOREPLICAS" | "OOM" => (Kind::Rejected, DurableError::ReadOnly),
            "TBCORRUPT" => (Kind::Fatal, DurableError::corrupt),
            // Another script is running for long.
            "BUSY" => (Kind::NotExecuted, DurableError::Unreachable),
            _ => (Kind::Fatal, DurableError::Io),
        },
        ErrorKind::MasterNameNotFoundBySentinel => (Kind::NotExecuted, DurableError::Unreachable),
        ErrorKind::Io if error.is_connection_refusal() => {
            (Kind::NotExecuted, DurableError::Unreachable)
        }
        ErrorKind::Io | ErrorKind::Parse => (Kind::Ambiguous, DurableError::Unreachable),
        ErrorKind::InvalidClientConfig => (Kind::Fatal, DurableError::Address),
        _ => (Kind::Fatal, DurableError::Io),
    };
    RequestError { kind, error: wrap(what) }
}

/// Converts the error of a connection that cannot be established.
pub(super) fn refused(error: &RedisError) -> DurableError {
    classified(error, Setting::default()).error
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
            let failed = classified(&said, setting);
            assert_eq!(failed.kind, Kind::NotExecuted, "another is known: {setting:?}");
        }
        let failed = classified(&said, alone);
        assert_eq!(failed.kind, Kind::Rejected, "it may have none");
        assert!(matches!(failed.error, DurableError::ReadOnly(_)));
    }
}
