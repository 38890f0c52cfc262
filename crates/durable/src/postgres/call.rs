//! [`PostgresInsert`], the call that inserts a timer in a transaction of the caller.

#![forbid(unsafe_code)]

use super::options::PostgresOptions;
use super::rows::{SettingColumns, duration, has_zero, signed, texts};
use super::schema::Schema;
use crate::error::DurableError;
use crate::model::clock::{StoreClock, SystemClock, due, millis_up, present};
use crate::model::options::{Options, When};
use serde_json::json;
use tokio_postgres::types::ToSql;

/// A call of the SQL function that inserts a timer, for a transaction of the caller, by any client.
///
/// Execute [`sql`](Self::sql) with the parameters [`id`](Self::id) (`text`),
/// [`payload`](Self::payload) (`bytea`) and [`options`](Self::options) (`text`), in this order.
/// [`params`](Self::params) returns them for tokio-postgres. The only column of the only row is
/// `new`, `kept`, `replaced`, `next` or `updated`. A refused id is an error of the server
/// (`unique_violation`).
///
/// For the call, a role needs `USAGE` on the schema and `EXECUTE` on the function `insert_with`,
/// but no permission for the tables. After a timer that is due within twelve seconds, `PREPARE
/// TRANSACTION` fails if a worker listens, unless the call is [without a
/// notice](Self::without_notice).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::{Options, PostgresInsert, PostgresOptions};
///
/// let store = PostgresOptions::new("reminders");
/// let day = Duration::from_secs(86_400);
/// let call = PostgresInsert::new(&store, "order 7", "unpaid", day, Options::new())?;
/// assert_eq!(call.sql(), r#"SELECT "reminders".insert_with($1, $2, $3)"#);
/// # Ok::<(), tourbillon_durable::DurableError>(())
/// ```
///
/// An order and its reminder, which exist together or not at all, with tokio-postgres:
///
/// ```
/// use std::time::Duration;
/// use tokio_postgres::Client;
/// use tourbillon_durable::{Options, PostgresInsert, PostgresOptions};
///
/// async fn order(client: &mut Client, number: i64) -> Result<(), Box<dyn std::error::Error>> {
///     let store = PostgresOptions::new("reminders");
///     let (id, day) = (format!("order {number}"), Duration::from_secs(86_400));
///     let call = PostgresInsert::new(&store, &id, "unpaid", day, Options::new())?;
///
///     let transaction = client.transaction().await?;
///     transaction.execute("INSERT INTO orders (number) VALUES ($1)", &[&number]).await?;
///     transaction.query_one(call.sql(), &call.params()).await?;
///     transaction.commit().await?;
///     Ok(())
/// }
/// # drop(order);
/// ```
///
/// With sqlx 0.9 the call is:
///
/// ```ignore
/// let insert = sqlx::query(AssertSqlSafe(call.sql()));
/// let insert = insert.bind(call.id()).bind(call.payload()).bind(call.options());
/// insert.execute(&mut *transaction).await?;
/// ```
#[derive(Clone, Debug)]
pub struct PostgresInsert {
    sql: String,
    id: String,
    payload: Vec<u8>,
    options: serde_json::Value,
    text: String,
}

impl PostgresInsert {
    /// Creates the call for a timer of a store. The first time of a rule is computed by the clock
    /// of this process.
    ///
    /// # Errors
    ///
    /// Fails if the name of the store or an option is out of range, or there is no first time. The
    /// server checks the lengths of the id and of the payload.
    pub fn new(
        store: &PostgresOptions,
        id: &str,
        payload: impl Into<Vec<u8>>,
        when: impl Into<When>,
        options: Options,
    ) -> Result<Self, DurableError> {
        store.check()?;
        let now = present(SystemClock.now());
        options.check(now)?;
        let Options { existing, over, settings } = options;
        if over.is_some() {
            return Err(DurableError::Option(
                "a call in a transaction cannot be `only_over` a timer",
            ));
        }
        if has_zero(&settings) || id.contains('\0') {
            return Err(DurableError::Option("PostgreSQL cannot store the character U+0000"));
        }
        let when = when.into();
        let (time, wait) = match when {
            When::At(at) => (due(at), None),
            When::After(delay) => (0, Some(signed(millis_up(delay).min(1 << 60)))),
            When::ByRule => match settings.next(now, now)? {
                Some(first) => (first, None),
                None => return Err(DurableError::Rule("`When::ByRule` needs a rule".to_owned())),
            },
        };
        let split = SettingColumns::of(&settings);
        let options = json!({
            "due": signed(time),
            "wait": wait,
            "by_rule": matches!(when, When::ByRule),
            "existing": existing.word(),
            "first": duration(settings.backoff.first),
            "most": duration(settings.backoff.most),
            "jitter": settings.backoff.jitter,
            "attempts": settings.attempts,
            "lease": split.lease,
            "lives": settings.time_to_live.map(duration),
            "every": split.every,
            "cron": split.cron,
            "zone": split.zone,
            "misfire": settings.window.map(duration),
            "headers": (!settings.headers.is_empty()).then_some(&settings.headers),
            "labels": (!settings.labels.is_empty()).then(|| texts(&settings.labels)),
            "notify": true,
        });
        let sql = Schema::new(store).sql("SELECT tb.insert_with($1, $2, $3)");
        let text = options.to_string();
        Ok(Self { sql, id: id.to_owned(), payload: payload.into(), options, text })
    }

    /// Notifies no worker when the transaction is committed, so that a timer that is due within
    /// twelve seconds may be late by two seconds. PostgreSQL executes commits with notices one
    /// after another, each until it is on the disk. This costs a transaction nothing unless other
    /// transactions commit at the same time.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::{Options, PostgresInsert, PostgresOptions};
    ///
    /// let (store, delay) = (PostgresOptions::new("reminders"), Duration::from_secs(5));
    /// let call = PostgresInsert::new(&store, "order 7", "unpaid", delay, Options::new())?;
    /// let call = call.without_notice();
    /// # let _ = call;
    /// # Ok::<(), tourbillon_durable::DurableError>(())
    /// ```
    #[must_use]
    pub fn without_notice(mut self) -> Self {
        self.options["notify"] = false.into();
        self.text = self.options.to_string();
        self
    }

    /// Returns the statement, with three parameters.
    #[must_use]
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// Returns the three parameters for a client of the crate tokio-postgres.
    #[must_use]
    pub fn params(&self) -> [&(dyn ToSql + Sync); 3] {
        [&self.id, &self.payload, &self.text]
    }

    /// Returns the first parameter.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the second parameter.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Returns the third parameter, in JSON.
    #[must_use]
    pub fn options(&self) -> &str {
        &self.text
    }
}
