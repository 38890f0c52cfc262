//! Random operations of simulated callers, compared with the model, over many shapes of wheel.

#[path = "../common/model.rs"]
mod model;

use model::setup::{Setup, any_setup};
use model::{Model, Op};
use proptest::prelude::*;
use std::time::Duration;
use tourbillon::__internals::Geometry;

/// Delays of all sizes, most of them short.
fn span() -> impl Strategy<Value = u32> {
    prop_oneof![
        3 => 0..20_u32,
        3 => 0..400_u32,
        2 => 0..40_000_u32,
        1 => 0..30_000_000_u32,
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let which = || prop_oneof![4 => 0..6_usize, 1 => any::<usize>()];
    prop_oneof![
        6 => span().prop_map(|delay| Op::Insert { delay }),
        2 => (-50..400_i32).prop_map(|offset| Op::InsertAt { offset }),
        3 => which().prop_map(|which| Op::Cancel { which }),
        6 => (which(), span()).prop_map(|(which, delay)| Op::Reset { which, delay }),
        2 => (which(), -50..400_i32).prop_map(|(which, offset)| Op::ResetAt { which, offset }),
        1 => which().prop_map(|which| Op::Look { which }),
        1 => any::<u64>().prop_map(|bits| Op::MadeUp { bits }),
        4 => span().prop_map(|step| Op::Sweep { step }),
        2 => (span(), 0..4_usize).prop_map(|(step, limit)| Op::SweepSome { step, limit }),
        1 => Just(Op::Drain),
    ]
}

proptest! {
    #[test]
    fn the_wheel_does_what_the_model_does(
        setup in any_setup(),
        ops in prop::collection::vec(op(), 0..120),
    ) {
        Model::run(&setup, &ops);
    }
}

/// In such a small wheel, a reference that waits is refiled in every other tick, and these visits
/// alone may exceed the budget of one call.
#[test]
fn a_bounded_sweep_of_names_that_are_filed_again_and_again() {
    let geometry = Geometry { root_bits: 1, level_bits: 1, levels: 2, page_bits: 1 };
    let tick = Duration::from_micros(4);
    let setup = Setup { shards: 3, geometry, tick, first_tick: 0, capacity: None };
    let mut ops = vec![Op::Insert { delay: 0 }; 2];
    ops.extend([Op::SweepSome { step: 3517, limit: 0 }, Op::Insert { delay: 0 }]);
    ops.push(Op::Reset { which: 1, delay: 4 });
    ops.extend(vec![Op::Insert { delay: 4 }; 4]);
    ops.push(Op::SweepSome { step: 7, limit: 3 });
    Model::run(&setup, &ops);
}
