//! [`Story`], the requests for one timer with their replies, and the outcomes that are therefore
//! allowed.
//!
//! A call that fails with `Unreachable` may have been executed. It is repeated, but never so that
//! the same delivery could be planned a second time after it was acknowledged, because each time is
//! used once.

use crate::Failure;
use crate::log::{id, millis};
use crate::plan::{Change, LEASE, Life, Task};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tourbillon_durable::{
    Backoff, Cancelled as Reply, DurableError, DurableTimers, Existing, Inserted, Options, Refused,
    TimerState,
};

/// The delay to a time that is planned in place of another.
const AHEAD: u64 = 1_000;

/// The required outcome of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It must end.
    Due,
    /// It must end, or never existed.
    Perhaps,
    /// It was cancelled or moved by then. No attempt begins later, and none has been acknowledged.
    Gone(u64),
    /// It was cancelled while an attempt was running, which is the last one. It is acknowledged or
    /// gone, and not a dead letter.
    Last,
    /// It was replaced. No attempt is acknowledged, though one may still begin.
    Replaced,
}

/// The result of a cancel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cancelled {
    #[default]
    No,
    Yes,
    /// It ends with the attempt that was running.
    Running,
    /// It may have been executed by a call without a reply.
    Perhaps,
}

/// The requests for one timer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story {
    /// The interval of its repetition.
    pub(crate) every: Option<u64>,
    /// Its deliveries by their planned times, without those that follow from a repetition.
    pub(crate) deliveries: Vec<(u64, Fate)>,
    pub(crate) cancelled: Cancelled,
    /// The period when it was paused and not running.
    pub(crate) paused: Option<(u64, u64)>,
    /// The number of calls without a reply.
    pub(crate) unanswered: u64,
}

fn now() -> u64 {
    millis(SystemTime::now())
}

fn time(millis: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(millis)
}

async fn sleep_until(at: u64) {
    sleep(Duration::from_millis(at.saturating_sub(now()))).await;
}

/// Runs the life of one timer, which begins at `start`. `calls` limits the number of concurrent
/// calls.
pub(crate) async fn live(
    timers: DurableTimers,
    timer: usize,
    life: Life,
    start: u64,
    calls: &Semaphore,
) -> Result<Story, Failure> {
    let every = life.repetition.map(|it| it.every);
    let until = life.repetition.map(|it| start + life.planned + it.every * it.times);
    let task = Task { handling: life.handling, until };
    let story = Story { every, ..Story::default() };
    let mut telling = Telling { timers, id: id(timer), task, story };
    sleep_until(start + life.scheduled).await;
    let call = calls.acquire().await?;
    telling.insert(start + life.planned).await?;
    drop(call);
    if let Some((at, change)) = life.change {
        sleep_until(start + at).await;
        let call = calls.acquire().await?;
        match change {
            Change::Cancel => telling.cancel().await?,
            Change::Move(to) => telling.move_to(start + to).await?,
            Change::Replace(by) => telling.replace(start + by).await?,
            Change::Pause(until) => {
                let since = telling.pause().await?;
                drop(call);
                sleep_until(start + until).await;
                let _call = calls.acquire().await?;
                telling.resume(since).await?;
            }
        }
    }
    Ok(telling.story)
}

struct Telling {
    timers: DurableTimers,
    id: String,
    task: Task,
    story: Story,
}

