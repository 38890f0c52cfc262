//! Panics where tokio panics, at the place of the caller.

use super::{MS, paused};
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::Duration;
use tourbillon::time::{self, DelayQueue};

thread_local! {
    /// The file of the thread's last panic.
    static FILE: RefCell<Option<String>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Returns the message of the panic, whose place is in this file.
fn message_of<R>(panicking: impl FnOnce() -> R) -> String {
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let file = info.location().map(|location| location.file().to_owned());
            FILE.with(|place| place.replace(file));
            others(info);
        }));
    });
    let caught = catch_unwind(AssertUnwindSafe(|| _ = panicking())).unwrap_err();
    assert_eq!(FILE.with(RefCell::take).as_deref(), Some(file!()));
    let text = caught.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| caught.downcast_ref::<String>().cloned()).unwrap()
}

#[test]
fn an_interval_without_a_period() {
    let zero = Duration::ZERO;
    assert_eq!(message_of(|| time::interval(zero)), "`period` must be non-zero.");
    let now = time::Instant::now();
    assert_eq!(message_of(|| time::interval_at(now, zero)), "`period` must be non-zero.");
}

#[test]
fn a_key_whose_value_has_gone() {
    let mut queue = DelayQueue::new();
    let key = queue.insert("gone", MS);
    queue.remove(&key);
    let again = queue.insert("in its slot", MS);
    assert_eq!(message_of(|| queue.remove(&key)), "invalid key");
    assert_eq!(message_of(|| queue.reset(&key, MS)), "invalid key");
    assert_eq!(message_of(|| queue.reset_at(&key, time::Instant::now())), "invalid key");
    assert_eq!(message_of(|| queue.deadline(&key)), "invalid key");
    assert_eq!(queue.remove(&again).into_inner(), "in its slot");
}

#[test]
fn a_queue_that_is_too_large() {
    let mut queue = DelayQueue::<u8>::new();
    assert_eq!(message_of(|| queue.reserve(1 << 30)), "max queue capacity exceeded");
}

#[test]
#[allow(clippy::redundant_closure, reason = "a closure is in this file")]
fn a_clock_that_is_not_as_expected() {
    paused(async {
        assert!(message_of(|| time::pause()).contains("already frozen"));
        time::resume();
        assert!(message_of(|| time::resume()).contains("not frozen"));
    });
    assert!(message_of(|| time::pause()).contains("outside the Tokio runtime"));
}
