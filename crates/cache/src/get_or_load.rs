//! [`Cache::get_or_load`] and its asynchronous form.

#![forbid(unsafe_code)]

use super::entry::CacheEntry;
use super::load::{Joining, Load, Outcome};
use super::load_guard::LoadGuard;
use super::map::{Found, Served};
use super::stats::Count;
use super::{Cache, Cause, IntoKey, LoadError, Loaded};
use std::borrow::Borrow;
use std::convert::Infallible;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;

/// The result of looking up a value that is loaded if it is missing.
pub(super) enum Lookup<K: Eq + Hash + Clone + Send, V: Clone> {
    /// The value. A refresh may be in progress.
    Hit(V, Option<Arc<Load<V>>>),
    /// Another caller loads it.
    Join(Arc<Load<V>>),
    /// This caller has to load it. There may be a value that is due for a refresh.
    Load(LoadGuard<K, V>, Option<V>),
}

impl<K: Eq + Hash + Clone + Send + 'static, V: Clone> Cache<K, V> {
    /// Returns the key's value, or runs `load` if there is none. The load returns a value, which is
    /// kept for the cache's time to live, a value with its own time to live, or a [`Loaded`].
    ///
    /// **It blocks its thread** while the load runs, be it this caller's or another's. Do not call
    /// it in an async task. The key is looked up by any borrowed form that it can be created from
    /// ([`IntoKey`]), and only a call that loads creates a key.
    ///
    /// Of several callers that miss a key, one runs the load and the others wait for its value or
    /// its error. A backend that is down therefore costs every caller the time of one load, and the
    /// loads do not run one after the other. A call after a failed load begins a new one. If the
    /// load panics, the panic propagates to its caller, and one of the others runs its own load.
    /// Callers whose wait was in vain are served a value that was inserted meanwhile, if there is
    /// one. An error is shared only by callers whose loads have the same error type; the other
    /// callers run their own loads.
    ///
    /// The result of a load is returned but not kept if the key was inserted or removed since the
    /// load began. A caller that misses the key after that begins a new load. Nor is the result
    /// kept if [an insert would be refused](super::CacheRefusal), because the wheel is full or was
    /// [shut down](Self::shutdown). No lock is held while the load runs, and the load may use the
    /// cache. If it requests its own key on the same thread, that request fails with
    /// [`LoadError::Recursive`], even if loads of other keys lie between the two. Loads on several
    /// threads that wait for each other in a circle wait forever.
    ///
    /// # Errors
    ///
    /// Returns the error of the load, or of another caller's load that this call waited for, or
    /// [`LoadError::Recursive`] if the load requests its own key, or [`LoadError::Unchanged`] if it
    /// reported an [unchanged value](Loaded::unchanged) that the key does not have.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::{Cache, LoadError};
    /// let cache = Cache::builder(Duration::from_secs(1)).spawn(Builder::new().driver())?;
    /// let down = cache.get_or_load(&7, || Err::<&str, _>("down"));
    /// assert_eq!(down, Err(LoadError::Failed(Arc::new("down"))));
    /// assert_eq!(cache.get_or_load(&7, || Ok::<_, ()>("seven")), Ok("seven"));
    /// assert_eq!(cache.get_or_load(&7, || Err::<&str, _>("down")), Ok("seven"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("take", "try_get_with"))]
    pub fn get_or_load<'q, Q, T, E>(
        &self,
        key: &'q Q,
        load: impl FnOnce() -> Result<T, E>,
    ) -> Result<V, LoadError<E>>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
        &'q Q: IntoKey<K>,
        T: Into<Loaded<V>>,
        E: Send + Sync + 'static,
    {
        loop {
            let guard = match self.begin(key) {
                Lookup::Hit(value, _) => return Ok(value),
                Lookup::Join(load) => match self.joined(key, load.wait()) {
                    Some(answer) => return answer,
                    None => continue,
                },
                Lookup::Load(guard, _) => guard,
            };
            let loaded = guard.run(load);
            return self.served(key, finish(guard, loaded));
        }
    }

    /// Returns the key's value or loads it, as [`get_or_load`](Self::get_or_load) does, with a
    /// function that cannot fail.
    ///
    /// # Panics
    ///
    /// Panics if `make` panics, or if it requests the key whose value it makes.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::Cache;
    /// let cache = Cache::<String, usize>::builder(Duration::from_secs(1));
    /// let cache = cache.spawn(Builder::new().driver())?;
    /// assert_eq!(cache.get_or_insert_with("seven", || "seven".len()), 5);
    /// assert_eq!(cache.get("seven"), Some(5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("get_with", "get_or_init"))]
    pub fn get_or_insert_with<'q, Q>(&self, key: &'q Q, make: impl FnOnce() -> V) -> V
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
        &'q Q: IntoKey<K>,
    {
        match self.get_or_load(key, || Ok::<_, Infallible>(make())) {
            Ok(value) => value,
            Err(LoadError::Failed(never)) => match *never {},
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns the key's value or loads it, as [`get_or_load`](Self::get_or_load) does, for tasks.
    /// It blocks no thread and requires no particular runtime. The load returns a value, a value
    /// with its time to live, or a [`Loaded`].
    ///
    /// Tasks and threads that miss a key at the same time share one load. `load` is polled by the
    /// call that loads and dropped by the others. If that call is dropped before the load has
    /// ended, for example by a timeout, one of the waiting callers begins its own load. If callers
    /// wait for less time than a load takes, use [`get_or_load_shared`](Self::get_or_load_shared),
    /// or make each call in a task of its own. A call that is neither dropped nor polled keeps all
    /// others waiting, including a second call in its own task. A call that is polled by its own
    /// load fails with [`LoadError::Recursive`].
    ///
    /// # Errors
    ///
    /// As [`get_or_load`](Self::get_or_load).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// # use tourbillon_cache::Cache;
    /// async fn log_in(user: &str) -> std::io::Result<(String, Duration)> {
    ///     Ok((format!("token of {user}"), Duration::from_secs(3600)))
    /// }
    ///
    /// let tokens = Cache::<String, String>::builder(Duration::from_secs(60));
    /// let tokens = tokens.spawn(Builder::new().driver())?;
    /// pollster::block_on(async {
    ///     assert_eq!(tokens.get_or_load_async("Ada", log_in("Ada")).await?, "token of Ada");
    ///     assert_eq!(tokens.get("Ada").as_deref(), Some("token of Ada"));
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn get_or_load_async<'q, Q, T, E>(
        &self,
        key: &'q Q,
        load: impl Future<Output = Result<T, E>>,
    ) -> Result<V, LoadError<E>>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
        &'q Q: IntoKey<K>,
        T: Into<Loaded<V>>,
        E: Send + Sync + 'static,
    {
        let mut load = pin!(load);
        loop {
            let guard = match self.begin(key) {
                Lookup::Hit(value, _) => return Ok(value),
                Lookup::Join(load) => match self.joined(key, Joining::new(load).await) {
                    Some(answer) => return answer,
                    None => continue,
                },
                Lookup::Load(guard, _) => guard,
            };
            let loaded = guard.run_async(load.as_mut()).await;
            return self.served(key, finish(guard, loaded));
        }
    }

    /// Looks up the key's value, and takes the place of its load if there is none or it is due for
    /// a refresh.
    pub(super) fn begin<'q, Q>(&self, key: &'q Q) -> Lookup<K, V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
        &'q Q: IntoKey<K>,
    {
        let shared = &*self.shared;
        let found = match shared.map.get(key, |entry| shared.serve(entry)) {
            Served::Value(value) => Some((value, None)),
            Served::Refreshing(value, load) => Some((value, Some(load))),
            Served::RefreshDue(_) | Served::Expired => None,
        };
        if let Some((value, refreshing)) = found {
            shared.counters.add(Count::Hit);
            return Lookup::Hit(value, refreshing);
        }
        loop {
            match shared.map.value_or_load(key, |entry| shared.serve(entry), || key.into_key()) {
                Found::Value(value) => {
                    shared.counters.add(Count::Hit);
                    return Lookup::Hit(value, None);
                }
                Found::Expired(key, entry) => shared.evict([(key, entry, Cause::Expired)]),
                Found::Loading(other) => return Lookup::Join(other),
                Found::Missing(key, load, ageing) => {
                    shared.counters.add(Count::Miss);
                    shared.counters.add(Count::Load);
                    let guard = LoadGuard::new(Arc::clone(&self.shared), key, load);
                    return Lookup::Load(guard, ageing);
                }
            }
        }
    }

    /// Returns the answer to a caller that ran a load itself. If the load returned no value while
    /// the present one is still live, the answer is the present one.
    pub(super) fn served<Q, E>(
        &self,
        key: &Q,
        loaded: Result<V, LoadError<E>>,
    ) -> Result<V, LoadError<E>>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        match self.shared.ahead {
            Some(_) => loaded.or_else(|error| self.live(key).ok_or(error)),
            None => loaded,
        }
    }

    /// Returns the answer to a caller that waited for another caller's load, or `None` if it has to
    /// look the key up again, as after an error of another type.
    pub(super) fn joined<Q, E>(
        &self,
        key: &Q,
        outcome: Outcome<V>,
    ) -> Option<Result<V, LoadError<E>>>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
        E: Send + Sync + 'static,
    {
        match outcome {
            Outcome::Nothing | Outcome::Unchanged => return None,
            Outcome::Recursive => {
                self.shared.counters.add(Count::Miss);
                return Some(Err(LoadError::Recursive));
            }
            Outcome::Loaded(_) | Outcome::Failed(_) => {}
        }
        // A value written meanwhile is newer than a failure.
        let found = match outcome {
            Outcome::Loaded(value) => Ok(value),
            failed => self.live(key).ok_or(failed),
        };
        let answer = match found {
            Ok(value) => Ok(value),
            Err(Outcome::Failed(error)) => Err(LoadError::Failed(error.downcast().ok()?)),
            Err(_) => return None,
        };
        self.shared.counters.add(if answer.is_ok() { Count::Hit } else { Count::Miss });
        Some(answer)
    }
}

