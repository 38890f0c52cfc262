//! The runs of a timer: a strip that shows them at a glance, and a table.

#![forbid(unsafe_code)]

use crate::activity::is_failure;
use crate::text::{millis, utc};
use crate::view::parts::{pill, table, time};
use crate::visit::Visit;
use maud::{Markup, html};
use std::time::{Duration, SystemTime};
use tourbillon_durable::LoggedAttempt;
use tourbillon_durable::text::{counted, printable};

/// The number of runs in the strip.
const STRIP: usize = 30;

/// The runs of a timer, latest first, or the reason why there are none to show.
pub(crate) fn runs(visit: &Visit, runs: Result<&[LoggedAttempt], &String>) -> Markup {
    html! {
        section.card.list aria-labelledby="runs" {
            h2 #runs { "Runs" }
            @match runs {
                Err(why) => p.quiet { (printable(why)) },
                Ok([]) => {
                    p.quiet { "No runs yet. A run appears here about a second after it ends." }
                }
                Ok(runs) => {
                    (strip(&runs[..runs.len().min(STRIP)]))
                    (history(visit, runs))
                }
            }
        }
    }
}

/// The colour of a run.
fn colour(run: &LoggedAttempt) -> &'static str {
    match &*run.outcome {
        "dead" | "unreadable" => "is-dead",
        outcome if is_failure(outcome) => "is-failing",
        "acknowledged" => "is-done",
        _ => "is-resting",
    }
}

/// The latest runs as bars from left to right, latest last.
fn strip(runs: &[LoggedAttempt]) -> Markup {
    let failed = runs.iter().filter(|run| is_failure(&run.outcome)).count();
    let last = counted(runs.len() as u64, "run");
    let words = match failed {
        0 => format!("Last {last}: none failed."),
        _ => format!("Last {last}: {failed} failed."),
    };
    let missing = STRIP - runs.len();
    let bars = runs.iter().rev().zip(missing..);
    html! {
        figure.strip {
            svg viewBox={ "0 0 " (STRIP * 12 - 4) " 32" } role="img" aria-label=(words) {
                @for place in 0..missing {
                    rect.is-missing x=(place * 12) y="0" width="8" height="32" rx="2" {}
                }
                @for (run, place) in bars {
                    rect.(colour(run)) x=(place * 12) y="0" width="8" height="32" rx="2" {
                        title { (run.outcome) ", " (utc(run.ended)) }
                    }
                }
            }
            figcaption { (words) }
        }
    }
}

fn history(visit: &Visit, runs: &[LoggedAttempt]) -> Markup {
    let row = |run: &LoggedAttempt| {
        vec![
            time(visit, run.ended),
            html! { (run.attempt) },
            pill(colour(run), &run.outcome.replace('_', " ")),
            html! { @if let Some(status) = run.status { (status) } @else { span.quiet { "–" } } },
            html! { (took(run.duration)) },
            html! { (took(lateness(run))) },
            html! { @if run.error.is_empty() { span.quiet { "–" } } @else { span.error { (printable(&run.error)) } } },
        ]
    };
    let rows: Vec<_> = runs.iter().map(row).collect();
    let titles = ["Ended", "Attempt", "Outcome", "Status", "Took", "Late by", "Error"];
    table(&format!("Latest {}", counted(runs.len() as u64, "run")), &titles, &rows)
}

/// Returns how long after its planned time a run began.
fn lateness(run: &LoggedAttempt) -> Option<Duration> {
    let began: SystemTime = run.ended.checked_sub(run.duration?)?;
    Some(began.duration_since(run.planned).unwrap_or_default())
}

fn took(duration: Option<Duration>) -> Markup {
    match duration {
        None => html! { span.quiet { "–" } },
        Some(duration) => {
            html! { (millis(duration.as_millis().try_into().unwrap_or(u64::MAX))) }
        }
    }
}
