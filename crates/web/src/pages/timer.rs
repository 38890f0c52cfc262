//! The page of a timer.

#![forbid(unsafe_code)]

use crate::body::Readable;
use crate::failure::Failure;
use crate::pages::query::{Asked, Timer};
use crate::read::log;
use crate::site::TimersWeb;
use crate::text::duration;
use crate::view::frame::{Menu, Page};
use crate::view::parts::{labels, moment, pill, question, table, time};
use crate::view::runs::runs;
use crate::view::timers::{repeats, run, state, switch};
use crate::visit::Visit;
use axum::response::Html;
use maud::{Markup, html};
use std::time::{Duration, SystemTime};
use tourbillon::scheduler::Calendar;
use tourbillon_durable::text::printable;
use tourbillon_durable::{
    DeadLetter, DurableTimer, LoggedAttempt, Misfire, Options, Rule, TimerState,
};

/// The number of runs in the table.
const RUNS: usize = 50;

/// The number of dead letters of the timer.
const LETTERS: usize = 20;

/// The number of next runs.
const NEXT: usize = 5;

/// Shows a timer, which may be gone, and may have left dead letters.
pub(super) async fn show(
    visit: Visit,
    Asked(Timer { id, done }): Asked<Timer>,
) -> Result<Html<String>, Failure> {
    let timer = visit.site.timers.get(&id).await?;
    let log = latest(&visit.site, &id).await;
    let letters = visit.site.timers.newest_dead_letters_of(&id, None, LETTERS).await?;
    let name = printable(&id);
    let page = Page { title: &name, entry: Menu::Timers, is_live: true };
    let main = html! {
        div.title {
            h1.id { (name) }
            @match &timer {
                Some(timer) => { (state(&visit, timer)) (actions(&visit, timer)) }
                None => (pill("is-resting", "gone")),
            }
        }
        @match &*done {
            "run" => p.banner.is-done role="status" {
                "It runs as soon as a worker is free. The run is listed below once it has ended."
            },
            "redriven" => p.banner.is-done role="status" {
                "The dead letter was redriven. The timer runs as soon as a worker is free."
            },
            "moved" => p.banner.is-done role="status" { "The timer was moved." },
            _ => {}
        }
        (dead(&visit, &letters))
        @match &timer {
            Some(timer) => (facts(&visit, timer)),
            None => p.banner {
                "There is no such timer. It has run, died, been cancelled or never existed."
            },
        }
        (runs(&visit, log.as_deref()))
    };
    Ok(Html(page.with(&visit, &main).into_string()))
}

/// Returns the latest runs of a timer, or the reason why there are none to show.
pub(super) async fn latest(site: &TimersWeb, id: &str) -> Result<Vec<LoggedAttempt>, String> {
    match &site.log {
        None => Err("This page has no log of attempts, so it cannot show runs.".to_owned()),
        Some(log) => log::latest(log, Some(id), RUNS).await,
    }
}

fn actions(visit: &Visit, timer: &DurableTimer) -> Markup {
    html! {
        div.answers {
            (run(visit, timer))
            (switch(visit, timer))
            @if visit.rights_to(&timer.id).can_schedule() {
                @if !timer.is_running() { (question("", "move", "Move", &timer.id)) }
                @if timer.state != TimerState::Cancelling {
                    (question("danger", "cancel", "Cancel", &timer.id))
                }
            }
        }
    }
}

/// The dead letters of a timer.
fn dead(visit: &Visit, letters: &[DeadLetter]) -> Markup {
    let row = |letter: &DeadLetter| {
        vec![
            html! { a href={ "letter?number=" (letter.number) } { "Dead letter " (letter.number) } },
            time(visit, letter.died),
            pill("is-dead", letter.reason.name()),
            html! { span.error.is-dead { (printable(&letter.error)) } },
        ]
    };
    let rows: Vec<_> = letters.iter().map(row).collect();
    html! {
        @if !letters.is_empty() {
            section.card.is-dead {
                (table("Dead letters of this timer", &["Letter", "Died", "Reason", "Error"], &rows))
            }
        }
    }
}

/// Everything that the store knows of a timer.
fn facts(visit: &Visit, timer: &DurableTimer) -> Markup {
    let due = if timer.is_running() { "Lease until" } else { "Due" };
    html! {
        @if !timer.error.is_empty() {
            section.banner.is-failing {
                h2 { @match timer.attempts {
                    0 => "The last attempt did not succeed, and does not count",
                    _ => "The last attempt failed",
                } }
                p { (printable(&timer.error)) }
            }
        }
        div.columns {
            section.card aria-labelledby="schedule" {
                h2 #schedule { "Schedule" }
                dl {
                    dt { (due) } dd { (moment(visit, timer.due)) }
                    @if timer.due != timer.planned {
                        dt { "Planned" } dd { (moment(visit, timer.planned)) }
                    }
                    dt { "Attempts" } dd { (timer.attempts) " of " (timer.options.get_attempts()) }
                    dt { "Repeats" } dd { (repeats(timer)) }
                    @if let Some(next) = timer.next {
                        dt { "Followed by" } dd { (moment(visit, next)) }
                    }
                    (options(&timer.options, "timers"))
                }
                (next_runs(visit, timer))
            }
            (payload(visit, &timer.payload, &timer.options))
        }
    }
}

