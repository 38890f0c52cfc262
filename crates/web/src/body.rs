//! Bodies of payloads, made readable: JSON is indented, and a long body is cut.

#![forbid(unsafe_code)]

use serde::de::IgnoredAny;
use std::borrow::Cow;

/// The maximum number of bytes of a body that are shown.
const MOST: usize = 65_536;

/// The maximum length in bytes of JSON after it was indented. Beyond it, the body is shown as it
/// is.
const MOST_INDENTED: usize = 4 * MOST;

/// A body as a page shows it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Readable<'a> {
    pub(crate) text: Cow<'a, str>,
    /// `true` if the end is left out.
    pub(crate) is_cut: bool,
}

impl<'a> Readable<'a> {
    /// Indents an object or an array in JSON, and leaves every other body as it is.
    pub(crate) fn of(body: &'a str) -> Self {
        if body.len() > MOST {
            let end = (0..=MOST).rev().find(|end| body.is_char_boundary(*end)).unwrap_or(0);
            return Self { text: body[..end].into(), is_cut: true };
        }
        let text = indented(body).map_or(body.into(), Cow::Owned);
        Self { text, is_cut: false }
    }
}

/// Returns JSON with each member on a line of its own. Names, numbers and texts stay as they are,
/// digit by digit. Returns `None` if the body is neither an object nor an array, or would become
/// too long.
fn indented(body: &str) -> Option<String> {
    let is_compound = body.trim_start().starts_with(['{', '[']);
    if !is_compound || serde_json::from_str::<IgnoredAny>(body).is_err() {
        return None;
    }
    let (mut lines, mut rest) = (Lines::default(), body);
    while let Some(first) = rest.chars().next() {
        let length = if first == '"' { quoted(rest) } else { first.len_utf8() };
        let (token, after) = rest.split_at(length);
        lines.add(token);
        if lines.text.len() > MOST_INDENTED {
            return None;
        }
        rest = after;
    }
    Some(lines.text)
}

/// Returns the length of the text in quotes with which valid JSON begins.
fn quoted(json: &str) -> usize {
    let mut is_escaped = false;
    let end = json[1..].find(|character| {
        let ends = character == '"' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        ends
    });
    end.map_or(json.len(), |end| end + 2)
}

/// Indented lines.
#[derive(Default)]
struct Lines {
    text: String,
    depth: usize,
    /// `true` after the beginning of an object or an array.
    has_begun: bool,
}

impl Lines {
    /// Adds a character of JSON, or a text in quotes.
    fn add(&mut self, token: &str) {
        match token {
            " " | "\t" | "\n" | "\r" => return,
            "}" | "]" => {
                self.depth -= 1;
                if !self.has_begun {
                    self.begin_line();
                }
            }
            _ if self.has_begun => self.begin_line(),
            _ => {}
        }
        self.text += token;
        self.has_begun = matches!(token, "{" | "[");
        match token {
            "{" | "[" => self.depth += 1,
            "," => self.begin_line(),
            ":" => self.text.push(' '),
            _ => {}
        }
    }

    fn begin_line(&mut self) {
        self.text.push('\n');
        self.text.extend(std::iter::repeat_n("  ", self.depth));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_indented_and_nothing_of_it_is_changed() {
        for (body, shown) in [
            (
                r#"{"a":1,"b":[true,null]}"#,
                "{\n  \"a\": 1,\n  \"b\": [\n    true,\n    null\n  ]\n}",
            ),
            (" [ [ ] , { } ]\n", "[\n  [],\n  {}\n]"),
            (
                r#"{"b":12345678901234567890.10,"b":"\"{,:}\\"}"#,
                "{\n  \"b\": 12345678901234567890.10,\n  \"b\": \"\\\"{,:}\\\\\"\n}",
            ),
            ("[\"ä\"]", "[\n  \"ä\"\n]"),
        ] {
            assert_eq!(Readable::of(body).text, shown);
        }
    }

    #[test]
    fn other_bodies_stay_as_they_are() {
        let deep = "[".repeat(1000) + &"]".repeat(1000);
        for body in ["", "{hello}", "[1,", "{\"a\":1} {}", "17", "\"a\"", "two\nlines", &deep] {
            assert_eq!(Readable::of(body), Readable { text: body.into(), is_cut: false });
        }
    }

    #[test]
    fn what_is_shown_is_bounded() {
        let long = "ä".repeat(MOST);
        let shown = Readable::of(&long);
        assert_eq!((shown.text.len(), shown.is_cut), (MOST, true));
        let odd = format!("a{long}");
        assert_eq!(Readable::of(&odd).text.len(), MOST - 1);
        // Indentation would make much of little.
        let wide = "[".repeat(100) + &"0,".repeat(10_000) + "0" + &"]".repeat(100);
        assert_eq!(Readable::of(&wide), Readable { text: (&*wide).into(), is_cut: false });
    }
}
