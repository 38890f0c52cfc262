//! The arguments of the program, and its configuration file.

#![forbid(unsafe_code)]

mod alerts;

use super::webhook::parse_time_limit;
pub use alerts::{AlertKind, AlertKinds, AlertSettings};
use clap::Parser;
use ipnet::{IpNet, Ipv4Net};
use serde::de;
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU16, NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tourbillon_durable::text::{Address, StoreArguments, parse_backoff, parse_duration};
use tourbillon_durable::{Backoff, Options};

/// The default address to listen on.
pub const LISTEN: &str = "127.0.0.1:8080";

/// The prefix length of IPv4-mapped IPv6 addresses.
const MAPPED: u8 = 96;

// A doc comment here would replace the description of the program.
#[allow(missing_docs, reason = "clap shows it")]
#[derive(Clone, Parser)]
#[command(version)]
pub struct Arguments {
    /// The store. If neither this nor the configuration file names a store, it is the file
    /// `timers.db` in the working directory.
    #[command(flatten)]
    pub store: StoreArguments,
    /// The address to listen on, such as `localhost:8080`
    #[arg(long, env = "TIMERD_LISTEN", default_value = LISTEN, value_name = "HOST:PORT")]
    pub listen: String,
    /// The configuration file (TOML)
    #[arg(long, env = "TIMERD_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A token of the API. If neither this nor the configuration file sets a token, the service
    /// creates one and prints it
    #[arg(env = "TIMERD_TOKEN", hide_env_values = true, long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// An address and a port that may be called, such as `127.0.0.1:9100`, in addition to what the
    /// configuration file allows. May be repeated
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub allow: Vec<SocketAddr>,
}

/// Hides the token and passwords.
impl fmt::Debug for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, listen, config, allow, .. } = self;
        let mut shown = f.debug_struct("Arguments");
        shown.field("store", store).field("listen", listen).field("config", config);
        shown.field("allow", allow);
        shown.finish_non_exhaustive()
    }
}

/// The configuration file. All settings have defaults.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The store, if the arguments name none.
    #[serde(deserialize_with = "store")]
    pub store: Option<Address>,
    /// The tokens of the API.
    #[serde(rename = "token")]
    pub tokens: Vec<TokenHash>,
    /// The limits of requests.
    pub limits: Limits,
    /// The calls of webhooks.
    pub webhooks: Webhooks,
    /// The secrets that sign calls.
    pub secrets: SecretTexts,
    /// The bounds of the dead letters.
    pub dead_letters: DeadLetterBounds,
    /// The bounds of the history of runs.
    pub history: HistoryBounds,
    /// The page.
    pub page: Page,
    /// The alerts, if the operator wants any.
    pub alerts: Option<AlertSettings>,
}

/// The reason why a configuration file cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    Read(PathBuf, io::Error),
    /// The file is not TOML, or one of its settings is wrong.
    Toml {
        /// The file.
        file: PathBuf,
        /// The number of the line.
        line: usize,
        /// The error. It does not show the line, which may have a secret.
        error: toml::de::Error,
    },
    /// The secret that signs sessions is too short.
    ShortKey,
    /// There is no kind of alert.
    NoKinds,
    /// There is no port that may be called.
    NoPorts,
    /// A time limit is zero.
    NoTime,
    /// The status is no error.
    Status(u16),
    /// The text is neither an address nor a network.
    Network(String),
    /// The network has more addresses than those of IPv4 that are mapped to IPv6.
    MappedNetwork(String),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(file, error) => write!(f, "{}: {error}", file.display()),
            Self::Toml { file, line, error } => {
                let error = error.to_string();
                write!(f, "{}:{line}: {}", file.display(), error.trim_end().replace('\n', " "))
            }
            Self::ShortKey => write!(f, "the key must have at least {MIN_KEY_BYTES} characters"),
            Self::NoKinds => f.write_str(
                "no alert is sent (expected at least one of dead_letter, failing and missed_run)",
            ),
            Self::NoPorts => {
                f.write_str("no port may be called (expected at least one, such as [80, 443])")
            }
            Self::NoTime => f.write_str("expected more than 0"),
            Self::Status(status) => write!(f, "{status}: expected 400 to 599"),
            Self::Network(text) => {
                write!(f, "{text:?}: expected an address or a network such as 10.1.0.0/16")
            }
            Self::MappedNetwork(text) => write!(
                f,
                "{text:?}: addresses of IPv4 have 0.0.0.0/0 (expected ::ffff:A.B.C.D/{MAPPED} or more)"
            ),
        }
    }
}

