//! Durable timers on Redis servers that are emptied, emptied of scripts, locked, read-only and
//! full, and whose data are damaged. In real time where it matters.

#![allow(clippy::disallowed_methods, reason = "servers and workers are waited for")]

use crate::common::bench::{Bench, MILLISECOND, SECOND, start, wait};
use crate::common::process::{Process, Seen, Watch, ids, lateness, quick, runtime};
use crate::common::proxy::Proxy;
use crate::common::redis::OneNode;
use crate::common::servers::Server;
use std::collections::BTreeSet;
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};
use tourbillon_durable::{
    Attempt, Cancelled, DurableError, Existing, Finding, Inserted, Options, Outcome, Redis,
    RedisOptions,
};

#[test]
fn an_operation_that_fails_leaves_the_others_of_its_batch_alone() {
    let Some(server) = Server::start(&[]) else { return };
    let process = Process::new(&server);
    let timers = &process.timers;
    let all = ids(400);
    let schedule = all.iter().map(|id| timers.insert(id, "", 3600 * SECOND, quick()));
    wait(futures_util::future::try_join_all(schedule)).unwrap();
    // Some are no longer records, some are too short for one, and some are in keys of another type.
    let wrong = "EVAL \"for _, key in ipairs(redis.call('KEYS', '*:b:*')) do \
                 for _, id in ipairs(redis.call('HKEYS', key)) do \
                 if id:sub(-1) == '7' then redis.call('HSET', key, id, id:rep(4)) end \
                 if id:sub(-2) == '33' then redis.call('HSET', key, id, 'short') end \
                 if id:sub(-2) == '55' then redis.call('SET', key, 'no hash') break end \
                 end end\" 0";
    server.order(wrong);
    let broken = |id: &String| ["7", "33", "55"].iter().any(|end| id.ends_with(end));
    let batches = || server.calls("evalsha");
    let before = batches();
    let moved = all.iter().map(|id| timers.reset(id, 7200 * SECOND));
    let moved = wait(futures_util::future::join_all(moved));
    let calls = batches() - before;
    assert!(calls < 100, "{calls} calls for 400 operations");
    for (id, moved) in all.iter().zip(moved) {
        match moved {
            Ok(true) => assert!(!broken(id), "{id}"),
            Err(DurableError::Corrupt { .. } | DurableError::Io(_)) => assert!(broken(id), "{id}"),
            other => panic!("{id}: {other:?}"),
        }
    }
    let cancel = all.iter().map(|id| timers.cancel(id));
    let cancelled = wait(futures_util::future::join_all(cancel));
    let right = all.iter().zip(&cancelled).all(|(id, cancelled)| cancelled.is_err() == broken(id));
    assert!(right, "{cancelled:?}");
    let left = all.iter().filter(|id| broken(id)).count();
    assert_eq!(wait(timers.len()), Ok(left as u64));
}

#[test]
fn scripts_that_redis_forgot_are_loaded_again() {
    let Some(bench) = OneNode::bench() else { return };
    let running = bench.work_well();
    wait(bench.timers().insert("id", "", SECOND, quick())).unwrap();
    assert!(bench.place.server.say("SCRIPT FLUSH").is_some());
    assert_eq!(wait(bench.timers().reset("id", 2 * SECOND)), Ok(true));
    assert!(bench.place.server.say("SCRIPT FLUSH").is_some());
    bench.advance(2 * SECOND);
    assert_eq!(running.acknowledged(1), ["id"]);
    assert_eq!(running.stop(), []);
}

#[test]
fn a_store_that_cannot_be_written_is_told_apart() {
    let Some(bench) = OneNode::bench() else { return };
    let timers = bench.timers();
    let server = &bench.place.server;
    wait(timers.insert("id", "", SECOND, quick())).unwrap();

    // Reading from a replica is allowed.
    assert!(server.say("REPLICAOF 127.0.0.1 1").is_some());
    let refused = wait(timers.insert("another", vec![7], SECOND, quick())).unwrap_err();
    assert!(matches!(refused.reason, DurableError::ReadOnly(_)), "{refused:?}");
    assert_eq!(refused.value, [7]);
    for id in ["id", "there is none"] {
        // The replica may lag behind its master.
        assert!(matches!(wait(timers.cancel(id)), Err(DurableError::ReadOnly(_))));
    }
    assert!(wait(timers.get("id")).unwrap().is_some());
    assert!(server.say("REPLICAOF NO ONE").is_some());

    // The memory is full, and nothing is half done.
    assert!(server.say("CONFIG SET maxmemory 1").is_some());
    let refused = wait(timers.insert("another", "", SECOND, quick())).unwrap_err();
    assert!(matches!(refused.reason, DurableError::ReadOnly(_)), "{refused:?}");
    assert!(server.say("CONFIG SET maxmemory 0").is_some());
    assert_eq!(wait(timers.len()), Ok(1));
}

