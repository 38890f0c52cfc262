//! What the operations do with a key's slot, under its lock; the steps are told in
//! [`super`].

#![forbid(unsafe_code)]

use super::KeyedTimers;
use super::shared::{KeyState, OwnerId};
use super::timer::{KeyedTimer, TimerKind, When};
use crate::{BeyondRange, InsertError, Refusal, TimerId};
use std::borrow::Borrow;
use std::hash::Hash;

/// What the map's `enter` is given for a key without a slot: its slot, and what `enter` returns.
type Entered<V, R> = (Option<KeyState<V>>, Result<R, InsertError<V>>);

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
        owner: OwnerId,
    ) -> Result<Option<V>, InsertError<V>> {
        self.shared.map.enter(key, |key, state| match state {
            Some(state) => (None, self.replace(key, state, value, when, owner)),
            None => self.arm_new(key, value, when, owner),
        })
    }

    /// Arms a key that has a slot with another value, and returns the one that it had.
    pub(super) fn replace(
        &self,
        key: &K,
        state: &mut KeyState<V>,
        value: V,
        when: When,
        owner: OwnerId,
    ) -> Result<Option<V>, InsertError<V>> {
        // A timer that has vacated its slot has ended, so that this arms another.
        if let Err(reason) = self.rearm(key, state, when) {
            return Err(InsertError { reason, value });
        }
        state.owner = owner;
        let old = state.put(value);
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
        owner: OwnerId,
    ) -> Entered<V, Option<R>> {
        match self.arm(key, when) {
            Ok(id) => (Some(KeyState::new(value, id, owner)), Ok(None)),
            Err(reason) => (None, Err(InsertError { reason, value })),
        }
    }

    /// Cancels a key, if `which` says so of its slot.
    pub(super) fn cancel_if<Q>(&self, key: &Q, which: impl Fn(&KeyState<V>) -> bool) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let (_, state) = self.shared.map.remove_if(key, which)?;
        // A firing on its way finds no such id.
        drop(self.wheel.cancel(state.id));
        self.shared.value_of(state)
    }

    pub(super) fn reset_when<Q>(&self, key: &Q, when: When) -> Result<bool, BeyondRange>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        match self.shared.map.read(key, |state| when.reset(&self.wheel, state.id)) {
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
        let rearm = |key: &K, state: &mut KeyState<V>| {
            state.is_armed().then(|| self.rearm(key, state, when))
        };
        match self.shared.map.change(key, rearm).flatten() {
            Some(Ok(())) => Ok(true),
            Some(Err(Refusal::BeyondRange(beyond))) => Err(beyond),
            Some(Err(Refusal::Closed | Refusal::AtCapacity { .. } | Refusal::OutOfMemory))
            | None => Ok(false),
        }
    }

    fn arm(&self, key: &K, when: When) -> Result<TimerId, Refusal> {
        when.insert(&self.wheel, KeyedTimer(TimerKind::Key(key.clone())))
    }

    /// Sets an armed key's deadline; with a new timer if the old one has ended (step 3).
    fn rearm(&self, key: &K, state: &mut KeyState<V>, when: When) -> Result<(), Refusal> {
        if !when.reset(&self.wheel, state.id)? {
            state.id = self.arm(key, when)?;
        }
        Ok(())
    }
}
