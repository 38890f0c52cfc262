//! Shared parts of the tests.

#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod bench;
#[cfg(any(feature = "postgres-tls", feature = "redis-tls"))]
pub(crate) mod certificates;
pub(crate) mod events;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) mod host;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "postgres")]
pub(crate) mod postgres_server;
pub(crate) mod process;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) mod proxy;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "redis")]
pub(crate) mod sentinels;
pub(crate) mod servers;
