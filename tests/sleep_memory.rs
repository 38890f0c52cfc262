//! What a sleep costs, counted by the allocator itself.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use cap::Cap;
use std::alloc::System;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tourbillon::future::{Sleep, Timer};
use tourbillon::{Builder, ManualClock};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const SLEEPS: u32 = 200_000;

fn poll(sleep: &mut Sleep) -> Poll<Result<(), tourbillon::Refusal>> {
    Pin::new(sleep).poll(&mut Context::from_waker(Waker::noop()))
}

/// 96 bytes each, future and entry and all; and nothing more for being reset and polled.
#[test]
fn a_registered_sleep_costs_at_most_96_bytes() {
    let clock = ManualClock::new();
    let (wheel, _sweeper) = Builder::new().shards(1).clock(clock.clone()).build().unwrap();
    let timer = Timer::new(wheel);
    let mut sleeps = Vec::with_capacity(SLEEPS as usize);
    let delay =
        |n: u32| Duration::from_millis(1 + u64::from(n.wrapping_mul(2_654_435_769) % 60_000));

    let before = ALLOCATOR.allocated();
    sleeps.extend((0..SLEEPS).map(|n| timer.sleep(delay(n))));
    let made = ALLOCATOR.allocated() - before;
    assert!(made < sleeps.len() / 10, "{made} bytes for sleeps that are not armed");
    assert!(sleeps.iter_mut().all(|sleep| poll(sleep).is_pending()));
    assert_eq!(timer.wheel().len(), sleeps.len());
    let armed = ALLOCATOR.allocated() - before;
    let each = size_of::<Sleep>() + armed.div_ceil(sleeps.len());
    assert!(each <= 96, "{each} bytes");

    for sleep in &mut sleeps {
        sleep.reset_after(Duration::from_secs(120));
        assert!(poll(sleep).is_pending());
    }
    assert!(ALLOCATOR.allocated() - before <= armed, "a reset to later takes no memory");
    drop(sleeps);
    assert!(timer.wheel().is_empty());
}
