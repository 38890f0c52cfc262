//! `cancel`, `move`, `run`, `pause` and `resume`.

#![forbid(unsafe_code)]

use super::read::missing;
use crate::arguments::Whose;
use crate::failure::Failure;
use crate::screen::Screen;
use serde_json::json;
use tourbillon_durable::text::{NewTime, Switch, show_time, state_name};
use tourbillon_durable::{Cancelled, DurableTimers};

pub(crate) async fn cancel(
    timers: &DurableTimers,
    id: &str,
    screen: &mut Screen,
) -> Result<(), Failure> {
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

/// Pauses or resumes a timer or the store.
pub(crate) async fn switch(
    timers: &DurableTimers,
    whose: Whose,
    switch: Switch,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let Some(id) = whose.id else {
        let state = switch.store(timers).await?;
        return screen.say(&json!({ "store": state }), &format!("the store is {state}"));
    };
    let found = switch.timer(timers, &id).await?;
    show_changed(timers, &id, found, screen).await
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
