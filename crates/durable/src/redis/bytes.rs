//! The encoding of a record in Redis, with a head that the scripts read and a rest that they carry
//! along.
//!
//! ```text
//! record: layout 1 │ flags 1 │ due 6 │ planned 6 │ fence 6 │ attempt 4 │ lease 4 │ error
//!         │ plan 6? │ next? │ rest
//! rest:   sum 4 │ labels? │ attempts │ first │ most │ which 1 │ time to live? │ cron rule?
//!         │ interval? │ window? │ headers? │ payload, to the end, or the sum 4 of a long one
//! letter: died 6 │ reason 1 │ id │ long payload │ record
//! ```
//!
//! Numbers of the head are little-endian, and `error` and `id` are preceded by their length in two
//! bytes. `scripts/change.lua` reads the same layout. `plan` is the planned time that the delivery
//! had before it was ordered. `next` is the record of the delivery that was inserted while this one
//! was running, preceded by its length in four bytes. A record has one of them at most, and a flag
//! indicates each. Numbers of the rest have seven bits per byte, lowest first, and a text is
//! preceded by its length. A part that is absent takes no byte. Headers and labels are preceded by
//! their number. The sum is the CRC-32 of the bytes after it, which no script changes, and of the
//! timer's id, so a record whose rest is damaged, or that is stored under another id, is not
//! delivered. With a short payload a record stays below 64 bytes, the limit for a small hash to be
//! packed without pointers.
//!
//! A payload of more than 4 KiB is [long](Stored). It has its own field beside the record, so that
//! a lease, its renewals and a retry write the record and not the payload. In a letter it is
//! preceded by its length in four bytes, which is 0 if the payload is in the record.

#![forbid(unsafe_code)]

use crate::model::backoff::Backoff;
use crate::model::clock::{Millis, whole_millis};
use crate::model::label::Label;
use crate::model::record::{Dead, DeadReason, Reader, Record, Settings, sum};
use crate::model::rule::Rule;
use std::time::Duration;

/// The version of this encoding and of the keys, as in `scripts/change.lua`.
pub(super) const LAYOUT: u8 = 8;

/// Flag of a record that repeats. A cancel clears it while the timer is leased.
const REPEATS: u8 = 1;

/// Flag of a record that has a next delivery.
const NEXT: u8 = 2;

/// Flag of a record that was cancelled while it was leased.
const CANCELLED: u8 = 4;

/// Flag of a record that is paused.
const PAUSED: u8 = 8;

/// Flag of a record with a long payload.
const LONG: u8 = 16;

/// Flag of a paused record whose next attempt begins nevertheless.
const RUN_NOW: u8 = 32;

/// Flag of a record that was ordered, and has a plan.
const PLAN: u8 = 64;

/// Flag of a record with labels.
const LABELS: u8 = 128;

/// The maximum length in bytes of a payload that is not long.
const MAX_INLINE_BYTES: usize = 4096;

/// Flags of the optional parts of a rest.
const JITTER: u8 = 1;
const LIVES: u8 = 2;
const CRON: u8 = 4;
const EVERY: u8 = 8;
const WINDOW: u8 = 16;
const HEADERS: u8 = 32;
/// These two are also flagged in the head, for the scripts.
const LONG_PAYLOAD: u8 = 64;
const HAS_LABELS: u8 = 128;

/// A record as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) record: Vec<u8>,
    /// The payload if it is long, or empty.
    pub(super) payload: Vec<u8>,
    /// The payload of the next delivery if it is long, or empty.
    pub(super) next: Vec<u8>,
}

impl Stored {
    /// Returns the length in bytes.
    pub(super) fn len(&self) -> usize {
        self.record.len() + self.payload.len() + self.next.len()
    }
}

/// A record to store, like [`Stored`].
pub(super) struct Encoded<'a> {
    pub(super) record: Vec<u8>,
    pub(super) payload: &'a [u8],
    pub(super) next: &'a [u8],
}

