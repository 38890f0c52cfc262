//! Tests of `tourbillon::time`, the drop-in replacement of `tokio::time`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "some of these tests are about threads")]

mod alone;
mod budget;
#[cfg(all(unix, not(miri)))]
#[path = "../common/child.rs"]
mod child;
mod items;
mod panics;
mod paused;
mod queue;
mod same_as_tokio;

use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Runs a future in a runtime whose clock is paused from the start.
fn paused<F: Future>(future: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap().block_on(future)
}

/// Runs a future in a runtime whose clock runs.
fn running<F: Future>(future: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().build().unwrap().block_on(future)
}
