//! Charts as SVG, drawn here. Each has a table beside it, for readers that cannot see it.

#![forbid(unsafe_code)]

use maud::{Markup, html};

/// The height of a chart. Its width is ten for each bar, and it is stretched to its place.
const HEIGHT: u64 = 100;

/// A bar of a chart.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    pub(crate) value: u64,
    /// The part of the value that is drawn as failed.
    pub(crate) failed: u64,
    /// `true` if the value is a minimum.
    pub(crate) is_least: bool,
    /// The text that is shown while the mouse is over the bar.
    pub(crate) text: String,
}

/// Draws bars.
pub(crate) fn bars(words: &str, bars: &[Bar]) -> Markup {
    let most = bars.iter().map(|bar| bar.value).max().unwrap_or(0).max(1);
    html! {
        svg.chart viewBox={ "0 0 " (bars.len() * 10) " " (HEIGHT) } preserveAspectRatio="none"
            role="img" aria-label=(words)
        {
            @for (place, bar) in bars.iter().enumerate() {
                @let whole = height(bar.value, most);
                @let failed = height(bar.failed, most);
                g {
                    title { (bar.text) }
                    rect.room x=(place * 10) y="0" width="10" height=(HEIGHT) {}
                    rect.whole.is-least[bar.is_least] x=(place * 10 + 1) y=(HEIGHT - whole) width="8" height=(whole) {}
                    rect.failed x=(place * 10 + 1) y=(HEIGHT - failed) width="8" height=(failed) {}
                }
            }
        }
    }
}

/// Draws a line through the known values, and one through others.
pub(crate) fn lines(words: &str, lines: [(&str, &[Option<u64>]); 2]) -> Markup {
    let length = lines.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
    let values = lines.iter().flat_map(|(_, values)| values.iter().flatten());
    let most = values.copied().max().unwrap_or(0).max(1);
    html! {
        svg.chart viewBox={ "0 0 " (length * 10) " " (HEIGHT) } preserveAspectRatio="none"
            role="img" aria-label=(words)
        {
            @for (class, values) in lines {
                path.line.(class) d=(path(values, most)) {}
            }
        }
    }
}

/// Returns the path of a line, which is interrupted where values are unknown.
fn path(values: &[Option<u64>], most: u64) -> String {
    let (mut path, mut is_drawn) = (String::new(), false);
    for (place, value) in values.iter().enumerate() {
        let Some(value) = value else {
            is_drawn = false;
            continue;
        };
        let y = HEIGHT - height(*value, most).min(HEIGHT - 1);
        // A value is a level line, so a single one can be seen.
        let start = if is_drawn { 'L' } else { 'M' };
        path += &format!("{start}{} {y}h10", place * 10);
        is_drawn = true;
    }
    path
}

/// Returns the height of a value, which is seen unless it is zero.
fn height(value: u64, most: u64) -> u64 {
    match value {
        0 => 0,
        value => (value.saturating_mul(HEIGHT) / most).max(3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_interrupted_where_values_are_unknown() {
        let values = [Some(10), Some(5), None, Some(0)];
        assert_eq!(path(&values, 10), "M0 1h10L10 50h10M30 100h10");
    }

    #[test]
    fn small_values_are_seen() {
        assert_eq!([height(0, 10_000), height(1, 10_000), height(10_000, 10_000)], [0, 3, 100]);
    }
}
