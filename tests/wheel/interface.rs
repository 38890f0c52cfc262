//! The parts of the interface around the operations, such as errors that say which values are
//! allowed, pinned batches, clocks behind pointers, figures, and texts for people.

use crate::common::leased::Leased;
use crate::common::{Bench, SMALL, Shape, receive};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tourbillon::__internals::Geometry;
use tourbillon::{
    BeyondRange, BuildError, Builder, CachedClock, Clock, Expired, InsertError, ManualClock,
    MonotonicClock, Refusal, WaitError,
};

const TICK: Duration = Duration::from_millis(1);

fn small() -> Bench<u64> {
    Bench::new(Shape { tick: TICK, shards: 1, geometry: SMALL, first_tick: 0 })
}

#[test]
fn a_refused_insert_says_why_and_gives_the_value_back() {
    let (wheel, _sweeper) = Builder::new().shards(1).capacity(1).build().unwrap();
    let too_far = wheel.insert(1, Duration::MAX).unwrap_err();
    assert_eq!(
        too_far.to_string(),
        "the deadline is out of range: it must be at most 4.35 years from now"
    );
    wheel.insert(2, TICK).unwrap();
    let full = wheel.insert(3, TICK).unwrap_err();
    assert_eq!(full.to_string(), "the wheel has reached its capacity of 1 armed timers");
    wheel.close();
    let closed = wheel.insert(4, Duration::MAX).unwrap_err();
    assert_eq!(closed.to_string(), "the wheel was closed, or its sweeper or driver was dropped");
    assert_eq!([too_far.value, full.value, closed.value], [1, 3, 4]);
    assert_eq!(format!("{closed:?}"), "Refused { reason: Closed, .. }");
    assert_eq!(Refusal::from(closed), Refusal::Closed);
}

#[test]
fn errors_pass_through_boxes() {
    fn insert() -> Result<(), Box<dyn Error>> {
        let (wheel, _sweeper) = Builder::new().build()?;
        wheel.insert("text", Duration::MAX)?;
        Ok(())
    }
    assert!(insert().unwrap_err().is::<InsertError<&str>>());
    let longest = Duration::from_secs(9);
    let beyond = BeyondRange { longest, unswept: false };
    let reason = Refusal::from(beyond);
    assert_eq!(reason, Refusal::BeyondRange(beyond));
    assert!(WaitError::InsideHandler.to_string().contains("its own driver"));
}

#[test]
fn errors_of_building_have_a_source_where_there_is_one() {
    let refused = |builder: Builder| builder.build::<()>().unwrap_err();
    let geometry = Geometry { levels: 0, ..Geometry::default() };
    let shape = refused(Builder::new().__shape(geometry, 0));
    assert_eq!(shape.to_string(), "the wheel's geometry is out of range");
    assert!(shape.source().is_none());
    let thread = Builder::new().driver().thread_name("\0").spawn(|_: Expired<()>| ());
    let thread = thread.unwrap_err();
    assert_eq!(thread.to_string(), "failed to start a thread of the driver");
    assert!(thread.source().unwrap().to_string().contains("zero byte"));
    for (error, part) in [(BuildError::Batch, "batch size"), (BuildError::InFlight, "in flight")] {
        assert!(error.to_string().contains(part) && error.to_string().contains("at least 1"));
    }
}

#[test]
fn a_pinned_batch_counts_from_its_own_now() {
    let mut bench = small();
    let clock = bench.clock.clone();
    let mut pinned = bench.wheel.pin();
    clock.advance(TICK * 5);
    assert_eq!(pinned.now(), clock.start());
    let id = pinned.insert(1, TICK * 6).unwrap();
    assert_eq!(pinned.deadline(id), Some(clock.start() + TICK * 6));
    pinned.repin();
    assert_eq!(pinned.now(), clock.start() + TICK * 5);
    assert_eq!(pinned.reset(id, TICK * 2), Ok(true));
    assert_eq!(pinned.deadline(id), Some(clock.start() + TICK * 7));
    // Out of range. An armed timer keeps its deadline, and one that has ended is not armed.
    let far = clock.start() + Duration::from_secs(1 << 40);
    assert!(pinned.reset(id, Duration::MAX).is_err());
    assert!(pinned.reset_at(id, far).is_err());
    assert!(pinned.insert_at(2, far).is_err());
    assert_eq!(pinned.deadline(id), Some(clock.start() + TICK * 7));
    assert_eq!(pinned.cancel(id), Some(1));
    assert_eq!(pinned.reset(id, Duration::MAX), Ok(false));
    assert!(!pinned.contains(id));
    drop(pinned);
    assert!(bench.advance(TICK * 20).is_empty());
}

