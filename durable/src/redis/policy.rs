//! The `maxmemory-policy` of a server, which is read when a store is opened, because it decides
//! whether the server may remove timers.
//!
//! Nothing of a store has a time to live. So a policy `volatile-…` removes none of it, and a full
//! memory is an error of whoever writes, as it is with `noeviction`; a policy `allkeys-…` removes
//! timers that were acknowledged, and says nothing.

#![forbid(unsafe_code)]

use super::super::error::DurableError;
use super::link::Link;

/// Refuses servers that may remove timers. Of a cluster all masters are asked; one that cannot be
/// reached is passed over, as a process must be able to start then.
pub(super) async fn check(link: &Link) -> Result<(), DurableError> {
    for info in link.info("memory").await {
        let info = match info {
            Ok(info) => info,
            Err(DurableError::Unreachable(_)) => continue,
            Err(DurableError::Denied(what)) => {
                let advice = "INFO tells whether the server may remove timers; grant it, or \
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

/// The policy of a server that may remove what has no time to live. One that names none has no
/// such thing.
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
