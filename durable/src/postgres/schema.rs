//! [`Schema`], the tables and functions of a store.
//!
//! The files of `sql/` are written for a schema `tb`, whose name is replaced by that of the store.
//! Every name in them is qualified, so that they mean the same whatever the search path is.

#![forbid(unsafe_code)]

use super::super::error::DurableError;
use super::fault::Fault;
use super::link::{Link, Param, Retry};
use std::sync::Arc;
use tokio_postgres::Error;
use tokio_postgres::types::Type;

/// The version of the tables. A store with another one is not used.
const LAYOUT: i32 = 1;

/// The version of the functions. Those of a greater one work for this version, too.
const REVISION: i32 = 2;

const TABLES: &str = include_str!("sql/tables.sql");

const FUNCTIONS: &str = concat!(
    include_str!("sql/common.sql"),
    include_str!("sql/insert.sql"),
    include_str!("sql/change.sql"),
    include_str!("sql/letters.sql"),
    include_str!("sql/lease.sql"),
    include_str!("sql/copy.sql"),
    include_str!("sql/load.sql"),
    include_str!("sql/count.sql"),
    include_str!("sql/batch.sql"),
    include_str!("sql/schedule.sql"),
);

/// The transaction in which one process at a time creates a store.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED;
    SELECT pg_advisory_xact_lock(hashtextextended('tb.', 3))";

/// Tells if a schema has a store. Reads the rows of the catalogue, because `to_regclass` may not
/// yet know of a table that was created after the transaction began.
const EXISTS: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_class AS class
    JOIN pg_catalog.pg_namespace AS space ON space.oid = class.relnamespace
    WHERE space.nspname = $1 AND class.relname = 'store')";

/// Tells if a schema exists. `CREATE SCHEMA IF NOT EXISTS` needs a permission even then.
const HAS_SCHEMA: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1)";

/// The name of a store in SQL.
#[derive(Clone, Debug)]
pub(super) struct Schema {
    name: Arc<str>,
}

impl Schema {
    /// Creates the schema of a store whose name was checked.
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.into() }
    }

    /// Returns a statement in which `tb` is the name of this schema.
    pub(super) fn sql(&self, statement: &str) -> String {
        // The name may contain what is replaced, so that of the channel comes last.
        let marked = statement.replace("tb_channel", "\0");
        let named = marked.replace("tb.", &format!("\"{}\".", self.name));
        named.replace('\0', &self.channel())
    }

    /// Returns the channel of the notices.
    pub(super) fn channel(&self) -> String {
        format!("tourbillon {}", self.name)
    }

    /// Opens the store, and creates or renews what is missing of it.
    pub(super) async fn open(&self, link: &Link) -> Result<(), DurableError> {
        match self.versions(link).await? {
            Some((LAYOUT, REVISION..)) => Ok(()),
            Some((LAYOUT, _)) => self.create(link, false).await,
            Some((found, _)) => Err(format(found)),
            None => {
                self.create(link, true).await?;
                match self.versions(link).await? {
                    Some((LAYOUT, _)) => Ok(()),
                    found => Err(format(found.map_or(0, |found| found.0))),
                }
            }
        }
    }

    /// Returns the versions of the tables and of the functions, or `None` if there is no store.
    async fn versions(&self, link: &Link) -> Result<Option<(i32, i32)>, DurableError> {
        let exists = link.query(Retry::Caller, EXISTS, &[(&&*self.name, Type::TEXT)]).await?;
        if !exists.iter().any(|row| row.get(0)) {
            return Ok(None);
        }
        let sql = self.sql("SELECT layout, revision FROM tb.store");
        let rows = link.query(Retry::Caller, &sql, &[]).await?;
        Ok(rows.first().map(|row| (row.get(0), row.get(1))))
    }

    /// Creates the store or its functions, in one transaction. Another process may do the same at
    /// the same time, and its tables are kept.
    async fn create(&self, link: &Link, tables: bool) -> Result<(), DurableError> {
        let connection = link.connection().await.map_err(Fault::into_error)?;
        let created = async {
            connection.batch_execute(&self.sql(BEGIN)).await?;
            // Only now, because another process may have created it while this one waited.
            let named: [Param<'_>; 1] = [(&&*self.name, Type::TEXT)];
            let exists = async |sql| {
                let row = connection.query_typed_one(sql, &named).await?;
                Ok::<bool, Error>(row.get(0))
            };
            if tables && !exists(EXISTS).await? {
                if !exists(HAS_SCHEMA).await? {
                    let schema = format!("CREATE SCHEMA \"{}\"", self.name);
                    connection.batch_execute(&schema).await?;
                }
                let first = format!("INSERT INTO tb.store VALUES (true, {LAYOUT}, 0, false)");
                connection.batch_execute(&self.sql(&format!("{TABLES}\n{first}"))).await?;
            }
            let renewed = format!("UPDATE tb.store SET revision = {REVISION}; COMMIT");
            let all = format!("{FUNCTIONS}\n{renewed}");
            connection.batch_execute(&self.sql(&all)).await
        };
        let vacuumed = async {
            // Outside of a transaction.
            let vacuum = self.sql("VACUUM tb.states, tb.batches, tb.workers");
            connection.batch_execute(&vacuum).await
        };
        match async {
            created.await?;
            if tables { vacuumed.await } else { Ok(()) }
        }
        .await
        {
            Ok(()) => Ok(()),
            Err(error) => Err(link.failed(connection, &error)),
        }
    }
}

fn format(found: i32) -> DurableError {
    DurableError::Format { found: found.unsigned_abs().into(), known: LAYOUT.unsigned_abs().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_have_the_name_of_the_schema() {
        let schema = Schema::new("re.minders");
        assert_eq!(
            schema.sql("SELECT 'tb.numbers', tb.part(id)"),
            "SELECT '\"re.minders\".numbers', \"re.minders\".part(id)"
        );
        assert_eq!(schema.sql("'tb_channel'"), "'tourbillon re.minders'");
        let schema = Schema::new("tb.tb_channel");
        assert_eq!(
            schema.sql("'tb_channel' tb.id"),
            "'tourbillon tb.tb_channel' \"tb.tb_channel\".id"
        );
    }
}
