//! [`Schema`], the tables and functions of a store.
//!
//! The files of `sql/` are written for a schema `tb`, whose name is replaced by the name of the
//! store. Every name in them is qualified, so that they mean the same whatever the search path is.
//!
//! **Nothing in a schema is used before its owners are known** (`sql/owners.sql`), because a table
//! or a function of another role could execute code with the rights of this role. **The versions
//! are read again under a lock before anything is written** (`sql/migrate.sql`), so that an older
//! process never replaces newer functions.

#![forbid(unsafe_code)]

use super::link::Link;
use super::options::PostgresOptions;
use crate::error::DurableError;
use crate::store::remote::retry::RetryPolicy;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// The version of the tables. A store with another version is not used.
const LAYOUT: i32 = 1;

/// The version of the functions. Functions of a greater version work for this version, too.
const REVISION: i32 = 9;

/// The maximum number of attempts to open a store that other processes are creating.
const ATTEMPTS: u32 = 10;

/// The maximum number of attempts to upgrade a store while transactions of other clients hold its
/// tables, and how long to wait between two of them. Each attempt waits for 0.2 s.
const LOCK_ATTEMPTS: u32 = 60;
const LOCK_PAUSE: Duration = Duration::from_millis(500);

/// The error of `sql/migrate.sql` for an object that a foreign role owns.
const FOREIGN: &str = "TB001";

/// The error of `sql/migrate.sql` for tables of another version.
const OTHER_LAYOUT: &str = "TB002";

const TABLES: &str = include_str!("sql/tables.sql");

const FUNCTIONS: &str = concat!(
    include_str!("sql/records.sql"),
    include_str!("sql/common.sql"),
    include_str!("sql/labels.sql"),
    include_str!("sql/insert.sql"),
    include_str!("sql/change.sql"),
    include_str!("sql/letters.sql"),
    include_str!("sql/lease.sql"),
    include_str!("sql/copy.sql"),
    include_str!("sql/load.sql"),
    include_str!("sql/count.sql"),
    include_str!("sql/batch.sql"),
    include_str!("sql/schedule.sql"),
    include_str!("sql/log.sql"),
);

const OWNERS: &str = include_str!("sql/owners.sql");

const MIGRATE: &str = include_str!("sql/migrate.sql");

/// Makes the reserved space of new tables available. Runs outside of a transaction.
const VACUUM: &str = "VACUUM tb.states, tb.leases, tb.batches, tb.workers;";

/// Checks whether a schema has a store. Reads the rows of the catalogue, because `to_regclass` may
/// not yet know of a table that was created after the transaction began.
const EXISTS: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_class AS class
    JOIN pg_catalog.pg_namespace AS space ON space.oid = class.relnamespace
    WHERE space.nspname = 'tb_schema'::name AND class.relname = 'store'::name)";

/// Selects the functions with the rights of their owner that any role may execute, because no
/// privileges were ever set.
const EXPOSED: &str = "SELECT pg_proc.oid FROM pg_catalog.pg_proc
    JOIN pg_catalog.pg_namespace AS space ON space.oid = pronamespace
    WHERE nspname = 'tb_schema'::name AND prosecdef AND proacl IS NULL";

/// The name of a store in SQL, and the role that may own it.
#[derive(Clone, Debug)]
pub(super) struct Schema {
    name: Arc<str>,
    owner: Option<Arc<str>>,
}

/// The versions of a store.
struct Versions {
    layout: i32,
    revision: i32,
    /// Set if any role may execute the functions that have the rights of their owner.
    is_exposed: bool,
}

impl Schema {
    /// Creates the schema of a store whose name was checked.
    pub(super) fn new(options: &PostgresOptions) -> Self {
        Self { name: (&*options.name).into(), owner: options.owner.as_deref().map(Arc::from) }
    }

    /// Returns a statement with the name of this schema in place of `tb`.
    pub(super) fn sql(&self, statement: &str) -> String {
        // The name may itself contain a placeholder, so these two are substituted last.
        let marked = statement.replace("tb_channel", "\0").replace("tb_schema", "\u{1}");
        let named = marked.replace("tb.", &format!("\"{}\".", self.name));
        named.replace('\0', &self.channel()).replace('\u{1}', &self.name)
    }

    /// Returns the channel of the notices.
    pub(super) fn channel(&self) -> String {
        format!("tourbillon {}", self.name)
    }

    /// Returns the statements that create or upgrade the store.
    pub(super) fn migration(&self) -> String {
        let migrate = MIGRATE
            .replace("tb_layout", &LAYOUT.to_string())
            .replace("tb_revision", &REVISION.to_string())
            .replace("tb_exposed", EXPOSED)
            .replace("tb_owners", &self.owners())
            .replace("tb_tables", TABLES)
            .replace("tb_functions", FUNCTIONS);
        self.sql(&migrate)
    }

    /// Returns the statement that makes the reserved space of new tables available.
    pub(super) fn vacuum(&self) -> String {
        self.sql(VACUUM)
    }

