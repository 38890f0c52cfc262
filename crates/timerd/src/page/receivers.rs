//! The page of the receivers of webhooks.

#![forbid(unsafe_code)]

use super::Pages;
use crate::call::{Caller, MAX_REMEMBERED, ReceiverState};
use axum::extract::{Extension, State};
use axum::response::Response;
use http::request::Parts;
use maud::{Markup, html};
use std::sync::Arc;
use std::time::Duration;
use tourbillon_durable::text::printable;

/// The maximum number of receivers on the page.
const ROWS: usize = 100;

/// Shows the receivers. Receivers whose deliveries are held back come first.
pub(super) async fn show(
    State(pages): State<Pages>,
    Extension(caller): Extension<Arc<Caller>>,
    request: Parts,
) -> Response {
    let states = caller.receivers();
    let main = html! {
        div.title { h1 { "Receivers" } }
        @if states.is_empty() {
            section.empty {
                h2 { "No calls yet" }
                p { "The hosts that this instance calls appear here." }
            }
        } @else {
            section.card.list { (table(&states[..states.len().min(ROWS)])) }
            p.quiet {
                (states.len().min(ROWS)) " of " (states.len()) " receivers that this instance has \
                 called. It remembers the latest " (MAX_REMEMBERED) "."
            }
        }
    };
    pages.web.page_in_menu(&request, "Receivers", main)
}

fn table(states: &[ReceiverState]) -> Markup {
    let titles = ["Receiver", "Calls", "Failures", "99 % within", "Held back"];
    let row = |state: &ReceiverState| {
        let p99 = state.p99.map(shown).unwrap_or_default();
        [
            html! { (printable(&state.host)) ":" (state.port) },
            html! { (state.calls) },
            html! { (state.failures) },
            html! { (p99) },
            html! { (held(state)) },
        ]
    };
    // The style sheet of the page needs the roles and the titles.
    html! {
        table role="table" {
            caption { "Receivers. Held-back receivers come first." }
            thead role="rowgroup" {
                tr role="row" { @for title in titles {
                    th role="columnheader" scope="col" data-title=(title) { span { (title) } }
                } }
            }
            tbody role="rowgroup" { @for state in states {
                tr role="row" { @for (title, cell) in titles.iter().zip(row(state)) {
                    td role="cell" data-title=(title) { (cell) }
                } }
            } }
        }
    }
}

/// Returns for how long a receiver has been held back, and why.
fn held(state: &ReceiverState) -> String {
    match state.held {
        Some((held, true)) => format!("for {}, as it does not respond", shown(held)),
        Some((held, false)) => format!("for {}, as all its places are taken", shown(held)),
        None => String::new(),
    }
}

/// Returns a duration in its largest unit.
fn shown(duration: Duration) -> String {
    match duration.as_secs() {
        0 => format!("{} ms", duration.as_millis()),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds / 60),
    }
}