/// Encodes a record.
pub(super) fn encode<'a>(id: &str, record: &'a Record) -> Encoded<'a> {
    let Record { settings, error, payload, .. } = record;
    let is_long = payload.len() > MAX_INLINE_BYTES;
    let next = record.next.as_ref().map(|next| encode(id, next));
    let flags = [
        (settings.rule.is_some(), REPEATS),
        (next.is_some(), NEXT),
        (record.cancelled, CANCELLED),
        (record.paused, PAUSED),
        (record.run_now, RUN_NOW),
        (record.plan.is_some(), PLAN),
        (is_long, LONG),
        (!settings.labels.is_empty(), LABELS),
    ];
    let mut bytes = Vec::with_capacity(64 + error.len() + payload.len().min(MAX_INLINE_BYTES));
    bytes.extend([LAYOUT, set(&flags)]);
    let (fence, attempt) = (record.fence.unwrap_or(0), u64::from(record.attempt));
    let length = error.len() as u64;
    for (number, size) in [
        (record.due, 6),
        (record.planned, 6),
        (fence, 6),
        (attempt, 4),
        (settings.lease, 4),
        (length, 2),
    ] {
        bytes.extend(&number.to_le_bytes()[..size]);
    }
    bytes.extend(error.as_bytes());
    if let Some(plan) = record.plan {
        bytes.extend(&plan.to_le_bytes()[..6]);
    }
    if let Some(next) = &next {
        bytes.extend(&(next.record.len() as u64).to_le_bytes()[..4]);
        bytes.extend(&next.record);
    }
    let begin = bytes.len();
    bytes.extend([0; 4]);
    encode_settings(&mut bytes, settings, is_long);
    match is_long {
        true => bytes.extend(sum(id, payload).to_le_bytes()),
        false => bytes.extend(payload),
    }
    let sum = sum(id, &bytes[begin + 4..]);
    bytes[begin..begin + 4].copy_from_slice(&sum.to_le_bytes());
    let payload = if is_long { &payload[..] } else { &[] };
    Encoded { record: bytes, payload, next: next.map_or(&[], |next| next.payload) }
}

/// Returns the sum of the flags that are set.
fn set(flags: &[(bool, u8)]) -> u8 {
    flags.iter().filter(|(set, _)| *set).map(|(_, flag)| flag).sum()
}

/// Encodes the rest of a record up to its payload.
fn encode_settings(bytes: &mut Vec<u8>, settings: &Settings, has_long_payload: bool) {
    let Settings { attempts, backoff, time_to_live, rule, window, headers, labels, .. } = settings;
    if !labels.is_empty() {
        // The scripts read the numbers as bytes.
        number(bytes, labels.len() as u64);
        labels.iter().for_each(|label| text(bytes, label.as_str()));
    }
    number(bytes, u64::from(*attempts));
    number(bytes, backoff.first);
    number(bytes, backoff.most);
    bytes.push(set(&[
        (backoff.jitter, JITTER),
        (time_to_live.is_some(), LIVES),
        (matches!(rule, Some(Rule::Cron { .. })), CRON),
        (matches!(rule, Some(Rule::Every(_))), EVERY),
        (window.is_some(), WINDOW),
        (!headers.is_empty(), HEADERS),
        (has_long_payload, LONG_PAYLOAD),
        (!labels.is_empty(), HAS_LABELS),
    ]));
    if let Some(lives) = time_to_live {
        number(bytes, *lives);
    }
    match rule {
        None => {}
        Some(Rule::Cron { expression, zone }) => {
            text(bytes, expression);
            text(bytes, zone);
        }
        Some(Rule::Every(interval)) => number(bytes, whole_millis(*interval)),
    }
    if let Some(window) = window {
        number(bytes, *window);
    }
    if !headers.is_empty() {
        number(bytes, headers.len() as u64);
        for (name, value) in headers {
            text(bytes, name);
            text(bytes, value);
        }
    }
}