#[test]
fn a_schedule_that_is_refused_leaves_no_key() {
    let Some(server) = Server::start(&[]) else { return };
    let process = Process::new(&server);
    let refused = Options::new().existing(Existing::Refuse);
    for (hours, expected) in [(1, true), (2, false), (3, false)] {
        let scheduled = process.timers.insert("id", "", 3600 * hours * SECOND, refused.clone());
        assert_eq!(wait(scheduled).is_ok(), expected);
    }
    // All slices of all partitions.
    let keys = server.order(
        "EVAL \"local keys = 0; for _, key in ipairs(redis.call('KEYS', '*:s:*')) do keys = keys + \
         redis.call('ZCARD', key) end; return keys\" 0",
    );
    assert_eq!(keys.trim(), ":1");
}

#[test]
fn a_false_notice_hurries_nothing() {
    let Some(bench) = OneNode::bench() else { return };
    let running = bench.work_well();
    wait(bench.timers().insert("id", "", 3600 * SECOND, quick())).unwrap();
    for _ in 0..20 {
        for channel in ["", ":0", ":1", ":2", ":15"] {
            bench.place.server.order(&format!("PUBLISH tb:timers{channel} 0:id"));
        }
        bench.advance(SECOND);
        std::thread::sleep(SECOND / 50);
        assert!(wait(bench.timers().get("id")).unwrap().is_some());
    }
    bench.advance(3600 * SECOND);
    assert_eq!(running.acknowledged(1), ["id"]);
    assert_eq!(running.stop(), []);
}

#[test]
fn an_end_under_an_old_fence_is_too_late() {
    let Some(bench) = OneNode::bench() else { return };
    let (begun, begins) = std::sync::mpsc::channel();
    let (go, goes) = futures_channel::oneshot::channel::<()>();
    let goes = std::sync::Mutex::new(Some(goes));
    let running = bench.work(1, move |_| {
        begun.send(()).unwrap();
        let goes = goes.lock().unwrap().take();
        async move { goes.unwrap().await.or(Ok::<(), String>(())) }
    });
    wait(bench.timers().insert("id", "", SECOND, quick())).unwrap();
    bench.advance(SECOND);
    begins.recv().unwrap();
    // As if another worker had leased it in the meantime. The fencing token begins at the fifteenth
    // byte.
    let leased = "EVAL \"for _, key in ipairs(redis.call('KEYS', '*:b:*')) do \
                  local record = redis.call('HGET', key, 'id') \
                  redis.call('HSET', key, 'id', record:sub(1, 14) .. \
                  struct.pack('<I6', 281474976710655) .. record:sub(21)) end\" 0";
    bench.place.server.order(leased);
    drop(go);
    assert_eq!(running.next().outcome, Outcome::TooLate);
    assert_eq!(wait(bench.timers().len()), Ok(1));
    assert_eq!(running.stop(), []);
}

#[test]
fn a_worker_waits_while_nothing_can_be_written() {
    let Some(server) = Server::start(&[]) else { return };
    let process = Process::new(&server);
    let work = process.work();
    // By then its low watermark lies ahead. The timer is in its wheel, and the lease is rejected.
    std::thread::sleep(SECOND);
    wait(process.timers.insert("id", "", SECOND / 2, quick())).unwrap();
    // As while a replica is down that writes depend on.
    server.order("CONFIG SET min-replicas-to-write 1");
    let refused = wait(process.timers.insert("another", "", SECOND, quick())).unwrap_err();
    assert!(matches!(refused.reason, DurableError::ReadOnly(_)), "{refused:?}");
    std::thread::sleep(2 * SECOND);
    server.order("CONFIG SET min-replicas-to-write 0");
    assert_eq!(work.next(), "id");
    assert_eq!(work.stop(), [""; 0]);
}

#[test]
fn what_is_too_much_for_one_answer_comes_in_several() {
    let Some(bench) = OneNode::bench() else { return };
    let mut all = ids(12);
    for id in &all {
        wait(bench.timers().insert(id, vec![7; 1 << 20], SECOND, quick())).unwrap();
    }
    let running = bench.work_well();
    bench.advance(SECOND);
    let mut acknowledged = running.acknowledged(all.len());
    acknowledged.sort_unstable();
    all.sort_unstable();
    assert_eq!(acknowledged, all);
    assert_eq!(running.stop(), []);
}

