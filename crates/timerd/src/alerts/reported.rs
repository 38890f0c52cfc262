//! [`Reported`], the missed runs that were reported to the operator, as all instances share them.
//!
//! The store keeps them in a timer that is never due. An instance reports a run only once it has
//! added the run there. It replaces only the version that it has read, so of several instances that
//! find the same run one reports it, and a restart reports nothing again.

#![forbid(unsafe_code)]

use super::alert::millis;
use crate::call::{INSERT, number, numbered};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tourbillon_durable::{DurableError, DurableTimers, Existing, Options};

/// The id of the timer.
const ID: &str = "timerd:alerts";

/// The due time of the timer in seconds since 1970, in the year 2200.
const NEVER: u64 = 7_258_118_400;

/// The maximum number of runs. Others are reported once some of these timers run again.
const MAX_RUNS: usize = 1000;

/// The maximum total length of their ids in bytes, which JSON may make six times as long. A payload
/// has up to a megabyte.
const MAX_BYTES: usize = 100_000;

/// The runs that were reported.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Reported {
    /// The time of the last search, in milliseconds since 1970.
    searched: u64,
    /// The position in the list of overdue timers up to which they were searched.
    pub(super) position: Option<String>,
    /// The id up to which the runs were checked.
    checked: String,
    /// The planned times of missed runs, in milliseconds since 1970, by the id of the timer.
    runs: BTreeMap<String, u64>,
    /// The number of the insert that this was read from. `None` if there was no such timer.
    #[serde(skip)]
    version: Option<Option<String>>,
}

impl Reported {
    pub(super) async fn read(timers: &DurableTimers) -> Result<Self, DurableError> {
        let Some(timer) = timers.get(ID).await? else { return Ok(Self::default()) };
        let version = timer.last_insert().and_then(number).map(str::to_owned);
        // Another program may have written it, or a later version of this one.
        let reported: Self = serde_json::from_slice(&timer.payload).unwrap_or_default();
        Ok(Self { version: Some(version), ..reported })
    }

    /// Writes the runs unless another instance has written them since they were read. Returns
    /// `true` if they were written.
    pub(super) async fn write(&self, timers: &DurableTimers) -> Result<bool, DurableError> {
        let payload = serde_json::to_vec(self);
        let payload = payload.map_err(|error| DurableError::Json(error.to_string()))?;
        let options = match &self.version {
            None => Options::new().existing(Existing::Refuse),
            Some(version) => {
                Options::new().existing(Existing::Update).only_over(INSERT, version.as_deref())
            }
        };
        let random = |error: getrandom::Error| DurableError::Io(error.to_string());
        let options = numbered(options).map_err(random)?;
        let never = UNIX_EPOCH + Duration::from_secs(NEVER);
        match timers.insert(ID, payload, never, options).await.map_err(DurableError::from) {
            Ok(_) => Ok(true),
            Err(DurableError::Changed | DurableError::Exists) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Begins a search, unless an instance has searched within the interval.
    pub(super) fn begin_search(&mut self, now: SystemTime, interval: Duration) -> bool {
        let (now, interval) =
            (millis(now), u64::try_from(interval.as_millis()).unwrap_or(u64::MAX));
        // A clock that was set back does not stop the search.
        let is_recent = (self.searched..self.searched.saturating_add(interval)).contains(&now);
        if !is_recent {
            self.searched = now;
        }
        !is_recent
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.runs.contains_key(id)
    }

    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Adds a run if there is room.
    pub(super) fn add(&mut self, id: &str, planned: SystemTime) -> bool {
        let bytes: usize = self.runs.keys().map(String::len).sum();
        let has_room = self.runs.len() < MAX_RUNS && bytes + id.len() <= MAX_BYTES;
        if has_room {
            self.runs.insert(id.to_owned(), millis(planned));
        }
        has_room
    }

    pub(super) fn remove(&mut self, id: &str) {
        self.runs.remove(id);
    }

    /// Returns the next timers to check, all of them in turn.
    pub(super) fn next_to_check(&mut self, most: usize) -> Vec<String> {
        let after = (Bound::Excluded(self.checked.clone()), Bound::Unbounded);
        let next: Vec<String> =
            self.runs.range(after).take(most).map(|(id, _)| id.clone()).collect();
        self.checked = match next.len() == most {
            true => next.last().cloned().unwrap_or_default(),
            false => String::new(),
        };
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_have_a_number_and_a_length() {
        let mut reported = Reported::default();
        let added =
            (0..2 * MAX_RUNS).filter(|number| reported.add(&number.to_string(), UNIX_EPOCH));
        assert_eq!(added.count(), MAX_RUNS);
        let mut reported = Reported::default();
        let long = |number| format!("{number:0>512}").replace('0', "\u{1}");
        let added = (0..MAX_RUNS).filter(|number| reported.add(&long(*number), UNIX_EPOCH)).count();
        assert_eq!(added, MAX_BYTES / 512);
        assert!(serde_json::to_vec(&reported).expect("JSON").len() < 1 << 20);
    }

    #[test]
    fn all_runs_are_checked_in_turn() {
        let mut reported = Reported::default();
        for id in ["a", "b", "c"] {
            reported.add(id, UNIX_EPOCH);
        }
        assert_eq!(reported.next_to_check(2), ["a", "b"]);
        reported.remove("b");
        assert_eq!(reported.next_to_check(2), ["c"]);
        assert_eq!(reported.next_to_check(2), ["a", "c"]);
    }

    #[test]
    fn one_search_is_made_in_an_interval() {
        let (mut reported, minute) = (Reported::default(), Duration::from_secs(60));
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert!(reported.begin_search(at(1000), minute));
        assert!(!reported.begin_search(at(1059), minute));
        assert!(reported.begin_search(at(1060), minute));
        assert!(reported.begin_search(at(1059), minute), "the clock was set back");
    }
}
