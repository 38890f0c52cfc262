//! Timers in tables.

#![forbid(unsafe_code)]

use crate::text::duration;
use crate::view::parts::{ACTIONS, address, button, labels, link, pill, question, table, time};
use crate::visit::Visit;
use maud::{Markup, html};
use tourbillon_durable::text::printable;
use tourbillon_durable::{DurableTimer, Rule, TimerState};

/// A table of timers.
pub(crate) fn timers(visit: &Visit, caption: &str, timers: &[DurableTimer]) -> Markup {
    let row = |timer: &DurableTimer| {
        vec![
            html! {
                (link(&timer.id))
                span.quiet.summary { (printable(&visit.describe(&timer.payload).summary)) }
                (labels("timers", &timer.options))
                @if !timer.error.is_empty() { span.error { (printable(&timer.error)) } }
            },
            state(visit, timer),
            due(visit, timer),
            html! { span.quiet { (repeats(timer)) } },
            html! { div.answers { (run(visit, timer)) (switch(visit, timer)) } },
        ]
    };
    let rows: Vec<_> = timers.iter().map(row).collect();
    table(caption, &["Timer", "State", "Due", "Repeats", ACTIONS], &rows)
}

/// The state of a timer, in its colour.
pub(crate) fn state(visit: &Visit, timer: &DurableTimer) -> Markup {
    let (attempts, most) = (timer.attempts, timer.options.get_attempts());
    match timer.state {
        TimerState::Running => pill("is-running", "running"),
        TimerState::Pausing => pill("is-running", "running, then paused"),
        TimerState::Cancelling => pill("is-running", "running, then cancelled"),
        TimerState::Paused => pill("is-paused", "paused"),
        TimerState::Retrying => pill("is-failing", &format!("{attempts} of {most} failed")),
        _ if timer.due <= visit.now => pill("is-late", "overdue"),
        _ if !timer.error.is_empty() => pill("is-late", "postponed"),
        _ => pill("is-resting", "resting"),
    }
}

/// When a timer is due, or since when it is running.
fn due(visit: &Visit, timer: &DurableTimer) -> Markup {
    match timer.is_running() {
        true => html! { span.quiet { "planned " } (time(visit, timer.planned)) },
        false => time(visit, timer.due),
    }
}

/// Returns the rule of a timer in a few words.
pub(crate) fn repeats(timer: &DurableTimer) -> String {
    match timer.options.get_rule() {
        None => "once".to_owned(),
        Some(Rule::Every(interval)) => format!("every {}", duration(*interval)),
        Some(Rule::Cron { expression, zone }) => format!("{expression} {zone}"),
        Some(_) => "by an unknown rule".to_owned(),
    }
}

/// The button that runs a timer now, after a question.
pub(crate) fn run(visit: &Visit, timer: &DurableTimer) -> Markup {
    html! {
        @if visit.rights_to(&timer.id).can_operate() && !timer.is_running() {
            (question("", "run", "Run now", &timer.id))
        }
    }
}

/// The button that pauses or resumes a timer.
pub(crate) fn switch(visit: &Visit, timer: &DurableTimer) -> Markup {
    let to = |path| address(path, &[("id", &timer.id)]);
    match timer.state {
        _ if !visit.rights_to(&timer.id).can_operate() => html! {},
        TimerState::Paused | TimerState::Pausing => {
            button(visit, &to("resume"), "Resume", &timer.id)
        }
        TimerState::Cancelling => html! {},
        _ => button(visit, &to("pause"), "Pause", &timer.id),
    }
}
