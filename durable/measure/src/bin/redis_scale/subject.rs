//! [`Subject`], a server and the timers in it, with the server's statistics.

use crate::servers::Server;
use std::time::{Duration, SystemTime};
use tourbillon::Builder;
use tourbillon::future::Timer;
use tourbillon_durable::{DurableTimers, Options, Redis};
use tourbillon_durable_measure::each;

/// The number of milliseconds over which resting timers are spread.
const MONTH: u64 = 30 * 86_400_000;

/// The delay of the first of them, outside of every worker's window.
const FAR: u64 = 3_600_000;

/// The payload of each timer.
pub(crate) const PAYLOAD: [u8; 16] = [7; 16];

/// Timers, and the server that holds them.
pub(crate) struct Subject {
    pub(crate) timers: DurableTimers,
    pub(crate) server: Server,
}

/// Returns the id of a timer.
pub(crate) fn id(number: usize) -> String {
    format!("timer {number}")
}

/// Returns the delay of a timer in milliseconds, spread over a month.
pub(crate) fn due(number: usize) -> u64 {
    // An odd factor carries all bits of the number to the upper ones.
    let spread = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    FAR + spread % MONTH
}

/// Returns a time plus milliseconds.
pub(crate) fn after(time: SystemTime, millis: u64) -> SystemTime {
    time + Duration::from_millis(millis)
}

impl Subject {
    pub(crate) async fn new(server: Server) -> Self {
        let store = Redis::connect(&server.url(), "timers").await.unwrap();
        let timer = Timer::spawn(Builder::new().driver()).unwrap();
        Self { timers: DurableTimers::new(store, &timer), server }
    }

    /// Inserts timers with a short payload.
    pub(crate) async fn insert(
        &self,
        callers: usize,
        count: usize,
        due: impl Fn(usize) -> SystemTime + Send + Sync + 'static,
    ) {
        self.schedule_from(0, callers, count, due).await;
    }

    /// Inserts timers with ids from `first` on.
    pub(crate) async fn schedule_from(
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
                timers.insert(&id, PAYLOAD, at, Options::new()).await.unwrap();
            }
        };
        each(callers, count, call).await;
    }

    /// Returns the number of commands that the server has executed, including those in scripts.
    pub(crate) fn commands(&self) -> f64 {
        self.figure("stats", "total_commands_processed")
    }

    /// Returns the memory usage of the server in bytes.
    pub(crate) fn memory(&self) -> f64 {
        self.figure("memory", "used_memory")
    }

    /// Returns the processor time of the server in seconds.
    pub(crate) fn cpu(&self) -> f64 {
        self.figure("cpu", "used_cpu_user") + self.figure("cpu", "used_cpu_sys")
    }

    fn figure(&self, section: &str, name: &str) -> f64 {
        self.server.figure(section, name).unwrap().parse().unwrap()
    }
}

/// Returns the processor time of this process in seconds.
pub(crate) fn own_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // After the name in brackets, in Linux's ticks, of which a second has a hundred.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = |place: usize| fields[place].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}