#[test]
fn a_full_memory_is_worked_off_by_a_worker_that_is_started_then() {
    let options = ["--maxmemory", "10mb", "--maxmemory-policy", "noeviction"];
    let Some(server) = Server::start(&options) else { return };
    let first = Process::new(&server);
    let mut full = 0;
    for some in 0.. {
        let all: Vec<String> = (0..100).map(|number| format!("{some} {number}")).collect();
        let inserted = all.iter().map(|id| first.timers.insert(id, vec![7; 500], SECOND, quick()));
        let inserted = wait(futures_util::future::join_all(inserted));
        full += inserted.iter().filter(|inserted| inserted.is_ok()).count();
        if let Some(Err(refused)) = inserted.into_iter().find(Result::is_err) {
            assert!(matches!(refused.reason, DurableError::ReadOnly(_)), "{refused:?}");
            break;
        }
    }
    assert!(full > 1000, "{full}");
    drop(first);
    let process = Process::new(&server);
    // The memory is still full, because other connections have taken what earlier ones freed.
    server.order("CONFIG SET maxmemory 1mb");
    let work = process.work();
    for _ in 0..full {
        work.next();
    }
    assert_eq!((work.stop(), wait(process.timers.len())), (vec![], Ok(0)));
}

/// The same if nothing else in its batch changes anything.
#[test]
fn what_frees_a_full_memory_is_not_refused() {
    let Some(bench) = OneNode::bench() else { return };
    let (timers, server) = (bench.timers(), &bench.place.server);
    for id in ["a", "b", "c"] {
        wait(timers.insert(id, "", 60 * SECOND, quick())).unwrap();
    }
    server.order("CONFIG SET maxmemory 1");
    assert_eq!(wait(timers.reset("a", 120 * SECOND)), Ok(true));
    assert_eq!(wait(timers.reset("a", 7200 * SECOND)), Ok(true));
    assert_eq!(wait(timers.cancel("b")), Ok(Cancelled::Removed));
    let running = bench.work(1, |_| async { Err::<(), _>("it fails") });
    bench.advance(60 * SECOND);
    assert!(matches!(running.next().outcome, Outcome::Retry { .. }));
    assert_eq!(running.stop(), []);
}

/// Without notices of other processes' timers, a worker finds them by itself.
#[test]
fn without_a_subscription_timers_are_a_second_late_at_most() {
    let Some(server) = Server::start(&[]) else { return };
    let (process, other) = (Process::new(&server), Process::new(&server));
    let watch = Watch::over(&process);
    std::thread::sleep(2 * SECOND);
    server.order("ACL SETUSER default -subscribe");
    server.order("CLIENT KILL TYPE pubsub");
    let (all, begun) = (ids(200), SystemTime::now());
    for id in &all {
        wait(other.timers.insert(id, "", SECOND / 2, quick())).unwrap();
        std::thread::sleep(SECOND / 20);
    }
    std::thread::sleep(3 * SECOND);
    let come: Vec<Seen> = watch.delivered.try_iter().collect();
    assert_eq!(come.len(), all.len());
    let (_, p99, worst) = lateness(&come, begun);
    assert!(p99 < SECOND * 3 / 2, "p99 {p99:?}, at most {worst:?}");
    assert_eq!(watch.stop(), []);
}

/// Waits for a run to end by itself. The limit keeps a broken build from hanging.
fn end_of(run: JoinHandle<Result<(), DurableError>>) -> Result<(), DurableError> {
    let begun = SystemTime::now();
    while !run.is_finished() {
        assert!(begun.elapsed().unwrap() < 60 * SECOND, "the run goes on");
        std::thread::sleep(SECOND / 100);
    }
    run.join().unwrap()
}

