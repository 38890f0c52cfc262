//! Shared parts of the tests.

#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod bench;
#[cfg(feature = "redis-tls")]
pub(crate) mod certificates;
pub(crate) mod events;
pub(crate) mod process;
#[cfg(feature = "redis")]
pub(crate) mod proxy;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "redis")]
pub(crate) mod sentinels;
#[cfg(feature = "redis")]
pub(crate) mod servers;
