//! Wheels of several shards with timers in all of them. They are inserted by threads of their own,
//! which act one at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tourbillon::__internals::Geometry;
use tourbillon::{Builder, ManualClock, Sweeper, TimerId, Wheel};

const TICK: Duration = Duration::from_millis(1);

const SMALL: Geometry = Geometry { root_bits: 3, level_bits: 2, levels: 4, page_bits: 2 };

/// An operation that another thread performs.
type Job = Box<dyn FnOnce(&Wheel<u64>) + Send>;

/// A thread that performs operations, and whose timers are in one shard.
struct Hand {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

impl Hand {
    #[allow(clippy::disallowed_methods, reason = "the tests are about threads")]
    fn new(wheel: &Wheel<u64>) -> Self {
        let (jobs, received) = channel::<Job>();
        let wheel = wheel.clone();
        let thread = thread::spawn(move || received.iter().for_each(|job| job(&wheel)));
        Self { jobs, thread }
    }

    /// Performs an operation and waits for its result.
    fn run<R: Send + 'static>(&self, job: impl FnOnce(&Wheel<u64>) -> R + Send + 'static) -> R {
        let (result, received) = channel();
        let job = move |wheel: &Wheel<u64>| result.send(job(wheel)).unwrap();
        self.jobs.send(Box::new(job)).unwrap();
        received.recv().unwrap()
    }

    fn insert(&self, value: u64, deadline: Instant) -> TimerId {
        self.run(move |wheel| wheel.insert_at(value, deadline).unwrap())
    }
}

/// A wheel with a hand for each of its shards.
struct World {
    wheel: Wheel<u64>,
    sweeper: Sweeper<u64>,
    clock: ManualClock,
    hands: Vec<Hand>,
    woken: Arc<AtomicUsize>,
}

/// The shard of a timer.
fn shard(id: TimerId) -> usize {
    usize::try_from(id.to_bits() >> 56).unwrap()
}

impl World {
    fn new(shards: usize, geometry: Geometry) -> Self {
        let (clock, woken) = (ManualClock::new(), Arc::new(AtomicUsize::new(0)));
        let wakes = Arc::clone(&woken);
        let wake = move || {
            wakes.fetch_add(1, Relaxed);
        };
        let builder = Builder::new().clock(clock.clone()).shards(shards).waker(wake);
        let (wheel, mut sweeper) = builder.__shape(geometry, 0).build().unwrap();
        // A thread's shard follows from its id, which depends on the threads of other tests.
        let (mut hands, mut spare) = (HashMap::new(), Vec::new());
        while hands.len() < shards {
            let hand = Hand::new(&wheel);
            let id = hand.insert(0, clock.start());
            match hands.contains_key(&shard(id)) {
                true => spare.push(hand),
                false => drop(hands.insert(shard(id), hand)),
            }
        }
        while sweeper.next_deadline().is_some() {
            let _ = sweeper.sweep(|_| ());
        }
        let mut hands: Vec<_> = hands.into_iter().collect();
        hands.sort_unstable_by_key(|(shard, _)| *shard);
        let hands = hands.into_iter().map(|(_, hand)| hand).collect();
        spare.into_iter().for_each(Hand::end);
        Self { wheel, sweeper, clock, hands, woken }
    }

    fn at(&self, ticks: u32) -> Instant {
        self.clock.start() + TICK * ticks
    }

    /// Moves the clock to a tick and sweeps. Returns what fires, sorted.
    fn sweep_to(&mut self, tick: u32) -> Vec<u64> {
        self.clock.advance(self.at(tick).saturating_duration_since(self.wheel.clock().now()));
        let mut fired = Vec::new();
        let _ = self.sweeper.sweep(|timer| fired.push(timer.value));
        fired.sort_unstable();
        fired
    }

    fn woken(&self) -> usize {
        self.woken.swap(0, Relaxed)
    }
}

impl Hand {
    fn end(self) {
        drop(self.jobs);
        self.thread.join().unwrap();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.hands.drain(..).for_each(Hand::end);
    }
}

