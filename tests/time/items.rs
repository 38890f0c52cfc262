//! The types, and the ends of their ranges.

use super::{MS, paused};
use std::future::pending;
use std::marker::PhantomPinned;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tourbillon::time::{
    self, DelayQueue, FutureExt, Instant, Interval, MissedTickBehavior, Sleep, Timeout,
};

const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A constant that a type which is not `Unpin` has from its trait, and others of their own.
trait IsPinned {
    const PINNED: bool = true;
}

struct Asked<T>(std::marker::PhantomData<T>);

impl<T> IsPinned for Asked<T> {}

impl<T: Unpin> Asked<T> {
    const PINNED: bool = false;
}

#[test]
fn they_go_where_tokios_go() {
    fn goes_anywhere<T: Send + Sync + 'static>() {}
    goes_anywhere::<Sleep>();
    goes_anywhere::<Timeout<()>>();
    goes_anywhere::<Interval>();
    goes_anywhere::<DelayQueue<u8>>();
    const { assert!(Asked::<Sleep>::PINNED && Asked::<PhantomPinned>::PINNED) }
    const { assert!(!Asked::<Interval>::PINNED) }
    const { assert!(!Asked::<DelayQueue<PhantomPinned>>::PINNED) }
    // Values need not be `Send`.
    let mut queue = DelayQueue::new();
    let key = queue.insert(Rc::new(1), MS);
    assert_eq!(*queue.remove(&key).into_inner(), 1);
}

#[test]
fn a_deadline_is_returned_as_it_was_given() {
    paused(async {
        time::sleep(MS * 10).await;
        let now = Instant::now();
        for deadline in [now, now + Duration::from_nanos(1), now - YEAR, now + 100 * YEAR] {
            let mut sleep = pin!(time::sleep_until(deadline));
            assert_eq!(sleep.deadline(), deadline);
            sleep.as_mut().reset(deadline + MS);
            assert_eq!(sleep.deadline(), deadline + MS);
        }
        assert_eq!(time::sleep(MS * 7).deadline(), now + MS * 7);
    });
    // By the clock of the system, and before the timer of the process existed.
    let (long_ago, before) = (Instant::now() - YEAR, Instant::now());
    assert_eq!(time::sleep_until(long_ago).deadline(), long_ago);
    let deadline = time::sleep(MS * 7).deadline();
    assert!(deadline >= before + MS * 7 && deadline <= Instant::now() + MS * 8);
}

#[test]
fn what_is_too_far_is_thirty_years_away() {
    paused(async {
        let now = Instant::now();
        for farther in [Duration::MAX, 31 * YEAR] {
            assert_eq!(time::sleep(farther).deadline(), now + 30 * YEAR);
            assert_eq!(time::interval(farther).period(), 30 * YEAR);
        }
        let mut interval = time::interval(MS);
        interval.reset_after(Duration::MAX);
        assert_eq!(interval.tick().await, now + 30 * YEAR);
        assert_eq!(Instant::now(), now + 30 * YEAR);
    });
    assert!(time::sleep(Duration::MAX).deadline() < Instant::now() + 31 * YEAR);
    // The timeout itself is not, and is due after the sleep.
    paused(async {
        let mut never = pin!(pending::<()>().timeout(Duration::MAX));
        time::sleep(29 * YEAR).await;
        assert!(poll(&mut never).is_pending());
    });
}

#[test]
fn a_sleep_without_a_delay_is_ready_at_the_next_tick() {
    paused(async {
        // Between two ticks.
        time::advance(MS / 2).await;
        let mut now = pin!(time::sleep(Duration::ZERO));
        assert!(poll(&mut now).is_pending());
        time::advance(MS / 4).await;
        assert!(poll(&mut now).is_pending());
        time::advance(MS / 4).await;
        assert!(poll(&mut now).is_ready());
        // And so is the limit of a timeout, whose future may use the time until then.
        time::advance(MS / 2).await;
        let mut twice = 0;
        let second = std::future::poll_fn(|context| {
            twice += 1;
            context.waker().wake_by_ref();
            if twice == 2 { Poll::Ready(()) } else { Poll::Pending }
        });
        assert_eq!(time::timeout(Duration::ZERO, second).await, Ok(()));
    });
}

#[test]
fn a_timeout_whose_future_is_ready_has_not_elapsed() {
    paused(async {
        let mut limited = pin!(time::sleep(MS).timeout(MS));
        assert!(poll(&mut limited).is_pending());
        time::advance(MS * 2).await;
        assert_eq!(poll(&mut limited), Poll::Ready(Ok(())), "the future is polled first");
        let mut inner = time::timeout(MS, Box::pin(std::future::ready(1)));
        let address = std::ptr::from_ref(&**inner.get_ref());
        assert!(std::ptr::eq(address, std::ptr::from_ref(&**inner.get_mut())));
        assert_eq!(inner.into_inner().await, 1);
        let late = async {}.timeout_at(Instant::now() - MS);
        assert_eq!(late.await, Ok(()));
    });
}

#[test]
fn an_interval_has_its_settings() {
    paused(async {
        let mut interval = time::interval(MS * 3);
        assert_eq!(interval.period(), MS * 3);
        assert_eq!(interval.missed_tick_behavior(), MissedTickBehavior::Burst);
        interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
        assert_eq!(interval.missed_tick_behavior(), MissedTickBehavior::Skip);
    });
}
