//! Files of durable timers that are locked, damaged, foreign, or cannot be written. Each leads to a
//! typed error, nothing half done, and no panic.

#![allow(clippy::disallowed_methods, reason = "a worker has a thread, and a loop a limit in time")]

use crate::common::bench::{
    Bench, Bounds, MILLISECOND, OneFile, Place, SECOND, TempFile, quick, start, wait,
};
use redb::{
    Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, Table, TableDefinition,
};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, SystemTime};
use tourbillon_durable::{
    Attempt, DurableError, DurableTimers, Embedded, Event, Existing, Finding, Inserted, Options,
    Outcome,
};

/// Opens the store, and checks that an error names the file.
fn open(file: &TempFile) -> Result<Embedded, DurableError> {
    let opened = Embedded::open(&file.0);
    if let Err(error) = &opened {
        assert!(error.to_string().contains(name(file)), "{error}");
    }
    opened
}

fn name(file: &TempFile) -> &str {
    file.0.to_str().unwrap()
}

/// Returns the bytes of a store with some timers that was closed cleanly.
fn some_store() -> Vec<u8> {
    let place = OneFile::new();
    let timers = DurableTimers::new(place.open(), &place.timer());
    for number in 0..50 {
        let id = format!("{number}");
        wait(timers.insert(&id, "payload", SECOND, Options::new())).unwrap();
    }
    drop(timers);
    std::fs::read(&place.file.0).unwrap()
}

#[test]
fn a_store_is_open_once() {
    let file = TempFile::new();
    let first = open(&file).unwrap();
    assert!(matches!(open(&file).unwrap_err(), DurableError::Locked(_)));
    drop(first);
    drop(open(&file).unwrap());
}

#[test]
fn a_file_that_is_no_store() {
    let file = TempFile::new();
    std::fs::write(&file.0, "Dear diary, ".repeat(1000)).unwrap();
    let error = open(&file).unwrap_err();
    assert!(matches!(error, DurableError::Corrupt { id: None, .. }), "{error:?}");
    assert!(error.to_string().ends_with(": the file is not a redb database"), "{error}");
    // The file is unchanged.
    assert_eq!(std::fs::read(&file.0).unwrap().len(), 12_000);
    // An empty file becomes a store.
    std::fs::write(&file.0, "").unwrap();
    drop(open(&file).unwrap());
}

#[test]
fn a_place_that_cannot_be_written() {
    let inside = TempFile(std::env::temp_dir().join("tourbillon-no-such-folder").join("timers"));
    let error = open(&inside).unwrap_err();
    assert!(matches!(error, DurableError::Io(_)), "{error:?}");
    assert!(Embedded::open(std::env::temp_dir()).is_err());
}

#[test]
fn a_store_that_was_cut_off() {
    let whole = some_store();
    for part in 0..16 {
        let file = TempFile::new();
        std::fs::write(&file.0, &whole[..(whole.len() * part / 16).max(1)]).unwrap();
        let error = open(&file).unwrap_err();
        assert!(matches!(error, DurableError::Corrupt { .. } | DurableError::Io(_)), "{error:?}");
    }
}

/// Writes into a database as another program would.
fn put(file: &Path, table: &str, key: &str, value: &[u8]) {
    let database = Database::create(file).unwrap();
    let transaction = database.begin_write().unwrap();
    let table = TableDefinition::<&[u8], &[u8]>::new(table);
    transaction.open_table(table).unwrap().insert(key.as_bytes(), value).unwrap();
    transaction.commit().unwrap();
}

#[test]
fn a_database_of_something_else_is_refused() {
    let file = TempFile::new();
    put(&file.0, "recipes", "tea", b"water");
    let before = std::fs::read(&file.0).unwrap();
    assert!(matches!(open(&file).unwrap_err(), DurableError::Corrupt { .. }));
    assert!(std::fs::read(&file.0).unwrap().len() == before.len());
    let database = Database::create(&file.0).unwrap();
    assert_eq!(database.begin_read().unwrap().list_tables().unwrap().count(), 1);
    drop(database);
    // A database without a table becomes a store.
    let file = TempFile::new();
    drop(Database::create(&file.0).unwrap());
    drop(open(&file).unwrap());
    drop(open(&file).unwrap());
}

