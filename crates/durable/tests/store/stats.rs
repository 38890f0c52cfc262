//! The numbers of a store, compared with a list of all its timers.

#![allow(clippy::disallowed_methods, reason = "a worker has a thread of its own")]

use crate::common::bench::{Bench, OneFile, Place, SECOND, quick, suite, wait};
use fastrand::Rng;
use futures_channel::oneshot;
use futures_util::future::{Either, select};
use redb::{Database, TableDefinition};
use std::future::ready;
use std::pin::pin;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use tourbillon_durable::{
    Cancelled, Delivery, DurableError, DurableTimer, DurableTimers, Existing, Finding, Options,
    TimerState, Verdict,
};

suite!(
    stats_are_those_of_a_list,
    stats_of_a_store_at_rest,
    a_lease_counts_until_it_ends,
    a_copy_replaces_a_leased_timer,
    stats_of_a_paused_store
);

/// The actions of the handlers, by the first byte of the payload.
const HANGS: u8 = 3;

/// The number of ids of random timers.
const IDS: u8 = 24;

/// A worker that can be killed, so that its leases run out.
struct Mortal {
    kill: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Mortal {
    fn start(timers: &DurableTimers) -> Self {
        let (kill, killed) = oneshot::channel::<()>();
        let run = timers.worker().run(|delivery: Delivery| async move {
            match delivery.payload.first() {
                Some(0) => Verdict::Retry("no".to_owned()),
                Some(1) => Verdict::Fail("over".to_owned()),
                Some(2) => Verdict::Again { after: SECOND, counted: false },
                Some(&HANGS) => std::future::pending().await,
                _ => Verdict::Done,
            }
        });
        let thread = std::thread::spawn(move || {
            let run = pin!(run);
            match wait(select(run, killed)) {
                Either::Left((ended, _)) => panic!("the worker has ended: {ended:?}"),
                Either::Right(_) => {}
            }
        });
        Self { kill, thread }
    }

    fn kill(self) {
        drop(self.kill);
        self.thread.join().unwrap();
    }
}

/// Compares the numbers with a list of all timers.
fn compare(timers: &DurableTimers, now: SystemTime) {
    compare_with(timers, now, || wait(timers.list(None, 1000)).unwrap());
}

/// Compares the numbers with all timers, which are listed while nothing changes.
fn compare_with(timers: &DurableTimers, now: SystemTime, all: impl Fn() -> Vec<DurableTimer>) {
    let seen = || (all(), wait(timers.dead_len()).unwrap());
    loop {
        let before = seen();
        let (stats, paused) = (wait(timers.stats()).unwrap(), wait(timers.is_paused()).unwrap());
        if before != seen() {
            // A worker was busy.
            continue;
        }
        let (list, dead) = before;
        let count = |is: &dyn Fn(&&DurableTimer) -> bool| list.iter().filter(is).count() as u64;
        let is_paused = |timer: &DurableTimer| timer.state == TimerState::Paused;
        assert_eq!(stats.timers, list.len() as u64);
        assert_eq!(stats.leased, count(&|timer| timer.is_running()), "{list:?}");
        assert_eq!(stats.paused, count(&|timer| is_paused(timer)));
        assert_eq!(stats.resting, stats.timers - stats.leased - stats.paused);
        assert_eq!(stats.overdue, count(&|timer| !is_paused(timer) && timer.due <= now));
        let oldest = list.iter().filter(|timer| !is_paused(timer)).map(|timer| timer.due).min();
        assert_eq!((stats.oldest_due, stats.dead_letters), (oldest, dead));
        assert_eq!((stats.store_paused, stats.now), (paused, now));
        return;
    }
}

fn any_options(random: &mut Rng) -> Options {
    let existing =
        [Existing::Keep, Existing::Refuse, Existing::Replace, Existing::Replace, Existing::Update];
    let options = quick().lease(5 * SECOND).attempts(2);
    let options = options.existing(existing[random.usize(..existing.len())]);
    if random.bool() { options } else { options.every(SECOND * random.u32(1..40)) }
}

/// Makes one random change. Returns `true` if the worker is to be killed.
fn change<P: Place>(bench: &Bench<P>, random: &mut Rng) -> bool {
    let (timers, id) = (bench.timers(), random.u8(..IDS).to_string());
    let delay = SECOND * random.u32(..40);
    match random.u8(..17) {
        0..6 => {
            let payload = vec![random.u8(..6)];
            let _ = wait(timers.insert(&id, payload, delay, any_options(random)));
        }
        6 => drop(wait(timers.cancel(&id)).unwrap()),
        7 => {
            let moved = wait(timers.reset(&id, delay));
            assert!(matches!(moved, Ok(_) | Err(DurableError::Running)), "{moved:?}");
        }
        16 => {
            let runs = wait(timers.run_now(&id));
            assert!(matches!(runs, Ok(_) | Err(DurableError::Running)), "{runs:?}");
        }
        8 => drop(wait(timers.pause_timer(&id)).unwrap()),
        9 => drop(wait(timers.resume_timer(&id)).unwrap()),
        10 | 11 => bench.advance(delay),
        12 => {
            for letter in wait(timers.dead_letters(None, 2)).unwrap() {
                let _ = wait(timers.redrive(letter.number));
            }
        }
        13 if random.bool() => wait(timers.pause()).unwrap(),
        13 | 14 => wait(timers.resume()).unwrap(),
        _ => return true,
    }
    false
}

fn stats_are_those_of_a_list<P: Place>(mut bench: Bench<P>) {
    for seed in 0..2 {
        let mut random = Rng::with_seed(seed);
        let mut worker = Mortal::start(bench.timers());
        for _ in 0..90 {
            if change(&bench, &mut random) {
                worker.kill();
                if random.bool() {
                    bench.reopen();
                }
                worker = Mortal::start(bench.timers());
            }
            // A list would read all buckets of a store in Redis.
            let get = |id: u8| wait(bench.timers().get(&id.to_string())).unwrap();
            compare_with(bench.timers(), bench.now(), || (0..IDS).filter_map(get).collect());
        }
        worker.kill();
    }
    assert!(wait(bench.timers().check()).unwrap().is_sound());
    // The leases have run out, and are taken over by the copy.
    bench.advance(60 * SECOND);
    wait(bench.timers().pause()).unwrap();
    let clock = bench.place.clock().clone();
    let other = Bench::new(OneFile { clock, ..OneFile::new() });
    wait(bench.timers().copy_to(other.timers(), |_| ())).unwrap();
    compare(bench.timers(), bench.now());
    compare(other.timers(), bench.now());
}

fn stats_of_a_store_at_rest<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let empty = wait(timers.stats()).unwrap();
    assert_eq!((empty.timers, empty.oldest_due, empty.lag()), (0, None, Duration::ZERO));
    // Slices of ten minutes, in the past, now and in the future.
    for (id, minutes) in [("a", 0_u32), ("b", 3), ("c", 25), ("d", 4000), ("e", 9)] {
        wait(timers.insert(id, "", 60 * SECOND * minutes, quick())).unwrap();
    }
    compare(timers, bench.now());
    bench.advance(9 * 60 * SECOND);
    compare(timers, bench.now());
    let stats = wait(timers.stats()).unwrap();
    assert_eq!((stats.overdue, stats.lag()), (3, 9 * 60 * SECOND));
    for id in ["a", "d"] {
        assert!(wait(timers.pause_timer(id)).unwrap());
    }
    compare(timers, bench.now());
    let stats = wait(timers.stats()).unwrap();
    assert_eq!((stats.overdue, stats.paused, stats.lag()), (2, 2, 6 * 60 * SECOND));
    for id in ["b", "c", "e"] {
        assert_eq!(wait(timers.cancel(id)), Ok(Cancelled::Removed));
    }
    let stats = wait(timers.stats()).unwrap();
    assert_eq!((stats.timers, stats.resting, stats.oldest_due), (2, 0, None));
}

