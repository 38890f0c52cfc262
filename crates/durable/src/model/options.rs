//! The settings of a timer: [`When`], [`Options`] and [`Existing`].

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::model::backoff::Backoff;
use crate::model::clock::{Millis, millis_up};
use crate::model::condition::Condition;
use crate::model::label::{Label, MAX_LABELS};
use crate::model::record::Settings;
use crate::model::rule::{Misfire, Rule};
use std::fmt;
use std::time::{Duration, SystemTime};

/// The maximum length of all headers of a timer in bytes.
const MAX_HEADER_BYTES: usize = 4096;

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
    /// At the first time of the rule that [`Options::every`] or `Options::cron` (feature `cron`)
    /// sets. For an interval that is one interval from now.
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
    /// timer comes [next](crate::Inserted::Next), as if it had been inserted at the end of that
    /// delivery.
    Keep,
    /// Replace the existing timer. A running attempt of it no longer counts, and its
    /// acknowledgement is too late.
    Replace,
    /// Change the existing timer, for example when you deploy a program whose nightly job has a new
    /// rule or payload.
    ///
    /// - The payload and all options are replaced, and apply from the next attempt on. A running
    ///   attempt continues with the old values, and its result counts. Its number and fencing token
    ///   stay.
    /// - The due time is kept if it was not changed, so that an overdue delivery or a retry is not
    ///   lost. It is unchanged if `when` is [`When::ByRule`] and the rule is the same, or `when` is
    ///   [`When::At`] the planned time. With `ByRule`, a time that is later than the next time of a
    ///   cron expression is corrected, because it was planned when the clock was ahead.
    /// - A changed time applies to the next delivery. A resting timer moves there, with all its
    ///   attempts. If an attempt is running, that delivery ends first, retries included, and the
    ///   new time comes [next](crate::DurableTimer::next).
    /// - If a delivery is waiting as [next](crate::Inserted::Next), its time is the time that is
    ///   compared and changed.
    /// - A paused timer stays paused.
    Update,
    /// Fail with [`DurableError::Exists`].
    #[default]
    Refuse,
}

#[cfg(any(feature = "postgres", feature = "redis"))]
impl Existing {
    /// Returns the word that the functions of a server know.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Replace => "replace",
            Self::Update => "update",
            Self::Refuse => "refuse",
        }
    }
}

/// The delivery options of a timer. The defaults are eight attempts, a backoff of one second to ten
/// minutes that is shortened by up to half at random, a lease of 15 seconds, no time to live, no
/// repetition, no headers, no labels, and refusal of existing ids.
///
/// The methods that begin with `get_` return the values that were set, for options that were read
/// from a store ([`DurableTimer::options`](crate::DurableTimer::options)).
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
/// assert_eq!(options.get_attempts(), 3);
/// assert_eq!(options.get_time_to_live(), Some(Duration::from_secs(3600)));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Options {
    /// Not stored. A timer that was read has the default.
    pub(crate) existing: Existing,
    /// Not stored either.
    pub(crate) over: Option<Condition>,
    pub(crate) settings: Settings,
}

