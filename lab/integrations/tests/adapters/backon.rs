//! Retries of backon with their delays on the wheel, in virtual time.

use backon::{
    BackoffBuilder, ConstantBuilder, ExponentialBuilder, FibonacciBuilder, Retryable, Sleeper,
};
use std::cell::RefCell;
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tourbillon::future::{OrEnd, Timer};
use tourbillon::{Builder, ManualClock};

const MS: Duration = Duration::from_millis(1);

/// Returns the sleeps of a timer as backon takes them.
fn sleeper(timer: &Timer) -> impl Sleeper<Sleep = OrEnd> + use<> {
    let timer = timer.clone();
    move |delay| timer.sleep(delay).or_end()
}

/// Counts the wake-ups of a task.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Woken {
    fn take(&self) -> bool {
        self.0.swap(0, SeqCst) > 0
    }
}

/// The time of each attempt of an operation that always fails, in milliseconds. It is polled only
/// after a wake-up, and the clock advances in steps of a millisecond.
fn attempts(backoff: impl BackoffBuilder) -> Vec<u128> {
    let clock = ManualClock::new();
    let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build().unwrap();
    let timer = Timer::new(wheel);
    let attempts = RefCell::new(Vec::new());
    let fails = || {
        attempts.borrow_mut().push(clock.elapsed().as_millis());
        ready(Err::<(), _>("no"))
    };
    let mut retries = pin!(fails.retry(backoff).sleep(sleeper(&timer)).into_future());
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let mut answer = retries.as_mut().poll(&mut context);
    for _ in 0..100_000 {
        if answer.is_ready() {
            break;
        }
        clock.advance(MS);
        let _ = sweeper.sweep(|timer| timer.value.wake());
        if woken.take() {
            answer = retries.as_mut().poll(&mut context);
        }
    }
    assert_eq!(answer, Poll::Ready(Err("no")));
    assert!(timer.wheel().is_empty());
    attempts.into_inner()
}

/// The expected times, with each delay rounded up to the tick.
fn due(backoff: impl BackoffBuilder) -> Vec<u128> {
    let mut due = vec![0];
    for delay in backoff.build() {
        due.push(due[due.len() - 1] + delay.as_nanos().div_ceil(MS.as_nanos()));
    }
    due
}

#[test]
fn retries_come_at_the_times_of_the_backoff() {
    let constant = ConstantBuilder::new().with_delay(250 * MS).with_max_times(4);
    assert_eq!(attempts(constant), [0, 250, 500, 750, 1000]);

    let exponential = ExponentialBuilder::new()
        .with_min_delay(100 * MS)
        .with_factor(2.0)
        .with_max_delay(1000 * MS)
        .with_max_times(6);
    assert_eq!(due(exponential).len(), 7);
    assert_eq!(attempts(exponential), due(exponential));

    let fibonacci = FibonacciBuilder::new().with_min_delay(10 * MS).with_max_times(5);
    assert_eq!(attempts(fibonacci), [0, 10, 20, 40, 70, 120]);
}

#[test]
fn no_retry_is_early() {
    // Delays that are not whole milliseconds, and jitter.
    let odd = ConstantBuilder::new().with_delay(Duration::from_micros(1_500)).with_max_times(3);
    assert_eq!(attempts(odd), [0, 2, 4, 6]);

    let jitter = ExponentialBuilder::new().with_min_delay(50 * MS).with_jitter().with_max_times(5);
    let attempts = attempts(jitter);
    let least = [50, 100, 200, 400, 800];
    for (pair, least) in attempts.windows(2).zip(least) {
        assert!(pair[1] - pair[0] >= least, "{attempts:?}");
    }
}

#[test]
fn dropped_retries_leave_no_timer() {
    let (wheel, _sweeper) = Builder::new().clock(ManualClock::new()).build().unwrap();
    let timer = Timer::new(wheel);
    let fails = || ready(Err::<(), _>("no"));
    let retries = fails.retry(ConstantBuilder::new()).sleep(sleeper(&timer)).into_future();
    let mut retries = Box::pin(retries);
    let mut context = Context::from_waker(Waker::noop());
    assert!(retries.as_mut().poll(&mut context).is_pending());
    assert_eq!(timer.wheel().len(), 1);
    drop(retries);
    assert!(timer.wheel().is_empty());
}

#[test]
fn a_refused_delay_ends_when_others_have_had_their_turn() {
    let (wheel, _sweeper) = Builder::new().clock(ManualClock::new()).build().unwrap();
    let timer = Timer::new(wheel);
    timer.shutdown();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);

    let mut delay = pin!(sleeper(&timer).sleep(MS));
    assert!(delay.as_mut().poll(&mut context).is_pending());
    assert!(woken.take(), "nobody would poll again");
    assert!(delay.as_mut().poll(&mut context).is_ready());

    // Endless retries make one attempt in each poll, and do not block their thread.
    let attempts = RefCell::new(0);
    let fails = || {
        *attempts.borrow_mut() += 1;
        ready(Err::<(), _>("no"))
    };
    let endless = ConstantBuilder::new().without_max_times();
    let mut endless = pin!(fails.retry(endless).sleep(sleeper(&timer)).into_future());
    for polls in 1..100 {
        assert!(endless.as_mut().poll(&mut context).is_pending());
        assert!(woken.take(), "nobody would poll again");
        assert_eq!(*attempts.borrow(), polls);
    }

    // Bounded retries reach their end.
    let fails = || ready(Err::<(), _>("no"));
    let few = fails.retry(ConstantBuilder::new().with_max_times(3)).sleep(sleeper(&timer));
    assert_eq!(pollster::block_on(few.into_future()), Err("no"));
}

#[test]
fn a_shutdown_ends_the_delay_that_is_under_way() {
    let timer = Timer::spawn(Builder::new().driver()).unwrap();
    let fails = || ready(Err::<(), _>("no"));
    let hours = ConstantBuilder::new().with_delay(Duration::from_secs(3600));
    let shared = timer.clone();
    let retries = fails
        .retry(hours)
        .sleep(sleeper(&timer))
        .notify(move |_, _| shared.shutdown())
        .when(|_| !timer.wheel().is_closed());
    assert_eq!(pollster::block_on(retries.into_future()), Err("no"));
}
