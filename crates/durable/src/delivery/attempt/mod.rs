//! One attempt: the lease, the handler, and the end of the lease. The retry policy is implemented
//! here.

#![forbid(unsafe_code)]

use crate::delivery::lease::{DeliveryLease, HeldLease, Stopped};
use crate::delivery::permits::Permit;
use crate::delivery::ready::Claim;
use crate::delivery::report::Reporter;
use crate::delivery::trace::AttemptSpan;
use crate::error::DurableError;
use crate::model::clock::{Millis, millis_up, system};
use crate::model::event::{Attempt, Event, LeaseLoss, Outcome};
use crate::model::json;
use crate::model::record::{DeadReason, Record};
use crate::model::verdict::Verdict;
use crate::store::window::{Reading, Window};
use crate::store::{Answer, Finish, Finished, Lease, Leasing, Renewed, Store};
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{Either, Shared, select};
use serde::de::DeserializeOwned;
use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};
use tourbillon::future::Timer;

/// The maximum number of bytes of an error that are stored.
const MAX_ERROR_BYTES: usize = 1024;

/// How long a delivery keeps its permit while it waits for a reply of the store.
pub(crate) const STALLED: Duration = Duration::from_secs(2);

/// The minimum time that an ending worker waits for the store to accept the end of an attempt, if
/// the lease has run out by then.
const GRACE: Duration = Duration::from_millis(250);

/// The first and the longest wait before another request to end an attempt whose timer is locked.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];

/// The error of an attempt whose lease ran out.
const RAN_OUT: &str = "the lease ran out";

/// A due timer, as a handler receives it.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::{Delivery, DurableError, DurableTimers, Options};
///
/// /// A mail server that knows the token sends once, however many attempts there are.
/// async fn remind(delivery: Delivery) -> Result<(), DurableError> {
///     let (customer, text): (String, String) = delivery.json()?;
///     println!("to {customer}: {text} ({}, attempt {})", delivery.token, delivery.attempt);
///     Ok(())
/// }
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-delivery-{}", std::process::id()));
/// # let (done, mut end) = futures_channel::mpsc::unbounded::<()>();
/// # let end = async move { drop(futures_util::StreamExt::next(&mut end).await) };
/// let timers = DurableTimers::open(&file)?;
/// let order = ("customer 7", "your order is unpaid");
/// pollster::block_on(timers.insert_json("order 7", &order, Duration::ZERO, Options::new()))?;
/// let worker = timers.worker().until(end); // `end` is ready when the program is to end
/// # let worker = worker.observe(move |_| drop(done.unbounded_send(())));
/// pollster::block_on(worker.run(remind))?;
/// # assert!(pollster::block_on(timers.is_empty())?);
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivery {
    /// The timer's id.
    pub id: String,
    /// The payload that was passed to [`insert`](crate::DurableTimers::insert).
    pub payload: Vec<u8>,
    /// The number of this attempt, starting at 1.
    pub attempt: u32,
    /// The planned time of the delivery, rounded up to milliseconds.
    pub planned: SystemTime,
    /// The names and values that were passed to [`Options::header`](crate::Options::header).
    pub headers: Vec<(String, String)>,
    /// Identifies this delivery by its id and planned time. The token is the same for each attempt,
    /// also of a [redriven](crate::DurableTimers::redrive) timer. Use it as an idempotency key for
    /// external systems. A timer that is inserted again for the same time has the same token. If
    /// your program does that, add a number of the insert, taken from a
    /// [header](crate::Options::header).
    pub token: String,
    /// The lease of this attempt, which tells how long the handler may run, and whether its work is
    /// still wanted.
    pub lease: DeliveryLease,
}

impl Delivery {
    fn new(id: &str, record: &Record, lease: DeliveryLease) -> Self {
        Self {
            lease,
            id: id.to_owned(),
            payload: record.payload.clone(),
            attempt: record.attempt,
            planned: system(record.planned),
            headers: record.settings.headers.clone(),
            token: format!("{}:{id}", record.planned),
        }
    }

