//! [`Store`]: the keys and their timers, in one lock.

use redis_protocol::bytes::Bytes;
use redis_protocol::resp2::types::BytesFrame;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tourbillon_servers::command::Command;
use tourbillon_servers::timers::{Batch, Records, Timers};

/// A key.
pub(crate) type Key = Bytes;

/// All keys.
pub(crate) struct Store<T: Timers<Key>>(Mutex<State<T>>);

struct State<T: Timers<Key>> {
    entries: Entries<T::Id>,
    timers: T,
    due: Vec<Key>,
    counts: Counts,
}

struct Entries<Id>(HashMap<Key, Live<Id>>);

/// A key that has not expired.
struct Live<Id> {
    value: Bytes,
    /// Apart from the timer, to audit it.
    expires_at: Instant,
    timer: Id,
}

/// The counts of the server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Keys that have expired.
    pub(crate) expired: u64,
    /// Keys that have expired too early.
    pub(crate) early: u64,
    /// Expiries that named no key, and timers that had ended before their keys.
    pub(crate) lost: u64,
    pub(crate) armed: usize,
}

impl<T: Timers<Key>> Store<T> {
    pub(crate) fn new(timers: T) -> Self {
        let entries = Entries(HashMap::new());
        Self(Mutex::new(State { entries, timers, due: Vec::new(), counts: Counts::default() }))
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes a command and returns the answer.
    pub(crate) fn apply(&self, command: Command) -> BytesFrame {
        let mut state = self.state();
        match command {
            Command::Set(key, value, life) => {
                state.set(&key, &value, life);
                BytesFrame::SimpleString(Bytes::from_static(b"OK"))
            }
            Command::Expire(key, life) => BytesFrame::Integer(state.expire(&key, life).into()),
            Command::Get(key) => match state.entries.0.get(&key) {
                Some(live) => BytesFrame::BulkString(live.value.clone()),
                None => BytesFrame::Null,
            },
            Command::Size => {
                BytesFrame::Integer(i64::try_from(state.entries.0.len()).unwrap_or(i64::MAX))
            }
        }
    }

    /// Removes keys that have expired. Wakes the task again when the next one does.
    pub(crate) fn poll_expire(&self, context: &mut Context<'_>) -> Poll<()> {
        let state = &mut *self.state();
        ready!(state.timers.poll_due(context, &mut state.entries, &mut state.due));
        let now = Instant::now();
        for key in state.due.drain(..) {
            let live = state.entries.0.remove(&key);
            state.counts.expired += 1;
            state.counts.lost += u64::from(live.is_none());
            state.counts.early += u64::from(live.is_some_and(|live| now < live.expires_at));
        }
        Poll::Ready(())
    }

    pub(crate) fn counts(&self) -> Counts {
        let state = self.state();
        Counts { armed: state.timers.armed(), ..state.counts }
    }
}

impl<T: Timers<Key>> State<T> {
    /// Stores a value, in place of the present one.
    fn set(&mut self, key: &Bytes, value: &Bytes, life: Duration) {
        // Copied, because both are parts of the buffer that was read.
        let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        let mut timers = self.timers.batch();
        let expires_at = timers.now() + life;
        match self.entries.0.entry(key) {
            Entry::Occupied(mut occupied) => {
                let key = occupied.key().clone();
                let live = occupied.get_mut();
                live.value = value;
                live.expires_at = expires_at;
                let reset = timers.reset(&mut live.timer, &key, life);
                self.counts.lost += u64::from(!reset);
            }
            Entry::Vacant(vacant) => {
                let timer = timers.arm(vacant.key().clone(), life);
                vacant.insert(Live { value, expires_at, timer });
            }
        }
    }

    /// Changes the time to live of a key, and returns `true` if there is such a key.
    fn expire(&mut self, key: &Bytes, life: Duration) -> bool {
        let Some(live) = self.entries.0.get_mut(key) else {
            return false;
        };
        let mut timers = self.timers.batch();
        live.expires_at = timers.now() + life;
        let reset = timers.reset(&mut live.timer, key, life);
        self.counts.lost += u64::from(!reset);
        true
    }
}

impl<Id> Records<Key, Id> for Entries<Id> {
    fn timer(&mut self, key: &Key) -> Option<&mut Id> {
        self.0.get_mut(key).map(|live| &mut live.timer)
    }
}
