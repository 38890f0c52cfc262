//! [`Contents`], the timers and dead letters of a store, to be compared with its copy.

use crate::Arguments;
use futures_channel::oneshot;
use futures_util::future::try_join_all;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::{Duration, SystemTime};
use tourbillon_durable::{DurableTimers, Misfire, Options};

/// The number of timers that are inserted at a time.
const AT_ONCE: usize = 4096;

/// The distance between two timers that are paused.
const PAUSED: usize = 101;

const DAY: Duration = Duration::from_secs(86_400);

/// A store. Each record is kept as a hash.
#[derive(Debug, PartialEq)]
pub(crate) struct Contents {
    timers: HashMap<String, u64>,
    /// In the order of the store, each with the time when it was given up.
    letters: Vec<(SystemTime, u64)>,
}

fn hash(value: &impl std::fmt::Debug) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(format!("{value:?}"))
}

impl Contents {
    pub(crate) async fn of(store: &DurableTimers) -> Self {
        let (mut timers, mut letters) = (HashMap::new(), Vec::new());
        let mut last = None;
        loop {
            let page = store.list(last.as_deref(), 1000).await.unwrap();
            let Some(timer) = page.last() else { break };
            last = Some(timer.id.clone());
            for timer in page {
                let value = hash(&timer);
                assert_eq!(timers.insert(timer.id, value), None, "a timer is there twice");
            }
        }
        let mut last = None;
        loop {
            let page = store.dead_letters(last, 1000).await.unwrap();
            let Some(letter) = page.last() else { break };
            last = Some(letter.number);
            // Numbers change.
            letters.extend(page.into_iter().map(|mut letter| {
                letter.number = 0;
                (letter.died, hash(&letter))
            }));
        }
        let found = (timers.len() as u64, letters.len() as u64);
        let counted = (store.len().await.unwrap(), store.dead_len().await.unwrap());
        assert_eq!(found, counted, "the store counts as many as it has");
        assert!(letters.is_sorted_by_key(|(died, _)| *died), "dead letters are out of order");
        Self { timers, letters }
    }

    pub(crate) fn timers(&self) -> usize {
        self.timers.len()
    }

    pub(crate) fn letters(&self) -> usize {
        self.letters.len()
    }

    /// Fails if a timer or a dead letter is lost, doubled or changed.
    pub(crate) fn compare(&self, copy: &Self) {
        let lost = self.timers.iter().filter(|(id, _)| !copy.timers.contains_key(*id)).count();
        let other = copy.timers.iter().filter(|(id, value)| self.timers.get(*id) != Some(value));
        assert_eq!((lost, other.count()), (0, 0), "timers that are lost, and new or changed");
        // Letters of one time may change places.
        let sorted = |letters: &[(SystemTime, u64)]| {
            let mut letters = letters.to_vec();
            letters.sort_unstable();
            letters
        };
        assert!(sorted(&self.letters) == sorted(&copy.letters), "dead letters are not the same");
    }
}

/// Makes dead letters, some of timers that repeat, and then timers. Some of these repeat, some have
/// other options, and some are paused.
pub(crate) async fn fill(timers: &DurableTimers, arguments: &Arguments) {
    bury(timers, arguments).await;
    insert(timers, arguments.timers, |number| {
        let options = Options::new().header("number", number.to_string());
        let options = match number % 4 {
            0 => options.every(DAY).misfire(Misfire::SkipAfter(Duration::from_secs(3600))),
            1 => options.attempts(7).lease(Duration::from_secs(60)).time_to_live(30 * DAY),
            _ => options,
        };
        let delay = DAY + Duration::from_millis(100) * u32::try_from(number).unwrap();
        (format!("timer {number}"), vec![7; arguments.payload], delay, options)
    })
    .await;
    let paused: Vec<String> =
        (0..arguments.timers).step_by(PAUSED).map(|number| format!("timer {number}")).collect();
    for some in paused.chunks(AT_ONCE) {
        try_join_all(some.iter().map(|id| timers.pause_timer(id))).await.unwrap();
    }
}

/// Makes dead letters by a worker whose handlers fail.
async fn bury(timers: &DurableTimers, arguments: &Arguments) {
    let (end, ended) = oneshot::channel::<()>();
    let worker = timers.worker().until(async {
        let _ = ended.await;
    });
    let running = tokio::spawn(worker.run(|_| async { Err::<(), _>("there is no such customer") }));
    insert(timers, arguments.letters, |number| {
        let options = Options::new().attempts(1);
        let options = if number.is_multiple_of(4) { options.every(DAY) } else { options };
        (format!("dead {number}"), vec![8; arguments.payload], Duration::ZERO, options)
    })
    .await;
    while timers.dead_len().await.unwrap() < arguments.letters as u64 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(end);
    running.await.unwrap().unwrap();
}

async fn insert(
    timers: &DurableTimers,
    count: usize,
    timer: impl Fn(usize) -> (String, Vec<u8>, Duration, Options),
) {
    for begin in (0..count).step_by(AT_ONCE) {
        let some = (begin..count.min(begin + AT_ONCE)).map(|number| {
            let (id, payload, delay, options) = timer(number);
            async move { timers.insert(&id, payload, delay, options).await }
        });
        try_join_all(some).await.unwrap();
    }
}
