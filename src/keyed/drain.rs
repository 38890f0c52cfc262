//! [`Drain`]: keys that were taken out together and are passed to a function in parts.
//!
//! Each part has a [`DrainToken`] in the wheel, which is a timer without a delay and passes through
//! the executor like every other timer. The function therefore runs where handlers run, and may use
//! the timers. A token is not tied to a part, so the thread that receives it runs the next one. A
//! thread that waits for the drain helps in the same way, so waiting cannot deadlock even if no
//! executor is free or nothing sweeps. A token that can no longer run is dropped, and drops a part
//! with it. There are as many tokens as parts, so the drain has ended when the last token is gone.

#![forbid(unsafe_code)]

use crate::panics::{drop_payload, ignore_poison};
use crate::sync::{Condvar, Mutex, MutexGuard};
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The number of keys per part: enough to make the way through the executor cheap, few enough to
/// share the work.
const KEYS_PER_PART: usize = 256;

/// The payload of a panic.
type Panic = Box<dyn Any + Send>;

/// The result of a drain that has ended.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::keyed::KeyedTimers;
///
/// let timers = KeyedTimers::spawn(Builder::new().driver(), |_: &str, _: u32| ())?;
/// timers.insert("draft of 7", 512, Duration::from_secs(30))?;
/// timers.insert("draft of 8", 2048, Duration::from_secs(30))?;
///
/// let save = |draft, bytes| assert!(bytes <= 1024, "{draft} is too long");
/// let drained = pollster::block_on(timers.drain(save));
/// assert_eq!((drained.keys, drained.panics), (2, 1)); // one of them is not saved
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// The number of keys that the function was called with. These are all keys, unless the driver
    /// or the wheel was dropped before the end.
    pub keys: usize,
    /// The number of these calls that panicked.
    pub panics: usize,
}

/// A drain in progress. Created by [`KeyedTimers::drain`](super::KeyedTimers::drain).
///
/// Dropping this value does not stop the drain. As a future, it is ready when the drain has ended,
/// on any runtime. [`wait`](Self::wait) blocks, and helps to run the parts. (Blocking on the future
/// does not help. In a handler, or on the thread that sweeps, it may block forever.)
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::keyed::KeyedTimers;
/// use tourbillon::Builder;
///
/// let timers = KeyedTimers::spawn(Builder::new().driver(), |_: u32, _: String| ())?;
/// timers.insert(7, String::from("unsent"), Duration::from_secs(5))?;
/// let drained = timers.drain(|_, text| assert_eq!(text, "unsent")).wait();
/// assert_eq!((drained.keys, drained.panics), (1, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the drain has not ended yet"]
pub struct Drain {
    parts: Arc<dyn DrainParts>,
}

impl Drain {
    /// Begins a drain of `pairs`. The caller inserts the returned tokens into the wheel.
    pub(super) fn begin<K, V>(
        pairs: Vec<(K, V)>,
        each: impl Fn(K, V) + Send + Sync + 'static,
    ) -> (Self, Vec<DrainToken>)
    where
        K: Send + 'static,
        V: Send + 'static,
    {
        let mut pairs = pairs.into_iter().peekable();
        let mut parts = Vec::new();
        while pairs.peek().is_some() {
            parts.push(pairs.by_ref().take(KEYS_PER_PART).collect());
        }
        let tokens = parts.len();
        let state = DrainState { parts, running: 0, drained: Drained::default(), waker: None };
        let draining =
            DrainWork { each: Box::new(each), state: Mutex::new(state), ended: Condvar::new() };
        let parts: Arc<dyn DrainParts> = Arc::new(draining);
        let tokens = (0..tokens).map(|_| DrainToken(Some(Arc::clone(&parts)))).collect();
        (Self { parts }, tokens)
    }

    /// Blocks until the function has been called for every key. This thread helps: it runs parts
    /// that no handler has begun, and then waits for those in progress.
    ///
    /// It may be called in a handler and by the thread that sweeps, but not by the drain's own
    /// function, which would wait for itself.
    pub fn wait(self) -> Drained {
        loop {
            match self.parts.run() {
                Ok(true) => {}
                Ok(false) => return self.parts.wait(),
                Err(panic) => drop_payload(panic),
            }
        }
    }
}

