//! [`Record`], the stored form of a timer, and its encoding.
//!
//! ```text
//! layout 1 │ fence │ paused 1 │ cancelled 1 │ due 8 │ planned 8 │ plan │ attempt 4 │ settings
//! │ error │ payload │ next │ sum
//! settings: attempts 4 │ first 8 │ most 8 │ jitter 1 │ lease 8 │ time to live │ rule │ window
//! │ headers │ labels
//! ```
//!
//! `paused` is 1 if the timer is paused, and 2 if it is paused but gets a single attempt now. A
//! rule is preceded by a byte that is 1 for a cron expression and 2 for an interval. Headers are
//! preceded by their number in four bytes, and labels by their number in one byte. `next` is the
//! delivery that was inserted while this one was running, encoded as the part from the layout
//! number to its own `next`. Numbers are little-endian. An optional field is preceded by a byte
//! that is 0 or 1. Texts and bytes are preceded by their length in four bytes. The sum is the
//! CRC-32 of all preceding bytes and the timer's id, so a record that is damaged on the disk, or is
//! stored under another id, is not delivered. A store with another layout is not read.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::model::backoff::Backoff;
use crate::model::clock::{Millis, whole_millis};
use crate::model::label::Label;
use crate::model::rule::Rule;
use std::time::Duration;

/// The version of this layout, and of the tables of a file.
pub(crate) const LAYOUT: u8 = 6;

/// The kinds of rules.
const CRON: u8 = 1;
const EVERY: u8 = 2;

/// The kinds of pauses.
const NONE: u8 = 0;
const PAUSED: u8 = 1;
const RUN_NOW: u8 = 2;

/// The delivery options of a timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) attempts: u32,
    pub(crate) backoff: Backoff,
    pub(crate) lease: Millis,
    pub(crate) time_to_live: Option<Millis>,
    pub(crate) rule: Option<Rule>,
    /// The maximum delay of an occurrence that is not skipped.
    pub(crate) window: Option<Millis>,
    /// Names and values.
    pub(crate) headers: Vec<(String, String)>,
    /// Each once.
    pub(crate) labels: Vec<Label>,
}

impl Settings {
    /// Returns the first occurrence after `after` of a timer that is planned for `planned`, or
    /// `None` if there is no rule or no further occurrence.
    pub(crate) fn next(
        &self,
        planned: Millis,
        after: Millis,
    ) -> Result<Option<Millis>, DurableError> {
        self.rule.as_ref().map_or(Ok(None), |rule| rule.next(planned, after))
    }
}

/// A timer as a store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The fencing token of the current lease, or `None` if the timer rests.
    pub(crate) fence: Option<u64>,
    /// Set if the timer was cancelled while it was leased.
    pub(crate) cancelled: bool,
    /// Set if no attempt begins until the timer is resumed.
    pub(crate) paused: bool,
    /// Set if the next attempt begins although the timer is paused. An attempt that counts clears
    /// it. Only a paused timer has it.
    pub(crate) run_now: bool,
    /// The time of the next action, which is an attempt or the end of a lease.
    pub(crate) due: Millis,
    /// The time of the delivery. Together with the id it identifies the delivery.
    pub(crate) planned: Millis,
    /// The planned time that this delivery had before it was ordered. A repetition continues
    /// there. `None` if the delivery was not ordered, or has a `next` one.
    pub(crate) plan: Option<Millis>,
    /// The number of attempts that have begun.
    pub(crate) attempt: u32,
    pub(crate) settings: Settings,
    /// The error of the last failed attempt, or of the last delivery that was given back with one.
    pub(crate) error: String,
    pub(crate) payload: Vec<u8>,
    /// The delivery that was inserted while this one was running, and follows it.
    pub(crate) next: Option<Box<Record>>,
}

/// The offset that moves the keys of paused timers behind all other keys in the index of due times,
/// so that workers do not load them. It is greater than [`LATEST`](crate::model::clock::LATEST).
pub(crate) const PARKED: Millis = 1 << 48;

impl Record {
    /// Returns a timer that rests, is not paused, and has had no attempt.
    pub(crate) fn resting(due: Millis, settings: Settings, payload: Vec<u8>) -> Self {
        Self {
            fence: None,
            cancelled: false,
            paused: false,
            run_now: false,
            due,
            planned: due,
            plan: None,
            attempt: 0,
            settings,
            error: String::new(),
            payload,
            next: None,
        }
    }

    /// Returns the time in the key of the timer in the index. A paused timer that rests is parked
    /// behind all other timers, in the order of due times, unless it is to run now.
    pub(crate) fn indexed(&self) -> Millis {
        if self.is_parked() { self.due + PARKED } else { self.due }
    }

