//! `list` and `get`.

#![forbid(unsafe_code)]

use super::{dead, pages};
use crate::arguments::List;
use crate::failure::Failure;
use crate::screen::{Screen, beginning};
use serde_json::json;
use std::ops::Bound;
use tourbillon_durable::text::{TimerView, parse_position, show_position};
use tourbillon_durable::{DurableTimer, DurableTimers, Label, Stats, TimerState};

pub(crate) async fn list(
    timers: &DurableTimers,
    asked: List,
    screen: &mut Screen,
) -> Result<(), Failure> {
    if let Some(label) = &asked.label {
        return list_label(timers, label, &asked, screen).await;
    }
    let after = asked.after.as_deref().map(parse_position).transpose();
    let after = after.map_err(|why| Failure::Usage(format!("--after: {why}")))?;
    let range = (
        asked.due_from.map_or(Bound::Unbounded, Bound::Included),
        asked.due_before.map_or(Bound::Unbounded, Bound::Excluded),
    );
    let page = async |last, room| match asked.state {
        Some(state) => timers.list_state(state, last, room).await,
        None => timers.list_due(range, last, room).await,
    };
    let (found, next) = pages::join(after, asked.limit, DurableTimer::position, page).await?;
    show(&found, screen)?;
    let Some(next) = next.as_ref().map(show_position) else { return Ok(()) };
    let total = total(&asked, &timers.stats().await?);
    screen.go_on(&next, total, &format!("list --after {next:?}"))
}

async fn list_label(
    timers: &DurableTimers,
    label: &Label,
    asked: &List,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let page =
        async |last: Option<String>, room| timers.list_label(label, last.as_deref(), room).await;
    let id = |timer: &DurableTimer| timer.id.clone();
    let (found, next) = pages::join(asked.after.clone(), asked.limit, id, page).await?;
    show(&found, screen)?;
    let Some(next) = next else { return Ok(()) };
    let total = timers.label_len(label).await?;
    let command = format!("list --label {:?} --after {next:?}", label.as_str());
    screen.go_on(&next, Some(total), &command)
}

/// Shows the number of timers with a label.
pub(crate) async fn count(
    timers: &DurableTimers,
    label: &Label,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let count = timers.label_len(label).await?;
    let line = json!({ "label": label.as_str(), "timers": count });
    screen.fields(&line, &[("label", label.to_string()), ("timers", count.to_string())])
}

/// Shows a table of timers.
fn show(found: &[DurableTimer], screen: &mut Screen) -> Result<(), Failure> {
    let views: Vec<TimerView> = found.iter().map(TimerView::new).collect();
    screen.table(["DUE", "STATE", "ATTEMPTS", "REPEATS", "ID", "PAYLOAD"], &views, |timer| {
        [
            // While an attempt runs, the due time is only the end of its lease.
            if timer.state == "running" { &timer.planned } else { &timer.due }.clone(),
            timer.state.to_owned(),
            format!("{}/{}", timer.attempts, timer.most_attempts),
            timer.repeats.as_ref().map_or("-".to_owned(), |rule| rule.words()),
            timer.id.clone(),
            beginning(timer.payload.text()),
        ]
    })
}

/// Returns the length that a list would have without a limit, if the store counts its timers.
fn total(asked: &List, stats: &Stats) -> Option<u64> {
    match (asked.state, asked.due_from, asked.due_before) {
        (None, None, None) => Some(stats.timers),
        (Some(TimerState::Paused), ..) => Some(stats.paused),
        _ => None,
    }
}

pub(crate) async fn get(
    timers: &DurableTimers,
    id: &str,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let Some(found) = timers.get(id).await? else {
        let letter = timers.newest_dead_letters_of(id, None, 1).await?.pop();
        return dead::show_letter(&letter.ok_or_else(|| missing(id))?, screen);
    };
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
    fields.extend(timer.headers.iter().map(|(name, value)| {
        ("header", format!("{name}={}", value.as_deref().unwrap_or_default()))
    }));
    fields.extend(timer.labels.iter().map(|label| ("label", label.clone())));
    fields.push(("payload", timer.payload.text().to_owned()));
    screen.fields(&timer, &fields)
}

/// Returns the failure for an id without a timer.
pub(crate) fn missing(id: &str) -> Failure {
    Failure::NotFound(format!("there is no timer {id:?}"))
}
