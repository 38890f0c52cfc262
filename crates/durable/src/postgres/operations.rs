//! [`Operations`], the operations of a store in PostgreSQL. Each transition is an operation of a
//! batch (`batch.rs`), each read a statement.

#![forbid(unsafe_code)]

use super::held::HeldIds;
use super::link::{Link, Param};
use super::operation::{Body, LOCKED, Operation, Reply};
use super::params::params;
use super::rows::{RECORD, Reader, named_record, signed, storable};
use super::schema::Schema;
use crate::error::DurableError;
use crate::model::bounds::LetterBounds;
use crate::model::clock::{Millis, StoreClock, present};
use crate::model::condition::Condition;
use crate::model::key::Change;
use crate::model::label::Label;
use crate::model::record::{DeadReason, Record};
use crate::store::ownership::Ownership;
use crate::store::remote::answers::{self, unexpected_reply};
use crate::store::remote::retry::RetryPolicy;
use crate::store::remote::sender::Engine;
use crate::store::{Cancelled, Due, Finish, Finished, Insert, Inserted, Lease, Leasing, Renewed};
use std::sync::Arc;
use tokio_postgres::Row;

/// How far ahead a change may be due for the workers of this process to be notified of it. It
/// equals the bound in `sql/batch.sql` for other processes.
const NOTIFY_AHEAD: Millis = 12_000;

pub(super) struct Operations {
    pub(super) link: Link,
    pub(super) schema: Schema,
    /// The statement that executes a batch.
    pub(super) batch: String,
    pub(super) clock: Option<Arc<dyn StoreClock>>,
    pub(super) bounds: LetterBounds,
    pub(super) ownership: Ownership,
    /// With the lanes of operations by their ids, and the lane [`HELD`](super::operation::HELD).
    pub(super) engine: Engine<Self>,
    pub(super) held: HeldIds,
    /// The number of this process among the users of the store.
    pub(super) process: i64,
    pub(super) listens: bool,
    pub(super) late: [super::floors::LateChecks; 3],
    pub(super) floors: super::floors::Floors,
    pub(super) beats: super::floors::Beats,
    /// Held while the log uses a connection.
    #[cfg(feature = "log")]
    pub(super) log: futures_util::lock::Mutex<()>,
}

