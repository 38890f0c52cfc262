//! Runs operations of simulated callers and handlers on keyed timers, over a wheel of any shape,
//! against the reference model of the property test.

#![no_main]

#[path = "../../tests/common/keyed_model.rs"]
mod model;

use libfuzzer_sys::{arbitrary, fuzz_target};
use model::setup::Raw;
use model::{Model, Op};

#[derive(Debug, arbitrary::Arbitrary)]
struct Input {
    setup: Raw,
    ops: Vec<Op>,
}

fuzz_target!(|input: Input| {
    Model::run(&input.setup.setup(), input.ops.iter().take(200));
});
