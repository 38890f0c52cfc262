//! The HTML of the page. All values are escaped.

#![forbid(unsafe_code)]

use super::address;
use crate::problem::Problem;
use crate::runs::Run;
use crate::webhook::Webhook;
use maud::{DOCTYPE, Markup, html};
use tourbillon_durable::text::{LetterView, TimerView, counted, printable};
use tourbillon_durable::{DeadLetter, DurableTimer, Stats};

/// The lists of the overview.
pub(super) struct Lists {
    pub(super) running: Vec<DurableTimer>,
    pub(super) due: Vec<DurableTimer>,
    pub(super) letters: Vec<DeadLetter>,
}

fn frame(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { (title) " – timerd" }
                link rel="stylesheet" href="/style.css";
            }
            body { (body) }
        }
    }
}

/// The form for a token, with the reason why the last token was refused.
pub(super) fn login(refused: Option<&str>) -> Markup {
    frame(
        "Log in",
        &html! {
            h1 { "timerd" }
            @if let Some(why) = refused { p.trouble role="alert" { (why) } }
            form method="post" action="/login" {
                label { "Token " input type="password" name="token" required autofocus; }
                button { "Log in" }
            }
        },
    )
}

/// An error.
pub(super) fn problem(problem: &Problem) -> Markup {
    frame(
        problem.title(),
        &html! {
            nav { a href="/" { "timerd" } }
            h1 { (problem.title()) }
            p.trouble role="alert" { (printable(problem.detail())) }
        },
    )
}

/// A button in its own form.
fn button(csrf: &str, action: &str, text: &str) -> Markup {
    html! {
        form method="post" action=(action) {
            input type="hidden" name="csrf" value=(csrf);
            button { (text) }
        }
    }
}

fn search(csrf: &str) -> Markup {
    html! {
        nav {
            a href="/" { "timerd" }
            form method="get" action="/timer" {
                label { "Timer " input type="search" name="id" placeholder="id" required; }
                button { "Find" }
            }
            (button(csrf, "/logout", "Log out"))
        }
    }
}

