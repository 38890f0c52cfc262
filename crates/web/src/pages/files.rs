//! The files that pages load. They are part of the program.

#![forbid(unsafe_code)]

use axum::response::IntoResponse;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

/// How long a browser may keep a file without asking. It is short, so that a page rarely loads a
/// file of another version.
const KEPT: &str = "max-age=60";

/// Returns the style sheet.
pub(super) async fn style() -> impl IntoResponse {
    let headers = [(CONTENT_TYPE, "text/css; charset=utf-8"), (CACHE_CONTROL, KEPT)];
    (headers, include_str!("../style.css"))
}

/// Returns the script.
pub(super) async fn script() -> impl IntoResponse {
    let headers = [(CONTENT_TYPE, "text/javascript; charset=utf-8"), (CACHE_CONTROL, KEPT)];
    (headers, include_str!("../script.js"))
}
