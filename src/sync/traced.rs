//! Atomics and cells that record each access, for `ci/measure sharing`. Under `cfg(traced)` they
//! replace the types of `std`, which they wrap.
//!
//! A line of memory is in the cache of one processor that may write it, or in the caches of several
//! that may read it. In this model each numbered thread is a processor with a cache of any size. An
//! access that would have to fetch a line from another processor, or to take it away from others,
//! is counted, with its place in the sources. The thread that touches a line first counts as its
//! last writer. Threads without a number and fields that are not atomic are not recorded.

#![forbid(unsafe_code)]
#![allow(dead_code, reason = "each atomic has all methods")]

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::panic::Location;
use std::sync::atomic::{self, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// The length of a line, in bytes.
const LINE: usize = 64;

/// The effect of an access on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads it.
    Read,
    /// Writes it.
    Write,
    /// Reads and writes it at once.
    Exchange,
}

/// The counts of accesses.
#[derive(Clone, Debug, Default)]
pub struct AccessCounts {
    /// Exchanges, and fences between a store and a load, which are the locked instructions of x86.
    pub locked: u64,
    /// Lines written that another thread wrote last.
    pub taken: u64,
    /// Lines written that other threads have read since the same thread wrote them.
    pub recalled: u64,
    /// Lines read that another thread has written since.
    pub fetched: u64,
    /// The sum of the three counts for each place of an access.
    pub places: BTreeMap<String, u64>,
    /// The sum of the three counts for each line.
    lines: HashMap<usize, u64>,
}

impl AccessCounts {
    /// Returns the number of lines that moved from one thread to another.
    #[must_use]
    pub fn transfers(&self) -> u64 {
        self.taken + self.recalled + self.fetched
    }

    /// Returns the number of moves of the line that moved most often.
    #[must_use]
    pub fn hottest(&self) -> u64 {
        self.lines.values().copied().max().unwrap_or(0)
    }
}

/// The owners of a line.
#[derive(Debug)]
struct Line {
    written_by: u32,
    /// The bits of the threads that have the line as it was last written.
    seen_by: u128,
}

#[derive(Debug, Default)]
struct Memory {
    lines: HashMap<usize, Line>,
    counted: AccessCounts,
}

static MEMORY: LazyLock<Mutex<Memory>> = LazyLock::new(Mutex::default);

fn memory() -> MutexGuard<'static, Memory> {
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static NUMBER: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Makes the calling thread the processor with this number, which must be below 128.
pub fn set_processor(number: u32) {
    NUMBER.set(Some(number));
}

/// Forgets the owners of all lines, as if all memory were new.
pub fn forget_lines() {
    *memory() = Memory::default();
}

/// Resets the counts. Returns the previous ones.
#[must_use]
pub fn take_counts() -> AccessCounts {
    std::mem::take(&mut memory().counted)
}

/// Records an access.
#[track_caller]
pub fn record<T>(what: &T, access: Access) {
    let Ok(Some(number)) = NUMBER.try_with(Cell::get) else { return };
    let mut memory = memory();
    memory.counted.locked += u64::from(access == Access::Exchange);
    let start = std::ptr::from_ref(what).addr();
    let (first, last) = (start / LINE, (start + size_of::<T>().max(1) - 1) / LINE);
    for line in first..=last {
        memory.access(number, line, access, Location::caller());
    }
}

impl Memory {
    fn access(&mut self, number: u32, line: usize, access: Access, place: &Location<'_>) {
        let (own, counted) = (1 << number, &mut self.counted);
        // The first touch of a line costs no thread anything.
        let state = self.lines.entry(line).or_insert(Line { written_by: number, seen_by: own });
        let moved = if access == Access::Read {
            let fetched = state.seen_by & own == 0;
            state.seen_by |= own;
            fetched.then_some(&mut counted.fetched)
        } else if state.written_by != number {
            Some(&mut counted.taken)
        } else {
            (state.seen_by != own).then_some(&mut counted.recalled)
        };
        if access != Access::Read {
            *state = Line { written_by: number, seen_by: own };
        }
        if let Some(count) = moved {
            *count += 1;
            *counted.places.entry(format!("{}:{}", place.file(), place.line())).or_default() += 1;
            *counted.lines.entry(line).or_default() += 1;
        }
    }
}

/// The fence of `std`, recorded.
pub(crate) fn fence(order: Ordering) {
    if NUMBER.get().is_some() && order == Ordering::SeqCst {
        memory().counted.locked += 1;
    }
    atomic::fence(order);
}

/// Methods of an atomic that read and write at once.
macro_rules! exchanges {
    ($($method:ident($($given:ident: $of:ty),*) -> $result:ty;)*) => {$(
        #[track_caller]
        pub(crate) fn $method(&self, $($given: $of),*) -> $result {
            record(self, Access::Exchange);
            self.0.$method($($given),*)
        }
    )*};
}

/// The methods that all atomics have.
macro_rules! accesses {
    ($value:ty) => {
        #[track_caller]
        pub(crate) fn load(&self, order: Ordering) -> $value {
            record(self, Access::Read);
            self.0.load(order)
        }

        #[track_caller]
        pub(crate) fn store(&self, value: $value, order: Ordering) {
            record(self, Access::Write);
            self.0.store(value, order);
        }

        exchanges! {
            swap(value: $value, order: Ordering) -> $value;
            compare_exchange(
                seen: $value, next: $value, done: Ordering, failed: Ordering
            ) -> Result<$value, $value>;
        }
    };
}

macro_rules! atomics {
    ($($name:ident: $value:ty,)*) => {$(
        /// The atomic of `std`, with its accesses recorded.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub(crate) struct $name(atomic::$name);

        impl $name {
            pub(crate) const fn new(value: $value) -> Self {
                Self(atomic::$name::new(value))
            }

            accesses!($value);
        }
    )*};
}

atomics! {
    AtomicBool: bool,
    AtomicU32: u32,
    AtomicU64: u64,
    AtomicUsize: usize,
}

macro_rules! numbers {
    ($($name:ident: $value:ty,)*) => {$(
        impl $name {
            exchanges! {
                fetch_add(more: $value, order: Ordering) -> $value;
                fetch_sub(less: $value, order: Ordering) -> $value;
                fetch_and(bits: $value, order: Ordering) -> $value;
                fetch_or(bits: $value, order: Ordering) -> $value;
                fetch_max(other: $value, order: Ordering) -> $value;
                fetch_min(other: $value, order: Ordering) -> $value;
                fetch_update(
                    done: Ordering, read: Ordering, next: impl FnMut($value) -> Option<$value>
                ) -> Result<$value, $value>;
            }
        }
    )*};
}

numbers! {
    AtomicU32: u32,
    AtomicU64: u64,
    AtomicUsize: usize,
}

/// The atomic of `std`, with its accesses recorded.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct AtomicPtr<T>(atomic::AtomicPtr<T>);

impl<T> AtomicPtr<T> {
    pub(crate) const fn new(value: *mut T) -> Self {
        Self(atomic::AtomicPtr::new(value))
    }

    accesses!(*mut T);
}
