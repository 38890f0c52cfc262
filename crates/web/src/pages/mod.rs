//! The pages, one file for each, and their routes.

#![forbid(unsafe_code)]

mod change;
mod dead;
mod done;
mod files;
mod label;
mod letter;
mod overview;
mod query;
mod store;
mod timer;
mod timers;

use crate::rights;
use crate::site::TimersWeb;
use crate::view::parts::address_of;
use axum::Router;
use axum::extract::{OriginalUri, Path};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use label::Deed;
use query::to;
use std::sync::Arc;

/// Returns the routes of the pages of a site, by the rights that they need.
pub(crate) fn routes(site: &Arc<TimersWeb>) -> Router<Arc<TimersWeb>> {
    let to_read = Router::new()
        .route("/", get(root))
        .route("/overview", get(overview::show))
        .route("/timers", get(timers::show))
        .route("/timer", get(timer::show))
        .route("/dead", get(dead::show))
        .route("/letter", get(letter::show))
        .route("/timers/{id}", get(by_id))
        .route("/dead-letters/{number}", get(by_number));
    let to_schedule = Router::new()
        .route("/move", get(change::ask_to_move).post(change::move_to))
        .route("/cancel", get(change::ask_to_cancel).post(change::cancel))
        .route_layer(from_fn(rights::to_schedule));
    let to_operate = Router::new()
        .route("/run", get(change::ask_to_run).post(change::run))
        .route("/letters", get(dead::ask_for_rest).post(dead::change))
        .route("/pause", get(store::ask_to_pause).post(store::pause))
        .route("/resume", post(store::resume))
        .route("/pause-label", of_label(Deed::Pause))
        .route("/resume-label", of_label(Deed::Resume))
        .route("/cancel-label", of_label(Deed::Cancel).layer(from_fn(rights::to_schedule)))
        .route_layer(from_fn(rights::to_operate));
    let to_change = to_schedule.merge(to_operate);
    to_read.merge(to_change.route_layer(from_fn_with_state(Arc::clone(site), rights::to_change)))
}

/// Returns the question before a change of all timers with a label, and the change.
fn of_label(deed: Deed) -> MethodRouter<Arc<TimersWeb>> {
    get(move |visit, asked| label::ask(deed, visit, asked))
        .post(move |visit, asked, form| label::change(deed, visit, asked, form))
}

/// Returns the routes of the files that pages load.
pub(crate) fn files() -> Router<Arc<TimersWeb>> {
    Router::new().route("/style.css", get(files::style)).route("/script.js", get(files::script))
}

/// Leads to a timer, from its address in the API of `timerd`.
async fn by_id(Path(id): Path<String>) -> Response {
    to(&format!("../{}", address_of(&id)))
}

/// Leads to a dead letter, from its address in the API of `timerd`.
async fn by_number(Path(number): Path<u64>) -> Response {
    to(&format!("../letter?number={number}"))
}

/// Leads to the overview, from an address that may end with a slash or not.
async fn root(OriginalUri(uri): OriginalUri) -> Response {
    match uri.path().rsplit('/').next().unwrap_or_default() {
        "" => to("overview"),
        last => to(&format!("{last}/overview")),
    }
}