/// Ends a load and keeps its value if nothing has overtaken it.
pub(super) fn finish<K, V, T, E>(
    guard: LoadGuard<K, V>,
    loaded: Result<T, E>,
) -> Result<V, LoadError<E>>
where
    T: Into<Loaded<V>>,
    K: Eq + Hash + Clone + Send,
    V: Clone,
    E: Send + Sync + 'static,
{
    let shared = &*Arc::clone(guard.shared());
    let Loaded { value, ttl } = match loaded {
        Ok(loaded) => loaded.into(),
        Err(error) => {
            let error = Arc::new(error);
            guard.fail(|| Outcome::Failed(Arc::clone(&error) as _));
            return Err(LoadError::Failed(error));
        }
    };
    let ttl = ttl.unwrap_or(shared.ttl);
    let Some(value) = value else {
        let Some(value) = guard.renew(ttl) else {
            guard.end(|| Outcome::Unchanged);
            return Err(LoadError::Unchanged);
        };
        shared.counters.add(Count::Loaded);
        guard.end(|| Outcome::Loaded(value.clone()));
        return Ok(value);
    };
    shared.counters.add(Count::Loaded);
    let key = guard.key().clone();
    let Ok((timer, lives)) = shared.arm(key.clone(), ttl) else {
        // The callers asked for a value, and not that the cache keeps one.
        guard.fail(|| Outcome::Loaded(value.clone()));
        return Ok(value);
    };
    let kept = guard.keep(CacheEntry::new(value.clone(), timer, lives));
    // A clone that panics does so after the map is consistent.
    let end = || guard.end(|| Outcome::Loaded(value.clone()));
    let ended = catch_unwind(AssertUnwindSafe(end));
    match kept {
        Ok(removed) => shared.settle(&key, (timer, lives), removed),
        // Overtaken: no value has this timer.
        Err(_) => drop(shared.wheel.cancel(timer)),
    }
    if let Err(panic) = ended {
        resume_unwind(panic);
    }
    Ok(value)
}
