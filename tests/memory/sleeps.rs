//! Tests of the cost of a sleep.

use crate::{alone, held};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tourbillon::future::{Sleep, Timer};
use tourbillon::{Builder, ManualClock};

const SLEEPS: u32 = 200_000;

fn poll(sleep: &mut Sleep) -> Poll<Result<(), tourbillon::Refusal>> {
    Pin::new(sleep).poll(&mut Context::from_waker(Waker::noop()))
}

/// Each sleep takes 96 bytes, including its future and its entry. Resets and polls take no more.
#[test]
fn a_registered_sleep_costs_at_most_96_bytes() {
    let _alone = alone();
    let clock = ManualClock::new();
    let (wheel, _sweeper) = Builder::new().shards(1).clock(clock.clone()).build().unwrap();
    let timer = Timer::new(wheel);
    let mut sleeps = Vec::with_capacity(SLEEPS as usize);
    let delay =
        |n: u32| Duration::from_millis(1 + u64::from(n.wrapping_mul(2_654_435_769) % 60_000));

    let made = held(|| sleeps.extend((0..SLEEPS).map(|n| timer.sleep(delay(n)))));
    assert!(made < i64::from(SLEEPS) / 10, "{made} bytes for sleeps that are not armed");
    let armed = held(|| assert!(sleeps.iter_mut().all(|sleep| poll(sleep).is_pending())));
    assert_eq!(timer.wheel().len(), sleeps.len());
    let each = size_of::<Sleep>() as f64 + armed as f64 / f64::from(SLEEPS);
    assert!(each <= 96.0, "{each} bytes");

    let reset = held(|| {
        for sleep in &mut sleeps {
            sleep.reset_after(Duration::from_secs(120));
            assert!(poll(sleep).is_pending());
        }
    });
    assert!(reset <= 0, "a reset to later takes no memory");
    drop(sleeps);
    assert!(timer.wheel().is_empty());
}
