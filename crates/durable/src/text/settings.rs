//! The time and the options of a timer, as arguments of the tool and as JSON of the service.

#![forbid(unsafe_code)]

use crate::model::label::{Label, LabelError};
use crate::model::options::{Existing, Options, When};
use crate::model::rule::Misfire;
use crate::text::error::TextError;
use crate::text::time::{parse_backoff, parse_duration, parse_time};
use serde::Deserialize;
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// The time and the delivery options of a timer. Times are RFC 3339, and durations have units
/// (`90s`, `1h 30m`, `7d`).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "arguments", derive(clap::Args))]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Schedule))]
pub struct Settings {
    /// The time, such as `2030-01-01T09:00:00Z` or `2030-01-01T09:00[Europe/Berlin]`
    #[cfg_attr(feature = "arguments", arg(long, help_heading = "Time", value_name = "TIME"))]
    pub at: Option<String>,
    /// The delay from now
    #[cfg_attr(feature = "arguments", arg(long, help_heading = "Time", value_name = "DURATION"))]
    pub after: Option<String>,
    /// How often the timer repeats, at least `1s` apart
    #[cfg_attr(feature = "arguments", arg(long, help_heading = "Time", value_name = "DURATION"))]
    pub every: Option<String>,
    /// The cron expression of a repeating timer, such as `0 9 * * *`
    #[cfg_attr(feature = "arguments", arg(long, help_heading = "Time", value_name = "EXPRESSION"))]
    pub cron: Option<String>,
    /// The time zone of the cron expression, such as `Europe/Berlin`, by default UTC
    #[cfg_attr(feature = "arguments", arg(long, help_heading = "Time"))]
    pub zone: Option<String>,
    /// The treatment of missed occurrences. `once` (the default) makes up for all of them with one
    /// delivery, and a duration skips occurrences that are later than this
    #[cfg_attr(
        feature = "arguments",
        arg(long, help_heading = "Time", value_name = "once|DURATION")
    )]
    pub misfire: Option<String>,
    /// The maximum number of attempts, by default 8 or, in the service, as configured
    #[cfg_attr(feature = "arguments", arg(long, help_heading = "Delivery"))]
    pub attempts: Option<u32>,
    /// The first and the longest wait between attempts, by default `1s..10m` or, in the service, as
    /// configured
    #[cfg_attr(
        feature = "arguments",
        arg(long, help_heading = "Delivery", value_name = "DURATION..DURATION")
    )]
    pub backoff: Option<String>,
    /// How soon another worker takes over if a worker dies, from `1s` to `1d`, by default `15s`
    #[cfg_attr(
        feature = "arguments",
        arg(long, help_heading = "Delivery", value_name = "DURATION")
    )]
    pub lease: Option<String>,
    /// How long after its planned time an undelivered timer becomes a dead letter
    #[cfg_attr(
        feature = "arguments",
        arg(long, help_heading = "Delivery", value_name = "DURATION")
    )]
    pub time_to_live: Option<String>,
    /// The action if a timer with this id exists
    #[cfg_attr(feature = "arguments", arg(long, help_heading = "Delivery", value_enum))]
    pub existing: Option<ExistingName>,
    /// The labels, by which the timer can be found, at most 8
    #[cfg_attr(
        feature = "arguments",
        arg(long = "label", help_heading = "Delivery", value_name = "LABEL")
    )]
    #[serde(default)]
    pub labels: Vec<String>,
}

/// The new time of a timer that is moved.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "arguments", derive(clap::Args))]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewTime {
    /// The time, such as `2030-01-01T09:00:00Z` or `2030-01-01T09:00[Europe/Berlin]`
    #[cfg_attr(feature = "arguments", arg(long, value_name = "TIME"))]
    pub at: Option<String>,
    /// The delay from now
    #[cfg_attr(feature = "arguments", arg(long, value_name = "DURATION"))]
    pub after: Option<String>,
}

impl NewTime {
    /// Returns the time.
    ///
    /// # Errors
    ///
    /// Fails if there is no time, there are two, or a time cannot be parsed.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::When;
    /// use tourbillon_durable::text::NewTime;
    ///
    /// let time: NewTime = serde_json::from_str(r#"{ "after": "30m" }"#)?;
    /// assert_eq!(time.read(), Ok(When::After(Duration::from_secs(1800))));
    /// let error = NewTime::default().read().unwrap_err();
    /// assert_eq!(error.to_string(), "time: missing (expected at or after)");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read(&self) -> Result<When, SettingsError> {
        time(self.at.as_deref(), self.after.as_deref())?.ok_or(SettingsError::NoNewTime)
    }
}

/// The action if a timer with this id exists.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(feature = "arguments", derive(clap::ValueEnum))]
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

