//! [`Feed`]: loads near keys from the store, fires them by a wheel, and hands them to workers.
//!
//! In a file, all workers of one `DurableTimers` share a feed: each key is loaded, fired and
//! leased once, however many workers there are. In Redis, each worker has a feed of its own,
//! because it owns partitions of its own.
//!
//! A feed has no thread. Each worker polls it with a waker that wakes all its workers, so that a
//! worker whose task is not polled any more delays nothing but its own handlers. The keys that such
//! a worker has taken are offered again when it has missed some looks at the store, see [`Ready`].

#![forbid(unsafe_code)]

use super::clock::Millis;
use super::error::DurableError;
use super::key::{Key, Page};
use super::ready::{HeldWakes, Ready};
use super::store::{Answer, Store};
use super::window::{MOST, Reading, Window};
use crate::panics::ignore_poison;
use futures_util::FutureExt;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tourbillon::Builder;
use tourbillon::future::{DelayQueue, Sleep, Timer};

/// How far ahead keys are loaded.
const HIGH_WATERMARK: Millis = 10_000;

/// How often the store is looked at: how long a step of its clock stays unnoticed.
const LOOK: Duration = Duration::from_secs(1);

/// The feed that workers share, while there are any.
pub(super) type Shared = Arc<Mutex<Weak<Feed>>>;

/// Loads near keys, fires them, and hands them to its workers.
pub(super) struct Feed {
    pub(super) window: Arc<Window>,
    pub(super) ready: Arc<Ready>,
    store: Arc<dyn Store>,
    timer: Timer,
    /// The number of the feed's member of the store.
    pub(super) member: u64,
    state: Mutex<FeedState>,
}

struct FeedState {
    queue: DelayQueue<Key>,
    loading: Option<Loading>,
    look: Sleep,
    /// A page is to be asked for as soon as none is on its way.
    hasty: bool,
    /// Set once the store has been asked to let the member leave.
    left: bool,
}

/// A page that has been asked for.
struct Loading {
    page: Answer<Page>,
    from: Key,
    asked: Instant,
}

/// The result of a poll.
#[derive(Debug, Default)]
pub(super) struct Polled {
    /// Set if something has happened.
    pub(super) moved: bool,
    /// A key that is not in order, to be reported.
    pub(super) misplaced: Option<Key>,
}

impl Feed {
    /// Returns the feed of a new worker: the shared one, if the workers of that store share it.
    pub(super) async fn join(
        store: &Arc<dyn Store>,
        timer: &Timer,
        shared: &Shared,
    ) -> Result<Arc<Self>, DurableError> {
        let asked = timer.now();
        let now = store.now().await?;
        let now = Reading { store: now, asked, answered: timer.now() };
        if !store.shares_keys() {
            return Ok(Arc::new(Self::new(store, timer, now)?));
        }
        let mut shared = ignore_poison(shared.lock());
        if let Some(feed) = shared.upgrade() {
            return Ok(feed);
        }
        let feed = Arc::new(Self::new(store, timer, now)?);
        *shared = Arc::downgrade(&feed);
        Ok(feed)
    }

    fn new(store: &Arc<dyn Store>, timer: &Timer, now: Reading) -> Result<Self, DurableError> {
        let queue = DelayQueue::new(timer, Builder::new().shards(1))
            .map_err(|error| DurableError::Io(error.to_string()))?;
        let window = Arc::new(Window::new(queue.handle(), now));
        let member = store.join(&window);
        let look = timer.sleep(LOOK);
        let state = FeedState { queue, loading: None, look, hasty: false, left: false };
        Ok(Self {
            window,
            ready: Arc::default(),
            store: Arc::clone(store),
            timer: timer.clone(),
            member,
            state: Mutex::new(state),
        })
    }

    /// Tells the store that the worker ends. A feed that is shared leaves when it is dropped.
    pub(super) fn leave(&self) -> Answer<()> {
        if self.store.shares_keys() {
            return Box::pin(std::future::ready(Ok(())));
        }
        let mut state = self.lock();
        // A page that is asked for would make the worker a member again.
        let loading = state.loading.take();
        state.left = true;
        drop(state);
        drop(loading);
        self.store.leave(self.member)
    }

