//! Timers and dead letters as JSON.

#![forbid(unsafe_code)]

use crate::api::dead_letters::DeadLetter;
use crate::api::lists::ListPosition;
use crate::api::timer::{DurableTimer, TimerState};
use crate::model::label::Label;
use crate::model::options::Options;
use crate::model::record::DeadReason;
use crate::model::rule::{Misfire, Rule};
use crate::model::stats::Stats;
use crate::text::error::TextError;
use crate::text::time::{parse_time, show_time};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use std::collections::BTreeMap;

/// A timer. Times are RFC 3339 in UTC.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Timer))]
pub struct TimerView<P = PayloadView> {
    /// The id.
    pub id: String,
    /// `resting`, `retrying`, `running`, `pausing`, `cancelling` or `paused`.
    pub state: &'static str,
    /// The time of the next attempt or, while one is running, the end of its lease.
    pub due: String,
    /// The planned time of the delivery. Together with the id, it identifies the delivery.
    pub planned: String,
    /// The number of attempts that have begun.
    pub attempts: u32,
    /// The maximum number of attempts.
    pub most_attempts: u32,
    /// The rule of a repeating timer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeats: Option<RuleView>,
    /// The planned time of the timer that was inserted to follow the running attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The error of the last failed attempt, or the fault that prevented an attempt.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// The headers. A hidden value is `null`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Option<String>>,
    /// The labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The payload.
    #[serde(flatten)]
    pub payload: P,
}

/// A dead letter. Times are RFC 3339 in UTC.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = DeadLetter))]
pub struct LetterView<P = PayloadView> {
    /// The number of the dead letter.
    pub number: u64,
    /// The id of the timer.
    pub id: String,
    /// The planned time of the delivery.
    pub planned: String,
    /// The time when the timer became a dead letter.
    pub died: String,
    /// The number of attempts.
    pub attempts: u32,
    /// `attempts`, `failed`, `expired` or `rule`.
    pub reason: &'static str,
    /// The error of the last failed attempt.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// The headers. A hidden value is `null`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Option<String>>,
    /// The labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The payload.
    #[serde(flatten)]
    pub payload: P,
}

/// Statistics of a store. Times are RFC 3339 in UTC.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Stats))]
pub struct StatsView {
    /// The number of timers, without dead letters.
    pub timers: u64,
    /// The number of timers that wait for their due time, for a retry, or for a worker.
    pub resting: u64,
    /// The number of timers with a running attempt.
    pub leased: u64,
    /// The number of paused timers.
    pub paused: u64,
    /// The number of timers that a worker could deliver now.
    pub overdue: u64,
    /// How long the oldest timer has been overdue, in milliseconds.
    pub lag_millis: u64,
    /// The earliest due time of a timer that is not paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_due: Option<String>,
    /// The number of dead letters.
    pub dead_letters: u64,
    /// `true` if the store is paused.
    pub store_paused: bool,
}

impl StatsView {
    /// Describes the statistics of a store.
    #[must_use]
    pub fn new(stats: &Stats) -> Self {
        Self {
            timers: stats.timers,
            resting: stats.resting,
            leased: stats.leased,
            paused: stats.paused,
            overdue: stats.overdue,
            lag_millis: stats.lag().as_millis().try_into().unwrap_or(u64::MAX),
            oldest_due: stats.oldest_due.map(show_time),
            dead_letters: stats.dead_letters,
            store_paused: stats.store_paused,
        }
    }
}

/// A payload, as text if it is UTF-8.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Payload))]
pub enum PayloadView {
    /// Text.
    Text {
        /// The text.
        payload: String,
    },
    /// Other bytes.
    Bytes {
        /// The bytes in base64.
        payload_base64: String,
    },
}

/// The rule of a repeating timer.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Rule))]
pub struct RuleView {
    /// The interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
    /// The cron expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// The time zone of the cron expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// `once`, or how late an occurrence may be before it is skipped.
    pub misfire: String,
}

impl TimerView {
    /// Describes a timer.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::text::TimerView;
    /// use tourbillon_durable::{DurableTimers, Options};
    ///
    /// # let file = std::env::temp_dir().join(format!("tourbillon-view-{}", std::process::id()));
    /// let timers = DurableTimers::open(&file)?;
    /// pollster::block_on(async {
    ///     timers.insert("order 7", "unpaid", Duration::from_secs(60), Options::new()).await?;
    ///     let timer = timers.get("order 7").await?.ok_or("there is no timer")?;
    ///     let json = serde_json::to_value(TimerView::new(&timer))?;
    ///     assert_eq!(json["state"], "resting");
    ///     assert_eq!(json["payload"], "unpaid");
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn new(timer: &DurableTimer) -> Self {
        Self::with(timer, PayloadView::new)
    }
}

impl<P> TimerView<P> {
    /// Describes a timer, with a description of its payload.
    #[must_use]
    pub fn with(timer: &DurableTimer, describe: impl FnOnce(&[u8]) -> P) -> Self {
        Self {
            id: timer.id.clone(),
            state: state_name(timer.state),
            due: show_time(timer.due),
            planned: show_time(timer.planned),
            attempts: timer.attempts,
            most_attempts: timer.options.get_attempts(),
            repeats: RuleView::of(&timer.options),
            next: timer.next.map(show_time),
            error: timer.error.clone(),
            headers: headers(&timer.options),
            labels: labels(&timer.options),
            payload: describe(&timer.payload),
        }
    }
}

