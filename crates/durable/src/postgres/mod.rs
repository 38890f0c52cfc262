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
mod link;
mod listen;
mod lists;
mod load;
mod operation;
mod operations;
mod options;
mod rows;
mod schema;
mod server;
#[cfg(feature = "postgres-tls")]
mod tls;

use crate::error::DurableError;
use crate::model::bounds::LetterBounds;
use crate::model::check::{Checked, Cursor};
use crate::model::clock::Millis;
use crate::model::condition::Condition;
use crate::model::durability::Durability;
use crate::model::event::Event;
use crate::model::key::{Key, Page};
use crate::model::record::{Dead, Record};
use crate::model::stats::Counts;
use crate::store::window::Window;
use crate::store::{
    Answer, AnyStore, Cancelled, Due, Finish, Finished, Found, Insert, Inserted, Leasing, Letters,
    Renewed, Store,
};
pub use call::PostgresInsert;
pub use connector::Connector;
use operations::Operations;
pub use options::PostgresOptions;
use std::fmt;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinSet};

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
pub struct Postgres {
    operations: Arc<Operations>,
    runtime: Handle,
    listening: AbortHandle,
    bounds: LetterBounds,
}

impl Postgres {
    /// Runs an operation in the runtime, even if its caller has gone.
    fn ask<R, F>(&self, operation: impl FnOnce(Arc<Operations>) -> F + Send + 'static) -> Answer<R>
    where
        R: Send + 'static,
        F: Future<Output = Result<R, DurableError>> + Send + 'static,
    {
        let operation = operation(Arc::clone(&self.operations));
        let task = self.runtime.spawn(operation);
        Box::pin(async move { task.await.unwrap_or(Err(DurableError::Closed)) })
    }

    /// Runs an operation that ends when its future is dropped.
    fn ask_while_wanted<R, F>(
        &self,
        operation: impl FnOnce(Arc<Operations>) -> F + Send + 'static,
    ) -> Answer<R>
    where
        R: Send + 'static,
        F: Future<Output = Result<R, DurableError>> + Send + 'static,
    {
        let mut task = JoinSet::new();
        task.spawn_on(operation(Arc::clone(&self.operations)), &self.runtime);
        Box::pin(async move {
            let done = task.join_next().await;
            done.and_then(Result::ok).unwrap_or(Err(DurableError::Closed))
        })
    }
}

impl Store for Postgres {
    fn durability(&self) -> Answer<Durability> {
        self.ask(|operations| async move { server::durability(&operations.link).await })
    }

    fn now(&self) -> Answer<Millis> {
        self.ask(|operations| async move { operations.now().await })
    }

    fn insert(&self, timer: Insert) -> Answer<Inserted> {
        self.ask(move |operations| async move { operations.insert(timer).await })
    }

    fn cancel(&self, id: &str, only: Option<Condition>) -> Answer<Cancelled> {
        let id = id.to_owned();
        self.ask(move |operations| async move { operations.cancel(id, only).await })
    }

    fn reset(&self, id: &str, due: Due) -> Answer<bool> {
        let id = id.to_owned();
        self.ask(move |operations| async move { operations.reset(id, due).await })
    }

    fn pause_timer(&self, id: &str, pauses: bool) -> Answer<bool> {
        let id = id.to_owned();
        self.ask(move |operations| async move { operations.pause_timer(id, pauses).await })
    }

    fn pause(&self, pauses: bool) -> Answer<()> {
        self.ask(move |operations| async move { operations.pause(pauses).await })
    }

    fn is_paused(&self) -> Answer<bool> {
        self.ask(|operations| async move { operations.is_paused().await })
    }

    fn get(&self, id: &str) -> Answer<Option<Record>> {
        let id = id.to_owned();
        self.ask(move |operations| async move { operations.get(&id).await })
    }

    fn list(&self, after: Option<&str>, limit: usize) -> Answer<Vec<(String, Record)>> {
        let after = after.unwrap_or_default().to_owned();
        self.ask(move |operations| async move { operations.list(&after, limit).await })
    }

