//! [`Feed`], which loads the keys in the window from the store, fires them with a wheel, and hands
//! them to workers.
//!
//! In a file, all workers of one `DurableTimers` share a feed, so that each key is loaded, fired
//! and leased once, however many workers there are. In Redis, each worker has its own feed because
//! it owns its own partitions.
//!
//! A feed has no thread. Each worker polls it with a waker that wakes all its workers, so a worker
//! whose task is no longer polled delays only its own handlers. The keys that such a worker has
//! taken are offered again after it has missed some checks of the store, see [`Ready`].

#![forbid(unsafe_code)]

use crate::delivery::ready::{HeldWakes, Ready};
use crate::delivery::trim::Trimmer;
use crate::error::DurableError;
use crate::model::clock::Millis;
use crate::model::key::{Key, Page};
use crate::panics::ignore_poison;
use crate::store::window::{MAX_KEYS, Reading, Window};
use crate::store::{Answer, Store};
use futures_util::FutureExt;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tourbillon::future::{DelayQueue, Sleep, Timer};
use tourbillon::{BuildError, Builder, Refusal};

/// How far ahead of now keys are loaded.
const HIGH_WATERMARK: Millis = 10_000;

/// The interval between two checks of the store, and so how long a step of its clock can stay
/// unnoticed.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The feed that workers share, as long as there are workers.
pub(crate) type Shared = Arc<Mutex<Weak<Feed>>>;

/// Loads the keys in the window, fires them, and hands them to its workers.
pub(crate) struct Feed {
    pub(crate) window: Arc<Window>,
    pub(crate) ready: Arc<Ready>,
    store: Arc<dyn Store>,
    timer: Timer,
    /// The feed's number as a member of the store.
    pub(crate) member: u64,
    state: Mutex<FeedState>,
}

struct FeedState {
    queue: DelayQueue<Key>,
    loading: Option<Loading>,
    next_check: Sleep,
    /// Expires when a page has to be requested before the next regular check.
    soon: Option<Sleep>,
    trimmer: Trimmer,
    /// Set if a page is to be requested as soon as no page is pending.
    page_wanted: bool,
    /// Set once the feed has left the store.
    left: bool,
    /// Set if the store was paused at the last page.
    paused: bool,
    /// The number of checks so far.
    checks: u64,
}

/// The state of the store at a check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Condition {
    /// The number of checks so far.
    pub(crate) checks: u64,
    pub(crate) paused: bool,
    /// How many checks a page has been pending. Checks are counted instead of time, so that a step
    /// of the clock, as after the computer has slept, does not count as a wait.
    pub(crate) pending: u64,
}

/// A page that was requested.
struct Loading {
    page: Answer<Page>,
    from: Key,
    asked: Instant,
    /// The number of checks before.
    checks: u64,
}

/// The result of a poll.
#[derive(Debug, Default)]
pub(crate) struct Polled {
    /// Set if there was progress.
    pub(crate) moved: bool,
    /// A key that is out of order, to be reported.
    pub(crate) misplaced: Option<Key>,
}

impl Feed {
    /// Returns the feed of a new worker, which is the shared feed if the workers of that store
    /// share keys.
    pub(crate) async fn join(
        store: &Arc<dyn Store>,
        timer: &Timer,
        shared: &Shared,
    ) -> Result<Arc<Self>, DurableError> {
        let asked = timer.now();
        let now = store.now().await?;
        let now = Reading { store: now, asked, answered: timer.now() };
        if !store.has_shared_keys() {
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
        let queue = DelayQueue::new(timer, Builder::new().shards(1));
        let queue = queue.map_err(|error| match error {
            BuildError::Refused(Refusal::Closed) => DurableError::Closed,
            error => DurableError::Io(error.to_string()),
        })?;
        let window = Arc::new(Window::new(queue.handle(), now));
        let member = store.join(&window);
        let next_check = timer.sleep(CHECK_INTERVAL);
        let state = FeedState {
            queue,
            loading: None,
            next_check,
            soon: None,
            trimmer: Trimmer::new(store.letter_bounds()),
            page_wanted: false,
            left: false,
            paused: false,
            checks: 0,
        };
        Ok(Self {
            window,
            ready: Arc::default(),
            store: Arc::clone(store),
            timer: timer.clone(),
            member,
            state: Mutex::new(state),
        })
    }

    /// Reports to the store that the worker has ended. A shared feed leaves the store when it is
    /// dropped.
    pub(crate) fn leave(&self) -> Answer<()> {
        if self.store.has_shared_keys() {
            return Box::pin(std::future::ready(Ok(())));
        }
        let mut state = self.lock();
        // A pending page would make the worker a member again.
        let loading = state.loading.take();
        state.left = true;
        drop(state);
        drop(loading);
        self.store.leave(self.member)
    }

    /// Returns the state of the store.
    pub(crate) fn condition(&self) -> Condition {
        let state = self.lock();
        let FeedState { checks, paused, .. } = *state;
        let pending = state.loading.as_ref().map_or(0, |loading| checks - loading.checks);
        Condition { checks, paused, pending }
    }

    /// Loads and fires keys until there is no more progress.
    pub(crate) fn poll(&self) -> Result<Polled, DurableError> {
        let mut poll = FeedPoll { state: self.lock(), wakes: self.ready.hold_wakes() };
        let waker = Waker::from(Arc::clone(&self.ready));
        let polled = poll.poll(self, &mut Context::from_waker(&waker));
        if polled.is_err() {
            // The other workers continue, or find the same error.
            self.ready.wake_all();
        }
        polled
    }

    fn lock(&self) -> MutexGuard<'_, FeedState> {
        ignore_poison(self.state.lock())
    }
}

