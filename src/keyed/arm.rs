//! What the operations do with a key's slot, under its lock; the steps are told in
//! [`super`].

#![forbid(unsafe_code)]

use super::KeyedTimers;
use super::exclusive::Exclusive;
use super::shared::{Owner, Slot};
use super::timer::{KeyedTimer, What, When};
use crate::{BeyondRange, InsertError, Refusal, TimerId};
use std::borrow::Borrow;
use std::hash::Hash;

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
            Some(slot) => match self.rearm(key, slot, when) {
                Ok(()) => {
                    slot.owner = owner;
                    (None, Ok(Some(std::mem::replace(slot.value.get_mut(), value))))
                }
                Err(reason) => (None, Err(InsertError { reason, value })),
            },
            None => match self.arm(key, when) {
                Ok(id) => (Some(Slot { value: Exclusive::new(value), id, owner }), Ok(None)),
                Err(reason) => (None, Err(InsertError { reason, value })),
            },
        })
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
        Some(slot.value.into_inner())
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
        match self.shared.map.change(key, |key, slot| self.rearm(key, slot, when)) {
            Some(Ok(())) => Ok(true),
            Some(Err(Refusal::BeyondRange(beyond))) => Err(beyond),
            Some(Err(Refusal::Closed | Refusal::AtCapacity { .. })) | None => Ok(false),
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
