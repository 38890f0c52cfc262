//! Unit tests of an embedded store.

#![cfg(test)]
#![forbid(unsafe_code)]

use super::*;
use crate::model::check::Finding;
use crate::model::key::first_from;
use crate::model::options::{Existing, Options};
use crate::model::record::DeadReason;
use crate::panics::ignore_poison;
use pollster::block_on;
use redb::ReadableTable;

fn insert(id: &str, due: Due) -> Insert {
    let payload = Arc::new(b"payload".to_vec());
    let settings = Options::new().settings;
    Insert { id: id.to_owned(), payload, due, existing: Existing::Replace, over: None, settings }
}

/// Returns a key that leases a timer although it is stale.
fn stale(id: &str) -> Key {
    (0, Arc::from(id))
}

/// A clock that stands in the middle of a millisecond.
#[derive(Debug)]
struct Between;

impl StoreClock for Between {
    fn now(&self) -> std::time::SystemTime {
        std::time::UNIX_EPOCH + std::time::Duration::from_micros(10_900)
    }
}

#[test]
fn a_delay_is_waited_for_whole() -> Result<(), DurableError> {
    let folder = std::env::temp_dir().join(format!("tourbillon-between-{}", std::process::id()));
    let store = Embedded::open_with(&folder, StoreOptions::new().clock(Between))?;
    block_on(store.insert(insert("id", Due::After(1))))?;
    let due = block_on(store.get("id"))?.map(|record| record.due);
    drop(store);
    let _ = std::fs::remove_file(&folder);
    assert_eq!(due, Some(12), "11.9 ms, rounded up");
    Ok(())
}

#[test]
fn labels_are_written_once_and_mended() -> Result<(), DurableError> {
    let path = std::env::temp_dir().join(format!("tourbillon-mended-{}", std::process::id()));
    let store = Embedded::open_with(&path, StoreOptions::new().clock(Between))?;
    let shop = Label::new("shop").map_err(|_| DurableError::Closed)?;
    for id in ["a", "b"] {
        let mut timer = insert(id, Due::At(0));
        timer.settings.labels = vec![shop.clone()];
        block_on(store.insert(timer))?;
    }
    block_on(store.write(OnFailure::Report, |transaction, _| {
        let mut labels = transaction.inner.open_table(tables::LABELS)?;
        labels.remove((&b"shop"[..], &b"a"[..]))?;
        labels.insert((&b"shop"[..], &b"none"[..]), ())?;
        labels.insert((&b"eu"[..], &b"b"[..]), ())?;
        Ok(())
    }))?;
    let ids = || block_on(store.label_ids(shop.clone(), Ids::After(None), 9));
    // No change of the timer but of its labels writes the index.
    let Leasing::Taken(lease) = block_on(store.lease(&stale("a")))? else { panic!("it is due") };
    block_on(store.renew("a", lease.fence))?;
    block_on(store.pause_timer("a", true, None))?;
    assert_eq!(ids()?, ["b", "none"]);
    let findings = || -> Result<_, DurableError> {
        let (mut all, mut at) = (Vec::new(), Some(Cursor::part(0)));
        while let Some(from) = at {
            let checked = block_on(store.check(from))?;
            all.extend(checked.findings);
            at = checked.next;
        }
        Ok(all)
    };
    let stray =
        |label: &str, id: &str| Finding::StrayLabel { id: id.to_owned(), label: label.to_owned() };
    let unindexed = Finding::Unindexed { id: "a".to_owned() };
    assert_eq!(findings()?, [unindexed, stray("eu", "b"), stray("shop", "none")]);
    block_on(store.repair())?;
    assert_eq!((ids()?, findings()?), (vec!["a".to_owned(), "b".to_owned()], Vec::new()));
    drop(store);
    let _ = std::fs::remove_file(&path);
    Ok(())
}

