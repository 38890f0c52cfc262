//! The settings of a timer: [`When`], [`Options`] and [`Existing`].

#![forbid(unsafe_code)]

use super::backoff::Backoff;
use super::clock::{Millis, millis_up, system};
use super::error::DurableError;
use super::record::Settings;
use std::time::{Duration, SystemTime};

/// The due time of a timer by the store's clock. Converts from [`SystemTime`] and [`Duration`].
///
/// # Examples
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tourbillon_durable::{DurableTimers, Options, When};
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-when-{}", std::process::id()));
/// let timers = DurableTimers::open(&file)?;
/// pollster::block_on(async {
///     let hour = Duration::from_secs(3600); // made `When::After(hour)`
///     timers.insert("order 7", "unpaid", hour, Options::new()).await?;
///
///     let new_year = SystemTime::UNIX_EPOCH + Duration::from_secs(4_102_444_800); // of 2100
///     assert!(timers.reset("order 7", When::At(new_year)).await?);
///     let planned = timers.get("order 7").await?.map(|timer| timer.planned);
///     assert_eq!(planned, Some(new_year));
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum When {
    /// At this time, or at once if it has passed.
    At(SystemTime),
    /// This long after the store has accepted the timer.
    After(Duration),
    /// At the first time of the rule that `Options::cron` sets (feature `cron`).
    ByRule,
}

impl From<SystemTime> for When {
    fn from(at: SystemTime) -> Self {
        Self::At(at)
    }
}

impl From<Duration> for When {
    fn from(delay: Duration) -> Self {
        Self::After(delay)
    }
}

/// The treatment of an existing timer with the same id.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::{DurableError, DurableTimers, Existing, Options};
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-existing-{}", std::process::id()));
/// let timers = DurableTimers::open(&file)?;
/// pollster::block_on(async {
///     let day = Duration::from_secs(86_400);
///     let keep = Options::new().existing(Existing::Keep);
///     for _attempt in 0..2 {
///         timers.insert("order 7", "unpaid", day, keep.clone()).await?; // may be repeated
///     }
///     let replace = Options::new().existing(Existing::Replace);
///     timers.insert("order 7", "half of it is paid", day, replace).await?;
///     let refused = timers.insert("order 7", "another", day, Options::new()).await.unwrap_err();
///     assert_eq!(refused.reason, DurableError::Exists);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// Keep the existing timer. If it is being delivered and would be gone afterwards, the new
    /// timer comes [next](super::Inserted::Next), as if it had been inserted at the end of that
    /// delivery.
    Keep,
    /// Replace the existing timer. A running attempt of it no longer counts, and its
    /// acknowledgement is too late.
    Replace,
    /// Fail with [`DurableError::Exists`].
    #[default]
    Refuse,
}

/// The delivery options of a timer. The defaults are eight attempts, a backoff of one second to ten
/// minutes that is shortened by up to half at random, a lease of one minute, no time to live, no
/// repetition, and refusal of existing ids.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::{Backoff, Existing, Options};
///
/// let options = Options::new()
///     .existing(Existing::Replace)
///     .attempts(3)
///     .backoff(Backoff::new(Duration::from_millis(100), Duration::from_secs(5)))
///     .lease(Duration::from_secs(10))
///     .time_to_live(Duration::from_secs(3600));
/// # let _ = options;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub(super) existing: Existing,
    pub(super) settings: Settings,
}

impl Options {
    /// Creates the default options.
    #[must_use]
    pub fn new() -> Self {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(600)).jitter();
        let settings =
            Settings { attempts: 8, backoff, lease: 60_000, time_to_live: None, rule: None };
        Self { existing: Existing::default(), settings }
    }

    /// Sets the treatment of an existing timer with the same id.
    #[must_use]
    pub fn existing(mut self, existing: Existing) -> Self {
        self.existing = existing;
        self
    }

    /// Sets the number of attempts after which the timer becomes a dead letter. At least one.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.settings.attempts = attempts;
        self
    }

    /// Sets the wait after a failed attempt.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.settings.backoff = backoff;
        self
    }

    /// Sets the maximum duration of an attempt, from one millisecond to one day. After that the
    /// handler's future is dropped and the attempt has failed.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = millis_up(lease);
        self
    }

    /// Sets the time after the planned time within which an attempt may begin. A later timer
    /// becomes a dead letter.
    #[must_use]
    pub fn time_to_live(mut self, time_to_live: Duration) -> Self {
        self.settings.time_to_live = Some(millis_up(time_to_live));
        self
    }

    /// Repeats the timer by a cron expression in an IANA time zone, in the syntax of
    /// [`Calendar`](tourbillon::scheduler::Calendar). After a delivery is acknowledged or becomes a
    /// dead letter, the next one is planned for the first time of the rule after the last attempt
    /// began. A single delivery therefore makes up for all times that were missed.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::{DurableTimers, Options, When};
    ///
    /// # let file = std::env::temp_dir().join(format!("tourbillon-rule-{}", std::process::id()));
    /// let timers = DurableTimers::open(&file)?;
    /// let nightly = Options::new().cron("30 2 * * *", "Europe/Berlin");
    /// pollster::block_on(timers.insert("tidy up", "", When::ByRule, nightly))?;
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "cron")]
    #[must_use]
    pub fn cron(mut self, expression: &str, zone: &str) -> Self {
        self.settings.rule = Some((expression.to_owned(), zone.to_owned()));
        self
    }

    pub(super) fn check(&self, now: Millis) -> Result<(), DurableError> {
        let Settings { attempts, lease, rule, .. } = &self.settings;
        if *attempts == 0 {
            return Err(DurableError::Option("the number of attempts must be at least 1"));
        }
        if !(1..=86_400_000).contains(lease) {
            return Err(DurableError::Option("the lease must be 1 ms to one day"));
        }
        if let Some((expression, zone)) = rule {
            if expression.len() + zone.len() > 512 {
                return Err(DurableError::Rule("more than 512 bytes".to_owned()));
            }
            if self.settings.next(now)?.is_none() {
                return Err(DurableError::Rule("no future occurrence".to_owned()));
            }
        }
        Ok(())
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Settings {
    /// Returns the first time of the rule after `after`, or `None` if there is no rule or no
    /// further time.
    #[cfg(feature = "cron")]
    pub(super) fn next(&self, after: Millis) -> Result<Option<Millis>, DurableError> {
        let Some((expression, zone)) = &self.rule else { return Ok(None) };
        let after = system(after);
        let calendar = tourbillon::scheduler::Calendar::builder(expression)
            .zone(zone)
            .wall_clock(move || after)
            .build();
        match calendar {
            Ok(calendar) => Ok(calendar.next_after(after).map(super::clock::due)),
            Err(tourbillon::scheduler::CalendarError::Never(_)) => Ok(None),
            Err(error) => Err(DurableError::Rule(error.to_string())),
        }
    }

    /// Fails for every rule, because this build has no calendars and the rule was stored by another
    /// build.
    #[cfg(not(feature = "cron"))]
    pub(super) fn next(&self, after: Millis) -> Result<Option<Millis>, DurableError> {
        match &self.rule {
            None => Ok(None),
            Some((expression, _)) => {
                let after = system(after);
                let why = format!("{expression:?} after {after:?} needs the feature `cron`");
                Err(DurableError::Rule(why))
            }
        }
    }
}
