//! [`Subject`], a server and the timers in it, with the server's statistics.

#![allow(clippy::disallowed_methods, reason = "real time is measured here")]

use crate::each;
use std::time::{Duration, SystemTime};
use tourbillon::Builder;
use tourbillon::future::Timer;
use tourbillon_durable::{AnyStore, DurableTimers, Options};

/// The number of milliseconds that resting timers are spread over.
const MONTH: u64 = 30 * 86_400_000;

/// The delay of the first of them, outside of every worker's window.
const FAR: u64 = 3_600_000;

/// The payload of each timer.
pub const PAYLOAD: [u8; 16] = [7; 16];

/// The statistics of a server.
pub trait Figures {
    /// Returns the number of commands or transactions that the server has executed, including those
    /// in scripts.
    fn commands(&self) -> f64;

    /// Returns the number of bytes that the server uses for its data.
    fn bytes(&self) -> f64;

    /// Returns the processor time of the server in seconds.
    fn cpu(&self) -> f64;
}

/// Timers, and the server that holds them.
#[derive(Debug)]
pub struct Subject<S> {
    /// The timers.
    pub timers: DurableTimers,
    /// The server.
    pub server: S,
}

/// Returns the id of a timer.
#[must_use]
pub fn id(number: usize) -> String {
    format!("timer {number}")
}

/// Returns the delay of a timer in milliseconds, spread over a month.
#[must_use]
pub fn due(number: usize) -> u64 {
    // An odd factor carries all bits of the number to the upper ones.
    let spread = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    FAR + spread % MONTH
}

/// Returns a time plus milliseconds.
#[must_use]
pub fn after(time: SystemTime, millis: u64) -> SystemTime {
    time + Duration::from_millis(millis)
}

impl<S> Subject<S> {
    /// Returns the timers of a store on a server.
    ///
    /// # Panics
    ///
    /// Panics if no thread can be started.
    pub fn new(store: impl Into<AnyStore>, server: S) -> Self {
        let timer = Timer::spawn(Builder::new().driver()).expect("a thread starts");
        Self { timers: DurableTimers::new(store, &timer), server }
    }

    /// Inserts timers with a short payload and ids from `first` on.
    ///
    /// # Panics
    ///
    /// Panics if an insert fails.
    pub async fn schedule_from(
        &self,
        first: usize,
        callers: usize,
        count: usize,
        due: impl Fn(usize) -> SystemTime + Send + Sync + 'static,
    ) {
        let timers = self.timers.clone();
        let call = move |number| {
            let (timers, at) = (timers.clone(), due(number));
            async move {
                let id = id(first + number);
                timers.insert(&id, PAYLOAD, at, Options::new()).await.expect("it is inserted");
            }
        };
        each(callers, count, call).await;
    }
}

/// Returns the processor time of this process in seconds.
#[must_use]
pub fn own_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name in brackets, in Linux's ticks, a hundred per second.
    let after_name = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks = after_name.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}