/// Writes a dead letter of a timer with a label.
fn die(store: &Embedded, id: &str, label: &Label) -> Result<(), DurableError> {
    let mut timer = insert(id, Due::At(0));
    timer.settings.labels = vec![label.clone()];
    block_on(store.insert(timer))?;
    let Leasing::Taken(lease) = block_on(store.lease(&stale(id)))? else { panic!("it is due") };
    let finish = Finish::Dead { reason: DeadReason::Failed, error: String::new(), next: None };
    assert_eq!(block_on(store.finish(id, lease.fence, finish))?, Finished::Accepted);
    Ok(())
}

#[test]
fn a_letter_is_found_without_reading_others() -> Result<(), DurableError> {
    let path = place("letters");
    let store = Embedded::open_with(&path, StoreOptions::new().clock(Between))?;
    let [shop, eu] = ["shop", "eu"].map(|text| Label::new(text).expect("a label"));
    for (id, label) in [("a", &shop), ("b", &eu), ("a", &eu), ("c", &shop)] {
        die(&store, id, label)?;
    }
    // No other letter can be read.
    block_on(store.write(OnFailure::Report, |transaction, _| {
        let mut dead = transaction.inner.open_table(tables::DEAD)?;
        for number in [2, 4] {
            dead.insert(number, &[][..])?;
        }
        Ok(())
    }))?;
    let of = |of, letters| block_on(store.letters_of(of, letters, 9));
    let id = |id: &str| LettersOf::Id(id.to_owned());
    assert_eq!(of(id("a"), Letters::Before(None))?, [3, 1]);
    assert_eq!(of(id("a"), Letters::Before(Some(3)))?, [1]);
    assert_eq!(of(id("a"), Letters::After(Some(1)))?, [3]);
    assert_eq!(of(LettersOf::Label(shop), Letters::After(None))?, [1, 4]);
    assert_eq!(of(LettersOf::Label(eu), Letters::Before(None))?, [3, 2]);
    assert_eq!(of(id("none"), Letters::After(None))?, [0; 0]);
    let newest = block_on(store.letter(3))?.expect("a letter");
    assert!(id("a").includes(&newest) && !id("b").includes(&newest));
    // The keys of a letter are removed with it, as far as it can be read.
    for number in 1..=4 {
        assert!(block_on(store.delete_dead_letter(number))?);
    }
    block_on(store.write(OnFailure::Report, |transaction, _| {
        let letters = transaction.inner.open_table(tables::LETTERS)?;
        let left = letters.iter()?.map(|row| row.map(|(key, _)| key.value().2));
        assert_eq!(left.collect::<Result<Vec<_>, _>>()?, [2, 4, 2, 4]);
        Ok(())
    }))?;
    drop(store);
    let _ = std::fs::remove_file(&path);
    Ok(())
}

/// A clock that advances by more than a lease with each reading.
#[derive(Debug, Default)]
struct Strides(std::sync::Mutex<u64>);

impl StoreClock for Strides {
    fn now(&self) -> std::time::SystemTime {
        let mut days = ignore_poison(self.0.lock());
        *days += 1;
        std::time::UNIX_EPOCH + std::time::Duration::from_secs(*days * 86_400)
    }
}

#[test]
fn a_lease_that_was_taken_over_finishes_nothing() -> Result<(), DurableError> {
    let path = std::env::temp_dir().join(format!("tourbillon-fence-{}", std::process::id()));
    let store = Embedded::open_with(&path, StoreOptions::new().clock(Strides::default()))?;
    block_on(store.insert(insert("id", Due::At(0))))?;
    let mut fences = Vec::new();
    for overrun in [false, true] {
        let Leasing::Taken(lease) = block_on(store.lease(&stale("id")))? else {
            panic!("its lease has run out")
        };
        assert_eq!((lease.overrun, lease.record.attempt), (overrun, 1));
        fences.push(lease.fence);
    }
    for (fence, renewed) in [
        (fences[0], Renewed::Lost),
        (fences[1], Renewed::Held { length: 15_000, cancelled: false }),
    ] {
        assert_eq!(block_on(store.renew("id", fence))?, renewed);
    }
    for (fence, finished) in [(fences[0], Finished::TooLate), (fences[1], Finished::Accepted)] {
        let finish = Finish::Done { next: None };
        assert_eq!(block_on(store.finish("id", fence, finish))?, finished);
    }
    drop(store);
    let _ = std::fs::remove_file(path);
    Ok(())
}

