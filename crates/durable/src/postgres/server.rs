//! The version and the configuration of the server, which decide whether it can have a store, and
//! how durable the store is.

#![forbid(unsafe_code)]

use super::link::Link;
use super::operations::Operations;
use super::rows::Reader;
use crate::error::DurableError;
use crate::model::durability::{Durability, Loss};
use crate::store::remote::retry::RetryPolicy;

/// The first version that can have a store.
const MIN_VERSION: i32 = 130_000;

/// Rejects a server that is too old, or a database with another encoding than UTF-8.
pub(super) async fn check(link: &Link) -> Result<(), DurableError> {
    let sql = "SELECT current_setting('server_version_num')::integer,
        current_setting('server_version'), current_setting('server_encoding')";
    let rows = link.query(RetryPolicy::Caller, sql, &[]).await?;
    let mut reader = Reader::first(&rows)?;
    let (number, version): (i32, String) = (reader.next()?, reader.next()?);
    let encoding: String = reader.next()?;
    let server = link.address().to_owned();
    if number < MIN_VERSION {
        return Err(DurableError::Version { server, found: format!("PostgreSQL {version}") });
    }
    if encoding != "UTF8" {
        let what = format!("the encoding of the database is {encoding} (UTF8 is needed)");
        return Err(DurableError::Address(what).at(&server));
    }
    Ok(())
}

impl Operations {
    /// Returns the durability of the server as it is configured.
    pub(super) async fn durability(&self) -> Result<Durability, DurableError> {
        let sql = "SELECT current_setting('fsync'), current_setting('full_page_writes'),
            current_setting('synchronous_commit'), current_setting('server_version'),
            (SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming')";
        let rows = self.link.query(RetryPolicy::Caller, sql, &[]).await?;
        let mut reader = Reader::first(&rows)?;
        let [fsync, pages, commit] = [reader.next()?, reader.next()?, reader.next()?];
        let (killed, power_failure) = losses(fsync, pages, commit);
        let version = Some(format!("PostgreSQL {}", reader.next::<&str>()?));
        Ok(Durability { killed, power_failure, replicas: reader.number()?, version })
    }
}

/// Returns the losses if the server is killed and if its machine fails.
fn losses(fsync: &str, pages: &str, commit: &str) -> (Loss, Loss) {
    match (fsync, pages, commit) {
        // Pages that were half written cannot be repaired.
        ("off", ..) | (_, "off", _) if commit == "off" => (Loss::LastSeconds, Loss::Everything),
        ("off", ..) | (_, "off", _) => (Loss::Nothing, Loss::Everything),
        (_, _, "off") => (Loss::LastSeconds, Loss::LastSeconds),
        _ => (Loss::Nothing, Loss::Nothing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_tell_what_is_lost() {
        assert_eq!(losses("on", "on", "on"), (Loss::Nothing, Loss::Nothing));
        assert_eq!(losses("on", "on", "remote_apply"), (Loss::Nothing, Loss::Nothing));
        assert_eq!(losses("on", "on", "off"), (Loss::LastSeconds, Loss::LastSeconds));
        assert_eq!(losses("off", "on", "on"), (Loss::Nothing, Loss::Everything));
        assert_eq!(losses("on", "off", "on"), (Loss::Nothing, Loss::Everything));
        assert_eq!(losses("off", "on", "off"), (Loss::LastSeconds, Loss::Everything));
    }
}