impl LetterView {
    /// Describes a dead letter.
    #[must_use]
    pub fn new(letter: &DeadLetter) -> Self {
        Self::with(letter, PayloadView::new)
    }
}

impl<P> LetterView<P> {
    /// Describes a dead letter, with a description of its payload.
    #[must_use]
    pub fn with(letter: &DeadLetter, describe: impl FnOnce(&[u8]) -> P) -> Self {
        Self {
            number: letter.number,
            id: letter.id.clone(),
            planned: show_time(letter.planned),
            died: show_time(letter.died),
            attempts: letter.attempts,
            reason: reason_name(letter.reason),
            error: letter.error.clone(),
            headers: headers(&letter.options),
            labels: labels(&letter.options),
            payload: describe(&letter.payload),
        }
    }
}

impl PayloadView {
    /// Describes a payload.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::text::PayloadView;
    ///
    /// assert_eq!(PayloadView::new(b"unpaid").text(), "unpaid");
    /// assert_eq!(PayloadView::new(&[0xff]).text(), "/w=="); // base64
    /// ```
    #[must_use]
    pub fn new(payload: &[u8]) -> Self {
        match std::str::from_utf8(payload) {
            Ok(text) => Self::Text { payload: text.to_owned() },
            Err(_) => Self::Bytes { payload_base64: STANDARD.encode(payload) },
        }
    }

    /// Returns the text, or the bytes in base64.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Text { payload } => payload,
            Self::Bytes { payload_base64 } => payload_base64,
        }
    }
}

impl RuleView {
    fn of(options: &Options) -> Option<Self> {
        let misfire = match options.get_misfire() {
            Misfire::SkipAfter(window) => humantime::format_duration(window).to_string(),
            _ => "once".to_owned(),
        };
        let (every, cron, zone) = match options.get_rule()? {
            Rule::Every(interval) => {
                (Some(humantime::format_duration(*interval).to_string()), None, None)
            }
            Rule::Cron { expression, zone } => (None, Some(expression.clone()), Some(zone.clone())),
        };
        Some(Self { every, cron, zone, misfire })
    }

    /// Returns the rule in a few words, such as `every 1h` or `cron 0 9 * * * Europe/Berlin`.
    #[must_use]
    pub fn words(&self) -> String {
        match (&self.every, &self.cron, &self.zone) {
            (Some(every), ..) => format!("every {every}"),
            (None, Some(cron), Some(zone)) => format!("cron {cron} {zone}"),
            _ => "unknown".to_owned(),
        }
    }
}

fn headers(options: &Options) -> BTreeMap<String, Option<String>> {
    let headers = options.get_headers();
    headers.map(|(name, value)| (name.to_owned(), Some(value.to_owned()))).collect()
}

fn labels(options: &Options) -> Vec<String> {
    options.get_labels().map(Label::to_string).collect()
}

/// Writes a position in a list, which [`parse_position`] reads.
#[must_use]
pub fn show_position(position: &ListPosition) -> String {
    format!("{} {}", show_time(position.due()), position.id())
}

/// Reads the position of a timer in a list.
///
/// # Errors
///
/// Fails unless the text is a time and an id.
///
/// # Examples
///
/// ```
/// use std::time::SystemTime;
/// use tourbillon_durable::ListPosition;
/// use tourbillon_durable::text::{parse_position, show_position};
///
/// let position = ListPosition::new(SystemTime::UNIX_EPOCH, "order 7");
/// let shown = show_position(&position);
/// assert_eq!(shown, "1970-01-01T00:00:00.000Z order 7");
/// assert_eq!(parse_position(&shown), Ok(position));
/// assert!(parse_position("order 7").is_err());
/// ```
pub fn parse_position(text: &str) -> Result<ListPosition, TextError> {
    let (due, id) = text.split_once(' ').ok_or(TextError::Position)?;
    Ok(ListPosition::new(parse_time(due).map_err(|_| TextError::Position)?, id))
}

/// The states of timers.
pub const STATES: [TimerState; 6] = [
    TimerState::Resting,
    TimerState::Retrying,
    TimerState::Running,
    TimerState::Pausing,
    TimerState::Cancelling,
    TimerState::Paused,
];

/// Returns the name of a state in JSON.
#[must_use]
pub fn state_name(state: TimerState) -> &'static str {
    match state {
        TimerState::Resting => "resting",
        TimerState::Retrying => "retrying",
        TimerState::Running => "running",
        TimerState::Pausing => "pausing",
        TimerState::Cancelling => "cancelling",
        TimerState::Paused => "paused",
    }
}

/// Returns the state with this name.
///
/// # Errors
///
/// Fails if no state has this name.
///
/// # Examples
///
/// ```
/// use tourbillon_durable::TimerState;
/// use tourbillon_durable::text::{parse_state, state_name};
///
/// assert_eq!(parse_state("paused"), Ok(TimerState::Paused));
/// assert_eq!(state_name(TimerState::Paused), "paused");
/// assert!(parse_state("tired").is_err());
/// ```
pub fn parse_state(name: &str) -> Result<TimerState, TextError> {
    let found = STATES.into_iter().find(|state| state_name(*state) == name);
    found.ok_or_else(|| TextError::Name(STATES.map(state_name).to_vec()))
}

/// Returns the name of a reason in JSON.
#[must_use]
pub fn reason_name(reason: DeadReason) -> &'static str {
    reason.name()
}
