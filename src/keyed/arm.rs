//! What the operations do with a key's slot, under its lock; the steps are told in
//! [`super`].

#![forbid(unsafe_code)]

use super::KeyedTimers;
use super::shared::{Owner, Slot};
use super::timer::{KeyedTimer, What, When};
use crate::{BeyondRange, InsertError, Refusal, TimerId};
use std::borrow::Borrow;
use std::hash::Hash;

/// What the map's `enter` is given for a key without a slot: its slot, and what `enter` returns.
type Entered<V, R> = (Option<Slot<V>>, Result<R, InsertError<V>>);

impl<K, V> KeyedTimers<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + 'static,
{
    pub(super) fn insert_when(
        &self,
        key: K,
        value: V,
        when: When,
        owner: Owner,
    ) -> Result<Option<V>, InsertError<V>> {
        self.shared.map.enter(key, |key, slot| match slot {
            Some(slot) => (None, self.replace(key, slot, value, when, owner)),
            None => self.arm_new(key, value, when, owner),
        })
    }

    /// Arms a key that has a slot with another value, and returns the one that it had.
    pub(super) fn replace(
        &self,
        key: &K,
        slot: &mut Slot<V>,
        value: V,
        when: When,
        owner: Owner,
    ) -> Result<Option<V>, InsertError<V>> {
        // A timer that has vacated its slot has ended, so that this arms another.
        if let Err(reason) = self.rearm(key, slot, when) {
            return Err(InsertError { reason, value });
        }
        slot.owner = owner;
        let old = slot.put(value);
        if old.is_none() {
            self.shared.discount_vacated();
        }
        Ok(old)
    }

    /// Arms a key without a slot.
    pub(super) fn arm_new<R>(
        &self,
        key: &K,
        value: V,
        when: When,
        owner: Owner,
    ) -> Entered<V, Option<R>> {
        match self.arm(key, when) {
            Ok(id) => (Some(Slot::new(value, id, owner)), Ok(None)),
            Err(reason) => (None, Err(InsertError { reason, value })),
        }
    }

    /// Cancels a key, if `which` says so of its slot.
    pub(super) fn cancel_if<Q>(&self, key: &Q, which: impl Fn(&Slot<V>) -> bool) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let (_, slot) = self.shared.map.remove_if(key, which)?;
        // A firing on its way finds no such id.
        drop(self.wheel.cancel(slot.id));
        self.shared.value_of(slot)
    }

    pub(super) fn reset_when<Q>(&self, key: &Q, when: When) -> Result<bool, BeyondRange>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        match self.shared.map.look(key, |slot| when.reset(&self.wheel, slot.id)) {
            None => Ok(false),
            Some(Ok(false)) => self.overtake(key, when),
            Some(moved) => moved,
        }
    }

    /// Moves a key whose timer has ended, before its firing comes.
    #[cold]
    fn overtake<Q>(&self, key: &Q, when: When) -> Result<bool, BeyondRange>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let rearm =
            |key: &K, slot: &mut Slot<V>| slot.is_armed().then(|| self.rearm(key, slot, when));
        match self.shared.map.change(key, rearm).flatten() {
            Some(Ok(())) => Ok(true),
            Some(Err(Refusal::BeyondRange(beyond))) => Err(beyond),
            Some(Err(Refusal::Closed | Refusal::AtCapacity { .. } | Refusal::OutOfMemory))
            | None => Ok(false),
        }
    }

    fn arm(&self, key: &K, when: When) -> Result<TimerId, Refusal> {
        when.insert(&self.wheel, KeyedTimer(What::Key(key.clone())))
    }

    /// Sets an armed key's deadline; with a new timer if the old one has ended (step 3).
    fn rearm(&self, key: &K, slot: &mut Slot<V>, when: When) -> Result<(), Refusal> {
        if !when.reset(&self.wheel, slot.id)? {
            slot.id = self.arm(key, when)?;
        }
        Ok(())
    }
}
