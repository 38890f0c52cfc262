//! The overview: how the store is, the calls of the last hour, and the timers of the next day.
//!
//! It reads a bounded number of rows, however many timers there are, and says how many in the
//! header `Server-Timing`.

#![forbid(unsafe_code)]

use crate::activity::{Hour, MINUTES, Minute};
use crate::failure::Failure;
use crate::read::horizon::{Count, Horizon, QUARTER};
use crate::read::log;
use crate::site::TimersWeb;
use crate::text::{clock, duration, millis, show_field};
use crate::view::chart::{Bar, bars, lines};
use crate::view::frame::{Menu, Page};
use crate::view::parts::{address, hidden_token, hour, pill, table, time};
use crate::view::timers::timers;
use crate::visit::Visit;
use axum::response::{Html, IntoResponse, Response};
use http::HeaderName;
use maud::{Markup, html};
use std::time::Duration;
use tourbillon_durable::text::{counted, grouped, printable};
use tourbillon_durable::{DeadLetter, Stats};

/// The number of newest runs of the log that are counted.
const RUNS: usize = 3000;

/// The number of newest dead letters.
const LETTERS: usize = 5;

/// The header with the number of rows that were read for a page.
const TIMING: HeaderName = HeaderName::from_static("server-timing");

/// How far back the charts of calls go.
const HOUR: Duration = Duration::from_secs(MINUTES * 60);

/// The calls of the last hour, and where they were counted.
struct Calls {
    /// Empty if they are unknown.
    minutes: Vec<Minute>,
    source: String,
    read: usize,
}

/// Shows the overview.
pub(super) async fn show(visit: Visit) -> Result<Response, Failure> {
    let stats = visit.site.timers.stats().await?;
    let horizon = Horizon::read(&visit.site.timers, stats.now).await?;
    let letters = visit.site.timers.newest_dead_letters(None, LETTERS).await?;
    let calls = Calls::read(&visit.site, &stats).await;
    let rows = horizon.read + letters.len() + calls.as_ref().map_or(0, |calls| calls.read);
    let page = Page { title: "Overview", entry: Menu::Overview, is_live: true };
    let main = html! {
        div.title {
            h1 { "Overview" }
            (pause(&visit, &stats))
        }
        @if stats.store_paused {
            p.banner.is-failing role="status" {
                "The store is paused. No attempt begins until it is resumed."
            }
        }
        (tiles(&stats, horizon.failing))
        @if stats.timers == 0 && stats.dead_letters == 0 {
            (welcome(&visit))
        } @else {
            @match &calls {
                Some(calls) if calls.minutes.is_empty() => p.quiet { (printable(&calls.source)) },
                Some(calls) => (calls.show()),
                None => {}
            }
            (herd(&horizon))
            (details(&visit, &horizon, &letters))
        }
    };
    let timing = [(TIMING, format!("rows;desc=\"{rows}\""))];
    Ok((timing, Html(page.with(&visit, &main).into_string())).into_response())
}

/// The button that pauses the store, after a question, or resumes it.
fn pause(visit: &Visit, stats: &Stats) -> Markup {
    html! {
        @if !visit.rights.can_operate() {
        } @else if stats.store_paused {
            form method="post" action="resume" {
                (hidden_token(visit))
                button.primary { "Resume the store" }
            }
        } @else {
            a.button href="pause" { "Pause the store…" }
        }
    }
}

/// The numbers of timers in each state, which lead to their lists.
fn tiles(stats: &Stats, failing: Count) -> Markup {
    let tile = |colour: &str, name: &str, count: Count, address: &str, note: &str| {
        let class = if count.timers == 0 { "is-none" } else { colour };
        html! {
            li { a class={ "tile " (class) } href=(address) {
                span.name { (name) }
                span.count { (least(count)) }
                span.note { (note) }
            } }
        }
    };
    let exact = |timers| Count { timers, is_least: false };
    let lag = match stats.overdue {
        0 => String::new(),
        _ => {
            format!("for up to {}", millis(stats.lag().as_millis().try_into().unwrap_or(u64::MAX)))
        }
    };
    html! {
        ul.tiles aria-label="Timers by state" {
            (tile("is-dead", "Dead", exact(stats.dead_letters), "dead", ""))
            (tile("is-failing", "Failing", failing, "timers?show=failing", "will be retried"))
            (tile("is-late", "Overdue", exact(stats.overdue), "timers?show=overdue", &lag))
            (tile("is-running", "Running", exact(stats.leased), "timers?show=running", ""))
            (tile("is-paused", "Paused", exact(stats.paused), "timers?show=paused", ""))
            (tile("is-resting", "Resting", exact(stats.resting), "timers?show=resting",
                &format!("of {}", counted(stats.timers, "timer"))))
        }
    }
}