/// Creates three timers. The timer `b` has an unreadable record.
fn one_is_wrong() -> Bench<OneFile> {
    let place = OneFile::new();
    let timers = DurableTimers::new(place.open(), &place.timer());
    for id in ["a", "b", "c"] {
        wait(timers.insert(id, "payload", SECOND, quick())).unwrap();
    }
    drop(timers);
    put(&place.file.0, "timers", "b", b"no record");
    Bench::new(place)
}

#[test]
fn a_timer_that_cannot_be_read_stops_no_worker() {
    let bench = one_is_wrong();
    let running = bench.work_well();
    bench.advance(SECOND);
    let mut ended: Vec<_> = (0..3).map(|_| running.next()).collect();
    ended.sort_by(|one, other| one.id.cmp(&other.id));
    assert_eq!(ended[0].outcome, Outcome::Acknowledged);
    assert!(matches!(&ended[1].outcome, Outcome::Unreadable { error } if error.contains("\"b\"")));
    assert_eq!(ended[2].outcome, Outcome::Acknowledged);
    // It is read again.
    bench.advance(60 * SECOND);
    bench.advance(SECOND);
    assert_eq!(running.next().outcome, ended[1].outcome);
    assert_eq!(running.stop(), []);
}

#[test]
fn a_timer_that_cannot_be_read_is_named_and_removed() {
    let bench = one_is_wrong();
    let timers = bench.timers();
    let named = |error: DurableError| match error {
        DurableError::Corrupt { id, what } if what.contains(name(&bench.place.file)) => id,
        error => panic!("{error}"),
    };
    let unreadable = Some("b".to_owned());
    assert_eq!(wait(timers.list(None, 9)).map_err(named), Err(unreadable.clone()));
    assert_eq!(wait(timers.get("b")).map_err(named), Err(unreadable));
    assert_eq!(wait(timers.list(Some("b"), 9)).unwrap().len(), 1);
    assert_eq!(wait(timers.remove_corrupt("a")), Ok(false));
    assert_eq!(wait(timers.remove_corrupt("b")), Ok(true));
    assert_eq!(wait(timers.remove_corrupt("b")), Ok(false));
    assert_eq!(wait(timers.list(None, 9)).unwrap().len(), 2);
    // None of its keys is left.
    let place = Arc::clone(&bench.place);
    drop(bench);
    let database = Database::create(&place.file.0).unwrap();
    let due = TableDefinition::<(u64, &[u8]), ()>::new("due");
    assert_eq!(database.begin_read().unwrap().open_table(due).unwrap().len().unwrap(), 2);
}

/// Writes a dead letter that cannot be read.
fn put_letter(file: &Path, number: u64) {
    put_letters(file, number..=number);
}

/// Writes dead letters that cannot be read. The next one has a greater number.
fn put_letters(file: &Path, numbers: RangeInclusive<u64>) {
    let database = Database::create(file).unwrap();
    let transaction = database.begin_write().unwrap();
    let (letters, numbering) = (TableDefinition::new("dead"), TableDefinition::new("meta"));
    let mut letters: Table<'_, u64, &[u8]> = transaction.open_table(letters).unwrap();
    let mut numbering: Table<'_, &str, u64> = transaction.open_table(numbering).unwrap();
    let before = numbering.get("dead").unwrap().map_or(0, |last| last.value());
    numbering.insert("dead", before.max(*numbers.end())).unwrap();
    for number in numbers {
        letters.insert(number, &b"no letter"[..]).unwrap();
    }
    drop((letters, numbering));
    transaction.commit().unwrap();
}

#[test]
fn a_dead_letter_that_cannot_be_read_keeps_no_other() {
    let bench = Bench::new(OneFile::new());
    let running = bench.work(1, |_| async { Err("no") });
    let once = quick().attempts(1);
    wait(bench.timers().insert("a", "", MILLISECOND, once)).unwrap();
    bench.advance(SECOND);
    assert!(matches!(running.next().outcome, Outcome::Dead { .. }));
    assert_eq!(running.stop(), []);
    bench.advance(SECOND);
    let place = Arc::clone(&bench.place);
    drop(bench);
    put_letter(&place.file.0, 0);
    let timers = DurableTimers::new(place.open(), &place.timer());
    assert_eq!(wait(timers.trim_dead_letters(u64::MAX, Duration::ZERO)), Ok(1));
    assert_eq!(wait(timers.dead_len()), Ok(1), "its age is unknown");
    assert_eq!(wait(timers.trim_dead_letters(0, Duration::MAX)), Ok(1));
}

