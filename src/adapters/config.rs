//! [`Config`]: the settings of a wheel and its driver, read and written with serde.
//!
//! No other file uses serde. The builders alone check the settings, so a configuration may hold
//! values that they refuse.

#![forbid(unsafe_code)]

use crate::{Builder, DriverBuilder};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::time::Duration;

/// The settings of a wheel and its driver, for a configuration file.
///
/// A duration is text such as `"1ms"` or `"2s 500ms"`. A missing field has its default. An unknown
/// field is refused. The ranges are the same as in [`Builder`] and [`DriverBuilder`]. Their `build`
/// and `spawn` refuse a value that is out of range and name the allowed values.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Config, ManualClock};
///
/// let config: Config = serde_json::from_str(
///     r#"{
///         "resolution": "10ms",
///         "capacity": 1000000,
///         "max_in_flight": 10000,
///         "thread_name": "timeouts"
///     }"#,
/// )?;
/// assert_eq!(config.resolution, Duration::from_millis(10));
/// assert_eq!(config.batch, Config::default().batch);
///
/// // A clock is no data, and is set on the builder.
/// let builder = config.builder().clock(ManualClock::new());
/// let (wheel, sweeper) = builder.build::<u32>()?;
/// let driver = config.driver().spawn(|_: tourbillon::Expired<u32>| ())?;
/// # drop((wheel, sweeper, driver));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Config {
    /// As [`Builder::resolution`].
    #[serde(serialize_with = "write_duration", deserialize_with = "read_duration")]
    pub resolution: Duration,
    /// As [`Builder::shards`]. The default is the number of the machine's cores.
    pub shards: Option<usize>,
    /// As [`Builder::capacity`]. Unbounded by default.
    pub capacity: Option<u64>,
    /// As [`DriverBuilder::batch`]. The default is the driver's.
    pub batch: Option<usize>,
    /// As [`DriverBuilder::max_in_flight`]. Unbounded by default.
    pub max_in_flight: Option<usize>,
    /// As [`DriverBuilder::thread_name`].
    pub thread_name: String,
}

impl Default for Config {
    /// Returns the builders' defaults.
    fn default() -> Self {
        Self {
            resolution: Duration::from_millis(1),
            shards: None,
            capacity: None,
            batch: None,
            max_in_flight: None,
            thread_name: String::from("tourbillon"),
        }
    }
}

impl Config {
    /// Returns the builder of a wheel with these settings. It ignores the driver's settings.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon::{BuildError, Config};
    ///
    /// let mut config = Config::default();
    /// config.shards = Some(0);
    /// let refused = config.builder().build::<()>();
    /// assert!(matches!(refused, Err(BuildError::Shards(0))));
    /// ```
    pub fn builder(&self) -> Builder {
        let mut builder = Builder::new().resolution(self.resolution);
        if let Some(shards) = self.shards {
            builder = builder.shards(shards);
        }
        if let Some(capacity) = self.capacity {
            builder = builder.capacity(capacity);
        }
        builder
    }

    /// Returns the builder of a driver with these settings. If the wheel needs other settings as
    /// well, such as a clock, use [`driver_of`](Self::driver_of).
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon::{BuildError, Config, Expired, Inline};
    ///
    /// let config: Config = serde_json::from_str(r#"{ "batch": 0 }"#)?;
    /// let refused = config.driver().executor(Inline).spawn(|_: Expired<()>| ());
    /// assert!(matches!(refused, Err(BuildError::Batch)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn driver(&self) -> DriverBuilder {
        self.driver_of(self.builder())
    }

    /// Returns the builder of a driver with these settings, on the wheel of another builder.
    ///
    /// # Examples
    ///
    /// In virtual time:
    ///
    /// ```
    /// use tourbillon::{Config, Expired, ManualClock};
    ///
    /// let mut config = Config::default();
    /// config.batch = Some(64);
    /// let wheel = config.builder().clock(ManualClock::new());
    /// let driver = config.driver_of(wheel).spawn(|_: Expired<()>| ())?;
    /// # drop(driver);
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    pub fn driver_of(&self, wheel: Builder) -> DriverBuilder {
        let mut driver = wheel.driver().thread_name(&self.thread_name);
        if let Some(timers) = self.batch {
            driver = driver.batch(timers);
        }
        if let Some(timers) = self.max_in_flight {
            driver = driver.max_in_flight(timers);
        }
        driver
    }
}

fn write_duration<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&humantime::format_duration(*duration))
}

fn read_duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    from.deserialize_str(DurationText)
}

/// Reads a duration.
struct DurationText;

impl Visitor<'_> for DurationText {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration with its unit, such as \"1ms\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
        humantime::parse_duration(text)
            .map_err(|error| E::custom(format_args!("invalid duration {text:?}: {error}")))
    }
}
