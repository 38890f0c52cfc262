//! Operations of pretended callers and handlers on keyed timers over a wheel of any shape, against
//! the model that the property test uses too.

#![no_main]

#[path = "../../tests/common/keyed_model.rs"]
mod model;

use libfuzzer_sys::{arbitrary, fuzz_target};
use model::{Model, Op, Setup};
use std::time::Duration;
use tourbillon::__internals::Geometry;

#[derive(Debug, arbitrary::Arbitrary)]
struct Input {
    shards: u8,
    geometry: [u8; 4],
    micros: u16,
    first_tick: u64,
    capacity: Option<u8>,
    ops: Vec<Op>,
}

fuzz_target!(|input: Input| {
    let [root, level, levels, page] = input.geometry.map(u32::from);
    let setup = Setup {
        shards: usize::from(input.shards % 4) + 1,
        geometry: Geometry {
            root_bits: root % 8 + 1,
            level_bits: level % 4 + 1,
            levels: levels % 5 + 1,
            page_bits: page % 6 + 1,
        },
        tick: Duration::from_micros(u64::from(input.micros) + 1),
        first_tick: input.first_tick % (1 << 45),
        capacity: input.capacity.map(|capacity| u64::from(capacity % 16) + 1),
    };
    let mut model = Model::new(&setup);
    for op in input.ops.iter().take(200) {
        model.apply(op);
    }
    model.finish();
});
