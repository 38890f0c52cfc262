//! Edge cases of the wheel: sweeps that leap or do not end, wheels that were not swept for long,
//! values whose drop panics, the bounds of one call, and the bound on the references that one timer
//! files.

use crate::common::{Bench, Shape, with_wheels};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use tourbillon::__internals::Geometry;
use tourbillon::{BeyondRange, Builder, Clock, ManualClock, Refusal, Sweeper, TimerId, Wheel};

const MICRO: Duration = Duration::from_micros(1);
const MILLI: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Creates a default wheel of one shard.
fn wheel_of<T: Send>(tick: Duration) -> Bench<T> {
    let geometry = Geometry::default();
    Bench::new(Shape { tick, shards: 1, geometry, first_tick: 0 })
}

/// One sweep catches up with `steps` steps of `step` each. When it has reached the first one, a
/// handler arms a timer for an instant before that.
fn a_handler_that_arms_for_the_past(tick: Duration, step: Duration, steps: u32) {
    let mut bench = wheel_of(tick);
    let (start, other) = (bench.clock.now(), bench.wheel.clone());
    for number in 1..=steps {
        // More than one batch, so that the handler runs in the middle of the sweep.
        for _ in 0..300 {
            bench.wheel.insert_at(number, start + step * number).unwrap();
        }
    }
    bench.clock.advance(step * steps);
    let (mut late, mut fired) = (None, 0);
    let _ = bench.sweeper.sweep(|timer| {
        fired += u32::from(timer.value == 0);
        if late.is_none() {
            late = Some(other.insert_at(0, start + step / 2).unwrap());
        }
    });
    let _ = bench.sweeper.sweep(|timer| fired += u32::from(timer.value == 0));
    assert_eq!((fired, bench.wheel.len()), (1, 0), "{:?}", bench.wheel.deadline(late.unwrap()));
}

#[test]
fn what_is_overdue_in_a_long_catch_up_is_not_lost() {
    // The steps amount to nearly the range of 2^37 ticks, and each is less than the longest rest.
    a_handler_that_arms_for_the_past(MICRO, HOUR * 2, 18);
    a_handler_that_arms_for_the_past(MILLI, HOUR * 24 * 80, 18);
}

/// Timers of several shards are due in one tick, in more than one block for each. The sweep reads
/// references ahead, but none of the next shard while it visits references of the shard before.
#[test]
fn shards_that_are_due_in_one_tick() {
    const THREADS: u32 = 8;
    const EACH: u32 = 20;
    let mut bench =
        Bench::new(Shape { tick: MILLI, shards: 3, geometry: Geometry::default(), first_tick: 0 });
    let (wheel, due) = (bench.wheel.clone(), bench.clock.now() + MILLI);
    // Threads have different shards while all of them live.
    let armed = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (wheel, armed) = (&wheel, &armed);
            scope.spawn(move || {
                for number in thread * EACH..(thread + 1) * EACH {
                    wheel.insert_at(number, due).unwrap();
                }
                armed.wait();
            });
        }
    });
    let mut fired = bench.advance(MILLI);
    fired.sort_unstable();
    assert_eq!(fired, (0..THREADS * EACH).collect::<Vec<_>>());
    assert!(wheel.is_empty());
}

/// Runs a test on default wheels that were idle for so long that they refuse deadlines ahead of
/// them.
fn with_unswept(test: impl Fn(Bench<u8>, &AtomicUsize)) {
    for (tick, idle) in [(MICRO, HOUR * 72), (MILLI, HOUR * 24 * 365 * 8)] {
        let rings = Arc::new(AtomicUsize::new(0));
        let rung = Arc::clone(&rings);
        // Relaxed: a count.
        let builder = Builder::new().waker(move || {
            rung.fetch_add(1, Relaxed);
        });
        let shape = Shape { tick, shards: 2, geometry: Geometry::default(), first_tick: 1 << 36 };
        let mut bench = Bench::of(shape, builder);
        assert_eq!(bench.sweeper.next_deadline(), None, "idle");
        bench.clock.advance(idle);
        test(bench, &rings);
    }
}

