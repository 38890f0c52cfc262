//! [`Keys`], the names of a store's keys, and the location of an id.
//!
//! | key | type | what |
//! |---|---|---|
//! | `{tb:NAME}` | hash | layout, number of partitions, `paused` |
//! | `{tb:NAME}:workers` | sorted set | workers, by the time of their last heartbeat |
//! | `{tb:NAME}:owners` | hash | partition → worker |
//! | `{tb:NAME}:log` | stream | the log of attempts |
//! | `{tb:NAME:p}:b:BUCKET` | hash | id → record; byte 255 and id → long payload; byte 254 and id → long payload of the next delivery |
//! | `{tb:NAME:p}:s:SLICE` | sorted set | ids by due time, those of ten minutes |
//! | `{tb:NAME:p}:l:LABEL` | sorted set | ids with a label, all with the score 0 |
//! | `{tb:NAME:p}:slices` | sorted set | the slices that are not empty |
//! | `{tb:NAME:p}:answers` | hash | process → its last batch and the reply |
//! | `{tb:NAME:p}:ages` | sorted set | processes with a reply, by a time at which it was younger |
//! | `{tb:NAME:p}:counters` | hash | timers, leases, last fence, last dead letter, `paused`, `retried`, the latest time of a retry |
//! | `{tb:NAME:p}:letters` | hash | number → dead letter |
//! | `{tb:NAME:p}:dead` | sorted set | the numbers of the dead letters |
//! | `{tb:NAME:p}:names` | sorted set | `i:` and the id or `l:` and a label of each dead letter, byte 255, its number in 20 digits; all with the score 0 |
//!
//! All keys of a partition share a hash tag, so that they are in one slot of a cluster. Records are
//! stored in many small hashes, and ids in many small sorted sets, because Redis packs small
//! collections without pointers.

#![forbid(unsafe_code)]

use crate::model::clock::Millis;
use crate::model::label::Label;

/// The number of hashes for the records of a partition.
pub(super) const BUCKETS: u64 = 4096;

/// The length of a slice, equal to `SLICE` of `scripts/common.lua`.
const SLICE: Millis = 600_000;

/// The byte before an id in the field of its long payload, equal to `OWN` of `scripts/common.lua`.
pub(super) const OWN: u8 = 255;

/// The byte before an id in the field of the long payload of its next delivery, equal to `LATER` of
/// `scripts/common.lua`.
pub(super) const LATER: u8 = 254;

/// Returns the field of a long payload in a bucket. No id is equal to it, because neither of the
/// two bytes occurs in UTF-8.
pub(super) fn long_field(which: u8, id: &str) -> Vec<u8> {
    [&[which], id.as_bytes()].concat()
}

/// Returns the number of the slice of a due time.
pub(super) fn slice(due: Millis) -> u64 {
    due / SLICE
}

/// The names of the keys of a store.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    name: String,
    partitions: u64,
}

/// The location of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Location {
    pub(super) partition: u64,
    pub(super) bucket: u64,
}

impl Keys {
    pub(super) fn new(name: &str, partitions: u64) -> Self {
        Self { name: name.to_owned(), partitions: partitions.max(1) }
    }

    /// Returns the key of a store's description.
    pub(super) fn store(name: &str) -> String {
        format!("{{tb:{name}}}")
    }

    /// Returns the keys of the workers and of their partitions.
    pub(super) fn workers(&self) -> [String; 2] {
        let store = Self::store(&self.name);
        [store.clone() + ":workers", store + ":owners"]
    }

    /// Returns the key of this store's description.
    pub(super) fn description(&self) -> String {
        Self::store(&self.name)
    }

    /// Returns the key of the log of attempts.
    #[cfg(feature = "log")]
    pub(super) fn log(&self) -> String {
        Self::store(&self.name) + ":log"
    }

    /// Returns the channel for notices to all workers.
    pub(super) fn channel(&self) -> String {
        format!("tb:{}", self.name)
    }

    /// Returns the channel for keys that are added to a partition.
    pub(super) fn channel_of(&self, partition: u64) -> String {
        format!("tb:{}:{partition}", self.name)
    }

    pub(super) fn partitions(&self) -> u64 {
        self.partitions
    }

    pub(super) fn location(&self, id: &str) -> Location {
        let hash = hash(id.as_bytes());
        Location { partition: hash % self.partitions, bucket: hash / self.partitions % BUCKETS }
    }

    /// Returns the prefix of all keys of a partition.
    pub(super) fn prefix(&self, partition: u64) -> String {
        format!("{{tb:{}:{partition}}}:", self.name)
    }

    pub(super) fn bucket(&self, location: Location) -> String {
        format!("{}b:{}", self.prefix(location.partition), location.bucket)
    }

    /// Returns the key of the ids with a label.
    pub(super) fn label(&self, partition: u64, label: &Label) -> String {
        format!("{}l:{label}", self.prefix(partition))
    }

    pub(super) fn counters(&self, partition: u64) -> String {
        self.prefix(partition) + "counters"
    }

    /// Returns the keys of the dead letters and of their order.
    pub(super) fn dead(&self, partition: u64) -> [String; 2] {
        let prefix = self.prefix(partition);
        [prefix.clone() + "letters", prefix + "dead"]
    }

    /// Returns the key of the index of dead letters by id and by label.
    pub(super) fn letter_names(&self, partition: u64) -> String {
        self.prefix(partition) + "names"
    }

    /// Returns the keys that every script uses.
    pub(super) fn common(&self, partition: u64) -> [String; 4] {
        let prefix = self.prefix(partition);
        let [slices, answers, ages] = ["slices", "answers", "ages"].map(|key| prefix.clone() + key);
        [slices, answers, self.counters(partition), ages]
    }
}

/// Hashes an id with FNV-1a and spreads the bits. The result is the same on every machine and in
/// every version, because stored keys depend on it.
fn hash(bytes: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325_u64;
    let hash = bytes
        .iter()
        .fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let folded = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    folded ^ (folded >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_do_not_change_and_are_spread() {
        let keys = Keys::new("default", 16);
        let location = keys.location("order 7");
        assert_eq!(location, Keys::new("another", 16).location("order 7"));
        assert_eq!(
            keys.prefix(location.partition),
            format!("{{tb:default:{}}}:", location.partition)
        );
        let mut counts = [0; 16];
        for number in 0..16_000 {
            let location = keys.location(&format!("timer {number}"));
            assert!(location.bucket < BUCKETS);
            counts[usize::try_from(location.partition).expect("few")] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }

    #[test]
    fn an_id_is_found_where_another_version_has_put_it() {
        let location = Keys::new("timers", 16).location("order 7");
        assert_eq!(location, Location { partition: 4, bucket: 3422 });
    }
}