/// A clock that lags, and states its lag.
#[derive(Debug)]
struct Coarse(ManualClock);

impl Clock for Coarse {
    fn now(&self) -> std::time::Instant {
        self.0.now()
    }

    fn lag(&self) -> Duration {
        TICK * 4
    }

    fn timeout(&self, deadline: std::time::Instant) -> Option<Duration> {
        self.0.timeout(deadline)
    }

    fn subscribe(&self, wake: Box<dyn Fn() -> bool + Send + Sync>) {
        self.0.subscribe(wake);
    }
}

#[test]
fn a_clock_behind_a_pointer_is_the_same_clock() {
    let manual = ManualClock::default();
    let clock: Arc<dyn Clock> = Arc::new(Box::new(Coarse(manual.clone())));
    assert_eq!((clock.now(), clock.lag()), (manual.start(), TICK * 4));
    assert_eq!(clock.timeout(manual.start()), Some(Duration::ZERO));
    assert_eq!(clock.timeout(manual.start() + TICK), None);
    let (send, fired) = std::sync::mpsc::channel();
    let driver = Builder::new()
        .clock(clock)
        .driver()
        .spawn(move |timer: Expired<u64>| send.send(timer).unwrap())
        .unwrap();
    driver.wheel().insert(1, TICK).unwrap();
    // Moving the clock wakes the driver through both pointers. The lag is added to a delay.
    manual.advance(TICK * 4);
    assert!(fired.try_recv().is_err());
    manual.advance(TICK);
    assert_eq!(receive(&fired, 1)[0].deadline, manual.start() + TICK * 5);
    assert!(MonotonicClock.lag().is_zero());
    let past = MonotonicClock.now();
    assert_eq!(MonotonicClock.timeout(past), Some(Duration::ZERO));
}

#[test]
fn the_lag_of_a_cached_reading_is_added_to_every_delay() {
    let start = ManualClock::new();
    let clock: Arc<dyn Clock> = Arc::new(Box::new(Leased(start.clone())));
    let (wheel, _sweeper) = Builder::new().resolution(TICK).clock(clock).build().unwrap();
    // No clock is cached if the kernel's own clock does not use the processor's counter.
    let believed = CachedClock.is_cacheable();
    let lease = if believed { Duration::from_micros(100) } else { Duration::ZERO };
    for id in [wheel.insert(1, TICK * 5).unwrap(), wheel.pin().insert(2, TICK * 5).unwrap()] {
        let ticks = if believed { 6 } else { 5 };
        assert_eq!(wheel.deadline(id), Some(start.start() + TICK * ticks));
        wheel.reset(id, TICK * 7 - lease).unwrap();
        assert_eq!(wheel.deadline(id), Some(start.start() + TICK * 7));
    }
    let pinned = wheel.pin();
    assert_eq!(pinned.now(), start.start());
    assert_eq!(pinned.instant_after(TICK), Some(start.start() + TICK + lease));
    assert_eq!(pinned.instant_after(Duration::MAX), None);
}

#[test]
fn a_wheel_instant_has_passed_by_the_true_clock_even_within_a_lease() {
    let mut leases = 0;
    // The cached reading may expire between two lines, by the true time, but hardly in each round.
    for _ in 0..100 {
        let clock = ManualClock::new();
        let leased: Arc<dyn Clock> = Arc::new(Box::new(Leased(clock.clone())));
        let builder = Builder::new().resolution(TICK).clock(leased);
        let (wheel, _sweeper) = builder.build::<u32>().unwrap();
        let step = Duration::from_micros(50);
        let soon = wheel.wheel_instant(clock.now() + step);
        // Makes a reading that the next lines reuse.
        assert!(!wheel.has_passed(soon));
        clock.advance(step);
        leases += u32::from(wheel.pin().now() < clock.now());
        assert!(wheel.has_passed(soon));
    }
    assert_eq!(leases > 0, CachedClock.is_cacheable());
}