#[test]
fn an_unswept_wheel_says_so_and_wakes_its_sweeper() {
    with_unswept(|mut bench, rings| {
        let longest = bench.wheel.longest_delay();
        let refused = bench.wheel.insert(1, Duration::from_secs(1)).unwrap_err();
        let unswept = BeyondRange { longest, unswept: true };
        assert_eq!((refused.reason, refused.value), (Refusal::BeyondRange(unswept), 1));
        assert_eq!(
            refused.to_string(),
            "the wheel was not swept for too long (sweep it and try again)"
        );
        assert_eq!(rings.load(Relaxed), 1, "who else would sweep it?");
        // A delay beyond the range is refused, and does not cause a sweep.
        let refused = bench.wheel.insert(1, longest + bench.tick * 2).unwrap_err();
        assert_eq!(refused.reason, Refusal::BeyondRange(BeyondRange { longest, unswept: false }));
        assert_eq!(rings.load(Relaxed), 1);
        assert!(bench.advance(Duration::ZERO).is_empty());
        let id = bench.wheel.insert(1, Duration::from_secs(1)).unwrap();
        assert_eq!(bench.wheel.reset(id, Duration::from_secs(2)), Ok(true));
        assert_eq!(bench.advance(Duration::from_secs(2)), [1]);
    });
}

#[test]
fn a_reset_on_an_unswept_wheel_says_so_too() {
    with_unswept(|mut bench, rings| {
        let overdue = bench.wheel.insert(1, Duration::ZERO).unwrap();
        rings.store(0, Relaxed);
        let longest = bench.wheel.longest_delay();
        let refused = bench.wheel.reset(overdue, Duration::from_secs(1));
        assert_eq!(refused, Err(BeyondRange { longest, unswept: true }));
        assert_eq!(rings.load(Relaxed), 1);
        assert_eq!(bench.advance(Duration::ZERO), [1], "the timer keeps its deadline");
        // A timer that is not armed cannot be reset, and the sweeper is not woken.
        bench.clock.advance(longest * 3);
        assert_eq!(bench.wheel.reset(overdue, Duration::from_secs(1)), Ok(false));
        assert_eq!(rings.load(Relaxed), 1);
    });
}

#[test]
fn an_unswept_wheel_fires_what_is_due_at_once() {
    with_unswept(|mut bench, _| {
        let now = bench.clock.now();
        bench.wheel.insert(1, Duration::ZERO).unwrap();
        bench.wheel.insert_at(2, now).unwrap();
        bench.wheel.insert_at(3, now.checked_sub(HOUR).unwrap()).unwrap();
        let reset = bench.wheel.insert(4, Duration::ZERO).unwrap();
        assert_eq!(bench.wheel.reset(reset, Duration::ZERO), Ok(true));
        let late = |id| bench.wheel.deadline(id).is_none_or(|deadline| deadline > now);
        assert!(!late(reset), "due {:?}", bench.wheel.deadline(reset));
        let mut fired = bench.advance(Duration::ZERO);
        fired.sort_unstable();
        assert_eq!(fired, [1, 2, 3, 4]);
    });
}

/// Sweeps ten timers at a time while as many come, until `wanted` has fired. Returns how many
/// others fired before it.
fn others_before(bench: &mut Bench<u32>, wanted: u32) -> u32 {
    let mut others = 0;
    for _ in 0..1000 {
        for _ in 0..10 {
            bench.wheel.insert(0, bench.tick).unwrap();
        }
        bench.clock.advance(bench.tick);
        let mut seen = false;
        let _ = bench.sweeper.sweep_some(10, |timer| {
            seen |= timer.value == wanted;
            others += u32::from(timer.value != wanted);
        });
        if seen {
            return others;
        }
    }
    panic!("{others} timers of later deadlines came first");
}

#[test]
fn what_is_overdue_waits_for_one_backlog_and_not_for_ever() {
    with_wheels(|mut bench: Bench<u32>| {
        for _ in 0..100 {
            bench.wheel.insert(0, bench.ticks(5)).unwrap();
        }
        bench.clock.advance(bench.ticks(6));
        let _ = bench.sweeper.sweep_some(10, |_| ());
        bench.wheel.insert_at(7, bench.clock.start() + bench.tick).unwrap();
        let others = others_before(&mut bench, 7);
        // The rest of the sweep in progress, and the timers that arrived until its end.
        assert!(others <= 200, "{others} timers of later deadlines came first");
        // The same holds for a timer that is reset to the past.
        let id = bench.wheel.insert(8, bench.ticks(5000)).unwrap();
        assert_eq!(bench.wheel.reset(id, Duration::ZERO), Ok(true));
        assert!(others_before(&mut bench, 8) <= 400);
    });
}

