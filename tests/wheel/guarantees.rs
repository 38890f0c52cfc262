//! The guarantees of the README, each as a test, on wheels of several shapes, in virtual time.

use crate::common::{Bench, SMALL, Shape, receive, shapes, with_wheels};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::time::Duration;
use tourbillon::{Builder, Clock, Inline, ManualClock, Refusal, TimerId, Wheel};

/// Delays, in quarters of a tick, on both sides of every boundary of the small geometries.
fn delays() -> impl Iterator<Item = u32> + Clone {
    (0..140).chain([509, 510, 511, 512, 513, 2047, 2048, 2049, 16383, 16385, 70_001])
}

#[test]
fn never_early() {
    with_wheels(|mut bench: Bench<u32>| {
        let quarter = bench.tick / 4;
        for phase in 0..9 {
            bench.clock.advance(quarter * phase);
            let start = bench.clock.now();
            for delay in delays() {
                bench.wheel.insert(delay, quarter * delay).unwrap();
                bench.wheel.insert_at(delay, start + quarter * delay).unwrap();
            }
            let mut left = 2 * delays().count();
            while left > 0 {
                bench.clock.advance(bench.sweeper.next_deadline().map_or(quarter, |next| {
                    next.saturating_duration_since(bench.clock.now()).max(quarter)
                }));
                let now = bench.clock.now();
                let _ = bench.sweeper.sweep(|timer| {
                    left -= 1;
                    let deadline = start + quarter * timer.value;
                    assert!(now >= deadline, "{:?} early", deadline - now);
                    assert!(timer.value == 0 || timer.deadline >= deadline);
                });
            }
        }
    });
}

#[test]
fn late_by_at_most_a_tick() {
    with_wheels(|mut bench: Bench<u32>| {
        let quarter = bench.tick / 4;
        bench.clock.advance(quarter * 3);
        let start = bench.clock.now();
        for delay in 0..400 {
            bench.wheel.insert(delay, quarter * delay).unwrap();
        }
        for step in 0..404 {
            let _ = bench.sweeper.sweep(|timer| {
                let late = bench.clock.now() - (start + quarter * timer.value);
                assert!(late < bench.tick, "late by {late:?} at step {step}");
            });
            bench.clock.advance(quarter);
        }
        assert!(bench.wheel.is_empty());
    });
}

#[test]
fn exactly_once_unless_cancelled_or_drained() {
    with_wheels(|mut bench: Bench<u32>| {
        let ids: Vec<TimerId> =
            (0..300).map(|n| bench.wheel.insert(n, bench.ticks(n * 7 % 90)).unwrap()).collect();
        for id in ids.iter().step_by(3) {
            assert!(bench.wheel.cancel(*id).is_some());
        }
        // To and fro, so that several references to a timer are filed.
        for (n, id) in ids.iter().enumerate() {
            for delay in [200, 3, 80, 1, 60, 40] {
                let armed = n % 3 != 0;
                assert_eq!(bench.wheel.reset(*id, bench.ticks(delay)), Ok(armed));
            }
        }
        let mut fired = Vec::new();
        for _ in 0..50 {
            fired.extend(bench.advance(bench.ticks(1)));
        }
        fired.sort_unstable();
        let expected: Vec<u32> = (0..300).filter(|n| n % 3 != 0).collect();
        assert_eq!(fired, expected);
        assert!(bench.advance(bench.ticks(1000)).is_empty());
    });
}

#[test]
fn cancel_tells_the_truth() {
    with_wheels(|mut bench: Bench<u32>| {
        let cancelled = bench.wheel.insert(1, bench.ticks(5)).unwrap();
        let fires = bench.wheel.insert(2, bench.ticks(5)).unwrap();
        assert_eq!(bench.wheel.cancel(cancelled), Some(1));
        assert_eq!(bench.wheel.cancel(cancelled), None);
        assert_eq!(bench.advance(bench.ticks(6)), [2]);
        assert_eq!(bench.wheel.cancel(fires), None);
    });
    // A bounded sweep has taken the slot, and not yet visited this timer. It can still be
    // cancelled.
    for shape in shapes() {
        let mut bench = Bench::new(shape);
        let ids: Vec<TimerId> =
            (0..40).map(|n| bench.wheel.insert(n, bench.ticks(2)).unwrap()).collect();
        bench.clock.advance(bench.ticks(3));
        let mut fired = HashSet::new();
        let _ = bench.sweeper.sweep_some(7, |timer| {
            fired.insert(timer.value);
        });
        for (n, id) in (0..).zip(&ids) {
            assert_eq!(bench.wheel.cancel(*id).is_some(), !fired.contains(&n));
        }
        assert!(bench.advance(bench.ticks(9)).is_empty());
    }
}

