//! [`Condition`], what a request expects of the timer that it changes (RFC 9110), and the entity
//! tags by which it names that timer.
//!
//! The tag of a timer is the number of its last insert. It is strong for what was put, the webhook
//! and the schedule, and does not change with attempts, pauses and redrives.

#![forbid(unsafe_code)]

use super::super::call::number;
use super::super::problem::Problem;
use axum::extract::FromRequestParts;
use headers::{ETag, Header, HeaderMapExt, IfMatch, IfNoneMatch};
use http::HeaderMap;
use http::request::Parts;
use tourbillon_durable::{DurableError, DurableTimer, DurableTimers};

/// What a request expects of the timer that it changes.
pub(super) enum Condition {
    /// Nothing.
    Any,
    /// There is none (`If-None-Match: *`).
    New,
    /// It has one of these tags.
    Over(Tags),
}

/// The tags of `If-Match`.
pub(super) struct Tags(IfMatch);

impl<S: Send + Sync> FromRequestParts<S> for Condition {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let invalid = |what| Err(Problem::invalid(what));
        match (read(&parts.headers)?, read::<IfNoneMatch>(&parts.headers)?) {
            (None, None) => Ok(Self::Any),
            (Some(tags), None) => Ok(Self::Over(Tags(tags))),
            (None, Some(tags)) if tags == IfNoneMatch::any() => Ok(Self::New),
            (None, Some(_)) => invalid("if-none-match: expected *, because this changes a timer"),
            (Some(_), Some(_)) => invalid("if-match: cannot be combined with if-none-match"),
        }
    }
}

impl Tags {
    /// Changes the timer if it has one of these tags. `change` gets the number of the insert over
    /// which the store has to execute the change, because the timer may change after it was read.
    pub(super) async fn change<R, F>(
        &self,
        timers: &DurableTimers,
        id: &str,
        change: impl Fn(Option<String>) -> F,
    ) -> Result<R, DurableError>
    where
        F: Future<Output = Result<R, DurableError>>,
    {
        loop {
            let timer = timers.get(id).await?;
            let timer = timer.filter(|timer| self.has(timer)).ok_or(DurableError::Changed)?;
            let number = timer.last_insert().and_then(number).map(str::to_owned);
            match change(number).await {
                // It was changed meanwhile, and may have another of these tags.
                Err(DurableError::Changed) => {}
                changed => return changed,
            }
        }
    }

    fn has(&self, timer: &DurableTimer) -> bool {
        let has_one = |tag| self.0.precondition_passes(&tag);
        timer.last_insert().is_some() && (self.0.is_any() || tag(timer).is_some_and(has_one))
    }
}

/// Returns the tag of a timer. Timers that other programs have inserted have none, and neither have
/// those that were cancelled and end with their running attempt.
pub(super) fn tag(timer: &DurableTimer) -> Option<ETag> {
    format!("\"{}\"", number(timer.last_insert()?)?).parse().ok()
}

/// Returns `true` if a request has a copy with this tag.
pub(super) fn is_known(headers: &HeaderMap, tag: &ETag) -> Result<bool, Problem> {
    let known: Option<IfNoneMatch> = read(headers)?;
    Ok(known.is_some_and(|known| !known.precondition_passes(tag)))
}

fn read<H: Header>(headers: &HeaderMap) -> Result<Option<H>, Problem> {
    let wrong = |_| Problem::invalid(format!("{}: expected entity tags or *", H::name()));
    headers.typed_try_get().map_err(wrong)
}
