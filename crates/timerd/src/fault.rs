//! [`Fault`], the reason why a call got no response. There are three kinds, and the kind alone
//! decides whether the attempt counts.
//!
//! | kind | attempt |
//! |---|---|
//! | [`Refusal`]: no attempt can succeed | is the last |
//! | [`OwnFault`]: the call could not be made | does not count |
//! | [`ReceiverFault`]: the receiver was called, but did not respond | counts |

#![forbid(unsafe_code)]

use super::target::TargetError;
use std::fmt;
use std::io::{self, ErrorKind};
use std::time::Duration;

/// The reason why a call got no response.
#[derive(Debug)]
pub(crate) enum Fault {
    Refused(Refusal),
    Own(OwnFault),
    Receiver(ReceiverFault),
}

/// A reason why the service refuses to make a call.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The timer is not a webhook that can be called.
    Webhook(TargetError),
    /// The port is not allowed.
    Port(u16),
    /// All addresses of the host are internal.
    Internal(String),
}

/// A fault of this machine, its network or its configuration.
#[derive(Debug)]
pub(crate) enum OwnFault {
    /// The name of a host could not be resolved.
    Resolver { host: String, why: String },
    /// A connection could not be attempted.
    Network { host: String, error: io::Error },
    /// There are no authorities to check certificates with.
    Authorities,
    /// The configuration lacks a secret.
    Secret(String),
}

/// A fault of the receiver.
#[derive(Debug)]
pub(crate) enum ReceiverFault {
    /// The name of the host does not exist.
    NoSuchName(String),
    /// The connection was refused or broken.
    Connection { host: String, error: io::Error },
    /// The receiver did not send a valid response.
    Http(hyper::Error),
    /// There was no response in time.
    TimedOut(Duration),
}

impl Fault {
    /// Classifies an error of an attempt to connect. A receiver can refuse or break a connection,
    /// or let it time out. All other errors occur before the receiver is reached.
    pub(crate) fn of_connecting(host: &str, error: io::Error) -> Self {
        let host = host.to_owned();
        match error.kind() {
            ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::TimedOut => Self::Receiver(ReceiverFault::Connection { host, error }),
            _ => Self::Own(OwnFault::Network { host, error }),
        }
    }
}

impl OwnFault {
    /// The names of all variants.
    pub(crate) const NAMES: [&str; 4] = ["resolver", "network", "authorities", "secret"];

    /// Returns the name of the variant, for logs and labels.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Resolver { .. } => "resolver",
            Self::Network { .. } => "network",
            Self::Authorities => "authorities",
            Self::Secret(_) => "secret",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Own(fault) => fault.fmt(f),
            Self::Receiver(fault) => fault.fmt(f),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Webhook(error) => error.fmt(f),
            Self::Port(port) => {
                write!(
                    f,
                    "url: port {port} is not allowed (allow it with webhooks.ports, or for one \
                     address with --allow)"
                )
            }
            Self::Internal(host) => write!(
                f,
                "url: {host} has no address that is global or allowed (allow its network with \
                 webhooks.allow, or one port of it with --allow)"
            ),
        }
    }
}

impl fmt::Display for OwnFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolver { host, why } => write!(f, "could not resolve {host}: {why}"),
            Self::Network { host, error } => write!(f, "could not connect to {host}: {error}"),
            Self::Authorities => f.write_str("this system has no certificate authorities"),
            Self::Secret(name) => write!(f, "secret: the configuration has no secret {name:?}"),
        }
    }
}

impl fmt::Display for ReceiverFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchName(host) => write!(f, "there is no host {host}"),
            Self::Connection { host, error } => {
                write!(f, "could not connect to {host}: {error}")
            }
            Self::Http(error) => write!(f, "no response from the receiver: {error}"),
            Self::TimedOut(limit) => write!(f, "no response from the receiver within {limit:?}"),
        }
    }
}

impl From<TargetError> for Fault {
    fn from(error: TargetError) -> Self {
        Self::Refused(Refusal::Webhook(error))
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<OwnFault> for Fault {
    fn from(fault: OwnFault) -> Self {
        Self::Own(fault)
    }
}

impl From<ReceiverFault> for Fault {
    fn from(fault: ReceiverFault) -> Self {
        Self::Receiver(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn an_error_before_the_receiver_was_asked_is_our_own() {
        for (errno, name) in [
            (24, "EMFILE"),
            (23, "ENFILE"),
            (105, "ENOBUFS"),
            (12, "ENOMEM"),
            (97, "EAFNOSUPPORT"),
            (99, "EADDRNOTAVAIL"),
            (100, "ENETDOWN"),
            (101, "ENETUNREACH"),
            (113, "EHOSTUNREACH"),
            (1, "EPERM"),
            (13, "EACCES"),
        ] {
            let fault = Fault::of_connecting("example.org", io::Error::from_raw_os_error(errno));
            assert!(matches!(fault, Fault::Own(OwnFault::Network { .. })), "{name}: {fault:?}");
        }
        for (errno, name) in
            [(111, "ECONNREFUSED"), (104, "ECONNRESET"), (103, "ECONNABORTED"), (110, "ETIMEDOUT")]
        {
            let fault = Fault::of_connecting("example.org", io::Error::from_raw_os_error(errno));
            assert!(matches!(fault, Fault::Receiver(_)), "{name}: {fault:?}");
        }
    }
}
