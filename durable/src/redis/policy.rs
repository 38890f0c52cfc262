//! The `maxmemory-policy` of a server, which is read when a store is opened, because it decides if
//! the server may evict timers.
//!
//! No key of a store has a time to live. A policy `volatile-…` therefore evicts none of them, and a
//! full memory is an error for writers, as with `noeviction`. A policy `allkeys-…` evicts
//! acknowledged timers without notice.

#![forbid(unsafe_code)]

use super::super::error::DurableError;
use super::link::Link;

/// Rejects servers that may evict timers. In a cluster all masters are asked. A master that cannot
/// be reached is skipped, because a process must be able to start then.
pub(super) async fn check(link: &Link) -> Result<(), DurableError> {
    for info in link.info("memory").await {
        let info = match info {
            Ok(info) => info,
            Err(DurableError::Unreachable(_)) => continue,
            Err(DurableError::Denied(what)) => {
                let advice = "grant INFO, which tells if the server may evict timers, or \
                              choose `RedisOptions::allow_eviction`";
                return Err(DurableError::Denied(format!("{what} ({advice})")));
            }
            Err(error) => return Err(error),
        };
        if let Some(policy) = evicting(&info) {
            return Err(DurableError::Evicts { policy: policy.to_owned() });
        }
    }
    Ok(())
}

/// Returns the policy of a server if it may evict keys without a time to live. A server without a
/// policy evicts nothing.
fn evicting(info: &str) -> Option<&str> {
    let policy = info.lines().find_map(|line| line.trim().strip_prefix("maxmemory_policy:"))?;
    policy.starts_with("allkeys").then_some(policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_a_time_to_live_may_be_removed() {
        let info = |policy: &str| format!("# Memory\r\nmaxmemory_policy:{policy}\r\nother:1\r\n");
        for policy in ["noeviction", "volatile-lru", "volatile-ttl"] {
            assert_eq!(evicting(&info(policy)), None);
        }
        for policy in ["allkeys-lru", "allkeys-random"] {
            assert_eq!(evicting(&info(policy)), Some(policy));
        }
        assert_eq!(evicting("used_memory:1\r\n"), None);
    }
}
