//! Text that is safe to show on a terminal.

#![forbid(unsafe_code)]

use std::fmt::Write as _;

/// Returns the text with control characters escaped, so that an id or a payload cannot move the
/// cursor, break a table, or give commands to the terminal.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, character| {
        if character.is_control() {
            let _ = write!(shown, "{}", character.escape_default());
        } else {
            shown.push(character);
        }
        shown
    })
}
