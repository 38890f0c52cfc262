//! [`keep`], which watches a task of the service, so that no task ends unnoticed.

#![forbid(unsafe_code)]

use super::metrics::RESTARTED;
use metrics::counter;
use std::fmt;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The pause before a task that has ended is restarted.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs a task until the service stops. If the task panics, fails or ends before then, its end is
/// logged and counted, and it is restarted after a pause.
pub(crate) async fn keep<E, F>(
    name: &'static str,
    stops: watch::Receiver<bool>,
    mut task: impl FnMut() -> F,
) where
    E: fmt::Display + Send + 'static,
    F: Future<Output = Result<(), E>> + Send + 'static,
{
    // Registered before the first restart, because Prometheus sees no increase from nothing.
    let restarts = counter!(RESTARTED, "task" => name);
    loop {
        // If the watcher is dropped, the set is dropped too and aborts the task.
        let mut running = JoinSet::new();
        running.spawn(task());
        let end = match running.join_next().await {
            None | Some(Ok(Ok(()))) => "it returned".to_owned(),
            Some(Ok(Err(error))) => error.to_string(),
            Some(Err(error)) => error.to_string(),
        };
        if is_stopping(&stops) {
            return;
        }
        restarts.increment(1);
        tracing::error!(task = name, %end, "a task has ended, and starts again in a second");
        let _ = tokio::time::timeout(PAUSE, stopped(stops.clone())).await;
    }
}

/// Completes when the service is asked to stop.
pub(crate) async fn stopped(mut stops: watch::Receiver<bool>) {
    // The wait fails if the sender is gone, because the service was dropped.
    let _ = stops.wait_for(|stop| *stop).await;
}

fn is_stopping(stops: &watch::Receiver<bool>) -> bool {
    *stops.borrow() || stops.has_changed().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    #[tokio::test]
    async fn a_task_starts_again_however_it_ends_until_the_service_stops() {
        let (stop, stops) = watch::channel(false);
        let starts = Arc::new(AtomicU32::new(0));
        let (counted, waits) = (Arc::clone(&starts), stops.clone());
        let task = move || {
            let (number, waits) = (counted.fetch_add(1, Relaxed), waits.clone());
            async move {
                match number {
                    0 => panic!("the first start"),
                    1 => Err("the second start"),
                    2 => Ok(()),
                    _ => {
                        stopped(waits).await;
                        Ok(())
                    }
                }
            }
        };
        let kept = tokio::spawn(keep("test", stops, task));
        while starts.load(Relaxed) < 4 {
            tokio::task::yield_now().await;
        }
        stop.send_replace(true);
        kept.await.expect("the watcher ends with the service");
        assert_eq!(starts.load(Relaxed), 4);
    }

    #[tokio::test]
    async fn a_task_ends_with_the_service_that_was_dropped() {
        let (stop, stops) = watch::channel(false);
        drop(stop);
        let mut starts = 0;
        let count = || {
            starts += 1;
            async { Ok(()) }
        };
        keep::<Infallible, _>("test", stops, count).await;
        assert_eq!(starts, 1);
    }
}