    /// Deserialises the value that was passed to
    /// [`insert_json`](crate::DurableTimers::insert_json).
    ///
    /// # Errors
    ///
    /// Fails with [`DurableError::Json`] if the payload is not such a value.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, DurableError> {
        json::read(&self.payload)
    }

    /// Notes a status of this attempt, such as the status of an HTTP response, for the [`Attempt`]
    /// that is reported and for the log. The last note counts.
    pub fn note_status(&self, status: u16) {
        self.lease.note_status(status);
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, attempt, planned, .. } = self;
        f.debug_struct("Delivery")
            .field("id", id)
            .field("attempt", attempt)
            .field("planned", planned)
            .finish_non_exhaustive()
    }
}

/// Calls the handler.
pub(crate) type Handle =
    dyn Fn(Delivery) -> futures_util::future::BoxFuture<'static, Verdict> + Send + Sync;

/// Completes when its sender is dropped.
pub(crate) type Signal = Shared<oneshot::Receiver<()>>;

/// The state that the attempts of a worker share.
pub(crate) struct Attempts {
    pub(crate) store: Arc<dyn Store>,
    /// The worker's number in the store.
    pub(crate) worker: u64,
    pub(crate) timer: Timer,
    pub(crate) window: Arc<Window>,
    pub(crate) handle: Box<Handle>,
    pub(crate) reporter: Reporter,
    /// The number of replies of the store that are overdue.
    pub(crate) overdue: AtomicUsize,
    /// Completes when the worker is asked to end.
    pub(crate) ending: Signal,
    /// Completes when an ending worker stops its handlers.
    pub(crate) cut: Signal,
    /// The maximum duration of a handler.
    pub(crate) time_limit: Duration,
    /// The maximum number of handlers that run at the same time.
    pub(crate) places: usize,
}

impl Attempts {
    /// Delivers the timer of a key that has fired, if the timer exists and is due.
    pub(crate) async fn deliver(
        self: Arc<Self>,
        claim: Claim,
        mut permit: Permit,
    ) -> Result<(), DurableError> {
        let asked = self.timer.now();
        let leasing = self.store.lease(&claim.key);
        let leasing = self.wait(&claim.key.1, leasing, &mut permit, STALLED);
        let Some(leasing) = leasing.await? else { return Ok(()) };
        claim.settle();
        let (planned, id) = claim.key.clone();
        let lease = match leasing {
            Leasing::Taken(lease) => lease,
            Leasing::NotDue { due, now } => {
                let now = Reading { store: now, asked, answered: self.timer.now() };
                self.window.reinsert((due, id), now);
                return Ok(());
            }
            Leasing::Locked { now } => {
                let now = Reading { store: now, asked, answered: self.timer.now() };
                self.window.defer((planned, id), now, self.places);
                return Ok(());
            }
            Leasing::NotFound => return Ok(()),
            Leasing::Paused => {
                self.window.plan_reload_after_pause(self.timer.now());
                return Ok(());
            }
            Leasing::Unreadable(error) => {
                self.window.plan_reload(self.timer.now());
                self.report_unreadable(&id, planned, &error);
                return Ok(());
            }
        };
        let mut course = Course::begin(&lease, asked, self.timer.now());
        permit.reacquire().await;
        let (Ended { finish, outcome }, expires) = self.attempt(&id, &lease, &mut course).await?;
        let outcome = match self.finish(&id, lease.fence, finish, expires, &mut permit).await? {
            Some(Finished::Accepted) => outcome,
            Some(Finished::Cancelled) => outcome.cancelled(),
            Some(Finished::TooLate) => {
                self.report_lost(&course, &id, lease.record.attempt, LeaseLoss::TakenOver);
                Outcome::TooLate
            }
            Some(Finished::Locked) | None => Outcome::Unanswered,
        };
        let Record { planned, attempt, .. } = lease.record;
        let Course { lateness, duration, status, .. } = course;
        let (id, planned, due) = (id.to_string(), system(planned), system(lease.due));
        let attempt = Attempt { id, planned, due, attempt, outcome, lateness, duration, status };
        self.report(&course, &Event::Attempt(attempt));
        Ok(())
    }

