//! Tests that keyed timers give back the memory of a burst.

use crate::{alone, held};
use std::time::Duration;
use tourbillon::keyed::{KeyedTimer, KeyedTimers};
use tourbillon::{Builder, ManualClock, Sweeper};

const BURST: u64 = 200_000;
const LIFE: Duration = Duration::from_secs(10);

/// The name of an end of a burst, and the function that ends it.
type End<T> = (&'static str, fn(&mut T));

/// Returns the bytes that are left of a burst that `fill` arms and `end` ends, and the bytes that
/// it took.
fn burst<T>(of: &mut T, fill: impl FnOnce(&mut T), end: impl FnOnce(&mut T)) -> (i64, i64) {
    let most = held(|| fill(of));
    (most + held(|| end(of)), most)
}

struct Keyed {
    timers: KeyedTimers<u64, u64>,
    sweeper: Sweeper<KeyedTimer<u64>>,
    clock: ManualClock,
}

impl Keyed {
    fn fill(&mut self) {
        (0..BURST).for_each(|key| assert_eq!(self.timers.insert(key, key, LIFE), Ok(None)));
    }

    fn sweep(&mut self) {
        while self.sweeper.next_deadline().is_some() {
            let _ = self.sweeper.sweep(|timer| assert!(self.timers.fire(timer).is_some()));
        }
        assert!(self.timers.is_empty());
    }
}

#[test]
fn a_burst_of_keys_gives_its_memory_back() {
    let _alone = alone();
    let clock = ManualClock::new();
    let (wheel, sweeper) = Builder::new().clock(clock.clone()).build().unwrap();
    let mut keyed = Keyed { timers: KeyedTimers::new(wheel), sweeper, clock };
    let ends: [End<Keyed>; 2] = [
        ("removed", |keyed| {
            (0..BURST).for_each(|key| assert_eq!(keyed.timers.cancel(&key), Some(key)));
        }),
        ("fired", |keyed| keyed.clock.advance(LIFE * 2)),
    ];
    for (end, by) in ends {
        let (left, most) = burst(&mut keyed, Keyed::fill, |keyed| {
            by(keyed);
            keyed.sweep();
        });
        assert!(left < most / 50, "keys that were {end}: {left} of {most} bytes are left");
    }
}
