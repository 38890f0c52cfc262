//! A timer that its handler arms again, against the cancel of its series and against another arm.

use loom_tests::explorer::thread;
use loom_tests::{Builder, ManualClock, Series, TICK, Value, Wheel, model, tiny, v};
use std::sync::Arc;
use std::time::Duration;

/// After a cancel no timer of the series is armed, in either order, and each value comes out once.
#[test]
fn cancel_against_the_handler_that_arms_the_next() {
    model(3, || {
        let clock = ManualClock::new();
        let (wheel, mut sweeper) = tiny(Builder::new(), &clock).build().unwrap();
        let series = Arc::new(Series::new());
        assert!(matches!(series.arm(&wheel, v(1), TICK), Ok(None)));
        clock.advance(TICK);
        let (ended, theirs) = (Arc::clone(&series), wheel.clone());
        let canceller = thread::spawn(move || ended.cancel(&theirs).map(u64::from));
        let mut out = Vec::new();
        let _ = sweeper.sweep(|timer| {
            out.push(u64::from(timer.value));
            match series.arm(&wheel, v(2), TICK) {
                Ok(old) => assert!(old.is_none()),
                Err(refused) => out.push(refused.into_value().into()),
            }
        });
        let fired = !out.is_empty();
        out.extend(canceller.join().unwrap());
        assert!(series.is_cancelled() && wheel.is_empty());
        assert_eq!(out, if fired { vec![1, 2] } else { vec![1] });
    });
}

/// The later timer replaces the earlier one. Neither call is refused, because no thread cancels the
/// series.
#[test]
fn arm_against_arm() {
    model(2, || {
        let clock = ManualClock::new();
        let (wheel, _sweeper) = tiny(Builder::new(), &clock).build().unwrap();
        let series = Arc::new(Series::new());
        let (shared, theirs) = (Arc::clone(&series), wheel.clone());
        let other = thread::spawn(move || shared.arm(&theirs, v(1), TICK).unwrap().map(u64::from));
        let replaced_by_2 = series.arm(&wheel, v(2), TICK).unwrap().map(u64::from);
        let replaced_by_1 = other.join().unwrap();
        let left = series.cancel(&wheel).map(u64::from);
        let expected = [(Some(1), None, Some(2)), (None, Some(2), Some(1))];
        assert!(expected.contains(&(replaced_by_2, replaced_by_1, left)));
        assert!(wheel.is_empty());
    });
}

/// The timers of both threads are due at once, and each handler arms the next. An arm whose timer
/// has fired before its exchange leaves the next timer alone, so exactly one timer stays armed.
#[test]
fn arm_against_handlers_that_arm_the_next() {
    model(2, || {
        let clock = ManualClock::new();
        let (wheel, mut sweeper) = tiny(Builder::new(), &clock).build().unwrap();
        let series = Arc::new(Series::new());
        assert!(matches!(series.arm(&wheel, v(1), TICK), Ok(None)));
        clock.advance(TICK);
        let (shared, theirs) = (Arc::clone(&series), wheel.clone());
        let other = thread::spawn(move || {
            shared.arm(&theirs, v(2), Duration::ZERO).unwrap().map(u64::from)
        });
        let mut out = Vec::new();
        let _ = sweeper.sweep(|timer| {
            let fired = u64::from(timer.value);
            out.push(fired);
            out.extend(series.arm(&wheel, v(fired + 2), TICK).unwrap().map(u64::from));
        });
        out.extend(other.join().unwrap());
        assert_eq!(wheel.len(), 1);
        out.push(series.cancel(&wheel).map(u64::from).expect("it is the timer of the series"));
        out.sort_unstable();
        let expected: [&[u64]; 4] = [&[1, 2], &[1, 2, 3], &[1, 2, 4], &[1, 2, 3, 4]];
        assert!(expected.contains(&&*out), "{out:?}");
    });
}

/// Runs a cancel against the first timer of a series, on a wheel that `prepare` has used before.
fn cancel_against_the_first_timer(prepare: impl Fn(&Wheel<Value>) + Send + Sync + 'static) {
    model(3, move || {
        let clock = ManualClock::new();
        let (wheel, _sweeper) = tiny(Builder::new(), &clock).build().unwrap();
        prepare(&wheel);
        let series = Arc::new(Series::new());
        let (ended, theirs) = (Arc::clone(&series), wheel.clone());
        let armer = thread::spawn(move || ended.arm(&theirs, v(1), TICK).is_ok());
        let cancelled = series.cancel(&wheel).is_some();
        assert_eq!(armer.join().unwrap(), cancelled);
        assert!(wheel.is_empty());
    });
}

/// A cancel that observes the id observes the entry too.
#[test]
fn cancel_against_the_first_timer_of_a_wheel() {
    cancel_against_the_first_timer(|_| ());
}

#[test]
fn cancel_against_a_timer_that_files_no_reference() {
    cancel_against_the_first_timer(|wheel| {
        let before = wheel.insert(v(7), TICK).unwrap();
        drop(wheel.cancel(before));
    });
}
