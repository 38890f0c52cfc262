//! Leases that are renewed after the clock was set back, and the notices of that.

use crate::common::bench::{Bench, Place, SECOND, wait};
use crate::common::process::quick;
use crate::common::redis::OneNode;
use futures_channel::oneshot;
use std::cell::Cell;
use std::sync::mpsc::channel;

/// Advances the time until the worker has renewed the lease of the timer `id`, of six seconds.
pub(crate) fn renewal(bench: &Bench<OneNode>) {
    let due = || wait(bench.timers().get("id")).unwrap().map(|timer| timer.due);
    let (before, polls) = (due(), Cell::new(0));
    bench.place.server.wait_for("a renewal", |_| {
        // The worker may arm the timer of the renewal after the first step.
        if polls.replace(polls.get() + 1) % 100 == 0 {
            bench.advance(2 * SECOND);
        }
        due() != before
    });
}

#[test]
fn a_renewal_is_published_if_the_clock_was_set_back() {
    let Some(bench) = OneNode::bench() else { return };
    let (begin, begun) = channel();
    let running = bench.work(1, move |_| {
        let (result, comes) = oneshot::channel::<()>();
        begin.send(result).unwrap();
        comes
    });
    wait(bench.timers().insert("id", "", SECOND, quick().lease(6 * SECOND))).unwrap();
    bench.advance(SECOND);
    let result = begun.recv_timeout(60 * SECOND).expect("an attempt begins");
    let renewal = || {
        renewal(&bench);
        bench.place.server.calls("publish")
    };
    // Each moves the end of the lease to a later time.
    let (first, second) = (renewal(), renewal());
    assert_eq!(first, second);
    bench.place.set_clock(-4_000);
    assert_eq!(renewal(), second + 1, "other workers have a key of a later time");
    assert_eq!(renewal(), second + 1);
    result.send(()).unwrap();
    assert_eq!(running.acknowledged(1), ["id"]);
    assert_eq!(running.stop(), []);
}
