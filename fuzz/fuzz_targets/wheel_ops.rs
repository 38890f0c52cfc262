//! Runs operations of simulated callers on a wheel of any shape, against the reference model of the
//! property test.

#![no_main]

#[path = "../../tests/common/model.rs"]
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