/// Returns a number, with a plus sign if it is a minimum.
fn least(count: Count) -> String {
    match count.is_least {
        true => format!("{}+", grouped(count.timers)),
        false => grouped(count.timers),
    }
}

/// What an empty store shows.
fn welcome(visit: &Visit) -> Markup {
    html! {
        section.empty {
            h2 { "No timers yet" }
            p {
                "This page shows the durable timers of " strong { (visit.site.name) } ": when each is \
                 due, how its attempts went, and which timers were given up. Insert the first \
                 timer like this:"
            }
            pre { code { (visit.site.example) } }
        }
    }
}

impl Calls {
    /// Reads the calls of the last hour. There are none to show if the host has neither a log nor
    /// an activity.
    async fn read(site: &TimersWeb, stats: &Stats) -> Option<Self> {
        let counted = site.activity.as_ref().map(|activity| Self {
            minutes: activity.hour().until(stats.now),
            source: "Only calls that this process has made since it started.".to_owned(),
            read: 0,
        });
        let Some(log) = &site.log else { return counted };
        let runs = match log::latest(log, None, RUNS).await {
            Ok(runs) => runs,
            // A log stops no timer, and no page.
            Err(why) => {
                return counted.or(Some(Self { minutes: Vec::new(), source: why, read: 0 }));
            }
        };
        let oldest = runs.last().filter(|_| runs.len() == RUNS).map(|run| run.ended);
        let reaches_back = oldest.is_none_or(|oldest| oldest + HOUR <= stats.now);
        let read = runs.len();
        if !reaches_back && let Some(counted) = counted {
            return Some(Self { read, ..counted });
        }
        let source = match oldest.filter(|_| !reaches_back) {
            None => "Calls of all processes, from the log.".to_owned(),
            Some(oldest) => format!(
                "The newest {} calls in the log, which go back to {} UTC.",
                grouped(RUNS as u64),
                clock(oldest)
            ),
        };
        let minutes = Hour::of_log(&runs).until(stats.now);
        Some(Self { minutes, source, read })
    }

    /// Draws the calls and their lateness.
    fn show(&self) -> Markup {
        let sum = |of: fn(&Minute) -> u64| self.minutes.iter().map(of).sum::<u64>();
        let (calls, failures) = (sum(|minute| minute.calls), sum(|minute| minute.failures));
        let mut lateness = Minute::default().lateness;
        for minute in &self.minutes {
            // Histograms of the same precision can be added.
            let _ = lateness.add(&minute.lateness);
        }
        let quantile = |quantile| match lateness.is_empty() {
            true => "–".to_owned(),
            false => millis(lateness.value_at_quantile(quantile)),
        };
        let (p50, p99) = (quantile(0.5), quantile(0.99));
        let words =
            format!("{} in the last hour, {} failed", counted(calls, "call"), grouped(failures));
        let late = match lateness.is_empty() {
            true => "No lateness was measured in the last hour".to_owned(),
            false => {
                format!("Half of the calls began within {p50} of their due time, 99% within {p99}")
            }
        };
        let of = |quantile: f64| -> Vec<Option<u64>> {
            let minutes = self.minutes.iter().map(|minute| &minute.lateness);
            minutes
                .map(|late| (!late.is_empty()).then(|| late.value_at_quantile(quantile)))
                .collect()
        };
        let most = self.minutes.iter().map(|minute| minute.calls).max().unwrap_or(0);
        let (p50s, p99s) = (of(0.5), of(0.99));
        let highest = p99s.iter().flatten().max().map_or("–".to_owned(), |late| millis(*late));
        html! {
            div.charts {
                figure.card {
                    figcaption {
                        h2 { "Calls per minute" }
                        p { (words) ", peak " (grouped(most)) " per minute" }
                    }
                    (bars(&words, &self.bars()))
                    (self.axis())
                    (self.table())
                }
                figure.card {
                    figcaption { h2 { "Lateness" } p { (late) } }
                    p.figures {
                        span.line-50 { "p50 " strong { (p50) } }
                        span.line-99 { "p99 " strong { (p99) } }
                        span { "p99 of the worst minute " strong { (highest) } }
                    }
                    (lines(&late, [("line-99", &p99s), ("line-50", &p50s)]))
                    (self.axis())
                    p.quiet { (self.source) }
                }
            }
        }
    }

    fn bars(&self) -> Vec<Bar> {
        let ago = (0..self.minutes.len()).rev();
        let bar = |(minute, ago): (&Minute, usize)| Bar {
            value: minute.calls,
            failed: minute.failures,
            is_least: false,
            text: format!(
                "{ago} min ago: {}, {} failed",
                counted(minute.calls, "call"),
                minute.failures
            ),
        };
        self.minutes.iter().zip(ago).map(bar).collect()
    }

