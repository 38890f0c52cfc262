//! A store on a machine that loses its power.
//!
//! [`VolatileDisk`] is a storage backend of the database in memory, with this model of durability:
//!
//! - **Pending** are all writes, and all changes of the file's length, since the last sync.
//! - **Durable** is everything before a sync that has returned.
//! - **Lost, torn and reordered** by a power cut are the pending writes. Any subset of them is
//!   kept, by sectors of 512 bytes and in any order. A sector is written whole or not at all.
//! - **The length** after a cut is the last synced one or any pending one. Bytes beyond it are
//!   gone, and new bytes are zero.
//! - **Cuts** happen just before a sync returns, at several points of each sync that changes the
//!   length, at a few other syncs, and again while the store is opened after a cut.
//!
//! Some of the syncs belong to leases and their renewals.
//!
//! After each cut the store must open, hold every acknowledged timer intact and every acknowledged
//! lease, and accept another.
//!
//! **To replay a failure**, take the seed from its message and run
//! `TOURBILLON_POWER_SEED=1 cargo test -p tourbillon-durable --test store power::`. All cuts follow
//! from the seed.

use super::resting;
use pollster::block_on;
use redb::StorageBackend;
use std::collections::BTreeSet;
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tourbillon::future::Timer;
use tourbillon::{Builder, Inline};
use tourbillon_durable::__internals::{lease, open_database, renew};
use tourbillon_durable::{Cancelled, DurableError, DurableTimers, Embedded, Existing, Options};

type Tested = std::result::Result<(), Box<dyn std::error::Error>>;

/// The number of bytes that a disk writes whole or not at all.
const SECTOR: usize = 512;

/// The beginning of the ids of timers that are leased.
const LEASED: &str = "leased";

const DAY: Duration = Duration::from_secs(86_400);

/// A change that a process has made to the file since the last sync.
#[derive(Debug)]
enum Done {
    Wrote(usize, Vec<u8>),
    SetLength(usize),
}

/// A file whose changes are lost with the power, until they are synced.
#[derive(Debug, Default)]
struct Volatile {
    /// The content as the process sees it.
    seen: Vec<u8>,
    /// The content that the disk has for certain.
    synced: Vec<u8>,
    since: Vec<Done>,
    /// The timers that have been acknowledged.
    acknowledged: BTreeSet<String>,
    cuts: Vec<Cut>,
    /// The number of cuts at a sync that changes the file's length, and how many of a hundred other
    /// syncs have one.
    wanted: [usize; 2],
    random: fastrand::Rng,
}

/// A possible content of the disk after a power cut, and the timers that must be in it.
#[derive(Clone, Debug)]
struct Cut {
    bytes: Vec<u8>,
    acknowledged: BTreeSet<String>,
}

impl Volatile {
    /// Returns a possible state of the disk.
    fn cut(&mut self) -> Cut {
        let lengths = self.since.iter().filter_map(|done| match done {
            Done::SetLength(length) => Some(*length),
            Done::Wrote(..) => None,
        });
        let lengths: Vec<usize> = lengths.chain([self.synced.len()]).collect();
        let mut bytes = self.synced.clone();
        // Bytes beyond the length that the disk knows are missing.
        bytes.resize(lengths[self.random.usize(..lengths.len())], 0);
        let mut sectors: Vec<(usize, &[u8])> = Vec::new();
        for done in &self.since {
            let Done::Wrote(offset, data) = done else { continue };
            let (mut at, mut data) = (*offset, &data[..]);
            while !data.is_empty() {
                let (sector, rest) = data.split_at(data.len().min(SECTOR - at % SECTOR));
                sectors.push((at, sector));
                (at, data) = (at + sector.len(), rest);
            }
        }
        // Any number of them, from none to all.
        let share = self.random.f64();
        sectors.retain(|_| self.random.f64() < share);
        self.random.shuffle(&mut sectors);
        for (at, sector) in sectors {
            if let Some(stored) = bytes.get_mut(at..at + sector.len()) {
                stored.copy_from_slice(sector);
            }
        }
        Cut { bytes, acknowledged: self.acknowledged.clone() }
    }

    fn range(&self, offset: u64, length: usize) -> Result<Range<usize>> {
        let offset = usize::try_from(offset).map_err(Error::other)?;
        match offset + length <= self.seen.len() {
            true => Ok(offset..offset + length),
            false => Err(Error::from(ErrorKind::UnexpectedEof)),
        }
    }
}

/// A handle of the file.
#[derive(Clone, Debug)]
struct VolatileDisk(Arc<Mutex<Volatile>>);