impl Future for Drain {
    type Output = Drained;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Drained> {
        self.parts.poll(context.waker())
    }
}

impl fmt::Debug for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain").finish_non_exhaustive()
    }
}

/// Permission to run one part of a drain, carried by a timer of the wheel.
pub(super) struct DrainToken(Option<Arc<dyn DrainParts>>);

impl DrainToken {
    /// Runs a part if one is left. Returns the first panic of its calls.
    pub(super) fn run(mut self) -> Result<(), Panic> {
        self.0.take().map_or(Ok(false), |parts| parts.run()).map(drop)
    }

    /// Runs a part, and resumes a panic of its function.
    pub(super) fn run_or_resume(self) {
        self.run().unwrap_or_else(|panic| resume_unwind(panic));
    }

    /// Runs a part. A panic is only counted for the threads that wait for the drain.
    pub(super) fn run_quietly(self) {
        self.run().unwrap_or_else(drop_payload);
    }
}

impl Drop for DrainToken {
    fn drop(&mut self) {
        if let Some(parts) = self.0.take() {
            parts.abandon();
        }
    }
}

/// The parts of a drain, independent of the types of keys and values.
trait DrainParts: Send + Sync {
    /// Runs a part. Returns `false` if none is left, or the first panic of its calls.
    fn run(&self) -> Result<bool, Panic>;
    /// Drops a part if one is left.
    fn abandon(&self);
    /// Waits until no part is left and none is in progress.
    fn wait(&self) -> Drained;
    /// Polls for the end, like [`wait`](Self::wait) without blocking.
    fn poll(&self, waker: &Waker) -> Poll<Drained>;
}

/// The function of a drain, and the parts that it has still to process.
struct DrainWork<K, V> {
    each: Box<dyn Fn(K, V) + Send + Sync>,
    state: Mutex<DrainState<K, V>>,
    ended: Condvar,
}

/// The state under the lock of a drain.
struct DrainState<K, V> {
    /// The parts that were not begun.
    parts: Vec<Vec<(K, V)>>,
    running: usize,
    drained: Drained,
    /// The waker of the task that awaits the end.
    waker: Option<Waker>,
}

impl<K, V> DrainState<K, V> {
    /// Returns `true` if no part is left and none is in progress.
    fn has_ended(&self) -> bool {
        self.parts.is_empty() && self.running == 0
    }
}

impl<K, V> DrainWork<K, V> {
    /// Locks the state. No user code runs under this lock.
    fn state(&self) -> MutexGuard<'_, DrainState<K, V>> {
        ignore_poison(self.state.lock())
    }

    /// Notifies the waiters if the drain has ended.
    fn notify_if_ended(&self, mut state: MutexGuard<'_, DrainState<K, V>>) {
        if !state.has_ended() {
            return;
        }
        let waker = state.waker.take();
        drop(state);
        self.ended.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<K: Send, V: Send> DrainParts for DrainWork<K, V> {
    fn run(&self) -> Result<bool, Panic> {
        let mut state = self.state();
        let Some(part) = state.parts.pop() else {
            return Ok(false);
        };
        state.running += 1;
        drop(state);
        let (keys, mut panics, mut first) = (part.len(), 0, None);
        for (key, value) in part {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.each)(key, value))) {
                panics += 1;
                match first {
                    None => first = Some(panic),
                    Some(_) => drop_payload(panic),
                }
            }
        }
        let mut state = self.state();
        state.running -= 1;
        state.drained.keys += keys;
        state.drained.panics += panics;
        self.notify_if_ended(state);
        first.map_or(Ok(true), Err)
    }

    fn abandon(&self) {
        let mut state = self.state();
        let part = state.parts.pop();
        self.notify_if_ended(state);
        drop(part);
    }

    fn wait(&self) -> Drained {
        let mut state = self.state();
        while !state.has_ended() {
            state = ignore_poison(self.ended.wait(state));
        }
        state.drained
    }

    fn poll(&self, waker: &Waker) -> Poll<Drained> {
        // Cloned and dropped outside the lock, because both run user code.
        let new = waker.clone();
        let mut state = self.state();
        if state.has_ended() {
            return Poll::Ready(state.drained);
        }
        let old = state.waker.replace(new);
        drop(state);
        drop(old);
        Poll::Pending
    }
}
