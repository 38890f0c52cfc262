//! Timers that rest in a file beside the timers of a test, so that the file is as large as in a
//! program with many timers. There are none by default. `ci/test files` runs the tests of kills,
//! power cuts and full disks with 100,000.

use futures_util::StreamExt;
use futures_util::stream;
use std::time::Duration;
use tourbillon_durable::{DurableError, DurableTimers, Options};

const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Returns the number of resting timers.
pub(crate) fn count() -> u64 {
    std::env::var("TOURBILLON_RESTING").map_or(0, |count| count.parse().expect("a number"))
}

fn id(number: u64) -> String {
    format!("resting {number}")
}

/// Returns `true` if an id belongs to a resting timer.
pub(crate) fn is_resting(id: &str) -> bool {
    id.starts_with("resting ")
}

/// Inserts the resting timers.
pub(crate) fn insert(timers: &DurableTimers) -> Result<(), DurableError> {
    let all = (0..count()).map(|number| async move {
        let id = id(number);
        let inserted = timers.insert(&id, &*id, YEAR, Options::new()).await;
        inserted.map_err(|refused| refused.reason)
    });
    let mut all = stream::iter(all).buffer_unordered(1000);
    pollster::block_on(async {
        while let Some(inserted) = all.next().await {
            inserted?;
        }
        Ok(())
    })
}

/// Returns the ids of all timers, and checks that the resting timers are there with their payloads.
pub(crate) fn list(timers: &DurableTimers) -> Result<Vec<String>, DurableError> {
    let (mut ids, mut resting, mut last) = (Vec::new(), 0, None);
    loop {
        let page = pollster::block_on(timers.list(last.as_deref(), 1000))?;
        let Some(end) = page.last() else { break };
        last = Some(end.id.clone());
        for timer in page {
            if is_resting(&timer.id) {
                assert_eq!(timer.payload, timer.id.as_bytes());
                resting += 1;
            } else {
                ids.push(timer.id);
            }
        }
    }
    assert_eq!(resting, count(), "of the resting timers");
    Ok(ids)
}
