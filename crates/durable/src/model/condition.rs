//! [`Condition`], which a store checks against a timer in the step that changes the timer.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::model::label::Label;
use crate::model::record::Record;

/// A condition that a timer must meet for an operation to be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// The last insert of the timer must have set a header to a value or, with `None`, must not
    /// have set it.
    Header { name: String, value: Option<String> },
    /// The timer must have a label. Its next delivery may have others.
    Label(Label),
}

impl Condition {
    pub(crate) fn header(name: impl Into<String>, value: Option<&str>) -> Self {
        Self::Header { name: name.into(), value: value.map(str::to_owned) }
    }

    /// Fails with [`DurableError::Changed`] unless the last insert of this timer meets the
    /// condition, if there is one.
    pub(crate) fn check(this: Option<&Self>, found: Option<&Record>) -> Result<(), DurableError> {
        let (name, expected) = match this {
            None => return Ok(()),
            Some(Self::Header { name, value }) => (name, value),
            Some(Self::Label(label)) => {
                let has = found.is_some_and(|found| found.settings.labels.contains(label));
                return if has { Ok(()) } else { Err(DurableError::Changed) };
            }
        };
        let last = found.map(|found| found.next.as_deref().unwrap_or(found));
        // A cancelled timer ends with its attempt.
        let last = last.filter(|last| !last.cancelled).ok_or(DurableError::Changed)?;
        let mut headers = last.settings.headers.iter();
        let value = headers.find(|(own, _)| own == name).map(|(_, value)| value);
        if value == expected.as_ref() { Ok(()) } else { Err(DurableError::Changed) }
    }
}