fn a_lease_counts_until_it_ends<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    let leased = || wait(timers.stats()).unwrap().leased;
    let (begun, begins) = channel();
    let (release, released) = async_channel();
    let running = bench.work(8, move |delivery| {
        begun.send(delivery.id).unwrap();
        released()
    });
    for id in ["done", "cancelled", "replaced"] {
        wait(timers.insert(id, "", SECOND, quick())).unwrap();
    }
    assert_eq!(leased(), 0);
    bench.advance(SECOND);
    let _: Vec<String> = begins.iter().take(3).collect();
    assert_eq!(leased(), 3);
    // It would be paused if its attempt failed.
    assert_eq!(wait(timers.pause_timer("done")), Ok(true));
    assert_eq!((leased(), wait(timers.stats()).unwrap().paused), (3, 0));
    assert_eq!(wait(timers.cancel("cancelled")), Ok(Cancelled::Running));
    assert_eq!(leased(), 3);
    let replace = quick().existing(Existing::Replace);
    wait(timers.insert("replaced", "", 60 * SECOND, replace)).unwrap();
    assert_eq!(leased(), 2);
    drop(release);
    let _ = running.stop();
    assert_eq!((leased(), wait(timers.len())), (0, Ok(1)));
}

fn a_copy_replaces_a_leased_timer<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    wait(timers.insert("id", [HANGS], SECOND, quick())).unwrap();
    bench.advance(SECOND);
    let worker = Mortal::start(timers);
    while wait(timers.stats()).unwrap().leased == 0 {
        std::thread::yield_now();
    }
    worker.kill();
    let clock = bench.place.clock().clone();
    let source = Bench::new(OneFile { clock, ..OneFile::new() });
    wait(source.timers().insert("id", "", 60 * SECOND, quick())).unwrap();
    wait(source.timers().pause()).unwrap();
    wait(source.timers().copy_to(timers, |_| ())).unwrap();
    compare(timers, bench.now());
    assert_eq!(wait(timers.stats()).unwrap().leased, 0);
}

