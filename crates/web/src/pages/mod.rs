//! The pages, one file for each, and their routes.

#![forbid(unsafe_code)]

mod change;
mod dead;
mod files;
mod letter;
mod overview;
mod query;
mod store;
mod timer;
mod timers;

use crate::site::TimersWeb;
use axum::Router;
use axum::extract::OriginalUri;
use axum::response::Response;
use axum::routing::{get, post};
use query::to;
use std::sync::Arc;

/// Returns the routes of the pages.
pub(crate) fn routes() -> Router<Arc<TimersWeb>> {
    Router::new()
        .route("/", get(root))
        .route("/overview", get(overview::show))
        .route("/timers", get(timers::show))
        .route("/timer", get(timer::show))
        .route("/cancel", get(change::ask_to_cancel).post(change::cancel))
        .route("/dead", get(dead::show))
        .route("/letters", post(dead::change))
        .route("/letter", get(letter::show))
        .route("/pause", get(store::ask_to_pause).post(store::pause))
        .route("/resume", post(store::resume))
}

/// Returns the routes of the files that pages load.
pub(crate) fn files() -> Router<Arc<TimersWeb>> {
    Router::new().route("/style.css", get(files::style)).route("/script.js", get(files::script))
}

/// Leads to the overview, from an address that may end with a slash or not.
async fn root(OriginalUri(uri): OriginalUri) -> Response {
    match uri.path().rsplit('/').next().unwrap_or_default() {
        "" => to("overview"),
        last => to(&format!("{last}/overview")),
    }
}