#[test]
fn an_effective_reset_is_obeyed() {
    for old in [1, 2, 7, 8, 9, 31, 33, 70, 200] {
        for new in [0, 1, 3, 8, 30, 34, 65, 190, 300] {
            for pause in [0, 1, 6] {
                with_wheels(|mut bench: Bench<&str>| {
                    let id = bench.wheel.insert("timer", bench.ticks(old)).unwrap();
                    let early = bench.advance(bench.ticks(pause));
                    assert_eq!(early.len(), usize::from(pause >= old));
                    let effective = bench.wheel.reset(id, bench.ticks(new)).unwrap();
                    assert_eq!(effective, early.is_empty());
                    if effective {
                        for _ in 0..new {
                            assert!(bench.advance(Duration::ZERO).is_empty(), "{old} {new}");
                            bench.clock.advance(bench.ticks(1));
                        }
                        assert_eq!(bench.advance(Duration::ZERO), ["timer"], "{old} {new}");
                    }
                });
            }
        }
    }
}

#[test]
fn an_id_never_names_another_timer() {
    for shape in shapes() {
        let mut bench = Bench::new(shape);
        let mut ids = HashSet::new();
        for round in 0..3_000_u32 {
            let id = bench.wheel.insert(round, bench.ticks(round % 5)).unwrap();
            assert!(ids.insert(id), "{id:?} was given out twice");
            if round % 2 == 0 {
                bench.wheel.cancel(id);
            } else {
                bench.advance(bench.ticks(5));
            }
        }
        let armed = bench.wheel.insert(7, bench.ticks(50)).unwrap();
        for &id in &ids {
            assert_eq!(bench.wheel.cancel(id), None);
            assert_eq!(bench.wheel.reset(id, Duration::ZERO), Ok(false));
            assert_eq!(bench.wheel.deadline(id), None);
        }
        // Invented ids, with every shard, index and generation near the real one.
        for bit in 0..64 {
            if let Some(id) = TimerId::from_bits(armed.to_bits() ^ (1 << bit)) {
                assert_eq!(bench.wheel.cancel(id), None);
            }
        }
        assert_eq!(bench.wheel.cancel(armed), Some(7));
    }
}

/// Ids are used on the wrong wheel of the same program. The chance is 2^-23 that the ids of a shard
/// are valid in the same shard of another wheel, and so about 2^-30 that two of these pairs are
/// unlucky.
#[test]
fn an_id_never_names_a_timer_of_another_wheel() {
    for shape in [shapes()[0], shapes()[10]] {
        let benches: Vec<Bench<u32>> = (0..24).map(|_| Bench::new(shape)).collect();
        let arm = |bench: &Bench<u32>| -> Vec<TimerId> {
            (0..20).map(|n| bench.wheel.insert(n, bench.ticks(40 + n)).unwrap()).collect()
        };
        let ids: Vec<_> = benches.iter().map(arm).collect();
        let mut unlucky = 0;
        for (owner, ids) in ids.iter().enumerate() {
            for (other, bench) in benches.iter().enumerate().filter(|&(other, _)| other != owner) {
                let wheel = &bench.wheel;
                let touched = ids.iter().any(|&id| {
                    wheel.contains(id)
                        || wheel.deadline(id).is_some()
                        || wheel.reset(id, Duration::ZERO) != Ok(false)
                        || wheel.cancel_with_deadline(id).is_some()
                        || wheel.cancel(id).is_some()
                });
                unlucky += usize::from(touched && other > owner);
            }
        }
        assert!(unlucky <= 1, "{unlucky} pairs of wheels have ids in common");
        for (bench, ids) in benches.iter().zip(ids) {
            let cancelled = ids.iter().filter(|&&id| bench.wheel.cancel(id).is_some()).count();
            assert!(cancelled == ids.len() || unlucky > 0);
        }
    }
}

