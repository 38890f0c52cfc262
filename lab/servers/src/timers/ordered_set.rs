//! [`OrderedSet`]: timers in an ordered set of deadlines and names, as in mini-redis.

use super::alarm::Alarm;
use super::structure::{Batch, DUE_AT_ONCE, Name, Records, Timers};
use std::collections::BTreeSet;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// A set of deadlines.
#[derive(Debug)]
pub(super) struct OrderedSet<V> {
    entries: BTreeSet<(Instant, V)>,
    alarm: Alarm,
}

/// A batch of operations on an [`OrderedSet`].
#[derive(Debug)]
pub(super) struct SetBatch<'a, V> {
    set: &'a mut OrderedSet<V>,
    now: Instant,
}

impl<V: Name> OrderedSet<V> {
    /// Creates an empty set.
    pub(super) fn new() -> Self {
        Self { entries: BTreeSet::new(), alarm: Alarm::default() }
    }
}

impl<V: Name> Timers<V> for OrderedSet<V> {
    /// The entry, which has to be named to be removed.
    type Id = (Instant, V);
    type Batch<'a> = SetBatch<'a, V>;

    fn batch(&mut self) -> SetBatch<'_, V> {
        SetBatch { set: self, now: tokio::time::Instant::now().into_std() }
    }

    fn poll_due(
        &mut self,
        context: &mut Context<'_>,
        _: &mut impl Records<V, (Instant, V)>,
        due: &mut Vec<V>,
    ) -> Poll<()> {
        let now = tokio::time::Instant::now().into_std();
        while self.entries.first().is_some_and(|(at, _)| *at <= now) && due.len() < DUE_AT_ONCE {
            due.extend(self.entries.pop_first().map(|(_, value)| value));
        }
        if due.is_empty() {
            self.alarm.poll(context, self.entries.first().map(|(at, _)| *at))
        } else {
            Poll::Ready(())
        }
    }

    fn armed(&self) -> usize {
        self.entries.len()
    }
}

impl<V: Name> Batch<V> for SetBatch<'_, V> {
    type Id = (Instant, V);

    fn now(&self) -> Instant {
        self.now
    }

    fn arm(&mut self, value: V, delay: Duration) -> (Instant, V) {
        let entry = (self.now + delay, value);
        self.set.entries.insert(entry.clone());
        self.set.alarm.armed(entry.0);
        entry
    }

    fn reset(&mut self, entry: &mut (Instant, V), value: &V, delay: Duration) -> bool {
        let armed = self.set.entries.remove(entry);
        if armed {
            *entry = self.arm(value.clone(), delay);
        }
        armed
    }

    fn cancel(&mut self, entry: (Instant, V)) -> bool {
        self.set.entries.remove(&entry)
    }
}
