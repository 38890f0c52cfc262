//! Groups: the operations that change something, of a partition, asked for together.
//!
//! ```text
//!   insert   ─┐   waiting            on its way
//!   cancel   ─┼─► ┌──┬──┬──┬──┐      ┌──┬──┬──┬──┐ number 7   one call of
//!   lease    ─┤   │  │  │  │  │ ───► │  │  │  │  │ ─────────► scripts/group.lua
//!   finish   ─┘   └──┴──┴──┴──┘      └──┴──┴──┴──┘
//! ```
//!
//! **One group of a partition is on its way at a time**; while it is, the next gathers. So an
//! operation that comes alone goes at once, and among many the costs of a call are shared by up to
//! [`GROUP`] of them. Each operation is whole or not at all for itself, and has its own answer or
//! error.
//!
//! **Asked again, done once.** A group has a number, one greater than the last of this process and
//! partition, and goes again under that number, the same operations at the same places, until there
//! is an answer. The script keeps the answer to the last group of each process, gives it to that
//! number again, and refuses a lower one. Where nothing was changed it keeps none; unless a copy
//! of the group, or of one that was given up, may still be on its way: that must find that it comes
//! too late, whatever others have changed meanwhile. An operation that surely was not done, as its
//! key was moving, leaves the group and waits again, behind all others.
//!
//! **Who does not wait any more** has had its answer: that there is none. Its operation stays away
//! when the group goes again. A future that was dropped changes nothing: the operation is done.

#![forbid(unsafe_code)]

use super::super::clock::Millis;
use super::super::error::DurableError;
use super::super::store::Answer;
use super::fault::Fault;
use super::lines::{Call, End, Operation};
use super::link::{self, CALLER, Patience};
use super::node::{PAUSES, Way};
use super::operations::{Operations, strange};
use futures_channel::oneshot;
use redis::{Cmd, RedisError, Value};
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;
use tourbillon::{Clock, MonotonicClock};

/// How many operations go together at most.
const GROUP: usize = 128;

/// How many bytes of them, unless one alone has more.
const BYTES: usize = 1 << 18;

impl Operations {
    /// Has an operation done with the next group, also if nobody waits for it any more, unless it
    /// says otherwise. `read` makes the answer of what the script said.
    pub(super) fn change<R: Send + 'static>(
        self: &Arc<Self>,
        patience: Patience,
        operation: Operation,
        read: impl FnOnce(&Self, Value, Millis) -> Result<R, DurableError> + Send + 'static,
    ) -> Answer<R> {
        if let Err(error) = self.identity.stands() {
            return Box::pin(std::future::ready(Err(error)));
        }
        let (reply, answer) = oneshot::channel();
        let end: End<Self> = Box::new(move |operations, answered| {
            let answer = answered.and_then(|(value, now)| read(operations, value, now));
            // Who does not wait any more need not know.
            drop(reply.send(answer));
        });
        let deadline = patience.limit().map(|limit| MonotonicClock.now() + limit);
        let partition = operation.partition;
        let waits = operation.only_if_wanted.then(|| Arc::new(()));
        let wanted = waits.as_ref().map(Arc::downgrade);
        let mut line = self.groups.line(partition);
        line.calls.push_back(Call { operation, deadline, wanted, end });
        let begin = !std::mem::replace(&mut line.busy, true);
        drop(line);
        if begin {
            let operations = Arc::clone(self);
            let driver = Driver { operations, partition, why: String::new(), ended: false };
            self.groups.runtime.spawn(driver.run());
        }
        Box::pin(async move {
            let answer = answer.await.unwrap_or(Err(DurableError::Closed));
            drop(waits);
            answer
        })
    }
}

/// Operations that go together; an empty place is of one that nobody waits for any more.
struct Group {
    number: u64,
    calls: Vec<Option<Call<Operations>>>,
}

impl Group {
    fn rest(&self) -> impl Iterator<Item = &Call<Operations>> {
        self.calls.iter().flatten()
    }
}