impl Error for ConfigError {}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, is not TOML, or has a wrong setting.
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        let unread = |error| ConfigError::Read(file.to_owned(), error);
        let text = std::fs::read_to_string(file).map_err(unread)?;
        toml::from_str(&text).map_err(|mut error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            error.set_input(None);
            ConfigError::Toml { file: file.to_owned(), line, error }
        })
    }
}

/// The page.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Page {
    /// The secret that signs sessions, the same for all instances of the service.
    pub key: Option<PageKey>,
    /// `true` if browsers always reach the page by TLS.
    pub secure: bool,
}

/// The shortest secret that signs sessions, in characters.
const MIN_KEY_BYTES: usize = 32;

/// A secret that signs sessions, of at least 32 characters.
#[derive(Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct PageKey(String);

impl PageKey {
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for PageKey {
    type Error = ConfigError;

    fn try_from(text: String) -> Result<Self, ConfigError> {
        match text.trim().len() {
            MIN_KEY_BYTES.. => Ok(Self(text)),
            _ => Err(ConfigError::ShortKey),
        }
    }
}

/// Hides the secret.
impl fmt::Debug for PageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// The bounds of the dead letters. The oldest letters beyond them are deleted.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeadLetterBounds {
    /// The maximum number of dead letters.
    pub most: u64,
    /// The maximum age of a dead letter.
    #[serde(deserialize_with = "duration")]
    pub age: Duration,
}

impl Default for DeadLetterBounds {
    fn default() -> Self {
        Self { most: 100_000, age: Duration::from_secs(90 * 86_400) }
    }
}

/// The bounds of the history of runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HistoryBounds {
    /// The maximum number of runs.
    pub most: NonZeroU64,
    /// The maximum age of a run.
    #[serde(deserialize_with = "limit")]
    pub age: Duration,
}

impl Default for HistoryBounds {
    fn default() -> Self {
        Self { most: NonZeroU64::MIN.saturating_add(99_999), age: Duration::from_secs(30 * 86_400) }
    }
}

/// The secrets that sign calls, by name. Each is `whsec_` and the key in base64. The secret
/// `default` is for timers that name no secret. While a secret is rotated, its name has a list,
/// newest first.
#[derive(Clone, Default, Deserialize)]
pub struct SecretTexts(pub(crate) BTreeMap<String, SecretText>);

/// One secret, or several that are in use at the same time.
#[derive(Clone, Deserialize)]
#[serde(untagged, expecting = "expected \"whsec_…\" or a list of such texts")]
pub(crate) enum SecretText {
    One(String),
    Several(Vec<String>),
}

impl SecretText {
    pub(crate) fn as_slice(&self) -> &[String] {
        match self {
            Self::One(secret) => std::slice::from_ref(secret),
            Self::Several(secrets) => secrets,
        }
    }
}

/// Shows the names.
impl fmt::Debug for SecretTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The calls of webhooks.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Webhooks {
    /// The number of concurrent calls.
    pub concurrency: NonZeroUsize,
    /// The number of concurrent calls to one receiver, which is a host and a port. By default it is
    /// a quarter of `concurrency`.
    pub per_receiver: Option<NonZeroUsize>,
    /// The default time limit of calls, up to 10 minutes.
    #[serde(deserialize_with = "time_limit")]
    pub timeout: Duration,
    /// The default number of attempts.
    pub attempts: NonZeroU32,
    /// The default first and longest wait between attempts.
    #[serde(deserialize_with = "backoff")]
    pub backoff: Backoff,
    /// The statuses that prevent a retry. Each is 400 to 599.
    #[serde(deserialize_with = "statuses")]
    pub final_statuses: BTreeSet<u16>,
    /// The networks or single addresses of internal services that may be called. Other addresses
    /// are called only if they are global.
    #[serde(deserialize_with = "networks")]
    pub allow: Vec<IpNet>,
    /// The ports that may be called.
    pub ports: Ports,
    /// Certificate authorities to trust in addition to the system's (PEM).
    pub authority: Option<PathBuf>,
}