    /// Ends the lease of an attempt. While a transaction of another client has locked the timer,
    /// the lease is renewed without a permit, so that no other worker takes over the attempt. An
    /// ending worker waits as long as the lease stands, and then returns `None`.
    async fn finish(
        &self,
        id: &str,
        fence: u64,
        finish: Finish,
        mut expires: Instant,
        permit: &mut Permit,
    ) -> Result<Option<Finished>, DurableError> {
        let left =
            |expires: Instant| expires.saturating_duration_since(self.timer.now()).max(GRACE);
        let mut pause = PAUSES[0];
        loop {
            let finishing = self.store.finish(id, fence, finish.clone());
            match self.wait(id, finishing, permit, left(expires)).await? {
                Some(Finished::Locked) => permit.release(),
                finished => return Ok(finished),
            }
            if self.ending.clone().now_or_never().is_none() {
                let asked = self.timer.now();
                let renewing = self.store.renew(id, fence);
                match self.wait(id, renewing, permit, left(expires)).await? {
                    Some(Renewed::Held { length, .. }) => {
                        expires = asked + Duration::from_millis(length);
                    }
                    Some(Renewed::Lost) => return Ok(Some(Finished::TooLate)),
                    None => return Ok(None),
                }
            } else if self.timer.now() >= expires {
                return Ok(None);
            }
            self.timer.sleep(pause).await.map_err(DurableError::Timer)?;
            pause = (pause * 2).min(PAUSES[1]);
        }
    }

    /// Waits for a reply about a timer. An ending worker waits for at most `most` from now on, and
    /// then returns `None`.
    async fn wait<T>(
        &self,
        id: &str,
        answer: Answer<T>,
        permit: &mut Permit,
        most: Duration,
    ) -> Result<Option<T>, DurableError> {
        let answer = pin!(self.answered(id, answer, permit));
        let given_up = pin!(self.given_up(most));
        match select(answer, given_up).await {
            Either::Left((answer, _)) => answer.map(Some),
            Either::Right(((), _)) => Ok(None),
        }
    }

    /// Completes when the worker has been asked to end and `most` has passed since the call.
    async fn given_up(&self, most: Duration) {
        let begun = self.timer.now();
        // The worker was asked to end, or was dropped.
        let _ = self.ending.clone().await;
        let gone = self.timer.now().saturating_duration_since(begun);
        // A closed timer refuses the sleep, and the wait ends at once.
        let _ = self.timer.sleep(most.saturating_sub(gone)).await;
    }

    /// Waits for a reply about a timer, and releases the permit if the reply takes long.
    async fn answered<T>(
        &self,
        id: &str,
        mut answer: Answer<T>,
        permit: &mut Permit,
    ) -> Result<T, DurableError> {
        if let Ok(answer) = self.timer.timeout(STALLED, &mut answer).await {
            return answer;
        }
        let _stalled = self.store.stalled(self.worker, id);
        let _overdue = Overdue::begin(&self.overdue);
        permit.release();
        answer.await
    }

    /// Reports a timer that is due and cannot be read.
    pub(crate) fn report_unreadable(&self, id: &str, due: Millis, error: &DurableError) {
        let (id, planned, due) = (id.to_owned(), system(due), system(due));
        let (attempt, lateness, duration, status) = (0, Duration::ZERO, None, None);
        let outcome = Outcome::Unreadable { error: error.to_string() };
        let attempt = Attempt { id, planned, due, attempt, outcome, lateness, duration, status };
        self.reporter.report(&Event::Attempt(attempt));
    }

    /// Reports an event within the span of its attempt.
    fn report(&self, course: &Course, event: &Event) {
        course.span.report(event, || self.reporter.report(event));
    }

    /// Reports that the lease of an attempt is lost, once.
    fn report_lost(&self, course: &Course, id: &str, attempt: u32, reason: LeaseLoss) {
        // One task polls the attempt, so no other memory depends on it.
        if !course.lost.swap(true, Relaxed) {
            self.report(course, &Event::LeaseLost { id: id.to_owned(), attempt, reason });
        }
    }

