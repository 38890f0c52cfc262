//! [`CalendarZone`]: the time zone of a calendar, whose rules may change while the program runs.

#![forbid(unsafe_code)]

use jiff::Error;
use jiff::fmt::temporal::DateTimeParser;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use std::sync::LazyLock;

/// The largest offset from UTC that a calendar accepts, in seconds. No zone is that far from UTC,
/// and larger offsets are mistakes such as `+25:00` for `+02:50`.
const LARGEST_OFFSET: i32 = 18 * 3600;

/// The database that the feature `tzdb` compiles in. It is empty without that feature.
static BUNDLED: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A time zone, with the rules that were read when the calendar was built.
#[derive(Clone)]
pub(super) struct CalendarZone {
    rules: TimeZone,
    /// The name for reading the rules again, unless the caller has provided the rules.
    name: Option<String>,
}

impl CalendarZone {
    /// Finds a zone by its IANA name or its offset from UTC.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(Self { rules: find(name)?, name: Some(name.to_owned()) })
    }

    /// Returns the zone of the system.
    pub(super) fn system() -> Result<Self, Error> {
        let rules = TimeZone::try_system()?;
        let name = rules.iana_name().map(str::to_owned);
        Ok(Self { rules, name })
    }

    /// Returns a zone with the rules of the caller, which never change.
    pub(super) fn given(rules: TimeZone) -> Self {
        Self { rules, name: None }
    }

    /// Returns the present rules of the zone.
    ///
    /// An update of the database is noticed within five minutes, because jiff caches a zone for
    /// that long. If the database cannot be read, because an update is in progress, the rules stay
    /// as they were.
    pub(super) fn rules(&self) -> TimeZone {
        self.name.as_deref().and_then(find).unwrap_or_else(|| self.rules.clone())
    }

    /// Reads the rules again, and keeps and returns them.
    pub(super) fn refresh(&mut self) -> TimeZone {
        self.rules = self.rules();
        self.rules.clone()
    }

    pub(super) fn iana_name(&self) -> Option<&str> {
        self.rules.iana_name()
    }
}

/// Finds a zone in the system's database, or else in the compiled-in database, which also has the
/// former names that some systems leave out. No name begins with a sign.
fn find(name: &str) -> Option<TimeZone> {
    if name.starts_with(['+', '-']) {
        let zone = DateTimeParser::new().parse_time_zone(name).ok()?;
        let offset = zone.to_fixed_offset().ok()?;
        return (offset.seconds().abs() <= LARGEST_OFFSET).then_some(zone);
    }
    TimeZone::get(name).or_else(|_| BUNDLED.get(name)).ok()
}