    /// Returns `true` if no attempt begins, because the timer is paused.
    pub(crate) fn is_parked(&self) -> bool {
        self.paused && !self.run_now && self.fence.is_none()
    }

    /// Returns the planned time of the delivery that follows this one, or `None` if there is none.
    /// By the rule it is the first occurrence after `after`.
    ///
    /// # Errors
    ///
    /// Fails with [`DurableError::Rule`] if the rule cannot be read.
    pub(crate) fn following(&self, after: Millis) -> Result<Option<Millis>, DurableError> {
        let by_rule = self.settings.next(self.planned, after.max(self.planned))?;
        Ok(self.next.as_ref().map(|next| next.planned).or(self.plan()).or(by_rule))
    }

    /// Returns the plan of a repetition, which follows a delivery that was ordered in addition.
    pub(crate) fn plan(&self) -> Option<Millis> {
        self.plan.filter(|_| self.settings.rule.is_some())
    }

    /// Returns `true` if the bytes begin like the record of a leased timer, whether or not they can
    /// be decoded.
    pub(crate) fn is_leased(bytes: &[u8]) -> bool {
        bytes.starts_with(&[LAYOUT, 1])
    }

    pub(crate) fn encode(&self, id: &str) -> Vec<u8> {
        let mut bytes = Bytes(vec![LAYOUT]);
        self.fields(&mut bytes);
        bytes.sealed(id)
    }

    fn fields(&self, bytes: &mut Bytes) {
        self.delivery(bytes);
        bytes.flag(self.next.is_some());
        if let Some(next) = &self.next {
            next.delivery(bytes);
        }
    }

    fn delivery(&self, bytes: &mut Bytes) {
        let Settings { attempts, backoff, lease, time_to_live, rule, window, headers, labels } =
            &self.settings;
        bytes.optional(self.fence);
        bytes.0.push(match (self.paused, self.run_now) {
            (false, _) => NONE,
            (true, false) => PAUSED,
            (true, true) => RUN_NOW,
        });
        bytes.flag(self.cancelled);
        bytes.long(self.due);
        bytes.long(self.planned);
        bytes.optional(self.plan);
        bytes.int(self.attempt);
        bytes.int(*attempts);
        bytes.long(backoff.first);
        bytes.long(backoff.most);
        bytes.flag(backoff.jitter);
        bytes.long(*lease);
        bytes.optional(*time_to_live);
        match rule {
            None => bytes.0.push(0),
            Some(Rule::Cron { expression, zone }) => {
                bytes.0.push(CRON);
                bytes.text(expression.as_bytes());
                bytes.text(zone.as_bytes());
            }
            Some(Rule::Every(interval)) => {
                bytes.0.push(EVERY);
                bytes.long(whole_millis(*interval));
            }
        }
        bytes.optional(*window);
        // Their number is bounded by their length in bytes.
        bytes.int(u32::try_from(headers.len()).unwrap_or(u32::MAX));
        for (name, value) in headers {
            bytes.text(name.as_bytes());
            bytes.text(value.as_bytes());
        }
        // There are at most eight.
        bytes.0.push(u8::try_from(labels.len()).unwrap_or(u8::MAX));
        for label in labels {
            bytes.text(label.as_str().as_bytes());
        }
        bytes.text(self.error.as_bytes());
        bytes.text(&self.payload);
    }

    /// Decodes a record. Returns `None` if the bytes are not a record of this id.
    pub(crate) fn decode(id: &str, bytes: &[u8]) -> Option<Self> {
        let mut rest = unsealed(id, bytes)?;
        let record = Self::read(&mut rest)?;
        rest.0.is_empty().then_some(record)
    }

    fn read(rest: &mut Reader<'_>) -> Option<Self> {
        let mut record = Self::read_delivery(rest)?;
        if rest.flag()? {
            record.next = Some(Box::new(Self::read_delivery(rest)?));
        }
        Some(record)
    }

