//! A cron expression in a time zone, with its runs across a change of the clocks, and another that
//! runs.
//!
//! ```text
//! cargo run --features cron --example cron
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use jiff::Timestamp;
use std::sync::mpsc;
use std::time::SystemTime;
use tourbillon::Builder;
use tourbillon::scheduler::{Calendar, Scheduler};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nightly = Calendar::new("30 2 * * *", "Europe/Berlin")?;
    let mut time = SystemTime::from("2026-03-27T12:00:00Z".parse::<Timestamp>()?);
    println!("Half past two in Berlin, as the clocks go forward:");
    for _ in 0..3 {
        time = nightly.next_after(time).ok_or("no time to come")?;
        let time = Timestamp::try_from(time)?;
        println!("  {}", time.in_tz("Europe/Berlin")?);
    }

    let scheduler = Scheduler::spawn(Builder::new().driver())?;
    scheduler.by(nightly).run(|| println!("good night"))?;
    let (send, ran) = mpsc::channel();
    let every_second = Calendar::new("* * * * * *", "Europe/Berlin")?;
    scheduler.by(every_second).run(move || {
        let _ = send.send(());
    })?;
    ran.recv()?;
    println!("A second began.");
    println!("Not run: {} closures", scheduler.shutdown().len());
    Ok(())
}
