//! [`Cache::get_or_load_shared`], whose loads belong to their keys instead of the callers that
//! began them.

#![forbid(unsafe_code)]

use super::get_or_load::{Lookup, finish};
use super::load::{Joining, Outcome};
use super::load_guard::LoadGuard;
use super::{Cache, IntoKey, LoadError, Loaded};
use std::borrow::Borrow;
use std::future::poll_fn;
use std::hash::Hash;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

impl<K: Eq + Hash + Clone + Send + Sync + 'static, V: Clone + Send + Sync + 'static> Cache<K, V> {
    /// Returns the key's value or loads it, as [`get_or_load_async`](Self::get_or_load_async) does,
    /// with a load that survives the drop of its caller. Callers whose timeouts are shorter than
    /// the load can therefore fill the cache together.
    ///
    /// The load is stored in the cache, under its key. It is polled by the callers that wait for
    /// the key, including threads in [`get_or_load`](Self::get_or_load), so it must be able to run
    /// on each of them. When the last caller is dropped, the load is suspended until the next
    /// caller polls it. A suspended load is dropped
    ///
    /// - if a value is inserted for its key or the key is removed, by any operation;
    /// - at a check that a timer in the cache's wheel makes once a minute after the load began, or
    ///   when the wheel is shut down;
    /// - with the cache. A load that holds a handle of the cache keeps the cache alive for up to
    ///   that minute, so give it a [`WeakCache`](super::WeakCache).
    ///
    /// If the wheel is full or closed, the load belongs to the caller, as with `get_or_load_async`.
    /// For a load that should make progress without callers, pass the handle of a task that was
    /// spawned on the runtime.
    ///
    /// In the last part of its life ([`refresh_ahead`](super::CacheBuilder::refresh_ahead)), a
    /// value is served to all callers at once, and each call polls the load of the next value once.
    ///
    /// # Errors
    ///
    /// Fails like [`get_or_load`](Self::get_or_load), or with [`LoadError::Panicked`] if the load
    /// panicked while another caller polled it.
    ///
    /// # Examples
    ///
    /// A caller that gives up, and the next one, which continues the load:
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::Cache;
    /// use std::future::poll_fn;
    /// use std::task::{Context, Poll, Waker};
    ///
    /// /// Gives a page when it is polled for the third time.
    /// fn load() -> impl Future<Output = Result<&'static str, String>> + Send + 'static {
    ///     let mut polls = 0;
    ///     poll_fn(move |context| {
    ///         polls += 1;
    ///         context.waker().wake_by_ref();
    ///         if polls < 3 { Poll::Pending } else { Poll::Ready(Ok("a page")) }
    ///     })
    /// }
    ///
    /// let pages = Cache::<String, _>::builder(Duration::from_secs(60));
    /// let pages = pages.spawn(Builder::new().driver())?;
    /// let mut gives_up = Box::pin(pages.get_or_load_shared("/", load()));
    /// assert!(gives_up.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    /// drop(gives_up);
    /// assert_eq!(pollster::block_on(pages.get_or_load_shared("/", load()))?, "a page");
    /// assert_eq!(pages.stats().loads, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn get_or_load_shared<'q, Q, T, E>(
        &self,
        key: &'q Q,
        load: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<V, LoadError<E>>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
        &'q Q: IntoKey<K>,
        T: Into<Loaded<V>>,
        E: Send + Sync + 'static,
    {
        let (guard, ageing) = loop {
            match self.begin(key) {
                Lookup::Hit(value, refreshing) => {
                    if let Some(refreshing) = refreshing {
                        refreshing.drive();
                    }
                    return Ok(value);
                }
                Lookup::Join(other) => {
                    if let Some(answer) = self.joined(key, Joining::new(other).await) {
                        return answer;
                    }
                }
                Lookup::Load(guard, ageing) => break (guard, ageing),
            }
        };
        let Some(timer) = self.shared.arm_load(guard.key().clone()) else {
            let loaded = guard.run_async(pin!(load)).await;
            return self.served(key, finish(guard, loaded));
        };
        let stored = guard.store(timer, |guard| async move {
            let loaded = load.await;
            guard.end(|guard: LoadGuard<K, V>| drop(finish(guard, loaded)));
        });
        let mut joining = pin!(Joining::new(stored));
        let outcome = match ageing {
            None => joining.await,
            Some(value) => {
                match poll_fn(|context| Poll::Ready(joining.as_mut().poll(context))).await {
                    Poll::Ready(outcome) => outcome,
                    Poll::Pending => return Ok(value),
                }
            }
        };
        self.served(key, own(outcome))
    }
}

/// Returns the outcome of a load that this caller began.
fn own<V, E: Send + Sync + 'static>(outcome: Outcome<V>) -> Result<V, LoadError<E>> {
    match outcome {
        Outcome::Loaded(value) => Ok(value),
        Outcome::Failed(error) => {
            let error: Result<Arc<E>, _> = error.downcast();
            Err(LoadError::Failed(error.unwrap_or_else(|_| unreachable!("it is its own error"))))
        }
        Outcome::Unchanged => Err(LoadError::Unchanged),
        Outcome::Nothing | Outcome::Recursive => Err(LoadError::Panicked),
    }
}
