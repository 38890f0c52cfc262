//! [`Description`], a payload as the page shows it.

#![forbid(unsafe_code)]

use std::fmt::Write as _;

/// The number of bytes that are shown of a payload that is not text.
const SHOWN: usize = 256;

/// A payload as the page shows it. [`TimersWeb::describe`](crate::TimersWeb::describe) sets how
/// payloads are described. The default shows them as text or, if they are not UTF-8, as hexadecimal
/// digits.
///
/// The page escapes all text but hides nothing, so leave secrets out.
///
/// # Examples
///
/// ```
/// use timers_web::Description;
///
/// let description = Description::new("mail to ada@example.org").field("subject", "Your order");
/// # let _ = description;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Description {
    pub(crate) summary: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Description {
    /// Describes a payload in a few words, for lists. The first 200 characters are shown.
    pub fn new(summary: impl Into<String>) -> Self {
        Self { summary: summary.into(), ..Self::default() }
    }

    /// Adds a row to the page of the timer.
    pub fn field(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.fields.push((name.into(), value.into()));
        self
    }

    /// Adds a text, which may have several lines, to the page of the timer. JSON is indented there,
    /// and of a longer text the first 64 KiB are shown.
    pub fn body(mut self, body: impl Into<String>) -> Self {
        self.body = body.into();
        self
    }

    /// Describes a payload of an unknown kind.
    pub(crate) fn of_bytes(payload: &[u8]) -> Self {
        match std::str::from_utf8(payload) {
            Ok(text) => Self::new(text.lines().next().unwrap_or_default()).body(text),
            Err(_) => {
                let digits = payload.iter().take(SHOWN).fold(String::new(), |mut digits, byte| {
                    let _ = write!(digits, "{byte:02x} ");
                    digits
                });
                Self::new(format!("{} bytes", payload.len())).body(digits)
            }
        }
    }
}
