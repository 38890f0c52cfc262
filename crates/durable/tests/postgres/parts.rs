//! The parts of a store and the workers that own them, by the SQL functions that workers call.

use crate::common::host::Host;
use crate::common::postgres_server::PostgresServer;
use std::collections::BTreeSet;

/// A server with a store without workers, whose functions are called at given times.
struct Store(PostgresServer);

impl Store {
    fn start() -> Option<Self> {
        let server = PostgresServer::start(&[])?;
        drop(server.process());
        Some(Self(server))
    }

    /// Sends the heartbeat of a worker. Returns what `what` selects from the reply.
    fn beat(&self, what: &str, worker: u64, at: u64) -> String {
        self.0.order(&format!(
            "select array_to_string({what}, ' ') from timers.load({worker}, {worker}, false, 0, \
             '', false, 9000000, 1000, {at})"
        ))
    }

    /// Sends the heartbeat of a worker. Returns its parts.
    fn parts(&self, worker: u64, at: u64) -> BTreeSet<u32> {
        let parts = self.beat("parts", worker, at);
        parts.split_whitespace().map(|part| part.parse().unwrap()).collect()
    }
}

/// Returns the members of all sets, which have none in common.
fn sum<T: Ord + Clone + std::fmt::Debug>(sets: &[BTreeSet<T>]) -> BTreeSet<T> {
    let all: BTreeSet<T> = sets.iter().flatten().cloned().collect();
    assert_eq!(sets.iter().map(BTreeSet::len).sum::<usize>(), all.len(), "{sets:?}");
    all
}

#[test]
fn each_part_has_one_owner() {
    let Some(store) = Store::start() else { return };
    let all: BTreeSet<u32> = (0..64).collect();
    let owned = |workers: std::ops::RangeInclusive<u64>| {
        let sets: Vec<_> = workers.map(|worker| store.parts(worker, 1000)).collect();
        assert_eq!(sum(&sets), all);
        sets
    };
    (1..=3).for_each(|worker| _ = store.parts(worker, 1000));
    let before = owned(1..=3);
    // Another worker takes parts from each of them, and none moves between the others.
    assert!(!store.parts(4, 1000).is_empty());
    let after = owned(1..=4);
    for (before, after) in before.iter().zip(&after) {
        assert!(after.is_subset(before) && after.len() < before.len(), "{before:?} {after:?}");
    }
    // Half of the keys belong to states.
    store.0.order(
        "insert into timers.timers (due, planned, first, most, attempts, lease, jitter, id, payload) \
           select 500, 500, 1, 1, 8, 15000, true, 'id' || i, '' from generate_series(1, 200) as i; \
         insert into timers.states (id, due, planned, attempt, paused, cancelled, follows, error) \
           select 'id' || i, 500, 500, 1, false, false, false, '' from generate_series(1, 100) as i",
    );
    let keys = |worker| {
        let ids = store.beat("ids", worker, 1000);
        let keys: BTreeSet<String> = ids.split(' ').map(str::to_owned).collect();
        assert_eq!(keys.len(), ids.split(' ').count(), "{ids}");
        keys
    };
    let keys: Vec<_> = (1..=4).map(keys).collect();
    assert_eq!(sum(&keys).len(), 200);
}

#[test]
fn a_worker_that_is_dead_or_has_left_owns_nothing() {
    let Some(store) = Store::start() else { return };
    let owns_all = |worker, at| store.parts(worker, at).len() == 64;
    let count = || store.0.order("select count(*) from timers.workers");
    assert!(owns_all(1, 1000));
    store.parts(2, 1000);
    // It is alive for five seconds.
    assert!(!owns_all(1, 6000) && owns_all(1, 6001));
    assert!(owns_all(1, 6600));
    assert_eq!(count(), "1");

    store.parts(3, 6600);
    assert!(!owns_all(1, 6700));
    store.0.order("select timers.leave(3, 6800)");
    assert!(owns_all(1, 6900));
    // A request that arrives after it has left.
    assert_eq!(store.parts(3, 7000), BTreeSet::new());
    assert!(owns_all(1, 7000));
    store.0.order("select timers.leave(1, 7000)");

    // The clock is set back.
    assert!(owns_all(4, 900_000));
    store.parts(5, 300_000);
    assert!(!owns_all(5, 305_000) && owns_all(5, 305_501));
}

#[test]
fn a_heartbeat_is_written_twice_a_second_and_not_waited_for() {
    let Some(store) = Store::start() else { return };
    let place = || store.0.order("select ctid, xmin from timers.workers");
    store.parts(1, 1000);
    let before = place();
    store.parts(1, 1500);
    assert_eq!(place(), before);
    store.parts(1, 1501);
    assert_ne!(place(), before);
    let load = "select from timers.load(1, 1, false, 0, '', false, 9000, 10";
    let waits = |at| {
        let order = format!("begin; {load}, {at}); select current_setting('synchronous_commit')");
        store.0.order(&order).trim().to_owned()
    };
    assert_eq!((waits(1502), waits(2002)), ("on".to_owned(), "off".to_owned()));
}

#[test]
fn keys_that_are_late_are_found_in_all_parts() {
    let Some(store) = Store::start() else { return };
    store.0.order(
        "insert into timers.timers (due, planned, first, most, attempts, lease, jitter, id, payload) \
         values (1000, 1000, 1, 1, 8, 15000, true, 'id', '')",
    );
    let late = |age: u64, parts: &str, at: u64| {
        let ids = "array_to_string(ids, ' ') from timers.late(0, '', false, 9000";
        store.0.order(&format!("select {ids}, {age}, 7, {parts}, {at})"))
    };
    let (own, other) = ("array[timers.part('id')]", "array[timers.part('id') + 1]");
    let (none, id) = (String::new, || "id".to_owned());
    assert_eq!((late(1000, own, 1999), late(1000, own, 2000)), (none(), id()));
    assert_eq!((late(1000, other, 9000), late(5000, "null", 6000)), (none(), id()));
    assert_eq!(late(5000, "null", 5999), none());
}
