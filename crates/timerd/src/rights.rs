//! [`May`], the proof that a request may change something, and [`Store`], which asks for it.
//!
//! ```text
//!   token ──► holder, with a role ──► May<Schedule>, May<Operate> ──► the timers, to change them
//!                                 └──► the timers, to read them
//! ```
//!
//! A handler reaches the operations that change timers only with a proof, and only the role of a
//! token gives one.

#![forbid(unsafe_code)]

use super::config::Role;
use super::problem::Problem;
use axum::extract::FromRequestParts;
use http::StatusCode;
use http::request::Parts;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::SystemTime;
use tourbillon_durable::{
    DeadLetter, DurableError, DurableTimer, DurableTimers, Label, ListPosition, Stats, TimerState,
};

/// The holder of a valid token, which requests carry in their extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// The name of the token.
    pub(crate) name: Arc<str>,
    pub(crate) role: Role,
}

/// The least role that may do something.
pub(crate) trait Right {
    const ROLE: Role;
}

/// The right to insert, update, move and cancel timers.
pub(crate) struct Schedule;

/// The right to do everything.
pub(crate) struct Operate;

/// A proof that the holder of the request's token has a right.
pub(crate) struct May<R>(PhantomData<R>);

/// The timers. Each token may read them.
#[derive(Clone)]
pub(crate) struct Store(DurableTimers);

impl Right for Schedule {
    const ROLE: Role = Role::Schedule;
}

impl Right for Operate {
    const ROLE: Role = Role::Operate;
}

impl Holder {
    /// Fails unless the role is at least this one.
    pub(crate) fn check(&self, needed: Role) -> Result<(), Problem> {
        match self.role >= needed {
            true => Ok(()),
            false => {
                let (needed, name, role) = (needed.name(), &self.name, self.role.name());
                let detail = format!(
                    "this needs a token with the role {needed:?} (the token {name:?} has the role \
                     {role:?})"
                );
                Err(Problem::new(StatusCode::FORBIDDEN, detail))
            }
        }
    }
}

impl<R: Right, S: Send + Sync> FromRequestParts<S> for May<R> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let unknown = || Problem::new(StatusCode::FORBIDDEN, "the request has no token");
        parts.extensions.get::<Holder>().ok_or_else(unknown)?.check(R::ROLE)?;
        Ok(Self(PhantomData))
    }
}

impl Store {
    pub(crate) fn new(timers: &DurableTimers) -> Self {
        Self(timers.clone())
    }

    /// Returns the timers to a request that may change them.
    pub(crate) fn change<R: Right>(&self, _: &May<R>) -> &DurableTimers {
        &self.0
    }

    pub(crate) async fn get(&self, id: &str) -> Result<Option<DurableTimer>, DurableError> {
        self.0.get(id).await
    }

    pub(crate) async fn list_due(
        &self,
        range: impl RangeBounds<SystemTime> + Send,
        after: Option<ListPosition>,
        limit: usize,
    ) -> Result<Vec<DurableTimer>, DurableError> {
        self.0.list_due(range, after, limit).await
    }

    pub(crate) async fn list_state(
        &self,
        state: TimerState,
        after: Option<ListPosition>,
        limit: usize,
    ) -> Result<Vec<DurableTimer>, DurableError> {
        self.0.list_state(state, after, limit).await
    }

    pub(crate) async fn list_label(
        &self,
        label: &Label,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<DurableTimer>, DurableError> {
        self.0.list_label(label, after, limit).await
    }

    pub(crate) async fn label_len(&self, label: &Label) -> Result<u64, DurableError> {
        self.0.label_len(label).await
    }

    pub(crate) async fn dead_letters_with_label(
        &self,
        label: &Label,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, DurableError> {
        self.0.dead_letters_with_label(label, after, limit).await
    }

    pub(crate) async fn newest_dead_letters_with_label(
        &self,
        label: &Label,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, DurableError> {
        self.0.newest_dead_letters_with_label(label, before, limit).await
    }

    pub(crate) async fn dead_letter(
        &self,
        number: u64,
    ) -> Result<Option<DeadLetter>, DurableError> {
        self.0.dead_letter(number).await
    }

    pub(crate) async fn dead_letters(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, DurableError> {
        self.0.dead_letters(after, limit).await
    }

    pub(crate) async fn newest_dead_letters(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, DurableError> {
        self.0.newest_dead_letters(after, limit).await
    }

    pub(crate) async fn stats(&self) -> Result<Stats, DurableError> {
        self.0.stats().await
    }
}