#[test]
fn a_sweep_under_way_ends_where_it_was_to_end() {
    with_wheels(|mut bench: Bench<u32>| {
        for n in 1..=20 {
            bench.wheel.insert(n, bench.ticks(n)).unwrap();
        }
        bench.clock.advance(bench.ticks(10));
        let mut fired = Vec::new();
        assert!(!bench.sweeper.sweep_some(4, |timer| fired.push(timer.value)).finished);
        bench.clock.advance(bench.ticks(10));
        bench.wheel.insert_at(0, bench.clock.start()).unwrap();
        // This call finishes the sweep to tick 10. Then it begins its own, to tick 20, with the
        // overdue timers.
        let sweep = bench.sweeper.sweep_some(99, |timer| fired.push(timer.value));
        assert!(sweep.finished);
        let place = fired.iter().position(|&value| value == 0).unwrap();
        let (before, after) = (&fired[..place], &fired[place + 1..]);
        assert_eq!((before.len(), before.iter().max()), (10, Some(&10)), "{fired:?}");
        assert_eq!((after.len(), after.iter().min()), (10, Some(&11)), "{fired:?}");
    });
}

#[test]
fn a_sweep_that_a_panic_left_ahead_of_the_clock_hurries_nobody() {
    with_wheels(|mut bench: Bench<u32>| {
        for _ in 0..600 {
            bench.wheel.insert(0, bench.ticks(10)).unwrap();
        }
        let ahead = bench.clock.now() + bench.ticks(10_000);
        let swept = AssertUnwindSafe(|| bench.sweeper.sweep_at(ahead, |_| panic!("at the first")));
        assert!(catch_unwind(swept).is_err());
        bench.wheel.insert(1, bench.ticks(9000)).unwrap();
        let (mut late, mut early) = (0, 0);
        let _ = bench.sweeper.sweep(|timer| if timer.value == 0 { late += 1 } else { early += 1 });
        assert_eq!((late, early), (599, 0));
    });
}

/// A value whose drop panics if the flag is set.
struct Loud {
    panics: bool,
    dropped: Arc<AtomicUsize>,
}

impl Drop for Loud {
    fn drop(&mut self) {
        // Relaxed: a count.
        self.dropped.fetch_add(1, Relaxed);
        assert!(!self.panics, "a drop that panics");
    }
}

/// Creates wheels of three shards, each with a few values that panic, and the count of dropped
/// values.
fn loud() -> (Wheel<Loud>, Sweeper<Loud>, ManualClock, Arc<AtomicUsize>) {
    let (clock, dropped) = (ManualClock::new(), Arc::new(AtomicUsize::new(0)));
    let builder = Builder::new().shards(3).clock(clock.clone());
    // A shard that is full passes new timers to the next one.
    let (wheel, sweeper) = builder.capacity(3000).build().unwrap();
    for number in 0..3000 {
        let loud = Loud { panics: number % 500 == 7, dropped: Arc::clone(&dropped) };
        wheel.insert(loud, MILLI).unwrap();
    }
    (wheel, sweeper, clock, dropped)
}

#[test]
fn a_value_whose_drop_panics_harms_no_other() {
    let (wheel, sweeper, _, dropped) = loud();
    let gone = catch_unwind(AssertUnwindSafe(|| drop((wheel, sweeper))));
    assert!(gone.is_err(), "the first panic goes on, as a vector's does");
    assert_eq!(dropped.load(Relaxed), 3000);
}

#[test]
fn values_that_a_sweeper_left_are_all_dropped_though_some_panic() {
    let (wheel, mut sweeper, clock, dropped) = loud();
    clock.advance(MILLI * 2);
    let swept = catch_unwind(AssertUnwindSafe(|| {
        sweeper.sweep(|mut timer| {
            timer.value.panics = false;
            panic!("at the first of a batch");
        })
    }));
    assert!(swept.is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| drop((sweeper, wheel)))).is_err());
    assert_eq!(dropped.load(Relaxed), 3000);
}

#[test]
fn no_figure_goes_back_when_the_sweeper_goes() {
    let mut bench = wheel_of(MILLI);
    for number in 0..100 {
        bench.wheel.insert(number, MILLI).unwrap();
    }
    bench.clock.advance(MILLI * 2);
    let panics = AssertUnwindSafe(|| bench.sweeper.sweep(|_| panic!("at the first")));
    assert!(catch_unwind(panics).is_err());
    let late = |wheel: &Wheel<u8>| wheel.metrics().lateness.buckets().map(|(_, n)| n).sum::<u64>();
    let (before, late_before) = (bench.wheel.metrics(), late(&bench.wheel));
    assert_eq!((before.fired, late_before), (1, 1));
    drop(bench.sweeper);
    let after = bench.wheel.metrics();
    assert_eq!((after.fired, late(&bench.wheel)), (1, 1));
    assert_eq!((bench.wheel.len(), bench.wheel.drain().len()), (99, 99));
    assert_eq!(bench.wheel.metrics().armed, 0);
}

