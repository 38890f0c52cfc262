//! [`Condition`], which a store checks against the last insert of a timer in the step that changes
//! the timer.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::model::record::Record;

/// A header that the last insert of a timer must, or must not, have set for an operation to be
/// executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    /// The name of a header.
    pub(crate) name: String,
    /// The value of the header, or `None` if it must not be set.
    pub(crate) value: Option<String>,
}

impl Condition {
    pub(crate) fn new(name: impl Into<String>, value: Option<&str>) -> Self {
        Self { name: name.into(), value: value.map(str::to_owned) }
    }

    /// Fails with [`DurableError::Changed`] unless the last insert of this timer meets the
    /// condition, if there is one.
    pub(crate) fn check(this: Option<&Self>, found: Option<&Record>) -> Result<(), DurableError> {
        let Some(Self { name, value: expected }) = this else { return Ok(()) };
        let last = found.map(|found| found.next.as_deref().unwrap_or(found));
        // A cancelled timer ends with its attempt.
        let last = last.filter(|last| !last.cancelled).ok_or(DurableError::Changed)?;
        let mut headers = last.settings.headers.iter();
        let value = headers.find(|(own, _)| own == name).map(|(_, value)| value);
        if value == expected.as_ref() { Ok(()) } else { Err(DurableError::Changed) }
    }
}