/// The options of a timer or a dead letter. Its labels lead to a list.
pub(super) fn options(options: &Options, list: &str) -> Markup {
    let backoff = options.get_backoff();
    let (first, most) = (duration(backoff.after(1)), duration(backoff.after(u32::MAX)));
    html! {
        @if options.get_rule().is_some() {
            dt { "If missed" }
            dd { @match options.get_misfire() {
                Misfire::SkipAfter(window) => { "skipped if more than " (duration(window)) " late" }
                _ => "runs once to catch up",
            } }
        }
        dt { "Waits between attempts" } dd { (first) " to " (most) }
        dt { "Lease" } dd { (duration(options.get_lease())) }
        @if let Some(limit) = options.get_time_to_live() {
            dt { "Time to live" } dd { (duration(limit)) }
        }
        @if options.get_labels().next().is_some() {
            dt { "Labels" } dd { (labels(list, options)) }
        }
    }
}

/// The payload, as the host describes it, and the names of the headers. Their values may be secret.
pub(super) fn payload(visit: &Visit, payload: &[u8], options: &Options) -> Markup {
    let described = visit.describe(payload);
    let body = Readable::of(&described.body);
    let names: Vec<&str> = options.get_headers().map(|(name, _)| name).collect();
    html! {
        section.card aria-labelledby="payload" {
            h2 #payload { "Payload" }
            p.wide { (printable(&described.summary)) }
            dl {
                @for (name, value) in &described.fields {
                    dt { (printable(name)) } dd { (printable(value)) }
                }
                @if !names.is_empty() {
                    dt { "Headers of the timer" } dd { (printable(&names.join(", "))) }
                }
                dt { "Size" } dd { (payload.len()) " bytes" }
            }
            @if !described.body.is_empty() {
                pre tabindex="0" aria-label="Body" {
                    @for line in body.text.lines() { (printable(line)) "\n" }
                }
                @if body.is_cut { p.quiet { "The end of the body is left out." } }
            }
        }
    }
}

/// The next times of a repeating timer.
fn next_runs(visit: &Visit, timer: &DurableTimer) -> Markup {
    let times = occurrences(timer, visit.now);
    html! {
        @if !times.is_empty() {
            h3 { "Next runs" }
            ol.times { @for at in times { li { (moment(visit, at)) } } }
        }
    }
}

/// Returns the next planned times of a repeating timer, the present one first if it has not begun.
fn occurrences(timer: &DurableTimer, now: SystemTime) -> Vec<SystemTime> {
    let Some(rule) = timer.options.get_rule() else { return Vec::new() };
    let present = (timer.attempts == 0).then_some(timer.planned);
    let mut last = present.unwrap_or(timer.planned.max(now));
    let mut times: Vec<SystemTime> = present.into_iter().collect();
    while times.len() < NEXT {
        let Some(next) = following(rule, timer.planned, last) else { break };
        times.push(next);
        last = next;
    }
    times
}

/// Returns the first time of a rule after another.
fn following(rule: &Rule, planned: SystemTime, after: SystemTime) -> Option<SystemTime> {
    match rule {
        Rule::Every(interval) => {
            let passed = after.duration_since(planned).unwrap_or_default();
            let steps = passed.as_millis().checked_div(interval.as_millis())? + 1;
            let millis = steps.checked_mul(interval.as_millis())?.try_into().ok()?;
            planned.checked_add(Duration::from_millis(millis))
        }
        Rule::Cron { expression, zone } => {
            Calendar::builder(expression).zone(zone).build().ok()?.next_after(after)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn the_next_times_follow_the_rule() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let every = Rule::Every(Duration::from_secs(10));
        for (after, next) in [(100, 110), (109, 110), (110, 120), (5, 110)] {
            assert_eq!(following(&every, at(100), at(after)), Some(at(next)), "{after}");
        }
        let (expression, zone) = ("0 3 * * *".to_owned(), "Europe/Berlin".to_owned());
        let cron = Rule::Cron { expression, zone };
        assert_eq!(following(&cron, at(0), at(0)), Some(at(2 * 3600)));
        let unknown = Rule::Cron { expression: "never".to_owned(), zone: "UTC".to_owned() };
        assert_eq!(following(&unknown, at(0), at(0)), None);
    }
}
