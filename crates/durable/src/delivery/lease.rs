//! [`DeliveryLease`], the lease of an attempt as its handler sees it, and its renewal.
//!
//! A lease is renewed at a third of its length, so two renewals may be missed. It counts from the
//! time of the request, by the clock of the worker's timer. The store counts from the execution,
//! which is later, so a worker never believes in a lease that the store has ended. A renewal whose
//! reply is late therefore ends nothing by itself. The attempt continues until the lease has run
//! out here.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::panics::ignore_poison;
use crate::store::{Answer, Renewed};
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{Either, Shared, select};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tourbillon::future::Timer;

/// A lease is renewed after its length divided by this number.
const PARTS: u32 = 3;

/// The lease of a running handler. Clones are cheap, and can be moved to tasks and threads that
/// work for the handler. Works without a runtime.
///
/// The worker renews the lease while the handler runs, and learns of a cancel, or that the lease is
/// lost, from the reply to a renewal. That is at most a third of the [lease](crate::Options::lease)
/// later.
///
/// # Examples
///
/// A handler that stops early when its work is no longer wanted:
///
/// ```
/// use futures_util::future::{Either, select};
/// use std::pin::pin;
/// use std::time::Duration;
/// use tourbillon_durable::{Cancelled, Delivery, DurableTimers, Event, Options, Outcome};
///
/// async fn export(delivery: Delivery) -> Result<(), String> {
///     let pages = pin!(write_pages(&delivery.id));
///     let revoked = pin!(delivery.lease.revoked());
///     match select(pages, revoked).await {
///         Either::Left(((), _)) => Ok(()),
///         Either::Right(((), _)) if delivery.lease.is_cancelled() => Err("cancelled".to_owned()),
///         Either::Right(((), _)) => Err("another worker has taken over".to_owned()),
///     }
/// }
/// # async fn write_pages(_: &str) { std::future::pending().await }
/// #
/// # let file = std::env::temp_dir().join(format!("tourbillon-revoked-{}", std::process::id()));
/// # let timers = DurableTimers::open(&file)?;
/// # let (done, mut end) = futures_channel::mpsc::unbounded::<()>();
/// # let end = async move { drop(futures_util::StreamExt::next(&mut end).await) };
/// # let worker = timers.worker().until(end).observe(move |event| {
/// #     let Event::Attempt(attempt) = event else { return };
/// #     assert_eq!(attempt.outcome, Outcome::Cancelled { error: "cancelled".to_owned() });
/// #     drop(done.unbounded_send(()));
/// # });
/// # let again = timers.clone();
/// # let options = Options::new().lease(Duration::from_secs(1));
/// # pollster::block_on(timers.insert("report", "", Duration::ZERO, options))?;
/// # pollster::block_on(worker.run(move |delivery| {
/// #     let timers = again.clone();
/// #     async move {
/// #         let cancelled = timers.cancel(&delivery.id).await.map_err(|error| error.to_string());
/// #         assert_eq!(cancelled?, Cancelled::Running);
/// #         export(delivery).await
/// #     }
/// # }))?;
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct DeliveryLease {
    state: Arc<Mutex<State>>,
    deadline: Instant,
    /// Completes when the sender is dropped.
    revoked: Shared<oneshot::Receiver<()>>,
}

struct State {
    expires: Instant,
    cancelled: bool,
    lost: bool,
    /// The status that the handler has noted.
    status: Option<u16>,
}

impl DeliveryLease {
    /// Returns the time when the handler is stopped even if its lease can be renewed
    /// ([`Worker::time_limit`](crate::Worker::time_limit)), by the clock of the worker's [`Timer`].
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns the end of the lease, by the same clock. No other worker gets the lease before. The
    /// end moves with each renewal. The handler is stopped then if no renewal succeeds.
    #[must_use]
    pub fn expires(&self) -> Instant {
        self.lock().expires
    }

    /// Returns `true` if it is known that the timer was [cancelled](crate::Cancelled::Running). The
    /// handler continues, and its success still counts. A failure is not retried.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.lock().cancelled
    }

    /// Returns `true` if it is known that the handler's result does not count, because the timer
    /// was replaced or the lease was taken over, or if the attempt has ended. A handler that
    /// continues is stopped when the lease [expires](Self::expires).
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lock().lost
    }

    /// Completes when the lease [is lost](Self::is_lost) or the timer [was
    /// cancelled](Self::is_cancelled), and at the latest when the attempt ends. The future can be
    /// moved elsewhere.
    pub fn revoked(&self) -> impl Future<Output = ()> + Send + use<> {
        self.revoked.clone().map(drop)
    }

    /// Notes the status of the attempt.
    pub(super) fn note_status(&self, status: u16) {
        self.lock().status = Some(status);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        ignore_poison(self.state.lock())
    }
}

