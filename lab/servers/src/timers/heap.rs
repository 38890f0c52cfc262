//! [`Heap`]: timers in a binary heap, as often written by hand in an event loop.
//!
//! The deadline is in the record of the owner. A timer that is pushed back changes only that, and
//! its entry in the heap is moved when it comes up. A timer that is pulled forward gets a second
//! entry.

use super::alarm::Alarm;
use super::structure::{Batch, DUE_AT_ONCE, Name, Records, Timers};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// A heap of deadlines.
#[derive(Debug)]
pub(super) struct Heap<V: Ord> {
    entries: BinaryHeap<Reverse<(Instant, V)>>,
    armed: usize,
    alarm: Alarm,
}

/// The part of a timer in the record of its owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    deadline: Instant,
    /// The instant of the entry in the heap, until the timer fires. Other entries of the owner are
    /// stale.
    at: Option<Instant>,
}

/// A batch of operations on a [`Heap`].
#[derive(Debug)]
pub(super) struct HeapBatch<'a, V: Ord> {
    heap: &'a mut Heap<V>,
    now: Instant,
}

impl<V: Name> Heap<V> {
    /// Creates an empty heap.
    pub(super) fn new() -> Self {
        Self { entries: BinaryHeap::new(), armed: 0, alarm: Alarm::default() }
    }
}

impl<V: Name> Timers<V> for Heap<V> {
    type Id = Queued;
    type Batch<'a> = HeapBatch<'a, V>;

    fn batch(&mut self) -> HeapBatch<'_, V> {
        HeapBatch { heap: self, now: tokio::time::Instant::now().into_std() }
    }

    fn poll_due(
        &mut self,
        context: &mut Context<'_>,
        records: &mut impl Records<V, Queued>,
        due: &mut Vec<V>,
    ) -> Poll<()> {
        let now = tokio::time::Instant::now().into_std();
        while let Some(mut first) = self.entries.peek_mut() {
            let Reverse((at, value)) = &mut *first;
            if *at > now || due.len() == DUE_AT_ONCE {
                break;
            }
            match records.timer(value) {
                Some(queued) if queued.at == Some(*at) && queued.deadline > now => {
                    queued.at = Some(queued.deadline);
                    *at = queued.deadline;
                }
                Some(queued) if queued.at == Some(*at) => {
                    queued.at = None;
                    due.push(PeekMut::pop(first).0.1);
                    self.armed -= 1;
                }
                _ => drop(PeekMut::pop(first)),
            }
        }
        if due.is_empty() {
            self.alarm.poll(context, self.entries.peek().map(|Reverse((at, _))| *at))
        } else {
            Poll::Ready(())
        }
    }

    fn armed(&self) -> usize {
        self.armed
    }
}

impl<V: Name> Heap<V> {
    fn push(&mut self, at: Instant, value: V) {
        self.entries.push(Reverse((at, value)));
        self.alarm.armed(at);
    }
}

impl<V: Name> Batch<V> for HeapBatch<'_, V> {
    type Id = Queued;

    fn now(&self) -> Instant {
        self.now
    }

    fn arm(&mut self, value: V, delay: Duration) -> Queued {
        let deadline = self.now + delay;
        self.heap.push(deadline, value);
        self.heap.armed += 1;
        Queued { deadline, at: Some(deadline) }
    }

    fn reset(&mut self, queued: &mut Queued, value: &V, delay: Duration) -> bool {
        let deadline = self.now + delay;
        queued.deadline = deadline;
        if queued.at.is_some_and(|at| deadline < at) {
            queued.at = Some(deadline);
            self.heap.push(deadline, value.clone());
        }
        queued.at.is_some()
    }

    fn cancel(&mut self, queued: Queued) -> bool {
        self.heap.armed -= usize::from(queued.at.is_some());
        queued.at.is_some()
    }
}
