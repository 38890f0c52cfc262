//! [`Client`], the operations of a store of one process, sent by the engine that Redis and
//! PostgreSQL have.

use super::audit::PermitChange;
use super::network::Cluster;
use super::operations::LETTERS;
use super::process::Process;
use super::requests::{Call, Operation, Reply};
use super::server::Server;
use crate::error::DurableError;
use crate::model::bounds::LetterBounds;
use crate::model::check::{Checked, Cursor};
use crate::model::clock::Millis;
use crate::model::durability::Durability;
use crate::model::key::{Key, Page};
use crate::model::label::Label;
#[cfg(feature = "log")]
use crate::model::log::{LogBounds, LoggedAttempt};
use crate::model::record::{Dead, Record};
use crate::model::stats::Counts;
use crate::store::ownership::Ownership;
use crate::store::partitions::Partitioned;
use crate::store::partitions::idle::IdleHints;
use crate::store::partitions::load::{load, time_by};
use crate::store::remote::answers::unexpected_reply;
use crate::store::remote::retry::{RetryPolicy, retry};
use crate::store::remote::sender::Engine;
use crate::store::{
    Answer, Cancelled, Finish, Finished, Found, Ids, Insert, Inserted, Leasing, Letters, LettersOf,
    Renewed,
};
use futures_util::future::try_join_all;
use std::sync::Arc;
use std::time::Duration;

/// How long callers wait.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The operations of a store, of one process.
pub(crate) struct Client {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) process: Arc<Process>,
    pub(crate) engine: Engine<Self>,
    pub(crate) ownership: Ownership,
    pub(crate) idle: IdleHints,
    pub(crate) bounds: LetterBounds,
    pub(crate) partitions: u64,
}

/// Returns the error of an operation that no worker and no simulated caller needs.
pub(crate) fn left_out() -> DurableError {
    DurableError::Option("the simulator leaves this out")
}

/// Implements operations that are left out.
macro_rules! left_out {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $reply:ty;)*) => {$(
        #[allow(clippy::unused_async, reason = "the others wait for a server")]
        pub(crate) async fn $name(self: Arc<Self>, $($arg: $type),*) -> Result<$reply, DurableError> {
            let _ = ($($arg,)*);
            Err(left_out())
        }
    )*};
}

impl Client {
    left_out! {
        fn durability() -> Durability;
        fn retries_until() -> Millis;
        fn due_counts(ranges: Vec<(Millis, Millis)>, most: u64) -> Vec<u64>;
        fn len() -> (u64, u64);
        fn letter(number: u64) -> Option<Dead>;
        fn discard(id: String) -> bool;
        fn label_ids(label: Label, ids: Ids, limit: usize) -> Vec<String>;
        fn label_len(label: Label) -> u64;
        fn get_each(ids: Vec<String>) -> Vec<(String, Option<Record>)>;
        fn copy_timers(timers: Vec<(String, Record)>) -> ();
        fn copy_letters(letters: Vec<Dead>) -> ();
        fn check(from: Cursor) -> Checked;
        fn repair() -> ();
        fn letter_ages(after: Option<u64>, limit: usize) -> Vec<(u64, Millis)>;
        fn letters_of(of: LettersOf, letters: Letters, limit: usize) -> Vec<u64>;
        fn find(from: Key, until: Millis, limit: usize) -> Found;
        fn list(after: Option<String>, limit: usize) -> Vec<(String, Record)>;
        fn stats() -> Counts;
    }

    #[cfg(feature = "log")]
    left_out! {
        fn log_add(attempts: Vec<LoggedAttempt>, bounds: LogBounds) -> ();
        fn log_latest(id: Option<String>, limit: usize) -> Vec<LoggedAttempt>;
    }

    pub(crate) async fn now(self: Arc<Self>) -> Result<Millis, DurableError> {
        time_by(&*self, 0..self.partitions.min(3)).await
    }