    fn find(&self, from: Key, until: Millis, limit: usize) -> Answer<Found> {
        self.ask(move |operations| async move { operations.find(&from, until, limit).await })
    }

    fn len(&self) -> Answer<(u64, u64)> {
        self.ask(|operations| async move { operations.len().await })
    }

    fn stats(&self, _from: Key) -> Answer<Counts> {
        self.ask(|operations| async move { operations.stats().await })
    }

    fn join(&self, window: &Arc<Window>) -> u64 {
        self.operations.join(window)
    }

    fn has_shared_keys(&self) -> bool {
        true
    }

    fn load(&self, worker: u64, from: Key, until: Millis, limit: usize) -> Answer<Page> {
        // A worker that has left must not send a heartbeat any more.
        self.ask_while_wanted(move |operations| async move {
            operations.load(worker, &from, until, limit).await
        })
    }

    fn leave(&self, worker: u64) -> Answer<()> {
        self.operations.ownership.leave(worker);
        self.ask(move |operations| async move { operations.leave(worker).await })
    }

    fn lease(&self, key: &Key) -> Answer<Leasing> {
        let id = key.1.to_string();
        self.ask_while_wanted(move |operations| async move { operations.lease(id, false).await })
    }

    fn take_over(&self, key: &Key) -> Answer<Leasing> {
        let id = key.1.to_string();
        self.ask_while_wanted(move |operations| async move { operations.lease(id, true).await })
    }

    fn renew(&self, id: &str, fence: u64) -> Answer<Renewed> {
        let id = id.to_owned();
        self.ask_while_wanted(move |operations| async move { operations.renew(id, fence).await })
    }

    fn finish(&self, id: &str, fence: u64, finish: Finish) -> Answer<Finished> {
        let id = id.to_owned();
        self.ask(move |operations| async move { operations.finish(id, fence, finish).await })
    }

    fn trouble(&self) -> Option<DurableError> {
        Some(self.operations.link.trouble())
    }

    fn take_events(&self, worker: u64) -> Vec<Event> {
        self.operations.ownership.take_events(worker)
    }

    fn dead(&self, letters: Letters, limit: usize) -> Answer<Vec<(u64, Dead)>> {
        self.ask(move |operations| async move { operations.dead(letters, limit).await })
    }

    fn letter_bounds(&self) -> LetterBounds {
        self.bounds
    }

    fn letter_ages(&self, after: Option<u64>, limit: usize) -> Answer<Vec<(u64, Millis)>> {
        self.ask(move |operations| async move { operations.letter_ages(after, limit).await })
    }

    fn redrive(&self, number: u64) -> Answer<bool> {
        self.ask(move |operations| async move { operations.redrive(number).await })
    }

    fn letter(&self, number: u64) -> Answer<Option<Dead>> {
        self.ask(move |operations| async move { operations.letter(number).await })
    }

    fn delete_dead_letter(&self, number: u64) -> Answer<bool> {
        self.ask(move |operations| async move { operations.delete_dead_letter(number).await })
    }

    fn discard(&self, id: &str) -> Answer<bool> {
        let id = id.to_owned();
        self.ask(move |operations| async move { operations.discard(id).await })
    }

    fn copy_timers(&self, timers: Vec<(String, Record)>) -> Answer<()> {
        self.ask(move |operations| async move { operations.copy_timers(&timers).await })
    }

    fn copy_letters(&self, letters: Vec<Dead>) -> Answer<()> {
        self.ask(move |operations| async move { operations.copy_letters(&letters).await })
    }

    fn check(&self, from: Cursor) -> Answer<Checked> {
        self.ask(move |operations| async move { operations.check(from).await })
    }

    fn repair(&self) -> Answer<()> {
        self.ask(|operations| async move { operations.repair().await })
    }
}

impl From<Postgres> for AnyStore {
    fn from(store: Postgres) -> Self {
        Self(Arc::new(store))
    }
}

/// Ends the background task. Pending operations are still executed.
impl Drop for Postgres {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("schema", &self.operations.schema).finish_non_exhaustive()
    }
}