/// Pages are given back to the allocator and reinstalled. Their generations continue.
#[test]
fn an_id_never_names_another_timer_on_a_page_that_came_again() {
    let mut bench = Bench::new(Shape { geometry: SMALL, ..shapes()[8] });
    let mut ids = HashSet::new();
    for _ in 0..4 {
        let burst: Vec<TimerId> =
            (0..40_000).map(|n| bench.wheel.insert(n, bench.ticks(9)).unwrap()).collect();
        for &id in &burst {
            assert!(ids.insert(id), "{id:?} was given out twice");
            assert!(bench.wheel.cancel(id).is_some());
        }
        let before = bench.wheel.metrics().bytes;
        for _ in 0..100 {
            let _ = bench.sweeper.sweep(|_| ());
        }
        assert!(bench.wheel.metrics().bytes < before / 2, "no page has gone");
    }
}

#[test]
fn a_stalled_thread_blocks_no_operation() {
    // A thread that stopped in the middle of every operation that it can be in the middle of,
    // namely a pinned batch, a sweep (in its handler), and a drain.
    with_wheels(|mut bench: Bench<u32>| {
        let stopped = bench.wheel.pin();
        bench.wheel.insert(1, Duration::ZERO).unwrap();
        let (wheel, tick) = (bench.wheel.clone(), bench.tick);
        let mut nested = Vec::new();
        let _ = bench.sweeper.sweep(|timer| {
            let id = wheel.insert(timer.value + 1, tick).unwrap();
            assert_eq!(wheel.reset(id, tick * 2), Ok(true));
            nested.push(wheel.cancel(id));
            nested.extend(wheel.drain().into_iter().map(|timer| Some(timer.value)));
        });
        assert_eq!(nested, [Some(2)]);
        drop(stopped);
    });
    // Timers armed without delay cannot keep others from firing, also in bounded sweeps.
    with_wheels(|mut bench: Bench<&str>| {
        bench.wheel.insert("waits", bench.ticks(1)).unwrap();
        bench.wheel.insert("again", Duration::ZERO).unwrap();
        bench.clock.advance(bench.ticks(5));
        let (wheel, past) = (bench.wheel.clone(), bench.clock.start());
        let mut waits = true;
        for _ in 0..9 {
            let _ = bench.sweeper.sweep_some(1, |timer| match timer.value {
                "again" => drop(wheel.insert_at("again", past)),
                _ => waits = false,
            });
        }
        assert!(!waits, "starved");
    });
    // A handler that arms a timer without delay cannot keep a sweep from ending.
    with_wheels(|mut bench: Bench<u32>| {
        for n in 0..600 {
            bench.wheel.insert(n, Duration::ZERO).unwrap();
        }
        let (wheel, mut handled) = (bench.wheel.clone(), 0);
        let sweep = bench.sweeper.sweep(|timer| {
            wheel.insert(timer.value, Duration::ZERO).unwrap();
            handled += 1;
            assert!(handled < 1300, "the sweep does not end");
        });
        assert!(sweep.finished);
    });
}

/// A value that counts how often it was dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn nothing_is_lost() {
    for shape in shapes() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let value = || Counted(Arc::clone(&dropped));
        let mut bench = Bench::of(shape, Builder::new().capacity(50));
        for n in 0..50 {
            bench.wheel.insert(value(), bench.ticks(n)).unwrap();
        }
        let full = bench.wheel.insert(value(), bench.tick).unwrap_err();
        assert_eq!(full.reason, Refusal::AtCapacity { capacity: 50 });
        let far = bench.wheel.insert(value(), Duration::MAX).unwrap_err();
        assert!(matches!(far.reason, Refusal::BeyondRange(_)));
        assert_eq!(dropped.load(Relaxed), 0);
        drop((full, far));
        assert_eq!(dropped.load(Relaxed), 2);
        drop(bench.advance(bench.ticks(9)));
        assert_eq!(dropped.load(Relaxed), 12);
        bench.wheel.close();
        let closed = bench.wheel.insert(value(), bench.tick).unwrap_err();
        assert_eq!(closed.reason, Refusal::Closed);
        drop(closed);
        let drained = bench.wheel.drain();
        assert_eq!((drained.len(), bench.wheel.drain().len()), (40, 0));
        drop(drained);
        assert_eq!(dropped.load(Relaxed), 53);
    }
}

/// Armed timers are dropped with the wheel. So are the remaining timers of the batch of a panicking
/// handler.
#[test]
fn nothing_is_lost_when_the_wheel_goes() {
    for shape in shapes() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let mut bench = Bench::new(shape);
        for n in 0..50 {
            bench.wheel.insert(Counted(Arc::clone(&dropped)), bench.ticks(n)).unwrap();
        }
        bench.clock.advance(bench.ticks(25));
        let sweep = catch_unwind(AssertUnwindSafe(|| bench.sweeper.sweep(|_| panic!("handler"))));
        assert!(sweep.is_err());
        drop(bench);
        assert_eq!(dropped.load(Relaxed), 50);
    }
}