/// More references than a bounded sweep visits in one call, and a block.
const BUDGET: u64 = 512 + 14;

/// Sweeps in bounded calls until nothing is left to do. Returns the number of calls, and the most
/// references that one of them visited or pruned.
fn bounded_sweeps(bench: &mut Bench<u32>, fired: &mut Vec<u32>) -> (u64, u64) {
    let (mut calls, mut most) = (0, 0);
    let visited = |bench: &Bench<u32>| {
        let metrics = bench.wheel.metrics();
        (metrics.requeued, metrics.armed + metrics.stale_references)
    };
    loop {
        let (requeued, references) = visited(bench);
        let sweep = bench.sweeper.sweep_some(1, |timer| fired.push(timer.value));
        let (refiled_now, references_now) = visited(bench);
        calls += 1;
        most = most.max(refiled_now - requeued).max(references.saturating_sub(references_now));
        let now = bench.clock.now();
        if sweep.finished && sweep.next_deadline.is_none_or(|next| next > now) {
            return (calls, most);
        }
    }
}

#[test]
fn a_bounded_sweep_bounds_the_references_it_meets() {
    let mut bench = wheel_of(MILLI);
    let ids: Vec<_> =
        (0..20_000).map(|number| bench.wheel.insert(number, MILLI * 9).unwrap()).collect();
    for &id in &ids {
        assert_eq!(bench.wheel.reset(id, HOUR), Ok(true));
    }
    bench.clock.advance(MILLI * 9);
    let mut fired = Vec::new();
    let (calls, most) = bounded_sweeps(&mut bench, &mut fired);
    assert!(fired.is_empty());
    assert!(most <= BUDGET, "{most} references in one call");
    assert!(calls >= 20_000 / BUDGET, "{calls} calls");
    bench.clock.advance(HOUR);
    let (_, most) = bounded_sweeps(&mut bench, &mut fired);
    assert!(most <= BUDGET, "{most} references in one call");
    assert_eq!(fired.len(), 20_000);
}

#[test]
fn a_bounded_sweep_bounds_what_it_prunes() {
    let mut bench = wheel_of(MILLI);
    let ids: Vec<_> = (0..50_000).map(|number| bench.wheel.insert(number, HOUR).unwrap()).collect();
    for &id in &ids {
        assert!(bench.wheel.cancel(id).is_some());
    }
    let mut fired = Vec::new();
    let (calls, most) = bounded_sweeps(&mut bench, &mut fired);
    assert!(most <= BUDGET, "{most} references in one call");
    assert!(calls >= 50_000 / BUDGET && bench.wheel.metrics().stale_references == 0);
}

#[test]
fn a_bounded_sweep_reaches_a_limit_above_its_bound() {
    let mut bench = wheel_of(MILLI);
    for number in 0..10_000_u32 {
        bench.wheel.insert(number, Duration::ZERO).unwrap();
    }
    assert_eq!(bench.sweeper.sweep_some(5000, |_| ()).expired, 5000);
}

#[test]
fn a_slot_that_is_being_pruned_is_swept_in_its_expiry() {
    for turns in [1, 2, 5, 17, 30] {
        let mut bench = wheel_of(MILLI);
        let ids: Vec<_> =
            (0..50_000).map(|number| bench.wheel.insert(number, HOUR).unwrap()).collect();
        let kept = |number: &usize| number % 100 == 0;
        for number in (0..ids.len()).filter(|number| !kept(number)) {
            assert!(bench.wheel.cancel(ids[number]).is_some());
        }
        // This number of slices of pruning does not complete the slot.
        for _ in 0..turns {
            assert!(bench.sweeper.sweep_some(1, |_| ()).next_deadline.is_some());
        }
        // Timers rely on references that are pending.
        for number in (0..ids.len()).filter(kept).step_by(2) {
            assert_eq!(bench.wheel.reset(ids[number], HOUR + MILLI), Ok(true));
        }
        assert_eq!(bench.advance(HOUR).len(), 250, "after {turns} slices");
        assert_eq!(bench.advance(MILLI).len(), 250);
        assert!(bench.wheel.is_empty());
    }
}