impl Default for Webhooks {
    fn default() -> Self {
        Self {
            concurrency: NonZeroUsize::MIN.saturating_add(127),
            per_receiver: None,
            timeout: Duration::from_secs(10),
            attempts: NonZeroU32::MIN.saturating_add(19),
            backoff: Backoff::new(Duration::from_secs(5), Duration::from_secs(7 * 3600)).jitter(),
            final_statuses: BTreeSet::from([400, 405, 410, 411, 413, 414, 415, 422, 431]),
            allow: Vec::new(),
            ports: Ports(vec![80, 443]),
            authority: None,
        }
    }
}

impl Webhooks {
    /// Returns the number of concurrent calls to one receiver.
    pub(crate) fn each(&self) -> usize {
        self.per_receiver.map_or((self.concurrency.get() / 4).max(1), NonZeroUsize::get)
    }

    /// Returns the default options of timers.
    pub(crate) fn options(&self) -> Options {
        Options::new().attempts(self.attempts.get()).backoff(self.backoff)
    }
}

/// The ports that may be called, at least one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<NonZeroU16>")]
pub struct Ports(Vec<u16>);

impl Ports {
    pub(crate) fn contains(&self, port: u16) -> bool {
        self.0.contains(&port)
    }
}

impl TryFrom<Vec<NonZeroU16>> for Ports {
    type Error = ConfigError;

    fn try_from(ports: Vec<NonZeroU16>) -> Result<Self, ConfigError> {
        match ports.is_empty() {
            true => Err(ConfigError::NoPorts),
            false => Ok(Self(ports.into_iter().map(NonZeroU16::get).collect())),
        }
    }
}

fn store<'de, D: Deserializer<'de>>(text: D) -> Result<Option<Address>, D::Error> {
    String::deserialize(text)?.parse().map(Some).map_err(de::Error::custom)
}

/// Reads a time limit other than zero.
fn limit<'de, D: Deserializer<'de>>(text: D) -> Result<Duration, D::Error> {
    match duration(text)? {
        Duration::ZERO => Err(de::Error::custom(ConfigError::NoTime)),
        limit => Ok(limit),
    }
}

fn duration<'de, D: Deserializer<'de>>(text: D) -> Result<Duration, D::Error> {
    parse_duration(&String::deserialize(text)?).map_err(de::Error::custom)
}

fn time_limit<'de, D: Deserializer<'de>>(text: D) -> Result<Duration, D::Error> {
    parse_time_limit(&String::deserialize(text)?).map_err(de::Error::custom)
}

fn backoff<'de, D: Deserializer<'de>>(text: D) -> Result<Backoff, D::Error> {
    parse_backoff(&String::deserialize(text)?).map_err(de::Error::custom)
}

fn statuses<'de, D: Deserializer<'de>>(numbers: D) -> Result<BTreeSet<u16>, D::Error> {
    let found = BTreeSet::<u16>::deserialize(numbers)?;
    match found.iter().find(|status| !(400..600).contains(*status)) {
        Some(status) => Err(de::Error::custom(ConfigError::Status(*status))),
        None => Ok(found),
    }
}

fn networks<'de, D: Deserializer<'de>>(texts: D) -> Result<Vec<IpNet>, D::Error> {
    let texts = Vec::<String>::deserialize(texts)?;
    texts.iter().map(|text| network(text).map_err(de::Error::custom)).collect()
}

/// Parses a network or an address. An IPv6 network of IPv4-mapped addresses becomes the IPv4
/// network, because addresses are compared in this form.
fn network(text: &str) -> Result<IpNet, ConfigError> {
    let network: IpNet = match text.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().into(),
        Err(_) => text.parse().map_err(|_| ConfigError::Network(text.to_owned()))?,
    };
    let IpNet::V6(mapped) = network else { return Ok(network) };
    let Some(address) = mapped.addr().to_ipv4_mapped() else { return Ok(network) };
    let bits = mapped.prefix_len().checked_sub(MAPPED);
    let inner = bits.and_then(|bits| Ipv4Net::new(address, bits).ok());
    inner.map(IpNet::V4).ok_or_else(|| ConfigError::MappedNetwork(text.to_owned()))
}

/// A token that is known only by its hash.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenHash {
    /// The name, for logs and limits. No two tokens have the same name.
    pub name: String,
    /// The SHA-256 of the token in hexadecimal digits, as `timerd token` prints it.
    pub sha256: String,
    /// What the token may do, by default everything.
    #[serde(default)]
    pub role: Role,
}