#[test]
fn memory_is_bounded_by_the_live_timers() {
    let default = Shape { tick: Duration::from_millis(1), ..shapes()[8] };
    for shape in [default, Shape { geometry: SMALL, ..default }] {
        let mut bench = Bench::new(shape);
        let churn = |bench: &mut Bench<u64>, rounds: u64| {
            let mut most = 0;
            for n in 0..rounds {
                let id = bench.wheel.insert(n, Duration::from_secs(3600)).unwrap();
                bench.wheel.reset(id, Duration::from_secs(1800 - n % 900)).unwrap();
                bench.wheel.cancel(id);
                if n % 1000 == 0 && bench.sweeper.next_deadline().is_some() {
                    let _ = bench.sweeper.sweep(|_| ());
                }
                most = most.max(bench.wheel.metrics().bytes);
            }
            most
        };
        // Many cancels of long timers, few of which live at a time.
        let live: Vec<TimerId> =
            (0..9).map(|n| bench.wheel.insert(n, Duration::from_secs(7200)).unwrap()).collect();
        let most = churn(&mut bench, 400_000);
        assert!(most < 2_000_000, "{most} bytes");
        assert!(live.into_iter().all(|id| bench.wheel.cancel(id).is_some()));
        // A burst that has ended.
        let ids: Vec<TimerId> =
            (0..200_000).map(|n| bench.wheel.insert(n, Duration::from_secs(n)).unwrap()).collect();
        assert!(bench.wheel.metrics().bytes > 5_000_000);
        assert!(ids.into_iter().all(|id| bench.wheel.cancel(id).is_some()));
        for _ in 0..400 {
            let _ = bench.sweeper.sweep(|_| ());
        }
        let left = bench.wheel.metrics();
        assert!(left.bytes < 1_000_000, "{left:?}");
        assert_eq!(bench.sweeper.next_deadline(), None);
    }
    // A timer that is moved to and fro does not grow the slots.
    with_wheels(|mut bench: Bench<u64>| {
        let id = bench.wheel.insert(0, bench.ticks(5000)).unwrap();
        for n in 0..200_000 {
            let delay = [10 + n % 7, 5000 - n % 900][n as usize % 2];
            assert_eq!(bench.wheel.reset(id, bench.ticks(delay)), Ok(true));
            if n % 100 == 0 {
                assert!(bench.advance(bench.ticks(1)).is_empty());
            }
        }
        assert!(bench.wheel.metrics().stale_references < 40_000, "{:?}", bench.wheel.metrics());
    });
}

/// The second cancel of a timer finds none, but may move entries from full magazines to the slab.
#[test]
fn memory_is_bounded_though_each_timer_is_cancelled_twice() {
    let mut bench = Bench::new(Shape { tick: Duration::from_millis(1), ..shapes()[8] });
    let ids: Vec<TimerId> =
        (0..200_000).map(|n| bench.wheel.insert(n, Duration::from_secs(n)).unwrap()).collect();
    // The sweeper itself clears a wheel without timers.
    bench.wheel.insert(0, Duration::from_secs(7200)).unwrap();
    let most = bench.wheel.metrics().bytes;
    for id in ids {
        assert!(bench.wheel.cancel(id).is_some());
        assert!(bench.wheel.cancel(id).is_none());
    }
    for _ in 0..400 {
        let _ = bench.sweeper.sweep(|_| ());
    }
    let left = bench.wheel.metrics();
    assert!(left.bytes < most / 10, "{left:?} of {most} bytes");
}

const THREADS: usize = 16;