#[test]
fn a_slot_that_is_being_pruned_fires_in_order() {
    let mut bench = wheel_of(MILLI);
    // All are in one slot, from which they are refiled into others.
    let deadline = |number: u32| HOUR + MILLI * (number * 7919 % 2000);
    let ids: Vec<_> =
        (0..50_000).map(|number| bench.wheel.insert(number, deadline(number)).unwrap()).collect();
    // The references that were filed first are read last, and nothing is put back into the slot
    // before then.
    for &id in &ids[500..] {
        assert!(bench.wheel.cancel(id).is_some());
    }
    // After it has fired, the sweeper searches the shard, which no longer has the slot.
    let _ = bench.wheel.insert(50_000, HOUR / 2).unwrap();
    assert!(bench.sweeper.sweep_some(1, |_| ()).next_deadline.is_some());
    bench.clock.advance(HOUR * 2);
    let mut deadlines = Vec::new();
    let _ = bench.sweeper.sweep(|timer| deadlines.push(timer.deadline));
    assert_eq!(deadlines.len(), 501);
    assert!(deadlines.is_sorted(), "a later one came first");
}

#[test]
fn a_sweeper_that_goes_while_it_prunes_loses_nothing() {
    let mut bench = wheel_of(MILLI);
    let ids: Vec<_> = (0..50_000).map(|number| bench.wheel.insert(number, HOUR).unwrap()).collect();
    for &id in &ids[100..] {
        assert!(bench.wheel.cancel(id).is_some());
    }
    assert!(bench.sweeper.sweep_some(1, |_| ()).next_deadline.is_some());
    drop(bench.sweeper);
    assert_eq!(bench.wheel.drain().len(), 100);
}

#[test]
fn a_timer_that_is_only_pushed_back_files_no_other_reference() {
    let bench = wheel_of(MILLI);
    // The entry has had a timer whose deadline was later.
    let before = bench.wheel.insert("before", MILLI * 5_000).unwrap();
    assert_eq!(bench.wheel.cancel(before), Some("before"));
    let references = |bench: &Bench<&str>| {
        let metrics = bench.wheel.metrics();
        metrics.armed + metrics.stale_references
    };
    let id = bench.wheel.insert("timer", MILLI * 1_000).unwrap();
    assert_eq!(references(&bench), 2);
    for seconds in 2..100 {
        assert_eq!(bench.wheel.reset(id, MILLI * 1_000 * seconds), Ok(true));
    }
    assert_eq!(references(&bench), 2);
}

#[test]
fn a_timer_pulled_forward_in_small_steps_files_few_references() {
    let mut bench = wheel_of(MILLI);
    let id = bench.wheel.insert("timer", MILLI * 60_000).unwrap();
    let mut ahead = 60_000;
    while ahead > 16 {
        ahead -= (ahead / 50).max(1);
        assert_eq!(bench.wheel.reset(id, MILLI * ahead), Ok(true));
    }
    // One reference at each halving of the remaining time, down to 16 ticks.
    let halvings = 60_000_u32.ilog2() - 3;
    let stale = bench.wheel.metrics().stale_references;
    assert!(stale <= u64::from(halvings), "{stale} references beyond one");
    for _ in 0..16 {
        assert_eq!(bench.sweeper.sweep(drop).expired, 0);
        bench.clock.advance(MILLI);
    }
    assert_eq!(bench.sweeper.sweep(drop).expired, 1);
}

/// Asserts that a wheel which is too old refuses every deadline.
fn assert_too_old(wheel: &Wheel<u32>, id: TimerId, now: Instant) {
    for delay in [Duration::ZERO, wheel.resolution(), wheel.longest_delay()] {
        let (deadline, pinned) = (now + delay, wheel.pin());
        let on_wheel = wheel.wheel_instant(deadline);
        let inserts = [
            wheel.insert(9, delay),
            pinned.insert(9, delay),
            wheel.insert_at(9, deadline),
            wheel.insert_at_wheel_instant(9, on_wheel),
        ];
        for refused in inserts.map(Result::unwrap_err) {
            assert!(matches!(refused.reason, Refusal::BeyondRange(_)), "{delay:?}");
        }
        let resets = [
            wheel.reset(id, delay),
            pinned.reset(id, delay),
            wheel.reset_at(id, deadline),
            wheel.reset_at_wheel_instant(id, on_wheel),
        ];
        assert!(resets.iter().all(Result::is_err), "{delay:?}");
    }
}

