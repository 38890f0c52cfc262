//! [`RemoteStore`], which runs the operations of a store in tasks, and the macros that implement
//! [`Store`](crate::store::Store) by them.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::store::Answer;
use crate::store::remote::host::Host;
use crate::store::remote::sender::Transport;
use futures_channel::oneshot;
use futures_util::future::{Either, select};
use std::pin::pin;
use std::sync::Arc;

/// The operations of a store, whose tasks run on its host.
pub(crate) struct RemoteStore<T> {
    pub(crate) operations: Arc<T>,
    /// Dropping it ends the background task. Pending operations are still executed.
    #[expect(dead_code, reason = "it acts by its drop")]
    listens: oneshot::Sender<()>,
}

impl<T: Transport> RemoteStore<T> {
    /// Returns a store with its background task.
    pub(crate) fn new(
        operations: Arc<T>,
        listening: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let (listens, ended) = oneshot::channel();
        operations.engine().host.spawn(async move {
            select(pin!(listening), ended).await;
        });
        Self { operations, listens }
    }

    /// Runs an operation in a task, even if its caller has gone.
    pub(crate) fn ask<R, F>(
        &self,
        operation: impl FnOnce(Arc<T>) -> F + Send + 'static,
    ) -> Answer<R>
    where
        R: Send + 'static,
        F: Future<Output = Result<R, DurableError>> + Send + 'static,
    {
        let (done, answer) = oneshot::channel();
        let operation = usable(Arc::clone(&self.operations), operation);
        self.operations.engine().host.spawn(async move { drop(done.send(operation.await)) });
        answered(answer)
    }

    /// Runs an operation that ends when its future is dropped.
    pub(crate) fn ask_while_wanted<R, F>(
        &self,
        operation: impl FnOnce(Arc<T>) -> F + Send + 'static,
    ) -> Answer<R>
    where
        R: Send + 'static,
        F: Future<Output = Result<R, DurableError>> + Send + 'static,
    {
        let (mut done, answer) = oneshot::channel();
        let operation = usable(Arc::clone(&self.operations), operation);
        self.operations.engine().host.spawn(async move {
            let result = match select(pin!(operation), done.cancellation()).await {
                Either::Left((result, _)) => result,
                Either::Right(_) => return,
            };
            drop(done.send(result));
        });
        answered(answer)
    }
}

/// Returns the result of a task, which has none if its host has ended or it has panicked.
fn answered<R: Send + 'static>(answer: oneshot::Receiver<Result<R, DurableError>>) -> Answer<R> {
    Box::pin(async move { answer.await.unwrap_or(Err(DurableError::Closed)) })
}

/// Runs an operation unless the store may no longer be used.
async fn usable<T: Transport, R, F: Future<Output = Result<R, DurableError>>>(
    operations: Arc<T>,
    operation: impl FnOnce(Arc<T>) -> F,
) -> Result<R, DurableError> {
    operations.check_usable()?;
    operation(operations).await
}

/// Implements methods by the methods of the same names of the operations, which run even if their
/// callers have gone. The argument in brackets is a text, and the operation gets a copy of it.
macro_rules! asked {
    ($(fn $name:ident $([$id:ident])? ($($arg:ident: $type:ty),*) -> $reply:ty;)*) => {$(
        fn $name(&self, $($id: &str,)? $($arg: $type),*) -> Answer<$reply> {
            $(let $id = $id.to_owned();)?
            self.0.ask(move |operations| async move { operations.$name($($id,)? $($arg),*).await })
        }
    )*};
}