/// Arms `each` timers with 32-byte values from each of `THREADS` threads and ends them by `end`,
/// which each thread calls with its number and a share of the ids taken at random. While the
/// threads wait for work, fewer than `bound` bytes of the peak may be left.
fn burst_of_waiting_threads(
    each: usize,
    end: impl Fn(&Wheel<[u64; 4]>, usize, &mut dyn Iterator<Item = TimerId>) + Sync,
    bound: impl Fn(u64) -> u64,
) {
    let shape = Shape { tick: Duration::from_millis(1), shards: 2, ..shapes()[8] };
    let mut bench = Bench::<[u64; 4]>::new(shape);
    let (wheel, hour) = (bench.wheel.clone(), Duration::from_secs(3600));
    let ids = Mutex::new(Vec::new());
    let (armed, gone, over) =
        (Barrier::new(THREADS), Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (wheel, ids, armed, gone, over, end) = (&wheel, &ids, &armed, &gone, &over, &end);
            scope.spawn(move || {
                let own: Vec<_> = (0..each).map(|_| wheel.insert([7; 4], hour).unwrap()).collect();
                ids.lock().unwrap().extend(own);
                if armed.wait().is_leader() {
                    fastrand::Rng::with_seed(7).shuffle(&mut ids.lock().unwrap());
                }
                armed.wait();
                let all = ids.lock().unwrap().clone();
                end(wheel, thread, &mut all.into_iter().skip(thread).step_by(THREADS));
                gone.wait();
                over.wait();
            });
        }
        gone.wait();
        let most = wheel.metrics().bytes;
        for _ in 0..2000 {
            assert!(bench.advance(Duration::from_millis(50)).is_empty());
        }
        let left = wheel.metrics();
        over.wait();
        assert!(left.bytes < bound(most), "of {most} bytes: {left:?}");
    });
    assert!(wheel.is_empty());
}

/// Threads of a pool that have armed a burst end its timers side by side, and then wait for work.
#[test]
fn memory_is_bounded_by_the_live_timers_though_threads_wait() {
    let step = Barrier::new(THREADS);
    let side_by_side = |wheel: &Wheel<_>, _, ids: &mut dyn Iterator<Item = _>| {
        for (n, id) in ids.enumerate() {
            assert!(wheel.cancel(id).is_some());
            if n % 500 == 0 {
                step.wait();
            }
        }
    };
    burst_of_waiting_threads(12_000, side_by_side, |most| most / 10);
}

/// Each ends its share before the next begins, while most of the burst is still armed. The memory
/// that it keeps is bounded by the pages of 32 entries.
#[test]
fn memory_is_bounded_though_threads_wait_from_early_on() {
    let (turn, next) = (Mutex::new(0), Condvar::new());
    let in_turn = |wheel: &Wheel<_>, thread, ids: &mut dyn Iterator<Item = _>| {
        let mut turn = next.wait_while(turn.lock().unwrap(), |turn| *turn != thread).unwrap();
        ids.for_each(|id| assert!(wheel.cancel(id).is_some()));
        *turn += 1;
        next.notify_all();
    };
    let pages_of_12_kib = (THREADS * 32 * 12 * 1024) as u64;
    burst_of_waiting_threads(48_000, in_turn, |_| pages_of_12_kib);
}

/// A timer that alternates between a near and a far deadline is filed repeatedly into the far slot.
#[test]
fn memory_is_bounded_though_timers_alternate_between_near_and_far() {
    let mut bench = Bench::new(Shape { tick: Duration::from_millis(1), ..shapes()[8] });
    let hour = Duration::from_secs(3600);
    let ids: Vec<TimerId> = (0..100_u64).map(|n| bench.wheel.insert(n, hour).unwrap()).collect();
    for _ in 0..2000 {
        for &id in &ids {
            assert_eq!(bench.wheel.reset(id, bench.ticks(1)), Ok(true));
            assert_eq!(bench.wheel.reset(id, hour), Ok(true));
        }
        assert!(bench.advance(bench.ticks(1)).is_empty());
    }
    let metrics = bench.wheel.metrics();
    assert!(metrics.stale_references < 40_000, "{metrics:?}");
}

/// No timer is cancelled. The sweeper itself notices that a burst has ended.
#[test]
fn memory_of_a_burst_goes_when_it_has_fired_or_was_drained() {
    let shape = Shape { tick: Duration::from_millis(1), ..shapes()[8] };
    for drained in [false, true] {
        let mut bench = Bench::new(shape);
        for n in 0..200_000_u64 {
            bench.wheel.insert(n, Duration::from_millis(n)).unwrap();
        }
        if drained {
            assert_eq!(bench.wheel.drain().len(), 200_000);
        } else {
            assert_eq!(bench.advance(Duration::from_secs(200)).len(), 200_000);
        }
        for _ in 0..200 {
            let _ = bench.sweeper.sweep(|_| ());
        }
        let metrics = bench.wheel.metrics();
        assert!(metrics.bytes < 1_000_000, "{metrics:?}");
    }
}

