//! Reading the log of attempts. Pages can do without it.

#![forbid(unsafe_code)]

use std::time::Duration;
use tourbillon::future::{Timer, default_timer};
use tourbillon_durable::{AttemptLog, DurableError, LoggedAttempt};

/// How long a page waits for the log. Reads of a log in a file wait behind its writes, so a disk
/// that is busy would hold up every page.
const LIMIT: Duration = Duration::from_secs(2);

/// Returns the latest runs of one timer or of all, latest first, or the reason why there are none
/// to show.
pub(crate) async fn latest(
    log: &AttemptLog,
    id: Option<&str>,
    limit: usize,
) -> Result<Vec<LoggedAttempt>, String> {
    bounded(&default_timer(), log.latest(id, limit)).await
}

async fn bounded(
    timer: &Timer,
    reading: impl Future<Output = Result<Vec<LoggedAttempt>, DurableError>>,
) -> Result<Vec<LoggedAttempt>, String> {
    match timer.timeout(LIMIT, reading).await {
        Ok(Ok(runs)) => Ok(runs),
        Ok(Err(error)) => Err(format!("The history cannot be read: {error}.")),
        Err(_) => Err("The history has not replied in time. Reload the page to try again.".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use tourbillon::testing::block_on;

    #[test]
    fn a_page_does_not_wait_for_a_log_that_does_not_reply() {
        let (read, waited) = block_on(|timer| async move {
            let start = timer.now();
            (bounded(&timer, pending()).await, timer.now() - start)
        });
        assert!(read.is_err_and(|why| why.contains("has not replied in time")));
        assert!(waited < LIMIT * 2, "{waited:?}");
    }
}
