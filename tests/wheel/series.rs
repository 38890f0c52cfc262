//! Timers that their own handler arms again.

use crate::common::{Bench, SMALL, Shape};
use std::time::Duration;
use tourbillon::{ArmError, Builder, Refusal, Series};

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