#[test]
fn a_server_that_was_emptied_is_told_of_and_goes_on() {
    let Some(server) = Server::start(&[]) else { return };
    let process = Process::new(&server);
    let timers = &process.timers;
    wait(timers.insert("gone", "", 3600 * SECOND, quick())).unwrap();
    // The worker of another process gets the error as well.
    let another = Process::new(&server);
    let runs = [timers.worker(), another.timers.worker()].map(|worker| {
        std::thread::spawn(move || wait(worker.run(|_| async { Ok::<(), String>(()) })))
    });
    std::thread::sleep(SECOND);
    server.order("FLUSHALL");
    for run in runs {
        assert_eq!(end_of(run), Err(DurableError::Emptied));
    }
    // A process that connects later with other options finds the store that was created again.
    let runtime = runtime();
    let options = RedisOptions::new("timers").partitions(64);
    let store = runtime.block_on(Redis::connect(&server.url(), options)).unwrap();
    assert_eq!(store.partitions(), 16);
    let other = Process::of(store, runtime);
    for id in ids(50) {
        assert_eq!(wait(timers.insert(&id, "", SECOND, quick())), Ok(Inserted::New));
        let keep = quick().existing(Existing::Keep);
        assert_eq!(wait(other.timers.insert(&id, "", SECOND, keep)), Ok(Inserted::Kept));
    }
    assert_eq!((wait(timers.len()), wait(other.timers.len())), (Ok(50), Ok(50)));
    // It gets the error once, and the next run delivers.
    let work = process.work();
    let acknowledged: BTreeSet<String> = (0..50).map(|_| work.next()).collect();
    assert_eq!(acknowledged, ids(50).into_iter().collect());
    assert_eq!(work.stop(), [""; 0]);
}

#[test]
fn a_pause_of_an_emptied_server_is_no_store() {
    let Some(server) = Server::start(&[]) else { return };
    server.order("HSET {tb:timers} paused 1");
    let process = Process::new(&server);
    assert_eq!(wait(process.timers.is_paused()), Ok(true));
    assert_eq!(wait(process.timers.insert("id", "", SECOND, quick())), Ok(Inserted::New));
}

#[test]
fn a_store_that_another_process_made_anew_is_not_used_as_it_was() {
    let Some(server) = Server::start(&[]) else { return };
    let process = Process::new(&server);
    let timers = &process.timers;
    let worker = timers.worker();
    let run = std::thread::spawn(move || wait(worker.run(|_| async { Ok::<(), String>(()) })));
    std::thread::sleep(SECOND);
    let known = server.order("HGET {tb:timers} layout");
    let layout = known.lines().nth(1).unwrap();
    // Nothing comes in between.
    server.order(&format!(
        "EVAL \"redis.call('FLUSHALL') \
         redis.call('HSET', '{{tb:timers}}', 'layout', {layout}, 'partitions', 64, 'number', 7)\" 0"
    ));
    let remade = DurableError::Remade { partitions: 64 };
    assert_eq!(end_of(run), Err(remade.clone()));
    let refused = wait(timers.insert("id", vec![7], SECOND, quick())).unwrap_err();
    assert_eq!((refused.reason, refused.value), (remade.clone(), vec![7]));
    assert_eq!(wait(timers.cancel("id")), Err(remade.clone()));
    assert_eq!(wait(timers.len()), Err(remade));
    assert_eq!(server.order("KEYS {tb:timers:*").trim(), "*0");
}

#[test]
fn a_count_that_makes_no_sense_is_corrupt_at_once() {
    let Some(bench) = OneNode::bench() else { return };
    wait(bench.timers().insert("id", "", SECOND, quick())).unwrap();
    for partition in 0..16 {
        bench.place.server.order(&format!("HSET {{tb:timers:{partition}}}:counters timers -10"));
    }
    let begun = SystemTime::now();
    let said = wait(bench.timers().len()).unwrap_err();
    assert!(
        matches!(&said, DurableError::Corrupt { what, .. } if what.contains("counters")),
        "{said:?}"
    );
    // It is not requested again, as if the connection had broken.
    assert!(begun.elapsed().unwrap() < 4 * SECOND);
}

#[test]
fn a_store_that_cannot_be_read_is_told_apart() {
    let Some(bench) = OneNode::bench() else { return };
    let timers = bench.timers();
    let server = &bench.place.server;
    wait(timers.insert("id", "", SECOND, quick())).unwrap();

    // Bytes that are not a record.
    let wrong = "EVAL \"for _, key in ipairs(redis.call('KEYS', '*:b:*')) do \
                 redis.call('HSET', key, 'id', 'nonsense') end\" 0";
    assert!(server.say(wrong).is_some());
    assert!(matches!(wait(timers.get("id")), Err(DurableError::Corrupt { .. })));
    assert!(wait(timers.cancel("id")).is_err());

    // Another layout.
    assert!(server.say("HSET {tb:timers} layout 9").is_some());
    let format = DurableError::Format { found: 9, known: 8 };
    assert_eq!(bench.place.try_open().unwrap_err(), format);

    server.kill();
    let connect = async { Redis::connect(&server.url(), "timers").await };
    let gone = runtime().block_on(connect).unwrap_err();
    assert!(matches!(gone, DurableError::Unreachable(_)), "{gone:?}");
}