/// The overview.
pub(super) fn overview(csrf: &str, stats: &Stats, trouble: Option<&str>, lists: &Lists) -> Markup {
    frame(
        "Overview",
        &html! {
            (search(csrf))
            @if let Some(trouble) = trouble { p.trouble role="alert" { (trouble) } }
            p {
                (counted(stats.timers, "timer")) " (" (stats.overdue) " overdue), "
                (counted(stats.dead_letters, "dead letter")) ". "
                @if stats.store_paused { strong { "The store is paused." } }
            }
            @if stats.store_paused {
                (button(csrf, "/resume", "Resume the store"))
            } @else {
                (button(csrf, "/pause", "Pause the store"))
            }
            h2 { "Running" }
            (timers(csrf, "Planned", |timer| &timer.planned, &lists.running))
            h2 { "Due next" }
            (timers(csrf, "Due", |timer| &timer.due, &lists.due))
            h2 { "Dead letters" }
            @if stats.dead_letters > lists.letters.len() as u64 {
                p { "The newest " (lists.letters.len()) " of " (stats.dead_letters) "." }
            }
            (dead(csrf, &lists.letters))
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
fn time(text: &str) -> Markup {
    html! { time datetime=(text) { (text) } }
}

/// A link to the page of a timer.
fn link(id: &str) -> Markup {
    html! { a href=(address("/timer", id)) { (printable(id)) } }
}

/// A table of timers with one of their times. A running timer is not due, but has a planned time.
fn timers(
    csrf: &str,
    title: &str,
    of: impl Fn(&TimerView<String>) -> &str,
    list: &[DurableTimer],
) -> Markup {
    let row = |timer: TimerView<String>| {
        [
            time(of(&timer)),
            link(&timer.id),
            html! { (timer.state) },
            html! { (timer.attempts) " of " (timer.most_attempts) },
            html! { (timer.payload) },
            switch(csrf, &timer),
        ]
    };
    let rows: Vec<_> = list.iter().map(seen).map(row).collect();
    table([title, "Id", "State", "Attempts", "Calls", ""], &rows)
}

/// The button that pauses or resumes a timer.
fn switch(csrf: &str, timer: &TimerView<String>) -> Markup {
    match timer.state {
        "paused" | "pausing" => button(csrf, &address("/resume", &timer.id), "Resume"),
        "cancelling" => html! {},
        _ => button(csrf, &address("/pause", &timer.id), "Pause"),
    }
}

/// A timer with the address that it calls.
fn seen(timer: &DurableTimer) -> TimerView<String> {
    TimerView::with(timer, target)
}

/// The address that a timer calls, without its query, which may contain secrets.
fn target(payload: &[u8]) -> String {
    match Webhook::from_payload(payload) {
        Ok(webhook) => {
            let plain = webhook.url.split('?').next().unwrap_or_default();
            printable(&format!("{} {plain}", webhook.method))
        }
        Err(error) => printable(&error.to_string()),
    }
}

fn dead(csrf: &str, letters: &[DeadLetter]) -> Markup {
    let row = |letter: LetterView<()>| {
        [
            time(&letter.died),
            html! { a href={ "/letter?number=" (letter.number) } { (printable(&letter.id)) } },
            html! { (letter.reason) },
            html! { (printable(&letter.error)) },
            button(csrf, &format!("/redrive?number={}", letter.number), "Redrive"),
        ]
    };
    let rows = letters.iter().map(|letter| LetterView::with(letter, |_| ()));
    let rows: Vec<_> = rows.map(row).collect();
    table(["Died", "Id", "Reason", "Error", ""], &rows)
}

fn history(runs: &[Run]) -> Markup {
    let row = |run: &Run| {
        [
            time(&run.ended),
            html! { (run.attempt) },
            html! { (run.outcome) },
            html! { @if let Some(status) = run.status { (status) } @else { "none" } },
            html! { (run.millis) " ms" },
            html! { (printable(&run.error)) },
        ]
    };
    let rows: Vec<_> = runs.iter().map(row).collect();
    table(["Ended", "Attempt", "Outcome", "Status", "Took", "Error"], &rows)
}

/// The page of a dead letter.
pub(super) fn letter(csrf: &str, letter: &DeadLetter, runs: &[Run]) -> Markup {
    let letter = LetterView::with(letter, target);
    frame(
        &printable(&letter.id),
        &html! {
            (search(csrf))
            h1 { "Dead letter " (letter.number) }
            dl {
                dt { "Timer" } dd { (link(&letter.id)) }
                dt { "Died" } dd { (letter.died) }
                dt { "Planned" } dd { (letter.planned) }
                dt { "Attempts" } dd { (letter.attempts) }
                dt { "Reason" } dd { (letter.reason) }
                @if !letter.error.is_empty() { dt { "Error" } dd { (printable(&letter.error)) } }
                dt { "Calls" } dd { (letter.payload) }
            }
            (button(csrf, &format!("/redrive?number={}", letter.number), "Redrive"))
            h2 { "Runs" }
            (history(runs))
        },
    )
}

/// The page of a timer, which may be gone, and may have left dead letters.
pub(super) fn timer(
    csrf: &str,
    id: &str,
    timer: Option<&DurableTimer>,
    letters: &[DeadLetter],
    runs: &[Run],
) -> Markup {
    let is_running = timer.is_some_and(DurableTimer::is_running);
    frame(
        &printable(id),
        &html! {
            (search(csrf))
            h1 { (printable(id)) }
            @match timer.map(seen) {
                None => p { "There is no such timer now." },
                Some(timer) => {
                    dl {
                        dt { "State" } dd { (timer.state) }
                        dt { "Planned" } dd { (timer.planned) }
                        @if is_running { dt { "Lease until" } dd { (timer.due) } }
                        @else { dt { "Due" } dd { (timer.due) } }
                        dt { "Attempts" } dd { (timer.attempts) " of " (timer.most_attempts) }
                        @if let Some(rule) = &timer.repeats { dt { "Repeats" } dd { (rule.words()) } }
                        @if !timer.error.is_empty() { dt { "Error" } dd { (printable(&timer.error)) } }
                        dt { "Calls" } dd { (timer.payload) }
                    }
                    (switch(csrf, &timer))
                }
            }
            @if !letters.is_empty() {
                h2 { "Dead letters" }
                (dead(csrf, letters))
            }
            h2 { "Runs" }
            (history(runs))
        },
    )
}
