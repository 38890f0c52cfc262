//! A lock-free concurrent timing wheel for network servers that hold millions of timeouts.
#![cfg_attr(
    any(not(doctest), all(feature = "cache", feature = "durable", feature = "keyed")),
    doc = include_str!("../README.md")
)]

mod alarm;
#[cfg(feature = "backon")]
pub mod backon;
mod bell;
mod bits;
mod builder;
#[cfg(feature = "cache")]
pub mod cache;
mod caller;
mod clock;
#[cfg(feature = "serde")]
mod config;
mod core;
mod driver;
#[cfg(feature = "durable")]
pub mod durable;
mod error;
mod executor;
#[cfg(feature = "metrics")]
mod export;
#[cfg(feature = "future")]
pub mod future;
mod hierarchy;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "hyper")]
mod hyper;
mod id;
#[cfg(feature = "keyed")]
mod keyed;
mod lease;
mod metrics;
mod panics;
mod pinned;
mod prefetch;
#[cfg(feature = "quinn")]
pub mod quinn;
mod reclaim;
pub mod scheduler;
mod shard;
mod slab;
mod sweeper;
mod swept;
mod sync;
mod tally;
mod tick;
#[cfg(feature = "tower")]
pub mod tower;
mod trace;
mod upkeep;
mod wheel;

pub use crate::metrics::{Lateness, Metrics};
pub use builder::Builder;
pub use clock::{Clock, LeasedClock, ManualClock, MonotonicClock};
#[cfg(feature = "serde")]
pub use config::Config;
pub use driver::{Driver, DriverBuilder, WaitError};
pub use error::{BeyondRange, BuildError, InsertError, Refusal};
#[cfg(feature = "rayon")]
pub use executor::GlobalPool;
pub use executor::{Executor, Inline, Job};
#[cfg(feature = "metrics")]
pub use export::Exporter;
pub use id::TimerId;
#[cfg(feature = "keyed")]
pub use keyed::{Drain, Drained, KeyedTimer, KeyedTimers};
pub use pinned::Pinned;
pub use sweeper::{Expired, Sweep, Sweeper};
pub use wheel::{Armed, Wheel};

/// For the tests and models of this crate; not part of its interface.
#[doc(hidden)]
pub mod __internals {
    pub use crate::hierarchy::geometry::Geometry;
}
