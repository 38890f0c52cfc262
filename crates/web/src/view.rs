//! The HTML of the page. All values are escaped.

#![forbid(unsafe_code)]

use crate::failure::Failure;
use crate::forms::FIELD;
use crate::site::TimersWeb;
use crate::text::{counted, duration, show_time, visible};
use crate::visit::Visit;
use maud::{DOCTYPE, Markup, html};
use std::time::SystemTime;
use tourbillon_durable::{DeadLetter, DurableTimer, LoggedAttempt, Rule, Stats, TimerState};

/// The lists of the overview.
pub(crate) struct Lists {
    pub(crate) running: Vec<DurableTimer>,
    pub(crate) due: Vec<DurableTimer>,
    pub(crate) letters: Vec<DeadLetter>,
}

/// What all pages have in common.
pub(crate) struct Frame<'a> {
    pub(crate) site: &'a TimersWeb,
    /// The address of the root of the page, or an empty text beside the other pages.
    pub(crate) root: &'a str,
    pub(crate) title: &'a str,
}

impl Frame<'_> {
    /// Returns a page with this body.
    pub(crate) fn around(&self, body: &Markup) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width";
                    title { (self.title) " – " (self.site.name) }
                    link rel="stylesheet" href={ (self.root) "style.css" };
                }
                body { (body) }
            }
        }
    }
}

impl Visit {
    fn frame(&self, title: &str, body: &Markup) -> Markup {
        let frame = Frame { site: &self.site, root: "", title };
        frame.around(&html! {
            nav {
                a href="overview" { (self.site.name) }
                form method="get" action="timer" {
                    label { "Timer " input type="search" name="id" placeholder="id" required; }
                    button { "Find" }
                }
                @if let Some(address) = &self.site.log_out { (self.button(address, "Log out")) }
            }
            @if let Some(trouble) = self.site.trouble() { p.trouble role="alert" { (trouble) } }
            (body)
        })
    }

    /// A button in its own form.
    fn button(&self, action: &str, text: &str) -> Markup {
        html! {
            form method="post" action=(action) {
                @if let Some(token) = &self.token {
                    input type="hidden" name=(FIELD) value=(token.text());
                }
                button { (text) }
            }
        }
    }
}

/// Returns an address for a timer.
pub(crate) fn address(path: &str, id: &str) -> String {
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("id", id).finish();
    format!("{path}?{query}")
}

/// An error.
pub(crate) fn failure(visit: &Visit, failure: &Failure) -> Markup {
    visit.frame(
        failure.title(),
        &html! {
            h1 { (failure.title()) }
            p.trouble role="alert" { (visible(&failure.detail)) }
        },
    )
}

/// The overview.
pub(crate) fn overview(visit: &Visit, stats: &Stats, lists: &Lists) -> Markup {
    visit.frame(
        "Overview",
        &html! {
            p {
                (counted(stats.timers, "timer")) " (" (stats.overdue) " overdue), "
                (counted(stats.dead_letters, "dead letter")) ". "
                @if stats.store_paused { strong { "The store is paused." } }
            }
            @if stats.store_paused {
                (visit.button("resume", "Resume the store"))
            } @else {
                (visit.button("pause", "Pause the store"))
            }
            h2 { "Running" }
            (timers(visit, "Planned", |timer| timer.planned, &lists.running))
            h2 { "Due next" }
            (timers(visit, "Due", |timer| timer.due, &lists.due))
            h2 { "Dead letters" }
            @if stats.dead_letters > lists.letters.len() as u64 {
                p { "The newest " (lists.letters.len()) " of " (stats.dead_letters) "." }
            }
            (dead(visit, &lists.letters))
        },
    )
}

/// A table with a title for each column, or a note that there are no rows.
fn table<const N: usize>(titles: [&str; N], rows: &[[Markup; N]]) -> Markup {
    html! {
        @if rows.is_empty() { p { "None." } } @else {
            table {
                thead { tr { @for title in titles { th { (title) } } } }
                tbody { @for row in rows { tr { @for (title, cell) in titles.iter().zip(row) {
                    td data-title=[(!title.is_empty()).then_some(title)] { (cell) }
                } } } }
            }
        }
    }
}

/// A point in time.
fn time(time: SystemTime) -> Markup {
    let text = show_time(time);
    html! { time datetime=(text) { (text) } }
}

/// A link to the page of a timer.
fn link(id: &str) -> Markup {
    html! { a href=(address("timer", id)) { (visible(id)) } }
}

/// A table of timers with one of their times. A running timer is not due, but has a planned time.
fn timers(
    visit: &Visit,
    title: &str,
    of: impl Fn(&DurableTimer) -> SystemTime,
    list: &[DurableTimer],
) -> Markup {
    let row = |timer: &DurableTimer| {
        [
            time(of(timer)),
            link(&timer.id),
            html! { (state(timer.state)) },
            html! { (timer.attempts) " of " (timer.options.get_attempts()) },
            html! { (visible(&visit.describe(&timer.payload).summary)) },
            switch(visit, timer),
        ]
    };
    let rows: Vec<_> = list.iter().map(row).collect();
    table([title, "Id", "State", "Attempts", "Calls", ""], &rows)
}

