//! Operations on the state of a key, under its lock. The rules are listed in [`super`].

#![forbid(unsafe_code)]

use super::KeyedTimers;
use super::shared::{KeyState, OwnerId};
use super::timer::{KeyedTimer, TimerKind, When};
use crate::{BeyondRange, InsertError, Refusal, TimerId};
use std::borrow::Borrow;
use std::hash::Hash;

/// The return value of the map's `enter` closure for a key without a state: the new state, and the
/// result of `enter`.
type Entered<V, R> = (Option<KeyState<V>>, Result<R, InsertError<V>>);

impl<K, V> KeyedTimers<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + 'static,
{
    /// Arms a key at a delay or a deadline, and returns its previous value.
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

    /// Arms a key that has a state with another value, and returns its previous value.
    pub(super) fn replace(
        &self,
        key: &K,
        state: &mut KeyState<V>,
        value: V,
        when: When,
        owner: OwnerId,
    ) -> Result<Option<V>, InsertError<V>> {
        // A timer that has vacated its state has ended, so this arms another.
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

    /// Arms a key without a state.
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

    /// Cancels a key if `which` accepts its state.
    pub(super) fn cancel_if<Q>(&self, key: &Q, which: impl Fn(&KeyState<V>) -> bool) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let (_, state) = self.shared.map.remove_if(key, which)?;
        // A firing on its way finds another id or none.
        drop(self.wheel.cancel(state.id));
        self.shared.value_of(state)
    }

    /// Moves an armed key to a delay or a deadline.
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

    /// Moves a key whose timer has ended, before its firing arrives.
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

    /// Inserts a timer for a key into the wheel.
    fn arm(&self, key: &K, when: When) -> Result<TimerId, Refusal> {
        when.insert(&self.wheel, KeyedTimer(TimerKind::Key(key.clone())))
    }

    /// Sets the deadline of an armed key, with a new timer if the old one has ended (rule 3).
    fn rearm(&self, key: &K, state: &mut KeyState<V>, when: When) -> Result<(), Refusal> {
        if !when.reset(&self.wheel, state.id)? {
            state.id = self.arm(key, when)?;
        }
        Ok(())
    }
}