    /// Runs an attempt. Returns its end, and the time at which its lease expires.
    ///
    /// The lease counts from the time of the request. A worker that reads the reply late must not
    /// start a handler after another worker may have taken over the lease.
    async fn attempt(
        &self,
        id: &str,
        lease: &Lease,
        course: &mut Course,
    ) -> Result<(Ended, Instant), DurableError> {
        let Lease { fence, now, overrun, record, .. } = lease;
        let asked = course.asked;
        let length = Duration::from_millis(record.due.saturating_sub(*now));
        let expires = asked + length;
        // This delivery also makes up for occurrences that were missed while no worker ran.
        let next = match record.following(*now) {
            Ok(next) => next,
            Err(error) => {
                return Ok((Ended::dead(DeadReason::Rule, error.to_string(), None), expires));
            }
        };
        let failed = |error: &str| Ended::failed(id, record, error.to_owned(), next);
        if *overrun {
            return Ok((failed(RAN_OUT), expires));
        }
        if let Some(missed) = Ended::missed(record, *now) {
            return missed.map(|missed| (missed, expires));
        }
        if has_expired(record, *now) {
            return Ok((Ended::dead(DeadReason::Expired, record.error.clone(), next), expires));
        }
        if self.ending.clone().now_or_never().is_some() {
            return Ok((Ended::given_back(0, record.error.clone()), expires));
        }
        let begun = self.timer.now();
        if begun >= expires {
            self.report_lost(course, id, record.attempt, LeaseLoss::RanOut);
            return Ok((failed(RAN_OUT), expires));
        }
        course.lateness += begun.saturating_duration_since(course.answered);
        course.span = AttemptSpan::of(id, record, lease.due);
        let mut held = HeldLease::new(asked, length, begun + self.time_limit);
        let ended = {
            let called = self.call(Delivery::new(id, record, held.handle()));
            let handled = pin!(course.span.around(called));
            let lost = |reason| self.report_lost(course, id, record.attempt, reason);
            let taken_over = || lost(LeaseLoss::TakenOver);
            let kept = pin!(held.keep(&self.timer, || self.store.renew(id, *fence), taken_over));
            match select(handled, select(kept, self.cut.clone())).await {
                Either::Left((verdict, _)) => Ended::by(verdict, id, record, next),
                Either::Right((Either::Left((stopped, _)), _)) => match stopped? {
                    Stopped::RanOut => {
                        lost(LeaseLoss::RanOut);
                        failed(RAN_OUT)
                    }
                    Stopped::TimeLimit => failed("the time limit passed"),
                },
                Either::Right((Either::Right(_), _)) => Ended::given_back(0, record.error.clone()),
            }
        };
        course.duration = Some(self.timer.now().saturating_duration_since(begun));
        course.status = held.status();
        Ok((ended, held.expires()))
    }

    async fn call(&self, delivery: Delivery) -> Verdict {
        let handled = AssertUnwindSafe(async { (self.handle)(delivery).await });
        handled.catch_unwind().await.unwrap_or_else(|panic| Verdict::Retry(panicked(&*panic)))
    }
}

fn has_expired(record: &Record, now: Millis) -> bool {
    let lives = record.settings.time_to_live;
    lives.is_some_and(|lives| now > record.planned.saturating_add(lives))
}

/// Counts an overdue reply until it is dropped.
struct Overdue<'a>(&'a AtomicUsize);

impl<'a> Overdue<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        // The task that polls the attempts also reads the number, so no other memory depends on it.
        count.fetch_add(1, Relaxed);
        Self(count)
    }
}

impl Drop for Overdue<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The course of an attempt so far.
struct Course {
    /// The times of the request for the lease and of its reply.
    asked: Instant,
    answered: Instant,
    /// The time from the due time to the start of the handler, or to the lease.
    lateness: Duration,
    duration: Option<Duration>,
    status: Option<u16>,
    /// Set once the loss of the lease was reported.
    lost: AtomicBool,
    /// The span of the handler.
    span: AttemptSpan,
}