    /// Opens the store, and creates or upgrades it if necessary.
    pub(super) async fn open(&self, link: &Link) -> Result<(), DurableError> {
        let (mut attempts, mut lock_attempts) = (1, 1);
        loop {
            self.check_owners(link).await?;
            let found = self.versions(link).await?;
            match &found {
                Some(Versions { layout: LAYOUT, revision: REVISION.., is_exposed: false }) => {
                    return Ok(());
                }
                Some(Versions { layout: LAYOUT, .. }) | None => {}
                Some(Versions { layout, .. }) => return Err(format(*layout)),
            }
            let connection = link.connection().await.map_err(|failed| failed.error)?;
            let migrated = async {
                connection.batch_execute(&self.migration()).await?;
                if found.is_none() {
                    connection.batch_execute(&self.vacuum()).await?;
                }
                Ok::<(), Error>(())
            };
            let Err(error) = migrated.await else { continue };
            let state = error.code().cloned();
            let failed = link.failed(connection, &error);
            match state {
                Some(state) if is_overtaken(&state) && attempts < ATTEMPTS => attempts += 1,
                Some(SqlState::LOCK_NOT_AVAILABLE) if lock_attempts < LOCK_ATTEMPTS => {
                    lock_attempts += 1;
                    sleep(LOCK_PAUSE).await;
                }
                Some(SqlState::INSUFFICIENT_PRIVILEGE) => {
                    return Err(self.denied(link, found, failed).await?);
                }
                _ => return Err(failed),
            }
        }
    }

    /// Refuses a schema where a foreign role has objects or could add objects.
    async fn check_owners(&self, link: &Link) -> Result<(), DurableError> {
        let rows = link.query(RetryPolicy::Caller, &self.sql(&self.owners()), &[]).await?;
        let Some(row) = rows.first() else { return Ok(()) };
        Err(DurableError::ForeignOwner { object: row.get(0), owner: row.get(1) })
    }

    fn owners(&self) -> String {
        let owner = match &self.owner {
            None => "NULL".to_owned(),
            Some(owner) => format!("E'{}'", owner.replace('\\', "\\\\").replace('\'', "''")),
        };
        OWNERS.replace("tb_owner", &owner)
    }

    /// Returns the versions of the store, or `None` if there is no store.
    async fn versions(&self, link: &Link) -> Result<Option<Versions>, DurableError> {
        let exists = link.query(RetryPolicy::Caller, &self.sql(EXISTS), &[]).await?;
        if !exists.iter().any(|row| row.get(0)) {
            return Ok(None);
        }
        let sql = format!("SELECT layout, revision, EXISTS ({EXPOSED}) FROM tb.store");
        let rows = link.query(RetryPolicy::Caller, &self.sql(&sql), &[]).await?;
        Ok(rows.first().map(|row| Versions {
            layout: row.get(0),
            revision: row.get(1),
            is_exposed: row.get(2),
        }))
    }

    /// Returns the error for a role that may not create or upgrade the store.
    async fn denied(
        &self,
        link: &Link,
        found: Option<Versions>,
        error: DurableError,
    ) -> Result<DurableError, DurableError> {
        let Some(Versions { revision, .. }) = found else {
            let DurableError::Denied(what) = error else { return Ok(error) };
            let what = format!(
                "{what} (the store {:?} does not exist; a role that may create its schema has to \
                 open it once, or to run `timers migrate`)",
                self.name
            );
            return Ok(DurableError::Denied(what));
        };
        let sql = "SELECT pg_catalog.pg_get_userbyid(relowner)::text FROM pg_catalog.pg_class
            WHERE oid = 'tb.store'::regclass::oid";
        let rows = link.query(RetryPolicy::Caller, &self.sql(sql), &[]).await?;
        let owner = rows.first().map_or_else(String::new, |row| row.get(0));
        let (found, known) = (revision.unsigned_abs().into(), REVISION.unsigned_abs().into());
        Ok(DurableError::Outdated { found, known, owner })
    }
}

/// Returns `true` if another process has created or changed an object that this process was about
/// to create.
fn is_overtaken(state: &SqlState) -> bool {
    let overtaken = [
        SqlState::UNIQUE_VIOLATION,
        SqlState::DUPLICATE_SCHEMA,
        SqlState::DUPLICATE_TABLE,
        SqlState::DUPLICATE_OBJECT,
        SqlState::UNDEFINED_TABLE,
    ];
    overtaken.contains(state) || matches!(state.code(), FOREIGN | OTHER_LAYOUT)
}

fn format(found: i32) -> DurableError {
    DurableError::Format { found: found.unsigned_abs().into(), known: LAYOUT.unsigned_abs().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_have_the_name_of_the_schema() {
        let named = |name| Schema::new(&PostgresOptions::new(name));
        let schema = named("re.minders");
        assert_eq!(
            schema.sql("SELECT 'tb.numbers', tb.part(id)"),
            "SELECT '\"re.minders\".numbers', \"re.minders\".part(id)"
        );
        assert_eq!(schema.sql("'tb_channel' tb_schema"), "'tourbillon re.minders' re.minders");
        let schema = named("tb.tb_channel");
        assert_eq!(
            schema.sql("'tb_channel' tb.id"),
            "'tourbillon tb.tb_channel' \"tb.tb_channel\".id"
        );
    }
}
