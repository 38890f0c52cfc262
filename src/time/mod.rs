//! A drop-in replacement of `tokio::time` and `tokio_util::time`.
//!
//! A program moves by a search and replace of the two paths. Each item has the name and the
//! signature of its counterpart and behaves like it, except for the differences
//! [below](#differences-from-tokio). [`Instant`], [`Duration`] and [`MissedTickBehavior`] are
//! tokio's own types, so a program can move file by file.
//!
//! - [`sleep`](sleep()) waits for a time, and [`sleep_until`] until an instant.
//! - [`timeout`](timeout()) limits how long a future may take.
//! - [`interval`](interval()) ticks again and again.
//! - [`DelayQueue`] yields values one by one, each after a delay of its own.
//!
//! ```
//! use tourbillon::time::{self, Duration, Instant};
//!
//! # pollster::block_on(async {
//! let start = Instant::now();
//! time::sleep(Duration::from_millis(5)).await;
//! assert!(start.elapsed() >= Duration::from_millis(5));
//!
//! let silent = time::timeout(Duration::from_millis(5), std::future::pending::<()>());
//! assert!(silent.await.is_err());
//! # });
//! ```
//!
//! # The timer
//!
//! All sleeps, timeouts, intervals and queues share one timer per process. The first use starts its
//! thread, which sweeps the wheel and sleeps while nothing is due. The timer has ticks of 1 ms and
//! no limit on the number of timers, and no code can configure, replace or end it. In particular,
//! it is not the [default timer](crate::future::default_timer). For a timer with a capacity,
//! another resolution or a shutdown, use [`future::Timer`](crate::future::Timer), whose sleeps are
//! results.
//!
//! A runtime is not needed. In a task of tokio's, each completion is charged to the task's
//! cooperative budget, so that a loop over sleeps that have elapsed yields to other tasks.
//!
//! # Tests
//!
//! With the feature `testing`, everything in this module follows the clock of a runtime that is
//! paused, by `#[tokio::test(start_paused = true)]`, by `pause` of this module or by tokio's. Time
//! advances by itself when the runtime is idle. Without the feature, everything here follows the
//! system's clock, and a test with a paused clock waits in real time.
//!
//! Enable the feature in the `dev-dependencies`. It slows sleeps down, because each creation and
//! each poll reads the clock several times.
//!
//! # Panics
//!
//! The first use panics if the system refuses the timer's thread. To find out at the start of a
//! program, poll a sleep there. If the system has no memory for another timer, the process aborts,
//! as it does when a `Vec` cannot grow.
#![doc = include_str!("../../docs/TIME.md")]
#![forbid(unsafe_code)]

pub mod delay_queue;
pub mod error;
mod future_ext;
mod interval;
#[cfg(feature = "testing")]
mod paused;
mod sleep;
mod timeout;
mod wait;

pub use delay_queue::DelayQueue;
pub use future_ext::FutureExt;
pub use interval::{Interval, interval, interval_at};
#[cfg(feature = "testing")]
pub use paused::advance;
pub use sleep::{Sleep, sleep, sleep_until};
pub use timeout::{Timeout, timeout, timeout_at};

#[doc(no_inline)]
pub use ::tokio::time::{Instant, MissedTickBehavior};
#[cfg(feature = "testing")]
#[doc(no_inline)]
pub use ::tokio::time::{pause, resume};
#[doc(no_inline)]
pub use std::time::Duration;
