//! Text for people.

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

/// Returns a number with its noun, such as `1 timer` or `2 timers`.
#[must_use]
pub fn counted(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}
