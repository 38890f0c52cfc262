//! [`Postgres`], a store in PostgreSQL, built on `tokio-postgres`.
//!
//! ```text
//!  timers          wide rows, written once and deleted once, by id and by (due, id)
//!  states          a small row for each timer that is leased, failed, repeats or is paused
//!  leases          the ends of leases that were renewed or taken over
//!  nexts, letters  the deliveries that follow, the dead letters
//! ```
//!
//! **Each transition is an SQL function** (`sql/`) and atomic. Its time is the server's time when
//! it is executed, not when its transaction began. **A timer rests in the wide row as it was
//! inserted.** The parts that an attempt changes (lease, due time, attempts, error) are in the
//! small rows of `states` and `leases`, which take precedence. Renewals, retries and repetitions
//! therefore never rewrite a payload, and the dead rows that they leave while a long transaction
//! keeps vacuum from removing them are small and few. Pages of keys are the union of both tables
//! without the timers whose due time is in `states`.
//!
//! **Concurrent operations are sent together**, as a numbered batch that one function executes in
//! the order of ids, in one transaction (`batch.rs`). **Timers can be scheduled in the caller's own
//! transaction** by any client, because `insert` is an SQL function too (`sql/schedule.sql`). Such
//! a transaction may stay open for long. **No batch waits for it.** A timer that it has locked is
//! skipped and requested again later, and a lease is renewed in a row that no caller locks.
//!
//! **Each part of the keys has one owner** among the workers, by rendezvous hashing over the live
//! workers (`sql/load.sql`), and the lease of each timer decides which worker delivers it.
//! **Workers are notified of changes in their window** by `NOTIFY` (`listen.rs`), but do not depend
//! on it: each page also has the keys that have been overdue for a second. Such keys appear when a
//! caller's transaction took long to commit, and behind a transaction pooler, where no connection
//! can listen.
//!
//! Nothing depends on the state of a session. All locks end with their transaction, statements are
//! sent without names, and each operation is a single statement.

#![forbid(unsafe_code)]

mod batch;
mod call;
mod connect;
mod connector;
mod copying;
mod errors;
mod floors;
mod held;
mod labels;
mod link;
mod listen;
mod lists;
mod load;
#[cfg(feature = "log")]
mod log;
mod operation;
mod operations;
mod options;
mod params;
mod rows;
mod schema;
mod server;
#[cfg(feature = "postgres-tls")]
mod tls;

use crate::error::DurableError;
use crate::model::condition::Condition;
use crate::model::key::Key;
use crate::model::label::Label;
use crate::store::remote::store::{RemoteStore, asked, common};
use crate::store::{
    Answer, AnyStore, Cancelled, Due, Finish, Finished, Insert, Inserted, Leasing, Renewed, Store,
};
pub use call::PostgresInsert;
use operations::Operations;
pub use options::PostgresOptions;
use std::fmt;
use std::sync::Arc;

/// A store in PostgreSQL (13 or later), for any number of concurrent processes, in its own schema.
///
/// The connections and tasks of the store run in the tokio runtime where it was connected. The
/// futures of [`DurableTimers`](crate::DurableTimers) and its workers can be polled anywhere.
///
/// An acknowledged change is as durable as the server's configuration makes it
/// ([`durability`](crate::DurableTimers::durability)). With the defaults of PostgreSQL nothing is
/// lost, except by a failover to a standby that is not synchronous.
///
/// While the server cannot be reached, workers wait for it. Other calls are retried for five
/// seconds, or [as long as you choose](PostgresOptions::call_timeout), and then fail with
/// [`DurableError::Unreachable`].
///
/// Ids, headers and rules must not contain the character U+0000, which PostgreSQL cannot store.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon_durable::{DurableTimers, Options, Postgres};
/// use tourbillon::future::Timer;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Postgres::connect("postgres://shop@127.0.0.1/shop", "reminders").await?;
/// let timers = DurableTimers::new(store, &Timer::spawn(Builder::new().driver())?);
/// timers.insert("order 7", "unpaid", Duration::from_secs(86_400), Options::new()).await?;
/// # Ok(())
/// # }
/// ```
///
/// The same timer in the transaction that creates the order, so that neither exists without the
/// other. Any client can do this:
///
/// ```sql
/// BEGIN;
/// INSERT INTO orders (number) VALUES (7);
/// SELECT reminders.insert('order 7', 'unpaid', delay => '1 day');
/// COMMIT;
/// ```
pub struct Postgres(RemoteStore<Operations>);

impl Store for Postgres {
    common!();

    asked! {
        fn insert(timer: Insert) -> Inserted;
        fn cancel[id](only: Option<Condition>) -> Cancelled;
        fn reset[id](due: Due) -> bool;
        fn run_now[id]() -> bool;
        fn pause_timer[id](pauses: bool, label: Option<Label>) -> bool;
        fn finish[id](fence: u64, finish: Finish) -> Finished;
        fn delete_dead_letter(number: u64) -> bool;
    }

    fn has_shared_keys(&self) -> bool {
        true
    }

    fn lease(&self, key: &Key) -> Answer<Leasing> {
        let id = key.1.to_string();
        self.0.ask_while_wanted(move |operations| async move { operations.lease(id, false).await })
    }

    fn take_over(&self, key: &Key) -> Answer<Leasing> {
        let id = key.1.to_string();
        self.0.ask_while_wanted(move |operations| async move { operations.lease(id, true).await })
    }

    fn renew(&self, id: &str, fence: u64) -> Answer<Renewed> {
        let id = id.to_owned();
        self.0.ask_while_wanted(move |operations| async move { operations.renew(id, fence).await })
    }

    fn trouble(&self) -> Option<DurableError> {
        Some(self.0.operations.link.trouble())
    }
}

impl From<Postgres> for AnyStore {
    fn from(store: Postgres) -> Self {
        Self(Arc::new(store))
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("schema", &self.0.operations.schema)
            .finish_non_exhaustive()
    }
}
