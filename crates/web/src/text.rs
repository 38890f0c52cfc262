//! Times and durations for people.

#![forbid(unsafe_code)]

use jiff::Timestamp;
use jiff::fmt::friendly::SpanPrinter;
use std::time::{Duration, SystemTime};
use tourbillon_durable::text::{TextError, parse_time};

/// Returns a time in UTC for people, such as `2026-11-29 03:00:00 UTC`.
pub(crate) fn utc(time: SystemTime) -> String {
    formatted(time, "%Y-%m-%d %H:%M:%S UTC")
}

/// Returns the time of the day in UTC, such as `03:00`.
pub(crate) fn clock(time: SystemTime) -> String {
    formatted(time, "%H:%M")
}

fn formatted(time: SystemTime, format: &str) -> String {
    match Timestamp::try_from(time) {
        Ok(time) => time.strftime(format).to_string(),
        Err(_) => "after the year 9999".to_owned(),
    }
}

/// Returns how far a time is from now in its largest unit, such as `in 3 min` or `2 h ago`.
pub(crate) fn relative(time: SystemTime, now: SystemTime) -> String {
    let (distance, is_past) = match time.duration_since(now) {
        Ok(ahead) => (ahead, false),
        Err(behind) => (behind.duration(), true),
    };
    match (distance.as_secs(), is_past) {
        (0, _) => "now".to_owned(),
        (seconds, false) => format!("in {}", largest(seconds)),
        (seconds, true) => format!("{} ago", largest(seconds)),
    }
}

/// Returns a number of seconds in its largest unit.
fn largest(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Returns a duration with its units, such as `1h 30m`.
pub(crate) fn duration(duration: Duration) -> String {
    SpanPrinter::new().unsigned_duration_to_string(&duration)
}

/// Returns a number of milliseconds with two or three digits, such as `40 ms` or `1.2 s`.
pub(crate) fn millis(millis: u64) -> String {
    match millis {
        0..1000 => format!("{millis} ms"),
        1000..10_000 => format!("{}.{} s", millis / 1000, millis % 1000 / 100),
        _ => largest(millis / 1000),
    }
}

/// The time zone of the fields of a form, unless the script or the reader names another one.
pub(crate) const ZONE: &str = "UTC";

/// Parses a time in a zone as a field of a form sends it, such as `2026-11-29T03:00`.
pub(crate) fn parse_field(text: &str, zone: &str) -> Result<SystemTime, TextError> {
    parse_time(&format!("{text}[{zone}]"))
}

/// Writes a time in UTC for a field of a form.
pub(crate) fn show_field(time: SystemTime) -> String {
    formatted(time, "%Y-%m-%dT%H:%M")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_their_largest_unit() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        for (seconds, ahead, behind) in [
            (0, "now", "now"),
            (59, "in 59 s", "59 s ago"),
            (200, "in 3 min", "3 min ago"),
            (90_000, "in 25 h", "25 h ago"),
            (172_800, "in 2 days", "2 days ago"),
        ] {
            let distance = Duration::from_secs(seconds);
            assert_eq!(relative(now + distance, now), ahead);
            assert_eq!(relative(now - distance, now), behind);
        }
    }

    #[test]
    fn milliseconds_have_two_or_three_digits() {
        assert_eq!(millis(40), "40 ms");
        assert_eq!(millis(1250), "1.2 s");
        assert_eq!(millis(95_000), "1 min");
    }

    #[test]
    fn a_field_holds_a_time_in_a_zone() {
        let time = parse_field("2026-11-29T03:00", ZONE).unwrap();
        assert_eq!(parse_field("2026-11-29T04:00", "Europe/Berlin"), Ok(time));
        assert_eq!(utc(time), "2026-11-29 03:00:00 UTC");
        assert_eq!(show_field(time), "2026-11-29T03:00");
        assert!(parse_field("tomorrow", ZONE).is_err());
    }
}
