//! `schedule`.

#![forbid(unsafe_code)]

use crate::arguments::Schedule;
use crate::failure::Failure;
use crate::screen::Screen;
use serde_json::json;
use std::io::{self, Read};
use std::path::Path;
use tourbillon_durable::text::TimerView;
use tourbillon_durable::{DurableError, DurableTimers, Inserted};

pub(crate) async fn schedule(
    timers: &DurableTimers,
    asked: Schedule,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let (when, options) = asked.settings.read()?;
    let options = asked
        .header
        .into_iter()
        .fold(options, |options, (name, value)| options.header(name, value));
    let payload = asked.contents.unwrap_or_else(|| asked.payload.unwrap_or_default().into_bytes());
    let id = &asked.id;
    let inserted = timers.insert(id, payload, when, options).await;
    let result = match inserted.map_err(DurableError::from)? {
        Inserted::New => "new",
        Inserted::Kept => "kept",
        Inserted::Next => "next",
        Inserted::Replaced => "replaced",
        Inserted::Updated => "updated",
        _ => "inserted",
    };
    let due = timers.get(id).await?.map(|timer| TimerView::new(&timer).due);
    let shown = due.as_ref().map_or(String::new(), |due| format!(", due {due}"));
    screen
        .say(&json!({ "id": id, "result": result, "due": due }), &format!("{id}: {result}{shown}"))
}

/// Reads the file of the payload. The input may take long, so it is read before the store is
/// opened, which locks a store in a file.
pub(crate) fn read_payload(asked: &mut Schedule) -> Result<(), Failure> {
    asked.contents = asked.payload_file.as_deref().map(read).transpose()?;
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut payload = Vec::new();
    if path == Path::new("-") {
        io::stdin().lock().read_to_end(&mut payload)?;
        return Ok(payload);
    }
    let read = std::fs::read(path);
    read.map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
}
