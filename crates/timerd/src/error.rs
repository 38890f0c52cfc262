//! [`StartError`], the reason why a service does not start.

#![forbid(unsafe_code)]

use super::alerts::AlertError;
use super::call::SecretError;
use super::config::ConfigError;
use super::guard::TlsError;
use super::tokens::TokenError;
use std::fmt;
use std::io;
use tourbillon_durable::DurableError;
use tourbillon_durable::text::AddressError;
use tracing_subscriber::filter::ParseError;

/// The reason why a service does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The store cannot be opened.
    Store(DurableError),
    /// The service cannot listen on the address.
    Listen(String, io::Error),
    /// The configuration file cannot be used.
    Config(ConfigError),
    /// The address of the store cannot be parsed.
    Address(AddressError),
    /// A token is refused, or there is none.
    Token(TokenError),
    /// A secret that signs calls is refused.
    Secret(SecretError),
    /// Alerts cannot be sent as configured.
    Alert(AlertError),
    /// Calls by TLS cannot be made.
    Tls(TlsError),
    /// The filter of the log cannot be parsed.
    Log(ParseError),
    /// The process may not open enough files for its calls.
    Files {
        /// The number of files that the process may open.
        open: u64,
        /// The number of concurrent calls.
        calls: usize,
        /// The number of files that the calls and the store need.
        needed: usize,
        /// The number of files that the service needs to start.
        least: usize,
    },
    /// The system has no random numbers for a secret.
    Random(getrandom::Error),
    /// Spans cannot be exported as the environment demands.
    #[cfg(feature = "otlp")]
    Spans(opentelemetry_otlp::ExporterBuildError),
    /// The system refused this.
    System(&'static str, io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let invalid = "invalid configuration:";
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Listen(address, error) => write!(f, "could not listen on {address}: {error}"),
            Self::Config(error) => write!(f, "{invalid} {error}"),
            Self::Address(error) => write!(f, "{invalid} {error}"),
            Self::Token(error) => write!(f, "{invalid} {error}"),
            Self::Secret(error) => write!(f, "{invalid} {error}"),
            Self::Alert(error) => write!(f, "{invalid} {error}"),
            Self::Tls(error) => write!(f, "{invalid} {error}"),
            Self::Log(error) => write!(f, "{invalid} {error} in the log's filter"),
            Self::Files { open, calls, needed, least } => write!(
                f,
                "{invalid} the process may open {open} files, and {calls} calls and the store need \
                 {needed} of them (raise the limit to {least} or lower webhooks.concurrency)"
            ),
            Self::Random(error) => write!(f, "could not create a random secret: {error}"),
            #[cfg(feature = "otlp")]
            Self::Spans(error) => write!(f, "could not export spans: {error}"),
            Self::System(what, error) => write!(f, "could not {what}: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<DurableError> for StartError {
    fn from(error: DurableError) -> Self {
        Self::Store(error)
    }
}

impl From<ConfigError> for StartError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<AddressError> for StartError {
    fn from(error: AddressError) -> Self {
        Self::Address(error)
    }
}

impl From<TokenError> for StartError {
    fn from(error: TokenError) -> Self {
        Self::Token(error)
    }
}

impl From<SecretError> for StartError {
    fn from(error: SecretError) -> Self {
        Self::Secret(error)
    }
}

impl From<AlertError> for StartError {
    fn from(error: AlertError) -> Self {
        Self::Alert(error)
    }
}

impl From<TlsError> for StartError {
    fn from(error: TlsError) -> Self {
        Self::Tls(error)
    }
}

impl From<getrandom::Error> for StartError {
    fn from(error: getrandom::Error) -> Self {
        Self::Random(error)
    }
}