/// Each timer fires in the first sweep that begins when it is due, whatever the threads do between
/// the steps of sweeps. The time of the next sweep is no later than the earliest deadline, and an
/// earlier timer wakes the sweeper.
#[test]
fn timers_of_all_shards_fire_in_time() {
    for (shards, seeds) in [(2, 60), (5, 40), (40, 8)] {
        for (geometry, reach) in [(SMALL, 90), (Geometry::default(), 4000)] {
            for seed in 0..seeds {
                fire_in_time(&mut World::new(shards, geometry), reach, seed);
            }
        }
    }
}

fn fire_in_time(world: &mut World, reach: u32, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut armed = HashMap::<u64, (TimerId, u32)>::new();
    let (mut now, mut rests_until) = (0, Some(None));
    for n in 1..400 {
        let delay = if random.bool() { random.u32(0..8) } else { random.u32(0..reach) };
        let hand = &world.hands[random.usize(0..world.hands.len())];
        let deadline = world.at(now + delay);
        let earlier = rests_until.is_some_and(|until| until.is_none_or(|until| deadline < until));
        match random.u32(0..8) {
            0..4 => {
                armed.insert(n, (hand.insert(n, deadline), now + delay));
                assert!(!earlier || world.woken.load(Relaxed) > 0, "no wake-up for a timer");
            }
            4 | 5 => {
                if let Some((id, at)) = armed.values_mut().next() {
                    let id = *id;
                    assert_eq!(hand.run(move |wheel| wheel.reset_at(id, deadline)), Ok(true));
                    let pulled = earlier && *at > now + delay;
                    assert!(!pulled || world.woken.load(Relaxed) > 0, "no wake-up for a reset");
                    *at = now + delay;
                }
            }
            6 => {
                let some = armed.keys().next().copied();
                if let Some((n, (id, _))) = some.and_then(|n| armed.remove_entry(&n)) {
                    assert_eq!(hand.run(move |wheel| wheel.cancel(id)), Some(n));
                }
            }
            _ => {
                now += if random.u32(0..5) == 0 { random.u32(0..reach) } else { random.u32(0..4) };
                rests_until = Some(sweep(world, &mut random, &mut armed, now, n));
                world.woken();
            }
        }
        if world.woken() > 0 {
            // From here on the sweeper does not rest.
            rests_until = None;
        }
    }
    armed.clear();
    world.wheel.drain();
    // The sweeper prunes and trims shard by shard.
    for _ in 0..6 * world.hands.len() {
        rests_until = Some(sweep(world, &mut random, &mut armed, now, 0));
    }
    assert_eq!(rests_until, Some(None), "nothing is armed");
}

/// Sweeps to a tick, sometimes in bounded steps, with inserts in between. Returns the time of the
/// next sweep.
fn sweep(
    world: &mut World,
    random: &mut fastrand::Rng,
    armed: &mut HashMap<u64, (TimerId, u32)>,
    now: u32,
    n: u64,
) -> Option<Instant> {
    world.clock.advance(world.at(now).saturating_duration_since(world.wheel.clock().now()));
    let due: Vec<_> = armed.iter().filter(|(_, (_, at))| *at <= now).map(|(&n, _)| n).collect();
    let limit = if random.bool() { random.usize(1..5) } else { usize::MAX };
    let (mut fired, mut more) = (Vec::new(), n << 32);
    let next = loop {
        let report = world.sweeper.sweep_some(limit, |timer| {
            fired.push(timer.value);
            // At a tick that the clock has passed, and maybe the sweep as well.
            if n > 0 && random.u32(0..3) == 0 {
                more += 1;
                let at = now.saturating_sub(random.u32(0..6));
                let hand = &world.hands[random.usize(0..world.hands.len())];
                let deadline = world.clock.start() + TICK * at;
                armed.insert(more, (hand.insert(more, deadline), at));
            }
        });
        if report.finished {
            break report.next_deadline;
        }
    };
    for n in &fired {
        let (_, at) = armed.remove(n).expect("each fires once");
        assert!(at <= now, "{n} is early");
    }
    assert!(due.iter().all(|n| fired.contains(n)), "{due:?} are due, {fired:?} have fired");
    let earliest = armed.values().map(|&(_, at)| world.at(at.max(now))).min();
    assert!(earliest.is_none_or(|at| next.is_some_and(|next| next <= at)), "rests until {next:?}");
    next
}

