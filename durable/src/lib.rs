//! Timers that survive the process: in a store, and delivered at least once.
//!
//! [`DurableTimers`] is where to begin; it has an example for a file, `Redis` has one for several
//! processes. The [`guide`] has the layouts, the promises and where they end.
//!
//! # How it works
//!
//! ```text
//!   insert ────►  the store: slices of due times            a worker
//!                 ┌───────┬───────┬───────┬──────┐           ┌─────────────────────────┐
//!                 │ near  │       │  far  │  …   │ ──load──► │ a wheel of near keys    │
//!                 └───────┴───────┴───────┴──────┘           │   due ▼                 │
//!                    ▲  lease, acknowledge, retry            │ lease → handler → finish│
//!                    └───────────────────────────────────────┤                         │
//!                                                            └─────────────────────────┘
//! ```
//!
//! **Two tiers.** Millions of timers may rest in the store. A worker loads the keys (not the
//! payloads) of those that are due within ten seconds into a wheel of its own, which
//! fires each at its time. Changes in the meantime reach that wheel too, and the number of its
//! keys is bounded.
//!
//! **The store decides, the wheel only says when.** A key that fires is a reason to ask the store
//! for a lease, and no more. The store grants it if the timer is still there, due by the store's
//! own clock, and not leased to anybody whose lease goes on. So a key in a wheel may be stale, or
//! too early because the clock was set back, or in two wheels, and nothing comes of it.
//!
//! ```text
//!               insert                lease: attempt + 1               Ok, no rule
//!   (nothing) ──────────► resting ───────────────────────────► leased ─────────────► (nothing)
//!       ▲                 │  ▲  ▲      the lease has run out:  │ │ │ ▲
//!       └──── cancel ─────┘  │  │      leased anew, the        │ │ └─┘
//!                            │  │      attempt has failed      │ │
//!                            │  └── failed: due after a wait ──┘ │ failed for the last time,
//!                            │      Ok, a rule: its next time    │ or lived too long
//!                            └───────────── redrive ──────── dead letter
//! ```
//!
//! **Each arrow is one transaction**, and each lease has a number that no other ever has, its
//! fence. Who finishes a lease names the fence: if the lease was taken over in the meantime, or the
//! timer replaced, nothing is changed and the answer is that it came too late. So each delivery (an
//! id and a planned time) is acknowledged once at most, however many attempts overlap.
//!
//! **At least once**: an attempt that has begun is counted before its handler is called. If its
//! worker dies, the lease runs out, which is a due time like any other: it lies in the slices, is
//! loaded, and fires.
//!
//! **What is acknowledged is durable.** An operation's future is ready when its transaction is
//! on the disk; the calls of a moment share one.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(feature = "file"),
    allow(dead_code, reason = "what the store in a file alone needs, or any store")
)]

mod attempt;
mod backoff;
mod check;
mod checking;
mod clock;
#[cfg(feature = "file")]
mod embedded;
mod error;
mod feed;
mod json;
mod key;
mod options;
mod panics;
mod permits;
mod ready;
mod record;
#[cfg(feature = "redis")]
mod redis;
mod store;
mod timers;
mod window;
mod worker;

pub use attempt::{Delivery, Event, Outcome};
pub use backoff::Backoff;
pub use check::{CheckReport, Finding};
pub use clock::{StoreClock, SystemClock};
#[cfg(feature = "file")]
pub use embedded::{Embedded, EmbeddedOptions};
pub use error::DurableError;
pub use options::{Existing, Options, When};
pub use record::DeadReason;
#[cfg(feature = "redis")]
pub use redis::{Redis, RedisOptions};
pub use store::{AnyStore, Inserted};
pub use timers::{DeadLetter, DurableTimer, DurableTimers};
pub use tourbillon::Refused;
pub use worker::Worker;

#[cfg_attr(
    any(not(doctest), all(feature = "cron", feature = "file", feature = "redis")),
    doc = include_str!("../GUIDE.md")
)]
pub mod guide {}

/// For the tests of this crate; not part of its interface.
#[doc(hidden)]
pub mod __internals {
    #[cfg(feature = "file")]
    pub use crate::embedded::{lease, open_database};
}
