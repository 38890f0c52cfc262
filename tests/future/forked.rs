//! The default timer in a process that is forked without `exec`.

use crate::common::child::in_a_child;
use std::time::Duration;
use tourbillon::future::{default_timer, sleep};

#[test]
fn a_child_has_a_default_timer_of_its_own() {
    let millisecond = Duration::from_millis(1);
    pollster::block_on(sleep(millisecond)).unwrap();
    let parents = default_timer();
    in_a_child(|| {
        let slept = pollster::block_on(sleep(millisecond));
        let again = pollster::block_on(sleep(millisecond));
        let own = default_timer().wheel().metrics().inserted == 2;
        slept.is_ok() && again.is_ok() && own && parents.wheel().is_closed()
    });
    assert_eq!(pollster::block_on(sleep(millisecond)), Ok(()), "the parent goes on");
}
