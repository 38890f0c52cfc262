//! Reading timers in the order of the index, and the ages of dead letters.

#![forbid(unsafe_code)]

use super::bytes::{self, Stored};
use super::keys::Location;
use super::letters::in_order;
use super::operations::{Operations, text};
use crate::error::DurableError;
use crate::model::clock::Millis;
use crate::model::key::{Key, first_after};
use crate::model::record::Record;
use crate::store::partitions::Partitioned;
use crate::store::partitions::pages::{merged, share};
use crate::store::remote::retry::RetryPolicy;
use crate::store::{Found, Letters, MAX_LIST_BYTES};
use futures_util::future::try_join_all;
use redis::{FromRedisValue, Script, cmd};
use std::collections::BTreeMap;

/// A record and its long payloads.
type Fields = (Vec<u8>, Vec<u8>, Vec<u8>);

impl Operations {
    /// Returns the timers of up to `limit` keys, or of fewer if they are long.
    pub(super) async fn find(
        &self,
        from: Key,
        until: Millis,
        limit: usize,
    ) -> Result<Found, DurableError> {
        let partitions = self.keys.partitions();
        let share = share(limit, usize::try_from(partitions).unwrap_or(usize::MAX));
        let pages = (0..partitions)
            .map(|partition| self.read_keys(partition, &from, until, share, RetryPolicy::Caller));
        let (mut keys, end) = merged(try_join_all(pages).await?);
        let mut next = end.as_ref().map(first_after);
        if keys.len() > limit {
            next = Some(keys.split_off(limit).swap_remove(0));
        }
        let read = self.get_each(keys.iter().map(|(_, id)| id.to_string()).collect()).await?;
        if read.len() < keys.len() {
            next = Some(keys.swap_remove(read.len()));
        }
        // A timer may have moved since its key was read.
        let timers = read.into_iter().zip(keys).filter_map(|((id, record), (due, _))| {
            Some((id, record.filter(|record| record.indexed() == due)?))
        });
        Ok(Found { timers: timers.collect(), next })
    }

    /// Returns the timers with the first of some ids, or with all of them unless they are long.
    pub(super) async fn get_each(
        &self,
        ids: Vec<String>,
    ) -> Result<Vec<(String, Option<Record>)>, DurableError> {
        let wanted = ids.iter().map(|id| {
            let Location { partition, bucket } = self.keys.location(id);
            (partition, vec![text(bucket), id.as_bytes().to_vec()])
        });
        let mut records = self.read_shares::<Fields>(&self.scripts.fetch, wanted).await?;
        let mut list = Vec::new();
        for id in ids {
            let Location { partition, .. } = self.keys.location(&id);
            let found = records.get_mut(&partition).and_then(Iterator::next);
            // There were enough bytes before this one.
            let Some((record, payload, next)) = found else { break };
            let record = bytes::record(&id, Stored { record, payload, next });
            list.push((id, record));
        }
        Ok(list)
    }

    /// Returns the latest due time of any retry that was planned.
    pub(super) async fn retries_until(&self) -> Result<Millis, DurableError> {
        let each = (0..self.keys.partitions()).map(|partition| async move {
            let counters = self.keys.counters(partition);
            let mut latest = cmd("HGET");
            latest.arg(&counters).arg("retried");
            self.query::<Option<Millis>>(&counters, latest).await
        });
        let latest = try_join_all(each).await?;
        Ok(latest.into_iter().flatten().max().unwrap_or(0))
    }

    /// Runs a script that reads up to a number of bytes in some partitions, with the arguments of
    /// each. Returns what each of them has read.
    async fn read_shares<T: FromRedisValue>(
        &self,
        script: &Script,
        args: impl Iterator<Item = (u64, Vec<Vec<u8>>)>,
    ) -> Result<BTreeMap<u64, std::vec::IntoIter<T>>, DurableError> {
        let mut wanted: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
        for (partition, args) in args {
            wanted.entry(partition).or_default().extend(args);
        }
        let share = MAX_LIST_BYTES / wanted.len().max(1);
        let asked = wanted.into_iter().map(|(partition, mut args)| async move {
            args.insert(0, text(share));
            let found: Vec<T> = self.call(script, partition, &args, RetryPolicy::Caller).await?;
            Ok::<_, DurableError>((partition, found.into_iter()))
        });
        Ok(try_join_all(asked).await?.into_iter().collect())
    }

    /// Returns the numbers of the first dead letters from a position on, in its order.
    pub(super) async fn letter_numbers(
        &self,
        letters: Letters,
        limit: usize,
    ) -> Result<Vec<u64>, DurableError> {
        let each = (0..self.keys.partitions()).map(|partition| async move {
            let first = |number| self.first_inner(partition, number);
            let [_, order] = self.keys.dead(partition);
            let mut command = match letters {
                Letters::After(number) => {
                    let from = number.map_or(0, |number| first(number.saturating_add(1)));
                    let mut command = cmd("ZRANGEBYSCORE");
                    command.arg(&order).arg(from).arg("+inf");
                    command
                }
                Letters::Before(number) => {
                    let to =
                        number.map_or(text("+inf"), |number| text(format!("({}", first(number))));
                    let mut command = cmd("ZREVRANGEBYSCORE");
                    command.arg(&order).arg(to).arg("-inf");
                    command
                }
            };
            command.arg("LIMIT").arg(0).arg(limit);
            let inner: Vec<u64> = self.query(&order, command).await?;
            Ok::<_, DurableError>(inner.into_iter().map(move |inner| self.number(partition, inner)))
        });
        let numbers = try_join_all(each).await?.into_iter().flatten();
        Ok(in_order(numbers.collect(), letters, limit))
    }

    /// Returns the numbers of dead letters, and when each was given up. A number does not tell the
    /// time, because it is greater than all earlier numbers, even if the clock was set back.
    pub(super) async fn letter_ages(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<(u64, Millis)>, DurableError> {
        let numbers = self.letter_numbers(Letters::After(after), limit).await?;
        let wanted = numbers.iter().map(|number| {
            let (partition, inner) = self.of_number(*number);
            (partition, vec![text(inner)])
        });
        let mut times = self.read_shares::<i64>(&self.scripts.ages, wanted).await?;
        let mut ages = Vec::new();
        for number in numbers {
            let times = times.get_mut(&self.of_number(number).0);
            // The next page continues where there were enough bytes.
            let Some(died) = times.and_then(Iterator::next) else { break };
            ages.push((number, Millis::try_from(died).unwrap_or(Millis::MAX)));
        }
        Ok(ages)
    }
}