/// A wheel accepts timers for 2^62 nanoseconds. Those that it has accepted fire in time after that,
/// and further ones are refused.
#[test]
fn a_wheel_accepts_timers_for_146_years() {
    let life = Duration::from_nanos(1 << 62);
    for tick in [MILLI, MILLI * 1000] {
        let mut bench = wheel_of::<u32>(tick);
        let longest = bench.wheel.longest_delay();
        for _ in 0..100 {
            assert_eq!(bench.advance((life - tick * 9) / 100), []);
        }
        bench.wheel.insert(1, longest).unwrap();
        bench.wheel.insert(2, tick * 40).unwrap();
        let id = bench.wheel.insert(3, tick * 60).unwrap();
        assert!(bench.wheel.insert(9, longest + tick).is_err());
        assert_eq!(bench.advance(tick * 10), []);
        assert_too_old(&bench.wheel, id, bench.clock.now());
        assert_eq!(bench.advance(tick * 30 - Duration::from_nanos(1)), []);
        assert_eq!(bench.advance(tick + Duration::from_nanos(1)), [2]);
        assert_eq!(bench.wheel.cancel(id), Some(3));
        assert_eq!(bench.advance(longest - tick * 42), []);
        assert_eq!(bench.advance(tick * 2), [1]);
    }
}

/// A timer that is armed after a sweep by an instant far ahead of the clock is due at once, and is
/// not refused.
#[test]
fn after_a_sweep_far_ahead_delays_are_in_range() {
    for (tick, ahead) in [(MICRO, HOUR * 24 * 30), (MILLI, HOUR * 24 * 365 * 20)] {
        let mut bench = wheel_of::<u8>(tick);
        let _ = bench.sweeper.sweep_at(bench.clock.now() + ahead, |_| ());
        let id = bench.wheel.insert(1, MILLI).unwrap();
        assert_eq!(bench.wheel.reset(id, HOUR), Ok(true));
        let refused = bench.wheel.insert(2, Duration::MAX).unwrap_err();
        let longest = bench.wheel.longest_delay();
        let beyond = BeyondRange { longest, unswept: false };
        assert_eq!(refused.reason, Refusal::BeyondRange(beyond));
        assert_eq!(bench.advance(Duration::ZERO), [1]);
    }
}

/// This runs in a process of its own with a limited address space. An insert that finds no memory
/// returns the value, and armed timers are not affected.
#[cfg(target_os = "linux")]
#[test]
#[allow(clippy::disallowed_methods, reason = "the test is about a process")]
fn an_insert_without_memory_is_refused() {
    const LIMITED: &str = "TOURBILLON_TEST_LIMITED";
    const LARGE: usize = 4096;
    if std::env::var_os(LIMITED).is_none() {
        let child = std::process::Command::new("sh")
            .args(["-c", "ulimit -v 400000; exec \"$0\" --exact --nocapture \"$1\""])
            .arg(std::env::current_exe().unwrap())
            .arg("edges::an_insert_without_memory_is_refused")
            .env(LIMITED, "1")
            .output()
            .unwrap();
        assert!(child.status.success(), "{child:?}");
        return;
    }
    let mut bench = wheel_of::<Box<[u8; LARGE]>>(MILLI);
    let Bench { wheel: large, sweeper: _sweeper, .. } = wheel_of::<[u8; LARGE]>(MILLI);
    let mut ids = Vec::new();
    let refused = loop {
        let number = u8::try_from(ids.len() % 251).unwrap();
        match large.insert([number; LARGE], HOUR) {
            Ok(id) => ids.push(id),
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.reason, Refusal::OutOfMemory);
    assert!(ids.len() >= 256 && usize::from(refused.value[LARGE - 1]) == ids.len() % 251);
    assert_eq!(large.len(), ids.len());
    // The other inserts succeed, and so does this one if there is room.
    bench.wheel.insert(Box::new([1; LARGE]), MILLI).unwrap();
    assert_eq!(bench.advance(MILLI * 2).len(), 1);
    for id in ids.iter_mut().step_by(2) {
        assert!(large.cancel(*id).is_some());
        *id = large.insert([7; LARGE], HOUR).unwrap();
    }
    assert!(ids.into_iter().all(|id| large.cancel(id).is_some()) && large.is_empty());
}
