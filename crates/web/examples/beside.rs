//! The page beside an application, in one server. The application reminds people of their tea.
//!
//! ```text
//! cargo run -p timers-web --example beside
//! ```
//!
//! The application is at <http://127.0.0.1:8090/tea/green>, and the page at
//! <http://127.0.0.1:8090/admin/timers>. Only this machine can reach them. Anywhere else, put your
//! authentication around the page.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get;
use std::error::Error;
use std::time::Duration;
use timers_web::{Activity, Description, TimersWeb};
use tokio::net::TcpListener;
use tourbillon_durable::{Delivery, DurableTimers, Existing, LogBounds, Options};

/// The time that tea takes.
const STEEPS: Duration = Duration::from_secs(180);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::temp_dir().join(format!("timers-web-beside-{}", std::process::id()));
    let timers = DurableTimers::open(&file)?;
    let log = timers.attempt_log(LogBounds::new());
    let activity = Activity::new();

    let web =
        TimersWeb::new(&timers).name("tea").log(&log).activity(&activity).describe(|cup| {
            Description::new(format!("remind of {}", String::from_utf8_lossy(cup)))
        });
    let app = Router::new()
        .route("/tea/{kind}", get(brew))
        .with_state(timers.clone())
        .nest("/admin/timers", web.router());

    let worker = timers.worker().log(&log).observe(move |event| activity.record(event));
    let working = worker.run(remind);
    let listener = TcpListener::bind("127.0.0.1:8090").await?;
    println!("the page is at http://{}/admin/timers", listener.local_addr()?);
    tokio::select! {
        served = async { axum::serve(listener, app).await } => served?,
        worked = working => worked?,
    }
    Ok(())
}

/// Inserts the timer of a cup, or starts it again.
async fn brew(State(timers): State<DurableTimers>, Path(kind): Path<String>) -> String {
    let options = Options::new().attempts(3).existing(Existing::Replace);
    match timers.insert(&kind, &*kind, STEEPS, options).await {
        Ok(_) => format!("{kind} tea is ready in {STEEPS:?}\n"),
        Err(error) => format!("{kind}: {error}\n"),
    }
}

/// Fails for coffee, so that the page has something to show.
async fn remind(delivery: Delivery) -> Result<(), String> {
    match &*delivery.payload {
        b"coffee" => Err("this is a teapot".to_owned()),
        kind => {
            println!("{} tea is ready", String::from_utf8_lossy(kind));
            Ok(())
        }
    }
}
