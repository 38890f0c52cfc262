//! The time and the options of a timer, as arguments of the tool and as JSON of the service.

#![forbid(unsafe_code)]

use crate::model::backoff::Backoff;
use crate::model::options::{Existing, Options, When};
use crate::model::rule::Misfire;
use crate::text::time::{parse_duration, parse_time};
use clap::{Args, ValueEnum};
use serde::Deserialize;
use std::fmt;
use std::time::Duration;

/// The time and the delivery options of a timer. Times are RFC 3339, and durations have units
/// (`90s`, `1h 30m`, `7d`).
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Schedule))]
pub struct Settings {
    /// The time, such as `2030-01-01T09:00:00Z` or `2030-01-01T09:00[Europe/Berlin]`
    #[arg(long, help_heading = "Time", value_name = "TIME")]
    pub at: Option<String>,
    /// The delay from now
    #[arg(long, help_heading = "Time", value_name = "DURATION")]
    pub after: Option<String>,
    /// How often the timer repeats, at least `1s` apart
    #[arg(long, help_heading = "Time", value_name = "DURATION")]
    pub every: Option<String>,
    /// The cron expression of a repeating timer, such as `0 9 * * *`
    #[arg(long, help_heading = "Time", value_name = "EXPRESSION")]
    pub cron: Option<String>,
    /// The time zone of the cron expression, such as `Europe/Berlin`, by default UTC
    #[arg(long, help_heading = "Time")]
    pub zone: Option<String>,
    /// The treatment of missed occurrences. `once` (the default) makes up for all of them with one
    /// delivery, and a duration skips occurrences that are later than this
    #[arg(long, help_heading = "Time", value_name = "once|DURATION")]
    pub misfire: Option<String>,
    /// The maximum number of attempts, by default 8 or, in the service, as configured
    #[arg(long, help_heading = "Delivery")]
    pub attempts: Option<u32>,
    /// The first and the longest wait between attempts, by default `1s..10m` or, in the service, as
    /// configured
    #[arg(long, help_heading = "Delivery", value_name = "DURATION..DURATION")]
    pub backoff: Option<String>,
    /// How soon another worker takes over if a worker dies, from `1s` to `1d`, by default `15s`
    #[arg(long, help_heading = "Delivery", value_name = "DURATION")]
    pub lease: Option<String>,
    /// How long after its planned time an undelivered timer becomes a dead letter
    #[arg(long, help_heading = "Delivery", value_name = "DURATION")]
    pub time_to_live: Option<String>,
    /// The action if a timer with this id exists
    #[arg(long, help_heading = "Delivery", value_enum)]
    pub existing: Option<ExistingName>,
}

/// The action if a timer with this id exists.
#[derive(Clone, Copy, Debug, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Existing))]
pub enum ExistingName {
    /// The new timer is rejected (the default)
    Refuse,
    /// The old timer stays. If it is being delivered and does not repeat, the new timer follows it
    Keep,
    /// The new timer replaces the old one, and a running attempt of the old one no longer counts
    Replace,
    /// The old timer gets the new payload, options and time
    Update,
}

/// The error of an invalid setting, which names the setting and what is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError(String);

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SettingsError {}

impl Settings {
    /// Returns the time and the options.
    ///
    /// # Errors
    ///
    /// Fails if a setting cannot be parsed, two settings exclude each other, or there is neither a
    /// time nor a rule.
    pub fn read(&self) -> Result<(When, Options), SettingsError> {
        self.read_over(Options::new())
    }

    /// Returns the time and the options, which are `defaults` where no setting changes them.
    ///
    /// # Errors
    ///
    /// Fails like [`read`](Self::read).
    pub fn read_over(&self, defaults: Options) -> Result<(When, Options), SettingsError> {
        Ok((self.when()?, self.options(defaults)?))
    }

    fn when(&self) -> Result<When, SettingsError> {
        match (&self.at, &self.after) {
            (Some(_), Some(_)) => Err(error("at", "cannot be combined with after")),
            (Some(at), None) => parse_time(at).map(When::At).map_err(|why| error("at", why)),
            (None, Some(after)) => duration("after", after).map(When::After),
            (None, None) if self.every.is_some() || self.cron.is_some() => Ok(When::ByRule),
            (None, None) => Err(error("time", "missing (expected at, after, every or cron)")),
        }
    }

    fn options(&self, mut options: Options) -> Result<Options, SettingsError> {
        match (&self.every, &self.cron) {
            (Some(_), Some(_)) => return Err(error("every", "cannot be combined with cron")),
            (Some(every), None) => options = options.every(at_least_a_second("every", every)?),
            (None, Some(cron)) => {
                options = options.cron(cron, self.zone.as_deref().unwrap_or("UTC"));
            }
            (None, None) => {}
        }
        if self.zone.is_some() && self.cron.is_none() {
            return Err(error("zone", "cannot be used without cron"));
        }
        if let Some(window) = self.misfire.as_deref().filter(|misfire| *misfire != "once") {
            let window = duration("misfire", window)?;
            if window.is_zero() {
                return Err(error("misfire", "expected more than 0, or every occurrence is late"));
            }
            options = options.misfire(Misfire::SkipAfter(window));
        }
        if let Some(attempts) = self.attempts {
            options = options.attempts(attempts);
        }
        if let Some(waits) = &self.backoff {
            let backoff = parse_backoff(waits).map_err(|why| error("backoff", why))?;
            options = options.backoff(backoff);
        }
        if let Some(lease) = &self.lease {
            options = options.lease(at_least_a_second("lease", lease)?);
        }
        if let Some(time_to_live) = &self.time_to_live {
            options = options.time_to_live(duration("time_to_live", time_to_live)?);
        }
        Ok(options.existing(self.existing.map_or(Existing::Refuse, Existing::from)))
    }
}

impl From<ExistingName> for Existing {
    fn from(name: ExistingName) -> Self {
        match name {
            ExistingName::Refuse => Self::Refuse,
            ExistingName::Keep => Self::Keep,
            ExistingName::Replace => Self::Replace,
            ExistingName::Update => Self::Update,
        }
    }
}

/// Parses the first and the longest wait between attempts, such as `1s..10m`. The waits are
/// shortened by up to half at random.
///
/// # Errors
///
/// Fails if the text is not such a range.
pub fn parse_backoff(text: &str) -> Result<Backoff, String> {
    let expected = || format!("{text:?}: expected a range such as 1s..10m");
    let (first, most) = text.split_once("..").ok_or_else(expected)?;
    let parse = |text| parse_duration(text).map_err(|why| format!("{text:?}: {why}"));
    let (first, most) = (parse(first)?, parse(most)?);
    match first <= most {
        true => Ok(Backoff::new(first, most).jitter()),
        false => Err(expected()),
    }
}

/// Parses a duration of at least a second.
fn at_least_a_second(name: &str, text: &str) -> Result<Duration, SettingsError> {
    match duration(name, text)? {
        found if found < Duration::from_secs(1) => {
            Err(error(name, format!("{text:?}: expected at least 1s")))
        }
        found => Ok(found),
    }
}

fn duration(name: &str, text: &str) -> Result<Duration, SettingsError> {
    parse_duration(text).map_err(|why| error(name, format!("{text:?}: {why}")))
}

fn error(name: &str, why: impl fmt::Display) -> SettingsError {
    SettingsError(format!("{name}: {why}"))
}
