//! Errors about what another program has written to a store, with the address of its server.

use crate::common::bench::{Bench, SECOND, quick, wait};
use crate::common::redis::OneNode;
use tourbillon_durable::{DurableError, Outcome};

/// Truncates the value of a field in each hash whose key ends with a pattern.
fn damage(bench: &Bench<OneNode>, keys: &str) {
    bench.place.server.order(&format!(
        "EVAL \"for _, key in ipairs(redis.call('KEYS', '{keys}')) do \
         for _, field in ipairs(redis.call('HKEYS', key)) do \
         redis.call('HSET', key, field, redis.call('HGET', key, field):sub(1, -2)) end end\" 0"
    ));
}

fn assert_located<T: std::fmt::Debug>(bench: &Bench<OneNode>, result: Result<T, DurableError>) {
    let address = format!("127.0.0.1:{}: ", bench.place.server.port);
    let Err(DurableError::Corrupt { what, .. }) = result else { panic!("{result:?}") };
    assert_eq!(what.matches(&address).count(), 1, "{what}");
}

#[test]
fn a_damaged_timer_is_reported_with_the_address() {
    let Some(bench) = OneNode::bench() else { return };
    let timers = bench.timers();
    wait(timers.insert("id", "payload", SECOND, quick())).unwrap();
    damage(&bench, "*:b:*");
    assert_located(&bench, wait(timers.get("id")));
    assert_located(&bench, wait(timers.list(None, 10)));
    let running = bench.work_well();
    bench.advance(SECOND);
    let Outcome::Unreadable { error } = running.next().outcome else { panic!("it is unreadable") };
    let address = format!("127.0.0.1:{}: ", bench.place.server.port);
    assert_eq!(error.matches(&address).count(), 1, "{error}");
    assert_eq!(running.stop(), []);
    // A record of another version.
    bench.place.server.order(
        "EVAL \"for _, key in ipairs(redis.call('KEYS', '*:b:*')) do \
         redis.call('HSET', key, 'id', 'nonsense') end\" 0",
    );
    assert_located(&bench, wait(timers.cancel("id")));
    assert_located(&bench, wait(timers.reset("id", SECOND)));
}

#[test]
fn a_missing_record_is_reported_with_the_address() {
    let Some(bench) = OneNode::bench() else { return };
    wait(bench.timers().insert("id", "payload", SECOND, quick())).unwrap();
    bench.place.server.order(
        "EVAL \"for _, key in ipairs(redis.call('KEYS', '*:b:*')) do redis.call('DEL', key) end\" 0",
    );
    let running = bench.work_well();
    bench.advance(SECOND);
    let Outcome::Unreadable { error } = running.next().outcome else { panic!("it is unreadable") };
    assert!(error.contains(&format!("127.0.0.1:{}: ", bench.place.server.port)), "{error}");
    assert_eq!(running.stop(), []);
}

/// Makes a dead letter of the timer `id`.
fn die(bench: &Bench<OneNode>) {
    let running = bench.work(1, |_| async { Err("no") });
    wait(bench.timers().insert("id", "payload", SECOND, quick().attempts(1))).unwrap();
    bench.advance(SECOND);
    assert!(matches!(running.next().outcome, Outcome::Dead { .. }));
    assert_eq!(running.stop(), []);
}

#[test]
fn a_damaged_letter_is_reported_with_the_address() {
    let Some(bench) = OneNode::bench() else { return };
    let timers = bench.timers();
    die(&bench);
    let number = wait(timers.dead_letters(None, 1)).unwrap()[0].number;
    damage(&bench, "*:letters");
    assert_located(&bench, wait(timers.dead_letter(number)));
    assert_located(&bench, wait(timers.dead_letters(None, 1)));
    assert_located(&bench, wait(timers.redrive(number)));
}

#[test]
fn only_the_end_of_the_dead_letters_is_an_empty_page() {
    let Some(bench) = OneNode::bench() else { return };
    let timers = bench.timers();
    die(&bench);
    // As after another process has deleted the letters between the two commands that read a page.
    for number in [1, 2, 3_000_000_000_000_000_u64] {
        bench.place.server.order(&format!("ZADD {{tb:timers:0}}:dead {number} {number}"));
    }
    assert_eq!(wait(timers.dead_letters(None, 1)).unwrap()[0].id, "id");
    assert_eq!(wait(timers.newest_dead_letters(None, 1)).unwrap()[0].id, "id");
    for partition in 0..16 {
        let names = format!("{{tb:timers:{partition}}}:names");
        for number in ["00000000000000000001", "00000000000000000002", "00003000000000000000"] {
            bench.place.server.order(&format!("ZADD {names} 0 \"i:id\\xff{number}\""));
        }
    }
    assert_eq!(wait(timers.newest_dead_letters_of("id", None, 1)).unwrap()[0].id, "id");
}

#[test]
fn a_count_that_makes_no_sense_is_reported_with_the_address() {
    let Some(bench) = OneNode::bench() else { return };
    wait(bench.timers().insert("id", "", SECOND, quick())).unwrap();
    for partition in 0..16 {
        bench.place.server.order(&format!("HSET {{tb:timers:{partition}}}:counters timers -10"));
    }
    assert_located(&bench, wait(bench.timers().len()));
}
