//! [`Map`]: from keys to slots, with the few operations that the keyed timers need. The only file
//! that knows of dashmap.
//!
//! Each operation is atomic for its key: what it is given runs under the lock of that key, and so
//! must not come back to the map. In the models the map is one mutex, the explorer's own, since
//! the order of locks is part of what they explore; it hashes without chance, as they replay.
//!
//! **Memory.** dashmap does not shrink by itself. Here the removal that leaves a shard a quarter
//! full, or emptier, halves its table or more, under the shard's lock. It moves what is left: less
//! than a quarter of the table, and less than the insert moved that made it grow. Since then as
//! many keys have come or gone as an eighth of the table has places, so that a removal is O(1) in
//! the long run.

#![forbid(unsafe_code)]

pub(super) use source::Map;

#[cfg(not(modelled))]
mod source {
    use dashmap::{DashMap, Entry, SharedValue};
    use std::borrow::Borrow;
    use std::hash::{BuildHasher, Hash};

    /// Keys with their slots.
    pub(in crate::keyed) struct Map<K, S>(DashMap<K, S>);

    /// A table of so few places is not worth to be shrunk.
    const WORTH: usize = 128;

    impl<K: Hash + Eq, S> Map<K, S> {
        pub(in crate::keyed) fn new() -> Self {
            Self(DashMap::new())
        }

        /// What `look` makes of the key's slot, if it has one; beside others that look.
        pub(in crate::keyed) fn look<Q, R>(&self, key: &Q, look: impl FnOnce(&S) -> R) -> Option<R>
        where
            K: Borrow<Q>,
            Q: Hash + Eq + ?Sized,
        {
            self.0.view(key, |_, slot| look(slot))
        }

        /// What `change` makes of the key's slot, if it has one; alone.
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
            let (key, slot) = found.pair_mut();
            Some(change(key, slot))
        }

        /// As [`change`](Self::change), also for a key without a slot: it gets the one that
        /// `change` then returns, if any.
        pub(in crate::keyed) fn enter<R>(
            &self,
            key: K,
            change: impl FnOnce(&K, Option<&mut S>) -> (Option<S>, R),
        ) -> R {
            match self.0.entry(key) {
                Entry::Occupied(occupied) => {
                    let mut found = occupied.into_ref();
                    let (key, slot) = found.pair_mut();
                    change(key, Some(slot)).1
                }
                Entry::Vacant(vacant) => {
                    let (slot, answer) = change(vacant.key(), None);
                    if let Some(slot) = slot {
                        vacant.insert(slot);
                    }
                    answer
                }
            }
        }

        /// Takes the key and its slot out, if `which` says so of the slot.
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
                |(other, slot): &(K, SharedValue<S>)| other.borrow() == key && which(slot.get());
            let (key, slot) = table.remove_entry(hash, is_it)?;
            let (len, places) = (table.len(), table.buckets());
            if places > WORTH && len <= places / 4 {
                // So many fill a half of half the table, or of a smaller one.
                table.shrink_to(len + len / 2, |(key, _)| hasher.hash_one(key));
            }
            Some((key, slot.into_inner()))
        }

        /// Takes everything out: one shard after another, each in O(1) under its lock.
        pub(in crate::keyed) fn take_all(&self) -> Vec<(K, S)> {
            let shards = self.0.shards().iter();
            let taken = shards.flat_map(|shard| std::mem::take(&mut *shard.write()));
            taken.map(|(key, slot)| (key, slot.into_inner())).collect()
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

    type Slots<K, S> = HashMap<K, S, BuildHasherDefault<DefaultHasher>>;

    pub(in crate::keyed) struct Map<K, S>(ModelledMutex<Slots<K, S>>);

    impl<K: Hash + Eq, S> Map<K, S> {
        pub(in crate::keyed) fn new() -> Self {
            Self(ModelledMutex::new(Slots::default()))
        }

        fn slots(&self) -> ModelledGuard<'_, Slots<K, S>> {
            ignore_poison(self.0.lock())
        }

        pub(in crate::keyed) fn look<Q, R>(&self, key: &Q, look: impl FnOnce(&S) -> R) -> Option<R>
        where
            K: Borrow<Q>,
            Q: Hash + Eq + ?Sized,
        {
            self.slots().get(key).map(look)
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
            let mut slots = self.slots();
            let (key, mut slot) = slots.remove_entry(key)?;
            let answer = change(&key, &mut slot);
            slots.insert(key, slot);
            Some(answer)
        }

        pub(in crate::keyed) fn enter<R>(
            &self,
            key: K,
            change: impl FnOnce(&K, Option<&mut S>) -> (Option<S>, R),
        ) -> R {
            let mut slots = self.slots();
            let (slot, answer) = change(&key, slots.get_mut(&key));
            if let Some(slot) = slot {
                slots.insert(key, slot);
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
            let mut slots = self.slots();
            slots.get(key).is_some_and(which).then(|| slots.remove_entry(key))?
        }

        pub(in crate::keyed) fn take_all(&self) -> Vec<(K, S)> {
            std::mem::take(&mut *self.slots()).into_iter().collect()
        }

        pub(in crate::keyed) fn len(&self) -> usize {
            self.slots().len()
        }
    }
}
