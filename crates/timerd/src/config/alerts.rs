//! The settings of alerts.

#![forbid(unsafe_code)]

use super::{ConfigError, limit};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

/// The webhook of the operator that receives alerts.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlertSettings {
    /// The URL, which is often secret.
    pub url: String,
    /// The name of the secret that signs alerts. The default is the secret `default`, if there is
    /// one.
    #[serde(default)]
    pub secret: Option<String>,
    /// The address of the page of the service, for links in alerts. Without it, alerts have no
    /// links.
    #[serde(default)]
    pub page: Option<String>,
    /// The alerts that are sent, by default all.
    #[serde(default)]
    pub kinds: AlertKinds,
    /// The number of attempts that fail in a row before this is reported. The default is 5.
    #[serde(default = "five")]
    pub failures: NonZeroU32,
    /// How long after its planned time a repeating timer may succeed. The default is 10 minutes.
    #[serde(default = "ten_minutes", deserialize_with = "limit")]
    pub grace: Duration,
}

/// Hides the URL.
impl fmt::Debug for AlertSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { secret, page, kinds, failures, grace, .. } = self;
        let mut shown = f.debug_struct("AlertSettings");
        shown
            .field("secret", secret)
            .field("page", page)
            .field("kinds", kinds)
            .field("failures", failures);
        shown.field("grace", grace).finish_non_exhaustive()
    }
}

/// A kind of alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AlertKind {
    /// A timer has become a dead letter.
    DeadLetter,
    /// A timer has failed several times in a row.
    Failing,
    /// A repeating timer has not run in time.
    MissedRun,
}

impl AlertKind {
    /// Returns the name of the variant.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::DeadLetter => "dead_letter",
            Self::Failing => "failing",
            Self::MissedRun => "missed_run",
        }
    }
}

/// The kinds of alerts that are sent, at least one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "BTreeSet<AlertKind>")]
pub struct AlertKinds(BTreeSet<AlertKind>);

impl AlertKinds {
    pub(crate) fn contains(&self, kind: AlertKind) -> bool {
        self.0.contains(&kind)
    }
}

impl Default for AlertKinds {
    fn default() -> Self {
        Self([AlertKind::DeadLetter, AlertKind::Failing, AlertKind::MissedRun].into())
    }
}

impl TryFrom<BTreeSet<AlertKind>> for AlertKinds {
    type Error = ConfigError;

    fn try_from(kinds: BTreeSet<AlertKind>) -> Result<Self, ConfigError> {
        match kinds.is_empty() {
            true => Err(ConfigError::NoKinds),
            false => Ok(Self(kinds)),
        }
    }
}

fn five() -> NonZeroU32 {
    NonZeroU32::MIN.saturating_add(4)
}

fn ten_minutes() -> Duration {
    Duration::from_secs(600)
}
