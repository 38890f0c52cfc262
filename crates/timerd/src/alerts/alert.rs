//! [`Alert`], an event that needs a person, [`Lead`], where it leads to, and [`AlertBody`], the
//! form in which it is sent.

#![forbid(unsafe_code)]

use crate::config::AlertKind;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};
use tourbillon_durable::text::{printable, show_time};
use tourbillon_durable::{Attempt, DeadReason, DurableTimer};
use utoipa::ToSchema;

/// The maximum length in characters of an id or an error in the text for people.
const MAX_QUOTED: usize = 300;

/// The maximum length in characters of an error.
const MAX_ERROR: usize = 2000;

/// An event that needs a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Alert {
    kind: AlertKind,
    id: String,
    planned: SystemTime,
    /// The due time of the attempt. `None` for a missed run, which may have had no attempt.
    due: Option<SystemTime>,
    attempts: u32,
    reason: Option<DeadReason>,
    error: String,
}

/// Where an alert leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lead {
    /// The number of the dead letter.
    pub(super) number: Option<u64>,
    pub(super) link: Option<String>,
}

/// An alert. The field `text` is for people, and incoming webhooks of Slack and Mattermost show it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Alert)]
pub(crate) struct AlertBody {
    /// A sentence for people, in which ids and errors are quoted with backticks. `&`, `<` and `>`
    /// are written as `&amp;`, `&lt;` and `&gt;`.
    text: String,
    /// `dead_letter`, `failing` or `missed_run`.
    alert: &'static str,
    /// The id of the timer.
    id: String,
    /// The planned time of the run, RFC 3339.
    planned: String,
    /// The number of attempts that have begun.
    attempts: u32,
    /// The reason of a dead letter: `attempts`, `failed`, `expired` or `rule`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// The error of the last attempt, unless there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    error: String,
    /// The number of the dead letter, unless it was redriven or deleted in the meantime.
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    /// The address of the dead letter or the timer on the page, if `alerts.page` of the
    /// configuration has the address of the page. It is the end of `text` as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<String>,
    /// The number of alerts that were not sent since the last one, because there were too many of
    /// them or because they were refused.
    left_out: u64,
}

impl Alert {
    /// A timer has become a dead letter.
    pub(super) fn dead(attempt: &Attempt, reason: DeadReason, error: &str) -> Self {
        Self { reason: Some(reason), ..Self::of(AlertKind::DeadLetter, attempt, error) }
    }

    /// A timer has failed several times in a row.
    pub(super) fn failing(attempt: &Attempt, error: &str) -> Self {
        Self::of(AlertKind::Failing, attempt, error)
    }

    /// A repeating timer has not run in time.
    pub(super) fn missed(timer: &DurableTimer) -> Self {
        Self {
            kind: AlertKind::MissedRun,
            id: timer.id.clone(),
            planned: timer.planned,
            due: None,
            attempts: timer.attempts,
            reason: None,
            error: beginning(&timer.error, MAX_ERROR),
        }
    }

    /// A run of a repeating timer was skipped because it was too late.
    pub(super) fn skipped(id: String, planned: SystemTime) -> Self {
        let (kind, error) = (AlertKind::MissedRun, "the run was skipped".to_owned());
        Self { kind, id, planned, due: None, attempts: 0, reason: None, error }
    }

    fn of(kind: AlertKind, attempt: &Attempt, error: &str) -> Self {
        Self {
            kind,
            id: attempt.id.clone(),
            planned: attempt.planned,
            due: Some(attempt.due),
            attempts: attempt.attempt,
            reason: None,
            error: beginning(error, MAX_ERROR),
        }
    }

    pub(super) fn kind(&self) -> AlertKind {
        self.kind
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn planned(&self) -> SystemTime {
        self.planned
    }

    /// Returns the idempotency key. It is the same for all attempts to send the alert and,
    /// for a missed run, for all instances. A letter that dies again after a redrive has another.
    pub(super) fn key(&self) -> String {
        let id = utf8_percent_encode(&self.id, NON_ALPHANUMERIC);
        let (kind, planned) = (self.kind.name(), millis(self.planned));
        match self.due {
            Some(due) => format!("{kind}:{id}:{planned}:{}", millis(due)),
            None => format!("{kind}:{id}:{planned}"),
        }
    }

    /// Returns the form in which the alert is sent, with the number of alerts that were left out
    /// before it, and where it leads to.
    pub(super) fn body(&self, left_out: u64, lead: Lead) -> AlertBody {
        let Lead { number, link } = lead;
        AlertBody {
            text: self.text(left_out, link.as_deref()),
            alert: self.kind.name(),
            id: self.id.clone(),
            planned: show_time(self.planned),
            attempts: self.attempts,
            reason: self.reason.map(DeadReason::name),
            error: self.error.clone(),
            number,
            link,
            left_out,
        }
    }

    fn text(&self, left_out: u64, link: Option<&str>) -> String {
        let id = quoted(&self.id);
        let mut text = match self.kind {
            AlertKind::DeadLetter => {
                format!("The timer {id} has become a dead letter ({} attempts)", self.attempts)
            }
            AlertKind::Failing => {
                format!("The timer {id} has failed {} times in a row", self.attempts)
            }
            AlertKind::MissedRun => {
                format!("The timer {id} has not run as planned at {}", show_time(self.planned))
            }
        };
        if !self.error.is_empty() {
            text += &format!(": {}", quoted(&self.error));
        }
        if left_out > 0 {
            text += &format!(" (further alerts that were left out: {left_out})");
        }
        if let Some(link) = link {
            text += &format!(" {link}");
        }
        text
    }
}

/// Quotes a text that others have written. Chats neither mention people in it nor make links of it.
fn quoted(text: &str) -> String {
    let text = printable(&beginning(text, MAX_QUOTED)).to_string();
    let text = text.replace('`', "'");
    format!("`{}`", text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"))
}

/// Returns the first characters of a text.
fn beginning(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns a time in milliseconds since 1970.
pub(super) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn skipped(id: &str) -> Alert {
        Alert::skipped(id.to_owned(), UNIX_EPOCH)
    }

    #[test]
    fn texts_of_others_neither_mention_nor_link_anything() {
        let alert = Alert {
            error: "x` <!channel> @all [a](b)\n& \u{202e}".to_owned(),
            ..skipped("<http://evil.example|a`b>")
        };
        let text = alert.body(0, Lead::default()).text;
        assert_eq!(text.matches('`').count(), 4, "{text}");
        assert!(!text.contains(['<', '>', '\n', '\u{202e}']), "{text}");
        assert!(text.contains("&lt;!channel&gt;") && text.contains("&amp;"), "{text}");
    }

    #[test]
    fn a_text_has_a_length() {
        let alert = Alert { error: "é".repeat(100_000), ..skipped(&"i".repeat(512)) };
        let text = alert.body(7, Lead::default()).text;
        assert!(text.chars().count() < 2 * MAX_QUOTED + 200, "{text}");
        assert!(text.ends_with("left out: 7)"), "{text}");
    }

    #[test]
    fn keys_are_headers_and_differ() {
        let due = |seconds| Some(UNIX_EPOCH + Duration::from_secs(seconds));
        let dead =
            |seconds| Alert { kind: AlertKind::DeadLetter, due: due(seconds), ..skipped("a") };
        let keys = [skipped("a.b\n:0").key(), skipped("a").key(), dead(1).key(), dead(2).key()];
        for (place, key) in keys.iter().enumerate() {
            assert!(key.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'.'), "{key}");
            assert!(!keys[..place].contains(key), "{key}");
        }
    }
}
