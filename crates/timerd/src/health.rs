//! [`Health`], the state of the store. The service reads the store every second and writes to it
//! every ten seconds, so a request for the state never waits for the store.
//!
//! A write inserts a timer for the next century and cancels it. Reads alone are not enough, because
//! a store on a full disk or a read-only server still replies to them. While the store fails, the
//! service writes to it every second.

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "the age of a reply is measured")]

use super::metrics::USABLE;
use metrics::{Gauge, gauge};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tourbillon_durable::{DurableError, DurableTimers, Existing, Options};

/// How often the service reads the store.
const INTERVAL: Duration = Duration::from_secs(1);

/// How often the service writes to a store that does not fail.
const WRITES: Duration = Duration::from_secs(10);

/// The id of the timer that is inserted and cancelled. All services of a store use the same id.
const MARK: &str = "timerd:health";

/// The delay of that timer. No service runs long enough to deliver it.
const FAR: Duration = Duration::from_secs(100 * 365 * 86_400);

/// How long the store may take to reply. Together with the interval, this is less than five
/// seconds.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);

pub(crate) struct Health {
    state: Mutex<State>,
    /// 1 if the store can be used.
    usable: Gauge,
}

struct State {
    replied: Instant,
    trouble: Option<String>,
    /// `true` from the insert of the timer until it is cancelled.
    is_marked: bool,
}

impl Health {
    /// Creates the state of a store that has just been opened.
    pub(crate) fn new(store: &str) -> Self {
        let usable = gauge!(USABLE, "store" => store.to_owned());
        usable.set(1);
        let state = State { replied: Instant::now(), trouble: None, is_marked: false };
        Self { state: Mutex::new(state), usable }
    }

    /// Returns the reason why the store is unusable, or `None` if it is usable.
    pub(crate) fn trouble(&self) -> Option<String> {
        let state = self.state();
        let silent = state.replied.elapsed();
        let late = || Some(format!("the store has not replied for {} s", silent.as_secs()));
        state.trouble.clone().or_else(|| (silent > INTERVAL + REPLY_TIMEOUT).then(late).flatten())
    }

    /// Reads and writes the store periodically.
    pub(crate) async fn watch(&self, timers: &DurableTimers) -> ! {
        let mut written = Instant::now();
        loop {
            let writes = self.state().trouble.is_some() || written.elapsed() >= WRITES;
            let asked = async {
                timers.is_paused().await?;
                if writes {
                    self.write(timers).await?;
                    written = Instant::now();
                }
                Ok::<(), DurableError>(())
            };
            let trouble = match tokio::time::timeout(REPLY_TIMEOUT, asked).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => {
                    Some(format!("the store has not replied for {} s", REPLY_TIMEOUT.as_secs()))
                }
            };
            self.set(trouble);
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Inserts a timer and cancels it.
    async fn write(&self, timers: &DurableTimers) -> Result<(), DurableError> {
        self.state().is_marked = true;
        timers.insert(MARK, "", FAR, Options::new().existing(Existing::Replace)).await?;
        self.unmark(timers).await
    }

    /// Cancels the timer if an interrupted write has left it in the store.
    pub(crate) async fn unmark(&self, timers: &DurableTimers) -> Result<(), DurableError> {
        if self.state().is_marked {
            timers.cancel(MARK).await?;
            self.state().is_marked = false;
        }
        Ok(())
    }

    fn set(&self, trouble: Option<String>) {
        self.usable.set(u8::from(trouble.is_none()));
        let mut state = self.state();
        match &trouble {
            None => state.replied = Instant::now(),
            Some(why) if state.trouble.is_none() => {
                tracing::warn!(why, "the store cannot be used");
            }
            Some(_) => {}
        }
        state.trouble = trouble;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