/// Makes a dead letter of each id, one after another, before a worker checks the store.
fn die(bench: &Bench<OneFile>, id: &str) {
    let running = bench.work(1, |_| async { Err("no") });
    wait(bench.timers().insert(id, "", MILLISECOND, quick().attempts(1))).unwrap();
    bench.advance(MILLISECOND);
    assert!(matches!(running.next().outcome, Outcome::Dead { .. }));
    assert_eq!(running.stop(), []);
}

#[test]
fn dead_letters_behind_some_that_cannot_be_read_are_deleted() {
    // When a letter is written, up to sixteen are read.
    for (unreadable, left) in [(15, 16), (16, 18)] {
        let place = OneFile::new();
        drop(place.open());
        put_letters(&place.file.0, 1..=unreadable);
        let mut bench = Bench::new(place);
        bench.reopen_with(Bounds(u64::MAX, SECOND));
        die(&bench, "a");
        bench.advance(2 * SECOND);
        die(&bench, "b");
        assert_eq!(wait(bench.timers().dead_len()), Ok(left));
    }
    // A step of a worker reads more than a page, if none of it has an age.
    let place = OneFile::new();
    drop(place.open());
    put_letters(&place.file.0, 1..=1001);
    let bench = Bench::new(place);
    die(&bench, "a");
    bench.advance(SECOND);
    assert_eq!(wait(bench.timers().trim_dead_letters(u64::MAX, Duration::ZERO)), Ok(1));
    assert_eq!(wait(bench.timers().dead_len()), Ok(1001));
}

#[test]
fn a_dead_letter_that_cannot_be_read_is_deleted() {
    let place = OneFile::new();
    drop(place.open());
    put_letter(&place.file.0, 7);
    let timers = DurableTimers::new(place.open(), &place.timer());
    let unreadable = wait(timers.dead_letter(7)).unwrap_err();
    assert!(matches!(unreadable, DurableError::Corrupt { id: None, .. }));
    assert_eq!(wait(timers.delete_dead_letter(7)), Ok(true));
    assert_eq!(wait(timers.dead_letters(None, 9)), Ok(Vec::new()));
}

#[test]
fn an_observer_that_panics_ends_no_worker() {
    let place = OneFile::new();
    let timers = DurableTimers::new(place.open(), &place.timer());
    for id in ["a", "b", "c"] {
        wait(timers.insert(id, "", Duration::ZERO, Options::new())).unwrap();
    }
    let (send, mut handled) = futures_channel::mpsc::unbounded();
    let (told, telling) = channel();
    let observed = timers.worker().concurrency(1).observe(move |event| {
        let Event::Attempt(event) = event else { return };
        told.send(event.id.clone()).unwrap();
        panic!("this observer panics");
    });
    let worker = observed.until(async move {
        for _ in 0..3 {
            drop(futures_util::StreamExt::next(&mut handled).await);
        }
    });
    let run = worker.run(move |delivery| {
        send.unbounded_send(delivery.id).unwrap();
        async { Ok::<(), String>(()) }
    });
    assert_eq!(wait(run), Ok(()));
    assert_eq!(telling.iter().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(wait(timers.len()), Ok(0));
}

type Task = Pin<Box<dyn Future<Output = Result<(), DurableError>> + Send>>;

/// A task that is polled where it is woken.
struct AtOnce {
    task: Mutex<Option<Task>>,
    woken: AtomicBool,
}

impl Wake for AtOnce {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, SeqCst);
        while self.woken.load(SeqCst) {
            // The poller checks it again afterwards.
            let Ok(mut place) = self.task.try_lock() else { return };
            self.woken.store(false, SeqCst);
            let waker = Waker::from(Arc::clone(&self));
            let poll = |task: &mut Task| task.as_mut().poll(&mut Context::from_waker(&waker));
            if let Some(Poll::Ready(ended)) = place.as_mut().map(poll) {
                *place = None;
                ended.unwrap();
            }
        }
    }
}

#[test]
fn a_waker_may_poll_at_once() {
    let place = OneFile::new();
    let timers = DurableTimers::new(place.open(), &place.timer());
    let (send, ids) = channel();
    let (end, ends) = futures_channel::oneshot::channel::<()>();
    let worker = timers.worker().observe(move |event| {
        let Event::Attempt(event) = event else { return };
        send.send(event.id.clone()).unwrap();
    });
    let worker = worker.until(async move {
        let _ = ends.await;
    });
    let task: Task = Box::pin(worker.run(|_| async { Ok::<(), String>(()) }));
    Arc::new(AtOnce { task: Mutex::new(Some(task)), woken: AtomicBool::new(false) }).wake();
    for number in 0..100 {
        let id = format!("{number}");
        wait(timers.insert(&id, "", Duration::ZERO, Options::new())).unwrap();
        // The limit keeps a broken build from hanging.
        assert_eq!(ids.recv_timeout(60 * SECOND).as_ref(), Ok(&id));
    }
    drop(end);
    assert!(ids.recv_timeout(60 * SECOND).is_err(), "the worker has ended");
}