/// Implements the methods that the stores have alike.
macro_rules! common {
    () => {
        $crate::store::remote::store::asked! {
            fn durability() -> $crate::model::durability::Durability;
            fn now() -> $crate::model::clock::Millis;
            fn pause(pauses: bool) -> ();
            fn is_paused() -> bool;
            fn get[id]() -> Option<$crate::model::record::Record>;
            fn retries_until() -> $crate::model::clock::Millis;
            fn due_counts(
                ranges: Vec<($crate::model::clock::Millis, $crate::model::clock::Millis)>, most: u64
            ) -> Vec<u64>;
            fn len() -> (u64, u64);
            fn letter(number: u64) -> Option<$crate::model::record::Dead>;
            fn redrive(number: u64) -> bool;
            fn discard[id]() -> bool;
            fn label_ids(
                label: $crate::model::label::Label, ids: $crate::store::Ids, limit: usize
            ) -> Vec<String>;
            fn get_each(
                ids: Vec<String>
            ) -> Vec<(String, Option<$crate::model::record::Record>)>;
            fn copy_timers(timers: Vec<(String, $crate::model::record::Record)>) -> ();
            fn copy_letters(letters: Vec<$crate::model::record::Dead>) -> ();
            fn check(from: $crate::model::check::Cursor) -> $crate::model::check::Checked;
            fn repair() -> ();
            fn letter_ages(
                after: Option<u64>, limit: usize
            ) -> Vec<(u64, $crate::model::clock::Millis)>;
            fn dead(
                letters: $crate::store::Letters, limit: usize
            ) -> Vec<(u64, $crate::model::record::Dead)>;
            fn letters_of(
                of: $crate::store::LettersOf, letters: $crate::store::Letters, limit: usize
            ) -> Vec<u64>;
            fn find(
                from: $crate::model::key::Key, until: $crate::model::clock::Millis, limit: usize
            ) -> $crate::store::Found;
        }

        #[cfg(feature = "log")]
        $crate::store::remote::store::asked! {
            fn log_add(
                attempts: Vec<$crate::model::log::LoggedAttempt>,
                bounds: $crate::model::log::LogBounds
            ) -> ();
        }

        // The next batch must not wait for readers that have gone.
        #[cfg(feature = "log")]
        fn log_latest(
            &self,
            id: Option<String>,
            limit: usize,
        ) -> Answer<Vec<$crate::model::log::LoggedAttempt>> {
            self.0.ask_while_wanted(move |operations| async move {
                operations.log_latest(id, limit).await
            })
        }

        fn list(
            &self,
            after: Option<&str>,
            limit: usize,
        ) -> Answer<Vec<(String, $crate::model::record::Record)>> {
            let after = after.map(str::to_owned);
            self.0.ask(move |operations| async move { operations.list(after, limit).await })
        }

        fn label_len(
            &self,
            label: $crate::model::label::Label,
            _after: Option<String>,
        ) -> Answer<(u64, Option<String>)> {
            self.0.ask(|operations| async move { Ok((operations.label_len(label).await?, None)) })
        }

        fn stats(&self, _from: $crate::model::key::Key) -> Answer<$crate::model::stats::Counts> {
            self.0.ask(|operations| async move { operations.stats().await })
        }

        fn join(&self, window: &std::sync::Arc<$crate::store::window::Window>) -> u64 {
            let worker = fastrand::u64(..);
            self.0.operations.ownership.join(worker, window);
            worker
        }

        // A worker that has left must not send a heartbeat any more.
        fn load(
            &self,
            worker: u64,
            from: $crate::model::key::Key,
            until: $crate::model::clock::Millis,
            limit: usize,
        ) -> Answer<$crate::model::key::Page> {
            self.0.ask_while_wanted(move |operations| async move {
                operations.load(worker, from, until, limit).await
            })
        }

        fn leave(&self, worker: u64) -> Answer<()> {
            self.0.operations.ownership.leave(worker);
            self.0.ask(move |operations| async move { operations.leave(worker).await })
        }

        fn take_events(&self, worker: u64) -> Vec<$crate::model::event::Event> {
            self.0.operations.ownership.take_events(worker)
        }

        fn letter_bounds(&self) -> $crate::model::bounds::LetterBounds {
            self.0.operations.bounds
        }
    };
}

pub(crate) use {asked, common};
