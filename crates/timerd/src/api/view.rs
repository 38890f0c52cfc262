//! Timers and dead letters with their webhooks, as the API shows them.

#![forbid(unsafe_code)]

use crate::webhook::Webhook;
use serde::Serialize;
use std::collections::BTreeMap;
use tourbillon_durable::text::{LetterView, PayloadView, TimerView};
use tourbillon_durable::{DeadLetter, DurableTimer};
use utoipa::ToSchema;

/// A timer and the request that it makes.
pub(super) type Timer = TimerView<Call>;

/// A dead letter and the request that it made.
pub(super) type Letter = LetterView<Call>;

/// The request that a timer makes, or the payload of a timer that another program inserted. Only
/// one field is present.
#[derive(Default, Serialize, ToSchema)]
pub(super) struct Call {
    /// The request.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook: Option<WebhookView>,
    /// A payload that is not a webhook, as text.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    /// A payload that is not UTF-8, in base64.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

/// The request that a timer makes when it is due.
#[derive(Serialize, ToSchema)]
pub(super) struct WebhookView {
    /// The URL.
    url: String,
    /// The method.
    method: String,
    /// The headers. Their values are `null` in lists, because they may be secret.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, Option<String>>,
    /// The body.
    #[serde(skip_serializing_if = "String::is_empty")]
    body: String,
    /// The time limit of a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<String>,
    /// The name of the secret that signs calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
}

/// Describes a timer with the values of its headers.
pub(super) fn timer(timer: &DurableTimer) -> Timer {
    TimerView::with(timer, Call::new)
}

/// Describes a timer without the values of its headers.
pub(super) fn listed_timer(listed: &DurableTimer) -> Timer {
    let mut view = timer(listed);
    hide(&mut view.headers);
    view.payload.hide();
    view
}

/// Describes a dead letter with the values of its headers.
pub(super) fn letter(letter: &DeadLetter) -> Letter {
    LetterView::with(letter, Call::new)
}

/// Describes a dead letter without the values of its headers.
pub(super) fn listed_letter(listed: &DeadLetter) -> Letter {
    let mut view = letter(listed);
    hide(&mut view.headers);
    view.payload.hide();
    view
}

impl Call {
    fn new(payload: &[u8]) -> Self {
        if let Ok(webhook) = Webhook::from_payload(payload) {
            return Self { webhook: Some(WebhookView::new(webhook)), ..Self::default() };
        }
        match PayloadView::new(payload) {
            PayloadView::Text { payload } => Self { payload: Some(payload), ..Self::default() },
            PayloadView::Bytes { payload_base64 } => {
                Self { payload_base64: Some(payload_base64), ..Self::default() }
            }
        }
    }

    fn hide(&mut self) {
        if let Some(webhook) = &mut self.webhook {
            hide(&mut webhook.headers);
        }
    }
}

impl WebhookView {
    fn new(webhook: Webhook) -> Self {
        let Webhook { url, method, headers, body, timeout, secret } = webhook;
        let headers = headers.into_iter().map(|(name, value)| (name, Some(value))).collect();
        Self { url, method, headers, body, timeout, secret }
    }
}

/// Removes the values of headers.
fn hide(headers: &mut BTreeMap<String, Option<String>>) {
    headers.values_mut().for_each(|value| *value = None);
}