    fn axis(&self) -> Markup {
        html! {
            p.axis aria-hidden="true" {
                span { "1 h ago" } span { "45 min" } span { "30 min" } span { "15 min" } span { "now" }
            }
        }
    }

    /// The minutes with calls.
    fn table(&self) -> Markup {
        let ago = (0..self.minutes.len()).rev();
        let busy = self.minutes.iter().zip(ago).filter(|(minute, _)| minute.calls > 0);
        let row = |(minute, ago): (&Minute, usize)| {
            let late = |quantile| match minute.lateness.is_empty() {
                true => html! { "–" },
                false => html! { (millis(minute.lateness.value_at_quantile(quantile))) },
            };
            vec![
                html! { (ago) " min ago" },
                html! { (grouped(minute.calls)) },
                html! { (grouped(minute.failures)) },
                late(0.5),
                late(0.99),
            ]
        };
        let rows: Vec<_> = busy.map(row).collect();
        html! {
            details #calls-table {
                summary { "As a table" }
                (table("Calls per minute", &["Minute", "Calls", "Failed", "p50", "p99"], &rows))
            }
        }
    }
}

/// Draws the timers of the next day.
fn herd(horizon: &Horizon) -> Markup {
    let quarters = || (0u32..).zip(&horizon.quarters);
    let bar = |(place, count): (u32, &Count)| Bar {
        value: count.timers,
        failed: 0,
        is_least: count.is_least,
        text: format!("{} UTC: {}", clock(horizon.time(place)), least(*count)),
    };
    let all: Vec<Bar> = quarters().map(bar).collect();
    let total = horizon.total();
    let words = format!(
        "{} due in the next 24 hours",
        match total.is_least {
            true => format!("at least {}", counted(total.timers, "timer")),
            false => counted(total.timers, "timer"),
        }
    );
    let busiest = quarters().max_by_key(|(place, count)| (count.timers, u32::MAX - place));
    let busiest = busiest.filter(|(_, count)| count.timers > 0);
    html! {
        figure.card {
            figcaption {
                h2 { "Due in the next 24 hours" }
                p {
                    (words)
                    @if let Some((place, count)) = busiest {
                        ", busiest at "
                        a href=(quarter_address(horizon, place)) { (hour(horizon.time(place))) }
                        " (" (least(*count)) ")"
                    }
                }
            }
            (bars(&words, &all))
            p.axis {
                @for place in [0, 24, 48, 72, 96] { (hour(horizon.time(place))) }
            }
            @if total.is_least {
                p.quiet { "Light bars are minimums, because not all timers were counted." }
            }
            details #due-table {
                summary { "As a table" }
                (due_table(horizon))
            }
        }
    }
}

/// The quarters with timers, which lead to their lists.
fn due_table(horizon: &Horizon) -> Markup {
    let busy = (0u32..).zip(&horizon.quarters).filter(|(_, count)| count.timers > 0);
    let row = |(place, count): (u32, &Count)| {
        vec![
            html! { a href=(quarter_address(horizon, place)) { (hour(horizon.time(place))) } },
            html! { (least(*count)) },
        ]
    };
    let rows: Vec<_> = busy.map(row).collect();
    table(&format!("Timers due per {}", duration(QUARTER)), &["From", "Timers"], &rows)
}

/// Returns the address of the timers that are due in a quarter.
fn quarter_address(horizon: &Horizon, place: u32) -> String {
    let (from, until) = (horizon.time(place), horizon.time(place + 1));
    address("timers", &[("from", &show_field(from)), ("until", &show_field(until))])
}

/// The newest dead letters, the first failing timers, and the next ones.
fn details(visit: &Visit, horizon: &Horizon, letters: &[DeadLetter]) -> Markup {
    let row = |letter: &DeadLetter| {
        vec![
            html! { a.id href={ "letter?number=" (letter.number) } { (printable(&letter.id)) } },
            time(visit, letter.died),
            pill("is-dead", letter.reason.name()),
            html! { span.error.is-dead { (printable(&letter.error)) } },
        ]
    };
    let dead: Vec<_> = letters.iter().map(row).collect();
    html! {
        @if !letters.is_empty() {
            section.card {
                (table("Newest dead letters", &["Timer", "Died", "Reason", "Error"], &dead))
                p { a href="dead" { "All dead letters" } }
            }
        }
        @if !horizon.first_failing.is_empty() {
            section.card {
                (timers(visit, "Failing", &horizon.first_failing))
                p { a href="timers?show=failing" { "All failing timers" } }
            }
        }
        @if !horizon.next.is_empty() {
            section.card {
                (timers(visit, "Due next", &horizon.next))
                p { a href="timers" { "All timers" } }
            }
        }
    }
}