#[test]
fn a_range_is_displayed_in_a_unit_that_suits_it_and_never_overstated() {
    let hour = Duration::from_secs(3600);
    for (longest, text) in [
        (Duration::MAX, "584542046090.62 years"),
        (hour * 8766 * 2, "2.00 years"),
        (hour * 8766 * 2 - TICK, "730.49 days"),
        (hour * 48, "2.00 days"),
        (Duration::from_secs(137_438), "38.17 hours"),
        (hour * 2, "2.00 hours"),
        (hour * 2 - TICK, "7199.999s"),
        (TICK * 16_382, "16.382s"),
    ] {
        let text = format!("the deadline is out of range: it must be at most {text} from now");
        assert_eq!(BeyondRange { longest, unswept: false }.to_string(), text);
    }
}

#[test]
fn the_longest_delay_is_accepted_at_any_phase_of_a_clock_that_lags() {
    let clock = ManualClock::new();
    let lagging = Coarse(clock.clone());
    let (wheel, _sweeper) = Builder::new().resolution(TICK).clock(lagging).build().unwrap();
    let Refusal::BeyondRange(beyond) = wheel.insert(0, Duration::MAX).unwrap_err().reason else {
        panic!("it is beyond the range")
    };
    for _ in 0..4 {
        wheel.insert(1, beyond.longest).unwrap();
        clock.advance(TICK / 4);
    }
}

#[test]
fn an_instant_that_has_just_passed_fires_at_the_next_sweep() {
    let (wheel, mut sweeper) = Builder::new().resolution(TICK * 1000).build().unwrap();
    for _ in 0..100 {
        let id = wheel.insert("later", TICK * 5000).unwrap();
        let passed = MonotonicClock.now();
        wheel.insert_at("passed", passed).unwrap();
        wheel.reset_at(id, passed).unwrap();
        assert_eq!(sweeper.sweep(|_| ()).expired, 2);
    }
}

#[test]
fn fine_ticks_have_a_precise_clock() {
    let tick = Duration::from_micros(1);
    let (wheel, _sweeper) = Builder::new().resolution(tick).build().unwrap();
    let id = wheel.insert(1, TICK).unwrap();
    let after = MonotonicClock.now();
    assert!(wheel.deadline(id).unwrap() <= after + TICK + tick);
    assert!(!MonotonicClock.is_cacheable() && !ManualClock::new().is_cacheable());
}

#[test]
fn lateness_is_counted_in_powers_of_two() {
    let mut bench = small();
    assert_eq!(bench.wheel.metrics().lateness.quantile(0.5), Duration::ZERO);
    for late in [3, 3, 3, 100] {
        bench.wheel.insert(late, Duration::ZERO).unwrap();
        bench.advance(TICK * u32::try_from(late).unwrap());
    }
    let lateness = bench.wheel.metrics().lateness;
    assert_eq!(lateness.quantile(0.5), Duration::from_micros(4096));
    assert_eq!(lateness.quantile(7.0), Duration::from_micros(131_072));
    let counted: Vec<_> = lateness.buckets().filter(|bucket| bucket.1 > 0).collect();
    let expected = [(Duration::from_micros(4096), 3), (Duration::from_micros(131_072), 1)];
    assert_eq!(counted, expected);
}

#[test]
fn a_snapshot_shows_what_is_armed_and_how_far_ahead() {
    let bench = small();
    let empty = bench.wheel.snapshot();
    assert_eq!((empty.armed, empty.next, empty.ahead().count()), (0, None, 0));

    let ids = [5, 4, 3, 9].map(|ticks| bench.wheel.insert(7, TICK * ticks).unwrap());
    bench.wheel.cancel(ids[2]);
    let (start, snapshot) = (bench.clock.now(), bench.wheel.snapshot());
    assert_eq!((snapshot.armed, snapshot.taken), (3, start));
    assert_eq!(snapshot.next, bench.wheel.deadline(ids[1]));
    let ahead: Vec<_> = snapshot.ahead().filter(|(_, timers)| *timers > 0).collect();
    assert_eq!(ahead, [(TICK * 4, 1), (TICK * 8, 1), (TICK * 16, 1)]);

    // Due and not yet swept, so not ahead any more.
    bench.clock.advance(TICK * 8);
    let late = bench.wheel.snapshot();
    assert_eq!(late.next, snapshot.next);
    assert_eq!(late.ahead().collect::<Vec<_>>(), [(TICK, 3)]);
}