    pub(crate) async fn get(self: Arc<Self>, id: String) -> Result<Option<Record>, DurableError> {
        let partition = self.partition_of(&id);
        let server = self.cluster.server_of(partition);
        self.ask(RetryPolicy::Caller, server, move |server| server.record(partition, &id)).await
    }

    pub(crate) async fn leave(self: Arc<Self>, worker: u64) -> Result<(), DurableError> {
        let process = self.process.number;
        self.ask(RetryPolicy::Caller, 0, move |server| server.leave(worker, process)).await
    }

    pub(crate) async fn load(
        self: Arc<Self>,
        worker: u64,
        from: Key,
        until: Millis,
        limit: usize,
    ) -> Result<Page, DurableError> {
        load(&self, worker, from, until, limit).await
    }

    /// Pauses all partitions and then marks the store, or resumes in the other order.
    pub(crate) async fn pause(self: Arc<Self>, pauses: bool) -> Result<(), DurableError> {
        if !pauses {
            self.mark_paused(pauses).await?;
        }
        let each = (0..self.partitions).map(|partition| {
            let call = self.call(Operation::Hold(pauses));
            self.change(RetryPolicy::Caller, partition, call, false, |_, _, _| Ok(()))
        });
        try_join_all(each).await?;
        if pauses {
            self.mark_paused(pauses).await?;
        }
        Ok(())
    }

    async fn mark_paused(&self, pauses: bool) -> Result<(), DurableError> {
        self.ask(RetryPolicy::Caller, 0, move |server| server.mark_paused(pauses)).await
    }

    pub(crate) async fn is_paused(self: Arc<Self>) -> Result<bool, DurableError> {
        self.ask(RetryPolicy::Caller, 0, |server| server.is_paused()).await
    }

    /// Returns the dead letters after a number.
    pub(crate) async fn dead(
        self: Arc<Self>,
        letters: Letters,
        limit: usize,
    ) -> Result<Vec<(u64, Dead)>, DurableError> {
        let Letters::After(after) = letters else { return Err(left_out()) };
        let mut all = Vec::new();
        for server in 0..self.cluster.servers() {
            all.extend(self.ask(RetryPolicy::Caller, server, |server| server.letters()).await?);
        }
        all.retain(|(number, _)| after.is_none_or(|after| *number > after));
        all.sort_by_key(|(number, _)| *number);
        all.truncate(limit);
        Ok(all)
    }

    pub(crate) async fn redrive(self: Arc<Self>, number: u64) -> Result<bool, DurableError> {
        let call = self.call(Operation::Redrive(number));
        self.change(RetryPolicy::Caller, number / LETTERS, call, false, |_, reply, _| {
            let Reply::Changed(changed, _) = reply else { return Err(unexpected_reply()) };
            changed
        })
        .await
    }

    pub(crate) fn insert(self: &Arc<Self>, timer: Insert) -> Answer<Inserted> {
        let (id, partition) = (timer.id.clone(), self.partition_of(&timer.id));
        let call = self.call(Operation::Insert(timer));
        self.change(RetryPolicy::Caller, partition, call, false, move |client, reply, now| {
            let Reply::Inserted(inserted, due) = reply else { return Err(unexpected_reply()) };
            let inserted = inserted?;
            if let Inserted::New | Inserted::Replaced | Inserted::Updated = inserted {
                client.notify_if_near(&id, due, now);
            }
            Ok(inserted)
        })
    }

    pub(crate) fn cancel(self: &Arc<Self>, id: &str) -> Answer<Cancelled> {
        let call = self.call(Operation::Cancel(id.to_owned()));
        self.change(RetryPolicy::Caller, self.partition_of(id), call, false, |_, reply, _| {
            match reply {
                Reply::Cancelled(cancelled) => Ok(cancelled),
                _ => Err(unexpected_reply()),
            }
        })
    }

