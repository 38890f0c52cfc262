//! [`Simulated`], a store on the servers of a [`Cluster`], by the engine that Redis and PostgreSQL
//! have.

use super::client::{CALL_TIMEOUT, Client, left_out};
use super::network::Cluster;
use super::process::{Process, ProcessHost};
use super::requests::{Operation, Reply};
use crate::model::bounds::LetterBounds;
use crate::model::condition::Condition;
use crate::model::key::Key;
use crate::model::label::Label;
use crate::store::ownership::Ownership;
use crate::store::partitions::Partitioned;
use crate::store::partitions::idle::IdleHints;
use crate::store::partitions::load::Stall;
use crate::store::remote::answers::unexpected_reply;
use crate::store::remote::notices::listen;
use crate::store::remote::retry::RetryPolicy;
use crate::store::remote::sender::Engine;
use crate::store::remote::store::{RemoteStore, common};
use crate::store::{
    Answer, AnyStore, Cancelled, Due, Finish, Finished, Insert, Inserted, Leasing, Renewed,
    Stalled, Store,
};
use std::fmt;
use std::sync::Arc;

/// A store of one process.
pub(crate) struct Simulated(RemoteStore<Client>);

impl Simulated {
    pub(crate) fn connect(cluster: &Arc<Cluster>, process: &Arc<Process>, partitions: u64) -> Self {
        let queues = usize::try_from(partitions).unwrap_or(usize::MAX);
        let client = Arc::new(Client {
            cluster: Arc::clone(cluster),
            process: Arc::clone(process),
            engine: Engine::new(ProcessHost(Arc::clone(process)), CALL_TIMEOUT, queues),
            ownership: Ownership::default(),
            idle: IdleHints::new(partitions),
            bounds: LetterBounds::default(),
            partitions,
        });
        let listening = listen(Arc::clone(&client), None);
        Self(RemoteStore::new(client, listening))
    }
}

impl From<Simulated> for AnyStore {
    fn from(store: Simulated) -> Self {
        Self(Arc::new(store))
    }
}

impl fmt::Debug for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulated").finish_non_exhaustive()
    }
}

impl Store for Simulated {
    common!();

    fn insert(&self, timer: Insert) -> Answer<Inserted> {
        self.0.operations.insert(timer)
    }

    fn cancel(&self, id: &str, _only: Option<Condition>) -> Answer<Cancelled> {
        let operation = Operation::Cancel(id.to_owned());
        self.0.operations.change(RetryPolicy::Caller, id, operation, false, |_, reply, _| {
            match reply {
                Reply::Cancelled(cancelled) => Ok(cancelled),
                _ => Err(unexpected_reply()),
            }
        })
    }

    fn reset(&self, id: &str, due: Due) -> Answer<bool> {
        let (operation, name) = (Operation::Reset(id.to_owned(), due), id.to_owned());
        self.0.operations.change(
            RetryPolicy::Caller,
            id,
            operation,
            false,
            move |client, reply, now| {
                let Reply::Moved(moved, due) = reply else { return Err(unexpected_reply()) };
                if moved {
                    client.notify_if_near(&name, due, now);
                }
                Ok(moved)
            },
        )
    }

    fn run_now(&self, _id: &str) -> Answer<bool> {
        Box::pin(std::future::ready(Err(left_out())))
    }

    fn pause_timer(&self, _id: &str, _pauses: bool, _label: Option<Label>) -> Answer<bool> {
        Box::pin(std::future::ready(Err(left_out())))
    }

    fn lease(&self, key: &Key) -> Answer<Leasing> {
        self.0.operations.lease(key)
    }

    fn take_over(&self, _key: &Key) -> Answer<Leasing> {
        Box::pin(std::future::ready(Err(left_out())))
    }

    fn finish(&self, id: &str, fence: u64, finish: Finish) -> Answer<Finished> {
        let (operation, name) = (Operation::Finish(id.to_owned(), fence, finish), id.to_owned());
        self.0.operations.change(
            RetryPolicy::Worker,
            id,
            operation,
            false,
            move |client, reply, now| {
                let Reply::Finished(finished, due) = reply else { return Err(unexpected_reply()) };
                if let Some(due) = due {
                    client.notify_if_near(&name, due, now);
                }
                Ok(finished)
            },
        )
    }

    fn renew(&self, id: &str, fence: u64) -> Answer<Renewed> {
        let operation = Operation::Renew(id.to_owned(), fence);
        self.0.operations.change(
            RetryPolicy::Worker,
            id,
            operation,
            true,
            |_, reply, _| match reply {
                Reply::Renewed(renewed) => Ok(renewed),
                _ => Err(unexpected_reply()),
            },
        )
    }

    fn stalled(&self, worker: u64, id: &str) -> Option<Stalled> {
        Some(Box::new(Stall::begin(&self.0.operations, worker, id)))
    }

    fn is_withheld(&self, worker: u64, id: &str) -> bool {
        let client = &self.0.operations;
        client.ownership.is_withheld(worker, client.partition_of(id))
    }

    fn is_spare(&self, worker: u64) -> bool {
        self.0.operations.ownership.is_spare(worker)
    }

    fn delete_dead_letter(&self, _number: u64) -> Answer<bool> {
        Box::pin(std::future::ready(Err(left_out())))
    }
}
