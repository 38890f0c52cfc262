//! [`Simulated`], a store on the servers of a [`Cluster`], by the engine that Redis and PostgreSQL
//! have.

use super::audit::PermitChange;
use super::client::{CALL_TIMEOUT, Client, left_out};
use super::network::Cluster;
use super::process::{Process, ProcessHost};
use super::requests::Operation;
use crate::model::bounds::LetterBounds;
use crate::model::condition::Condition;
use crate::model::key::Key;
use crate::model::label::Label;
use crate::store::ownership::Ownership;
use crate::store::partitions::Partitioned;
use crate::store::partitions::idle::IdleHints;
use crate::store::partitions::load::Stall;
use crate::store::remote::notices::listen;
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

    /// Executes an operation on a timer for a caller, which may move the timer.
    fn change(&self, id: &str, operation: Operation) -> Answer<bool> {
        self.0.operations.change_timer(id, operation)
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
        self.0.operations.cancel(id)
    }

    fn reset(&self, id: &str, due: Due) -> Answer<bool> {
        self.change(id, Operation::Reset(id.to_owned(), due))
    }

    fn run_now(&self, id: &str) -> Answer<bool> {
        self.change(id, Operation::RunNow(id.to_owned()))
    }

    fn pause_timer(&self, id: &str, pauses: bool, _label: Option<Label>) -> Answer<bool> {
        self.change(id, Operation::Pause(id.to_owned(), pauses))
    }

    fn lease(&self, key: &Key) -> Answer<Leasing> {
        self.0.operations.lease(key)
    }

    fn take_over(&self, _key: &Key) -> Answer<Leasing> {
        Box::pin(std::future::ready(Err(left_out())))
    }

    fn finish(&self, id: &str, fence: u64, finish: Finish) -> Answer<Finished> {
        self.0.operations.finish(id, fence, finish)
    }

    fn renew(&self, id: &str, fence: u64) -> Answer<Renewed> {
        self.0.operations.renew(id, fence)
    }

    fn stalled(&self, worker: u64, id: &str) -> Option<Stalled> {
        let client = &self.0.operations;
        client.permit(PermitChange::Stalled(Arc::from(id)));
        Some(Box::new(Stall::begin(client, worker, id)))
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
