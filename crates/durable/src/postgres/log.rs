//! The log of attempts in a table of the store.
//!
//! It has no more than one connection of the pool at a time, and its requests are limited in time,
//! so that a log that is locked or slow delays no timer.

#![forbid(unsafe_code)]

use super::link::Param;
use super::operations::Operations;
use super::params::params;
use super::rows::storable;
use crate::error::DurableError;
use crate::model::log::{LogBounds, LoggedAttempt};
use std::borrow::Cow;
use tokio_postgres::Row;

impl Operations {
    pub(super) async fn log_add(
        &self,
        attempts: Vec<LoggedAttempt>,
        bounds: LogBounds,
    ) -> Result<(), DurableError> {
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let ids: Vec<Cow<'_, str>> = attempts.iter().map(|attempt| storable(&attempt.id)).collect();
        let jsons: Vec<String> = attempts.iter().map(LoggedAttempt::to_json).collect();
        let ids: Vec<&str> = ids.iter().map(|id| &**id).collect();
        let (most, age, at) = (signed(bounds.most), signed(bounds.age), self.at());
        let params = params![ids, jsons, most, age, at];
        self.log_call("SELECT tb.log_add($1, $2, $3, $4, $5)", &params).await.map(drop)
    }

    pub(super) async fn log_latest(
        &self,
        id: Option<String>,
        limit: usize,
    ) -> Result<Vec<LoggedAttempt>, DurableError> {
        if id.as_ref().is_some_and(|id| id.contains('\0')) {
            return Err(DurableError::Option("an id in PostgreSQL has no character U+0000"));
        }
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.log_call("SELECT tb.log_latest($1, $2)", &params![id, limit]).await?;
        let attempt =
            |row: &Row| LoggedAttempt::of_json(row.try_get::<_, &str>(0).ok()?.as_bytes());
        Ok(rows.iter().filter_map(attempt).collect())
    }

    /// Calls a function of the log. If the table is missing, creates it first.
    async fn log_call(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, DurableError> {
        let _one_connection = self.log.lock().await;
        let sql = self.schema.sql(sql);
        match self.link.aside(&sql, params).await {
            Err(DurableError::Corrupt { .. }) => {
                self.link.aside(&self.schema.sql("SELECT tb.create_log()"), &[]).await?;
                self.link.aside(&sql, params).await
            }
            done => done,
        }
    }
}