#[test]
fn a_timer_that_cannot_be_read_stops_no_worker() {
    // Damaged where a script detects it, and where only the worker does.
    for wrong in ["'nonsense'", "string.sub(redis.call('HGET', key, 'id'), 1, -9)"] {
        let Some(bench) = OneNode::bench() else { return };
        wait(bench.timers().insert("id", "payload", SECOND, quick())).unwrap();
        let wrong = format!(
            "EVAL \"for _, key in ipairs(redis.call('KEYS', '*:b:*')) do \
             redis.call('HSET', key, 'id', {wrong}) end\" 0"
        );
        assert!(bench.place.server.say(&wrong).is_some());
        wait(bench.timers().insert("well", "", SECOND, quick())).unwrap();
        let running = bench.work_well();
        bench.advance(SECOND);
        let mut ended = [running.next(), running.next()];
        ended.sort_by(|one, other| one.id.cmp(&other.id));
        assert!(matches!(ended[0].outcome, Outcome::Unreadable { .. }), "{ended:?}");
        assert_eq!(ended[1].outcome, Outcome::Acknowledged);
        // It is read again.
        bench.advance(60 * SECOND);
        bench.advance(SECOND);
        assert_eq!(running.next().outcome, ended[0].outcome);
        assert_eq!(running.stop(), []);
        let named = |error: DurableError| match error {
            DurableError::Corrupt { id, .. } => id,
            error => panic!("{error}"),
        };
        assert_eq!(wait(bench.timers().get("id")).map_err(named), Err(Some("id".to_owned())));
        // It is removed, and nothing else.
        wait(bench.timers().insert("well", "", SECOND, quick())).unwrap();
        assert_eq!(wait(bench.timers().remove_corrupt("well")), Ok(false));
        assert_eq!(wait(bench.timers().remove_corrupt("id")), Ok(true));
        assert_eq!(wait(bench.timers().remove_corrupt("id")), Ok(false));
        assert_eq!(wait(bench.timers().list(None, 9)).unwrap().len(), 1);
        assert_eq!(wait(bench.timers().len()), Ok(1));
        let slices = "EVAL \"local sum = 0 for _, key in ipairs(redis.call('KEYS', '*:s:*')) do \
                      sum = sum + redis.call('ZCARD', key) end return sum\" 0";
        assert_eq!(bench.place.server.order(slices).trim(), ":1");
    }
}

/// Damages the payload of a timer.
const DAMAGE: &str = "EVAL \"for _, key in ipairs(redis.call('KEYS', '*:b:*')) do \
                      local record = redis.call('HGET', key, 'id') \
                      redis.call('HSET', key, 'id', record:sub(1, -2) .. '!') end\" 0";

/// Waits until so many workers have sent a heartbeat at the present time. By then the page that
/// each has requested with its heartbeat before has arrived, however slow the machine is.
fn have_sent_heartbeats(bench: &Bench<OneNode>, count: usize) {
    let now = bench.now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    // The time of a worker whose partitions were taken is half a millisecond later.
    let sent = format!("ZCOUNT {{tb:timers}}:workers {now} +inf");
    let all = format!(":{count}");
    bench.place.server.wait_for("the heartbeats", |server| server.order(&sent).trim() == all);
}

#[test]
fn a_damaged_record_stays_as_it_is_and_is_told_of_once_a_minute() {
    let Some(bench) = OneNode::bench() else { return };
    let (timers, server) = (bench.timers(), &bench.place.server);
    // A lease outlasts the steps that a slow worker takes to put the record back.
    wait(timers.insert("id", "payload", SECOND, quick().lease(5 * SECOND))).unwrap();
    server.order(DAMAGE);
    let record = || {
        server.order(
            "EVAL \"local found for _, key in ipairs(redis.call('KEYS', '*:b:*')) do \
             found = redis.call('HGET', key, 'id') end return redis.sha1hex(found)\" 0",
        )
    };
    let before = record();
    // Each checks for timers that the other leaves undelivered.
    let workers = [bench.work_well(), bench.work_well()];
    let mut told = Vec::new();
    // It is due after a second, and is requested again after a minute and after two. A worker that
    // does not own it finds it after up to eight seconds more.
    for _ in 0..170 {
        bench.advance(SECOND);
        have_sent_heartbeats(&bench, workers.len());
        told.extend(workers.iter().flat_map(|worker| worker.events.try_iter()));
    }
    assert_eq!(told.len(), 3, "{told:?}");
    let unreadable =
        |event: &Attempt| matches!(event.outcome, Outcome::Unreadable { .. }) && event.attempt == 0;
    assert!(told.iter().all(unreadable), "{told:?}");
    assert_eq!(record(), before);
    for worker in workers {
        assert_eq!(worker.stop(), []);
    }
}

