//! [`Link`], the connections to the server.
//!
//! The crates `tokio-postgres` and `deadpool-postgres` provide the connections. **If a connection
//! does not reply in time, it is closed with all idle connections**, because connections that broke
//! silently (the machine is gone, or its address has moved) appear intact to the system for a
//! quarter of an hour. The next connection goes to the first address of the configuration whose
//! server can be written.

#![forbid(unsafe_code)]

use super::connector::{Connector, Messages};
use super::errors::{Setting, classified};
use super::options::PostgresOptions;
use crate::error::DurableError;
use crate::store::remote::error::{Kind, RequestError};
use crate::store::remote::retry::{COUNT_TIMEOUT, REPLY_TIMEOUT, RetryPolicy, retry};
use crate::store::remote::trouble::Trouble;
use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Error, Row};

/// The maximum reply timeout of a request that is retried.
const MAX_REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// A value of a statement.
pub(super) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// Returns the reply timeout of a request after this number of replies was lost.
pub(super) fn reply_timeout(policy: RetryPolicy, lost: u32) -> Duration {
    let first = match policy {
        RetryPolicy::Count => COUNT_TIMEOUT,
        _ => REPLY_TIMEOUT,
    };
    let doubled = first.saturating_mul(2_u32.saturating_pow(lost));
    doubled.min(first.max(MAX_REPLY_TIMEOUT))
}

/// The connections to the server.
pub(super) struct Link {
    pool: Pool,
    connector: Connector,
    config: Config,
    /// How long a call is retried.
    call_timeout: Duration,
    /// The addresses, for messages.
    address: String,
    trouble: Trouble,
}

impl Link {
    /// Returns a link for a configuration, which connects when it is used.
    pub(super) fn new(mut config: Config, options: &PostgresOptions) -> Result<Self, DurableError> {
        if config.get_target_session_attrs() == TargetSessionAttrs::Any {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(REPLY_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(4 * REPLY_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("tourbillon");
        }
        let address = address(&config);
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let connector = Connector::new(
            &mut config,
            #[cfg(feature = "postgres-tls")]
            options.tls.as_ref(),
        );
        let connector = connector.map_err(|error| error.at(&address))?;
        let connector = connector.credentials(options.credentials.clone());
        let manager = Manager::from_connect(config.clone(), connector.clone(), recycling);
        let connections = options.connections.into();
        let pool = Pool::builder(manager).max_size(connections).runtime(Runtime::Tokio1);
        let pool = pool.build().map_err(|error| DurableError::Address(error.to_string()))?;
        let (call_timeout, trouble) = (options.call_timeout, Trouble::default());
        Ok(Self { pool, connector, config, call_timeout, address, trouble })
    }

    /// Returns the address for messages.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Returns why a request has had no reply for long.
    pub(super) fn trouble(&self) -> DurableError {
        self.trouble.last().unwrap_or_else(|| self.silence())
    }

    /// Returns the error for a request that has had no reply so far.
    pub(super) fn silence(&self) -> DurableError {
        DurableError::Unreachable(format!("{}: no reply", self.address))
    }

    /// Opens a connection outside of the pool.
    pub(super) async fn own(&self) -> Result<(Client, Messages), Error> {
        self.connector.open(&self.config).await
    }

    fn classified(&self, error: &Error) -> RequestError {
        let alone = self.config.get_hosts().len() < 2;
        let setting = Setting { alone, credentials_change: self.connector.has_credentials() };
        classified(error, setting).at(&self.address)
    }

    /// Closes a connection that does not reply, and all idle connections.
    fn silent(&self, connection: Object) -> RequestError {
        drop(Object::take(connection));
        self.pool.retain(|_, _| false);
        RequestError { kind: Kind::Ambiguous, error: self.silence() }
    }

    /// Returns a connection that is idle, or a new one.
    pub(super) async fn connection(&self) -> Result<Object, RequestError> {
        let addresses = u32::try_from(self.config.get_hosts().len().max(1)).unwrap_or(u32::MAX);
        let unsent =
            |what| RequestError { kind: Kind::NotExecuted, error: DurableError::Unreachable(what) };
        match timeout(REPLY_TIMEOUT * (addresses + 1), self.pool.get()).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(PoolError::Backend(error))) => Err(match self.classified(&error) {
                // Nothing was sent yet.
                RequestError { kind: Kind::Ambiguous, error } => {
                    RequestError { kind: Kind::NotExecuted, error }
                }
                error => error,
            }),
            Ok(Err(error)) => Err(unsent(error.to_string())),
            Err(_) => Err(unsent("connecting timed out".to_owned()).at(&self.address)),
        }
    }