/// Two handles are equal if they belong to the same attempt.
impl PartialEq for DeliveryLease {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }
}

impl Eq for DeliveryLease {}

impl fmt::Debug for DeliveryLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { expires, cancelled, lost, .. } = &*self.lock();
        f.debug_struct("DeliveryLease")
            .field("deadline", &self.deadline)
            .field("expires", expires)
            .field("cancelled", cancelled)
            .field("lost", lost)
            .finish()
    }
}

/// The reason why a handler was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// The lease has run out.
    RanOut,
    /// The time limit of the attempt has passed.
    TimeLimit,
}

/// A lease that a worker holds. Dropping it ends the attempt for its handles.
pub(crate) struct HeldLease {
    handle: DeliveryLease,
    /// Dropped to notify the handles.
    revoke: Option<oneshot::Sender<()>>,
    /// The length of the lease.
    length: Duration,
}

impl HeldLease {
    /// Creates the state of a lease of this length that was requested at `asked`.
    pub(crate) fn new(asked: Instant, length: Duration, deadline: Instant) -> Self {
        let (revoke, revoked) = oneshot::channel();
        let expires = asked + length;
        let state = State { expires, cancelled: false, lost: false, status: None };
        let (state, revoked) = (Arc::new(Mutex::new(state)), revoked.shared());
        let handle = DeliveryLease { state, deadline, revoked };
        Self { handle, revoke: Some(revoke), length }
    }

    pub(crate) fn handle(&self) -> DeliveryLease {
        self.handle.clone()
    }

    pub(crate) fn expires(&self) -> Instant {
        self.handle.expires()
    }

    pub(crate) fn status(&self) -> Option<u16> {
        self.handle.lock().status
    }

    /// Renews the lease with `renew` until it has run out or the deadline has passed. A lease that
    /// is lost is not renewed any more, and `lost` is called.
    pub(crate) async fn keep(
        &mut self,
        timer: &Timer,
        renew: impl Fn() -> Answer<Renewed>,
        lost: impl Fn(),
    ) -> Result<Stopped, DurableError> {
        loop {
            let (expires, deadline) = (self.expires(), self.handle.deadline);
            let end = expires.min(deadline);
            let renewal = match self.handle.is_lost() {
                true => end,
                // A third of the length after the last request.
                false => end.min(expires - self.length / PARTS * (PARTS - 1)),
            };
            timer.sleep_until(renewal).await.map_err(DurableError::Timer)?;
            let asked = timer.now();
            if asked >= end {
                return Ok(if expires <= deadline { Stopped::RanOut } else { Stopped::TimeLimit });
            }
            match select(renew(), timer.sleep_until(end)).await {
                Either::Left((renewed, _)) => {
                    self.renewed(asked, renewed?);
                    if self.handle.is_lost() {
                        lost();
                    }
                }
                Either::Right((ended, _)) => ended.map_err(DurableError::Timer)?,
            }
        }
    }

