//! `check`, `stats`, `copy` and `migrate`.

#![forbid(unsafe_code)]

use crate::failure::{Failure, complain};
use crate::screen::Screen;
use serde_json::{Value, json};
use std::io::Write;
use std::time::Duration;
use tourbillon_durable::text::{Address, StatsView, StoreArguments, counted, show_time};
use tourbillon_durable::{DurableTimers, Finding, Postgres};

pub(crate) async fn check(
    timers: &DurableTimers,
    repair: bool,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let mut report = timers.check().await?;
    if repair && !report.is_sound() {
        let before = timers.repair().await?;
        let found = before.found;
        screen.say(
            &json!({ "repaired_from": found }),
            &format!("{} before the repair", counted(found, "finding")),
        )?;
        report = timers.check().await?;
    }
    for finding in &report.findings {
        screen.say(&described(finding), &sentence(finding))?;
    }
    let (timers, keys, found) = (report.timers, report.keys, report.found);
    let summary = json!({ "timers": timers, "keys": keys, "found": found });
    let counts = [(timers, "timer"), (keys, "index key"), (found, "finding")];
    let counts = counts.map(|(number, noun)| counted(number, noun));
    screen.say(&summary, &counts.join(", "))?;
    match found {
        0 => Ok(()),
        _ if repair => Err(Failure::Damaged("the repair could not mend all damage".to_owned())),
        _ => Err(Failure::Damaged("the store is damaged (`check --repair` repairs it)".to_owned())),
    }
}

fn described(finding: &Finding) -> Value {
    match finding {
        Finding::Unindexed { id } => json!({ "finding": "unindexed", "id": id }),
        Finding::Stray { id, due } => {
            json!({ "finding": "stray", "id": id, "due": show_time(*due) })
        }
        Finding::StrayLabel { id, label } => {
            json!({ "finding": "stray_label", "id": id, "label": label })
        }
        Finding::Unreadable { id } => json!({ "finding": "unreadable", "id": id }),
        Finding::Leases { counted, found } => {
            json!({ "finding": "leases", "counted": counted, "found": found })
        }
        other => json!({ "finding": format!("{other:?}") }),
    }
}

fn sentence(finding: &Finding) -> String {
    match finding {
        Finding::Unindexed { id } => {
            format!("{id}: not in an index, so it may not be delivered or listed")
        }
        Finding::Stray { id, due } => {
            format!("{id}: in the index at {}, but no such timer is due then", show_time(*due))
        }
        Finding::StrayLabel { id, label } => {
            format!("{id}: listed by the label {label:?}, which no such timer has")
        }
        Finding::Unreadable { id } => format!("{id}: cannot be read"),
        Finding::Leases { counted, found } => {
            format!("the store counts {counted} leased timers, but has {found}")
        }
        other => format!("{other:?}"),
    }
}

pub(crate) async fn stats(timers: &DurableTimers, screen: &mut Screen) -> Result<(), Failure> {
    let found = timers.stats().await?;
    let stats = StatsView::new(&found);
    let lag = humantime::format_duration(Duration::from_millis(stats.lag_millis));
    screen.fields(
        &stats,
        &[
            ("timers", stats.timers.to_string()),
            ("resting", stats.resting.to_string()),
            ("leased", stats.leased.to_string()),
            ("paused", stats.paused.to_string()),
            ("overdue", stats.overdue.to_string()),
            ("lag", lag.to_string()),
            ("oldest due", stats.oldest_due.clone().unwrap_or_default()),
            ("dead letters", stats.dead_letters.to_string()),
            ("store", if stats.store_paused { "paused" } else { "running" }.to_owned()),
        ],
    )
}

pub(crate) async fn copy(
    timers: &DurableTimers,
    other: &DurableTimers,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let copied = timers
        .copy_to(other, |progress| {
            let waits = match progress.running {
                0 => String::new(),
                running => format!(", waiting for {}", counted(running, "running timer")),
            };
            let (timers, letters) = (progress.timers, progress.dead_letters);
            let counts = [counted(timers, "timer"), counted(letters, "dead letter")];
            complain(&format!("{}{waits}", counts.join(", ")));
        })
        .await?;
    let (timers, letters) = (copied.timers, copied.dead_letters);
    let counts = [counted(timers, "timer"), counted(letters, "dead letter")];
    let sentence = format!("{} copied, both stores are paused", counts.join(" and "));
    screen.say(&json!({ "timers": timers, "dead_letters": letters }), &sentence)
}

/// Prints the SQL that creates or upgrades a store.
pub(crate) fn print_sql(store: &StoreArguments, address: &Address) -> Result<(), Failure> {
    let Address::Postgres { name, .. } = address else {
        let what = "--print-sql needs the address of a store in PostgreSQL".to_owned();
        return Err(Failure::Usage(what));
    };
    let sql = Postgres::migration(store.in_postgres(name))?;
    Ok(std::io::stdout().lock().write_all(sql.as_bytes())?)
}

/// Reports that a store has this version.
pub(crate) fn migrated(address: &Address, screen: &mut Screen) -> Result<(), Failure> {
    let store = address.label();
    screen.say(&json!({ "store": store, "result": "current" }), &format!("{store}: up to date"))
}
