//! The queries of addresses, the form that makes the query of a list, and redirects.

#![forbid(unsafe_code)]

use crate::failure::Failure;
use crate::read::Where;
use crate::text::{ZONE, parse_field};
use crate::view::parts::{address, zone_field};
use axum::extract::{FromRequestParts, Query};
use axum::response::{IntoResponse, Response};
use http::header::LOCATION;
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use maud::{Markup, html};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::time::SystemTime;
use tourbillon_durable::Label;

/// The query of an address.
pub(super) struct Asked<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let read = Query::from_request_parts(parts, state).await;
        read.map(|Query(asked)| Self(asked)).map_err(|error| Failure::invalid(error.body_text()))
    }
}

/// The query that names a timer.
#[derive(Deserialize)]
pub(super) struct Timer {
    pub(super) id: String,
    /// The outcome of the last form.
    #[serde(default)]
    pub(super) done: String,
}

/// The query of a list.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Listed {
    /// The state of timers.
    pub(super) show: String,
    /// The beginning of ids.
    pub(super) q: String,
    /// The label, or an empty text for all timers.
    pub(super) label: String,
    /// The beginning of a range of times.
    pub(super) from: String,
    /// The end of the range.
    pub(super) until: String,
    /// The time zone of the range, or an empty text for UTC.
    pub(super) zone: String,
    pub(super) before: String,
    pub(super) after: String,
    /// The outcome of the last form.
    pub(super) done: String,
}

impl Listed {
    /// Returns the label.
    pub(super) fn label(&self) -> Result<Option<Label>, Failure> {
        match &*self.label {
            "" => Ok(None),
            text => parse_label(text).map(Some),
        }
    }

    /// Returns the range of times.
    pub(super) fn range(&self) -> Result<(Option<SystemTime>, Option<SystemTime>), Failure> {
        let time = |name: &str, text: &str| match text {
            "" => Ok(None),
            text => parse_field(text, self.zone()).map(Some).map_err(|error| {
                Failure::invalid(format!(
                    "{name}: expected a time such as 2026-11-29T03:00: {error}"
                ))
            }),
        };
        Ok((time("from", &self.from)?, time("until", &self.until)?))
    }

    /// Returns the part of the list to show.
    pub(super) fn place<P>(&self, parse: impl Fn(&str) -> Option<P>) -> Result<Where<P>, Failure> {
        let position = |text: &str| {
            parse(text).ok_or_else(|| Failure::invalid("expected a position from another page"))
        };
        match (&*self.before, &*self.after) {
            ("", "") => Ok(Where::Start),
            ("", after) => Ok(Where::After(position(after)?)),
            (before, _) => Ok(Where::Before(position(before)?)),
        }
    }

    fn zone(&self) -> &str {
        if self.zone.is_empty() { ZONE } else { &self.zone }
    }

    /// Returns the parts of the query that choose rows.
    pub(super) fn filter(&self) -> [(&str, &str); 6] {
        [
            ("show", &self.show),
            ("q", &self.q),
            ("label", &self.label),
            ("from", &self.from),
            ("until", &self.until),
            ("zone", &self.zone),
        ]
    }

    /// The form that chooses rows of a list by their ids, labels and times.
    pub(super) fn form(&self, list: &str, verb: &str) -> Markup {
        html! {
            details.filters open[self.is_filtered()] {
                summary { "Filter" }
                form.filter method="get" action=(list) {
                    @if !self.show.is_empty() {
                        input type="hidden" name="show" value=(self.show);
                    }
                    label { span { "Id begins with" } input type="search" name="q" value=(self.q); }
                    label { span { "Label" } input type="search" name="label" value=(self.label); }
                    @for (name, from, value) in
                        [("from", "at or after", &self.from), ("until", "before", &self.until)]
                    {
                        label {
                            span { (verb) " " (from) }
                            input type="datetime-local" name=(name) value=(value);
                        }
                    }
                    (zone_field(self.zone(), self.from.is_empty() && self.until.is_empty()))
                    button { "Show" }
                    @if self.is_filtered() {
                        a.button.plain href=(address(list, &[("show", &self.show)])) { "Clear" }
                    }
                }
            }
        }
    }

    /// Returns `true` if rows are chosen by more than their state.
    pub(super) fn is_filtered(&self) -> bool {
        self.filter()[1..5].iter().any(|(_, value)| !value.is_empty())
    }

    /// Returns `true` if rows are chosen by a label, and by nothing else.
    pub(super) fn has_only_label(&self) -> bool {
        let is_chosen = |(name, value): (&str, &str)| name != "zone" && !value.is_empty();
        self.filter().into_iter().all(|part| is_chosen(part) == (part.0 == "label"))
    }
}

/// Parses a label.
pub(super) fn parse_label(text: &str) -> Result<Label, Failure> {
    Label::new(text).map_err(|error| Failure::invalid(format!("label: {error}")))
}

/// Redirects to another page beside this one.
pub(super) fn to(address: &str) -> Response {
    // Addresses are percent-encoded. Another one leads nowhere.
    match HeaderValue::from_str(address) {
        Ok(location) => (StatusCode::SEE_OTHER, [(LOCATION, location)]).into_response(),
        Err(_) => Failure::invalid("the address to go back to cannot be read").into_response(),
    }
}