/// Returns the name of a state.
fn state(state: TimerState) -> &'static str {
    match state {
        TimerState::Resting => "resting",
        TimerState::Running => "running",
        TimerState::Pausing => "pausing",
        TimerState::Cancelling => "cancelling",
        TimerState::Paused => "paused",
        _ => "in another state",
    }
}

/// Returns a rule in a few words, such as `every 1h` or `cron 0 9 * * * Europe/Berlin`.
fn words(rule: &Rule) -> String {
    match rule {
        Rule::Every(interval) => format!("every {}", duration(*interval)),
        Rule::Cron { expression, zone } => format!("cron {expression} {zone}"),
        _ => "by an unknown rule".to_owned(),
    }
}

/// The button that pauses or resumes a timer.
fn switch(visit: &Visit, timer: &DurableTimer) -> Markup {
    match timer.state {
        TimerState::Paused | TimerState::Pausing => {
            visit.button(&address("resume", &timer.id), "Resume")
        }
        TimerState::Cancelling => html! {},
        _ => visit.button(&address("pause", &timer.id), "Pause"),
    }
}

fn dead(visit: &Visit, letters: &[DeadLetter]) -> Markup {
    let row = |letter: &DeadLetter| {
        [
            time(letter.died),
            html! { a href={ "letter?number=" (letter.number) } { (visible(&letter.id)) } },
            html! { (letter.reason.name()) },
            html! { (visible(&letter.error)) },
            visit.button(&format!("redrive?number={}", letter.number), "Redrive"),
        ]
    };
    let rows: Vec<_> = letters.iter().map(row).collect();
    table(["Died", "Id", "Reason", "Error", ""], &rows)
}

fn history(runs: &[LoggedAttempt]) -> Markup {
    let row = |run: &LoggedAttempt| {
        [
            time(run.ended),
            html! { (run.attempt) },
            html! { (run.outcome) },
            html! { @if let Some(status) = run.status { (status) } @else { "none" } },
            html! { (run.duration.unwrap_or_default().as_millis()) " ms" },
            html! { (visible(&run.error)) },
        ]
    };
    let rows: Vec<_> = runs.iter().map(row).collect();
    table(["Ended", "Attempt", "Outcome", "Status", "Took", "Error"], &rows)
}

/// The page of a dead letter.
pub(crate) fn letter(visit: &Visit, letter: &DeadLetter, runs: &[LoggedAttempt]) -> Markup {
    visit.frame(
        &visible(&letter.id),
        &html! {
            h1 { "Dead letter " (letter.number) }
            dl {
                dt { "Timer" } dd { (link(&letter.id)) }
                dt { "Died" } dd { (show_time(letter.died)) }
                dt { "Planned" } dd { (show_time(letter.planned)) }
                dt { "Attempts" } dd { (letter.attempts) }
                dt { "Reason" } dd { (letter.reason.name()) }
                @if !letter.error.is_empty() { dt { "Error" } dd { (visible(&letter.error)) } }
                dt { "Calls" } dd { (visible(&visit.describe(&letter.payload).summary)) }
            }
            (visit.button(&format!("redrive?number={}", letter.number), "Redrive"))
            h2 { "Runs" }
            (history(runs))
        },
    )
}

/// The page of a timer, which may be gone, and may have left dead letters.
pub(crate) fn timer(
    visit: &Visit,
    id: &str,
    timer: Option<&DurableTimer>,
    letters: &[DeadLetter],
    runs: &[LoggedAttempt],
) -> Markup {
    let is_running = timer.is_some_and(DurableTimer::is_running);
    visit.frame(
        &visible(id),
        &html! {
            h1 { (visible(id)) }
            @match timer {
                None => p { "There is no such timer now." },
                Some(timer) => {
                    dl {
                        dt { "State" } dd { (state(timer.state)) }
                        dt { "Planned" } dd { (show_time(timer.planned)) }
                        @if is_running { dt { "Lease until" } dd { (show_time(timer.due)) } }
                        @else { dt { "Due" } dd { (show_time(timer.due)) } }
                        dt { "Attempts" } dd { (timer.attempts) " of " (timer.options.get_attempts()) }
                        @if let Some(rule) = timer.options.get_rule() { dt { "Repeats" } dd { (words(rule)) } }
                        @if !timer.error.is_empty() { dt { "Error" } dd { (visible(&timer.error)) } }
                        dt { "Calls" } dd { (visible(&visit.describe(&timer.payload).summary)) }
                    }
                    (switch(visit, timer))
                }
            }
            @if !letters.is_empty() {
                h2 { "Dead letters" }
                (dead(visit, letters))
            }
            h2 { "Runs" }
            (history(runs))
        },
    )
}