impl Course {
    /// Creates the course of an attempt whose lease was requested and granted at these times.
    fn begin(lease: &Lease, asked: Instant, answered: Instant) -> Self {
        let lateness = Duration::from_millis(lease.now.saturating_sub(lease.due));
        Self {
            asked,
            answered,
            lateness,
            duration: None,
            status: None,
            lost: AtomicBool::new(false),
            span: AttemptSpan::none(),
        }
    }
}

/// The end of an attempt.
struct Ended {
    finish: Finish,
    /// The outcome, if the store accepts the end.
    outcome: Outcome,
}

impl Ended {
    fn by(verdict: Verdict, id: &str, record: &Record, next: Option<Millis>) -> Self {
        match verdict {
            Verdict::Done => Self { finish: Finish::Done { next }, outcome: Outcome::Acknowledged },
            Verdict::Retry(error) => Self::failed(id, record, error, next),
            Verdict::Fail(error) => Self::dead(DeadReason::Failed, error, next),
            Verdict::Stop(error) => Self::dead(DeadReason::Failed, error, None),
            Verdict::Again { counted: true, .. } if is_last(record) => {
                let error = "the last attempt asked for another".to_owned();
                Self::dead(DeadReason::Attempts, error, next)
            }
            Verdict::Again { after, counted } => {
                let (wait, error) = (millis_up(after), record.error.clone());
                let outcome = Outcome::Again { wait: Duration::from_millis(wait), counted };
                Self { finish: Finish::Retry { wait, error, counted }, outcome }
            }
            Verdict::GiveBack { after, error } => {
                let mut error = error.unwrap_or_else(|| record.error.clone());
                shorten(&mut error);
                Self::given_back(millis_up(after), error)
            }
        }
    }

    fn failed(id: &str, record: &Record, mut error: String, next: Option<Millis>) -> Self {
        if is_last(record) {
            return Self::dead(DeadReason::Attempts, error, next);
        }
        shorten(&mut error);
        let wait = record.settings.backoff.wait(id, record.planned, record.attempt);
        let finish = Finish::Retry { wait, error: error.clone(), counted: true };
        Self { finish, outcome: Outcome::Retry { wait: Duration::from_millis(wait), error } }
    }

    /// Returns the end of an occurrence that is later than its window. The timer continues with the
    /// first occurrence that is still within it.
    fn missed(record: &Record, now: Millis) -> Option<Result<Self, DurableError>> {
        let Record { planned, attempt, settings, .. } = record;
        let late = now.saturating_sub(*planned);
        let window = settings.window.filter(|window| settings.rule.is_some() && late > *window)?;
        if *attempt > 1 {
            return None;
        }
        let next = record.following(now - window - 1);
        Some(next.map(|next| {
            let (late_by, continues) = (Duration::from_millis(late), next.map(system));
            let outcome = Outcome::Missed { late: late_by, next: continues };
            Self { finish: Finish::Done { next }, outcome }
        }))
    }

    fn given_back(wait: Millis, error: String) -> Self {
        let finish = Finish::Retry { wait, error, counted: false };
        Self { finish, outcome: Outcome::GivenBack }
    }

    fn dead(reason: DeadReason, mut error: String, next: Option<Millis>) -> Self {
        shorten(&mut error);
        let finish = Finish::Dead { reason, error: error.clone(), next };
        Self { finish, outcome: Outcome::Dead { reason, error } }
    }
}

fn is_last(record: &Record) -> bool {
    record.attempt >= record.settings.attempts
}

fn shorten(error: &mut String) {
    let end = (0..=MAX_ERROR_BYTES).rev().find(|end| error.is_char_boundary(*end));
    error.truncate(end.unwrap_or(0).min(error.len()));
}

fn panicked(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the handler panicked: {}", text.unwrap_or("without a message"))
}

#[cfg(all(test, feature = "file"))]
mod tests;