/// Asks for the groups of a partition, one after another, until nothing waits.
struct Driver {
    operations: Arc<Operations>,
    partition: u64,
    /// Why there was no answer the last time.
    why: String,
    ended: bool,
}

impl Driver {
    async fn run(mut self) {
        while let Some(group) = self.next() {
            self.ask(group).await;
        }
    }

    fn next(&mut self) -> Option<Group> {
        let mut line = self.operations.groups.line(self.partition);
        let (mut calls, mut bytes) = (Vec::new(), 0);
        while let Some(call) = line.calls.front() {
            if call.is_for_nobody() {
                line.calls.pop_front();
                continue;
            }
            bytes += call.operation.words.len();
            if calls.len() == GROUP || (bytes > BYTES && !calls.is_empty()) {
                break;
            }
            calls.push(line.calls.pop_front());
        }
        if calls.is_empty() {
            (line.busy, self.ended) = (false, true);
            return None;
        }
        line.groups += 1;
        Some(Group { number: line.groups, calls })
    }

    /// Asks for a group until there is an answer, or nobody waits for it any more.
    async fn ask(&mut self, mut group: Group) {
        let mut pause = PAUSES[0];
        loop {
            let way = self.operations.link.way(&self.operations.keys.prefix(self.partition));
            let asked = {
                let (way, operations) = (way.clone(), Arc::clone(&self.operations));
                let command = self.command(&group);
                async move { way.evaluate(&operations.scripts.group, command).await }
            };
            let answer = self.wait_for(&mut group, asked).await;
            // A command that was sent after it had become unsure has settled it.
            self.operations.groups.line(self.partition).unsure = !matches!(answer, Some(Ok(_)));
            let Some(answer) = answer else { return };
            let error = match answer {
                Ok(answer) => {
                    if !self.answer(group, answer, &way) {
                        tokio::time::sleep(PAUSES[0]).await;
                    }
                    return;
                }
                Err(error) => error,
            };
            match self.operations.link.fault(&way, &error) {
                Fault::Final(error) => return self.refuse(group, &error),
                Fault::Refused(error) => {
                    // Callers are told so, and workers wait.
                    group = self.refuse_callers(group, &error);
                    if group.rest().next().is_none() {
                        // Those who have come meanwhile are to be told as well, or let through.
                        return;
                    }
                    self.why = error.to_string();
                }
                Fault::Undone(why) | Fault::Unknown(why) => self.why = why,
            }
            let paused = tokio::time::sleep(pause);
            if self.wait_for(&mut group, paused).await.is_none() {
                return;
            }
            pause = (pause * 2).min(PAUSES[1]);
        }
    }

    fn command(&self, group: &Group) -> Cmd {
        let Operations { keys, groups, scripts, .. } = &*self.operations;
        let mut command = link::call(&scripts.group, &keys.common(self.partition));
        command.arg(keys.prefix(self.partition)).arg(self.operations.word_of_time());
        command.arg(&groups.process[..]).arg(group.number).arg(keys.channel());
        let unsure = groups.line(self.partition).unsure;
        command.arg(if unsure { "settle" } else { "" });
        let nothing = Operation::new(self.partition, "nothing");
        for call in &group.calls {
            let operation = call.as_ref().map_or(&nothing, |call| &call.operation);
            command.arg(&operation.words);
        }
        command
    }

    /// Waits for something, and meanwhile tells those whose time runs out. `None`: nobody of the
    /// group waits any more.
    async fn wait_for<T>(
        &self,
        group: &mut Group,
        something: impl Future<Output = T>,
    ) -> Option<T> {
        let mut something = pin!(something);
        loop {
            let deadline = tokio::time::Instant::from_std(self.deadline(group));
            if let Ok(done) = tokio::time::timeout_at(deadline, &mut something).await {
                return Some(done);
            }
            self.tell_late(group);
            group.rest().next()?;
        }
    }

