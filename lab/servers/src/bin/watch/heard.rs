//! Parses the lines of an endpoint.

use super::figures::Figures;
use serde_json::Value;
use std::time::Duration;

impl Figures {
    /// Parses a line, or returns `None` if it is malformed.
    pub(crate) fn read(line: &str) -> Option<Self> {
        let line: Value = serde_json::from_str(line).ok()?;
        let number = |name: &str| line.get(name)?.as_u64();
        let rows = |name: &str| line.get(name)?.as_array().cloned();
        let late = rows("late")?.iter().map(time).collect::<Option<Vec<_>>>()?;
        let ahead = rows("ahead")?;
        Some(Self {
            at: Duration::from_nanos(number("at")?),
            armed: number("armed")?,
            inserted: number("inserted")?,
            reset: number("reset")?,
            cancelled: number("cancelled")?,
            fired: number("fired")?,
            stale: number("stale")?,
            bytes: number("bytes")?,
            longest_sweep: Duration::from_nanos(number("longest_sweep")?),
            late: late.try_into().ok()?,
            ahead: ahead
                .iter()
                .map(|row| Some((time(row.get(0)?)?, row.get(1)?.as_u64()?)))
                .collect::<Option<_>>()?,
        })
    }
}

fn time(value: &Value) -> Option<Duration> {
    value.as_u64().map(Duration::from_nanos)
}
