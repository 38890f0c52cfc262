//! The timer of the module, which no other code can configure, fill or end.

use super::{MS, running};
use std::pin::pin;
use std::task::{Context, Waker};
use tourbillon::future::{TimeoutError, Timer, default_timer, set_default_timer};
use tourbillon::{Builder, Refusal, time};

/// Uses everything once, on the timer of the process.
async fn uses() {
    time::sleep(MS).await;
    time::sleep_until(time::Instant::now() + MS).await;
    assert!(time::timeout(MS, std::future::pending::<()>()).await.is_err());
    assert_eq!(time::timeout_at(time::Instant::now(), async { 1 }).await, Ok(1));
    let mut interval = time::interval(MS);
    assert!(interval.tick().await < interval.tick().await);
    let mut queue = time::DelayQueue::new();
    queue.insert("due", MS);
    let due = std::future::poll_fn(|context| queue.poll_expired(context)).await;
    assert_eq!(due.unwrap().into_inner(), "due");
}

#[test]
fn a_full_and_then_ended_default_timer_changes_nothing() {
    let full = Timer::spawn(Builder::new().capacity(1).driver()).unwrap();
    let mut only = pin!(full.sleep(MS * 3_600_000));
    assert!(only.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    set_default_timer(full.clone()).unwrap();
    let refused = Refusal::AtCapacity { capacity: 1 };
    running(async {
        assert_eq!(default_timer().sleep(MS).await, Err(refused));
        uses().await;
        full.scope(uses()).await;
    });
    assert_eq!(full.metrics().inserted, 1, "its wheel was not used");
    full.shutdown();
    let waiting = full.timeout(MS, std::future::pending::<()>());
    assert_eq!(pollster::block_on(waiting), Err(TimeoutError::Refused(Refusal::Closed)));
    running(full.scope(uses()));
}

#[test]
fn no_runtime_is_needed() {
    pollster::block_on(uses());
}

#[cfg(all(unix, not(miri)))]
#[test]
fn a_child_has_a_timer_of_its_own() {
    pollster::block_on(time::sleep(MS));
    super::child::in_a_child(|| {
        pollster::block_on(uses());
        true
    });
    pollster::block_on(time::sleep(MS));
}