/// A shard whose timers fire and are armed again reuses its entries, though another shard has many
/// vacant ones.
#[test]
fn memory_is_bounded_though_another_shard_is_quiet() {
    let shape = Shape { tick: Duration::from_millis(1), shards: 2, ..shapes()[8] };
    let mut bench = Bench::new(shape);
    // This thread has a thread id, and so another shard than the next.
    bench.wheel.insert(0, Duration::from_secs(7200)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let far = |n: u32| bench.wheel.insert(n, Duration::from_secs(7200)).unwrap();
            let ids: Vec<_> = (0..50_000).map(far).collect();
            ids.iter().step_by(2).for_each(|&id| assert!(bench.wheel.cancel(id).is_some()));
        });
    });
    let before = bench.wheel.metrics().bytes;
    for step in 0..8000 {
        for n in 0..100 {
            // One in a thousand stays, so that hardly any page can be given back.
            let stays = (step * 100 + n) % 1024 == 0;
            let delay = if stays { 3_600_000 } else { 1 + n % 10 };
            bench.wheel.insert(n, Duration::from_millis(delay.into())).unwrap();
        }
        bench.advance(shape.tick);
    }
    let after = bench.wheel.metrics();
    assert!(after.bytes < before + 2_000_000, "{before} bytes before, {after:?}");
}

/// The pages of a burst are given back although some timer fires every few ticks forever.
#[test]
fn memory_of_a_burst_goes_though_a_few_timers_go_on() {
    let mut bench = Bench::new(Shape { tick: Duration::from_millis(1), ..shapes()[8] });
    for n in 0..200_000_u64 {
        bench.wheel.insert(n, Duration::from_millis(1 + n % 2000)).unwrap();
    }
    for step in 0..4000 {
        if step % 5 == 0 {
            bench.wheel.insert(step, Duration::from_millis(10)).unwrap();
        }
        bench.advance(Duration::from_millis(1));
    }
    let metrics = bench.wheel.metrics();
    assert!(metrics.bytes < 500_000, "{metrics:?}");
}

/// The check for stale references waits while timers fire, but not for a whole rest.
#[test]
fn a_wheel_whose_last_timer_fires_does_not_rest_for_stale_references() {
    with_wheels(|mut bench: Bench<u32>| {
        let far = bench.wheel.insert(1, bench.ticks(100_000)).unwrap();
        bench.wheel.insert(2, bench.ticks(30)).unwrap();
        bench.wheel.cancel(far);
        bench.clock.advance(bench.ticks(31));
        let mut sweep = bench.sweeper.sweep(|_| ());
        assert_eq!(sweep.expired, 1);
        let mut sweeps = 0;
        while let Some(next) = sweep.next_deadline {
            assert!(next <= bench.clock.now(), "it rests until {next:?}");
            sweep = bench.sweeper.sweep(|_| ());
            sweeps += 1;
            assert!(sweeps < 20);
        }
    });
}

/// The check for stale references is left out while timers fire in short intervals.
#[test]
fn an_idle_wheel_is_swept_at_most_once_more_after_a_sweep_that_fired() {
    for ticks in [2, 10, 16, 17, 40] {
        with_wheels(|mut bench: Bench<u32>| {
            bench.wheel.insert(1, bench.ticks(1)).unwrap();
            let last = bench.wheel.insert(2, bench.ticks(ticks)).unwrap();
            bench.wheel.cancel(last);
            assert_eq!(bench.advance(bench.tick), [1]);
            // A longer rest is worth some slices of upkeep at once.
            let mut sweeps = 0;
            while bench.sweeper.next_deadline().is_some_and(|next| next <= bench.clock.now()) {
                assert!(bench.advance(Duration::ZERO).is_empty());
                sweeps += 1;
                assert!(sweeps < 20);
            }
            if let Some(next) = bench.sweeper.next_deadline() {
                assert!(next <= bench.clock.now() + bench.ticks(16));
                bench.advance(next - bench.clock.now());
            }
            while bench.sweeper.next_deadline().is_some_and(|next| next <= bench.clock.now()) {
                assert!(bench.advance(Duration::ZERO).is_empty());
                sweeps += 1;
                assert!(sweeps < 20);
            }
            assert_eq!(bench.sweeper.next_deadline(), None, "{ticks}");
        });
    }
}

