//! [`Places`]: how many deliveries a worker has under way, and who gives way to whom.
//!
//! A delivery holds a place from the moment on at which its lease is asked for. **A store that does
//! not answer must not take all places**: what waits for long gives its place back, and is
//! *parked*: still under way, and counted no more. When its answer has come and there is a handler
//! to run, it takes a place again, before anything new is begun. So at most the chosen number of
//! handlers runs, and at most [`PARKED`] deliveries more are under way: beyond that number they
//! keep their places.

#![forbid(unsafe_code)]

use crate::panics::ignore_poison;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

/// How many deliveries may be under way without a place.
const PARKED: usize = 4096;

/// The places of a worker.
#[derive(Debug)]
pub(super) struct Places(Mutex<Taken>);

#[derive(Debug)]
struct Taken {
    free: usize,
    parked: usize,
    /// How many of the parked want a place again, and whom to wake.
    wanted: usize,
    wakers: Vec<Waker>,
}

/// The state of a delivery's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Placed,
    Parked,
    Wanting,
}

/// A place of one delivery; dropped, it is free.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    state: State,
}

impl Places {
    pub(super) fn new(count: usize) -> Self {
        Self(Mutex::new(Taken { free: count, parked: 0, wanted: 0, wakers: Vec::new() }))
    }

    /// A place for what is to be begun; `None` if there is none but for those who had one before.
    pub(super) fn take(self: &Arc<Self>) -> Option<Place> {
        let mut taken = self.lock();
        if taken.free <= taken.wanted {
            return None;
        }
        taken.free -= 1;
        Some(Place { places: Arc::clone(self), state: State::Placed })
    }

    /// Changes what is taken, and wakes those who may have a place now, without the lock.
    fn change(&self, change: impl FnOnce(&mut Taken)) {
        let mut taken = self.lock();
        change(&mut taken);
        let woken = if taken.free == 0 { Vec::new() } else { std::mem::take(&mut taken.wakers) };
        drop(taken);
        woken.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        ignore_poison(self.0.lock())
    }
}

impl Place {
    /// Gives it back, for as long as only an answer is waited for; unless too many have done so.
    pub(super) fn park(&mut self) {
        let Self { places, state } = self;
        places.change(|taken| {
            if *state == State::Placed && taken.parked < PARKED {
                *state = State::Parked;
                taken.parked += 1;
                taken.free += 1;
            }
        });
    }

    /// Waits until it has a place again.
    pub(super) async fn unpark(&mut self) {
        std::future::poll_fn(|context| {
            let mut taken = self.places.lock();
            if self.state == State::Parked {
                self.state = State::Wanting;
                taken.wanted += 1;
            }
            if self.state == State::Wanting {
                if taken.free == 0 {
                    taken.wakers.push(context.waker().clone());
                    return Poll::Pending;
                }
                self.state = State::Placed;
                taken.free -= 1;
                taken.parked -= 1;
                taken.wanted -= 1;
            }
            Poll::Ready(())
        })
        .await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.change(|taken| match self.state {
            State::Placed => taken.free += 1,
            State::Parked => taken.parked -= 1,
            State::Wanting => {
                taken.parked -= 1;
                taken.wanted -= 1;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::task::{Context, Wake};

    #[test]
    fn who_had_a_place_comes_before_who_had_none() {
        let places = Arc::new(Places::new(1));
        let mut first = places.take().expect("it is free");
        assert!(places.take().is_none());
        first.park();
        first.park();
        let second = places.take().expect("it was given back");
        assert!(places.take().is_none(), "once");
        {
            let mut back = std::pin::pin!(first.unpark());
            assert!(back.as_mut().now_or_never().is_none());
            drop(second);
            assert!(places.take().is_none(), "it is wanted");
            assert!(back.as_mut().now_or_never().is_some());
        }
        assert!(places.take().is_none());
        drop(first);
        assert!(places.take().is_some());
    }

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, SeqCst);
        }
    }

    #[test]
    fn who_waits_is_woken_when_there_is_a_place() {
        let places = Arc::new(Places::new(1));
        let mut first = places.take().expect("it is free");
        first.park();
        let second = places.take().expect("it was given back");
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(Arc::clone(&woken));
        let mut back = std::pin::pin!(first.unpark());
        assert!(back.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(!woken.0.load(SeqCst));
        drop(second);
        assert!(woken.0.load(SeqCst));
    }

    #[test]
    fn what_is_parked_is_bounded_and_leaves_nothing_behind() {
        let places = Arc::new(Places::new(1));
        let park = || {
            let mut place = places.take()?;
            place.park();
            Some(place)
        };
        let mut parked: Vec<Place> = std::iter::from_fn(park).collect();
        assert_eq!(parked.len(), PARKED + 1, "one has kept its place");
        assert!(parked[0].unpark().now_or_never().is_none());
        parked.clear();
        let taken = places.lock();
        assert_eq!((taken.free, taken.parked, taken.wanted), (1, 0, 0));
    }
}
