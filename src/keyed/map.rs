//! [`KeyMap`]: a map from keys to their states, with the few operations that the keyed timers need.
//! Only this file knows dashmap.
//!
//! Each operation is atomic for its key. The closure that it is given runs under the lock of that
//! key, and so must not use the map. In the models the map is one mutex of the explorer, because
//! the order of locks is part of what they explore. It hashes deterministically, because they
//! replay.
//!
//! **Memory.** dashmap does not shrink by itself. Here the removal that leaves a shard at most a
//! quarter full shrinks its table at least by half, under the shard's lock. It moves the remaining
//! entries, which are less than a quarter of the table. The insert that made the table grow moved
//! more. Since then the number of keys that came or left is at least an eighth of the table's
//! capacity, so a removal is O(1) amortised.

#![forbid(unsafe_code)]

pub(super) use source::KeyMap;

#[cfg(not(modelled))]
mod source {
    use dashmap::{DashMap, Entry, SharedValue};
    use std::borrow::Borrow;
    use std::hash::{BuildHasher, Hash};

    /// Keys with their states.
    pub(in crate::keyed) struct KeyMap<K, S>(DashMap<K, S>);

    /// The largest table that is not worth shrinking.
    const SHRINK_ABOVE: usize = 128;

    impl<K: Hash + Eq, S> KeyMap<K, S> {
        pub(in crate::keyed) fn new() -> Self {
            Self(DashMap::new())
        }

        /// Calls `read` with the key's state, if it has one, under a shared lock.
        pub(in crate::keyed) fn read<Q, R>(&self, key: &Q, read: impl FnOnce(&S) -> R) -> Option<R>
        where
            K: Borrow<Q>,
            Q: Hash + Eq + ?Sized,
        {
            self.0.view(key, |_, state| read(state))
        }

        /// Calls `change` with the key's state, if it has one, under an exclusive lock.
        pub(in crate::keyed) fn change<Q, R>(
            &self,
            key: &Q,
            change: impl FnOnce(&K, &mut S) -> R,
        ) -> Option<R>
        where
            K: Borrow<Q>,
            Q: Hash + Eq + ?Sized,
        {
            let mut found = self.0.get_mut(key)?;
            let (key, state) = found.pair_mut();
            Some(change(key, state))
        }

        /// Calls `change` under an exclusive lock, like [`change`](Self::change), even for a key
        /// without a state. Such a key gets the state that `change` returns, if any.
        pub(in crate::keyed) fn enter<R>(
            &self,
            key: K,
            change: impl FnOnce(&K, Option<&mut S>) -> (Option<S>, R),
        ) -> R {
            match self.0.entry(key) {
                Entry::Occupied(occupied) => {
                    let mut found = occupied.into_ref();
                    let (key, state) = found.pair_mut();
                    change(key, Some(state)).1
                }
                Entry::Vacant(vacant) => {
                    let (state, answer) = change(vacant.key(), None);
                    if let Some(state) = state {
                        vacant.insert(state);
                    }
                    answer
                }
            }
        }

        /// Takes the key and its state out if `which` accepts the state.
        pub(in crate::keyed) fn remove_if<Q>(
            &self,
            key: &Q,
            which: impl Fn(&S) -> bool,
        ) -> Option<(K, S)>
        where
            K: Borrow<Q>,
            Q: Hash + Eq + ?Sized,
        {
            let hasher = self.0.hasher();
            let hash = hasher.hash_one(key);
            #[allow(clippy::cast_possible_truncation, reason = "as dashmap itself finds the shard")]
            let shard = self.0.determine_shard(hash as usize);
            let mut table = self.0.shards()[shard].write();
            let is_it =
                |(other, state): &(K, SharedValue<S>)| other.borrow() == key && which(state.get());
            let (key, state) = table.remove_entry(hash, is_it)?;
            let (len, places) = (table.len(), table.buckets());
            if places > SHRINK_ABOVE && len <= places / 4 {
                // This many fill half of a table of half the size, or of a smaller one.
                table.shrink_to(len + len / 2, |(key, _)| hasher.hash_one(key));
            }
            Some((key, state.into_inner()))
        }

        /// Takes everything out, one shard after the other, each in O(1) under its lock.
        pub(in crate::keyed) fn take_all(&self) -> Vec<(K, S)> {
            let shards = self.0.shards().iter();
            let taken = shards.flat_map(|shard| std::mem::take(&mut *shard.write()));
            taken.map(|(key, state)| (key, state.into_inner())).collect()
        }

        pub(in crate::keyed) fn len(&self) -> usize {
            self.0.len()
        }
    }
}

#[cfg(modelled)]
mod source {
    use crate::panics::ignore_poison;
    use crate::sync::{ModelledGuard, ModelledMutex};
    use std::borrow::Borrow;
    use std::collections::HashMap;
    use std::hash::{BuildHasherDefault, DefaultHasher, Hash};

    type States<K, S> = HashMap<K, S, BuildHasherDefault<DefaultHasher>>;

    pub(in crate::keyed) struct KeyMap<K, S>(ModelledMutex<States<K, S>>);

    impl<K: Hash + Eq, S> KeyMap<K, S> {
        pub(in crate::keyed) fn new() -> Self {
            Self(ModelledMutex::new(States::default()))
        }

        fn states(&self) -> ModelledGuard<'_, States<K, S>> {
            ignore_poison(self.0.lock())
        }

        pub(in crate::keyed) fn read<Q, R>(&self, key: &Q, read: impl FnOnce(&S) -> R) -> Option<R>
        where
            K: Borrow<Q>,
            Q: Hash + Eq + ?Sized,
        {
            self.states().get(key).map(read)
        }

        pub(in crate::keyed) fn change<Q, R>(
            &self,
            key: &Q,
            change: impl FnOnce(&K, &mut S) -> R,
        ) -> Option<R>
        where
            K: Borrow<Q>,
            Q: Hash + Eq + ?Sized,
        {
            let mut states = self.states();
            let (key, mut state) = states.remove_entry(key)?;
            let answer = change(&key, &mut state);
            states.insert(key, state);
            Some(answer)
        }

        pub(in crate::keyed) fn enter<R>(
            &self,
            key: K,
            change: impl FnOnce(&K, Option<&mut S>) -> (Option<S>, R),
        ) -> R {
            let mut states = self.states();
            let (state, answer) = change(&key, states.get_mut(&key));
            if let Some(state) = state {
                states.insert(key, state);
            }
            answer
        }

        pub(in crate::keyed) fn remove_if<Q>(
            &self,
            key: &Q,
            which: impl Fn(&S) -> bool,
        ) -> Option<(K, S)>
        where
            K: Borrow<Q>,
            Q: Hash + Eq + ?Sized,
        {
            let mut states = self.states();
            states.get(key).is_some_and(which).then(|| states.remove_entry(key))?
        }

        pub(in crate::keyed) fn take_all(&self) -> Vec<(K, S)> {
            std::mem::take(&mut *self.states()).into_iter().collect()
        }

        pub(in crate::keyed) fn len(&self) -> usize {
            self.states().len()
        }
    }
}