impl Operations {
    /// Returns the time argument of the functions, which is `None` for the server's clock.
    pub(super) fn at(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| signed(present(clock.now())))
    }

    /// Returns the bounds of the dead letters as arguments, `None` if there are none.
    pub(super) fn bounds(&self) -> (Option<i64>, Option<i64>) {
        let bounded = |bound: u64| i64::try_from(bound).ok();
        (bounded(self.bounds.most), bounded(self.bounds.age))
    }

    /// Sends a read-only statement.
    pub(super) async fn read(
        &self,
        retry: RetryPolicy,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, DurableError> {
        self.link.query(retry, &self.schema.sql(sql), params).await
    }

    /// Adds the address of the server to an error.
    pub(super) fn located(&self, error: DurableError) -> DurableError {
        error.at(self.link.address())
    }

    /// Notifies the workers of this process of a key, if it may be in their window.
    pub(super) fn notify_if_near(&self, id: &str, part: u64, due: Millis, now: Millis) {
        if due <= now + NOTIFY_AHEAD {
            let change = Change { removed: None, added: Some((due, Arc::from(id))) };
            self.ownership.notify(part, change);
        }
    }

    /// Returns the time of the server's clock.
    pub(super) async fn now(&self) -> Result<Millis, DurableError> {
        if let Some(clock) = &self.clock {
            return Ok(present(clock.now()));
        }
        let rows = self.read(RetryPolicy::Caller, "SELECT tb.clock()", &[]).await?;
        Reader::first(&rows)?.number()
    }

    /// Executes an operation of a caller, and returns the number that the server answers.
    async fn answer(self: &Arc<Self>, operation: Operation) -> Result<i32, DurableError> {
        Ok(self.change(RetryPolicy::Caller, operation).await?.answer)
    }

    pub(super) async fn insert(self: &Arc<Self>, timer: Insert) -> Result<Inserted, DurableError> {
        let Insert { id, payload, due, existing, over, settings } = timer;
        let by_rule = matches!(due, Due::ByRule(_));
        let operation = Operation::new("insert", id).due(due);
        let body = Some(Body { settings, payload });
        let operation =
            Operation { how: Some(existing.word()), flag: Some(by_rule), body, ..operation };
        let operation = operation.only(over)?;
        answers::inserted(self.answer(operation).await?)
    }

    pub(super) async fn cancel(
        self: &Arc<Self>,
        id: String,
        only: Option<Condition>,
    ) -> Result<Cancelled, DurableError> {
        let operation = Operation::new("cancel", id).only(only)?;
        answers::cancelled(self.answer(operation).await?)
    }

    pub(super) async fn reset(
        self: &Arc<Self>,
        id: String,
        due: Due,
    ) -> Result<bool, DurableError> {
        answers::changed(self.answer(Operation::new("reset", id).due(due)).await?)
    }

    pub(super) async fn run_now(self: &Arc<Self>, id: String) -> Result<bool, DurableError> {
        answers::changed(self.answer(Operation::new("run", id)).await?)
    }

    pub(super) async fn pause_timer(
        self: &Arc<Self>,
        id: String,
        pauses: bool,
        label: Option<Label>,
    ) -> Result<bool, DurableError> {
        let operation = Operation { flag: Some(pauses), ..Operation::new("pause", id) };
        let operation = operation.only(label.map(Condition::Label))?;
        answers::changed(self.answer(operation).await?)
    }

    pub(super) async fn pause(&self, pauses: bool) -> Result<(), DurableError> {
        let sql = "SELECT FROM tb.pause_store($1)";
        self.read(RetryPolicy::Caller, sql, &params![pauses]).await?;
        self.ownership.request_checks();
        Ok(())
    }

    pub(super) async fn is_paused(&self) -> Result<bool, DurableError> {
        let rows = self.read(RetryPolicy::Caller, "SELECT paused FROM tb.store", &[]).await?;
        Reader::first(&rows)?.next()
    }

    pub(super) async fn get(&self, id: String) -> Result<Option<Record>, DurableError> {
        if id.contains('\0') {
            return Ok(None);
        }
        let sql = format!("SELECT id, {RECORD} FROM tb.records WHERE id = $1");
        let rows = self.read(RetryPolicy::Caller, &sql, &params![id]).await?;
        let record = rows.first().map(|row| named_record(row, self.link.address())).transpose()?;
        record.map(|(_, record)| record).transpose()
    }

    /// Requests a lease. With `takes_over`, a paused store still grants the lease of a timer whose
    /// last lease has expired.
    pub(super) async fn lease(
        self: &Arc<Self>,
        id: String,
        takes_over: bool,
    ) -> Result<Leasing, DurableError> {
        let retry = if takes_over { RetryPolicy::Caller } else { RetryPolicy::Worker };
        let operation = Operation { flag: Some(takes_over), ..Operation::new("lease", id.clone()) };
        let Reply { now, answer, due, fence, before, record, .. } =
            self.change_unless_locked(retry, operation).await?;
        let taken = |overrun| {
            // Without a record, it was a resend, and the lease has ended meanwhile.
            let Some(record) = record else { return Ok(Leasing::NotFound) };
            let (Some(fence), Some(due)) = (fence, before) else { return Err(unexpected_reply()) };
            Ok(match record {
                Ok(record) => Leasing::Taken(Box::new(Lease { fence, now, due, overrun, record })),
                Err(error) => Leasing::Unreadable(error),
            })
        };
        match answer {
            0 => Ok(Leasing::NotFound),
            1 => Ok(Leasing::NotDue { due: due.ok_or_else(unexpected_reply)?, now }),
            2 => taken(false),
            3 => taken(true),
            4 => Ok(Leasing::Paused),
            LOCKED => Ok(Leasing::Locked { now }),
            5 => Ok(Leasing::Unreadable(self.located(DurableError::missing_timer(&id)))),
            _ => Err(unexpected_reply()),
        }
    }

    pub(super) async fn renew(
        self: &Arc<Self>,
        id: String,
        fence: u64,
    ) -> Result<Renewed, DurableError> {
        let operation = Operation { fence: Some(fence), ..Operation::new("renew", id) };
        let reply = self.change(RetryPolicy::Worker, operation).await?;
        let length = reply.fence;
        answers::renewed(reply.answer, length)
    }

    pub(super) async fn finish(
        self: &Arc<Self>,
        id: String,
        fence: u64,
        finish: Finish,
    ) -> Result<Finished, DurableError> {
        let operation = Operation { fence: Some(fence), ..Operation::new("finish", id) };
        let operation = match finish {
            Finish::Done { next } => Operation { how: Some("done"), due: next, ..operation },
            Finish::Retry { wait, error, counted } => {
                let how = Some(if counted { "retry" } else { "again" });
                let note = Some(storable(&error).into_owned());
                Operation { how, wait: Some(wait), note, ..operation }
            }
            Finish::Dead { reason, error, next } => {
                // The repetition continues without this delivery, unless its rule was the reason.
                let clear = Some(reason != DeadReason::Rule);
                let (how, note) = (Some("dead"), Some(storable(&error).into_owned()));
                let reason = Some(reason.number().into());
                Operation { how, due: next, note, reason, flag: clear, ..operation }
            }
        };
        match self.change_unless_locked(RetryPolicy::Worker, operation).await?.answer {
            LOCKED => Ok(Finished::Locked),
            answer => answers::finished(answer),
        }
    }

    pub(super) async fn redrive(self: &Arc<Self>, number: u64) -> Result<bool, DurableError> {
        // The id tells the part of the timer, whose owner is notified.
        let Some(dead) = self.letter(number).await? else { return Ok(false) };
        let operation = Operation { fence: Some(number), ..Operation::new("redrive", dead.id) };
        answers::changed(self.answer(operation).await?)
    }

    pub(super) async fn delete_dead_letter(
        self: &Arc<Self>,
        number: u64,
    ) -> Result<bool, DurableError> {
        let operation =
            Operation { fence: Some(number), ..Operation::new("delete", String::new()) };
        answers::changed(self.answer(operation).await?)
    }

    pub(super) async fn discard(self: &Arc<Self>, id: String) -> Result<bool, DurableError> {
        let unreadable = match self.get(id.clone()).await {
            Ok(_) => false,
            Err(DurableError::Corrupt { id: Some(_), .. }) => true,
            Err(error) => return Err(error),
        };
        let operation = Operation { flag: Some(unreadable), ..Operation::new("discard", id) };
        answers::changed(self.answer(operation).await?)
    }
}
