//! Wheels in virtual time, over several shapes, and a waker that counts.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::Receiver;
use std::task::Wake;
use std::time::Duration;
use tourbillon::__internals::Geometry;
use tourbillon::{Builder, ManualClock, Sweeper, Wheel};

/// A wheel, its sweeper and its clock.
pub(crate) struct Bench<T> {
    pub(crate) wheel: Wheel<T>,
    pub(crate) sweeper: Sweeper<T>,
    pub(crate) clock: ManualClock,
}

/// The settings of a wheel under test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) tick: Duration,
    pub(crate) shards: usize,
    pub(crate) geometry: Geometry,
    pub(crate) first_tick: u64,
}

pub(crate) const TINY: Geometry = Geometry { root_bits: 1, level_bits: 1, levels: 2, page_bits: 1 };
pub(crate) const SMALL: Geometry =
    Geometry { root_bits: 3, level_bits: 2, levels: 3, page_bits: 2 };

/// Wheels of several resolutions, shard counts, geometries and first ticks.
pub(crate) fn shapes() -> Vec<Shape> {
    let ticks = [Duration::from_micros(1), Duration::from_millis(1), Duration::from_millis(250)];
    let mut shapes = Vec::new();
    for (index, geometry) in [TINY, SMALL, Geometry::default()].into_iter().enumerate() {
        for shards in [1, 3] {
            for first_tick in [0, (1 << 38) - 3] {
                shapes.push(Shape { tick: ticks[index], shards, geometry, first_tick });
            }
        }
    }
    shapes
}

impl<T: Send> Bench<T> {
    pub(crate) fn new(shape: Shape) -> Self {
        let clock = ManualClock::new();
        let (wheel, sweeper) = Builder::new()
            .resolution(shape.tick)
            .shards(shape.shards)
            .clock(clock.clone())
            .__shape(shape.geometry, shape.first_tick)
            .build()
            .expect("the shape is in range");
        Self { wheel, sweeper, clock }
    }
}

/// Receives the next values from other threads. The limit is for a broken build, which would hang.
pub(crate) fn receive<T>(receiver: &Receiver<T>, count: usize) -> Vec<T> {
    let next = || receiver.recv_timeout(Duration::from_secs(60)).expect("nothing is lost");
    (0..count).map(|_| next()).collect()
}

/// The number of operations of a test with real threads, which is `TOURBILLON_STRESS_OPS` or a
/// small number.
pub(crate) fn operations() -> usize {
    std::env::var("TOURBILLON_STRESS_OPS").map_or(30_000, |ops| ops.parse().expect("a number"))
}

/// Counts how often its task was woken.
#[derive(Default)]
pub(crate) struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Woken {
    pub(crate) fn times(&self) -> usize {
        self.0.load(SeqCst)
    }
}