/// Decodes a record. Returns `None` if it is not a record of this id.
pub(super) fn record(id: &str, stored: Stored) -> Option<Record> {
    let Stored { record, payload, next } = stored;
    let mut head = Reader(&record);
    let &[LAYOUT, flags] = head.take(2)? else { return None };
    let (due, planned, fence) = (head.fixed(6)?, head.fixed(6)?, head.fixed(6)?);
    let (attempt, lease) = (u32::try_from(head.fixed(4)?).ok()?, head.fixed(4)?);
    let error = head.fixed(2)?;
    let error = head.counted(error)?;
    let plan = match flags & PLAN {
        0 => None,
        _ => Some(head.fixed(6)?),
    };
    let next = match flags & NEXT {
        0 => None,
        _ => Some(Box::new(head.next(id, next)?)),
    };
    let (written, mut rest) = (head.fixed(4)?, head);
    if u64::from(sum(id, rest.0)) != written {
        return None;
    }
    let (settings, has_long) = read_settings(&mut rest, flags, lease)?;
    let fence = (fence != 0).then_some(fence);
    let (paused, run_now) = (flags & PAUSED != 0, flags & RUN_NOW != 0);
    let long = [flags & LONG != 0, has_long];
    let payload = read_payload(id, long, rest.0, payload)?;
    let cancelled = flags & CANCELLED != 0;
    Some(Record {
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

/// Reads the settings, and whether the payload is long. The flags of the head must agree with them,
/// because the head has no sum.
fn read_settings(rest: &mut Reader<'_>, flags: u8, lease: Millis) -> Option<(Settings, bool)> {
    let labels = if flags & LABELS == 0 { Vec::new() } else { rest.labels()? };
    let attempts = u32::try_from(rest.number()?).ok()?;
    let (first, most) = (rest.number()?, rest.number()?);
    let which = rest.take(1)?[0];
    if (which & HAS_LABELS != 0) != (flags & LABELS != 0) {
        return None;
    }
    let time_to_live = rest.packed(which & LIVES)?;
    let rule = match which & (CRON | EVERY) {
        0 => None,
        CRON => Some(Rule::Cron { expression: rest.short()?, zone: rest.short()? }),
        EVERY => Some(Rule::Every(Duration::from_millis(rest.number()?))),
        _ => return None,
    };
    let window = rest.packed(which & WINDOW)?;
    let headers = if which & HEADERS == 0 { Vec::new() } else { rest.headers()? };
    let settings = Settings {
        attempts,
        backoff: Backoff { first, most, jitter: which & JITTER != 0 },
        lease,
        time_to_live,
        rule: rule.filter(|_| flags & REPEATS != 0),
        window,
        headers,
        labels,
    };
    Some((settings, which & LONG_PAYLOAD != 0))
}

/// Returns the payload, which is the end of a record, or a long payload if its sum is there. The
/// two flags of a long payload are equal, unless the head, which has no sum, is damaged.
fn read_payload(id: &str, long: [bool; 2], end: &[u8], payload: Vec<u8>) -> Option<Vec<u8>> {
    match long {
        [false, false] => Some(end.to_vec()),
        [true, true] => (end == sum(id, &payload).to_le_bytes()).then_some(payload),
        _ => None,
    }
}

/// Encodes a dead letter.
pub(super) fn encode_letter(dead: &Dead) -> Vec<u8> {
    let Dead { id, died, reason: why, record } = dead;
    let mut bytes = Vec::new();
    for (number, size) in [(*died, 6), (why.number().into(), 1), (id.len() as u64, 2)] {
        bytes.extend(&number.to_le_bytes()[..size]);
    }
    bytes.extend(id.as_bytes());
    let Encoded { record, payload, .. } = encode(id, record);
    bytes.extend(&(payload.len() as u64).to_le_bytes()[..4]);
    bytes.extend(payload);
    bytes.extend(record);
    bytes
}

/// Decodes a dead letter. Returns `None` if the bytes are not a dead letter.
pub(super) fn letter(bytes: &[u8]) -> Option<Dead> {
    let mut head = Reader(bytes);
    let died = head.fixed(6)?;
    let reason = DeadReason::of_number(head.fixed(1)?)?;
    let length = head.fixed(2)?;
    let id = head.counted(length)?;
    let length = usize::try_from(head.fixed(4)?).ok()?;
    let payload = head.take(length)?.to_vec();
    let record = record(&id, Stored { record: head.0.to_vec(), payload, next: Vec::new() })?;
    Some(Dead { id, died, reason, record })
}

fn number(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 127 {
        bytes.push(number.to_le_bytes()[0] | 128);
        number /= 128;
    }
    bytes.push(number.to_le_bytes()[0]);
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    number(bytes, text.len() as u64);
    bytes.extend(text.as_bytes());
}

/// Reads the numbers and texts of this layout.
impl Reader<'_> {
    fn fixed(&mut self, count: usize) -> Option<u64> {
        let bytes = self.take(count)?.iter().rev();
        Some(bytes.fold(0, |number, byte| number * 256 + u64::from(*byte)))
    }

    fn number(&mut self) -> Option<u64> {
        let (mut number, mut place) = (0_u64, 1_u64);
        loop {
            let byte = u64::from(self.take(1)?[0]);
            number = number.checked_add((byte % 128).checked_mul(place)?)?;
            if byte < 128 {
                return Some(number);
            }
            place = place.checked_mul(128)?;
        }
    }

    /// Reads the record of the next delivery, which has no next delivery itself.
    fn next(&mut self, id: &str, payload: Vec<u8>) -> Option<Record> {
        let length = usize::try_from(self.fixed(4)?).ok()?;
        let bytes = self.take(length)?.to_vec();
        let next = Vec::new();
        (bytes.get(1)? & NEXT == 0).then(|| record(id, Stored { record: bytes, payload, next }))?
    }

    fn counted(&mut self, length: u64) -> Option<String> {
        let length = usize::try_from(length).ok()?;
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }

    fn packed(&mut self, flag: u8) -> Option<Option<u64>> {
        Some(if flag == 0 { None } else { Some(self.number()?) })
    }

    fn short(&mut self) -> Option<String> {
        let length = self.number()?;
        self.counted(length)
    }

    fn labels(&mut self) -> Option<Vec<Label>> {
        (0..self.number()?).map(|_| Label::new(self.short()?).ok()).collect()
    }

    fn headers(&mut self) -> Option<Vec<(String, String)>> {
        (0..self.number()?).map(|_| Some((self.short()?, self.short()?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes a record without long payloads.
    fn record(id: &str, bytes: &[u8]) -> Option<Record> {
        super::record(id, Stored { record: bytes.to_vec(), ..Stored::default() })
    }

    /// Encodes a record without long payloads.
    fn encode(id: &str, record: &Record) -> Vec<u8> {
        let Encoded { record, payload, next } = super::encode(id, record);
        assert!(payload.is_empty() && next.is_empty());
        record
    }

    /// Encodes a record under a fencing token, in its third attempt.
    fn bytes(settings: &Settings, fence: u64) -> Vec<u8> {
        let (planned, error) = (2, "out of paper".to_owned());
        let resting = Record::resting(1, settings.clone(), vec![0, 255]);
        let mut bytes = encode("id", &Record { planned, error, ..resting });
        bytes[14..20].copy_from_slice(&fence.to_le_bytes()[..6]);
        bytes[20] = 3;
        bytes
    }

    fn settings(rule: bool) -> Settings {
        let (expression, zone) = ("* * * * *".to_owned(), "UTC".to_owned());
        Settings {
            attempts: 4,
            backoff: Backoff { first: 1000, most: u64::MAX, jitter: rule },
            lease: 86_400_000,
            time_to_live: rule.then_some(128),
            rule: rule.then_some(Rule::Cron { expression, zone }),
            window: rule.then_some(300),
            headers: vec![("trace".to_owned(), "7".to_owned()); usize::from(rule)],
            labels: vec![Label::new("shop").expect("a label"); usize::from(rule)],
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_nothing_else_is() {
        for (rule, fence) in [(false, None), (true, Some(1 << 40))] {
            let bytes = bytes(&settings(rule), fence.unwrap_or(0));
            let found = record("id", &bytes).expect("a record");
            let (error, payload) = ("out of paper".to_owned(), vec![0, 255]);
            let rest = 30 + error.len();
            let settings = settings(rule);
            let expected = Record {
                fence,
                cancelled: false,
                paused: false,
                run_now: false,
                due: 1,
                planned: 2,
                plan: None,
                attempt: 3,
                settings,
                error,
                payload,
                next: None,
            };
            assert_eq!(found, expected);
            assert_eq!(encode("id", &found), bytes);
            assert_eq!(record("ie", &bytes), None, "the record of another id");
            for end in 0..bytes.len() {
                assert_eq!(record("id", &bytes[..end]), None, "cut at {end}");
            }
            for bit in 8 * rest..8 * bytes.len() {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(record("id", &damaged), None, "bit {bit}");
            }
            let dead = [&[9, 0, 0, 0, 0, 0, 1, 2, 0, b'i', b'd', 0, 0, 0, 0], &bytes[..]].concat();
            let encoded = dead;
            let dead = letter(&encoded).expect("a letter");
            assert_eq!(encode_letter(&dead), encoded);
            assert_eq!((dead.died, &*dead.id, dead.reason), (9, "id", DeadReason::Expired));
            assert_eq!(dead.record, expected);
        }
    }

    #[test]
    fn a_long_payload_is_beside_its_record_and_compared_with_it() {
        for (length, beside) in [(4096, false), (4097, true)] {
            let payload = vec![7; length];
            let next = Record::resting(3, settings(true), payload.clone());
            let record = Record { payload, next: Some(Box::new(next)), ..plain() };
            let encoded = super::encode("id", &record);
            assert_eq!((encoded.payload.is_empty(), encoded.next.is_empty()), (!beside, !beside));
            assert_eq!(encoded.record.len() < 400, beside);
            let found = stored(&encoded);
            assert_eq!(super::record("id", found.clone()), Some(record.clone()));
            if beside {
                let without = Stored { record: found.record.clone(), ..Stored::default() };
                let mut payload = found.clone();
                payload.payload[99] ^= 1;
                let mut next = found.clone();
                next.next.pop();
                // The flag that tells scripts of a long payload.
                let mut flag = found;
                flag.record[1] -= LONG;
                for damaged in [without, payload, next, flag] {
                    assert_eq!(super::record("id", damaged), None);
                }
            }
            let record = Record { next: None, ..record };
            let dead = Dead { id: "id".to_owned(), died: 9, reason: DeadReason::Failed, record };
            assert_eq!(letter(&encode_letter(&dead)), Some(dead));
        }
    }

    fn stored(encoded: &Encoded<'_>) -> Stored {
        let Encoded { record, payload, next } = encoded;
        Stored { record: record.clone(), payload: payload.to_vec(), next: next.to_vec() }
    }

    fn plain() -> Record {
        record("id", &bytes(&settings(false), 7)).expect("a record")
    }

    #[test]
    fn a_record_has_the_one_that_comes_next() {
        let (first, second) = (bytes(&settings(false), 7), bytes(&settings(true), 0));
        let front = 30 + "out of paper".len();
        let (length, flag) = ((second.len() as u64).to_le_bytes(), [LAYOUT, NEXT]);
        let both = [&flag, &first[2..front], &length[..4], &second, &first[front..]].concat();
        let found = record("id", &both).expect("a record");
        assert_eq!(encode("id", &found), both);
        let next = record("id", &second).map(Box::new);
        assert_eq!(found, Record { next, ..record("id", &first).expect("a record") });
        for bit in 8 * (front + 4 + 30)..8 * both.len() {
            let mut damaged = both.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let same = record("id", &damaged).is_some_and(|it| it.settings == found.settings);
            // The head of neither record has a checksum.
            assert!(!same || bit / 8 < front + 4 + front, "bit {bit}");
        }
        // No further record follows.
        let endless = [&flag, &first[2..front], &length[..4], &both, &first[front..]].concat();
        assert_eq!(record("id", &endless), None);
    }

    #[test]
    fn a_repetition_that_was_cancelled_has_no_rule() {
        let mut bytes = bytes(&settings(true), 1);
        bytes[1] = bytes[1] - REPEATS + CANCELLED;
        let found = record("id", &bytes).expect("a record");
        assert_eq!((found.settings.rule, found.cancelled), (None, true));
    }

    #[test]
    fn each_option_alone_is_read_as_it_was_written() {
        let plain = settings(false);
        let (rule, headers) = (Rule::Every(Duration::from_millis(200)), settings(true).headers);
        for settings in [
            Settings { rule: Some(rule.clone()), ..plain.clone() },
            Settings { rule: Some(rule), window: Some(0), ..plain.clone() },
            Settings { headers, ..plain.clone() },
            Settings { time_to_live: Some(0), ..plain },
        ] {
            let resting = Record::resting(1, settings, vec![7]);
            assert_eq!(record("id", &encode("id", &resting)), Some(resting));
        }
    }

    #[test]
    fn a_record_tells_if_it_is_paused_and_was_ordered() {
        let found = record("id", &bytes(&settings(true), 1)).expect("a record");
        for (run_now, plan) in [(false, None), (false, Some(1 << 40)), (true, Some(7))] {
            let ordered = Record { paused: true, run_now, plan, ..found.clone() };
            assert_eq!(record("id", &encode("id", &ordered)), Some(ordered));
        }
    }

    #[test]
    fn a_timer_by_default_with_a_short_payload_is_packed_by_redis() {
        let options = crate::model::options::Options::new();
        let resting = Record::resting(0, options.settings, vec![0; 20]);
        assert!(encode("id", &resting).len() <= 64);
    }
}