/// The error of a setting, which names the setting and what is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingsError {
    /// There is neither a time nor a rule.
    NoTime,
    /// There is no time to which a timer is moved.
    NoNewTime,
    /// Two settings exclude each other.
    Conflict {
        /// The setting.
        setting: &'static str,
        /// The setting that excludes it.
        other: &'static str,
    },
    /// There is a time zone without a cron expression.
    ZoneAlone,
    /// A time or a range cannot be parsed.
    Text {
        /// The setting.
        setting: &'static str,
        /// The reason.
        why: TextError,
    },
    /// A duration cannot be parsed.
    Duration {
        /// The setting.
        setting: &'static str,
        /// The text of the duration.
        text: String,
        /// The reason.
        why: TextError,
    },
    /// A duration is shorter than a second.
    Short {
        /// The setting.
        setting: &'static str,
        /// The text of the duration.
        text: String,
    },
    /// Occurrences would be skipped however punctual they are.
    EmptyWindow,
    /// A text cannot be a label.
    Label {
        /// The text.
        text: String,
        /// The reason.
        why: LabelError,
    },
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTime => f.write_str("time: missing (expected at, after, every or cron)"),
            Self::NoNewTime => f.write_str("time: missing (expected at or after)"),
            Self::Conflict { setting, other } => {
                write!(f, "{setting}: cannot be combined with {other}")
            }
            Self::ZoneAlone => f.write_str("zone: cannot be used without cron"),
            Self::Text { setting, why } => write!(f, "{setting}: {why}"),
            Self::Duration { setting, text, why } => write!(f, "{setting}: {text:?}: {why}"),
            Self::Short { setting, text } => {
                write!(f, "{setting}: {text:?}: expected at least 1s")
            }
            Self::EmptyWindow => {
                f.write_str("misfire: expected more than 0, or every occurrence is late")
            }
            Self::Label { text, why } => write!(f, "labels: {text:?}: {why}"),
        }
    }
}

impl Error for SettingsError {}

impl Settings {
    /// Returns the time and the options.
    ///
    /// # Errors
    ///
    /// Fails if a setting cannot be parsed, two settings exclude each other, or there is neither a
    /// time nor a rule.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::When;
    /// use tourbillon_durable::text::Settings;
    ///
    /// let settings: Settings = serde_json::from_str(r#"{ "after": "30m", "attempts": 3 }"#)?;
    /// let (when, options) = settings.read()?;
    /// assert_eq!(when, When::After(Duration::from_secs(1800)));
    /// assert_eq!(options.get_attempts(), 3);
    ///
    /// let wrong: Settings = serde_json::from_str(r#"{ "every": "1ms" }"#)?;
    /// let error = wrong.read().unwrap_err();
    /// assert_eq!(error.to_string(), "every: \"1ms\": expected at least 1s");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
        match time(self.at.as_deref(), self.after.as_deref())? {
            Some(when) => Ok(when),
            None if self.every.is_some() || self.cron.is_some() => Ok(When::ByRule),
            None => Err(SettingsError::NoTime),
        }
    }

    fn options(&self, mut options: Options) -> Result<Options, SettingsError> {
        match (&self.every, &self.cron) {
            (Some(_), Some(_)) => {
                return Err(SettingsError::Conflict { setting: "every", other: "cron" });
            }
            (Some(every), None) => options = options.every(at_least_a_second("every", every)?),
            (None, Some(cron)) => {
                options = options.cron(cron, self.zone.as_deref().unwrap_or("UTC"));
            }
            (None, None) => {}
        }
        if self.zone.is_some() && self.cron.is_none() {
            return Err(SettingsError::ZoneAlone);
        }
        if let Some(window) = self.misfire.as_deref().filter(|misfire| *misfire != "once") {
            let window = duration("misfire", window)?;
            if window.is_zero() {
                return Err(SettingsError::EmptyWindow);
            }
            options = options.misfire(Misfire::SkipAfter(window));
        }
        if let Some(attempts) = self.attempts {
            options = options.attempts(attempts);
        }
        if let Some(waits) = &self.backoff {
            options = options.backoff(parse_backoff(waits).map_err(wrong("backoff"))?);
        }
        if let Some(lease) = &self.lease {
            options = options.lease(at_least_a_second("lease", lease)?);
        }
        if let Some(time_to_live) = &self.time_to_live {
            options = options.time_to_live(duration("time_to_live", time_to_live)?);
        }
        for text in &self.labels {
            let wrong = |why| SettingsError::Label { text: text.clone(), why };
            options = options.label(Label::new(text).map_err(wrong)?);
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

/// Parses a time or a delay, of which there may be one.
fn time(at: Option<&str>, after: Option<&str>) -> Result<Option<When>, SettingsError> {
    match (at, after) {
        (Some(_), Some(_)) => Err(SettingsError::Conflict { setting: "at", other: "after" }),
        (Some(at), None) => parse_time(at).map(|at| Some(When::At(at))).map_err(wrong("at")),
        (None, Some(after)) => duration("after", after).map(|after| Some(When::After(after))),
        (None, None) => Ok(None),
    }
}

/// Parses a duration of at least a second.
fn at_least_a_second(setting: &'static str, text: &str) -> Result<Duration, SettingsError> {
    match duration(setting, text)? {
        found if found < Duration::from_secs(1) => {
            Err(SettingsError::Short { setting, text: text.to_owned() })
        }
        found => Ok(found),
    }
}

fn duration(setting: &'static str, text: &str) -> Result<Duration, SettingsError> {
    let wrong = |why| SettingsError::Duration { setting, text: text.to_owned(), why };
    parse_duration(text).map_err(wrong)
}

/// Returns a function that names the setting of an error.
fn wrong(setting: &'static str) -> impl FnOnce(TextError) -> SettingsError {
    move |why| SettingsError::Text { setting, why }
}