    fn read_delivery(rest: &mut Reader<'_>) -> Option<Self> {
        let fence = rest.optional()?;
        let (paused, run_now) = match *rest.take(1)? {
            [NONE] => (false, false),
            [PAUSED] => (true, false),
            [RUN_NOW] => (true, true),
            _ => return None,
        };
        let cancelled = rest.flag()?;
        let (due, planned) = (rest.long()?, rest.long()?);
        let (plan, attempt) = (rest.optional()?, rest.int()?);
        let attempts = rest.int()?;
        let (first, most, jitter) = (rest.long()?, rest.long()?, rest.flag()?);
        let lease = rest.long()?;
        let time_to_live = rest.optional()?;
        let rule = match *rest.take(1)? {
            [0] => None,
            [CRON] => {
                let (expression, zone) = (rest.string()?, rest.string()?);
                Some(Rule::Cron { expression, zone })
            }
            [EVERY] => Some(Rule::Every(Duration::from_millis(rest.long()?))),
            _ => return None,
        };
        let window = rest.optional()?;
        let headers = (0..rest.int()?).map(|_| Some((rest.string()?, rest.string()?)));
        let headers = headers.collect::<Option<_>>()?;
        let labels = (0..rest.take(1)?[0]).map(|_| Label::new(rest.string()?).ok());
        let labels = labels.collect::<Option<_>>()?;
        let settings = Settings {
            attempts,
            backoff: Backoff { first, most, jitter },
            lease,
            time_to_live,
            rule,
            window,
            headers,
            labels,
        };
        let (error, payload) = (rest.string()?, rest.text()?.to_vec());
        let next = None;
        Some(Self {
            fence,
            cancelled,
            paused,
            run_now,
            due,
            planned,
            plan,
            attempt,
            settings,
            error,
            payload,
            next,
        })
    }
}

/// A timer that was given up, as a store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dead {
    pub(crate) id: String,
    /// When the timer was given up.
    pub(crate) died: Millis,
    pub(crate) reason: DeadReason,
    pub(crate) record: Record,
}

/// The reason why a timer became a dead letter.
///
/// # Examples
///
/// A reminder that is too late to be useful is deleted, and any other letter is redriven:
///
/// ```
/// use tourbillon_durable::{DeadReason, DurableError, DurableTimers};
///
/// async fn tidy_up(timers: &DurableTimers) -> Result<(), DurableError> {
///     for letter in timers.dead_letters(None, 100).await? {
///         match letter.reason {
///             DeadReason::Expired => timers.delete_dead_letter(letter.number).await?,
///             _ => timers.redrive(letter.number).await?,
///         };
///     }
///     Ok(())
/// }
/// # let file = std::env::temp_dir().join(format!("tourbillon-reason-{}", std::process::id()));
/// # let timers = DurableTimers::open(&file)?;
/// # pollster::block_on(async {
/// #     let (done, mut end) = futures_channel::mpsc::unbounded::<()>();
/// #     let end = async move { drop(futures_util::StreamExt::next(&mut end).await) };
/// #     let options = tourbillon_durable::Options::new().time_to_live(std::time::Duration::ZERO);
/// #     timers.insert("late", "", std::time::SystemTime::UNIX_EPOCH, options).await?;
/// #     let worker = timers.worker().until(end);
/// #     let worker = worker.observe(move |_| drop(done.unbounded_send(())));
/// #     worker.run(|_| async { Ok::<(), String>(()) }).await?;
/// #     assert_eq!(timers.dead_letters(None, 1).await?[0].reason, DeadReason::Expired);
/// #     tidy_up(&timers).await?;
/// #     assert_eq!(timers.dead_len().await?, 0);
/// #     Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeadReason {
    /// The last attempt failed.
    Attempts,
    /// A handler returned [`Verdict::Fail`](crate::Verdict::Fail) or
    /// [`Verdict::Stop`](crate::Verdict::Stop).
    Failed,
    /// The time to live passed before an attempt could begin.
    Expired,
    /// The repetition rule cannot be read (by this build, or with these time zones), so the next
    /// delivery is unknown. No attempt was made.
    Rule,
}

impl DeadReason {
    /// Returns the name of the variant in snake case, such as `expired`, for logs and labels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Attempts => "attempts",
            Self::Failed => "failed",
            Self::Expired => "expired",
            Self::Rule => "rule",
        }
    }

    /// Returns the number that encodes the reason in each store.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Attempts => 0,
            Self::Expired => 1,
            Self::Rule => 2,
            Self::Failed => 3,
        }
    }

    /// Returns the reason that a number encodes.
    pub(crate) fn of_number(number: impl TryInto<u8>) -> Option<Self> {
        let number = number.try_into().ok()?;
        let all = [Self::Attempts, Self::Expired, Self::Rule, Self::Failed];
        all.into_iter().find(|reason| reason.number() == number)
    }
}

impl Dead {
    /// Returns the first number that the letter may have in a store it is copied to.
    pub(crate) fn first_number(&self) -> u64 {
        self.died * 1024
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Bytes(vec![LAYOUT]);
        bytes.text(self.id.as_bytes());
        bytes.long(self.died);
        bytes.int(self.reason.number().into());
        self.record.fields(&mut bytes);
        // The id is part of the bytes.
        bytes.sealed("")
    }