#[test]
fn an_idle_wheel_wants_no_sweep() {
    with_wheels(|mut bench: Bench<u32>| {
        assert_eq!(bench.sweeper.next_deadline(), None);
        let far = bench.wheel.insert(1, bench.ticks(100_000)).unwrap();
        let near = bench.wheel.insert(2, bench.ticks(30)).unwrap();
        let deadline = bench.wheel.deadline(near).unwrap();
        let next = bench.sweeper.next_deadline().unwrap();
        assert!(next <= deadline && next > bench.clock.now());
        bench.wheel.cancel(near);
        bench.wheel.cancel(far);
        // The remaining references are stale, and take one or a few slices of upkeep. Then nothing
        // is left.
        let mut sweeps = 0;
        while bench.sweeper.next_deadline().is_some() {
            let _ = bench.sweeper.sweep(|_| ());
            sweeps += 1;
            assert!(sweeps < 20);
        }
    });
    // A timer that uses an existing reference while the wheel is being pruned.
    with_wheels(|mut bench: Bench<u32>| {
        let first = bench.wheel.insert(1, bench.ticks(30)).unwrap();
        bench.wheel.cancel(first);
        assert!(bench.sweeper.next_deadline().is_some());
        let second = bench.wheel.insert(2, bench.ticks(30)).unwrap();
        let _ = bench.sweeper.sweep(|_| ());
        bench.wheel.cancel(second);
        for _ in 0..20 {
            let _ = bench.sweeper.sweep(|_| ());
        }
        assert_eq!(bench.sweeper.next_deadline(), None);
    });
    // From level 0 on, the promised instant is the deadline itself, and not a tick of a clock.
    let default = Shape { tick: Duration::from_millis(1), ..shapes()[8] };
    let mut bench = Bench::new(default);
    bench.wheel.insert(1_u32, Duration::from_secs(3600)).unwrap();
    let mut sweeps = 0;
    while !bench.wheel.is_empty() {
        let next = bench.sweeper.next_deadline().unwrap();
        bench.advance(next - bench.clock.now());
        sweeps += 1;
    }
    assert!(sweeps <= 4, "{sweeps} sweeps for a timer of an hour");
}

#[test]
fn a_panic_in_the_waker_leaves_nothing_behind() {
    let panics = Arc::new(AtomicUsize::new(0));
    let left = Arc::clone(&panics);
    let builder = Builder::new().waker(move || assert_ne!(left.swap(0, Relaxed), 1, "waker"));
    let mut bench = Bench::of(shapes()[8], builder);
    let id = bench.wheel.insert(1, bench.ticks(3000)).unwrap();
    assert!(bench.sweeper.next_deadline() > Some(bench.clock.now()));
    panics.store(1, Relaxed);
    let reset = std::panic::AssertUnwindSafe(|| bench.wheel.reset(id, bench.ticks(1)));
    assert!(std::panic::catch_unwind(reset).is_err());
    assert_eq!(bench.wheel.cancel(id), Some(1));
    assert!(bench.advance(bench.ticks(3000)).is_empty());
    let _ = bench.sweeper.sweep(|_| ());
    assert_eq!(bench.sweeper.next_deadline(), None);
}

#[test]
fn an_earlier_timer_wakes_the_sweeper() {
    for shape in shapes() {
        let woken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&woken);
        let builder = Builder::new().waker(move || {
            count.fetch_add(1, Relaxed);
        });
        let mut bench = Bench::of(shape, builder);
        let late = bench.wheel.insert("late", bench.ticks(1000)).unwrap();
        assert_eq!(woken.load(Relaxed), 0, "nobody rests yet");
        let rest = |bench: &mut Bench<&str>| loop {
            let until = bench.sweeper.next_deadline().unwrap();
            if until > bench.clock.now() {
                return until;
            }
            let _ = bench.sweeper.sweep(|_| ());
        };
        let until = rest(&mut bench);
        bench.wheel.insert("later", bench.ticks(2000)).unwrap();
        assert_eq!(woken.load(Relaxed), 0, "a later timer need not wake it");
        let early = bench.wheel.insert("early", bench.ticks(1)).unwrap();
        let needed = usize::from(bench.wheel.deadline(early).unwrap() < until);
        assert_eq!(woken.load(Relaxed), needed);
        rest(&mut bench);
        bench.wheel.reset(late, Duration::ZERO).unwrap();
        assert_eq!(woken.load(Relaxed), needed + 1, "a reset to earlier wakes it too");
        assert_eq!(bench.advance(Duration::ZERO), ["late"]);
    }
}

