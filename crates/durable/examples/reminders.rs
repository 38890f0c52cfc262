//! Reminders that survive their program. Run it, stop it at any time, and run it again. Reminders
//! that became due meanwhile are delivered at once, oldest first. With the feature `redis` and
//! `--store redis://…` they are kept in Redis, and several of these programs share the work.
//!
//! ```text
//! cargo run -p tourbillon-durable --example reminders
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use clap::Parser;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use tourbillon::Builder;
use tourbillon::future::Timer;
#[cfg(feature = "redis")]
use tourbillon_durable::Redis;
use tourbillon_durable::{DurableTimers, Embedded, Event, Existing, Options, Outcome};

/// Reminders that survive their program.
#[derive(Parser)]
struct Arguments {
    /// The file of the store.
    #[arg(long, default_value_os_t = std::env::temp_dir().join("tourbillon-reminders"))]
    file: PathBuf,
    /// A Redis to use instead, such as `redis://127.0.0.1/`.
    #[cfg(feature = "redis")]
    #[arg(long)]
    store: Option<String>,
    /// The number of reminders that this run inserts, one second apart.
    #[arg(long, default_value_t = 8)]
    reminders: u32,
    /// The duration of this run in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
}

#[derive(Serialize, Deserialize)]
struct Reminder {
    whom: String,
    of: String,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let timer = Timer::spawn(Builder::new().driver())?;
    #[cfg(feature = "redis")]
    if let Some(url) = &arguments.store {
        let runtime = tokio::runtime::Runtime::new()?;
        let store = runtime.block_on(Redis::connect(url, "reminders"))?;
        return remind_all(&DurableTimers::new(store, &timer), &timer, url, &arguments);
    }
    let timers = DurableTimers::new(Embedded::open(&arguments.file)?, &timer);
    remind_all(&timers, &timer, &arguments.file.display().to_string(), &arguments)
}

fn remind_all(
    timers: &DurableTimers,
    timer: &Timer,
    place: &str,
    arguments: &Arguments,
) -> Result<(), Box<dyn std::error::Error>> {
    pollster::block_on(async {
        println!("{} reminders rest in {place}", timers.len().await?);
        for number in 1..=arguments.reminders {
            let reminder = Reminder { whom: format!("guest {number}"), of: "tea".to_owned() };
            let options = Options::new().existing(Existing::Keep).attempts(3);
            let delay = Duration::from_secs(u64::from(number));
            let id = format!("tea for guest {number}");
            let scheduled = timers.insert_json(&id, &reminder, delay, options).await?;
            println!("{id}: {scheduled:?}, in {delay:?}");
        }
        let end = timer.sleep(Duration::from_secs(arguments.seconds));
        let worker = timers.worker().until(async {
            let _ = end.await;
        });
        let worker = worker.observe(|event| {
            let Event::Attempt(event) = event else { return };
            if event.outcome != Outcome::Acknowledged {
                println!("{event:?}");
            }
        });
        worker.run(|delivery| async move { remind(&delivery.json()?, delivery.planned) }).await?;
        println!("{} reminders are left for the next run", timers.len().await?);
        Ok(())
    })
}

#[allow(clippy::disallowed_methods, reason = "reminders are of the wall clock")]
fn remind(reminder: &Reminder, planned: SystemTime) -> Result<(), Box<dyn std::error::Error>> {
    let late = SystemTime::now().duration_since(planned).unwrap_or_default();
    println!("{}: {} ({late:?} after its time)", reminder.whom, reminder.of);
    Ok(())
}