impl Telling {
    /// Returns the reply to a call, or `None` if it may or may not have been executed.
    fn answer<T, E>(&mut self, answer: Result<T, E>) -> Result<Option<T>, Failure>
    where
        DurableError: From<E>,
    {
        match answer.map_err(DurableError::from) {
            Ok(answer) => Ok(Some(answer)),
            Err(DurableError::Unreachable(_)) => {
                self.story.unanswered += 1;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn settle(&mut self, fate: Fate) {
        for (_, old) in &mut self.story.deliveries {
            // A delivery that may have existed may also have been acknowledged.
            if *old == Fate::Due {
                *old = fate;
            }
        }
    }

    async fn put(
        &self,
        planned: u64,
        existing: Existing,
    ) -> Result<Inserted, Refused<DurableError, Vec<u8>>> {
        let payload = serde_json::to_vec(&self.task).unwrap_or_default();
        let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1)).jitter();
        let options = Options::new().lease(LEASE).backoff(backoff).existing(existing);
        let mut options = options.attempts(self.task.handling.attempts());
        if let Some(every) = self.story.every {
            options = options.every(Duration::from_millis(every));
        }
        self.timers.insert(&self.id, payload, time(planned), options).await
    }

    async fn state(&mut self) -> Result<Option<TimerState>, Failure> {
        loop {
            let found = self.timers.get(&self.id).await;
            if let Some(found) = self.answer(found)? {
                return Ok(found.map(|found| found.state));
            }
        }
    }

    async fn insert(&mut self, mut planned: u64) -> Result<(), Failure> {
        loop {
            let scheduled = self.put(planned, Existing::Keep).await;
            let scheduled = self.answer(scheduled)?;
            let sure = self.story.deliveries.is_empty() && scheduled.is_some();
            let fate = if sure { Fate::Due } else { Fate::Perhaps };
            self.story.deliveries.push((planned, fate));
            if scheduled.is_some() || self.state().await?.is_some() {
                return Ok(());
            }
            planned = (planned + 1).max(now() + AHEAD);
        }
    }

    async fn cancel(&mut self) -> Result<(), Failure> {
        let before = self.story.unanswered;
        let cancelled = loop {
            let cancelled = self.timers.cancel(&self.id).await;
            if let Some(cancelled) = self.answer(cancelled)? {
                break cancelled;
            }
        };
        self.story.cancelled = match cancelled {
            Reply::Removed => {
                self.settle(Fate::Gone(now()));
                Cancelled::Yes
            }
            Reply::Running => {
                self.settle(Fate::Last);
                Cancelled::Running
            }
            _ if self.story.unanswered > before => {
                self.settle(Fate::Perhaps);
                Cancelled::Perhaps
            }
            _ => Cancelled::No,
        };
        Ok(())
    }

    /// Pauses the timer. Returns the time when attempts may no longer begin, unless one was
    /// running.
    async fn pause(&mut self) -> Result<Option<u64>, Failure> {
        loop {
            let paused = self.timers.pause_timer(&self.id).await;
            if self.answer(paused)?.is_some() {
                break;
            }
        }
        let state = self.state().await?;
        Ok((state == Some(TimerState::Paused)).then(now))
    }

    async fn resume(&mut self, since: Option<u64>) -> Result<(), Failure> {
        self.story.paused = since.map(|since| (since, now()));
        loop {
            let resumed = self.timers.resume_timer(&self.id).await;
            if self.answer(resumed)?.is_some() {
                return Ok(());
            }
        }
    }

    async fn move_to(&mut self, planned: u64) -> Result<(), Failure> {
        let before = self.story.unanswered;
        let moved = loop {
            let moved = match self.timers.reset(&self.id, time(planned)).await {
                Err(DurableError::Running) => Ok(false),
                moved => moved,
            };
            if let Some(moved) = self.answer(moved)? {
                break moved;
            }
        };
        if moved {
            self.settle(Fate::Gone(now()));
            self.story.deliveries.push((planned, Fate::Due));
        } else if self.story.unanswered > before {
            self.settle(Fate::Perhaps);
            self.story.deliveries.push((planned, Fate::Perhaps));
        }
        Ok(())
    }

    async fn replace(&mut self, mut planned: u64) -> Result<(), Failure> {
        loop {
            let replaced = self.put(planned, Existing::Replace).await;
            match self.answer(replaced)? {
                Some(Inserted::Replaced) => self.settle(Fate::Replaced),
                // The delivery before has ended.
                Some(_) => {}
                None => {
                    self.settle(Fate::Perhaps);
                    self.story.deliveries.push((planned, Fate::Perhaps));
                    planned = (planned + 1).max(now() + AHEAD);
                    continue;
                }
            }
            self.story.deliveries.push((planned, Fate::Due));
            return Ok(());
        }
    }
}