#[test]
fn a_panic_in_a_handler_harms_no_other_timer() {
    let clock = ManualClock::new();
    let (send, fired) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let driver = Builder::new()
        .clock(clock.clone())
        .driver()
        .executor(Inline)
        .batch(3)
        .on_panic(move |id, _| tell.send(id).unwrap())
        .spawn(move |timer: tourbillon::Expired<u32>| {
            assert!(timer.value % 2 == 0, "an odd timer");
            send.send(timer.value).unwrap();
        })
        .unwrap();
    let mut odd = HashSet::new();
    for n in 0..50 {
        let id = driver.wheel().insert(n, Duration::from_millis(u64::from(n))).unwrap();
        if n % 2 == 1 {
            odd.insert(id);
        }
    }
    clock.advance(Duration::from_secs(1));
    let even: Vec<u32> = receive(&fired, 25);
    assert_eq!(even, (0..50).step_by(2).collect::<Vec<_>>());
    assert_eq!(receive(&told, 25).into_iter().collect::<HashSet<_>>(), odd);
    assert_eq!(driver.metrics().handler_panics, 25);
}

/// On a sweeper without a driver, the sweep after the panic continues with the next timer.
/// Unwinding usually drops the sweeper too, and the drain gets the timers that it had taken.
#[test]
fn a_panic_that_ends_the_sweeper_loses_nothing() {
    with_wheels(|Bench { wheel, mut sweeper, clock, tick }: Bench<u32>| {
        let ids: Vec<_> = (0..600).map(|n| wheel.insert(n, tick).unwrap()).collect();
        clock.advance(tick * 2);
        let sweep = AssertUnwindSafe(move || {
            let _ = sweeper.sweep(|_| panic!("the first of them"));
        });
        assert!(catch_unwind(sweep).is_err());
        assert_eq!(wheel.len(), 599);
        let cancelled = ids.iter().filter(|&&id| wheel.cancel(id).is_some()).count();
        let drained = wheel.drain();
        let values: HashSet<u32> = drained.iter().map(|timer| timer.value).collect();
        assert_eq!((values.len(), cancelled + drained.len()), (drained.len(), 599));
        let metrics = wheel.metrics();
        let counts = (metrics.fired, metrics.cancelled, metrics.returned);
        assert_eq!(counts, (1, cancelled as u64, drained.len() as u64));
        assert!(wheel.is_empty() && wheel.drain().is_empty());
    });
}

/// The waker panics too, while the handler's panic drops the sweeper. The process is not aborted.
#[test]
fn a_panic_in_the_waker_while_a_panic_drops_the_sweeper() {
    let builder = Builder::new().waker(|| panic!("waker"));
    let Bench { wheel, mut sweeper, clock, tick } = Bench::of(shapes()[8], builder);
    wheel.insert(7, tick).unwrap();
    clock.advance(tick);
    let sweep = AssertUnwindSafe(move || {
        let _ = sweeper.sweep(|_| panic!("handler"));
    });
    let panic = catch_unwind(sweep).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"handler"));
    assert!(wheel.is_closed() && wheel.is_empty());
}

#[test]
fn a_panic_in_a_sweep_harms_no_other_timer() {
    // More than a batch is due. The rest of the batch, and the pending timers, come later, also in
    // bounded sweeps.
    with_wheels(|mut bench: Bench<u32>| {
        for n in 0..600 {
            bench.wheel.insert(n, bench.ticks(1)).unwrap();
        }
        bench.clock.advance(bench.ticks(2));
        let panics = AssertUnwindSafe(|| bench.sweeper.sweep(|_| panic!("the first of them")));
        assert!(catch_unwind(panics).is_err());
        let mut left = 599;
        while left > 0 {
            let next = bench.sweeper.next_deadline();
            assert!(next.is_some_and(|next| next <= bench.clock.now()), "{left} are left");
            // A third of the rest of the batch of 256.
            let sweep = bench.sweeper.sweep_some(85, |_| left -= 1);
            assert!(sweep.expired <= 85 && sweep.expired > 0);
        }
    });
    with_wheels(|mut bench: Bench<u32>| {
        for n in 0..20 {
            bench.wheel.insert(n, bench.ticks(1)).unwrap();
        }
        bench.clock.advance(bench.ticks(2));
        let mut fired = HashSet::new();
        for _ in 0..20 {
            let _ = catch_unwind(AssertUnwindSafe(|| {
                bench.sweeper.sweep(|timer| {
                    assert!(fired.insert(timer.value));
                    assert!(timer.value % 3 != 0, "a third of them");
                })
            }));
        }
        assert_eq!(fired.len(), 20);
    });
}