    /// Decodes a dead letter. Returns `None` if the bytes are not a dead letter.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = unsealed("", bytes)?;
        let (id, died) = (rest.string()?, rest.long()?);
        let reason = DeadReason::of_number(rest.int()?)?;
        let record = Record::read(&mut rest)?;
        rest.0.is_empty().then_some(Self { id, died, reason, record })
    }
}

struct Bytes(Vec<u8>);

impl Bytes {
    fn flag(&mut self, flag: bool) {
        self.0.push(u8::from(flag));
    }

    fn int(&mut self, number: u32) {
        self.0.extend(number.to_le_bytes());
    }

    fn long(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    fn optional(&mut self, number: Option<u64>) {
        self.flag(number.is_some());
        if let Some(number) = number {
            self.long(number);
        }
    }

    /// Appends the checksum.
    fn sealed(mut self, id: &str) -> Vec<u8> {
        self.int(sum(id, &self.0));
        self.0
    }

    /// Appends a text, which is always far shorter than four bytes can express.
    fn text(&mut self, text: &[u8]) {
        self.int(u32::try_from(text.len()).unwrap_or(u32::MAX));
        self.0.extend(text);
    }
}

/// Returns the CRC-32 of the bytes followed by the id.
pub(crate) fn sum(id: &str, bytes: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(bytes);
    sum.update(id.as_bytes());
    sum.finalize()
}

/// Returns a reader of the bytes between the layout number and the sum, or `None` if they are
/// damaged or belong to another id.
fn unsealed<'a>(id: &str, bytes: &'a [u8]) -> Option<Reader<'a>> {
    let (bytes, written) = bytes.split_last_chunk()?;
    if sum(id, bytes) != u32::from_le_bytes(*written) {
        return None;
    }
    let mut rest = Reader(bytes);
    (rest.take(1)? == [LAYOUT]).then_some(rest)
}

/// Reads fields from the front, for the layouts of both stores.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.take(1)? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    fn int(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn long(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn optional(&mut self) -> Option<Option<u64>> {
        Some(if self.flag()? { Some(self.long()?) } else { None })
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.int()?).ok()?;
        self.take(length)
    }

    fn string(&mut self) -> Option<String> {
        String::from_utf8(self.text()?.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(fence: Option<u64>, rule: bool) -> Record {
        let (expression, zone) = ("* * * * *".to_owned(), "UTC".to_owned());
        Record {
            fence,
            cancelled: fence.is_some() && rule,
            paused: rule,
            run_now: false,
            due: 1,
            planned: 2,
            plan: rule.then_some(11),
            attempt: 3,
            settings: Settings {
                attempts: 4,
                backoff: Backoff { first: 5, most: 6, jitter: rule },
                lease: 7,
                time_to_live: rule.then_some(8),
                rule: Some(match rule {
                    true => Rule::Cron { expression, zone },
                    false => Rule::Every(Duration::from_millis(9)),
                }),
                window: rule.then_some(10),
                headers: vec![("trace".to_owned(), "7".to_owned()); usize::from(rule)],
                labels: vec![Label::new("shop").expect("a label"); usize::from(rule)],
            },
            error: "out of paper".to_owned(),
            payload: vec![0, 255],
            next: rule.then(|| Box::new(record(None, false))),
        }
    }

    #[test]
    fn what_is_encoded_is_decoded_and_nothing_else_is() {
        for record in [record(None, false), record(Some(9), false), record(Some(9), true)] {
            let bytes = record.encode("id");
            assert_eq!(Record::decode("id", &bytes), Some(record.clone()));
            for other in ["ie", "i", "idd", ""] {
                assert_eq!(Record::decode(other, &bytes), None, "the record of another id");
            }
            for end in 0..bytes.len() {
                assert_eq!(Record::decode("id", &bytes[..end]), None, "cut at {end}");
            }
            assert_eq!(Record::decode("id", &[&bytes[..], &[0]].concat()), None);
            for bit in 0..8 * bytes.len() {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Record::decode("id", &damaged), None, "bit {bit}");
            }
            use DeadReason::{Attempts, Expired, Failed, Rule};
            for reason in [Attempts, Expired, Rule, Failed] {
                let dead = Dead { id: "id".to_owned(), died: 1, reason, record: record.clone() };
                let bytes = dead.encode();
                assert_eq!(Dead::decode(&bytes), Some(dead));
                assert_eq!(Dead::decode(&bytes[..bytes.len() - 1]), None);
            }
        }
    }
}