/// Returns a sender, and futures that complete when it is dropped.
fn async_channel()
-> (oneshot::Sender<()>, impl Fn() -> futures_util::future::BoxFuture<'static, Result<(), String>>)
{
    use futures_util::FutureExt;
    let (sender, receiver) = oneshot::channel();
    let receiver = receiver.shared();
    (sender, move || receiver.clone().map(|_| Ok(())).boxed())
}

fn stats_of_a_paused_store<P: Place>(bench: Bench<P>) {
    let timers = bench.timers();
    wait(timers.insert("id", "", SECOND, quick())).unwrap();
    wait(timers.pause()).unwrap();
    let running = bench.work(1, |_| ready(Ok::<(), String>(())));
    bench.advance(5 * SECOND);
    compare(timers, bench.now());
    let stats = wait(timers.stats()).unwrap();
    assert_eq!((stats.store_paused, stats.overdue, stats.lag()), (true, 1, 4 * SECOND));
    wait(timers.resume()).unwrap();
    assert_eq!(running.acknowledged(1), ["id"]);
    assert_eq!(running.stop(), []);
    compare(timers, bench.now());
}

/// Writes a wrong number of leases into a store that is closed.
fn miscount(place: &OneFile, leased: u64) {
    const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
    let database = Database::open(&place.file.0).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(META).unwrap().insert("leased", leased).unwrap();
    transaction.commit().unwrap();
}

#[test]
fn a_wrong_number_of_leases_is_found_and_repaired() {
    let place = OneFile::new();
    let timer = place.timer();
    let open = || DurableTimers::new(place.open(), &timer);
    wait(open().insert("id", [HANGS], SECOND, quick())).unwrap();
    place.clock.advance(SECOND);
    let timers = open();
    let worker = Mortal::start(&timers);
    while wait(timers.stats()).unwrap().leased == 0 {
        std::thread::yield_now();
    }
    worker.kill();
    drop(timers);
    miscount(&place, 7);
    let timers = open();
    assert_eq!(wait(timers.stats()).unwrap().leased, 7);
    let report = wait(timers.repair()).unwrap();
    assert_eq!(report.findings, [Finding::Leases { counted: 7, found: 1 }]);
    assert!(wait(timers.check()).unwrap().is_sound());
    compare(&timers, place.now());
}

#[cfg(feature = "redis")]
#[test]
fn a_wrong_number_of_leases_in_redis_is_found_and_repaired() {
    let Some(bench) = crate::common::redis::OneNode::bench() else { return };
    let timers = bench.timers();
    for number in 0..40 {
        wait(timers.insert(&number.to_string(), [HANGS], SECOND, quick())).unwrap();
    }
    bench.advance(SECOND);
    let worker = Mortal::start(timers);
    while wait(timers.stats()).unwrap().leased < 40 {
        std::thread::yield_now();
    }
    worker.kill();
    compare(timers, bench.now());
    assert!(wait(timers.check()).unwrap().is_sound());
    // One more in the partition 3, and none in another.
    bench.place.server.order("HINCRBY {tb:timers:3}:counters leased 1");
    bench.place.server.order("HDEL {tb:timers:4}:counters leased");
    let report = wait(timers.repair()).unwrap();
    let numbers = |finding: &Finding| match finding {
        Finding::Leases { counted, found } => (*counted, *found),
        other => panic!("{other:?}"),
    };
    let findings: Vec<_> = report.findings.iter().map(numbers).collect();
    assert!(matches!(findings[..], [(some, found), (0, lost)] if some == found + 1 && lost > 0));
    assert!(wait(timers.check()).unwrap().is_sound());
    compare(timers, bench.now());
}

#[cfg(feature = "redis")]
#[test]
fn a_negative_number_of_leases_is_found_and_repaired() {
    let Some(bench) = crate::common::redis::OneNode::bench() else { return };
    let (timers, server) = (bench.timers(), &bench.place.server);
    server.order("HSET {tb:timers:3}:counters leased -2");
    let report = wait(timers.repair()).unwrap();
    assert_eq!(report.findings, [Finding::Leases { counted: 0, found: 0 }]);
    assert!(server.order("HGET {tb:timers:3}:counters leased").contains("\r\n0\r\n"));
    assert!(wait(timers.check()).unwrap().is_sound());
}

#[cfg(feature = "redis")]
#[test]
fn a_lease_that_ends_beside_a_negative_number_prevents_its_repair() {
    let Some(server) = crate::common::servers::Server::start(&[]) else { return };
    let mut connection = ::redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let script = ::redis::Script::new(concat!(
        include_str!("../../src/redis/scripts/common.lua"),
        include_str!("../../src/redis/scripts/recount.lua"),
    ));
    let mut recount = |fence: u64, counted: i64, found: u64| -> u8 {
        let mut call = script.key("slices");
        call.key("answers").key("counters").key("ages");
        call.arg("").arg("").arg("").arg("").arg("").arg(fence).arg(counted).arg(found);
        call.invoke(&mut connection).unwrap()
    };
    // One lease was found and -1 counted. Then the lease ended.
    server.order("HSET counters fence 7 leased -2");
    assert_eq!(recount(7, -1, 1), 0);
    assert!(server.order("HGET counters leased").contains("-2"));
    assert_eq!((recount(6, -2, 0), recount(7, -2, 0)), (0, 1));
    assert!(server.order("HGET counters leased").contains("\r\n0\r\n"));
}

#[cfg(feature = "redis")]
#[test]
fn leases_of_damaged_records_do_not_count() {
    let Some(bench) = crate::common::redis::OneNode::bench() else { return };
    let (timers, server) = (bench.timers(), &bench.place.server);
    let damage = |id: &str| {
        server.order(&format!(
            "EVAL \"for _, key in ipairs(redis.call('KEYS', '*:b:*')) do \
             local found = redis.call('HGET', key, '{id}') \
             if found then redis.call('HSET', key, '{id}', found:sub(1, -2) .. '?') end end\" 0"
        ))
    };
    let leased = || wait(timers.stats()).unwrap().leased;
    for (id, second) in [("found", 1), ("removed", 2)] {
        wait(timers.insert(id, [HANGS], SECOND * second, quick())).unwrap();
    }
    // Damaged before its lease, which the worker gives up.
    damage("found");
    let running = bench.work_well();
    bench.advance(SECOND);
    assert!(matches!(running.next().outcome, tourbillon_durable::Outcome::Unreadable { .. }));
    assert_eq!(running.stop(), []);
    assert_eq!(leased(), 0);
    // Damaged during its lease.
    let worker = Mortal::start(timers);
    bench.advance(SECOND);
    while leased() == 0 {
        std::thread::yield_now();
    }
    worker.kill();
    damage("removed");
    for id in ["found", "removed"] {
        assert_eq!(wait(timers.remove_corrupt(id)), Ok(true));
    }
    assert_eq!(leased(), 0);
    assert!(wait(timers.check()).unwrap().is_sound());
}
