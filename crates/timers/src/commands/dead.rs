//! `dead` and `redrive`.

#![forbid(unsafe_code)]

use super::pages;
use crate::arguments::{Dead, Redrive};
use crate::failure::Failure;
use crate::screen::{Screen, beginning};
use serde_json::json;
use std::time::Duration;
use tourbillon_durable::text::{LetterView, counted};
use tourbillon_durable::{DeadLetter, DurableTimers, Label};

/// The number of letters redriven per call.
const PAGE: usize = 1000;

pub(crate) async fn run(
    timers: &DurableTimers,
    command: Dead,
    screen: &mut Screen,
) -> Result<(), Failure> {
    match command {
        Dead::List { after, newest, before, label, limit } => {
            let from = after.or(before);
            list(timers, newest, label.as_ref(), from, limit, screen).await
        }
        Dead::Show { number } => show(timers, number, screen).await,
        Dead::Delete { number } => {
            if !timers.delete_dead_letter(number).await? {
                return Err(missing(number));
            }
            screen.say(
                &json!({ "number": number, "result": "deleted" }),
                &format!("{number}: deleted"),
            )
        }
        Dead::Trim { most, age } => {
            let (most, age) = (most.unwrap_or(u64::MAX), age.unwrap_or(Duration::MAX));
            let deleted = timers.trim_dead_letters(most, age).await?;
            screen.say(
                &json!({ "deleted": deleted }),
                &format!("{} deleted", counted(deleted, "dead letter")),
            )
        }
    }
}

async fn list(
    timers: &DurableTimers,
    newest: bool,
    label: Option<&Label>,
    from: Option<u64>,
    limit: usize,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let page = async |last, room| match (newest, label) {
        (true, None) => timers.newest_dead_letters(last, room).await,
        (false, None) => timers.dead_letters(last, room).await,
        (true, Some(label)) => timers.newest_dead_letters_with_label(label, last, room).await,
        (false, Some(label)) => timers.dead_letters_with_label(label, last, room).await,
    };
    let number = |letter: &DeadLetter| letter.number;
    let (found, next) = pages::join(from, limit, number, page).await?;
    let views: Vec<LetterView> = found.iter().map(LetterView::new).collect();
    screen.table(["NUMBER", "DIED", "REASON", "ATTEMPTS", "ID", "ERROR"], &views, |letter| {
        [
            letter.number.to_string(),
            letter.died.clone(),
            letter.reason.to_owned(),
            letter.attempts.to_string(),
            letter.id.clone(),
            beginning(&letter.error),
        ]
    })?;
    let Some(next) = next else { return Ok(()) };
    let option = if newest { "--newest --before" } else { "--after" };
    let Some(label) = label else {
        let total = timers.stats().await?.dead_letters;
        return screen.go_on(&next, Some(total), &format!("dead list {option} {next}"));
    };
    let command = format!("dead list --label {:?} {option} {next}", label.as_str());
    screen.go_on(&next, None, &command)
}

async fn show(timers: &DurableTimers, number: u64, screen: &mut Screen) -> Result<(), Failure> {
    let found = timers.dead_letter(number).await?;
    let Some(found) = found else { return Err(missing(number)) };
    show_letter(&found, screen)
}

pub(crate) fn show_letter(found: &DeadLetter, screen: &mut Screen) -> Result<(), Failure> {
    let letter = LetterView::new(found);
    let mut fields = vec![
        ("number", letter.number.to_string()),
        ("id", letter.id.clone()),
        ("planned", letter.planned.clone()),
        ("died", letter.died.clone()),
        ("reason", letter.reason.to_owned()),
        ("attempts", letter.attempts.to_string()),
        ("error", letter.error.clone()),
    ];
    fields.extend(letter.headers.iter().map(|(name, value)| {
        ("header", format!("{name}={}", value.as_deref().unwrap_or_default()))
    }));
    fields.extend(letter.labels.iter().map(|label| ("label", label.clone())));
    fields.push(("payload", letter.payload.text().to_owned()));
    screen.fields(&letter, &fields)
}

pub(crate) async fn redrive(
    timers: &DurableTimers,
    asked: Redrive,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let Some(number) = asked.which.number else {
        return redrive_all(timers, asked.which.label.as_ref(), screen).await;
    };
    let done = match &asked.r#as {
        Some(id) => timers.redrive_as(number, id).await?,
        None => timers.redrive(number).await?,
    };
    if !done {
        return Err(missing(number));
    }
    screen.say(&json!({ "number": number, "result": "redriven" }), &format!("{number}: redriven"))
}

/// Redrives all dead letters, or the dead letters of a label.
async fn redrive_all(
    timers: &DurableTimers,
    label: Option<&Label>,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let (mut redriven, mut existing, mut unreadable, mut after) = (0, 0, 0, None);
    loop {
        let page = match label {
            None => timers.redrive_dead_letters(after, PAGE).await?,
            Some(label) => timers.redrive_label(label, after, PAGE).await?,
        };
        redriven += page.redriven;
        existing += page.existing;
        unreadable += page.unreadable;
        match page.last {
            Some(last) => after = Some(last),
            None => break,
        }
    }
    let result = json!({ "redriven": redriven, "existing": existing, "unreadable": unreadable });
    let kept = match (existing, unreadable) {
        (0, 0) => String::new(),
        _ => format!(", {existing} kept because a timer has their id, {unreadable} unreadable"),
    };
    screen.say(&result, &format!("{} redriven{kept}", counted(redriven, "dead letter")))
}

fn missing(number: u64) -> Failure {
    Failure::NotFound(format!("there is no dead letter {number}"))
}