impl Options {
    /// Creates the default options.
    #[must_use]
    pub fn new() -> Self {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(600)).jitter();
        let settings = Settings {
            attempts: 8,
            backoff,
            lease: 15_000,
            time_to_live: None,
            rule: None,
            window: None,
            headers: Vec::new(),
            labels: Vec::new(),
        };
        Self::of(settings)
    }

    /// Sets the treatment of an existing timer with the same id.
    #[must_use]
    pub fn existing(mut self, existing: Existing) -> Self {
        self.existing = existing;
        self
    }

    /// Inserts the timer only over an existing timer whose last insert set a [header](Self::header)
    /// to this value or, with `None`, did not set it. Otherwise the insert fails with
    /// [`DurableError::Changed`] and changes nothing. It also fails if there is no timer with this
    /// id, or if the timer was cancelled and its last attempt is running.
    ///
    /// The store compares the header in the step that changes the timer. If each insert sets the
    /// header to a unique value, two writers that have read the same timer
    /// ([`DurableTimer::last_insert`](crate::DurableTimer::last_insert)) cannot overwrite each
    /// other. Attempts, resets and pauses do not count as changes.
    ///
    /// This requires [`Existing::Keep`], [`Existing::Replace`] or [`Existing::Update`]. In Redis,
    /// the timer is read first, and read again whenever it changes meanwhile.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::{DurableError, DurableTimers, Existing, Options};
    ///
    /// # let file = std::env::temp_dir().join(format!("tourbillon-over-{}", std::process::id()));
    /// let timers = DurableTimers::open(&file)?;
    /// pollster::block_on(async {
    ///     let day = Duration::from_secs(86_400);
    ///     timers.insert("order 7", "tea", day, Options::new().header("version", "1")).await?;
    ///
    ///     // Two writers have read the same timer.
    ///     let options = Options::new().existing(Existing::Replace);
    ///     let options = options.only_over("version", Some("1"));
    ///     let one = options.clone().header("version", "2a");
    ///     timers.insert("order 7", "milk", day, one).await?;
    ///     let other = options.header("version", "2b");
    ///     let refused = timers.insert("order 7", "sugar", day, other).await.unwrap_err();
    ///     assert_eq!(refused.reason, DurableError::Changed);
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn only_over(mut self, name: impl Into<String>, value: Option<&str>) -> Self {
        self.over = Some(Condition::header(name, value));
        self
    }

    /// Sets how many attempts are made before the timer becomes a dead letter. At least one.
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

    /// Sets the duration of a lease, from one millisecond to one day. If a worker dies, its timer
    /// is retried after this time. A running worker renews the lease at each third of it, so
    /// handlers may run longer, up to the [time limit](crate::Worker::time_limit) of the worker. If
    /// no renewal succeeds in time, the handler's future is dropped and the attempt has failed.
    ///
    /// Choose a lease longer than the interruptions of the store that attempts must survive. In a
    /// file each renewal writes the timer with its payload.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = millis_up(lease);
        self
    }

    /// Sets how long after the planned time an attempt may begin. A later timer becomes a dead
    /// letter.
    #[must_use]
    pub fn time_to_live(mut self, time_to_live: Duration) -> Self {
        self.settings.time_to_live = Some(millis_up(time_to_live));
        self
    }

    /// Adds a text that travels beside the payload, such as the context of a trace, and is shown in
    /// [`Delivery`](crate::Delivery), [`DurableTimer`](crate::DurableTimer) and
    /// [`DeadLetter`](crate::DeadLetter). A header with the same name is replaced. The names and
    /// values of a timer may have 4096 bytes in total.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::Options;
    ///
    /// let options = Options::new().header("traceparent", "00-af7651916cd43dd8-b7ad6b71-01");
    /// let headers: Vec<_> = options.get_headers().collect();
    /// assert_eq!(headers, [("traceparent", "00-af7651916cd43dd8-b7ad6b71-01")]);
    /// ```
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let (name, headers) = (name.into(), &mut self.settings.headers);
        headers.retain(|(other, _)| *other != name);
        headers.push((name, value.into()));
        self
    }

    /// Adds a label, by which the timer can be found. A timer may have up to 8 labels, in no
    /// particular order, and has each of them once. A label costs an entry in an index of the store
    /// when the timer is inserted and when it ends, and nothing in between.
    ///
    /// [`Existing::Update`] and [`Existing::Replace`] replace the labels, like all options.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::{DurableTimers, Label, Options};
    ///
    /// # let file = std::env::temp_dir().join(format!("tourbillon-label-{}", std::process::id()));
    /// let timers = DurableTimers::open(&file)?;
    /// let customer = Label::new("customer 7")?;
    /// pollster::block_on(async {
    ///     let options = Options::new().label(Label::new("shop")?).label(customer.clone());
    ///     timers.insert("order 7", "unpaid", Duration::from_secs(60), options).await?;
    ///     assert_eq!(timers.list_label(&customer, None, 100).await?[0].id, "order 7");
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn label(mut self, label: Label) -> Self {
        let labels = &mut self.settings.labels;
        if let Err(place) = labels.binary_search(&label) {
            labels.insert(place, label);
        }
        self
    }

    /// Repeats the timer at an interval of one millisecond to 36,500 days, rounded up to
    /// milliseconds. Each delivery is planned a whole number of intervals after the previous
    /// delivery, so deliveries that are late or retried do not shift later deliveries. After a
    /// delivery is acknowledged or becomes a dead letter, the next one is planned for the first
    /// such time after the last attempt began, unless [`misfire`](Self::misfire) sets otherwise.
    ///
    /// The first delivery comes at the time that is passed to
    /// [`insert`](crate::DurableTimers::insert). [`reset`](crate::DurableTimers::reset) moves it
    /// and all later deliveries.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tourbillon_durable::{DurableTimers, Options, When};
    ///
    /// # let file = std::env::temp_dir().join(format!("tourbillon-every-{}", std::process::id()));
    /// let timers = DurableTimers::open(&file)?;
    /// let hourly = Options::new().every(Duration::from_secs(3600));
    /// pollster::block_on(async {
    ///     timers.insert("tidy up", "", When::ByRule, hourly.clone()).await?; // in an hour
    ///     let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(4_102_488_000);
    ///     timers.insert("report", "", noon, hourly).await?; // at noon, and each hour after it
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn every(mut self, interval: Duration) -> Self {
        self.settings.rule = Some(Rule::Every(Duration::from_millis(millis_up(interval))));
        self
    }

    /// Sets the treatment of occurrences that were not delivered in time. A window needs a rule.
    #[must_use]
    pub fn misfire(mut self, misfire: Misfire) -> Self {
        self.settings.window = match misfire {
            Misfire::Once => None,
            Misfire::SkipAfter(window) => Some(millis_up(window)),
        };
        self
    }

    /// Repeats the timer by a cron expression in an IANA time zone, in the syntax of
    /// [`Calendar`](tourbillon::scheduler::Calendar).
    ///
    /// An expression has five fields (minute, hour, day of the month, month, day of the week), or
    /// six with seconds first. Therefore one star too many is not an error: `30 2 * * * *` is
    /// second 30 of minute 2 of each hour, and not half past two. A day of the month may be `L`,
    /// the last one, and a day of the week may be numbered, as in `1#2` for the second Monday.
    /// `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly` are expressions as well.
    ///
    /// After a delivery is acknowledged or becomes a
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
        let (expression, zone) = (expression.to_owned(), zone.to_owned());
        self.settings.rule = Some(Rule::Cron { expression, zone });
        self
    }

    /// Returns how many attempts are made before the timer becomes a dead letter.
    #[must_use]
    pub fn get_attempts(&self) -> u32 {
        self.settings.attempts
    }

    /// Returns the wait after a failed attempt.
    #[must_use]
    pub fn get_backoff(&self) -> Backoff {
        self.settings.backoff
    }

    /// Returns how long a worker that dies holds the timer. An attempt may run longer, because its
    /// lease is renewed.
    #[must_use]
    pub fn get_lease(&self) -> Duration {
        Duration::from_millis(self.settings.lease)
    }

    /// Returns how long after the planned time an attempt may begin.
    #[must_use]
    pub fn get_time_to_live(&self) -> Option<Duration> {
        self.settings.time_to_live.map(Duration::from_millis)
    }

    /// Returns the timer's repetition rule.
    #[must_use]
    pub fn get_rule(&self) -> Option<&Rule> {
        self.settings.rule.as_ref()
    }

    /// Returns the treatment of occurrences that were not delivered in time.
    #[must_use]
    pub fn get_misfire(&self) -> Misfire {
        let window = self.settings.window;
        window.map_or(Misfire::Once, |window| Misfire::SkipAfter(Duration::from_millis(window)))
    }

    /// Returns the names and values of the headers, in the order they were set.
    pub fn get_headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.settings.headers.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns the labels, in the order of their texts.
    pub fn get_labels(&self) -> impl Iterator<Item = &Label> {
        self.settings.labels.iter()
    }

    /// Returns the options of a timer that was read from a store.
    pub(crate) fn of(settings: Settings) -> Self {
        Self { existing: Existing::default(), over: None, settings }
    }

    pub(crate) fn check(&self, now: Millis) -> Result<(), DurableError> {
        let Settings { attempts, lease, rule, window, headers, labels, .. } = &self.settings;
        if self.over.is_some() && self.existing == Existing::Refuse {
            let what = "an insert over an existing timer must keep, replace or update it";
            return Err(DurableError::Option(what));
        }
        if *attempts == 0 {
            return Err(DurableError::Option("the number of attempts must be at least 1"));
        }
        if !(1..=86_400_000).contains(lease) {
            return Err(DurableError::Option("the lease must be 1 ms to one day"));
        }
        if headers.iter().any(|(name, _)| name.is_empty()) {
            return Err(DurableError::Option("a header must have a name"));
        }
        let length: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        if length > MAX_HEADER_BYTES {
            return Err(DurableError::Option("the headers must have at most 4096 bytes in total"));
        }
        if labels.len() > MAX_LABELS {
            return Err(DurableError::Option("a timer must have at most 8 labels"));
        }
        let Some(rule) = rule else {
            return match window {
                Some(_) => Err(DurableError::Option("a misfire window needs a rule")),
                None => Ok(()),
            };
        };
        rule.check()?;
        if self.settings.next(now, now)?.is_none() {
            return Err(DurableError::Rule("no future occurrence".to_owned()));
        }
        Ok(())
    }
}

/// Leaves out a default policy for existing timers, because a timer that was read has no other.
impl fmt::Debug for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Options");
        if self.existing != Existing::default() {
            shown.field("existing", &self.existing);
        }
        if let Some(over) = &self.over {
            shown.field("over", over);
        }
        shown.field("settings", &self.settings).finish()
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_is_not_stored_is_not_shown() {
        let options = Options::new().existing(Existing::Update);
        assert!(format!("{options:?}").contains("existing: Update"));
        let read = Options::of(options.settings);
        assert!(!format!("{read:?}").contains("existing"));
    }
}
