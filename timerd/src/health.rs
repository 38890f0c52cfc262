//! [`Health`], the state of the store. It is asked each second, so that a request for the state
//! never waits for the store.

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "the age of a reply is measured")]

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tourbillon_durable::DurableTimers;

/// The interval at which the store is asked.
const INTERVAL: Duration = Duration::from_secs(1);

/// The time in which the store must reply. With the interval it stays below five seconds.
const PATIENCE: Duration = Duration::from_secs(3);

pub(crate) struct Health(Mutex<State>);

struct State {
    replied: Instant,
    trouble: Option<String>,
}

impl Health {
    /// Creates the state of a store that has just been opened.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(State { replied: Instant::now(), trouble: None }))
    }

    /// Returns the reason for which the store is unusable, or `None`.
    pub(crate) fn trouble(&self) -> Option<String> {
        let state = self.state();
        let silent = state.replied.elapsed();
        let late = || Some(format!("the store has not replied for {} s", silent.as_secs()));
        state.trouble.clone().or_else(|| (silent > INTERVAL + PATIENCE).then(late).flatten())
    }

    /// Asks the store, again and again.
    pub(crate) async fn watch(&self, timers: &DurableTimers) -> ! {
        loop {
            let asked = tokio::time::timeout(PATIENCE, timers.is_paused()).await;
            let trouble = match asked {
                Ok(Ok(_)) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some(format!("the store has not replied for {} s", PATIENCE.as_secs())),
            };
            self.set(trouble);
            tokio::time::sleep(INTERVAL).await;
        }
    }

    fn set(&self, trouble: Option<String>) {
        let mut state = self.state();
        if trouble.is_none() {
            state.replied = Instant::now();
        }
        state.trouble = trouble;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
