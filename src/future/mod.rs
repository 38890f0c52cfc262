//! Futures on the wheel: sleeps, time-outs and intervals for any runtime, or none.
//!
//! What `tokio::time` is used for, without its runtime and without its lock: a [`Timer`] is a
//! wheel whose values are wakers, and a driver that wakes them. A [`Sleep`] is one timer of it.
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
//!            Idle ──first Pending: insert──► Armed(id) ──poll, the id names nothing──► Elapsed
//!              ▲                               │  ▲                                    or Refused
//!              │ reset, if it has fired        │  └── reset: the wheel's own, by the id
//!              └───────────────────────────────┘
//!                     drop: cancel by the id
//! ```
//!
//! **The wheel is the truth.** A sleep is not told that it has fired, and shares no memory with
//! whoever fires it: it asks the wheel whether its id still names a timer. So it needs no pin, no
//! lock and no allocation, and dropping it at the very instant of its expiry is a cancel that
//! comes too late, like any other.
//!
//! **No wake-up is lost.** The waker lies in the wheel before the poll returns `Pending`, and it
//! leaves the wheel only by being woken ([`SleepWaker`] wakes when it is dropped, too: handed back by a
//! drain, or by an executor that gives up) or by the owner of the sleep, who then puts another
//! there, has its answer, or drops the sleep:
//!
//! 1. *A poll by another task* (told by the two pointers of the waker that lies in the wheel, which
//!    are its own as long as it lies there) [takes](crate::Wheel::cancel_with_deadline) the old waker out and
//!    inserts the new one. The take has one winner: if the sweep came first the sleep has fired,
//!    and is ready.
//! 2. *A reset that comes too late* leaves the sleep idle: the waker has been woken, and the poll
//!    that follows inserts anew.
//! 3. *A deadline beyond the wheel's range* is reached in hops: the timer wakes the task, which
//!    polls, finds that the time has not come and inserts anew.
//!
//! **What a gone timer means.** The id names nothing: the time has come, or the wheel was closed
//! and drained, or this was a hop. The clock tells which. Only once an id has been
//! [handed out](Sleep::id) can others have moved the deadline, and the clock says nothing: the
//! sleep has then ended (the timer fired, or whoever has the id cancelled it), unless the wheel is
//! closed.
//!
//! **Nothing holds its task.** An [`Interval`] that catches up, and a [`DelayQueue`] of which much
//! is due, let other tasks have their turn after 64 results in a row (`budget` says how). A refused
//! sleep also lets other tasks have a turn before it reports the refusal. A loop over sleeps or
//! timeouts of a timer that was shut down runs as fast as its executor allows, but does not keep
//! other tasks from running. The ticks of an interval report a shutdown once and then stay pending.
//! The default timer is never one that was shut down.
//!
//! **Sockets come first.** A driver's thread and a runtime's sockets are independent sources of
//! events. If both have an event for the same limit, a runtime whose threads were blocked could
//! report the expiry although bytes arrived before it. A [`Timeout`] on a timer with a driver
//! therefore stays pending for about another tick when its time has passed, and then polls its
//! future again (`grace`).
//!
//! **Wakers run where nothing is held:** on the executor of the driver, batch by batch; after an
//! operation, never in its midst, and never under a guard of the wheel. The driver's end does not
//! wait for them, since the last sleep may be dropped under a lock that they take.

#![forbid(unsafe_code)]

mod budget;
#[cfg(not(modelled))]
mod current;
mod deadline;
mod deferred_wake;
mod delay_queue;
mod drive;
mod drive_task;
#[cfg(not(modelled))]
mod free;
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
#[cfg(not(modelled))]
pub use free::{interval, interval_at, sleep, sleep_until, timeout, timeout_at};
pub use interval::{Interval, ZeroPeriod};
pub use or_end::OrEnd;
#[cfg(not(modelled))]
pub use process::set_default_timer;
pub use sleep::Sleep;
pub use sleep_waker::SleepWaker;
pub use stream::{ChunksTimeout, ItemTimeout, Throttle};
pub use ticks::Ticks;
pub use timeout::{Timeout, TimeoutError};
pub use timer::Timer;
