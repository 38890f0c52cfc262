//! Leases and the ends of attempts in a store in Redis.

#![forbid(unsafe_code)]

use super::bytes::Stored;
use super::operation::Operation;
use super::operations::{Operations, read};
use crate::error::DurableError;
use crate::model::clock::Millis;
use crate::model::key::Key;
use crate::model::record::DeadReason;
use crate::store::partitions::Partitioned;
use crate::store::remote::answers::{self, unexpected_reply};
use crate::store::remote::retry::RetryPolicy;
use crate::store::{Answer, Due, Finish, Finished, Lease, Leasing, Renewed};
use redis::Value;
use std::sync::Arc;

/// The reply to a request for a lease.
enum Leased {
    Readable(Leasing),
    /// The lease was granted but the record cannot be read, and will be restored.
    Damaged(Operation, DurableError),
    /// The index has a key without a record.
    Missing,
}

impl Operations {
    /// Requests a lease. With `takes_over`, a paused store still grants the lease of a timer whose
    /// last lease has expired.
    pub(super) fn lease(self: &Arc<Self>, key: &Key, takes_over: bool) -> Answer<Leasing> {
        let (due, id) = (key.0, key.1.to_string());
        if self.damaged.has(&id) {
            return Box::pin(std::future::ready(Ok(Leasing::NotFound)));
        }
        let operation = self.of_id("lease", &id).number(due);
        let operation = operation.text(if takes_over { b"1" } else { b"" }).skip_if_dropped();
        let name = id.clone();
        let retry = if takes_over { RetryPolicy::Caller } else { RetryPolicy::Worker };
        let leasing = self.change(retry, operation, move |operations, answer, now| {
            operations.leased(&name, read(answer)?, now)
        });
        let operations = Arc::clone(self);
        Box::pin(async move {
            let error = match leasing.await {
                Ok(Leased::Readable(leasing)) => return Ok(leasing),
                Ok(Leased::Missing) => {
                    operations.located_by_id(&id, DurableError::missing_timer(&id))
                }
                Err(DurableError::Corrupt { .. }) => {
                    operations.located_by_id(&id, DurableError::corrupt_timer(&id))
                }
                Err(error) => return Err(error),
                Ok(Leased::Damaged(restore, error)) => {
                    // Whatever else is wrong with the timer, it is not delivered.
                    let _ = operations.change(RetryPolicy::Worker, restore, |_, _, _| Ok(())).await;
                    error
                }
            };
            let new = operations.damaged.add(&id);
            Ok(if new { Leasing::Unreadable(error) } else { Leasing::NotFound })
        })
    }

    fn leased(
        &self,
        id: &str,
        mut answer: Vec<Value>,
        now: Millis,
    ) -> Result<Leased, DurableError> {
        let number = |place: usize| match answer.get(place) {
            Some(Value::Int(number)) => u64::try_from(*number).map_err(|_| unexpected_reply()),
            _ => Err(unexpected_reply()),
        };
        Ok(Leased::Readable(match number(0)? {
            0 => Leasing::NotFound,
            1 => Leasing::NotDue { due: number(1)?, now },
            2 => {
                let (fence, overrun) = (number(1)?, number(2)? == 1);
                let (due, was) = (number(3)?, number(4)?);
                let mut fields = answer.drain(5..).map(|field| match field {
                    Value::BulkString(bytes) => Ok(bytes),
                    _ => Err(unexpected_reply()),
                });
                let mut field = || fields.next().unwrap_or_else(|| Err(unexpected_reply()));
                let stored = Stored { record: field()?, payload: field()?, next: field()? };
                let record = match self.record(id, stored) {
                    Ok(record) => record,
                    Err(error) => {
                        let restore = self.of_id("restore", id).number(fence).number(due);
                        let restore = restore.number(was).number(u64::from(!overrun));
                        return Ok(Leased::Damaged(restore, error));
                    }
                };
                self.notify_if_near(id, record.due, now);
                Leasing::Taken(Box::new(Lease { fence, now, due, overrun, record }))
            }
            3 => return Ok(Leased::Missing),
            4 => Leasing::Paused,
            _ => return Err(unexpected_reply()),
        }))
    }

    /// A renewal whose attempt has ended is not sent any more.
    pub(super) fn renew(self: &Arc<Self>, id: &str, fence: u64) -> Answer<Renewed> {
        let operation = self.of_id("renew", id).number(fence).skip_if_dropped();
        self.change(RetryPolicy::Worker, operation, |_, answer, _| {
            let (answer, length) = read(answer)?;
            answers::renewed(answer, length)
        })
    }

    pub(super) fn finish(
        self: &Arc<Self>,
        id: String,
        fence: u64,
        finish: Finish,
    ) -> Answer<Finished> {
        let bounds = self.bounds;
        let trims = matches!(finish, Finish::Dead { .. }) && !bounds.is_unbounded();
        let name = if trims { "finish_bounded" } else { "finish" };
        let operation = self.of_id(name, &id).number(fence);
        let planned = |operation: Operation, next: Option<Millis>| match next {
            Some(next) => operation.due(Due::At(next)),
            None => operation.text(b""),
        };
        let operation = match finish {
            Finish::Done { next } => {
                planned(operation.text(b"done"), next).text(b"").number(0).number(0)
            }
            Finish::Retry { wait, error, counted } => {
                let how: &[u8] = if counted { b"retry" } else { b"again" };
                let operation = operation.text(how).due(Due::After(wait));
                operation.text(error.as_bytes()).number(0).number(0)
            }
            Finish::Dead { reason, error, next } => {
                // The repetition continues without this delivery, unless its rule was the reason.
                let clear = u64::from(reason != DeadReason::Rule);
                let operation = planned(operation.text(b"dead"), next).text(error.as_bytes());
                let operation = operation.number(reason.number().into()).number(clear);
                if trims { operation.number(bounds.most).number(bounds.age) } else { operation }
            }
        };
        self.change(RetryPolicy::Worker, operation, move |operations, answer, now| {
            let (answer, due) = read(answer)?;
            if due != 0 {
                operations.notify_if_near(&id, due, now);
            }
            answers::finished(answer)
        })
    }
}
