//! [`PostgresHistory`], a table in the schema of the store, which all services of the store share.

#![forbid(unsafe_code)]

use super::run::{History, HistoryError, Reply, Run};
use crate::config::HistoryBounds;
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, Runtime};
use std::time::Duration;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Config, Error};
use tourbillon_durable::__internals::Connector;
use tourbillon_durable::Tls;

/// The number of connections. One of them writes.
const CONNECTIONS: usize = 2;

/// The time limit of an operation.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(super) struct PostgresHistory {
    pool: Pool,
    table: String,
    bounds: HistoryBounds,
}

impl PostgresHistory {
    /// Creates the table of the store with this name, unless it exists.
    pub(super) async fn connect(
        url: &str,
        name: &str,
        tls: Option<Tls>,
        bounds: HistoryBounds,
    ) -> Result<Self, HistoryError> {
        let mut config: Config = url.parse().map_err(HistoryError::of)?;
        if config.get_target_session_attrs() == TargetSessionAttrs::Any {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(REPLY_TIMEOUT);
        }
        let connector = Connector::new(&mut config, tls.as_ref()).map_err(HistoryError::of)?;
        let manager = Manager::from_connect(config, connector, ManagerConfig::default());
        let pool = Pool::builder(manager).max_size(CONNECTIONS);
        let pool = pool.runtime(Runtime::Tokio1).build().map_err(HistoryError::of)?;
        // The store has checked its name.
        let history = Self { pool, table: format!("\"{name}\".timerd_runs"), bounds };
        history.clone().create().await?;
        Ok(history)
    }

    /// Creates the table, unless it exists. PostgreSQL requires the right to create a table even if
    /// it exists, which a role that does not own the store may lack. It rejects one of two
    /// creations at the same time when the other is committed, so the rejected creation is
    /// repeated. A lock would prevent this, but any role could hold it.
    async fn create(self) -> Result<(), HistoryError> {
        let Self { table, .. } = &self;
        let exists = "SELECT FROM pg_catalog.pg_class \
            WHERE oid = pg_catalog.to_regclass($1::text) AND relkind IN ('r', 'p')";
        // The server executes these statements as one transaction.
        let create = format!(
            "CREATE TABLE IF NOT EXISTS {table} (
                 number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                 id text NOT NULL,
                 ended bigint NOT NULL,
                 run text NOT NULL
             );
             CREATE INDEX IF NOT EXISTS timerd_runs_id ON {table} (id, number)"
        );
        let connection = self.connection().await?;
        let found = connection.query_opt(exists, &[table]).await;
        if found.map_err(HistoryError::of)?.is_some() {
            return Ok(());
        }
        let mut created = connection.batch_execute(&create).await;
        if created.as_ref().is_err_and(exists_meanwhile) {
            created = connection.batch_execute(&create).await;
        }
        created.map_err(HistoryError::of)
    }

    async fn connection(&self) -> Result<Object, HistoryError> {
        self.pool.get().await.map_err(HistoryError::of)
    }

    async fn add_now(self, runs: Vec<Run>) -> Result<(), HistoryError> {
        let Self { table, bounds, .. } = &self;
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let ids: Vec<&str> = runs.iter().map(|run| &*run.id).collect();
        let ended: Vec<i64> = runs.iter().map(|run| signed(run.ended_millis)).collect();
        let texts: Result<Vec<String>, _> = runs.iter().map(serde_json::to_string).collect();
        let texts = texts.map_err(HistoryError::of)?;
        let now = runs.iter().map(|run| run.ended_millis).max().unwrap_or(0);
        let age = bounds.age.as_millis().try_into().unwrap_or(u64::MAX);
        let (before, most) = (signed(now.saturating_sub(age)), signed(bounds.most.get()));
        let mut connection = self.connection().await?;
        let transaction = connection.transaction().await.map_err(HistoryError::of)?;
        let insert = format!(
            "INSERT INTO {table} (id, ended, run)
             SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[])"
        );
        let added = transaction.execute(&insert, &[&ids, &ended, &texts]).await;
        added.map_err(HistoryError::of)?;
        // The oldest runs are found by their numbers, so neither query reads all rows.
        let trim = format!(
            "DELETE FROM {table} WHERE number <= (SELECT max(number) FROM {table}) - $1
             OR number < (SELECT number FROM {table} WHERE ended >= $2 ORDER BY number LIMIT 1)"
        );
        let trimmed = transaction.execute(&trim, &[&most, &before]).await;
        trimmed.map_err(HistoryError::of)?;
        transaction.commit().await.map_err(HistoryError::of)
    }

    async fn latest_now(self, id: Option<String>, limit: usize) -> Result<Vec<Run>, HistoryError> {
        let Self { table, .. } = &self;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        if id.as_ref().is_some_and(|id| id.contains('\0')) {
            return Err(HistoryError::Id("text in PostgreSQL has no character zero"));
        }
        let connection = self.connection().await?;
        let rows = match &id {
            Some(id) => {
                let of_one =
                    format!("SELECT run FROM {table} WHERE id = $1 ORDER BY number DESC LIMIT $2");
                connection.query(&of_one, &[id, &limit]).await
            }
            None => {
                let all = format!("SELECT run FROM {table} ORDER BY number DESC LIMIT $1");
                connection.query(&all, &[&limit]).await
            }
        };
        let rows = rows.map_err(HistoryError::of)?;
        Ok(rows.iter().filter_map(|row| serde_json::from_str(row.get(0)).ok()).collect())
    }
}

impl History for PostgresHistory {
    fn add(&self, runs: Vec<Run>) -> Reply<()> {
        within(self.clone().add_now(runs))
    }

    fn latest(&self, id: Option<String>, limit: usize) -> Reply<Vec<Run>> {
        within(self.clone().latest_now(id, limit))
    }
}

/// Limits the time of an operation.
fn within<T: Send + 'static>(
    operation: impl Future<Output = Result<T, HistoryError>> + Send + 'static,
) -> Reply<T> {
    Box::pin(async move {
        let done = tokio::time::timeout(REPLY_TIMEOUT, operation).await;
        done.unwrap_or_else(|_| Err(HistoryError::of("the server does not reply")))
    })
}

/// Returns `true` if another transaction has created the same object since this transaction began.
fn exists_meanwhile(error: &Error) -> bool {
    let states =
        [SqlState::UNIQUE_VIOLATION, SqlState::DUPLICATE_TABLE, SqlState::DUPLICATE_OBJECT];
    error.code().is_some_and(|state| states.contains(state))
}
