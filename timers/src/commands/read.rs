//! `list` and `get`.

#![forbid(unsafe_code)]

use crate::arguments::List;
use crate::failure::Failure;
use crate::screen::Screen;
use std::ops::Bound;
use timers::{TimerView, printable};
use tourbillon_durable::{DurableTimer, DurableTimers};

/// The number of characters of a payload in a table.
const SHOWN: usize = 40;

pub(crate) async fn list(
    timers: &DurableTimers,
    asked: List,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let range = (
        asked.due_from.map_or(Bound::Unbounded, Bound::Included),
        asked.due_before.map_or(Bound::Unbounded, Bound::Excluded),
    );
    let mut found: Vec<DurableTimer> = Vec::new();
    while found.len() < asked.limit {
        let last = found.last().map(DurableTimer::position);
        let room = asked.limit - found.len();
        let page = match asked.state {
            Some(state) => timers.list_state(state, last, room).await?,
            None => timers.list_due(range, last, room).await?,
        };
        if page.is_empty() {
            break;
        }
        found.extend(page);
    }
    let views: Vec<TimerView> = found.iter().map(TimerView::new).collect();
    screen.table(["DUE", "STATE", "ATTEMPTS", "REPEATS", "ID", "PAYLOAD"], &views, |timer| {
        [
            timer.due.clone(),
            timer.state.to_owned(),
            format!("{}/{}", timer.attempts, timer.most_attempts),
            timer.repeats.as_ref().map_or("-".to_owned(), |rule| rule.words()),
            timer.id.clone(),
            beginning(timer.payload.text()),
        ]
    })
}

pub(crate) async fn get(
    timers: &DurableTimers,
    id: &str,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let found = timers.get(id).await?;
    let Some(found) = found else { return Err(missing(id)) };
    let timer = TimerView::new(&found);
    let mut fields = vec![
        ("id", timer.id.clone()),
        ("state", timer.state.to_owned()),
        ("due", timer.due.clone()),
        ("planned", timer.planned.clone()),
        ("attempts", format!("{} of {}", timer.attempts, timer.most_attempts)),
        ("repeats", timer.repeats.as_ref().map_or(String::new(), |rule| rule.words())),
        ("misfire", timer.repeats.as_ref().map_or(String::new(), |rule| rule.misfire.clone())),
        ("next", timer.next.clone().unwrap_or_default()),
        ("error", timer.error.clone()),
    ];
    fields.extend(timer.headers.iter().map(|(name, value)| ("header", format!("{name}={value}"))));
    fields.push(("payload", timer.payload.text().to_owned()));
    screen.fields(&timer, &fields)
}

/// Returns the failure for an id that no timer has.
pub(crate) fn missing(id: &str) -> Failure {
    Failure::NotFound(format!("there is no timer {id:?}"))
}

/// Returns the beginning of a payload.
pub(crate) fn beginning(text: &str) -> String {
    let text = printable(text);
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