    /// Loads and fires what can be.
    pub(super) fn poll(&self) -> Result<Polled, DurableError> {
        let mut turn = Turn { state: self.lock(), wakes: self.ready.hold_wakes() };
        let waker = Waker::from(Arc::clone(&self.ready));
        let polled = turn.poll(self, &mut Context::from_waker(&waker));
        if polled.is_err() {
            // The others go on, or find the same error.
            self.ready.wake_all();
        }
        polled
    }

    fn lock(&self) -> MutexGuard<'_, FeedState> {
        ignore_poison(self.state.lock())
    }
}

/// One poll of a feed. Fields drop in their order: the lock goes, then workers are woken.
struct Turn<'a> {
    state: MutexGuard<'a, FeedState>,
    #[expect(dead_code, reason = "it acts by its drop")]
    wakes: HeldWakes<'a>,
}

impl Turn<'_> {
    fn poll(&mut self, feed: &Feed, context: &mut Context<'_>) -> Result<Polled, DurableError> {
        let mut polled = Polled::default();
        loop {
            let mut moved = self.poll_page(feed, context, &mut polled)?;
            moved |= self.poll_fired(feed, context)?;
            moved |= self.poll_look(feed, context)?;
            moved |= self.ask_for_page(feed, context)?;
            if !moved {
                return Ok(polled);
            }
            polled.moved = true;
        }
    }

    fn poll_page(
        &mut self,
        feed: &Feed,
        context: &mut Context<'_>,
        polled: &mut Polled,
    ) -> Result<bool, DurableError> {
        let loading = &mut self.state.loading;
        let Some(Loading { page, .. }) = loading else { return Ok(false) };
        let Poll::Ready(page) = page.poll_unpin(context) else { return Ok(false) };
        if let Some(Loading { from, asked, .. }) = loading.take() {
            let mut page = page?;
            // Each page may show it again; it is reported once a minute.
            if let Some(key) = page.misplaced.take()
                && feed.window.unreadable(feed.timer.now())
            {
                polled.misplaced = Some(key);
            }
            let now = Reading { store: page.now, asked, answered: feed.timer.now() };
            feed.window.end(page, &from, now);
        }
        Ok(true)
    }

    /// Takes what has fired out of the wheel, as far as there is room.
    fn poll_fired(&mut self, feed: &Feed, context: &mut Context<'_>) -> Result<bool, DurableError> {
        let (mut keys, room) = (Vec::new(), MOST.saturating_sub(feed.ready.len()));
        while keys.len() < room {
            match self.state.queue.poll_expired(context) {
                Poll::Ready(Some(fired)) => {
                    feed.window.fired(&fired.value, fired.id);
                    keys.push(fired.value);
                }
                Poll::Ready(None) => return Err(DurableError::Closed),
                Poll::Pending => break,
            }
        }
        let moved = !keys.is_empty();
        feed.ready.extend(keys);
        Ok(moved)
    }

    /// Looks at the store now and then, also while a page is on its way.
    fn poll_look(&mut self, feed: &Feed, context: &mut Context<'_>) -> Result<bool, DurableError> {
        let state = &mut *self.state;
        let Poll::Ready(slept) = Pin::new(&mut state.look).poll(context) else { return Ok(false) };
        // Also after a refusal, which the sleep would repeat to the next worker.
        state.look.reset_after(LOOK);
        slept.map_err(DurableError::Timer)?;
        state.hasty = true;
        feed.ready.look();
        Ok(true)
    }

    /// Asks for the next keys at each look, and whenever much of what was loaded has gone.
    fn ask_for_page(
        &mut self,
        feed: &Feed,
        context: &mut Context<'_>,
    ) -> Result<bool, DurableError> {
        let state = &mut *self.state;
        state.hasty |= feed.window.poll_haste(context);
        let asked = feed.timer.now();
        let (armed, from, now) = feed.window.state(asked);
        let here = armed + feed.ready.len();
        let wanted = here < MOST / 2 && from.0 < now + HIGH_WATERMARK / 2;
        if state.loading.is_some() || !(state.hasty || wanted) {
            return Ok(false);
        }
        state.hasty = false;
        let (until, limit) = (now + HIGH_WATERMARK, MOST.saturating_sub(here).max(1));
        feed.window.begin();
        let page = feed.store.load(feed.member, from.clone(), until, limit);
        state.loading = Some(Loading { page, from, asked });
        Ok(true)
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").field("member", &self.member).finish_non_exhaustive()
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        if !self.lock().left {
            // It is done though nothing waits for the answer.
            drop(self.store.leave(self.member));
        }
    }
}
