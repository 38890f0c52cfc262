//! `timerd`, a service that calls webhooks on time. The library has its parts, for the program and
//! for tests.
//!
//! ```text
//!   HTTP ──► tokens, limits ──► api ──► durable timers ──► worker ──► webhook ──► receiver
//! ```

#![forbid(unsafe_code)]

mod alerts;
mod api;
mod audit;
mod call;
mod config;
mod door;
mod error;
mod extract;
mod fault;
mod gate;
mod guard;
mod health;
mod metrics;
mod page;
mod probe;
mod problem;
mod rights;
mod runs;
mod serve;
mod service;
mod target;
mod tasks;
mod tokens;
mod trace;
mod webhook;

pub use alerts::AlertError;
pub use call::SecretError;
pub use config::{
    AlertKind, AlertKinds, AlertSettings, Arguments, Config, ConfigError, DeadLetterBounds,
    HistoryBounds, LISTEN, Limits, Page, PageKey, Ports, Role, SecretTexts, TokenHash, Webhooks,
};
pub use error::StartError;
pub use guard::{ResolveError, Resolver, Resolving, TlsError, system_resolver};
pub use probe::{HealthError, check_health};
pub use service::Service;
pub use tokens::{NewToken, TokenError};
