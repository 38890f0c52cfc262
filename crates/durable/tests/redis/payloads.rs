//! Long payloads, which are written once and not with each step of their timers.

use crate::common::bench::{Bench, SECOND, quick, wait};
use crate::common::redis::OneNode;
use crate::renewals::renewal;
use tourbillon_durable::{Cancelled, Existing, Finding, Inserted, Outcome};

const LONG: usize = 1 << 20;

fn payload(byte: u8) -> Vec<u8> {
    vec![byte; LONG]
}

/// Returns how many bytes the server has written to its log so far.
fn written(bench: &Bench<OneNode>) -> usize {
    bench.place.server.figure("persistence", "aof_current_size").unwrap().parse().unwrap()
}

#[test]
fn a_retry_and_a_renewal_do_not_write_a_long_payload() {
    let log = ["--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"];
    let Some(place) = OneNode::start(&log) else { return };
    let bench = Bench::new(place);
    let timers = bench.timers();
    let attempts = 10;
    let options = quick().attempts(attempts + 1).lease(9 * SECOND);
    let before = written(&bench);
    wait(timers.insert("id", payload(7), SECOND, options)).unwrap();
    let inserted = written(&bench);
    assert!((LONG..2 * LONG).contains(&(inserted - before)), "{}", inserted - before);
    let (begin, begun) = std::sync::mpsc::channel();
    let running = bench.work(1, move |delivery| {
        assert_eq!(delivery.payload.len(), LONG);
        let (result, comes) = futures_channel::oneshot::channel::<()>();
        begin.send(result).unwrap();
        comes
    });
    for _ in 0..attempts {
        bench.advance(4 * SECOND);
        let fails = begun.recv_timeout(60 * SECOND).expect("an attempt begins");
        // The worker may have requested the lease before the step, which took four seconds of it.
        bench.advance(SECOND);
        renewal(&bench);
        drop(fails);
        assert!(matches!(running.next().outcome, Outcome::Retry { .. }));
    }
    assert_eq!(running.stop(), []);
    assert_eq!(wait(timers.reset("id", 99 * SECOND)), Ok(true));
    assert_eq!(wait(timers.pause_timer("id")), Ok(true));
    assert_eq!(wait(timers.get("id")).unwrap().unwrap().payload, payload(7));
    let steps = written(&bench) - inserted;
    assert!(steps < LONG / 8, "{steps} bytes were written in {attempts} attempts");
}

#[allow(clippy::cognitive_complexity, reason = "one way after another to end a delivery")]
#[test]
fn no_long_payload_is_left_behind() {
    let Some(bench) = OneNode::bench() else { return };
    let timers = bench.timers();
    let fields = || {
        let sum = "EVAL \"local sum = 0 for _, key in ipairs(redis.call('KEYS', '*:b:*')) do \
                   sum = sum + redis.call('HLEN', key) end return sum\" 0";
        bench.place.server.order(sum).trim().to_owned()
    };
    let insert = |payload: &[u8], existing| {
        wait(timers.insert("id", payload, SECOND, quick().attempts(1).existing(existing)))
    };
    // Replaced and updated by a short one.
    for existing in [Existing::Replace, Existing::Update] {
        insert(&payload(1), Existing::Refuse).unwrap();
        assert_eq!(fields(), ":2");
        insert(b"short", existing).unwrap();
        assert_eq!(fields(), ":1");
        assert_eq!(wait(timers.cancel("id")), Ok(Cancelled::Removed));
    }
    // Cancelled, acknowledged, and dead.
    insert(&payload(1), Existing::Refuse).unwrap();
    assert_eq!(wait(timers.cancel("id")), Ok(Cancelled::Removed));
    assert_eq!(fields(), ":0");
    let running = bench.work_well();
    insert(&payload(1), Existing::Refuse).unwrap();
    bench.advance(SECOND);
    assert_eq!(running.acknowledged(1), ["id"]);
    assert_eq!((running.stop(), fields()), (vec![], ":0".to_owned()));
    let running = bench.work(1, |_| async { Err("no") });
    insert(&payload(1), Existing::Refuse).unwrap();
    bench.advance(SECOND);
    assert!(matches!(running.next().outcome, Outcome::Dead { .. }));
    assert_eq!((running.stop(), fields()), (vec![], ":0".to_owned()));
    // The next delivery, which is cancelled, and which takes the place of the first one.
    for (cancels, left) in [(true, ":2"), (false, ":3")] {
        let (inside, keep) = (timers.clone(), quick().existing(Existing::Keep));
        let server = std::sync::Arc::clone(&bench.place);
        insert(&payload(1), Existing::Refuse).unwrap();
        let running = bench.work(1, move |delivery| {
            if delivery.payload[0] == 1 {
                let next = inside.insert("id", payload(2), SECOND, keep.clone());
                assert_eq!(wait(next), Ok(Inserted::Next));
                if cancels {
                    assert_eq!(wait(inside.cancel("id")), Ok(Cancelled::Running));
                }
                let sum = "EVAL \"local sum = 0 for _, key in ipairs(redis.call('KEYS', '*:b:*')) \
                           do sum = sum + redis.call('HLEN', key) end return sum\" 0";
                assert_eq!(server.server.order(sum).trim(), left);
            }
            async { Ok::<_, &str>(()) }
        });
        bench.advance(SECOND);
        assert_eq!(running.acknowledged(1), ["id"]);
        if !cancels {
            assert_eq!(fields(), ":2");
            bench.advance(SECOND);
            assert_eq!(running.acknowledged(1), ["id"]);
        }
        assert_eq!((running.stop(), fields()), (vec![], ":0".to_owned()));
    }
}

#[test]
fn a_long_payload_that_was_lost_or_left_behind_is_found() {
    let Some(bench) = OneNode::bench() else { return };
    let timers = bench.timers();
    for id in ["lost", "left", "there"] {
        wait(timers.insert(id, payload(1), SECOND, quick())).unwrap();
    }
    bench.place.server.order(
        "EVAL \"for _, key in ipairs(redis.call('KEYS', '*:b:*')) do \
         redis.call('HDEL', key, '\\\\255lost', 'left') end\" 0",
    );
    let report = wait(timers.check()).unwrap();
    let found = report.findings.iter().map(|finding| match finding {
        Finding::Unreadable { id } => format!("unreadable {id}"),
        Finding::Stray { id, .. } => format!("stray {id}"),
        other => panic!("{other:?}"),
    });
    let mut found: Vec<String> = found.collect();
    found.sort_unstable();
    assert_eq!(found, ["stray left", "unreadable lost", "unreadable \u{fffd}left"]);
    assert_eq!(wait(timers.remove_corrupt("lost")), Ok(true));
    wait(timers.repair()).unwrap();
    assert_eq!(wait(timers.len()), Ok(1));
    let running = bench.work_well();
    bench.advance(SECOND);
    assert_eq!(running.acknowledged(1), ["there"]);
    assert_eq!(running.stop(), []);
}
