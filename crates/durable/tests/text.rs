//! Text for people.

use tourbillon_durable::text::printable;

#[test]
fn what_is_invisible_is_escaped() {
    // Direction marks, a zero-width space, a soft hyphen and a line separator.
    for character in "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\
                      \u{2067}\u{2068}\u{2069}\u{200b}\u{ad}\u{feff}\u{e0001}\u{2028}\u{2029}"
        .chars()
    {
        let shown = printable(&format!("a{character}b"));
        assert_eq!(shown, format!("a{}b", character.escape_unicode()), "{shown:?}");
    }
    assert_eq!(printable("\u{1b}[2J\n\t\u{85}"), "\\u{1b}[2J\\n\\t\\u{85}");
    for text in ["order 7/ü", "بريد", "日本語", "🙂"] {
        assert_eq!(printable(text), text);
    }
}
