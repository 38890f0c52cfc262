//! Tests of the cost of an empty delay queue.

use crate::{alone, held};
use tourbillon::future::{DelayQueue, Timer};
use tourbillon::{Builder, ManualClock};

/// The cost is the same on every machine, because it does not grow with the cores, as a wheel does.
#[test]
fn an_empty_queue_has_one_shard_unless_it_is_told_otherwise() {
    let _alone = alone();
    let (wheel, _sweeper) = Builder::new().shards(1).clock(ManualClock::new()).build().unwrap();
    let timer = Timer::new(wheel);
    let cost = |builder: Builder| {
        let mut queue = None;
        held(|| queue = Some(DelayQueue::<u64>::new(&timer, builder).unwrap()))
    };
    // The first one makes what all share.
    assert!(cost(Builder::new()) > 0);
    let one = cost(Builder::new().shards(1));
    assert!(one < 6 << 10, "{one} bytes");
    assert_eq!(cost(Builder::new()), one);
    assert!(cost(Builder::new().shards(8)) > one, "one that was told so has as many as it asked");
}
