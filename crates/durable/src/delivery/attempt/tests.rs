//! Unit tests of attempts.

#![forbid(unsafe_code)]

use super::*;
use crate::delivery::permits::Permits;
use crate::delivery::ready::{Ready, Registration};
use crate::embedded::Embedded;
use crate::model::clock::StoreClock;
use crate::model::options::{Existing, Options};
use crate::panics::ignore_poison;
use crate::store::options::StoreOptions;
use crate::store::{Due, Insert};
use pollster::block_on;
use std::sync::Mutex;
use std::time::UNIX_EPOCH;
use tourbillon::future::DelayQueue;
use tourbillon::{Builder, ManualClock};

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

type Delivered = (Vec<Outcome>, usize, Option<u32>);

/// Runs a delivery whose lease is granted late, by a worker that may be ending. Returns its
/// outcomes, the number of handler calls, and the number of attempts that are counted.
fn delivered(less: Millis, ends: bool) -> Result<Delivered, Box<dyn std::error::Error>> {
    let name = format!("tourbillon-late-{less}-{ends}-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let clock = ManualClock::new();
    clock.set_wall(UNIX_EPOCH + Duration::from_secs(1));
    let store =
        Embedded::open_with(&path, StoreOptions::new().clock(Slow { clock: clock.clone(), less }))?;
    let (wheel, _sweeper) = Builder::new().clock(clock).build()?;
    let timer = Timer::new(wheel);
    let queue = DelayQueue::new(&timer, Builder::new().shards(1))?;
    let now = Reading { store: 0, asked: timer.now(), answered: timer.now() };
    let settings = Options::new().lease(Duration::from_millis(LEASE)).settings;
    let (id, payload, existing) = ("id".to_owned(), Arc::default(), Existing::Keep);
    let insert = Insert { id, payload, due: Due::At(0), existing, over: None, settings };
    block_on(store.insert(insert))?;

    let (outcomes, calls) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
    let (seen, called) = (Arc::clone(&outcomes), Arc::clone(&calls));
    let ((end, ending), (_cut, is_cut)) = (oneshot::channel(), oneshot::channel());
    let _end = (!ends).then_some(end);
    let store = Arc::new(store);
    let observe = move |event: &Event| {
        if let Event::Attempt(attempt) = event {
            ignore_poison(seen.lock()).push(attempt.outcome.clone());
        }
    };
    let attempts = Attempts {
        store: Arc::<Embedded>::clone(&store),
        worker: 0,
        timer,
        window: Arc::new(Window::new(queue.handle(), now)),
        handle: Box::new(move |_| {
            *ignore_poison(called.lock()) += 1;
            Box::pin(std::future::ready(Verdict::Done))
        }),
        reporter: Reporter { observe: Some(Box::new(observe)), ..Reporter::default() },
        overdue: AtomicUsize::new(0),
        ending: ending.shared(),
        cut: is_cut.shared(),
        time_limit: Duration::from_secs(1),
        places: 1,
    };
    let permit = Arc::new(Permits::new(1)).try_acquire().ok_or("a permit")?;
    let ready = Arc::new(Ready::default());
    ready.extend(vec![(0, Arc::from("id"))]);
    let claim = Registration::new(&ready).take().ok_or("a key")?;
    block_on(Arc::new(attempts).deliver(claim, permit))?;
    let counted = block_on(store.get("id"))?.map(|record| record.attempt);
    let _ = std::fs::remove_file(path);
    let outcomes = ignore_poison(outcomes.lock()).clone();
    let calls = *ignore_poison(calls.lock());
    Ok((outcomes, calls, counted))
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
