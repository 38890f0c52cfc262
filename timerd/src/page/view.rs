//! The HTML of the page. All values are escaped.

#![forbid(unsafe_code)]

use super::super::history::Run;
use super::super::webhook::Webhook;
use super::address;
use maud::{DOCTYPE, Markup, html};
use timers::{LetterView, TimerView, printable};
use tourbillon_durable::{DeadLetter, DurableTimer, Stats};

/// What the overview lists.
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

/// The form for a token, with the reason for which the last one was refused.
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

/// A button that is a form of its own.
fn button(csrf: &str, action: &str, name: &str, value: &str, text: &str) -> Markup {
    html! {
        form method="post" action=(action) {
            input type="hidden" name="csrf" value=(csrf);
            @if !name.is_empty() { input type="hidden" name=(name) value=(value); }
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
            (button(csrf, "/logout", "", "", "Log out"))
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
                (stats.timers) " timers, of which " (stats.overdue) " are overdue, and "
                (stats.dead_letters) " dead letters. "
                @if stats.store_paused { strong { "The store is paused." } }
            }
            @if stats.store_paused {
                (button(csrf, "/resume", "", "", "Resume the store"))
            } @else {
                (button(csrf, "/pause", "", "", "Pause the store"))
            }
            h2 { "Running" }
            (timers(csrf, &lists.running))
            h2 { "Due next" }
            (timers(csrf, &lists.due))
            h2 { "Dead letters" }
            (dead(csrf, &lists.letters))
        },
    )
}

fn timers(csrf: &str, list: &[DurableTimer]) -> Markup {
    html! {
        @if list.is_empty() { p { "None." } } @else {
            table {
                thead { tr {
                    th { "Due" } th { "Id" } th { "State" } th { "Attempts" } th { "Calls" } th {}
                } }
                tbody { @for timer in list.iter().map(TimerView::new) { tr {
                    td { time datetime=(timer.due) { (timer.due) } }
                    td { a href=(address(&timer.id)) { (printable(&timer.id)) } }
                    td { (timer.state) }
                    td { (timer.attempts) " of " (timer.most_attempts) }
                    td { (target(timer.payload.text().as_bytes())) }
                    td { (switch(csrf, &timer)) }
                } } }
            }
        }
    }
}

/// The button that pauses or resumes a timer.
fn switch(csrf: &str, timer: &TimerView) -> Markup {
    match timer.state {
        "paused" | "pausing" => button(csrf, "/resume", "id", &timer.id, "Resume"),
        "cancelling" => html! {},
        _ => button(csrf, "/pause", "id", &timer.id, "Pause"),
    }
}

/// The address that a timer calls, without its query, which may have secrets.
fn target(payload: &[u8]) -> String {
    match Webhook::from_payload(payload) {
        Ok(webhook) => {
            let plain = webhook.url.split('?').next().unwrap_or_default();
            format!("{} {}", webhook.method, printable(plain))
        }
        Err(why) => printable(&why),
    }
}

fn dead(csrf: &str, letters: &[DeadLetter]) -> Markup {
    html! {
        @if letters.is_empty() { p { "None." } } @else {
            table {
                thead { tr { th { "Died" } th { "Id" } th { "Reason" } th { "Error" } th {} } }
                tbody { @for letter in letters.iter().map(LetterView::new) { tr {
                    td { time datetime=(letter.died) { (letter.died) } }
                    td { a href=(address(&letter.id)) { (printable(&letter.id)) } }
                    td { (letter.reason) }
                    td { (printable(&letter.error)) }
                    td { (button(csrf, "/redrive", "number", &letter.number.to_string(), "Redrive")) }
                } } }
            }
        }
    }
}

/// The page of a timer, which may be gone.
pub(super) fn timer(csrf: &str, id: &str, timer: Option<&DurableTimer>, runs: &[Run]) -> Markup {
    frame(
        &printable(id),
        &html! {
            (search(csrf))
            h1 { (printable(id)) }
            @match timer.map(TimerView::new) {
                None => p { "There is no such timer now." },
                Some(timer) => {
                    dl {
                        dt { "State" } dd { (timer.state) }
                        dt { "Due" } dd { (timer.due) }
                        dt { "Planned" } dd { (timer.planned) }
                        dt { "Attempts" } dd { (timer.attempts) " of " (timer.most_attempts) }
                        @if let Some(rule) = &timer.repeats { dt { "Repeats" } dd { (rule.words()) } }
                        @if !timer.error.is_empty() { dt { "Error" } dd { (printable(&timer.error)) } }
                        dt { "Calls" } dd { (target(timer.payload.text().as_bytes())) }
                    }
                    (switch(csrf, &timer))
                }
            }
            h2 { "Runs" }
            @if runs.is_empty() { p { "None." } } @else {
                table {
                    thead { tr { th { "Ended" } th { "Attempt" } th { "Outcome" } th { "Took" } th { "Error" } } }
                    tbody { @for run in runs { tr {
                        td { time datetime=(run.ended) { (run.ended) } }
                        td { (run.attempt) }
                        td { (run.outcome) }
                        td { (run.millis) " ms" }
                        td { (printable(&run.error)) }
                    } } }
                }
            }
        },
    )
}
