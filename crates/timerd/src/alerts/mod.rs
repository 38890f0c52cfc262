//! [`Alerts`], which the operator's own webhook receives when a timer has died, fails again and
//! again, or has not run in time.
//!
//! ```text
//!   the end of an attempt ──┬──────────────────────► outbox ──► guard ──► the operator
//!                           └──► missed runs ───────────┘
//! ```
//!
//! An alert is no timer. If it cannot be sent, that is logged and counted, and nothing else follows
//! from it. Alerts are sent one after another by a task of their own, so they neither delay
//! webhooks nor take their places.

#![forbid(unsafe_code)]

mod alert;
mod lead;
mod missed;
mod outbox;
mod reported;

use super::call::Caller;
use super::config::{AlertKind, AlertKinds, AlertSettings};
use super::target::Target;
use super::webhook::Webhook;
use alert::Alert;
pub(crate) use alert::AlertBody;
use lead::Page;
use missed::MissedRuns;
use outbox::{Outbox, Sending};
use std::error::Error;
use std::fmt;
use std::num::NonZeroU32;
use tourbillon_durable::{Attempt, DeadReason, DurableTimers, Event, Outcome};

/// The time limit of the call that sends an alert.
const TIMEOUT: &str = "10s";

/// The alerts of a service.
pub(crate) struct Alerts {
    kinds: AlertKinds,
    failures: NonZeroU32,
    target: Target,
    page: Page,
    outbox: Outbox,
    /// `None` unless missed runs are reported.
    missed: Option<MissedRuns>,
}

/// The reason why no alerts can be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AlertError(String);

impl fmt::Display for AlertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "alerts: {}", self.0)
    }
}

impl Error for AlertError {}

impl Alerts {
    /// Checks the settings as far as possible without a call.
    pub(crate) fn new(settings: &AlertSettings, caller: &Caller) -> Result<Self, AlertError> {
        let webhook = Webhook {
            url: settings.url.clone(),
            method: "POST".to_owned(),
            headers: [].into(),
            body: "{}".to_owned(),
            timeout: Some(TIMEOUT.to_owned()),
            secret: settings.secret.clone(),
        };
        let target = Target::try_from(webhook).map_err(|error| AlertError(error.to_string()))?;
        caller.check(&target).map_err(|fault| AlertError(fault.to_string()))?;
        let page = Page::new(settings.page.as_deref()).map_err(AlertError)?;
        let reports_missed = settings.kinds.contains(AlertKind::MissedRun);
        Ok(Self {
            kinds: settings.kinds.clone(),
            failures: settings.failures,
            target,
            page,
            outbox: Outbox::default(),
            missed: reports_missed.then(|| MissedRuns::new(settings.grace)),
        })
    }

    /// Notes the end of an attempt. This never waits.
    pub(crate) fn note(&self, event: &Event) {
        let Event::Attempt(attempt) = event else { return };
        if let Some(missed) = &self.missed {
            missed.note(attempt);
        }
        if let Some(alert) = self.alert(attempt) {
            self.outbox.push(alert);
        }
    }

    /// Returns the alert for an attempt. Only the instance that has made the attempt sends it,
    /// because each attempt has one end.
    fn alert(&self, attempt: &Attempt) -> Option<Alert> {
        let sends = |kind| self.kinds.contains(kind);
        let has_failed_often = attempt.attempt == self.failures.get();
        match &attempt.outcome {
            Outcome::Dead { reason, error } if sends(AlertKind::DeadLetter) => {
                Some(Alert::dead(attempt, *reason, error))
            }
            Outcome::Retry { error, .. }
            | Outcome::Dead { reason: DeadReason::Attempts | DeadReason::Failed, error }
                if has_failed_often && sends(AlertKind::Failing) =>
            {
                Some(Alert::failing(attempt, error))
            }
            _ => None,
        }
    }

    /// Sends alerts until the outbox is closed and empty.
    pub(crate) async fn send(&self, caller: &Caller, timers: &DurableTimers) {
        let lead = |alert: Alert| async move { self.page.lead(&alert, timers).await };
        let send = |Sending { key, attempt, body }| async move {
            let body = serde_json::to_string(&body).unwrap_or_default();
            caller.send(&self.target.with_body(body), &key, attempt).await
        };
        self.outbox.send(lead, send).await;
    }

    /// Ends the sending of alerts once all are sent.
    pub(crate) fn close(&self) {
        self.outbox.close();
    }

    /// Looks for missed runs periodically.
    pub(crate) async fn watch(&self, timers: DurableTimers) -> ! {
        match &self.missed {
            Some(missed) => missed.watch(&timers, |alert| self.outbox.push(alert)).await,
            None => loop {
                std::future::pending::<()>().await;
            },
        }
    }
}
