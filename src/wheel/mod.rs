//! A hashed hierarchical timing wheel (Varghese and Lauck, 1987) whose timers any thread inserts,
//! cancels and resets in O(1), without a lock.
//!
//! # Design
//!
//! A timer lives in one entry of a slab, and one packed word of that entry, its state, decides
//! everything about the timer, so each race is decided by one compare-and-swap. The slots of the
//! wheel hold only references to entries, which may be stale, so a cancel or a reset to later never
//! touches the wheel. `docs/GLOSSARY.md` has the terms, and `docs/DESIGN.md` the reasons and the
//! rejected alternatives.
//!
//! # Words
//!
//! | word | bits | meaning | file |
//! |---|---|---|---|
//! | [`TimerId`] | shard 8, index 30, zero 1, generation 25 | a timer; its generation is odd | [`id`] |
//! | entry state | low bits of the deadline 38, flag 1, generation odd 25 | armed | [`slab::state`] |
//! | | index of the next vacant entry 38, flag 1, generation even 25 | vacant | |
//! | | flag 0 | no thread is refiling | |
//! | | flag 1 | one thread, the owner of the flag, is filing a reference that is visited earlier | |
//! | | all zero | pristine: no timer has lived in the memory since it came from the system | |
//! | `next_visit` | a tick after the sweep | a reference will be visited at that tick (I2) | [`slab::next_visit`] |
//! | | a tick that the sweep has reached | nothing | |
//! | slot head | block 30, count 4 | first block, and how many of its positions are reserved | [`hierarchy::slot`] |
//! | | no block, full count | the slot is empty | |
//! | vacant head | generation 25, index 30 | the top of the stack of vacant entries | [`slab::vacant`] |
//! | | the last index | the stack is empty | |
//! | `next_scan` | a tick | the sweeper scans the shard at that tick by itself | [`progress::next_scan`] |
//! | reports | 2 for each shard | a reference was filed that the sweeper does not expect | [`progress::next_scan`] |
//! | page remainder | count 30, first index 30 | entries of a page that were never taken | [`slab::page_remainder`] |
//!
//! # Life of an insert
//!
//! The labels are the steps of [`ops::protocol`] and [`progress`], which other files cite.
//!
//! 1. [`Wheel::insert`] passes the delay to [`shared`], which turns it into a tick by the thread's
//!    cached clock reading. [`Pinned::insert`] uses the reading that its batch shares. If the
//!    reading is not valid, or A1 finds no entry in the thread's magazine, `insert_slow` gets a
//!    valid reading, does A1 in the home shard or else in the next shard that has room, and
//!    continues with A2.
//! 2. **A1** [`ops::insert`] takes a free entry from the magazine and writes the value into it.
//! 3. **A2** If an old reference to that entry will be visited in time, one compare-and-swap arms
//!    the timer. A server that reuses entries mostly takes this path, which continues with A5.
//! 4. **A3, F1** Otherwise `arm_and_file` arms it by a store and files a reference in the
//!    [`hierarchy`]. [`hierarchy::geometry`] computes the slot, [`hierarchy::slot`] reserves a
//!    position in the slot's first block, or makes a new block if that is full, and
//!    [`hierarchy::block`] writes the reference there. [`hierarchy::rows`] then marks the slot as
//!    occupied.
//! 5. **F2, F3** After a full fence it checks if the sweeper scans the shard at the slot's tick or
//!    before. If so, A5 is next.
//! 6. **F4 to F7** If not, it reports the shard and re-checks two things. If the sweep has reached
//!    the slot's tick meanwhile, it files again. If the sweeper would rest beyond the slot's tick,
//!    it wakes the sweeper.
//! 7. **A5** If the wheel was closed meanwhile, it takes the timer back and returns the value.
//!
//! An insert that races with the sweep is therefore never lost: either the sweep finds the
//! reference, or the insert finds the sweep.
//!
//! A cancel or a reset to a later deadline is one compare-and-swap on the entry's state, without a
//! new reference.
//!
//! # Life of a sweep
//!
//! 1. [`Sweeper::sweep`] fills a batch of due timers, stage by stage ([`sweep`]).
//! 2. **S1 to S4** Its agenda publishes the next tick at which a slot expires, and takes the slots
//!    of the shards that have to be scanned.
//! 3. It reads the references of those slots block by block, and prefetches their entries.
//! 4. **V1 to V5** [`ops::visit`] decides about each reference. If the timer is due, one
//!    compare-and-swap ends it, and the sweeper owns the value.
//! 5. It hands the batch over, outside of any guard, and continues until its end is reached.
//!
//! # Invariants
//!
//! Other files cite these by number.
//!
//! * **I1, filed.** The entry of each armed timer has a reference in a slot that is taken no later
//!   than the deadline, in the overdue slot, or among the sweeper's pending references. The
//!   exception is a timer whose insert or reset has not returned.
//! * **I2, next visit.** While the refiling flag is clear and `next_visit` lies after the sweep, a
//!   reference to the entry is in the slot that is taken at that tick, or among the sweeper's
//!   pending references. The exception is an entry whose insert has not returned ([`ops::insert`]
//!   shows why that is harmless).
//! * **I3, value.** The value is present exactly while the generation is odd. The claimer alone
//!   touches it before the timer is armed, no thread touches it while the timer is armed, and the
//!   thread that ended the timer alone touches it until it releases the entry
//!   ([`slab::entry`]).
//! * **I4, block.** A block belongs to its slot until the chain is taken, and then to the taker
//!   until all references reserved in it have been read. A thread touches a block only between its
//!   reservation and its store ([`hierarchy::slot`]).
//! * **I5, base.** The base generation of a page is written, and its entries are zeroed, before the
//!   page is removed. It is read, and states are written, only after the page has been installed,
//!   by threads that alone hold the entries. No generation is given out twice
//!   ([`slab::page_table`]).
//!
//! A `next_visit` may always be cleared, because it then promises less. A reference whose entry is
//! vacant is *stale* and is discarded when it is visited, unless a resetter may still rely on it.
//! Two references to one entry are harmless, since the first that is visited after the deadline
//! ends the timer.
//!
//! # Layers
//!
//! Each layer uses those before it.
//!
//! * [`bits`], [`id`], [`wheel_instant`], [`tick`] and [`timeline`] define words and times.
//!   [`thread_id`], [`cached_clock`] and [`memory`] cover threads, the clock and memory.
//! * [`slab`] holds the entries and decides which thread owns a value.
//! * [`thread_state`] is kept for each thread: its cached clock reading, its [`counters`] and its
//!   magazines of vacant entries.
//! * [`hierarchy`] holds the levels of slots and the references in them.
//! * [`progress`] is what the sweeper and the callers publish to each other.
//! * [`shard`] is a slab with a hierarchy. [`engine`] has all shards, the bound on the timers and
//!   the closed flag.
//! * [`ops`] has one file for each operation, and [`ops::protocol`] their steps and races.
//! * [`shared`] has the engine and the clock, and turns deadlines into ticks.
//!   [`wheel`](mod@wheel), [`pinned`] and [`snapshot`] are what any thread calls, and [`internal`]
//!   what the layers of this crate call.
//!   [`sweep`] is the exclusive half, which expires timers, rests, and keeps memory in bounds.
//!
//! To read the wheel in one evening, start with [`ops::insert`], then read [`slab::state`],
//! [`hierarchy::slot`], [`ops::protocol`], [`progress::swept`], [`progress::wakeup`],
//! [`progress::next_scan`] and [`sweep`].

mod bits;
mod builder;
mod cached_clock;
mod counters;
mod engine;
mod hierarchy;
mod id;
mod internal;
mod memory;
mod metrics;
mod ops;
mod pinned;
#[cfg(modelled)]
pub mod probe;
mod progress;
mod shard;
mod shared;
mod slab;
mod snapshot;
mod sweep;
pub(crate) mod thread_id;
mod thread_state;
mod tick;
mod timeline;
#[allow(clippy::module_inception, reason = "it holds the type Wheel")]
mod wheel;
mod wheel_instant;

pub use builder::Builder;
pub(crate) use counters::LATENESS_BUCKETS;
pub use hierarchy::geometry::Geometry;
pub use id::TimerId;
pub(crate) use internal::ClosedInChildren;
#[cfg(all(test, feature = "future", not(modelled)))]
pub(crate) use memory::exhaust;
pub use metrics::{Lateness, Metrics};
pub use pinned::Pinned;
pub use snapshot::Snapshot;
pub use sweep::{Expired, SweepReport, Sweeper};
pub use wheel::{Unfired, Wheel};
pub use wheel_instant::WheelInstant;

#[cfg(all(test, not(modelled)))]
mod tests;
