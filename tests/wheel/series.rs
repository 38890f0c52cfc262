//! Timers that their own handler arms again.

use crate::common::{Bench, SMALL, Shape};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tourbillon::{ArmError, Builder, Clock, ManualClock, Refusal, Series, Wheel};

const TICK: Duration = Duration::from_millis(1);

fn bench(builder: Builder) -> Bench<u32> {
    Bench::of(Shape { tick: TICK, shards: 1, geometry: SMALL, first_tick: 0 }, builder)
}

#[test]
fn each_timer_arms_the_next_until_the_series_is_cancelled() {
    let mut bench = bench(Builder::new());
    let series = Series::new();
    assert_eq!(series.arm(&bench.wheel, 0, TICK), Ok(None));
    for beat in 0..3 {
        assert_eq!(bench.advance(TICK), [beat]);
        assert_eq!(series.arm(&bench.wheel, beat + 1, TICK), Ok(None));
    }
    assert_eq!(series.cancel(&bench.wheel), Some(3));
    assert_eq!((series.cancel(&bench.wheel), series.is_cancelled()), (None, true));
    assert!(bench.wheel.is_empty());
}

/// The handler of the timer that has just fired is running when the cancel arrives.
#[test]
fn a_cancelled_series_arms_nothing() {
    let mut bench = bench(Builder::new());
    let series = Series::new();
    series.arm(&bench.wheel, 0, TICK).unwrap();
    assert_eq!(bench.advance(TICK), [0]);
    assert_eq!(series.cancel(&bench.wheel), None);
    assert_eq!(series.arm(&bench.wheel, 1, TICK), Err(ArmError::Cancelled(1)));
    assert_eq!(series.reset(&bench.wheel, TICK), Ok(false));
    assert_eq!(bench.advance(TICK * 9), []);
}

#[test]
fn one_timer_of_a_series_is_armed_at_a_time() {
    let mut bench = bench(Builder::new());
    let series = Series::new();
    assert_eq!(series.arm(&bench.wheel, 1, TICK), Ok(None));
    assert_eq!(series.arm(&bench.wheel, 2, TICK), Ok(Some(1)), "it will not fire");
    assert_eq!(series.reset(&bench.wheel, TICK * 3), Ok(true));
    assert_eq!(bench.advance(TICK * 2), []);
    assert_eq!(bench.advance(TICK), [2]);
    assert_eq!(series.reset(&bench.wheel, TICK), Ok(false));
}

type Hook = Box<dyn FnOnce() + Send>;

/// The outcome of an `arm`.
type Armed = Result<Option<u32>, ArmError<u32>>;

/// A clock that stands still and calls a function at its next reading. An `arm` reads the clock
/// between its load and its exchange.
#[derive(Clone)]
struct Hooked(ManualClock, Arc<Mutex<Option<Hook>>>);

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooked")
    }
}

impl Clock for Hooked {
    fn now(&self) -> Instant {
        let hook = self.1.lock().unwrap().take();
        hook.into_iter().for_each(|hook| hook());
        self.0.now()
    }
}

/// Runs `between`, as another thread might, in the middle of an `arm` of the value 1.
fn arm_with(
    between: impl FnOnce(&Series, &Wheel<u32>) + Send + 'static,
) -> (Armed, Arc<Series>, Wheel<u32>) {
    let clock = Hooked(ManualClock::new(), Arc::default());
    let (wheel, _sweeper) = Builder::new().clock(clock.clone()).build().unwrap();
    let series = Arc::new(Series::new());
    series.arm(&wheel, 0, TICK).unwrap();
    let (theirs, other) = (Arc::clone(&series), wheel.clone());
    *clock.1.lock().unwrap() = Some(Box::new(move || between(&theirs, &other)));
    let armed = series.arm(&wheel, 1, TICK);
    assert!(clock.1.lock().unwrap().is_none(), "the other thread has run");
    (armed, series, wheel)
}

#[test]
fn an_arm_that_loses_a_race_with_another_replaces_its_timer() {
    let (armed, series, wheel) = arm_with(|series, wheel| {
        assert_eq!(series.arm(wheel, 2, TICK), Ok(Some(0)));
    });
    assert_eq!((armed, wheel.len()), (Ok(Some(2)), 1));
    assert!(!series.is_cancelled());
    assert_eq!((series.cancel(&wheel), wheel.len()), (Some(1), 0));
}

#[test]
fn an_arm_that_loses_a_race_with_a_cancel_is_refused() {
    let (armed, series, wheel) = arm_with(|series, wheel| {
        assert_eq!(series.cancel(wheel), Some(0));
    });
    assert_eq!((armed, wheel.len()), (Err(ArmError::Cancelled(1)), 0));
    assert!(series.is_cancelled());
}

#[test]
fn what_the_wheel_refuses_comes_back_and_the_series_goes_on() {
    let mut bench = bench(Builder::new().capacity(1));
    let series = Series::new();
    let other = bench.wheel.insert(7, TICK).unwrap();
    let refused = series.arm(&bench.wheel, 1, TICK).unwrap_err();
    let full = |refused: &ArmError<u32>| match refused {
        ArmError::Refused(refused) => matches!(refused.reason, Refusal::AtCapacity { .. }),
        _ => false,
    };
    assert!(full(&refused), "{refused:?}");
    assert_eq!(refused.into_value(), 1);
    bench.wheel.cancel(other);
    assert_eq!(series.arm(&bench.wheel, 2, TICK), Ok(None));
    assert_eq!(bench.advance(TICK), [2]);
}
