//! Unit tests of attempts.

#![forbid(unsafe_code)]

use super::*;
use crate::delivery::permits::Permits;
use crate::delivery::ready::{Ready, Registration};
use crate::embedded::Embedded;
use crate::model::clock::StoreClock;
use crate::model::key::{Key, Page};
use crate::model::options::{Existing, Options};
use crate::panics::ignore_poison;
use crate::store::options::StoreOptions;
use crate::store::{Due, Insert};
use pollster::block_on;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::UNIX_EPOCH;
use tourbillon::future::{DelayQueue, SleepWaker};
use tourbillon::{Builder, ManualClock, Sweeper};

/// A store clock that advances by the duration of a lease, less this many milliseconds, with each
/// reading.
#[derive(Clone, Debug)]
struct Slow {
    clock: ManualClock,
    less: Millis,
}

const LEASE: Millis = 5000;

impl StoreClock for Slow {
    fn now(&self) -> SystemTime {
        let now = self.clock.wall();
        self.clock.advance(Duration::from_millis(LEASE - self.less));
        now
    }
}

/// A worker whose store has a due timer.
struct Trial {
    path: PathBuf,
    store: Arc<Embedded>,
    attempts: Arc<Attempts>,
    outcomes: Arc<Mutex<Vec<Outcome>>>,
    calls: Arc<AtomicUsize>,
    /// Dropped to ask the worker to end, and to stop its handlers.
    _end: Option<oneshot::Sender<()>>,
    _cut: oneshot::Sender<()>,
    /// Kept because a timer without a sweeper is closed.
    _sweeper: Sweeper<SleepWaker>,
    _queue: DelayQueue<Key>,
}

impl Trial {
    /// Creates a worker, which may be ending. Its store's clock advances as [`Slow`] does.
    fn new(name: &str, less: Millis, ends: bool) -> Result<Self, Box<dyn std::error::Error>> {
        let name = format!("tourbillon-attempt-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let clock = ManualClock::new();
        clock.set_wall(UNIX_EPOCH + Duration::from_secs(1));
        let slow = Slow { clock: clock.clone(), less };
        let store = Arc::new(Embedded::open_with(&path, StoreOptions::new().clock(slow))?);
        let (wheel, sweeper) = Builder::new().clock(clock).build()?;
        let timer = Timer::new(wheel);
        let queue = DelayQueue::new(&timer, Builder::new().shards(1))?;
        let now = Reading { store: 0, asked: timer.now(), answered: timer.now() };
        let settings = Options::new().lease(Duration::from_millis(LEASE)).settings;
        let (id, payload, existing) = ("id".to_owned(), Arc::default(), Existing::Keep);
        let insert = Insert { id, payload, due: Due::At(0), existing, over: None, settings };
        block_on(store.insert(insert))?;

        let (outcomes, calls) = (Arc::<Mutex<Vec<Outcome>>>::default(), Arc::default());
        let (seen, called) = (Arc::clone(&outcomes), Arc::<AtomicUsize>::clone(&calls));
        let ((end, ending), (cut, is_cut)) = (oneshot::channel(), oneshot::channel());
        let observe = move |event: &Event| {
            if let Event::Attempt(attempt) = event {
                ignore_poison(seen.lock()).push(attempt.outcome.clone());
            }
        };
        let attempts = Arc::new(Attempts {
            store: Arc::<Embedded>::clone(&store),
            worker: 0,
            timer,
            window: Arc::new(Window::new(queue.handle(), now)),
            handle: Box::new(move |_| {
                called.fetch_add(1, Relaxed);
                Box::pin(std::future::ready(Verdict::Done))
            }),
            reporter: Reporter { observe: Some(Box::new(observe)), ..Reporter::default() },
            overdue: AtomicUsize::new(0),
            ending: ending.shared(),
            cut: is_cut.shared(),
            time_limit: Duration::from_secs(1),
            places: 1,
        });
        Ok(Self {
            path,
            store,
            attempts,
            outcomes,
            calls,
            _end: (!ends).then_some(end),
            _cut: cut,
            _sweeper: sweeper,
            _queue: queue,
        })
    }

    /// Delivers the timer, whose key has fired.
    fn deliver(&self) -> Result<(), Box<dyn std::error::Error>> {
        let permit = Arc::new(Permits::new(1)).try_acquire().ok_or("a permit")?;
        let ready = Arc::new(Ready::default());
        ready.extend(vec![(0, Arc::from("id"))]);
        let claim = Registration::new(&ready).take().ok_or("a key")?;
        Ok(block_on(Arc::clone(&self.attempts).deliver(claim, permit))?)
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

type Delivered = (Vec<Outcome>, usize, Option<u32>);

/// Runs a delivery whose lease is granted late, by a worker that may be ending. Returns its
/// outcomes, the number of handler calls, and the number of attempts that are counted.
fn delivered(less: Millis, ends: bool) -> Result<Delivered, Box<dyn std::error::Error>> {
    let trial = Trial::new(&format!("{less}-{ends}"), less, ends)?;
    trial.deliver()?;
    let counted = block_on(trial.store.get("id"))?.map(|record| record.attempt);
    let outcomes = ignore_poison(trial.outcomes.lock()).clone();
    Ok((outcomes, trial.calls.load(Relaxed), counted))
}

#[test]
fn a_worker_that_comes_late_begins_nothing() -> Result<(), Box<dyn std::error::Error>> {
    assert_eq!(delivered(1, false)?, (vec![Outcome::Acknowledged], 1, None));
    let (outcomes, calls, counted) = delivered(0, false)?;
    assert!(matches!(&outcomes[..], [Outcome::Retry { error, .. }] if error == RAN_OUT));
    assert_eq!((calls, counted), (0, Some(1)));
    Ok(())
}

#[test]
fn a_worker_that_ends_gives_back_what_it_has_not_begun() -> Result<(), Box<dyn std::error::Error>> {
    // The clock stands still.
    assert_eq!(delivered(LEASE, true)?, (vec![Outcome::GivenBack], 0, Some(0)));
    Ok(())
}

#[test]
fn a_key_that_a_paused_store_refuses_is_loaded_again_soon() -> Result<(), Box<dyn std::error::Error>>
{
    // The clock stands still.
    let trial = Trial::new("paused", LEASE, false)?;
    block_on(trial.store.pause(true))?;
    let Attempts { timer, window, .. } = &*trial.attempts;
    let now = timer.now();
    let (_, from, store) = window.state(now);
    let page = Page { now: store, until: 1000, ..Page::default() };
    window.begin_page();
    window.end_page(page, &from, Reading { store, asked: now, answered: now });
    trial.deliver()?;
    let low_watermark = |after| window.state(now + Duration::from_millis(after)).1.0;
    assert_eq!((low_watermark(999), low_watermark(1000)), (1001, 0));
    assert_eq!(trial.calls.load(Relaxed), 0);
    Ok(())
}