/// A sweep visits each timer at its tick, whichever shard it is in. The time of the next sweep is
/// exact on the finest level.
#[test]
fn the_next_sweep_is_at_the_earliest_deadline_of_all_shards() {
    let mut world = World::new(5, Geometry::default());
    let ticks = [700, 30, 31, 2000, 30, 1, 700, 699, 4000];
    for (&tick, hand) in ticks.iter().zip((0..5).cycle()) {
        world.hands[hand].insert(tick, world.at(u32::try_from(tick).unwrap()));
    }
    let mut order: Vec<u64> = ticks.to_vec();
    order.sort_unstable();
    while let Some(next) = world.sweeper.next_deadline() {
        let tick = u32::try_from(order[0]).unwrap();
        assert_eq!(next, world.at(tick));
        let fired = world.sweep_to(tick);
        assert_eq!(fired, order.drain(..fired.len()).collect::<Vec<_>>());
    }
    assert!(order.is_empty());
}

/// While a slot is pruned in steps it may be empty, and a scan of its shard then finds only later
/// slots. A reference that is put back into it later is visited all the same.
#[test]
fn a_reference_that_is_put_back_after_a_scan_is_visited() {
    const STALE: usize = 20_000;
    let mut world = World::new(2, Geometry::default());
    let (near, far) = (world.at(50), world.at(3000));
    // The newest block of a slot is pruned first, and so this reference last.
    let id = world.hands[1].insert(1, near);
    assert_eq!(shard(id), 1);
    world.hands[1].run(move |wheel| {
        let insert = |at| move |_| wheel.insert_at(0, at).unwrap();
        let ids = (0..STALE).map(insert(near)).chain((0..STALE).map(insert(far)));
        assert!(ids.collect::<Vec<_>>().into_iter().all(|id| wheel.cancel(id).is_some()));
    });
    let before = world.wheel.metrics().stale_references;
    let slice = |world: &mut World| {
        let mut fired = None;
        let _ = world.sweeper.sweep_some(1, |timer| fired = Some(timer.value));
        fired
    };
    assert_eq!(slice(&mut world), None);
    assert!(world.wheel.metrics().stale_references < before, "the slot is being pruned");
    world.hands[1].insert(2, world.at(10));
    world.clock.advance(TICK * 10);
    while slice(&mut world) != Some(2) {}
    while world.wheel.metrics().stale_references > before - STALE as u64 - 1000 {
        assert_eq!(slice(&mut world), None);
    }
    assert!(world.wheel.metrics().stale_references > 1000, "the other slot is being pruned");
    assert_eq!(world.sweep_to(50), [1]);
}

/// The second reference that a shard gets while the sweeper rests, and that the sweeper does not
/// know to scan for, wakes it once. The shard's filers then need no report any more.
#[test]
fn a_shard_that_is_reported_twice_wakes_the_sweeper_once() {
    let mut world = World::new(2, Geometry::default());
    world.hands[0].insert(1, world.at(10));
    assert_eq!(world.sweeper.next_deadline(), Some(world.at(10)));
    world.woken();
    let wakes: Vec<_> = (0..4)
        .map(|n| {
            world.hands[1].insert(n, world.at(20));
            world.woken()
        })
        .collect();
    assert_eq!(wakes, [0, 1, 0, 0]);
    assert_eq!(world.sweeper.next_deadline(), Some(world.at(10)));
    for n in 0..3 {
        world.hands[1].insert(n, world.at(20));
    }
    assert_eq!(world.woken(), 0, "the sweeper scans the shard at tick 20");
    world.hands[1].insert(9, world.at(9));
    assert_eq!(world.woken(), 1, "an earlier timer");
}