impl VolatileDisk {
    fn new(cut: Cut, wanted: [usize; 2], seed: u64) -> Self {
        let Cut { bytes, acknowledged } = cut;
        Self(Arc::new(Mutex::new(Volatile {
            seen: bytes.clone(),
            synced: bytes,
            acknowledged,
            wanted,
            random: fastrand::Rng::with_seed(seed),
            ..Volatile::default()
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Volatile> {
        self.0.lock().unwrap()
    }

    fn store(&self) -> std::result::Result<Embedded, DurableError> {
        let disk = self.clone();
        open_database("the disk", move |_| redb::Builder::new().create_with_backend(disk.clone()))
    }

    fn timers(&self) -> std::result::Result<DurableTimers, DurableError> {
        let timer = Timer::spawn(Builder::new().driver().executor(Inline));
        let timer = timer.map_err(|error| DurableError::Io(error.to_string()))?;
        Ok(DurableTimers::new(self.store()?, &timer))
    }

    fn take_cuts(&self) -> Vec<Cut> {
        std::mem::take(&mut self.lock().cuts)
    }
}

impl StorageBackend for VolatileDisk {
    fn len(&self) -> Result<u64> {
        Ok(self.lock().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let disk = self.lock();
        let range = disk.range(offset, out.len())?;
        out.copy_from_slice(&disk.seen[range]);
        Ok(())
    }

    fn set_len(&self, length: u64) -> Result<()> {
        let length = usize::try_from(length).map_err(Error::other)?;
        let mut disk = self.lock();
        disk.seen.resize(length, 0);
        disk.since.push(Done::SetLength(length));
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        let mut disk = self.lock();
        let resized = disk.since.iter().any(|done| matches!(done, Done::SetLength(_)));
        let [wanted, chance] = disk.wanted;
        let wanted = if resized { wanted } else { usize::from(disk.random.usize(..100) < chance) };
        for _ in 0..wanted {
            let cut = disk.cut();
            disk.cuts.push(cut);
        }
        disk.since.clear();
        disk.synced = disk.seen.clone();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut disk = self.lock();
        let range = disk.range(offset, data.len())?;
        let start = range.start;
        disk.seen[range].copy_from_slice(data);
        disk.since.push(Done::Wrote(start, data.to_vec()));
        Ok(())
    }
}

/// Checks that every acknowledged timer is intact.
fn audit(disk: &VolatileDisk) -> Tested {
    let timers = disk.timers()?;
    resting::list(&timers)?;
    let acknowledged = disk.lock().acknowledged.clone();
    for id in &acknowledged {
        let found = block_on(timers.get(id))?.ok_or_else(|| format!("{id} is lost"))?;
        assert_eq!(found.payload, payload(id));
        assert_eq!(found.is_running(), id.starts_with(LEASED), "{id}");
    }
    // The store still works.
    block_on(timers.insert("after", "", DAY, Options::new().existing(Existing::Keep)))?;
    Ok(())
}

fn payload(id: &str) -> Vec<u8> {
    id.bytes().cycle().take(10_000).collect()
}

/// Inserts and cancels timers so that the file grows, and shrinks again.
fn work(disk: &VolatileDisk, seed: u64) -> Tested {
    let timers = disk.timers()?;
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..2 {
        for number in 0..100 {
            let id = format!("{round} {number}");
            block_on(timers.insert(&id, payload(&id), DAY, Options::new()))?;
            disk.lock().acknowledged.insert(id);
        }
        let mut gone: Vec<String> = disk.lock().acknowledged.iter().cloned().collect();
        random.shuffle(&mut gone);
        for id in &gone[..gone.len() * 7 / 8] {
            disk.lock().acknowledged.remove(id);
            assert_eq!(block_on(timers.cancel(id))?, Cancelled::Removed);
        }
    }
    Ok(())
}

/// Leases some timers, and renews the leases.
fn renew_leases(disk: &VolatileDisk) -> Tested {
    let ids: Vec<String> = (0..20).map(|number| format!("{LEASED} {number}")).collect();
    let timers = disk.timers()?;
    for id in &ids {
        block_on(timers.insert(id, payload(id), Duration::ZERO, Options::new().lease(DAY)))?;
    }
    drop(timers);
    let store = disk.store()?;
    let mut fences = Vec::new();
    for id in &ids {
        fences.push(block_on(lease(&store, id))?.ok_or("it is not due")?);
        disk.lock().acknowledged.insert(id.clone());
    }
    for _ in 0..3 {
        for (id, fence) in ids.iter().zip(&fences) {
            assert!(block_on(renew(&store, id, *fence))?);
        }
    }
    Ok(())
}

#[test]
fn what_was_acknowledged_is_there_after_a_power_cut() -> Tested {
    let (mut cuts, mut lengths) = (0, BTreeSet::new());
    let chosen = std::env::var("TOURBILLON_POWER_SEED");
    let seeds = match &chosen {
        Ok(seed) => vec![seed.parse()?],
        Err(_) if resting::count() > 0 => vec![0],
        Err(_) => vec![0, 1],
    };
    for seed in seeds {
        let empty = Cut { bytes: Vec::new(), acknowledged: BTreeSet::new() };
        let disk = VolatileDisk::new(empty, [0, 0], seed);
        // A new file gets its name when it is complete and on the disk.
        resting::insert(&disk.timers()?)?;
        // Each cut of a large file takes as much memory as the file.
        let [growing, renewed] =
            if resting::count() == 0 { [[8, 5], [8, 12]] } else { [[1, 1]; 2] };
        disk.lock().wanted = growing;
        work(&disk, seed)?;
        disk.lock().wanted = renewed;
        renew_leases(&disk)?;
        let first = disk.take_cuts();
        for (number, cut) in (0..).zip(first) {
            lengths.insert(cut.bytes.len());
            // Another cut while the store is opened, and another while it is opened after that cut.
            let disk = VolatileDisk::new(cut, [1, 30], number);
            audit(&disk).map_err(|error| format!("seed {seed}, cut {number}: {error}"))?;
            for again in disk.take_cuts() {
                let disk = VolatileDisk::new(again, [0, 0], 0);
                audit(&disk)
                    .map_err(|error| format!("seed {seed}, cut {number}, again: {error}"))?;
                cuts += 1;
            }
            cuts += 1;
        }
    }
    if resting::count() > 0 {
        // A large file grows in large steps.
        assert!(cuts > 2, "{cuts} cuts");
        return Ok(());
    }
    let least = if chosen.is_ok() { 100 } else { 200 };
    assert!(cuts > least && lengths.len() > 4, "{cuts} cuts of {lengths:?} bytes");
    Ok(())
}
