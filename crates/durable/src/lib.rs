//! Durable timers: they survive the process in a store, and are delivered at least once.
//!
//! Start with [`DurableTimers`], which has an example for a file. `Redis` has one for several
//! processes. The [`guide`] describes the layouts, the guarantees and their limits.
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
//! payloads) of those that are due within ten seconds into its own wheel, which fires each key at
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
//! **Paused** timers stay in the store, behind all others in the index, where no worker loads them.
//! A paused store grants no lease.
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

mod attempt;
mod backoff;
mod bounds;
mod check;
mod checking;
mod clock;
mod condition;
mod copy;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod credentials;
mod dead_letters;
mod durability;
#[cfg(feature = "file")]
mod embedded;
mod error;
mod event;
#[cfg(feature = "metrics")]
mod export;
mod feed;
mod json;
mod key;
mod lease;
mod lists;
mod options;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod ownership;
mod panics;
mod pause;
mod permits;
#[cfg(feature = "postgres")]
mod postgres;
mod ready;
mod record;
#[cfg(feature = "redis")]
mod redis;
mod report;
mod rule;
mod stats;
mod store;
mod timer;
mod timers;
#[cfg(any(feature = "postgres-tls", feature = "redis-tls"))]
mod tls;
mod trace;
mod trim;
mod update;
mod verdict;
mod window;
mod worker;

pub use attempt::Delivery;
pub use backoff::Backoff;
pub use check::{CheckReport, Finding};
pub use clock::{StoreClock, SystemClock};
pub use copy::CopyProgress;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub use credentials::Credentials;
pub use dead_letters::{DeadLetter, Redriven};
pub use durability::{Durability, Loss};
#[cfg(feature = "file")]
pub use embedded::{Embedded, EmbeddedOptions};
pub use error::DurableError;
pub use event::{Attempt, Event, LeaseLoss, Outcome, Wait};
#[cfg(feature = "metrics")]
pub use export::StatsGauges;
pub use lease::DeliveryLease;
pub use lists::ListPosition;
pub use options::{Existing, Options, When};
#[cfg(feature = "postgres")]
pub use postgres::{Postgres, PostgresInsert, PostgresOptions};
pub use record::DeadReason;
#[cfg(feature = "redis")]
pub use redis::{Redis, RedisOptions};
pub use rule::{Misfire, Rule};
pub use stats::Stats;
pub use store::{AnyStore, Cancelled, Inserted};
pub use timer::{DurableTimer, TimerState};
pub use timers::DurableTimers;
#[cfg(any(feature = "postgres-tls", feature = "redis-tls"))]
pub use tls::Tls;
pub use tourbillon::Refused;
pub use verdict::Verdict;
pub use worker::Worker;

#[cfg_attr(
    any(not(doctest), all(feature = "cron", feature = "file", feature = "redis")),
    doc = include_str!("../GUIDE.md")
)]
pub mod guide {}

/// Internals for the tests of this crate and for `timerd`. Not part of the public interface.
#[doc(hidden)]
pub mod __internals {
    #[cfg(feature = "file")]
    pub use crate::embedded::{lease, open_database, renew};
    #[cfg(feature = "postgres")]
    pub use crate::postgres::Connector;
    #[cfg(feature = "redis")]
    pub use crate::redis::Sentinels;
    #[cfg(feature = "redis-tls")]
    pub use crate::redis::certificates;
}