    /// Executes another operation of a caller, which may move a timer.
    pub(crate) fn change_timer(self: &Arc<Self>, id: &str, operation: Operation) -> Answer<bool> {
        let (call, partition, id) = (self.call(operation), self.partition_of(id), id.to_owned());
        self.change(RetryPolicy::Caller, partition, call, false, move |client, reply, now| {
            let Reply::Changed(changed, due) = reply else { return Err(unexpected_reply()) };
            let changed = changed?;
            if changed {
                client.notify_if_near(&id, due, now);
            }
            Ok(changed)
        })
    }

    pub(crate) fn lease(self: &Arc<Self>, key: &Key) -> Answer<Leasing> {
        let (call, id) = (self.call(Operation::Lease(key.clone())), key.1.to_string());
        let number = call.number;
        self.permit(PermitChange::Asked(number, Arc::clone(&key.1)));
        let partition = self.partition_of(&id);
        self.change(RetryPolicy::Worker, partition, call, true, move |client, reply, now| {
            let Reply::Leased(leasing) = reply else { return Err(unexpected_reply()) };
            let fence = match &leasing {
                Leasing::Taken(lease) => {
                    client.notify_if_near(&id, lease.record.due, now);
                    Some(lease.fence)
                }
                _ => None,
            };
            client.permit(PermitChange::Answered(number, fence));
            Ok(leasing)
        })
    }

    pub(crate) fn finish(
        self: &Arc<Self>,
        id: &str,
        fence: u64,
        finish: Finish,
    ) -> Answer<Finished> {
        let call = self.call(Operation::Finish(id.to_owned(), fence, finish));
        let (partition, id): (u64, Arc<str>) = (self.partition_of(id), Arc::from(id));
        self.permit(PermitChange::Ends(Arc::clone(&id), fence));
        self.change(RetryPolicy::Worker, partition, call, false, move |client, reply, now| {
            let Reply::Finished(finished, due) = reply else { return Err(unexpected_reply()) };
            if let Some(due) = due {
                client.notify_if_near(&id, due, now);
            }
            client.permit(PermitChange::Ended(id, fence));
            Ok(finished)
        })
    }

    pub(crate) fn renew(self: &Arc<Self>, id: &str, fence: u64) -> Answer<Renewed> {
        let call = self.call(Operation::Renew(id.to_owned(), fence));
        self.change(RetryPolicy::Worker, self.partition_of(id), call, true, |_, reply, _| {
            match reply {
                Reply::Renewed(renewed) => Ok(renewed),
                _ => Err(unexpected_reply()),
            }
        })
    }

    /// Sends a request without side effects, until a reply arrives.
    pub(crate) async fn ask<R: Send + 'static>(
        &self,
        policy: RetryPolicy,
        server: usize,
        serve: impl Fn(&mut Server) -> R + Clone + Send + Sync + 'static,
    ) -> Result<R, DurableError> {
        let once = |_| self.cluster.call(&self.process, server, serve.clone());
        retry(&self.engine.host, (policy, CALL_TIMEOUT), once, silence).await
    }

    pub(crate) fn permit(&self, change: PermitChange) {
        self.cluster.audit.permit(self.process.number, change);
    }

    fn call(&self, operation: Operation) -> Call {
        let number = self.cluster.audit.number_call(operation.id().1);
        Call { number, operation }
    }

    fn change<R: Send + 'static>(
        self: &Arc<Self>,
        policy: RetryPolicy,
        partition: u64,
        call: Call,
        skip_if_dropped: bool,
        read: impl FnOnce(&Self, Reply, Millis) -> Result<R, DurableError> + Send + Sync + 'static,
    ) -> Answer<R> {
        let place = usize::try_from(partition).unwrap_or(usize::MAX);
        let limit = self.engine.limit(policy);
        let (client, number) = (Arc::clone(self), call.number);
        let read = move |(answered, reply, now)| {
            client.cluster.audit.answered(number, answered);
            read(&client, reply, now)
        };
        let asked = Engine::ask(self, place, call, limit.clone(), skip_if_dropped, read);
        let client = Arc::clone(self);
        Box::pin(async move { limit.within(&client.engine.host, asked, silence).await })
    }
}

fn silence() -> DurableError {
    DurableError::Unreachable("no reply".to_owned())
}