/// A waker that panics.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("this waker panics");
    }
}

#[test]
fn a_waker_that_panics_ends_no_thread() {
    let place = OneFile::new();
    let timers = DurableTimers::new(place.open(), &place.timer());
    let waker = Waker::from(Arc::new(Panics));
    let mut panics = Context::from_waker(&waker);
    let (send, handled) = channel();
    let mut run = Box::pin(timers.run(move |_| {
        send.send(()).unwrap();
        async { Ok::<(), String>(()) }
    }));
    wait(timers.insert("id", "", Duration::ZERO, Options::new())).unwrap();
    while handled.try_recv().is_err() {
        assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    // The worker has loaded its window, and is notified of more.
    assert!(run.as_mut().poll(&mut panics).is_pending());
    for id in ["a", "b"] {
        wait(timers.insert(id, "", Duration::ZERO, Options::new())).unwrap();
        let mut writes = Box::pin(timers.insert(id, "", SECOND, Options::new()));
        let mut reads = Box::pin(timers.get(id));
        let _ = (writes.as_mut().poll(&mut panics), reads.as_mut().poll(&mut panics));
    }
    assert_eq!(wait(timers.reset("a", SECOND)), Ok(true));
    assert!(wait(timers.get("b")).unwrap().is_some());
}

/// Whatever byte is wrong, each operation returns either the right result or an error.
#[test]
fn a_store_with_wrong_bytes() {
    let whole = some_store();
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..60 {
        let place = OneFile::new();
        let mut bytes = whole.clone();
        for _ in 0..random.usize(1..64) {
            let at = random.usize(..bytes.len());
            bytes[at] ^= 1 << random.u8(..8);
        }
        std::fs::write(&place.file.0, bytes).unwrap();
        let Ok(store) = Embedded::open_with(&place.file.0, Bounds::NONE.options(&place.clock))
        else {
            continue;
        };
        let timers = DurableTimers::new(store, &place.timer());
        let _ = wait(timers.list(None, 99));
        let _ = wait(timers.get("7"));
        let _ = wait(timers.cancel("7"));
        let _ = wait(timers.insert("new", "payload", SECOND, Options::new()));
        let _ = wait(timers.len());
    }
}

#[test]
fn a_timer_that_was_shut_down_ends_its_workers() {
    let place = OneFile::new();
    let timer = place.timer();
    let timers = DurableTimers::new(place.open(), &timer);
    timer.shutdown();
    let run = timers.run(|_| async { Ok::<(), String>(()) });
    assert_eq!(wait(run), Err(DurableError::Closed));
    // Resting timers stay.
    wait(timers.insert("id", "payload", SECOND, Options::new())).unwrap();
    drop(timers);
    let bench = Bench::new(place);
    assert!(wait(bench.timers().get("id")).unwrap().is_some());
}

/// Returns the ids of some timers and `needle`.
fn straw(needle: &str) -> BTreeSet<String> {
    (0..20).map(|number| format!("timer {number:02}")).chain([needle.to_owned()]).collect()
}

fn payload(id: &str) -> Vec<u8> {
    id.bytes().rev().collect()
}

/// Returns the bytes of a store with those timers, and the positions of the id `needle`.
fn haystack(needle: &str) -> (Vec<u8>, Vec<usize>) {
    let place = OneFile::new();
    let timers = DurableTimers::new(place.open(), &place.timer());
    let all: Vec<String> = straw(needle).into_iter().collect();
    let insert = all.iter().map(|id| timers.insert(id, payload(id), SECOND, quick()));
    wait(futures_util::future::try_join_all(insert)).unwrap();
    drop(timers);
    let bytes = std::fs::read(&place.file.0).unwrap();
    let windows = bytes.windows(needle.len()).enumerate();
    let places = windows.filter(|(_, window)| *window == needle.as_bytes()).map(|(at, _)| at);
    let places: Vec<usize> = places.collect();
    assert!(places.len() >= 2, "in the table of timers and in the index");
    (bytes, places)
}

/// Opens a store of those bytes with one bit flipped.
fn flipped(bytes: &[u8], at: usize, bit: usize) -> Bench<OneFile> {
    let place = OneFile::new();
    let mut bytes = bytes.to_vec();
    bytes[at + bit / 8] ^= 1 << (bit % 8);
    std::fs::write(&place.file.0, bytes).unwrap();
    Bench::new(place)
}

/// Delivers until `count` keys have been delivered or reported. Returns the acknowledged ids and
/// the events of damage.
///
/// One at a time, because beside a key out of order a lookup may depend on the other keys that are
/// still there, and so on the batches of operations.
fn deliver(bench: &Bench<OneFile>, count: usize) -> (BTreeSet<String>, Vec<Attempt>) {
    let running = bench.work(1, |delivery| async move {
        let right = delivery.payload == payload(&delivery.id);
        if right { Ok(()) } else { Err("another payload") }
    });
    let (mut acknowledged, mut reported, mut keys) = (BTreeSet::new(), Vec::new(), 0);
    while keys < count {
        let event = running.next();
        keys += 1;
        match &event.outcome {
            Outcome::Acknowledged => assert!(acknowledged.insert(event.id), "acknowledged twice"),
            Outcome::Unreadable { error } => {
                keys -= usize::from(error.contains("out of order"));
                reported.push(event);
            }
            outcome => panic!("{outcome:?}"),
        }
    }
    assert_eq!(running.stop(), []);
    (acknowledged, reported)
}

#[test]
fn a_flipped_bit_in_an_id_is_reported_and_mended() {
    let needle = "timer 10 needle";
    let ((bytes, places), all) = (haystack(needle), straw(needle));
    let mut damaged = 0;
    for at in places {
        for (byte, bit) in [(0, 0), (0, 3), (0, 7), (3, 1), (7, 4), (14, 0), (14, 7)] {
            let flip = format!("bit {bit} of byte {byte} at {at}");
            let bench = flipped(&bytes, at + byte, bit);
            bench.advance(SECOND);
            // Each key of the index is delivered or reported.
            let (mut acknowledged, reported) = deliver(&bench, all.len());
            assert!(acknowledged.is_subset(&all), "{flip}: {acknowledged:?}");
            let report = wait(bench.timers().repair()).unwrap();
            assert_eq!(report.is_sound(), reported.is_empty(), "{flip}: {report:?}");
            damaged += usize::from(!reported.is_empty());
            let report = wait(bench.timers().check()).unwrap();
            assert!(report.is_sound(), "{flip}: {report:?}");
            let left = all.len() - acknowledged.len();
            assert_eq!((report.timers, report.keys), (left as u64, left as u64), "{flip}");
            acknowledged.extend(deliver(&bench, left).0);
            assert_eq!(acknowledged, all, "{flip}");
            assert_eq!(wait(bench.timers().len()), Ok(0), "{flip}");
        }
    }
    assert!(damaged >= 14, "{damaged} flips had an effect");
}

/// Three stores, each with one flipped bit in the due time of an index key.
struct Flipped {
    needle: &'static str,
    bytes: Vec<u8>,
    key: usize,
}

impl Flipped {
    fn new(needle: &'static str) -> Self {
        let (bytes, places) = haystack(needle);
        let due = (start() + SECOND).duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
        let due = u64::try_from(due).unwrap().to_le_bytes();
        let key = places.into_iter().map(|at| at - 8).find(|at| bytes[*at..*at + 8] == due);
        Self { needle, bytes, key: key.expect("the key of the index") }
    }

    /// Opens the store whose key is eight milliseconds too early.
    fn early(&self) -> Bench<OneFile> {
        flipped(&self.bytes, self.key, 3)
    }

    /// Opens the store whose key is half a year too late.
    fn late(&self) -> Bench<OneFile> {
        flipped(&self.bytes, self.key, 34)
    }

    fn all(&self) -> BTreeSet<String> {
        straw(self.needle)
    }
}

/// The delay of a late key.
const LATER: Duration = Duration::from_millis(1 << 34);

#[test]
fn a_key_that_is_too_early_is_mended_when_it_fires() {
    let store = Flipped::new("a needle");
    let bench = store.early();
    assert!(!wait(bench.timers().check()).unwrap().is_sound());
    bench.advance(SECOND - MILLISECOND);
    let running = bench.work_well();
    let begun = SystemTime::now();
    while !wait(bench.timers().check()).unwrap().is_sound() {
        assert!(begun.elapsed().unwrap() < 60 * SECOND, "the key is never mended");
    }
    assert_eq!(running.events.try_iter().count(), 0);
    bench.advance(MILLISECOND);
    let acknowledged = running.acknowledged(store.all().len()).into_iter().collect::<BTreeSet<_>>();
    assert_eq!(acknowledged, store.all());
    assert_eq!(running.stop(), []);
}

#[test]
fn a_key_that_is_too_late_is_found_by_a_check() {
    let store = Flipped::new("z needle");
    let (all, id) = (store.all(), store.needle.to_owned());
    let due = start() + SECOND + LATER;
    let both = [Finding::Unindexed { id: id.clone() }, Finding::Stray { id, due }];
    let bench = store.late();
    bench.advance(SECOND);
    let (acknowledged, reported) = deliver(&bench, all.len() - 1);
    assert_eq!((acknowledged.len(), reported), (all.len() - 1, Vec::new()));
    assert_eq!(wait(bench.timers().check()).unwrap().findings, both);
    assert_eq!(wait(bench.timers().repair()).unwrap().findings, both);
    assert_eq!(deliver(&bench, 1).0, BTreeSet::from([store.needle.to_owned()]));
    assert!(wait(bench.timers().check()).unwrap().is_sound());
}

#[test]
fn a_timer_that_is_kept_is_in_the_index() {
    let store = Flipped::new("z needle");
    let bench = store.late();
    let keep = quick().existing(Existing::Keep);
    let kept = wait(bench.timers().insert(store.needle, "another", SECOND, keep));
    assert_eq!(kept, Ok(Inserted::Kept));
    bench.advance(SECOND);
    assert_eq!(deliver(&bench, store.all().len()).0, store.all());
    // The damaged key has no record now, and is reported when its time comes.
    bench.advance(LATER);
    let (acknowledged, reported) = deliver(&bench, 1);
    assert_eq!((acknowledged.len(), &*reported[0].id), (0, store.needle));
    assert_eq!(wait(bench.timers().remove_corrupt(store.needle)), Ok(true));
    assert!(wait(bench.timers().check()).unwrap().is_sound());
}

#[test]
fn keys_that_are_not_in_order_are_reported() {
    let store = Flipped::new("timer 10 needle");
    for bench in [store.early(), store.late()] {
        let running = bench.work_well();
        let event = running.next();
        assert!(
            matches!(&event.outcome, Outcome::Unreadable { error } if error.contains("out of order")),
            "{event:?}"
        );
        assert_eq!(running.stop(), []);
        assert!(!wait(bench.timers().repair()).unwrap().is_sound());
        assert!(wait(bench.timers().check()).unwrap().is_sound());
        bench.advance(SECOND);
        assert_eq!(deliver(&bench, store.all().len()), (store.all(), Vec::new()));
    }
}

#[test]
fn a_worker_ends_in_time_though_a_handler_does_not() {
    let place = OneFile::new();
    let timers = DurableTimers::new(place.open(), &place.timer());
    wait(timers.insert("id", "", Duration::ZERO, quick().lease(3600 * SECOND))).unwrap();
    let (send, begun) = channel();
    let (end, ends) = futures_channel::oneshot::channel::<()>();
    let ends = async move {
        let _ = ends.await;
    };
    let run = timers.worker().until_within(ends, 2 * SECOND).run(move |_| {
        let (held, dropped) = channel::<()>();
        send.send(dropped).unwrap();
        async move {
            std::future::pending::<()>().await;
            drop(held);
            Ok::<(), String>(())
        }
    });
    let thread = std::thread::spawn(move || wait(run));
    let handler = begun.recv_timeout(60 * SECOND).unwrap();
    drop(end);
    place.advance(SECOND);
    let early = handler.recv_timeout(SECOND / 2);
    assert_eq!(early, Err(RecvTimeoutError::Timeout), "its time has not passed");
    let told = SystemTime::now();
    while handler.recv_timeout(SECOND) == Err(RecvTimeoutError::Timeout) {
        // It may be reported after a second has passed.
        place.advance(SECOND);
        assert!(told.elapsed().unwrap() < 60 * SECOND, "the handler is never stopped");
    }
    // The run waits for up to a second until the store has the attempt.
    assert_eq!(thread.join().unwrap(), Ok(()));
    let found = wait(timers.get("id")).unwrap().unwrap();
    assert_eq!((found.is_running(), found.attempts), (false, 0), "the attempt is given back");
}
