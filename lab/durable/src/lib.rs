//! Programs that measure durable timers at full size, and test them under faults.

pub mod firing;
pub mod subject;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::task::JoinSet;

/// Returns the median of some rounds, the upper one of two, or NaN if there are none.
#[must_use]
pub fn median(rounds: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = rounds.into_iter().collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Calls `call` with each number below `count`, from a number of concurrent tasks of tokio.
///
/// # Panics
///
/// Panics if a call does.
pub async fn each<F>(
    callers: usize,
    count: usize,
    call: impl Fn(usize) -> F + Send + Sync + 'static,
) where
    F: Future<Output = ()> + Send,
{
    let (call, next) = (Arc::new(call), Arc::new(AtomicUsize::new(0)));
    let mut all = JoinSet::new();
    for _ in 0..callers {
        let (call, next) = (Arc::clone(&call), Arc::clone(&next));
        all.spawn(async move {
            loop {
                // Relaxed: each number is handed out once, and nothing else is needed.
                let number = next.fetch_add(1, Relaxed);
                if number >= count {
                    return;
                }
                call(number).await;
            }
        });
    }
    all.join_all().await;
}
