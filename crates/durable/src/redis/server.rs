//! The version and the configuration of the servers, which decide whether they can have a store,
//! and how durable it is.
//!
//! **Eviction.** No key of a store has a time to live. A `maxmemory-policy` of `volatile-…`
//! therefore evicts none of them, and a full memory is an error for writers, as with `noeviction`.
//! A policy `allkeys-…` evicts acknowledged timers without notice, and is rejected.
//!
//! **Version.** The scripts need Redis 7.0. Servers that are compatible with it report the version
//! of Redis whose commands they have.

#![forbid(unsafe_code)]

use super::link::{Link, understood};
use super::operations::Operations;
use crate::error::DurableError;
use crate::model::durability::{Durability, Loss};
use redis::cmd;
use std::collections::HashMap;

/// The first version of Redis that can have a store.
const MIN_MAJOR_VERSION: u32 = 7;

/// Rejects servers that are too old or, unless `may_evict` is set, that may evict timers. In a
/// cluster all masters are asked. A master that cannot be reached is skipped, because a process
/// must be able to start then.
pub(super) async fn check(link: &Link, may_evict: bool) -> Result<(), DurableError> {
    for (server, info) in infos(link).await {
        let info = match info {
            Ok(info) => info,
            Err(DurableError::Unreachable(_)) => continue,
            Err(DurableError::Denied(_)) if may_evict => continue,
            Err(DurableError::Denied(what)) => {
                let advice = "grant INFO, which tells if the server may evict timers, or \
                              choose `RedisOptions::allow_eviction`";
                return Err(DurableError::Denied(format!("{what} ({advice})")));
            }
            Err(error) => return Err(error),
        };
        if major(&info).is_some_and(|major| major < MIN_MAJOR_VERSION) {
            return Err(DurableError::Version {
                server,
                found: version(&info).unwrap_or_default(),
            });
        }
        if !may_evict && let Some(policy) = evicting(&info) {
            return Err(DurableError::Evicts { server, policy: policy.to_owned() });
        }
    }
    Ok(())
}

impl Operations {
    /// Returns the lowest durability of the store's masters, in each respect.
    pub(super) async fn durability(&self) -> Result<Durability, DurableError> {
        let mut config = cmd("CONFIG");
        let link = &self.link;
        config.arg("GET").arg("appendfsync").arg("save");
        let (infos, configs) =
            futures_util::future::join(infos(link), link.ask_masters(&config)).await;
        let mut worst: Option<Durability> = None;
        for ((_, info), (_, config)) in infos.into_iter().zip(configs) {
            // A server that does not tell its configuration is not an error.
            let config = config.and_then(|said| understood(said, "CONFIG")).unwrap_or_default();
            let here = of(&info?, &config);
            worst = Some(match worst {
                None => here,
                Some(before) => Durability {
                    killed: before.killed.max(here.killed),
                    power_failure: before.power_failure.max(here.power_failure),
                    replicas: before.replicas.min(here.replicas),
                    version: before.version.or(here.version),
                },
            });
        }
        worst.ok_or_else(|| DurableError::Unreachable("no master is known".to_owned()))
    }
}

async fn infos(link: &Link) -> Vec<(String, Result<String, DurableError>)> {
    let said = link.ask_masters(&cmd("INFO")).await;
    let text = |(server, said): (String, Result<_, _>)| {
        (server, said.and_then(|said| understood(said, "INFO")))
    };
    said.into_iter().map(text).collect()
}

fn of(info: &str, config: &HashMap<String, String>) -> Durability {
    let setting = |name: &str| config.get(name).map(String::as_str);
    let (killed, power_failure) = match (value(info, "aof_enabled"), setting("appendfsync")) {
        (Some("1"), Some("always")) => (Loss::Nothing, Loss::Nothing),
        (Some("1"), Some("everysec")) => (Loss::Nothing, Loss::LastSeconds),
        (Some("1"), Some("no")) => (Loss::Nothing, Loss::Unflushed),
        // The system has the file.
        (Some("1"), _) => (Loss::Nothing, Loss::Unknown),
        (Some(_), _) => match setting("save") {
            Some("") => (Loss::Everything, Loss::Everything),
            Some(_) => (Loss::SinceSnapshot, Loss::SinceSnapshot),
            None => (Loss::Unknown, Loss::Unknown),
        },
        (None, _) => (Loss::Unknown, Loss::Unknown),
    };
    let replicas = value(info, "connected_slaves").and_then(|count| count.parse().ok());
    Durability { killed, power_failure, replicas: replicas.unwrap_or(0), version: version(info) }
}

/// Returns a value of `INFO`.
fn value<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))
}

/// Returns the name and version of the server.
fn version(info: &str) -> Option<String> {
    let valkey = value(info, "valkey_version").map(|version| format!("Valkey {version}"));
    valkey.or_else(|| Some(format!("Redis {}", value(info, "redis_version")?)))
}

fn major(info: &str) -> Option<u32> {
    value(info, "redis_version")?.split('.').next()?.parse().ok()
}

/// Returns the policy of a server if it may evict keys without a time to live. A server without a
/// policy evicts nothing.
fn evicting(info: &str) -> Option<&str> {
    value(info, "maxmemory_policy").filter(|policy| policy.starts_with("allkeys"))
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

    #[test]
    fn the_version_is_that_of_the_server() {
        let valkey = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\n";
        assert_eq!((version(valkey), major(valkey)), (Some("Valkey 8.0.1".to_owned()), Some(7)));
        let redis = "redis_version:6.2.14\r\n";
        assert_eq!((version(redis), major(redis)), (Some("Redis 6.2.14".to_owned()), Some(6)));
        assert_eq!(version("other:1"), None);
    }
}
