//! Keyed timers that arm themselves again, and updates in place, in virtual time.

use crate::common::receive;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tourbillon::keyed::{Fired, InsertAbsentError, KeyedTimer, KeyedTimers};
use tourbillon::{ArmError, Builder, ManualClock, Refusal, Sweeper};

const TICK: Duration = Duration::from_millis(1);

type Timers = KeyedTimers<u32, u32>;

fn timers(builder: Builder) -> (Timers, Sweeper<KeyedTimer<u32>>, ManualClock) {
    let clock = ManualClock::new();
    let (wheel, sweeper) = builder.clock(clock.clone()).build().unwrap();
    (KeyedTimers::new(wheel), sweeper, clock)
}

/// Runs `meanwhile` while the handler of key 7 has its value 1.
fn fired(
    builder: Builder,
    meanwhile: impl FnOnce(&Timers, Fired<u32, u32>),
) -> (Timers, Sweeper<KeyedTimer<u32>>, ManualClock) {
    let (timers, mut sweeper, clock) = timers(builder);
    timers.insert(7, 1, TICK).unwrap();
    clock.advance(TICK);
    let mut fired = None;
    let _ = sweeper.sweep(|expired| fired = timers.fire_with_token(expired));
    meanwhile(&timers, fired.unwrap());
    (timers, sweeper, clock)
}

fn values(timers: &Timers, sweeper: &mut Sweeper<KeyedTimer<u32>>) -> Vec<(u32, u32)> {
    let mut values = Vec::new();
    let _ = sweeper.sweep(|expired| values.extend(timers.fire(expired)));
    values
}

#[test]
fn a_key_is_not_armed_while_its_handler_has_it() {
    let (timers, _sweeper, _) = fired(Builder::new(), |timers, fired| {
        assert_eq!((fired.key, fired.value, fired.token.is_cancelled()), (7, 1, false));
        assert!(!timers.contains(&7) && timers.is_empty());
        assert_eq!((timers.get(&7), timers.deadline(&7)), (None, None));
        assert_eq!(timers.reset(&7, TICK), Ok(false));
        assert_eq!(timers.update(&7, |_| ()), None);
    });
    assert!(timers.is_empty() && !timers.contains(&7));
    assert_eq!(timers.insert_if_absent(7, 2, TICK), Ok(()));
}

#[test]
fn a_token_arms_its_key_again() {
    let (timers, mut sweeper, clock) = fired(Builder::new(), |timers, fired| {
        fired.token.rearm(2, TICK * 3).unwrap();
        assert_eq!((timers.get(&7), timers.len()), (Some(2), 1));
    });
    clock.advance(TICK * 2);
    assert_eq!(values(&timers, &mut sweeper), []);
    clock.advance(TICK);
    assert_eq!(values(&timers, &mut sweeper), [(7, 2)]);
    assert!(timers.is_empty() && timers.wheel().is_empty());
}

#[test]
fn a_cancel_while_the_handler_runs_ends_the_key() {
    let (timers, mut sweeper, clock) = fired(Builder::new(), |timers, fired| {
        assert_eq!(timers.cancel(&7), None, "the handler has the value");
        assert!(fired.token.is_cancelled());
        assert_eq!(fired.token.rearm(2, TICK), Err(ArmError::Cancelled(2)));
    });
    assert!(timers.is_empty());
    clock.advance(TICK * 9);
    assert_eq!(values(&timers, &mut sweeper), []);
}

#[test]
fn an_insert_while_the_handler_runs_stays() {
    let (timers, mut sweeper, clock) = fired(Builder::new(), |timers, fired| {
        assert_eq!(timers.insert(7, 5, TICK), Ok(None));
        assert_eq!(fired.token.rearm(2, TICK * 2), Err(ArmError::Cancelled(2)));
        assert_eq!((timers.get(&7), timers.len()), (Some(5), 1));
    });
    clock.advance(TICK * 9);
    assert_eq!(values(&timers, &mut sweeper), [(7, 5)]);
}

/// The key fires again while the handler of its first value is still in progress.
#[test]
fn a_token_does_not_arm_the_key_of_a_later_token() {
    let (timers, mut sweeper, clock) = timers(Builder::new());
    let mut fire = |value| {
        assert_eq!(timers.insert(7, value, TICK), Ok(None));
        clock.advance(TICK);
        let mut fired = None;
        let _ = sweeper.sweep(|expired| fired = timers.fire_with_token(expired));
        fired.unwrap().token
    };
    let (early, late) = (fire(1), fire(2));
    assert!(early.is_cancelled() && !late.is_cancelled());
    assert_eq!(early.rearm(3, TICK), Err(ArmError::Cancelled(3)));
    assert_eq!(late.rearm(4, TICK), Ok(()));
    assert_eq!((timers.get(&7), timers.len()), (Some(4), 1));
}

#[test]
fn a_token_that_is_dropped_keeps_no_key() {
    let key = Arc::new(7);
    let clock = ManualClock::new();
    let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build().unwrap();
    let timers = KeyedTimers::new(wheel);
    timers.insert(Arc::clone(&key), 1, TICK).unwrap();
    clock.advance(TICK);
    let mut fired = None;
    let _ = sweeper.sweep(|expired| fired = timers.fire_with_token(expired));
    assert!(Arc::strong_count(&key) > 1);
    drop(fired.unwrap());
    assert_eq!(Arc::strong_count(&key), 1);
}

