//! [`Walk`], a list of timers in one of the orders of the store, read forwards and backwards.

#![forbid(unsafe_code)]

use crate::read::{BUDGET, Page, ROWS, STEP, Where, find, has_label};
use std::collections::VecDeque;
use std::ops::Bound;
use std::time::{Duration, SystemTime};
use tourbillon_durable::{
    DurableError, DurableTimer, DurableTimers, Label, ListPosition, TimerState,
};

/// How far back a page looks for the rows before a position, in seconds. Only the timers of a label
/// can be read backwards, so a page of others reads forwards from earlier and earlier times until
/// it has enough rows.
const WIDTHS: [u64; 5] = [60, 3600, 86_400, 30 * 86_400, u64::MAX];

/// A list of timers.
pub(crate) struct Walk<'a> {
    pub(crate) timers: &'a DurableTimers,
    pub(crate) order: Order,
    /// Only timers that are due at this time or later.
    pub(crate) from: Option<SystemTime>,
    /// Only timers that are due before this time.
    pub(crate) until: Option<SystemTime>,
    pub(crate) keep: &'a (dyn Fn(&DurableTimer) -> bool + Sync),
}

/// The order of a list, which decides how the store finds its timers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// By due time.
    Due,
    /// The timers in a state by due time.
    State(TimerState),
    /// By id, the timers whose ids begin with a text, and that have a label if one is given.
    Ids(String, Option<Label>),
}

type Position = ListPosition;

impl Walk<'_> {
    /// Reads a page.
    pub(crate) async fn page(
        &self,
        from: Where<Position>,
    ) -> Result<Page<DurableTimer, Position>, DurableError> {
        match from {
            Where::Start => self.forwards(None).await,
            Where::After(position) => self.forwards(Some(position)).await,
            Where::Before(position) => self.backwards(&position).await,
        }
    }

    async fn forwards(
        &self,
        after: Option<Position>,
    ) -> Result<Page<DurableTimer, Position>, DurableError> {
        let is_first = after.is_none();
        let step = |at| self.step(at);
        let found = find(after, DurableTimer::position, self.keep, step).await?;
        Ok(Page::of(found, DurableTimer::position, false, is_first))
    }

    async fn backwards(
        &self,
        before: &Position,
    ) -> Result<Page<DurableTimer, Position>, DurableError> {
        if let Order::Ids(prefix, Some(label)) = &self.order {
            return self.backwards_with(label, prefix, before).await;
        }
        let mut found = VecDeque::new();
        for width in WIDTHS {
            let earliest = before.due().checked_sub(Duration::from_secs(width));
            let start = earliest.filter(|_| !matches!(self.order, Order::Ids(..)));
            let (tail, is_complete) = self.tail(start, before).await?;
            if !is_complete && !found.is_empty() {
                // The shorter page is adjacent.
                break;
            }
            let is_start = start.is_none_or(|start| self.from.is_some_and(|from| start <= from));
            if is_start && is_complete && tail.len() <= ROWS {
                return self.forwards(None).await;
            }
            found = tail;
            if found.len() > ROWS || is_start || !is_complete {
                break;
            }
        }
        let rows: Vec<DurableTimer> = found.into_iter().rev().take(ROWS).rev().collect();
        let position = |timer: Option<&DurableTimer>| timer.map(DurableTimer::position);
        let (before, after) = (position(rows.first()), position(rows.last()));
        Ok(Page { rows, before, after, is_cut: false })
    }

    /// Reads the page before a position of the timers with a label.
    async fn backwards_with(
        &self,
        label: &Label,
        prefix: &str,
        before: &Position,
    ) -> Result<Page<DurableTimer, Position>, DurableError> {
        let step = |at: Option<Position>| async move {
            let before = at.as_ref().map(Position::id);
            let mut step = self.timers.list_label_before(label, before, STEP).await?;
            step.retain(|timer| timer.id.starts_with(prefix));
            Ok(step)
        };
        let found = find(Some(before.clone()), DurableTimer::position, self.keep, step).await?;
        match found.more {
            // The first page is always full.
            None => self.forwards(None).await,
            Some(_) => Ok(Page::of(found, DurableTimer::position, true, false)),
        }
    }

    /// Returns the last rows before a position, one more than a page has. They are found from a
    /// start on, and are complete unless there are too many.
    async fn tail(
        &self,
        start: Option<SystemTime>,
        before: &Position,
    ) -> Result<(VecDeque<DurableTimer>, bool), DurableError> {
        // No id is empty, so this is before all timers with this due time.
        let mut at = start.map(|start| Position::new(start, ""));
        let (mut tail, mut read) = (VecDeque::new(), 0);
        while read < BUDGET {
            let step = self.step(at).await?;
            let Some(last) = step.last() else { return Ok((tail, true)) };
            (at, read) = (Some(last.position()), read + step.len());
            for timer in step {
                if self.is_reached(&timer, before) {
                    return Ok((tail, true));
                }
                if (self.keep)(&timer) {
                    tail.push_back(timer);
                }
                if tail.len() > ROWS + 1 {
                    tail.pop_front();
                }
            }
        }
        Ok((tail, false))
    }

    fn is_reached(&self, timer: &DurableTimer, position: &Position) -> bool {
        match self.order {
            Order::Ids(..) => *timer.id >= *position.id(),
            Order::Due | Order::State(_) => timer.position() >= *position,
        }
    }

    /// Reads the timers after a position, in the order of the list.
    async fn step(&self, after: Option<Position>) -> Result<Vec<DurableTimer>, DurableError> {
        match &self.order {
            Order::Due => {
                let from = self.from.map_or(Bound::Unbounded, Bound::Included);
                let until = self.until.map_or(Bound::Unbounded, Bound::Excluded);
                self.timers.list_due((from, until), after, STEP).await
            }
            Order::State(state) => {
                let first = self.from.map(|from| Position::new(from, ""));
                let after = after.max(first);
                let mut step = self.timers.list_state(*state, after, STEP).await?;
                step.retain(|timer| self.until.is_none_or(|until| timer.due < until));
                Ok(step)
            }
            Order::Ids(prefix, label) => {
                let has_label = |timer: &DurableTimer| has_label(&timer.options, label.as_ref());
                let mut step = Vec::new();
                let after = after.as_ref().map(Position::id);
                if after.is_none() && !prefix.is_empty() {
                    step.extend(self.timers.get(prefix).await?.filter(has_label));
                }
                let after = Some(after.unwrap_or(prefix));
                step.extend(match label {
                    None => self.timers.list(after, STEP).await?,
                    Some(label) => self.timers.list_label(label, after, STEP).await?,
                });
                step.retain(|timer| timer.id.starts_with(prefix));
                Ok(step)
            }
        }
    }
}

/// Returns `true` if a store with more timers than a page reads lists them by their ids. A store in
/// Redis does not.
pub(crate) async fn is_by_id(timers: &DurableTimers) -> Result<bool, DurableError> {
    let sample = timers.list(None, STEP).await?;
    Ok(sample.is_sorted_by(|one, other| one.id < other.id))
}
