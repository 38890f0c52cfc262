//! Durable timers, which survive the process in a store and are delivered at least once.
//!
//! Start with [`DurableTimers`], which has an example for a file. `Redis` has one for several
//! processes. The [`guide`] has a section for each task. The [`limits`] say what you can rely on,
//! the [`sizes`] let you compute the memory, processors and servers of a store, and the [`design`]
//! has the states of a timer, the layouts of the stores, and the reasons.
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
//! **Two tiers.** Millions of timers can rest in the store. A worker loads the keys (not the
//! payloads) of timers that are due within ten seconds into its own wheel, which fires each key at
//! its time. Changes made in the meantime reach that wheel as well. The number of keys in it is
//! bounded.
//!
//! **The store decides, the wheel only says when.** A key that fires is only a reason to ask the
//! store for a lease. The store grants the lease if the timer still exists, is due by the store's
//! own clock, and has no running lease. A key in a wheel may therefore be stale, in two wheels, or
//! early because the clock was set back, without any effect.
//!
//! ```text
//!               insert                lease: attempt + 1          done, no rule, or cancelled
//!   (nothing) ──────────► resting ───────────────────────────► leased ─────────────► (nothing)
//!       ▲                 │  ▲  ▲      the lease has run out:  │ │ │ ▲
//!       └──── cancel ─────┘  │  │      leased again, the       │ │ └─┘
//!                            │  │      attempt has failed      │ │
//!                            │  └── failed, again: after a wait┘ │ failed for the last time or
//!                            │      done, a rule: its next time  │ for good, or lived too long
//!                            └───────────── redrive ──────── dead letter
//! ```
//!
//! **Each arrow is one transaction**, and each lease has a unique number, its fencing token. A
//! worker that finishes a lease names the token. If another worker has taken over the lease, or the
//! timer was replaced, nothing changes and the worker learns that it was too late. Each delivery
//! (an id and a planned time) is therefore acknowledged at most once, however many attempts
//! overlap.
//!
//! **Paused** timers stay in the store, behind all other timers in the index, where no worker loads
//! them. A paused store grants no lease.
//!
//! **At least once.** An attempt is counted before its handler is called. While it runs, the worker
//! renews the lease. If the worker dies, the lease runs out. The end of a lease is a due time like
//! any other, so the timer is loaded and fires again.
//!
//! **Acknowledged changes are durable.** The future of an operation completes when its transaction
//! is on the disk. Concurrent calls share a transaction.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(feature = "file"),
    allow(dead_code, reason = "what the store in a file alone needs, or any store")
)]

mod api;
mod delivery;
#[cfg(feature = "file")]
mod embedded;
mod error;
mod model;
mod panics;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(all(test, feature = "file", feature = "redis"))]
#[path = "../tests/simulator/mod.rs"]
mod simulator;
mod store;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod sync;
#[cfg(feature = "text")]
pub mod text;

pub use api::copy::CopyProgress;
pub use api::dead_letters::{DeadLetter, Redriven};
pub use api::labels::BulkChange;
pub use api::lists::ListPosition;
#[cfg(feature = "log")]
pub use api::log::AttemptLog;
pub use api::timer::{DurableTimer, TimerState};
pub use api::timers::DurableTimers;
pub use api::worker::Worker;
pub use delivery::attempt::Delivery;
#[cfg(feature = "metrics")]
pub use delivery::export::StatsGauges;
pub use delivery::lease::DeliveryLease;
#[cfg(feature = "file")]
pub use embedded::{Embedded, EmbeddedOptions};
pub use error::DurableError;
pub use model::backoff::Backoff;
pub use model::check::{CheckReport, Finding};
pub use model::clock::{StoreClock, SystemClock};
pub use model::durability::{Durability, Loss};
pub use model::event::{Attempt, Event, LeaseLoss, Outcome, Wait};
pub use model::label::{Label, LabelError};
#[cfg(feature = "log")]
pub use model::log::{LogBounds, LoggedAttempt};
pub use model::options::{Existing, Options, When};
pub use model::record::DeadReason;
pub use model::rule::{Misfire, Rule};
pub use model::stats::Stats;
pub use model::verdict::Verdict;
#[cfg(feature = "postgres")]
pub use postgres::{Postgres, PostgresInsert, PostgresOptions};
#[cfg(feature = "redis")]
pub use redis::{Redis, RedisOptions};
#[cfg(any(feature = "postgres", feature = "redis"))]
pub use store::credentials::Credentials;
pub use store::options::StoreOptions;
#[cfg(any(feature = "postgres-tls", feature = "redis-tls"))]
pub use store::tls::Tls;
pub use store::{AnyStore, Cancelled, Inserted};
pub use tourbillon::Refused;

pub mod guide {
    #![cfg_attr(any(not(doctest), feature = "file"), doc = include_str!("../GUIDE.md"))]
    #![cfg_attr(
        not(all(
            feature = "cron",
            feature = "file",
            feature = "log",
            feature = "metrics",
            feature = "postgres-tls",
            feature = "redis-tls",
        )),
        allow(rustdoc::broken_intra_doc_links, reason = "it links to items of these features")
    )]
    #![allow(unused_imports, reason = "the guide links to what is imported")]

    #[cfg(doc)]
    use crate::*;
}

#[cfg_attr(
    not(feature = "file"),
    allow(rustdoc::broken_intra_doc_links, reason = "it links to items of this feature")
)]
#[doc = include_str!("../docs/LIMITS.md")]
pub mod limits {}

#[doc = include_str!("../docs/SIZES.md")]
pub mod sizes {}

#[doc = include_str!("../docs/DESIGN.md")]
pub mod design {}

/// Internals for the tests of this crate. Not part of the public interface.
#[doc(hidden)]
pub mod __internals {
    #[cfg(feature = "file")]
    pub use crate::embedded::{lease, open_database, renew};
}
