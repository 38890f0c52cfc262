//! [`Link`], the connections to the server, with the retry policy.
//!
//! The crates `tokio-postgres` and `deadpool-postgres` provide the connections. **If a connection
//! does not reply in time, it is closed with all idle connections**, because connections that broke
//! silently (the machine is gone, or its address has moved) appear intact to the system for a
//! quarter of an hour. The next connection goes to the first address of the configuration whose
//! server can be written.

#![forbid(unsafe_code)]

use super::connector::{Connector, Messages};
use super::errors::{Fault, Setting};
use super::options::PostgresOptions;
use crate::error::DurableError;
use crate::panics::ignore_poison;
use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
};
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::timeout;
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Error, Row};

/// The timeout of a reply, and of connecting to one address.
pub(super) const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum reply timeout of a request that is retried.
pub(super) const MAX_REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// The timeout of statements that count many rows.
const COUNT_TIMEOUT: Duration = Duration::from_secs(120);

/// The first and the longest wait before a retry.
pub(super) const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];

/// A value of a statement.
pub(super) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// How long a request is retried.
#[derive(Clone, Copy, Debug)]
pub(super) enum Retry {
    /// Gives up after the [call timeout](super::PostgresOptions::call_timeout).
    Caller,
    /// Retries until it succeeds, for a worker.
    Worker,
    /// Gives up after a longer time, for a statement that reads many rows.
    Count,
}

impl Retry {
    /// Returns whether the request is retried until it succeeds.
    pub(super) fn is_endless(self) -> bool {
        matches!(self, Self::Worker)
    }

    /// Returns the reply timeout.
    fn answer(self) -> Duration {
        match self {
            Self::Caller | Self::Worker => REPLY_TIMEOUT,
            Self::Count => COUNT_TIMEOUT,
        }
    }
}

/// The connections to the server.
pub(super) struct Link {
    pool: Pool,
    connector: Connector,
    config: Config,
    /// How long a call is retried.
    call: Duration,
    /// The addresses, for messages.
    address: String,
    /// The last error that causes a request to be repeated, until a request succeeds.
    trouble: Mutex<Option<DurableError>>,
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
        let call = options.call_timeout;
        Ok(Self { pool, connector, config, call, address, trouble: Mutex::default() })
    }

    /// Returns the address for messages.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the maximum duration of a request.
    pub(super) fn limit(&self, retry: Retry) -> Option<Duration> {
        match retry {
            Retry::Caller => Some(self.call),
            Retry::Count => Some(COUNT_TIMEOUT.max(self.call)),
            Retry::Worker => None,
        }
    }

    /// Returns why a request has had no reply for long.
    pub(super) fn trouble(&self) -> DurableError {
        let trouble = ignore_poison(self.trouble.lock()).clone();
        trouble.unwrap_or_else(|| self.late("no reply").into_error())
    }

    /// Notes the outcome of a request. A request that only reads does not show that the server can
    /// write again.
    fn note<T>(&self, outcome: &Result<T, Fault>, writes: bool) {
        let mut trouble = ignore_poison(self.trouble.lock());
        match outcome {
            Ok(_) if writes || !matches!(*trouble, Some(DurableError::ReadOnly(_))) => {
                *trouble = None;
            }
            Ok(_) => {}
            Err(fault) => *trouble = fault.temporary().or_else(|| trouble.take()),
        }
    }

    /// Opens a connection outside of the pool.
    pub(super) async fn own(&self) -> Result<(Client, Messages), Error> {
        self.connector.open(&self.config).await
    }

    fn fault(&self, error: &Error) -> Fault {
        let alone = self.config.get_hosts().len() < 2;
        let setting = Setting { alone, credentials_change: self.connector.has_credentials() };
        Fault::of(error, setting).at(&self.address)
    }

    fn late(&self, what: &str) -> Fault {
        Fault::Passing { why: format!("{}: {what}", self.address), lost: true }
    }

    /// Closes a connection that does not reply, and all idle connections.
    fn silent(&self, connection: Object) -> Fault {
        drop(Object::take(connection));
        self.pool.retain(|_, _| false);
        self.late("no reply")
    }

    /// Returns a connection that is idle, or a new one.
    pub(super) async fn connection(&self) -> Result<Object, Fault> {
        let addresses = u32::try_from(self.config.get_hosts().len().max(1)).unwrap_or(u32::MAX);
        match timeout(REPLY_TIMEOUT * (addresses + 1), self.pool.get()).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(PoolError::Backend(error))) => Err(match self.fault(&error) {
                Fault::Passing { why, .. } => Fault::Passing { why, lost: false },
                fault => fault,
            }),
            Ok(Err(error)) => Err(Fault::Passing { why: error.to_string(), lost: false }),
            Err(_) => match self.late("connecting timed out") {
                Fault::Passing { why, .. } => Err(Fault::Passing { why, lost: false }),
                fault => Err(fault),
            },
        }
    }

    /// Sends a statement once.
    pub(super) async fn once(
        &self,
        answer: Duration,
        writes: bool,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Fault> {
        let outcome = self.send(answer, sql, params).await;
        self.note(&outcome, writes);
        outcome
    }

    async fn send(
        &self,
        answer: Duration,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Fault> {
        let connection = self.connection().await?;
        // A connection that has broken silently must not cost more than `REPLY_TIMEOUT`.
        let tests = answer > REPLY_TIMEOUT;
        if tests && timeout(REPLY_TIMEOUT, connection.check_connection()).await.is_err() {
            return Err(self.silent(connection));
        }
        match timeout(answer, connection.query_typed(sql, params)).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => {
                let fault = self.fault(&error);
                // The connection leads to a server that cannot be used (any more).
                if matches!(fault, Fault::Passing { .. } | Fault::Rejected(_)) {
                    drop(Object::take(connection));
                }
                Err(fault)
            }
            Err(_) => Err(self.silent(connection)),
        }
    }

    /// Sends a statement that may be repeated, until a reply arrives.
    pub(super) async fn query(
        &self,
        retry: Retry,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, DurableError> {
        let (mut pause, mut why, mut answer) = (PAUSES[0], String::new(), retry.answer());
        let asked = async {
            loop {
                // Of these statements only a page writes, namely the heartbeat of its worker.
                let writes = retry.is_endless();
                match self.once(answer, writes, sql, params).await {
                    Ok(rows) => return Ok(rows),
                    Err(Fault::Rejected(error)) if retry.is_endless() => {
                        why = error.to_string();
                    }
                    Err(Fault::Fatal(error) | Fault::Rejected(error)) => return Err(error),
                    Err(Fault::Passing { why: error, lost: true }) => {
                        why = error;
                        answer = (answer * 2).min(retry.answer().max(MAX_REPLY_TIMEOUT));
                    }
                    Err(
                        Fault::Locked(error)
                        | Fault::Slow(error)
                        | Fault::Passing { why: error, .. },
                    ) => why = error,
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSES[1]);
            }
        };
        match self.limit(retry) {
            None => asked.await,
            Some(limit) => match timeout(limit, asked).await {
                Ok(answer) => answer,
                Err(_) if why.is_empty() => Err(self.late("no reply").into_error()),
                Err(_) => Err(DurableError::Unreachable(why)),
            },
        }
    }

    /// Closes a connection whose statement has failed, and returns the error.
    pub(super) fn failed(&self, connection: Object, error: &Error) -> DurableError {
        drop(Object::take(connection));
        self.fault(error).into_error()
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
