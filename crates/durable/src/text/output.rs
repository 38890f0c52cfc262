//! Text for people.

#![forbid(unsafe_code)]

use std::fmt::Write as _;
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

/// Returns the text with invisible characters escaped, so that an id or a payload cannot move the
/// cursor, break a table, give commands to the terminal, or change the direction of the text around
/// it.
///
/// # Examples
///
/// ```
/// use tourbillon_durable::text::printable;
///
/// assert_eq!(printable("order 7/ü"), "order 7/ü");
/// assert_eq!(printable("a\n\u{1b}[2J"), "a\\n\\u{1b}[2J");
/// ```
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, character| {
        if is_invisible(character) {
            let _ = write!(shown, "{}", character.escape_default());
        } else {
            shown.push(character);
        }
        shown
    })
}

/// Returns `true` for control characters, for format characters, such as direction marks, and for
/// line separators.
fn is_invisible(character: char) -> bool {
    use GeneralCategory::{Control, Format, LineSeparator, ParagraphSeparator};
    matches!(character.general_category(), Control | Format | LineSeparator | ParagraphSeparator)
}

/// Returns a number with its thousands set apart.
///
/// # Examples
///
/// ```
/// use tourbillon_durable::text::grouped;
///
/// assert_eq!([0, 999, 1_234_567].map(grouped), ["0", "999", "1,234,567"]);
/// ```
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Returns a number with its noun, such as `1 timer` or `2 timers`.
///
/// # Examples
///
/// ```
/// use tourbillon_durable::text::counted;
///
/// assert_eq!(counted(1, "dead letter"), "1 dead letter");
/// assert_eq!(counted(12_000, "dead letter"), "12,000 dead letters");
/// ```
#[must_use]
pub fn counted(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{} {noun}s", grouped(number)),
    }
}