#[test]
fn drains_shutdowns_and_owners_invalidate_a_token() {
    let ends: [fn(&Timers); 2] = [
        |timers| assert_eq!(timers.drain(|_, _| ()).wait().keys, 0),
        |timers| {
            assert!(timers.shutdown().is_empty());
        },
    ];
    for end in ends {
        let (timers, _sweeper, _) = fired(Builder::new(), |timers, fired| {
            end(timers);
            assert_eq!(fired.token.rearm(2, TICK), Err(ArmError::Cancelled(2)));
        });
        assert!(timers.is_empty() && timers.wheel().is_empty());
    }
    let (timers, mut sweeper, clock) = timers(Builder::new());
    let (owner, _) = timers.insert_owned(7, 1, TICK).unwrap();
    let mut fire = || {
        clock.advance(TICK);
        let mut fired = None;
        let _ = sweeper.sweep(|expired| fired = timers.fire_with_token(expired));
        fired.unwrap().token
    };
    fire().rearm(2, TICK).unwrap();
    let token = fire();
    drop(owner); // still its owner's
    assert_eq!(token.rearm(3, TICK), Err(ArmError::Cancelled(3)));
    assert!(timers.is_empty());
}

#[test]
fn a_refused_value_comes_back_and_the_key_is_free() {
    let (timers, _sweeper, _) = fired(Builder::new().capacity(1), |timers, fired| {
        timers.insert(8, 0, TICK * 5).unwrap();
        let refused = fired.token.rearm(2, TICK).unwrap_err();
        assert!(matches!(
            &refused,
            ArmError::Refused(refused) if matches!(refused.reason, Refusal::AtCapacity { .. })
        ));
        assert_eq!(refused.into_value(), 2);
    });
    assert_eq!((timers.len(), timers.contains(&7)), (1, false));
    timers.cancel(&8);
    assert_eq!(timers.insert_if_absent(7, 3, TICK), Ok(()), "nothing is left of the token");
}

/// A server's heartbeat, whose connection is closed while the handler is in progress.
#[test]
fn a_heartbeat_ends_with_its_connection() {
    let clock = ManualClock::new();
    let (send, begun) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel::<()>();
    let goes_on = Mutex::new(goes_on);
    let builder = Builder::new().clock(clock.clone()).driver();
    let timers = KeyedTimers::spawn_with(builder, |_| {
        move |Fired { value: beat, token, .. }: Fired<u32, u32>| {
            send.send(beat).unwrap();
            let _ = goes_on.lock().unwrap().recv();
            let _ = token.rearm(beat + 1, TICK);
        }
    })
    .unwrap();
    timers.insert(7, 0, TICK).unwrap();
    for beat in 0..2 {
        clock.advance(TICK);
        assert_eq!(receive(&begun, 1), [beat]);
        if beat == 1 {
            assert_eq!(timers.cancel(&7), None);
        }
        go_on.send(()).unwrap();
        while timers.driver().unwrap().metrics().timers_in_flight > 0 {
            std::thread::yield_now();
        }
    }
    assert!(timers.is_empty(), "the heartbeat has ended");
    clock.advance(TICK * 9);
    timers.shutdown();
    timers.driver().unwrap().wait().unwrap();
    assert!(begun.try_recv().is_err());
}

#[test]
fn insert_if_absent_keeps_an_armed_key() {
    let (timers, mut sweeper, clock) = timers(Builder::new());
    assert_eq!(timers.insert_if_absent(7, 1, TICK), Ok(()));
    assert_eq!(timers.insert_if_absent(7, 2, TICK * 5), Err(InsertAbsentError::Armed(2)));
    let refused = timers.insert_if_absent(8, 3, Duration::MAX).unwrap_err();
    assert!(matches!(refused, InsertAbsentError::Refused(_)));
    assert_eq!((refused.into_value(), timers.len()), (3, 1));
    clock.advance(TICK);
    assert_eq!(values(&timers, &mut sweeper), [(7, 1)]);
}

/// Events of one key from many threads, sent in batches. None is lost, and none moves a deadline.
#[test]
#[allow(clippy::disallowed_methods, reason = "the test is about threads")]
fn batches_by_key_lose_no_event() {
    const EVENTS: u32 = 5000;
    let clock = ManualClock::new();
    let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build().unwrap();
    let batches = KeyedTimers::<u32, u32>::new(wheel);
    let mut sent = 0;
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..EVENTS {
                        let merge = |batch: &mut u32, event| *batch += event;
                        batches.insert_or_merge(7, 1, TICK, merge).unwrap();
                    }
                })
            })
            .collect();
        while callers.iter().any(|caller| !caller.is_finished()) {
            clock.advance(TICK);
            sent += values(&batches, &mut sweeper).iter().map(|(_, batch)| batch).sum::<u32>();
        }
    });
    clock.advance(TICK);
    sent += values(&batches, &mut sweeper).iter().map(|(_, batch)| batch).sum::<u32>();
    assert_eq!(sent, EVENTS * 3);
}

#[test]
fn a_merge_keeps_the_deadline() {
    let (timers, mut sweeper, clock) = timers(Builder::new());
    let add = |value: &mut u32, more| *value += more;
    assert_eq!(timers.insert_or_merge(7, 1, TICK * 2, add), Ok(false));
    clock.advance(TICK);
    assert_eq!(timers.insert_or_merge(7, 10, TICK * 2, add), Ok(true));
    clock.advance(TICK);
    assert_eq!(values(&timers, &mut sweeper), [(7, 11)]);
}
