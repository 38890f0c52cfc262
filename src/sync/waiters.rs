//! [`Waiters`]: the tasks that wait for one event, each in a place of its own, which it gives back
//! when it gives up. It lies under the lock of what they wait for.

#![forbid(unsafe_code)]

use crate::panics::quietly;
use std::collections::BTreeMap;
use std::task::Waker;

/// The tasks that wait.
#[derive(Default)]
pub(crate) struct Waiters {
    wakers: BTreeMap<u64, Waker>,
    /// How many places there have been.
    places: u64,
}

/// The place of one task, once it has waited.
#[derive(Default)]
pub(crate) struct Place(Option<u64>);

/// Tasks that are to be woken, without the lock.
#[derive(Default)]
#[must_use]
pub(crate) struct Told(Vec<Waker>);

impl Waiters {
    /// Lets a task wait, or wait again. What it returns is to be dropped without the lock, since
    /// that is its runtime's code.
    #[must_use]
    pub(crate) fn wait(&mut self, place: &mut Place, waker: Waker) -> Option<Waker> {
        let number = *place.0.get_or_insert_with(|| {
            self.places += 1;
            self.places
        });
        self.wakers.insert(number, waker)
    }

    /// The task waits no more. What it returns is to be dropped without the lock.
    #[must_use]
    pub(crate) fn give_up(&mut self, place: &Place) -> Option<Waker> {
        place.0.and_then(|number| self.wakers.remove(&number))
    }

    /// All who wait; from here on nobody does.
    pub(crate) fn tell(&mut self) -> Told {
        std::mem::take(&mut self.wakers).into_values().collect()
    }
}

impl FromIterator<Waker> for Told {
    fn from_iter<I: IntoIterator<Item = Waker>>(wakers: I) -> Self {
        Self(wakers.into_iter().collect())
    }
}

impl Told {
    /// Wakes them. One that panics harms no other.
    pub(crate) fn wake(self) {
        for waker in self.0 {
            quietly(|| waker.wake());
        }
    }
}