/// What the holder of a token may do. Each role includes the roles before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Read everything.
    Read,
    /// Insert, update, move and cancel timers.
    Schedule,
    /// Pause, resume and run timers, pause the store, and redrive and delete dead letters.
    #[default]
    Operate,
}

impl Role {
    /// Returns the name of the variant.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Schedule => "schedule",
            Self::Operate => "operate",
        }
    }
}

/// The limits of requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// The maximum length of a body in bytes.
    pub body_bytes: NonZeroUsize,
    /// The number of requests per second for each token.
    pub requests_per_second: NonZeroU32,
    /// The number of requests at once for each token.
    pub burst: NonZeroU32,
    /// The number of requests with a valid token that are served at the same time.
    pub concurrent_requests: NonZeroUsize,
    /// The maximum number of connections. There are fewer if the process may not open enough files
    /// for them in addition to its calls and its store.
    pub connections: NonZeroUsize,
    /// The time limit of a request with its body, and separately of its response.
    #[serde(deserialize_with = "limit")]
    pub timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: NonZeroUsize::MIN.saturating_add(256 * 1024 - 1),
            requests_per_second: NonZeroU32::MIN.saturating_add(999),
            burst: NonZeroU32::MIN.saturating_add(1999),
            concurrent_requests: NonZeroUsize::MIN.saturating_add(1023),
            connections: NonZeroUsize::MIN.saturating_add(2047),
            timeout: Duration::from_secs(30),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_no_longer_limit_than_their_attempt() {
        for (timeout, accepted) in [("10m", true), ("601s", false), ("0s", false), ("x", false)] {
            let parsed = toml::from_str::<Config>(&format!("webhooks.timeout = \"{timeout}\""));
            assert_eq!(parsed.is_ok(), accepted, "{timeout}: {parsed:?}");
        }
    }

    #[test]
    fn an_outage_of_a_day_is_outlived_by_default() {
        let Webhooks { attempts, backoff, .. } = Webhooks::default();
        let waits: Duration = (1..attempts.get()).map(|attempt| backoff.after(attempt)).sum();
        // Each wait is shortened by up to half.
        assert!(waits / 2 > Duration::from_secs(86_400), "{waits:?}");
    }

    #[test]
    fn networks_are_compared_as_addresses_are() {
        for (text, network) in [
            ("10.1.0.0/16", "10.1.0.0/16"),
            ("127.0.0.1", "127.0.0.1/32"),
            ("::1", "::1/128"),
            ("fd00::/8", "fd00::/8"),
            ("::/0", "::/0"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:10.0.0.1", "10.0.0.1/32"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
        ] {
            let config: Config = toml::from_str(&format!("webhooks.allow = [\"{text}\"]"))
                .unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(config.webhooks.allow[0].to_string(), network, "{text}");
        }
        for text in ["::ffff:0:0/95", "10.0.0.0/33", "internal", ""] {
            let config = toml::from_str::<Config>(&format!("webhooks.allow = [\"{text}\"]"));
            assert!(config.is_err(), "{text}: {config:?}");
        }
    }

    #[test]
    fn a_configuration_by_which_nothing_is_served_is_refused() {
        for wrong in [
            "limits.concurrent_requests = 0",
            "limits.body_bytes = 0",
            "limits.timeout = \"0s\"",
            "limits.requests_per_second = 0",
            "limits.burst = 0",
            "webhooks.concurrency = 0",
            "webhooks.timeout = \"0s\"",
            "webhooks.ports = []",
            "webhooks.ports = [0]",
            "webhooks.ports = [443, 0]",
            "history.most = 0",
            "history.age = \"0s\"",
            "alerts.url = 1",
            "alerts.kinds = []",
            "alerts.kinds = [\"death\"]",
            "alerts.failures = 0",
            "alerts.grace = \"0s\"",
        ] {
            let refused = toml::from_str::<Config>(wrong).expect_err(wrong).to_string();
            let names_the_setting = refused.contains(wrong.split(' ').next().unwrap_or_default());
            assert!(names_the_setting && refused.contains("expected"), "{wrong}: {refused}");
        }
        for right in ["limits.concurrent_requests = 1", "webhooks.ports = [1, 65535]"] {
            toml::from_str::<Config>(right).expect(right);
        }
    }
}