#[test]
fn a_damaged_timer_is_removed_and_another_of_its_name_is_delivered() {
    let Some(bench) = OneNode::bench() else { return };
    let timers = bench.timers();
    wait(timers.insert("id", "payload", SECOND, quick())).unwrap();
    bench.place.server.order(DAMAGE);
    let running = bench.work_well();
    bench.advance(SECOND);
    assert!(matches!(running.next().outcome, Outcome::Unreadable { .. }));
    assert!(matches!(wait(timers.get("id")), Err(DurableError::Corrupt { .. })));
    assert_eq!(wait(timers.remove_corrupt("id")), Ok(true));
    wait(timers.insert("id", "payload", SECOND, quick())).unwrap();
    bench.advance(SECOND);
    assert_eq!(running.acknowledged(1), ["id"]);
    assert_eq!(running.stop(), []);
}

#[test]
fn a_damaged_record_that_is_put_right_is_delivered() {
    let Some(bench) = OneNode::bench() else { return };
    wait(bench.timers().insert("id", "payload", SECOND, quick())).unwrap();
    bench.place.server.order(DAMAGE);
    let running = bench.work_well();
    bench.advance(SECOND);
    assert!(matches!(running.next().outcome, Outcome::Unreadable { .. }));
    bench.place.server.order(&DAMAGE.replace("'!'", "'d'"));
    assert_eq!(wait(bench.timers().get("id")).unwrap().unwrap().attempts, 0);
    // It is read again after a minute.
    bench.advance(60 * SECOND);
    bench.advance(SECOND);
    assert_eq!(running.acknowledged(1), ["id"]);
    assert_eq!((running.stop(), wait(bench.timers().len())), (vec![], Ok(0)));
}

#[test]
fn a_timer_that_is_kept_is_delivered_though_its_key_was_lost() {
    for lost in ["*:slices", "*:s:*"] {
        let Some(bench) = OneNode::bench() else { return };
        let timers = bench.timers();
        let keep = || timers.insert("id", "", SECOND, quick().existing(Existing::Keep));
        assert_eq!(wait(keep()), Ok(Inserted::New));
        bench.place.server.order(&format!(
            "EVAL \"for _, key in ipairs(redis.call('KEYS', '{lost}')) do \
             redis.call('DEL', key) end\" 0"
        ));
        assert_eq!(wait(keep()), Ok(Inserted::Kept));
        assert!(wait(timers.check()).unwrap().is_sound());
        let running = bench.work_well();
        bench.advance(SECOND);
        assert_eq!(running.acknowledged(1), ["id"]);
        assert_eq!(running.stop(), []);
    }
}

#[test]
fn an_index_that_was_lost_is_found_and_mended() {
    let Some(bench) = OneNode::bench() else { return };
    let timers = bench.timers();
    for (hour, id) in ids(40).iter().enumerate() {
        let delay = SECOND * (1 + 3600 * (u32::try_from(hour).unwrap() % 4));
        wait(timers.insert(id, "", delay, quick())).unwrap();
    }
    // The list of slices of each partition, and the slices.
    for lost in ["*:slices", "*:s:*"] {
        let sound = wait(timers.check()).unwrap();
        assert_eq!((sound.timers, sound.keys, sound.found), (40, 40, 0));
        bench.place.server.order(&format!(
            "EVAL \"for _, key in ipairs(redis.call('KEYS', '{lost}')) do \
             redis.call('DEL', key) end\" 0"
        ));
        let report = wait(timers.repair()).unwrap();
        assert_eq!((report.timers, report.found), (40, 40), "{report:?}");
        let unindexed = |found: &Finding| matches!(found, Finding::Unindexed { .. });
        assert!(report.findings.iter().all(unindexed), "{report:?}");
    }
    let running = bench.work_well();
    bench.advance(SECOND);
    assert_eq!(running.acknowledged(10).len(), 10);
    for _ in 0..3 {
        bench.advance(3600 * SECOND);
        assert_eq!(running.acknowledged(10).len(), 10);
    }
    assert_eq!((running.stop(), wait(timers.len())), (vec![], Ok(0)));
}