/// Applies a random operation to a timer.
fn step(store: &Embedded, random: &mut fastrand::Rng) -> Result<(), DurableError> {
    let id = format!("{}", random.u8(..6));
    let due = Due::After(random.u64(..2) * 60_000);
    match random.u8(..5) {
        0 => drop(block_on(store.insert(insert(&id, due)))?),
        1 => drop(block_on(store.cancel(&id, None))?),
        2 => drop(block_on(store.reset(&id, due))?),
        3 => {
            let letter = block_on(store.dead(Letters::After(None), 1))?.pop();
            let number = letter.map_or(0, |(number, _)| number);
            // Fails if such a timer exists.
            let _ = block_on(store.redrive(number));
        }
        _ => {
            let Leasing::Taken(lease) = block_on(store.lease(&stale(&id)))? else { return Ok(()) };
            let finish = match random.u8(..4) {
                0 => Finish::Done { next: None },
                1 => Finish::Retry { wait: 0, error: String::new(), counted: random.bool() },
                2 => return Ok(()),
                _ => {
                    Finish::Dead { reason: DeadReason::Attempts, error: String::new(), next: None }
                }
            };
            if random.bool() {
                assert_eq!(block_on(store.cancel(&id, None))?, Cancelled::Running);
            }
            if random.bool() {
                assert!(matches!(block_on(store.renew(&id, lease.fence))?, Renewed::Held { .. }));
                if random.bool() {
                    return Ok(());
                }
            }
            let first = block_on(store.finish(&id, lease.fence, finish.clone()))?;
            assert_ne!(first, Finished::TooLate);
            let second = block_on(store.finish(&id, lease.fence, finish))?;
            assert_eq!(second, Finished::TooLate, "only once");
        }
    }
    Ok(())
}

#[test]
fn each_timer_has_one_key() -> Result<(), DurableError> {
    let name = format!("tourbillon-keys-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let store = Embedded::open(&path)?;
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..400 {
        step(&store, &mut random)?;
        let page = block_on(store.load(0, first_from(0), Millis::MAX - 1, 99))?;
        let timers = block_on(store.list(None, 99))?;
        let mut keys: Vec<Key> =
            timers.iter().map(|(id, record)| (record.due, Arc::from(&**id))).collect();
        keys.sort_unstable();
        assert_eq!(page.keys, keys);
        assert_eq!(block_on(store.len())?.0, timers.len() as u64);
    }
    drop(store);
    let _ = std::fs::remove_file(path);
    Ok(())
}

/// Returns the path of a temporary file.
fn place(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("tourbillon-{name}-{}", std::process::id()))
}

#[test]
fn a_file_that_is_mostly_free_is_made_smaller() -> Result<(), Box<dyn std::error::Error>> {
    let path = place("smaller");
    let store = Embedded::open(&path)?;
    let length = || std::fs::metadata(&path).map(|file| file.len());
    for id in 0..24 {
        let payload = Arc::new(vec![7; 1 << 20]);
        let insert = Insert { payload, ..insert(&id.to_string(), Due::After(60_000)) };
        block_on(store.insert(insert))?;
    }
    drop(store);
    let full = length()?;
    assert!(full >= 24 << 20, "{full}");
    // All of the file is needed.
    let store = Embedded::open(&path)?;
    // The timers at the end of the file stay.
    for id in 0..22 {
        assert_eq!(block_on(store.cancel(&id.to_string(), None))?, Cancelled::Removed);
    }
    drop(store);
    let sparse = length()?;
    assert!(sparse >= full / 2, "{sparse} of {full}: it does not shrink by itself");
    let store = Embedded::open(&path)?;
    assert_eq!(block_on(store.list(None, 9))?.len(), 2);
    drop(store);
    let small = length()?;
    assert!(small < full / 2, "{small} of {full}");
    std::fs::remove_file(path)?;
    Ok(())
}
