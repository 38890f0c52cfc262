//! `cancel`, `pause` and `resume`.

#![forbid(unsafe_code)]

use super::read::missing;
use crate::arguments::Whose;
use crate::failure::Failure;
use crate::screen::Screen;
use serde_json::json;
use timers::state_name;
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

pub(crate) async fn pause(
    timers: &DurableTimers,
    whose: Whose,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let Some(id) = whose.id else {
        timers.pause().await?;
        return screen.say(&json!({ "store": "paused" }), "the store is paused");
    };
    if !timers.pause_timer(&id).await? {
        return Err(missing(&id));
    }
    show_state(timers, &id, screen).await
}

pub(crate) async fn resume(
    timers: &DurableTimers,
    whose: Whose,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let Some(id) = whose.id else {
        timers.resume().await?;
        return screen.say(&json!({ "store": "resumed" }), "the store is resumed");
    };
    if !timers.resume_timer(&id).await? {
        return Err(missing(&id));
    }
    show_state(timers, &id, screen).await
}

/// Shows the state that a timer has now.
async fn show_state(timers: &DurableTimers, id: &str, screen: &mut Screen) -> Result<(), Failure> {
    let state = timers.get(id).await?.map_or("gone", |timer| state_name(timer.state));
    screen.say(&json!({ "id": id, "state": state }), &format!("{id}: {state}"))
}