#[test]
fn a_key_that_leads_to_no_record_is_reported_and_removed() {
    let Some(bench) = OneNode::bench() else { return };
    let timers = bench.timers();
    for id in ["lost", "there"] {
        wait(timers.insert(id, "", SECOND, quick())).unwrap();
    }
    bench.place.server.order(
        "EVAL \"for _, key in ipairs(redis.call('KEYS', '*:b:*')) do \
         redis.call('HDEL', key, 'lost') end\" 0",
    );
    let running = bench.work_well();
    bench.advance(SECOND);
    let mut ended = [running.next(), running.next()];
    ended.sort_by(|one, other| one.id.cmp(&other.id));
    assert!(
        matches!(&ended[0].outcome, Outcome::Unreadable { error } if error.contains("missing")),
        "{ended:?}"
    );
    assert_eq!(ended[1].outcome, Outcome::Acknowledged);
    assert_eq!(running.stop(), []);
    let report = wait(timers.check()).unwrap();
    let stray = |found: &Finding| matches!(found, Finding::Stray { id, .. } if id == "lost");
    assert!(report.found == 1 && report.findings.iter().all(stray), "{report:?}");
    assert_eq!(wait(timers.remove_corrupt("lost")), Ok(true));
    assert_eq!(wait(timers.remove_corrupt("lost")), Ok(false));
    assert!(wait(timers.check()).unwrap().is_sound());
    assert_eq!(wait(timers.len()), Ok(0));
}

#[test]
fn keys_without_a_record_and_keys_of_another_time_are_mended() {
    let Some(bench) = OneNode::bench() else { return };
    let timers = bench.timers();
    for id in ["lost", "moved", "doubled", "there"] {
        wait(timers.insert(id, "", SECOND, quick())).unwrap();
    }
    let mut sound = wait(timers.check()).unwrap();
    assert_eq!((sound.timers, sound.keys, sound.found), (4, 4, 0));
    // One has lost its record, one is due a millisecond later by its key, and one has a second key
    // in another slice.
    bench.place.server.order(
        "EVAL \"for _, key in ipairs(redis.call('KEYS', '*:b:*')) do \
         redis.call('HDEL', key, 'lost') end \
         for _, key in ipairs(redis.call('KEYS', '*:s:*')) do \
         if redis.call('ZSCORE', key, 'moved') then redis.call('ZINCRBY', key, 1, 'moved') end \
         local due = redis.call('ZSCORE', key, 'doubled') \
         if due then local prefix, slice = key:match('^(.*:)s:(%d+)$') \
         redis.call('ZADD', prefix .. 's:' .. slice + 1, due + 600000, 'doubled') \
         redis.call('ZADD', prefix .. 'slices', slice + 1, slice + 1) end end\" 0",
    );
    let (now, later) = (start() + SECOND, start() + 601 * SECOND);
    let stray = |id: &str, due| Finding::Stray { id: id.to_owned(), due };
    let expected = [
        Finding::Unindexed { id: "moved".to_owned() },
        stray("doubled", later),
        stray("lost", now),
        stray("moved", now + MILLISECOND),
    ];
    for check in [wait(timers.check()), wait(timers.repair())] {
        let report = check.unwrap();
        assert_eq!((report.timers, report.keys, report.found), (3, 5, 4), "{report:?}");
        assert!(expected.iter().all(|found| report.findings.contains(found)), "{report:?}");
    }
    sound = wait(timers.check()).unwrap();
    assert_eq!((sound.timers, sound.keys, sound.found), (3, 3, 0), "{sound:?}");
    let running = bench.work_well();
    bench.advance(SECOND);
    let acknowledged: BTreeSet<String> = running.acknowledged(3).into_iter().collect();
    assert_eq!(acknowledged, ids_of(["doubled", "moved", "there"]));
    assert_eq!((running.stop(), wait(timers.len())), (vec![], Ok(0)));
}

fn ids_of<const N: usize>(ids: [&str; N]) -> BTreeSet<String> {
    ids.into_iter().map(str::to_owned).collect()
}

