//! [`Condition`], the precondition of a request that changes a timer (RFC 9110), and the entity
//! tags of timers.
//!
//! The tag of a timer is the number of its last insert. It is a strong validator of the webhook and
//! the schedule, and does not change with attempts, pauses and redrives.

#![forbid(unsafe_code)]

use crate::call::number;
use crate::problem::Problem;
use axum::extract::FromRequestParts;
use headers::{ETag, Header, HeaderMapExt, IfMatch, IfNoneMatch};
use http::HeaderMap;
use http::request::Parts;
use tourbillon_durable::{DurableError, DurableTimer, DurableTimers};

/// The precondition of a request that changes a timer.
pub(super) enum Condition {
    /// There is no precondition.
    Any,
    /// The timer must not exist (`If-None-Match: *`).
    New,
    /// The timer must have one of these tags.
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
    /// Changes the timer if it has one of these tags. The timer may change after it is read, so
    /// `change` receives the number of the insert that the store must find when it makes the
    /// change.
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
                // The timer was changed meanwhile, and may now have another of these tags.
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

/// Returns the tag of a timer. A timer has no tag if another program inserted it, or if it was
/// cancelled and ends with its running attempt.
pub(super) fn tag(timer: &DurableTimer) -> Option<ETag> {
    format!("\"{}\"", number(timer.last_insert()?)?).parse().ok()
}

/// Returns `true` if the client already has a copy with this tag.
pub(super) fn is_known(headers: &HeaderMap, tag: &ETag) -> Result<bool, Problem> {
    let known: Option<IfNoneMatch> = read(headers)?;
    Ok(known.is_some_and(|known| !known.precondition_passes(tag)))
}

fn read<H: Header>(headers: &HeaderMap) -> Result<Option<H>, Problem> {
    let wrong = |_| Problem::invalid(format!("{}: expected entity tags or *", H::name()));
    headers.typed_try_get().map_err(wrong)
}
