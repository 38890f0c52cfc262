//! The same timers without the wheel, for comparison. They are in a map ordered by deadline, in a
//! lock. Each loop has a map and pops it, or all loops share one that a thread pops.
//!
//! It is a map and not a heap, so that a timer that is pushed back can be removed. In a heap every
//! reset would leave an entry until the old deadline passes. The map of one loop needs no lock, but
//! a lock without contention costs little beside a system call.

use super::config::{Config, Failure};
use super::mailbox::{Mailbox, Message};
use super::timers::{Batch, Store, Timers, Token};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The deadline of a timer, and a number that distinguishes timers with the same deadline.
type Key = (Instant, u64);

/// The map.
#[derive(Debug, Default)]
struct Waiting {
    timers: BTreeMap<Key, Token>,
    inserted: u64,
    stopped: bool,
}

/// The map in its lock, and the condition that reports an earlier timer to the thread.
#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// A loop's access to a map.
pub(crate) struct OnHeap {
    shared: Arc<Shared>,
    sweeps: bool,
}

/// A locked map, and the present time.
pub(crate) struct Locked<'a> {
    waiting: MutexGuard<'a, Waiting>,
    changed: &'a Condvar,
    now: Instant,
}

/// All maps, and the thread if there is one.
struct Heaps {
    heaps: Vec<Arc<Shared>>,
    thread: Option<JoinHandle<()>>,
}

/// The timers of every loop, in the order of the loops.
pub(crate) type Made = (Vec<OnHeap>, Box<dyn Store>);

/// Creates a map for each loop.
pub(crate) fn own(config: &Config) -> Made {
    let heaps: Vec<_> = (0..config.loops).map(|_| Arc::new(Shared::default())).collect();
    let timers = heaps.iter().map(|heap| OnHeap { shared: Arc::clone(heap), sweeps: true });
    (timers.collect(), Box::new(Heaps { heaps, thread: None }))
}

/// One map, and a thread that notifies each loop of its idle connections.
pub(crate) fn shared(config: &Config, mailboxes: &Arc<[Mailbox]>) -> Result<Made, Failure> {
    let (shared, mailboxes) = (Arc::new(Shared::default()), Arc::clone(mailboxes));
    let popped = Arc::clone(&shared);
    let named = thread::Builder::new().name("timers".into());
    let thread = Some(named.spawn(move || popped.pop_for(&mailboxes))?);
    let timers = || OnHeap { shared: Arc::clone(&shared), sweeps: false };
    let timers = (0..config.loops).map(|_| timers()).collect();
    Ok((timers, Box::new(Heaps { heaps: vec![shared], thread })))
}

impl Waiting {
    /// Removes a due timer.
    fn pop(&mut self, now: Instant) -> Option<Token> {
        let first = self.timers.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.timers.first_key_value().map(|(&(deadline, _), _)| deadline)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the thread, which posts due timers and rests until the next deadline.
    fn pop_for(&self, mailboxes: &[Mailbox]) {
        let mut waiting = self.lock();
        while !waiting.stopped {
            let now = Instant::now();
            while let Some(token) = waiting.pop(now) {
                mailboxes[token.owner].post(Message::Idle(token));
            }
            waiting = match waiting.next_deadline() {
                Some(deadline) => {
                    let rest = deadline.saturating_duration_since(Instant::now());
                    let woken = self.changed.wait_timeout(waiting, rest);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl Timers for OnHeap {
    type Id = Key;
    type Batch<'a> = Locked<'a>;

    fn batch(&mut self) -> Locked<'_> {
        let (waiting, changed) = (self.shared.lock(), &self.shared.changed);
        Locked { waiting, changed, now: Instant::now() }
    }

    fn sweep(&mut self, limit: usize, due: &mut Vec<Token>) {
        if self.sweeps {
            let (mut waiting, now) = (self.shared.lock(), Instant::now());
            due.extend(std::iter::from_fn(|| waiting.pop(now)).take(limit));
        }
    }

    fn next_deadline(&mut self) -> Option<Instant> {
        if self.sweeps { self.shared.lock().next_deadline() } else { None }
    }
}

impl Locked<'_> {
    fn put(&mut self, token: Token, delay: Duration) -> Option<Key> {
        let deadline = self.now.checked_add(delay)?;
        let earlier = self.waiting.next_deadline().is_none_or(|first| deadline < first);
        let key = (deadline, self.waiting.inserted);
        self.waiting.inserted += 1;
        self.waiting.timers.insert(key, token);
        if earlier {
            self.changed.notify_one();
        }
        Some(key)
    }
}

impl Batch for Locked<'_> {
    type Id = Key;

    fn prefetch(&self, _: Key) {}

    fn insert(&mut self, token: Token, delay: Duration) -> Option<Key> {
        self.put(token, delay)
    }

    fn reset(&mut self, id: &mut Key, delay: Duration) -> bool {
        let Some(token) = self.waiting.timers.remove(id) else {
            return false;
        };
        match self.put(token, delay) {
            Some(key) => *id = key,
            None => return false,
        }
        true
    }

    fn cancel(&mut self, id: Key) {
        self.waiting.timers.remove(&id);
    }
}

impl Store for Heaps {
    fn armed(&self) -> u64 {
        self.heaps.iter().map(|heap| heap.lock().timers.len() as u64).sum()
    }

    fn stop(&mut self) {
        for heap in &self.heaps {
            heap.lock().stopped = true;
            heap.changed.notify_one();
        }
        if let Some(thread) = self.thread.take() {
            // It posts messages, and cannot panic.
            let _ = thread.join();
        }
    }
}
