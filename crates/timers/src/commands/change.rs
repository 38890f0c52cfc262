//! `cancel`, `move`, `run`, `pause` and `resume`.

#![forbid(unsafe_code)]

use super::read::missing;
use crate::arguments::{IdOrLabel, Whose};
use crate::failure::Failure;
use crate::screen::Screen;
use serde_json::json;
use tourbillon_durable::text::{NewTime, Switch, counted, show_time, state_name};
use tourbillon_durable::{BulkChange, Cancelled, DurableError, DurableTimers};

/// The number of timers changed per call.
const PAGE: usize = 1000;

pub(crate) async fn cancel(
    timers: &DurableTimers,
    which: IdOrLabel,
    screen: &mut Screen,
) -> Result<(), Failure> {
    if let Some(label) = which.label {
        let page =
            async |after: Option<String>| timers.cancel_label(&label, after.as_deref(), PAGE).await;
        return change_all("cancelled", page, screen).await;
    }
    let id = &which.id.unwrap_or_default();
    let (result, sentence) = match timers.cancel(id).await? {
        Cancelled::NotFound => return Err(missing(id)),
        Cancelled::Running => ("running", "is being delivered, for the last time"),
        _ => ("removed", "will not be delivered"),
    };
    screen.say(&json!({ "id": id, "result": result }), &format!("{id}: {sentence}"))
}

pub(crate) async fn move_to(
    timers: &DurableTimers,
    id: &str,
    time: &NewTime,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let moved = timers.reset(id, time.read()?).await?;
    show_changed(timers, id, moved, screen).await
}

pub(crate) async fn run(
    timers: &DurableTimers,
    id: &str,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let found = timers.run_now(id).await?;
    show_changed(timers, id, found, screen).await
}

/// Pauses or resumes a timer, the timers with a label, or the store.
pub(crate) async fn switch(
    timers: &DurableTimers,
    whose: Whose,
    switch: Switch,
    screen: &mut Screen,
) -> Result<(), Failure> {
    if let Some(label) = whose.label {
        let page = async |after: Option<String>| {
            switch.label(timers, &label, after.as_deref(), PAGE).await
        };
        return change_all(switch.done(), page, screen).await;
    }
    let Some(id) = whose.id else {
        let state = switch.store(timers).await?;
        return screen.say(&json!({ "store": state }), &format!("the store is {state}"));
    };
    let found = switch.timer(timers, &id).await?;
    show_changed(timers, &id, found, screen).await
}

/// Changes pages of timers until none are left, and shows how many were changed. `page` changes the
/// timers after an id.
async fn change_all(
    result: &str,
    page: impl AsyncFn(Option<String>) -> Result<BulkChange, DurableError>,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let (mut changed, mut unreadable, mut after) = (0, 0, None);
    loop {
        let done = page(after).await?;
        changed += done.changed;
        unreadable += done.unreadable;
        after = done.last;
        if after.is_none() {
            break;
        }
    }
    let left = if unreadable == 0 { String::new() } else { format!(", {unreadable} unreadable") };
    let line = json!({ "result": result, "changed": changed, "unreadable": unreadable });
    screen.say(&line, &format!("{} {result}{left}", counted(changed, "timer")))
}

/// Shows the state and the due time that a changed timer has now, if there was one.
async fn show_changed(
    timers: &DurableTimers,
    id: &str,
    found: bool,
    screen: &mut Screen,
) -> Result<(), Failure> {
    if !found {
        return Err(missing(id));
    }
    let timer = timers.get(id).await?;
    let state = timer.as_ref().map_or("gone", |timer| state_name(timer.state));
    let due = timer.map(|timer| show_time(timer.due));
    let shown = due.as_ref().map_or(String::new(), |due| format!(", due {due}"));
    screen.say(&json!({ "id": id, "state": state, "due": due }), &format!("{id}: {state}{shown}"))
}
