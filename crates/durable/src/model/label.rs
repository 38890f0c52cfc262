//! [`Label`], a short text that groups timers.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The maximum length of a label in bytes.
const MAX_BYTES: usize = 64;

/// The maximum number of labels of a timer.
pub(crate) const MAX_LABELS: usize = 8;

/// A short text that groups timers, such as the program or the customer that they belong to. A
/// label has 1 to 64 bytes and no control characters.
///
/// [`Options::label`](crate::Options::label) gives labels to a timer. The timers of a label can be
/// [listed](crate::DurableTimers::list_label), [counted](crate::DurableTimers::label_len),
/// [paused](crate::DurableTimers::pause_label) and [cancelled](crate::DurableTimers::cancel_label).
///
/// # Examples
///
/// ```
/// use tourbillon_durable::Label;
///
/// let label = Label::new("customer 7")?;
/// assert_eq!(label.as_str(), "customer 7");
/// assert_eq!("customer 7".parse(), Ok(label));
/// assert!(Label::new("").is_err());
/// # Ok::<(), tourbillon_durable::LabelError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(Arc<str>);

/// The error of a text that cannot be a [`Label`].
///
/// # Examples
///
/// ```
/// use tourbillon_durable::Label;
///
/// let error = Label::new("two\nlines").unwrap_err();
/// assert_eq!(error.to_string(), "a label has 1 to 64 bytes and no control characters");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LabelError;

impl Label {
    /// Creates a label from its text.
    ///
    /// # Errors
    ///
    /// Fails if the text is empty, has more than 64 bytes, or has a control character.
    pub fn new(text: impl AsRef<str>) -> Result<Self, LabelError> {
        let text = text.as_ref();
        let is_allowed = (1..=MAX_BYTES).contains(&text.len()) && !text.contains(char::is_control);
        if is_allowed { Ok(Self(Arc::from(text))) } else { Err(LabelError) }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Label {
    type Err = LabelError;

    fn from_str(text: &str) -> Result<Self, LabelError> {
        Self::new(text)
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for LabelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a label has 1 to 64 bytes and no control characters")
    }
}

impl Error for LabelError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_short_and_printable() {
        for text in ["a", "shop/orders", "Größe 7", &"x".repeat(64), &"é".repeat(32)] {
            assert_eq!(Label::new(text).map(|label| label.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "a\0", "\t", "a\u{7f}", "\u{85}", &"x".repeat(65), &"é".repeat(33)] {
            assert_eq!(Label::new(text), Err(LabelError), "{text:?}");
        }
    }
}
