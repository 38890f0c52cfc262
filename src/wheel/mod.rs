//! The heart: a hashed hierarchical timing wheel (Varghese and Lauck, 1987) that any thread may
//! insert into, cancel in and reset in, in O(1), without a lock.
//!
//! **The one idea.** A timer lives in one entry of a slab, and one packed word of that entry
//! decides everything about it: whether it is armed, which timer it is, when it is due. The wheel's
//! slots hold no timers. They hold *references*, the indices of entries, and a reference is only a
//! hint that its entry may be due when the slot expires. So a cancel or a reset to later never
//! touches the wheel: it is one exchange on the entry's word, and the reference left behind is
//! dropped, or filed again, when the sweep visits it.
//!
//! **Four words** carry the protocol. One file each knows its bits:
//!
//! | word | says | file |
//! |---|---|---|
//! | [`TimerId`] | which timer, of which entry and shard | [`id`] |
//! | entry state | generation, flag, deadline: what may happen to the timer | [`slab::state`] |
//! | slot head | where references lie that are looked at in one stretch of ticks | [`hierarchy::slot`] |
//! | vacant head | which entry a new timer gets | [`slab::vacant`] |
//!
//! **Layers**, each on those before it:
//!
//! * [`bits`], [`id`], [`wheel_instant`], [`tick`]: words and times, pure; [`thread_id`],
//!   [`cached_clock`],
//!   [`memory`], [`prefetch`]: who calls, what time it is, when memory may go.
//! * [`slab`]: entries, and who owns a value.
//! * [`thread_state`]: what is kept for one caller: its reading of the clock, its counts
//!   ([`counters`]), the vacant entries in its magazines.
//! * [`hierarchy`]: levels of slots, and the references in them.
//! * [`progress`]: what the sweeper shows the callers.
//! * [`shard`]: a slab and a hierarchy; the operations, and their races ([`shard`] has the proof).
//! * [`engine`]: all shards and callers, and the closing of the wheel.
//! * Two halves on top. [`wheel`](mod@wheel), [`pinned`], [`owned`] and [`snapshot`]: what any
//!   thread calls.
//!   [`sweep`]: the one exclusive owner, who hands over what is due, rests, and keeps memory in
//!   bounds.
//!
//! **To read it in an evening**: [`slab::state`], [`hierarchy::slot`], [`shard`],
//! [`progress::swept`] and [`progress::wakeup`], then [`sweep`]. `docs/DESIGN.md` says why it is
//! so, and what was rejected.

mod bits;
mod builder;
mod cached_clock;
mod children;
mod counters;
mod deadline;
mod engine;
mod hierarchy;
mod id;
mod memory;
mod metrics;
mod ops;
#[cfg(any(feature = "future", modelled))]
mod overdraw;
mod owned;
mod pinned;
mod prefetch;
#[cfg(modelled)]
pub mod probe;
mod progress;
mod series;
mod shard;
mod slab;
mod snapshot;
mod sweep;
pub(crate) mod thread_id;
mod thread_state;
mod tick;
mod unfired;
#[allow(clippy::module_inception, reason = "it holds the type Wheel")]
mod wheel;
mod wheel_instant;

pub use builder::Builder;
pub(crate) use children::ClosedInChildren;
pub(crate) use counters::LATENESS_BUCKETS;
pub use hierarchy::geometry::Geometry;
pub use id::TimerId;
pub use metrics::{Lateness, Metrics};
pub use owned::OwnedTimer;
pub use pinned::Pinned;
pub use series::Series;
pub use snapshot::{Level, Slot, Snapshot};
pub use sweep::{Expired, SweepReport, Sweeper};
pub use unfired::Unfired;
pub use wheel::Wheel;
pub use wheel_instant::WheelInstant;
