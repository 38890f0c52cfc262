//! Text for people: texts of strangers, times and numbers.

#![forbid(unsafe_code)]

use jiff::Timestamp;
use jiff::fmt::friendly::SpanPrinter;
use std::time::{Duration, SystemTime};

/// The characters that [`str::escape_debug`] escapes although they are visible.
const VISIBLE: [char; 3] = ['"', '\'', '\\'];

/// Returns the text with invisible characters escaped, so that an id or an error cannot change the
/// direction of the text around it, or look like another one.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    // Each part ends with such a character, except the last.
    for part in text.split_inclusive(VISIBLE) {
        let plain = part.trim_end_matches(VISIBLE);
        shown.extend(plain.escape_debug());
        shown.push_str(&part[plain.len()..]);
    }
    shown
}

/// Returns a time as RFC 3339 in UTC, with milliseconds.
pub(crate) fn show_time(time: SystemTime) -> String {
    match Timestamp::try_from(time) {
        Ok(time) => format!("{time:.3}"),
        Err(_) => "after the year 9999".to_owned(),
    }
}

/// Returns a duration with its units, such as `1h 30m`.
pub(crate) fn duration(duration: Duration) -> String {
    SpanPrinter::new().unsigned_duration_to_string(&duration)
}

/// Returns a number with its noun, such as `1 timer` or `2 timers`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_escaped() {
        for (text, shown) in [
            ("order 7/ü \"tea\" it's a\\b", "order 7/ü \"tea\" it's a\\b"),
            ("a\nb", "a\\nb"),
            ("\u{202e}txt.exe", "\\u{202e}txt.exe"),
            ("u\u{308}ber", "u\u{308}ber"),
        ] {
            assert_eq!(visible(text), shown);
        }
    }
}
