//! [`Drain`]: keys that were taken out together, handed to a function in parts.
//!
//! For each part a [`DrainToken`] lies in the wheel and comes through the executor like every other
//! timer; whoever it comes to runs one part, whichever. So does whoever waits for the drain, and
//! then finds parts run by others at most, never by nobody: waiting cannot deadlock where no
//! executor is free or nothing sweeps. A token that nobody can run any more is dropped, and takes
//! a part along. There are as many tokens as parts, so that with the last token the last part has
//! gone, one way or another, and the drain has ended.

#![forbid(unsafe_code)]

use crate::panics::discard;
use crate::panics::ignore_poison;
use crate::sync::{Condvar, Mutex, MutexGuard};
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// How many keys a part holds: enough to make its way through the executor cheap, few enough to
/// share the work.
const PART: usize = 256;

type Panic = Box<dyn Any + Send>;

/// What became of a drain that has ended.
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
    /// For how many keys the function was called: all, unless the driver or the wheel was dropped
    /// with some still to come.
    pub keys: usize,
    /// How many of these calls panicked.
    pub panics: usize,
}

/// A drain under way; made by [`KeyedTimers::drain`](super::KeyedTimers::drain).
///
/// It goes on if this is dropped. As a future it is ready when the drain has ended, on any
/// runtime; [`wait`](Self::wait) blocks, and lends a hand. (Blocking on the future does not: in a
/// handler, or on the thread that sweeps, it may wait for ever.)
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
    /// Begins a drain of `pairs`; the tokens are to be put into the wheel.
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
            parts.push(pairs.by_ref().take(PART).collect());
        }
        let tokens = parts.len();
        let state = DrainState { parts, running: 0, drained: Drained::default(), waker: None };
        let draining =
            DrainWork { each: Box::new(each), state: Mutex::new(state), ended: Condvar::new() };
        let parts: Arc<dyn DrainParts> = Arc::new(draining);
        let tokens = (0..tokens).map(|_| DrainToken(Some(Arc::clone(&parts)))).collect();
        (Self { parts }, tokens)
    }

    /// Waits until the function has been called for every key. This thread lends a hand: it runs
    /// parts that no handler has begun, and then waits for those that some have.
    ///
    /// It may be called in a handler, and by the thread that sweeps; not by the drain's own
    /// function, which would wait for itself.
    pub fn wait(self) -> Drained {
        loop {
            match self.parts.run() {
                Ok(true) => {}
                Ok(false) => return self.parts.wait(),
                Err(panic) => discard(panic),
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

/// Lies in the wheel for one part of a drain.
pub(super) struct DrainToken(Option<Arc<dyn DrainParts>>);

impl DrainToken {
    /// Runs a part, if one is left. The first panic of its calls comes back.
    pub(super) fn run(mut self) -> Result<(), Panic> {
        self.0.take().map_or(Ok(false), |parts| parts.run()).map(drop)
    }

    /// Runs a part, and resumes a panic of its function.
    pub(super) fn run_or_resume(self) {
        self.run().unwrap_or_else(|panic| resume_unwind(panic));
    }

    /// Runs a part where nobody is to be told of a panic but whoever waits for the drain.
    pub(super) fn run_quietly(self) {
        self.run().unwrap_or_else(discard);
    }
}

impl Drop for DrainToken {
    fn drop(&mut self) {
        if let Some(parts) = self.0.take() {
            parts.abandon();
        }
    }
}

/// A drain's parts, whatever their keys and values are.
trait DrainParts: Send + Sync {
    /// Runs a part: `false` if none is left. The first panic of its calls is the error.
    fn run(&self) -> Result<bool, Panic>;
    /// Drops a part, if one is left.
    fn abandon(&self);
    /// Waits until no part is left and none is running.
    fn wait(&self) -> Drained;
    /// As [`wait`](Self::wait), without blocking.
    fn poll(&self, waker: &Waker) -> Poll<Drained>;
}

struct DrainWork<K, V> {
    each: Box<dyn Fn(K, V) + Send + Sync>,
    state: Mutex<DrainState<K, V>>,
    ended: Condvar,
}

struct DrainState<K, V> {
    /// Those that nobody has begun.
    parts: Vec<Vec<(K, V)>>,
    running: usize,
    drained: Drained,
    /// Of whoever awaits the end.
    waker: Option<Waker>,
}

impl<K, V> DrainState<K, V> {
    fn has_ended(&self) -> bool {
        self.parts.is_empty() && self.running == 0
    }
}

impl<K, V> DrainWork<K, V> {
    /// The state: no call of user code is made under its lock.
    fn state(&self) -> MutexGuard<'_, DrainState<K, V>> {
        ignore_poison(self.state.lock())
    }

    /// Tells whoever waits, if this was the end.
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
                    Some(_) => discard(panic),
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
        // Cloned and dropped outside of the lock: both are the user's code.
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