/// One poll of a feed. Fields drop in their order, so the lock is released before workers are
/// woken.
struct FeedPoll<'a> {
    state: MutexGuard<'a, FeedState>,
    #[expect(dead_code, reason = "it acts by its drop")]
    wakes: HeldWakes<'a>,
}

impl FeedPoll<'_> {
    fn poll(&mut self, feed: &Feed, context: &mut Context<'_>) -> Result<Polled, DurableError> {
        let mut polled = Polled::default();
        loop {
            let mut moved = self.poll_page(feed, context, &mut polled)?;
            moved |= self.poll_fired(feed, context)?;
            moved |= self.poll_check(feed, context)?;
            moved |= self.ask_for_page(feed, context)?;
            self.state.trimmer.poll(context);
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
            self.state.paused = page.paused;
            // Each page may contain it again, but it is reported once a minute.
            if let Some(key) = page.misplaced.take()
                && feed.window.plan_reload(feed.timer.now())
            {
                polled.misplaced = Some(key);
            }
            let now = Reading { store: page.now, asked, answered: feed.timer.now() };
            feed.window.end_page(page, &from, now);
        }
        Ok(true)
    }

    /// Takes fired keys out of the wheel, as far as there is room.
    fn poll_fired(&mut self, feed: &Feed, context: &mut Context<'_>) -> Result<bool, DurableError> {
        let (mut keys, room) = (Vec::new(), MAX_KEYS.saturating_sub(feed.ready.len()));
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

    /// Checks the store at intervals, even while a page is pending.
    fn poll_check(&mut self, feed: &Feed, context: &mut Context<'_>) -> Result<bool, DurableError> {
        let state = &mut *self.state;
        let Poll::Ready(slept) = Pin::new(&mut state.next_check).poll(context) else {
            return Ok(false);
        };
        // Also after a refusal, because the sleep would repeat it to the next worker.
        state.next_check.reset_after(CHECK_INTERVAL);
        slept.map_err(DurableError::Timer)?;
        state.page_wanted = true;
        state.checks += 1;
        feed.ready.count_check();
        state.trimmer.count_check(&feed.store);
        Ok(true)
    }

    /// Requests the next page at each check, and earlier when keys run low.
    fn ask_for_page(
        &mut self,
        feed: &Feed,
        context: &mut Context<'_>,
    ) -> Result<bool, DurableError> {
        let state = &mut *self.state;
        state.page_wanted |= feed.window.poll_check_requested(context);
        if let Some(wait) = feed.window.take_check_after() {
            state.soon.get_or_insert_with(|| feed.timer.sleep(wait));
        }
        if let Some(soon) = &mut state.soon
            && Pin::new(soon).poll(context).is_ready()
        {
            (state.soon, state.page_wanted) = (None, true);
        }
        let asked = feed.timer.now();
        let (armed, from, now) = feed.window.state(asked);
        let here = armed + feed.ready.len();
        let wanted = here < MAX_KEYS / 2 && from.0 < now + HIGH_WATERMARK / 2;
        if state.loading.is_some() || !(state.page_wanted || wanted) {
            return Ok(false);
        }
        state.page_wanted = false;
        let (until, limit) = (now + HIGH_WATERMARK, MAX_KEYS.saturating_sub(here).max(1));
        feed.window.begin_page();
        let page = feed.store.load(feed.member, from.clone(), until, limit);
        state.loading = Some(Loading { page, from, asked, checks: state.checks });
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
            // The store executes this although its future is dropped.
            drop(self.store.leave(self.member));
        }
    }
}
