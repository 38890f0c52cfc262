//! A lock-free concurrent timing wheel for network servers that hold millions of timeouts.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc = include_str!("../README.md")]
#![doc = include_str!("../docs/LIMITS.md")]
// Denied in examples, so that a copied example gives no warning.
#![doc(test(attr(allow(unused), deny(unused_must_use))))]

mod adapters;
mod clock;
mod counter;
mod discard;
mod driver;
mod error;
#[cfg(feature = "future")]
pub mod future;
mod handles;
#[cfg(feature = "io")]
pub mod io;
mod jitter;
#[cfg(feature = "keyed")]
pub mod keyed;
mod panics;
pub mod scheduler;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(feature = "time")]
pub mod time;
mod wheel;

#[cfg(feature = "serde")]
pub use adapters::config::Config;
#[cfg(feature = "metrics")]
pub use adapters::export::MetricsExporter;
#[cfg(feature = "http")]
pub use adapters::http;
#[cfg(feature = "quinn")]
pub use adapters::quinn;
#[cfg(feature = "tokio")]
pub use adapters::tokio;
#[cfg(feature = "tower")]
pub use adapters::tower;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub use clock::BootClock;
#[cfg(feature = "cron")]
pub(crate) use clock::wall_now;
pub use clock::{CachedClock, Clock, ManualClock, MonotonicClock};
#[cfg(all(feature = "cron", feature = "testing"))]
pub(crate) use clock::{FollowGuard, follow};
#[cfg(feature = "rayon")]
pub use driver::GlobalPool;
pub use driver::{Driver, DriverBuilder, Executor, ExecutorJob, Inline, WaitError};
pub use error::{ArmError, BeyondRange, BuildError, InsertError, Refusal, Refused};
pub use handles::{OwnedTimer, Series};
pub use jitter::Jitter;
#[cfg(all(test, feature = "future", not(modelled)))]
pub(crate) use wheel::exhaust;
pub use wheel::{
    Builder, Expired, Lateness, Metrics, Pinned, SweepReport, Sweeper, TimerId, Unfired, Wheel,
    WheelInstant,
};

/// The contents of a wheel at one instant, timer by timer and slot by slot.
///
/// [`Wheel::snapshot`] reads the whole wheel, so it suits a dashboard. [`Wheel::metrics`] costs
/// nothing.
pub mod snapshot {
    pub use crate::wheel::Snapshot;
}

pub mod guide {
    #![cfg_attr(
        any(not(doctest), all(feature = "cron", feature = "io", feature = "keyed")),
        doc = include_str!("../docs/GUIDE.md")
    )]
    #![cfg_attr(
        not(all(
            feature = "cron",
            feature = "http",
            feature = "io",
            feature = "keyed",
            feature = "testing",
            feature = "time",
            feature = "tokio",
        )),
        allow(rustdoc::broken_intra_doc_links, reason = "it links to modules of these features")
    )]
    #![allow(unused_imports, reason = "the guide links to what is imported")]

    #[cfg(all(doc, feature = "future"))]
    use crate::future::*;
    #[cfg(all(doc, feature = "io"))]
    use crate::io::*;
    #[cfg(all(doc, feature = "keyed"))]
    use crate::keyed::*;
    #[cfg(all(doc, feature = "testing"))]
    use crate::testing::*;
    #[cfg(doc)]
    use crate::{self as tourbillon, scheduler::*, *};
}

#[doc = include_str!("../docs/DESIGN.md")]
pub mod design {}

/// For the tests and models of this crate; not part of its interface.
#[doc(hidden)]
pub mod __internals {
    #[cfg(traced)]
    pub use crate::sync::traced;
    pub use crate::wheel::Geometry;
}