    fn renewed(&mut self, asked: Instant, renewed: Renewed) {
        let mut state = self.handle.lock();
        match renewed {
            Renewed::Held { length, cancelled } => {
                self.length = Duration::from_millis(length);
                state.expires = asked + self.length;
                state.cancelled |= cancelled;
            }
            Renewed::Lost => state.lost = true,
        }
        let revoked = state.cancelled || state.lost;
        drop(state);
        if revoked {
            self.revoke = None;
        }
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.handle.lock().lost = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use tourbillon::testing::block_on;

    const SECOND: Duration = Duration::from_secs(1);

    /// The lease in these tests.
    const LENGTH: Duration = Duration::from_secs(15);

    const HELD: Renewed = Renewed::Held { length: 15_000, cancelled: false };

    /// Keeps a lease whose renewals are answered after these delays, and then never. Returns the
    /// end, the seconds of the requests and of the end, and the handle.
    fn kept(
        limit: u32,
        script: &[(Duration, Renewed)],
        seen: impl Fn(&DeliveryLease, u64),
    ) -> Result<(Stopped, Vec<u64>), DurableError> {
        block_on(|timer| async move {
            let (start, count) = (timer.now(), AtomicUsize::new(0));
            let asked = Mutex::new(Vec::new());
            let mut held = HeldLease::new(start, LENGTH, start + SECOND * limit);
            let handle = held.handle();
            let renew = || -> Answer<Renewed> {
                ignore_poison(asked.lock()).push((timer.now() - start).as_secs());
                let Some((delay, renewed)) = script.get(count.fetch_add(1, SeqCst)) else {
                    return Box::pin(std::future::pending());
                };
                let (sleep, renewed) = (timer.sleep(*delay), *renewed);
                Box::pin(async move {
                    sleep.await.map_err(DurableError::Timer)?;
                    Ok(renewed)
                })
            };
            let watched = async {
                loop {
                    seen(&handle, (timer.now() - start).as_secs());
                    if timer.sleep(SECOND).await.is_err() {
                        return;
                    }
                }
            };
            let (kept, watched) = (pin!(held.keep(&timer, renew, || ())), pin!(watched));
            let Either::Left((stopped, _)) = select(kept, watched).await else {
                return Err(DurableError::Closed);
            };
            let mut asked = std::mem::take(&mut *ignore_poison(asked.lock()));
            asked.push((timer.now() - start).as_secs());
            Ok((stopped?, asked))
        })
    }

    #[test]
    fn a_lease_is_renewed_at_a_third_until_the_limit() -> Result<(), DurableError> {
        let well = [(Duration::ZERO, HELD); 99];
        let (stopped, asked) = kept(42, &well, |lease, _| assert!(!lease.is_lost()))?;
        assert_eq!(
            (stopped, &asked[..]),
            (Stopped::TimeLimit, &[5, 10, 15, 20, 25, 30, 35, 40, 42][..])
        );
        // The limit holds while a reply is awaited, too.
        let (stopped, asked) = kept(7, &[], |_, _| ())?;
        assert_eq!((stopped, &asked[..]), (Stopped::TimeLimit, &[5, 7][..]));
        Ok(())
    }

    #[test]
    fn a_renewal_that_is_missed_ends_nothing_while_the_lease_stands() -> Result<(), DurableError> {
        // The lease counts from the requests at 5, 14 and 24.
        let late = [(9 * SECOND, HELD), (10 * SECOND, HELD)];
        let (stopped, asked) = kept(100, &late, |lease, _| assert!(!lease.is_lost()))?;
        assert_eq!((stopped, &asked[..]), (Stopped::RanOut, &[5, 14, 20][..]));
        let late = [(9 * SECOND, HELD), (5 * SECOND, HELD)];
        let (stopped, asked) = kept(100, &late, |lease, _| assert!(!lease.is_lost()))?;
        assert_eq!((stopped, &asked[..]), (Stopped::RanOut, &[5, 14, 19, 29][..]));
        let (stopped, asked) = kept(100, &[], |lease, _| assert!(!lease.is_lost()))?;
        assert_eq!((stopped, &asked[..]), (Stopped::RanOut, &[5, 15][..]));
        Ok(())
    }

    #[test]
    fn a_lease_that_was_updated_has_its_new_length() -> Result<(), DurableError> {
        let held = |length| (Duration::ZERO, Renewed::Held { length, cancelled: false });
        let (stopped, asked) = kept(100, &[held(3_000), held(30_000)], |_, _| ())?;
        assert_eq!((stopped, &asked[..]), (Stopped::RanOut, &[5, 6, 16, 36][..]));
        Ok(())
    }

    #[test]
    fn a_lease_that_is_lost_is_not_renewed() -> Result<(), DurableError> {
        let (stopped, asked) = kept(100, &[(SECOND / 2, Renewed::Lost)], |lease, second| {
            assert_eq!((lease.is_lost(), lease.is_cancelled()), (second > 5, false));
            assert_eq!(lease.revoked().now_or_never().is_some(), second > 5, "after {second} s");
        })?;
        assert_eq!((stopped, &asked[..]), (Stopped::RanOut, &[5, 15][..]));
        Ok(())
    }

    #[test]
    fn a_lease_of_a_timer_that_was_cancelled_is_renewed() -> Result<(), DurableError> {
        let cancelled = (SECOND / 2, Renewed::Held { length: 15_000, cancelled: true });
        let (stopped, asked) = kept(17, &[cancelled; 9], |lease, second| {
            assert_eq!((lease.is_lost(), lease.is_cancelled()), (false, second > 5));
            assert_eq!(lease.revoked().now_or_never().is_some(), second > 5, "after {second} s");
        })?;
        assert_eq!((stopped, &asked[..]), (Stopped::TimeLimit, &[5, 10, 15, 17][..]));
        Ok(())
    }

    #[test]
    fn a_lease_that_is_dropped_is_lost_to_its_handles() {
        let now = tourbillon::Clock::now(&tourbillon::MonotonicClock);
        let held = HeldLease::new(now, LENGTH, now + LENGTH);
        let (handle, other) =
            (held.handle(), HeldLease::new(held.expires(), LENGTH, held.expires()));
        assert!(handle == handle.clone() && handle != other.handle());
        assert_eq!(handle.revoked().now_or_never(), None);
        drop(held);
        assert!(handle.is_lost() && handle.revoked().now_or_never().is_some());
    }
}