    /// When the first time runs out, of this group and of those that wait for the next.
    fn deadline(&self, group: &Group) -> Instant {
        let line = self.operations.groups.line(self.partition);
        let first = group.rest().chain(&line.calls).filter_map(|call| call.deadline).min();
        first.unwrap_or_else(|| MonotonicClock.now() + CALLER)
    }

    fn tell_late(&self, group: &mut Group) {
        let now = MonotonicClock.now();
        let mut line = self.operations.groups.line(self.partition);
        let calls = std::mem::take(&mut line.calls);
        let (late, waiting): (Vec<Call<_>>, Vec<Call<_>>) =
            calls.into_iter().partition(|call| call.ran_out(now));
        line.calls = waiting.into();
        drop(line);
        let here = group.calls.iter_mut().filter_map(|call| call.take_if(|call| call.ran_out(now)));
        for call in here.chain(late) {
            call.end(&self.operations, Err(DurableError::Unreachable(self.why.clone())));
        }
    }

    /// Answers a group. Returns `true` if all of it was done. Operations that were not
    /// done wait again, behind all others, because those may go where they cannot.
    fn answer(&mut self, group: Group, answer: Value, way: &Way) -> bool {
        let Some((now, answers)) = taken_apart(answer, group.calls.len()) else {
            self.refuse(group, &strange());
            return true;
        };
        let mut undone = Vec::new();
        for (call, answer) in group.calls.into_iter().zip(answers) {
            let Some(call) = call else { continue };
            let Value::BulkString(text) = answer else {
                call.end(&self.operations, Ok((answer, now)));
                continue;
            };
            match self.operations.link.fault(way, &failed(&text)) {
                Fault::Refused(error) if call.deadline.is_none() => {
                    self.why = error.to_string();
                    undone.push(call);
                }
                Fault::Final(error) | Fault::Refused(error) => {
                    call.end(&self.operations, Err(error))
                }
                Fault::Undone(why) | Fault::Unknown(why) => {
                    self.why = why;
                    undone.push(call);
                }
            }
        }
        let done = undone.is_empty();
        self.operations.groups.line(self.partition).calls.extend(undone);
        done
    }

    fn refuse_callers(&self, mut group: Group, error: &DurableError) -> Group {
        let callers = group.calls.iter_mut();
        for call in callers.filter_map(|call| call.take_if(|call| call.deadline.is_some())) {
            call.end(&self.operations, Err(error.clone()));
        }
        group
    }

    fn refuse(&self, group: Group, error: &DurableError) {
        for call in group.calls.into_iter().flatten() {
            call.end(&self.operations, Err(error.clone()));
        }
    }
}

/// The time and the answers of a group of so many.
fn taken_apart(answer: Value, count: usize) -> Option<(Millis, impl Iterator<Item = Value>)> {
    let Value::Array(answers) = answer else { return None };
    let whole = answers.len() == count + 1;
    let mut answers = answers.into_iter();
    match answers.next() {
        Some(Value::Int(now)) if whole => Some((Millis::try_from(now).ok()?, answers)),
        _ => None,
    }
}

/// The error of an operation, as if it were that of its command.
fn failed(text: &[u8]) -> RedisError {
    let line: Vec<u8> = text.iter().copied().filter(|byte| !b"\r\n".contains(byte)).collect();
    match redis::parse_redis_value(&[b"-", &line[..], b"\r\n"].concat()) {
        Ok(Value::ServerError(error)) => error.into(),
        Err(error) => error,
        Ok(_) => (redis::ErrorKind::Parse, "no error").into(),
    }
}

/// The runtime has ended, or this has panicked: nobody is left without an answer.
impl Drop for Driver {
    fn drop(&mut self) {
        if !self.ended {
            let mut line = self.operations.groups.line(self.partition);
            line.busy = false;
            let calls = std::mem::take(&mut line.calls);
            drop(line);
            drop(calls);
        }
    }
}