    /// Sends a statement once.
    pub(super) async fn once(
        &self,
        answer: Duration,
        writes: bool,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, RequestError> {
        let outcome = self.send(answer, sql, params).await;
        match &outcome {
            Ok(_) => self.trouble.succeeded(writes),
            Err(error) => self.trouble.failed(error),
        }
        outcome
    }

    async fn send(
        &self,
        answer: Duration,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, RequestError> {
        let connection = self.connection().await?;
        // A connection that has broken silently must not cost more than `REPLY_TIMEOUT`.
        let tests = answer > REPLY_TIMEOUT;
        if tests && timeout(REPLY_TIMEOUT, connection.check_connection()).await.is_err() {
            return Err(self.silent(connection));
        }
        match timeout(answer, connection.query_typed(sql, params)).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => {
                let error = self.classified(&error);
                // The connection leads to a server that cannot be used (any more).
                if matches!(error.kind, Kind::Ambiguous | Kind::NotExecuted | Kind::Rejected) {
                    drop(Object::take(connection));
                }
                Err(error)
            }
            Err(_) => Err(self.silent(connection)),
        }
    }

    /// Sends a statement that may be repeated, until a reply arrives.
    pub(super) async fn query(
        &self,
        policy: RetryPolicy,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, DurableError> {
        // Of these statements only a page writes, namely the heartbeat of its worker.
        let writes = matches!(policy, RetryPolicy::Worker);
        let once = |lost| self.once(reply_timeout(policy, lost), writes, sql, params);
        retry(&Handle::current(), (policy, self.call_timeout), once, || self.silence()).await
    }

    /// Sends a statement of the log, until it may have been executed. Its failure affects no other
    /// request.
    #[cfg(feature = "log")]
    pub(super) async fn aside(
        &self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, DurableError> {
        let once = |_| async {
            self.aside_once(sql, params).await.map_err(|failed| match failed.kind {
                Kind::NotExecuted => failed,
                _ => RequestError { kind: Kind::Fatal, ..failed },
            })
        };
        let policy = (RetryPolicy::Caller, self.call_timeout);
        retry(&Handle::current(), policy, once, || self.silence()).await
    }

    #[cfg(feature = "log")]
    async fn aside_once(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, RequestError> {
        let connection = self.connection().await?;
        let mut asking = Asking(Some(connection));
        let silence = || RequestError { kind: Kind::Ambiguous, error: self.silence() };
        let Some(connection) = &asking.0 else { return Err(silence()) };
        match timeout(REPLY_TIMEOUT, connection.query_typed(sql, params)).await {
            Ok(Ok(rows)) => {
                drop(asking.0.take());
                Ok(rows)
            }
            Ok(Err(error)) => Err(self.classified(&error)),
            Err(_) => {
                // The server would execute the next statement beside it.
                let _ = timeout(REPLY_TIMEOUT, self.connector.cancel(connection)).await;
                Err(silence())
            }
        }
    }

    /// Closes a connection whose statement has failed, and returns the error.
    pub(super) fn failed(&self, connection: Object, error: &Error) -> DurableError {
        drop(Object::take(connection));
        self.classified(error).error
    }
}

/// A connection that is closed unless its statement succeeds. A caller that goes would otherwise
/// return a busy connection to the pool.
#[cfg(feature = "log")]
struct Asking(Option<Object>);

#[cfg(feature = "log")]
impl Drop for Asking {
    fn drop(&mut self) {
        self.0.take().map(Object::take);
    }
}

/// Returns the addresses of a configuration, without credentials.
fn address(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |place: usize| ports.get(place).or(ports.first()).copied().unwrap_or(5432);
    let named = |(place, host): (usize, &Host)| match host {
        Host::Tcp(name) => format!("{name}:{}", port(place)),
        Host::Unix(path) => format!("{}:{}", path.display(), port(place)),
    };
    config.get_hosts().iter().enumerate().map(named).collect::<Vec<_>>().join(", ")
}