#[test]
fn a_page_of_one_partition_is_bounded() {
    let Some(server) = Server::start(&[]) else { return };
    let runtime = runtime();
    let options = RedisOptions::new("timers").partitions(1);
    let store = runtime.block_on(Redis::connect(&server.url(), options)).unwrap();
    let process = Process::of(store, runtime);
    for id in ids(20) {
        wait(process.timers.insert(&id, vec![7; 1 << 20], 99 * SECOND, quick())).unwrap();
    }
    // Eight megabytes, plus the contents of two buckets.
    let page = wait(process.timers.list(None, 20)).unwrap();
    assert!((8..=10).contains(&page.len()), "{} timers", page.len());
}

#[test]
fn a_node_that_has_become_a_replica_is_left() {
    let (Some(old), Some(new)) = (Server::start(&[]), Server::start(&[])) else { return };
    let proxy = Proxy::before(old.port);
    let process = Process::at(&format!("redis://127.0.0.1:{}/", proxy.port));
    let timers = &process.timers;
    let work = process.work();
    wait(timers.insert("before", "", SECOND / 100, quick())).unwrap();
    assert_eq!(work.next(), "before");
    wait(timers.insert("due later", "", 2 * SECOND, quick())).unwrap();
    // The replica takes over all data of the old master, as an operator would ensure.
    new.order(&format!("REPLICAOF 127.0.0.1 {}", old.port));
    new.wait_for("it follows", |new| {
        new.figure("replication", "master_link_status").as_deref() == Some("up")
    });
    new.order("REPLICAOF NO ONE");
    proxy.leads_to(new.port);
    old.order(&format!("REPLICAOF 127.0.0.1 {}", new.port));
    // The next caller gets the error, and the connection is replaced.
    let told = wait(timers.insert("after", "", SECOND / 100, quick())).map_err(DurableError::from);
    assert!(matches!(told, Err(DurableError::ReadOnly(_)) | Ok(Inserted::New)), "{told:?}");
    let again = || wait(timers.insert("after", "", SECOND / 100, quick().existing(Existing::Keep)));
    let begun = SystemTime::now();
    while told.is_err() && again().is_err() {
        assert!(begun.elapsed().unwrap() < 10 * SECOND, "it is never left");
    }
    let acknowledged = BTreeSet::from([work.next(), work.next()]);
    assert_eq!(acknowledged, BTreeSet::from(["after".to_owned(), "due later".to_owned()]));
    // The subscription there is gone, too.
    let subscribed = |new: &Server| {
        let channels = ["tb:timers", "tb:timers:0", "tb:timers:15"];
        channels
            .iter()
            .all(|channel| new.order(&format!("PUBSUB NUMSUB {channel}")).ends_with("\n:1\r\n"))
    };
    new.wait_for("the subscription", subscribed);
    assert_eq!(work.stop(), [""; 0]);
}

#[test]
fn a_new_process_costs_the_same_however_many_there_have_been() {
    let Some(server) = Server::start(&[]) else { return };
    let one = || {
        let runtime = runtime();
        let options = RedisOptions::new("timers").partitions(1);
        let store = runtime.block_on(Redis::connect(&server.url(), options)).unwrap();
        Process::of(store, runtime)
    };
    // The last replies to 5000 processes are old, and to another 5000 recent.
    let answers = "EVAL \"for number = 1, 10000 do local time = number > 5000 and 2^41 or 0 \
                   redis.call('HSET', '{tb:timers:0}:answers', number, \
                   struct.pack('<I6I6', 1, time) .. cmsgpack.pack({time})) \
                   redis.call('ZADD', '{tb:timers:0}:ages', 0, number) end\" 0";
    server.order(answers);
    let kept = || -> u64 {
        let said = server.order("HLEN {tb:timers:0}:answers");
        said.trim().trim_start_matches(':').parse().unwrap()
    };
    let read = || server.calls("hgetall") * 10_000 + server.calls("hget");
    let (before, had) = (read(), kept());
    let processes: Vec<Process> = (0..3).map(|_| one()).collect();
    for (number, process) in processes.iter().enumerate() {
        let id = format!("{number}");
        wait(process.timers.insert(&id, "", 3600 * SECOND, Options::new())).unwrap();
    }
    assert!(read() - before < 100, "{} reads", read() - before);
    let left = kept();
    assert!((had - 40..had - 20).contains(&left), "{left} of {had}");
    // A reply whose age is no longer known stays if its process was active recently.
    server.order(
        "EVAL \"for number = 1, 5000 do redis.call('ZREM', '{tb:timers:0}:ages', number) end\" 0",
    );
    for number in 3..5 {
        let process = one();
        let id = format!("{number}");
        wait(process.timers.insert(&id, "", 3600 * SECOND, Options::new())).unwrap();
    }
    assert_eq!(kept(), left + 2);
}
