//! Futures on the wheel: sleeps, timeouts and intervals for any runtime, or none.
//!
//! This module serves the purposes of `tokio::time`, without its runtime and without its lock, and
//! reports a sleep that cannot be armed. (The module `tourbillon::time` is a drop-in replacement,
//! whose sleeps cannot be refused.) A [`Timer`] is a wheel whose values are wakers, with a driver
//! that wakes them. A [`Sleep`] is one timer of it.
//!
//! ```
//! use std::future::pending;
//! use std::time::Duration;
//! use tourbillon::Builder;
//! use tourbillon::future::{Timer, TimeoutError};
//!
//! let timer = Timer::spawn(Builder::new().driver())?; // one for the whole process
//! pollster::block_on(async {
//!     timer.sleep(Duration::from_millis(2)).await?;
//!     let silent = timer.timeout(Duration::from_millis(2), pending::<()>()).await;
//!     assert_eq!(silent, Err(TimeoutError::Elapsed));
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it works
//!
//! ```text
//!            Idle ──first Pending: insert──► Armed(id) ──poll, the id is not found───► Elapsed
//!              ▲                               │  ▲                                    or Refused
//!              │ reset, if it has fired        │  └── reset: the wheel's own, by the id
//!              └───────────────────────────────┘
//!                     drop: cancel by the id
//! ```
//!
//! **The wheel is the source of truth.** A sleep shares no memory with the thread that fires it,
//! and is not notified that it has fired. It asks the wheel whether its id still refers to a timer.
//! It therefore needs no pin, no lock and no allocation. Dropping it at the very instant of its
//! expiry is a cancel that comes too late, like any other. (In tokio an entry is a node of an
//! intrusive list inside the future. It is pinned, and reached under the lock of its shard.) The
//! price is that the id changes with the waker. If a different task polls, it takes the old waker
//! out and inserts its own.
//!
//! **A sleep may be refused** if the timer was shut down or is full. A sleep that ended early would
//! break the guarantee that no timer fires early, a panic would end a server, and waiting forever
//! would hang it. The output of a sleep is therefore a `Result`.
//!
//! **No wake-up is lost.** The waker is in the wheel before the poll returns `Pending`. It leaves
//! the wheel in one of two ways. Either it is woken, because a [`SleepWaker`] also wakes when it is
//! dropped, for example by a drain or by an executor that gives up. Or the owner of the sleep takes
//! it out, and then inserts another, returns a result or drops the sleep.
//!
//! 1. *A poll by a different task* [takes](crate::Wheel::cancel_with_deadline) the old waker out
//!    and inserts the new one. It recognises the waker in the wheel by its two pointers, which are
//!    unique as long as it is there. The take has one winner. If the sweep came first, the sleep
//!    has fired and is ready. The take returns the deadline together with the waker, so a reset
//!    through the old id either is kept or has returned `false`.
//! 2. *A reset that comes too late* leaves the sleep idle. The waker has been woken, and the poll
//!    that follows inserts it again.
//! 3. *A deadline beyond the wheel's range* is reached in hops. The timer wakes the task, which
//!    polls, finds that the deadline has not passed and inserts the waker again.
//!
//! **A missing timer has three possible causes.** The deadline has passed, or the wheel was closed
//! and drained, or this was a hop. The clock tells which. This does not hold once the
//! [id](Sleep::id) of the sleep was shared, because other code can then move the deadline. Such a
//! sleep has completed unless the wheel is closed, since its timer has fired or was cancelled
//! through the id.
//!
//! **No future holds its task.** An [`Interval`] that catches up, and a [`DelayQueue`] with many
//! expired values, yield to other tasks after 64 results in a row (see `budget`). A refused sleep
//! also yields once before it returns the error, so a loop over a timer that was shut down cannot
//! starve other tasks. The ticks of an interval report a shutdown once and then stay pending. The
//! default timer is never a timer that was shut down.
//!
//! **Sockets come first.** A driver's thread and a runtime's sockets are independent sources of
//! events. If both have an event for the same limit, a runtime whose threads were blocked could
//! report the expiry although bytes arrived before it. A [`Timeout`] on a timer with a driver
//! therefore stays pending for another millisecond when its time has passed, and then polls its
//! future again. So does a timeout on any timer if its expiry is noticed late (see `grace`).
//!
//! **Wakers run without locks held.** They run on the driver's executor in batches, after an
//! operation and never within it, and never under a guard of the wheel. The end of a driver does
//! not wait for wakers, because the last sleep may be dropped under a lock that they take.

#![forbid(unsafe_code)]

mod budget;
#[cfg(not(modelled))]
mod current;
mod deadline;
mod deferred_wake;
mod delay_queue;
mod drive;
mod drive_task;
pub(crate) mod grace;
mod interval;
mod or_end;
#[cfg(not(modelled))]
mod process;
mod repeating;
mod sleep;
mod sleep_waker;
mod stream;
mod ticks;
mod timeout;
mod timer;

pub use crate::scheduler::MissedTickBehavior;
#[cfg(not(modelled))]
pub use current::{EnteredTimer, WithDefaultTimer, default_timer, with_default_timer};
pub use deadline::{Deadline, WithDeadline};
pub use deferred_wake::DeferredWake;
pub use delay_queue::{DelayQueue, DelayQueueHandle};
pub use drive::{Drive, Undriven, drive, undriven};
pub use interval::{Interval, ZeroPeriod};
pub use or_end::OrEnd;
#[cfg(all(feature = "time", not(modelled)))]
pub(crate) use process::own_timer_of_thread;
#[cfg(not(modelled))]
pub use process::set_default_timer;
pub use sleep::Sleep;
pub use sleep_waker::SleepWaker;
pub use stream::{ChunksTimeout, ItemTimeout, Throttle};
pub use ticks::Ticks;
pub use timeout::{Timeout, TimeoutError};
pub use timer::Timer;