/// A waker that a manual clock calls may use the clock, because the clock holds no lock meanwhile.
#[test]
#[allow(clippy::disallowed_methods, reason = "a thread that would hang for ever")]
fn a_waker_of_a_manual_clock_may_use_it() {
    let (send, done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let clock = ManualClock::new();
        let calls = Arc::new(AtomicUsize::new(0));
        let (inner, counted) = (clock.clone(), Arc::clone(&calls));
        clock.subscribe(Box::new(move || {
            // Relaxed: a count, of one thread.
            let first = counted.fetch_add(1, Relaxed) == 0;
            if first {
                let late = Arc::clone(&counted);
                inner.subscribe(Box::new(move || late.fetch_add(100, Relaxed) == usize::MAX));
                inner.advance(TICK);
            }
            first
        }));
        clock.advance(TICK);
        clock.advance(TICK);
        send.send((clock.elapsed(), calls.load(Relaxed))).unwrap();
    });
    // The first move, and the one inside it, which ends both subscriptions. The third one notifies
    // nothing.
    let hang = Duration::from_secs(60);
    assert_eq!(done.recv_timeout(hang), Ok((TICK * 3, 102)));
}

#[test]
fn everything_has_a_text_for_people() {
    let Bench { wheel, sweeper, clock, .. } = small();
    let id = wheel.insert(1, TICK).unwrap();
    let generation = id.to_bits() & ((1 << 25) - 1);
    assert_eq!(id.to_string(), format!("s0:0v{generation}"));
    assert_eq!(format!("{id:?}"), id.to_string());
    assert_eq!(format!("{wheel:?}"), "Wheel { armed: 1, .. }");
    assert_eq!(format!("{sweeper:?}"), "Sweeper { pending: 0, .. }");
    assert_eq!(format!("{clock:?}"), "ManualClock { elapsed: 0ns, .. }");
    assert!(format!("{:?}", wheel.pin()).starts_with("Pinned { now: "));
    let builder = Builder::default().shards(3).driver();
    let text = format!("{builder:?}");
    for part in ["shards: Some(3)", "batch: 2048", "thread_name: \"tourbillon\""] {
        assert!(text.contains(part), "{text}");
    }
    let driver = builder.spawn(|_: Expired<u64>| ()).unwrap();
    assert_eq!(format!("{driver:?}"), "Driver { wheel: Wheel { armed: 0, .. }, .. }");
}

#[test]
fn time_leaps_to_what_really_fires() {
    let mut bench = small();
    for delay in [5, 70, 100_000] {
        bench.wheel.insert(u64::from(delay), TICK * delay).unwrap();
    }
    // A reference that is visited in vain on the way.
    let cancelled = bench.wheel.insert(1, TICK).unwrap();
    bench.wheel.cancel(cancelled);
    let mut fired = Vec::new();
    while let Some(sweep) = bench.sweeper.advance(&bench.clock, |timer| fired.push(timer.value)) {
        assert_eq!(sweep.expired, 1);
        let at = TICK * u32::try_from(fired[fired.len() - 1]).unwrap();
        assert_eq!(bench.clock.elapsed(), at, "not a tick farther");
    }
    assert_eq!(fired, [5, 70, 100_000]);

    bench.wheel.insert(9, TICK).unwrap();
    assert!(bench.sweeper.advance(&ManualClock::new(), |_| ()).is_none(), "another clock");
    assert_eq!(bench.wheel.len(), 1);
}

#[test]
fn a_polls_time_out_is_by_the_wheels_own_clock() {
    let mut bench = small();
    assert_eq!(bench.sweeper.timeout(), None);
    bench.wheel.insert(1, TICK).unwrap();
    assert_eq!(bench.sweeper.timeout(), None, "it moves when it is told to");
    bench.clock.advance(TICK);
    assert_eq!(bench.sweeper.timeout(), Some(Duration::ZERO));

    let (wheel, mut sweeper) = Builder::new().build().unwrap();
    wheel.insert(1, Duration::from_secs(3600)).unwrap();
    let timeout = sweeper.timeout().unwrap();
    assert!(timeout > Duration::ZERO && timeout <= Duration::from_secs(3601));
}
