//! The log of attempts in a stream beside the keys of the store.
//!
//! It has connections of its own, so that long requests and replies delay no timer.

#![forbid(unsafe_code)]

use super::link::{Link, call};
use super::node::Connection;
use super::operations::Operations;
use crate::error::DurableError;
use crate::model::log::{LogBounds, LoggedAttempt};
use crate::store::remote::retry::RetryPolicy;
use redis::cmd;
use std::collections::HashMap;

/// The number of latest attempts that are searched for the attempts of one timer.
const SEARCHED: usize = 10_000;

/// The maximum number of attempts in a reply, because other clients wait for it.
const PAGE: usize = 1000;

/// An entry of a stream, its id and its fields.
type Entry = (String, HashMap<String, Vec<u8>>);

impl Operations {
    /// Returns the connections of the log, which are opened when they are first used.
    async fn log_link(&self) -> Result<Link, DurableError> {
        let mut opened = self.log.lock().await;
        let link = match opened.take() {
            Some(link) => link,
            None => self.link.again().await?,
        };
        Ok(opened.insert(link).clone())
    }

    pub(super) async fn log_add(
        &self,
        attempts: Vec<LoggedAttempt>,
        bounds: LogBounds,
    ) -> Result<(), DurableError> {
        let (key, script) = (self.keys.log(), &self.scripts.log);
        let mut command = call(script, std::slice::from_ref(&key));
        // The server's numbers are signed.
        command.arg(bounds.most.min(i64::MAX.unsigned_abs())).arg(bounds.age);
        command.arg(self.word_of_time());
        command.arg(attempts.iter().map(LoggedAttempt::to_json).collect::<Vec<_>>());
        let link = self.log_link().await?;
        link.call_once(&key, script, &command).await
    }

    pub(super) async fn log_latest(
        &self,
        id: Option<String>,
        limit: usize,
    ) -> Result<Vec<LoggedAttempt>, DurableError> {
        let key = self.keys.log();
        let link = self.log_link().await?;
        let (mut found, mut searched, mut end) = (Vec::new(), 0, "+".to_owned());
        let most = if id.is_some() { SEARCHED } else { limit };
        while found.len() < limit && searched < most {
            let mut command = cmd("XREVRANGE");
            command.arg(&key).arg(&end).arg("-").arg("COUNT").arg(PAGE.min(most - searched));
            let ask = |connection: Connection| connection.command(command.clone());
            let page: Vec<Entry> = link.ask(&key, RetryPolicy::Caller, ask).await?;
            let Some((last, _)) = page.last() else { break };
            end = format!("({last}");
            searched += page.len();
            let attempts = page
                .iter()
                .filter_map(|(_, fields)| LoggedAttempt::of_json(fields.get("attempt")?));
            found.extend(attempts.filter(|attempt| id.as_ref().is_none_or(|id| *id == attempt.id)));
        }
        found.truncate(limit);
        Ok(found)
    }
}
