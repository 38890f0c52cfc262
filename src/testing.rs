//! Futures in virtual time: tests of hours that take no time at all.
//!
//! [`block_on`] runs a future on a timer whose clock stands still while any task is woken. When no
//! task is woken, the clock jumps to the next expiry. No timeout is late, no thread sleeps, and
//! each run gives the same result.
//!
//! ```
//! use std::time::Duration;
//! use tourbillon::future::TimeoutError;
//! use tourbillon::testing::block_on;
//!
//! let hour = Duration::from_secs(3600);
//! let (slept, ended) = block_on(|timer| async move {
//!     let start = timer.now();
//!     timer.sleep(hour).await.unwrap();
//!     let never = timer.timeout(hour, std::future::pending::<()>()).await;
//!     (timer.now() - start, never)
//! });
//! assert_eq!((slept, ended), (2 * hour, Err(TimeoutError::Elapsed)));
//! ```
//!
//! A calendar without its own clock reads the time of day from the world's clock. It starts at
//! midnight of 1970-01-01 UTC, and [`ManualClock::set_wall`] changes it. Because it may be set, a
//! calendar reads it at least once a minute, and so a leap ends after a minute. A year of virtual
//! time thus has half a million leaps and takes a while. For a run that comes rarely, set the time
//! of day shortly before it, and then schedule:
//!
//! ```
//! # #[cfg(feature = "cron")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::mpsc;
//! use std::time::{Duration, UNIX_EPOCH};
//! use tourbillon::Builder;
//! use tourbillon::scheduler::{Calendar, Scheduler};
//! use tourbillon::testing::World;
//!
//! let mut world = World::new();
//! let (wheel, sweeper) = Builder::new().clock(world.clock().clone()).build()?;
//! let scheduler = Scheduler::new(wheel);
//! let fires = scheduler.clone();
//! world.add(sweeper, move |timer| fires.fire(timer));
//!
//! let nine_on_new_year = UNIX_EPOCH + Duration::from_secs(1_767_258_000); // of 2026
//! world.clock().set_wall(nine_on_new_year - Duration::from_secs(90));
//! let (send, runs) = mpsc::channel();
//! let yearly = Calendar::new("0 9 1 1 *", "UTC")?;
//! scheduler.by(yearly).run(move || drop(send.send(())))?;
//!
//! let before = world.timer().sleep(Duration::from_secs(89));
//! world.block_on(before)?;
//! assert_eq!(runs.try_iter().count(), 0);
//! let until_it_has_run = world.timer().sleep(Duration::from_secs(2));
//! world.block_on(until_it_has_run)?;
//! assert_eq!(runs.try_iter().count(), 1);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "cron"))]
//! # fn main() {}
//! ```

#![forbid(unsafe_code)]

use crate::future::Timer;
use crate::panics::ignore_poison;
use crate::{BuildError, Builder, Clock, Expired, ManualClock, Sweeper};
use std::cell::RefCell;
use std::fmt;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// Runs the future that `make` creates from a timer, in virtual time.
///
/// Use a [`World`] for more than one task, for a wheel with other settings, or for access to the
/// clock.
///
/// # Panics
///
/// Panics like [`World::block_on`].
pub fn block_on<F: Future>(make: impl FnOnce(Timer) -> F) -> F::Output {
    let mut world = World::new();
    let main = make(world.timer().share());
    world.block_on(main)
}

/// A runtime of one thread in virtual time, with tasks, a timer and a clock.
///
/// Wheels of schedulers, caches or keyed timers that use its clock can be [added](Self::add), and
/// are then swept with it. A world does not wait for threads. If a driver sweeps, or the store of a
/// file replies, time would jump past them. In such tests, move a [`ManualClock`] by hand and wait
/// for the expected events through a channel.
///
/// # Examples
///
/// A task of a server that times out, and a task of a client that is slower:
///
/// ```
/// use std::cell::Cell;
/// use std::rc::Rc;
/// use std::time::Duration;
/// use tourbillon::testing::World;
///
/// let mut world = World::new();
/// let answered = Rc::new(Cell::new(false));
/// let (client, slow) = (Rc::clone(&answered), world.timer().share());
/// world.spawn(async move {
///     slow.sleep(Duration::from_secs(20)).await.unwrap();
///     client.set(true);
/// });
/// let patience = world.timer().sleep(Duration::from_secs(10));
/// world.block_on(patience).unwrap();
/// assert!(!answered.get());
/// assert_eq!(world.clock().elapsed(), Duration::from_secs(10));
/// ```
pub struct World {
    clock: ManualClock,
    timer: Timer,
    /// The timer's own wheel, and the added ones.
    wheels: Vec<Box<dyn AddedWheel>>,
    tasks: Vec<WorldTask>,
    spawner: Spawner,
    remote: RemoteSpawner,
    /// For calendars that are created before the world runs.
    #[cfg(feature = "cron")]
    _wall: crate::FollowGuard,
}

/// A wheel that is swept with a world.
trait AddedWheel {
    /// Returns the time of its clock.
    fn now(&self) -> Instant;
    /// Returns the time of its next sweep.
    fn next(&mut self) -> Option<Instant>;
    /// Sweeps the wheel. Returns the number of timers that fired.
    fn sweep(&mut self) -> usize;
}

/// A sweeper, and the handler of its expired timers.
struct SweptWheel<T, H> {
    sweeper: Sweeper<T>,
    handler: H,
}

impl<T: Send, H: FnMut(Expired<T>)> AddedWheel for SweptWheel<T, H> {
    fn now(&self) -> Instant {
        self.sweeper.clock().now()
    }

    fn next(&mut self) -> Option<Instant> {
        self.sweeper.next_deadline()
    }

    fn sweep(&mut self) -> usize {
        self.sweeper.sweep(&mut self.handler).expired
    }
}

/// A handle that spawns tasks in a [`World`] from within its tasks; created by [`World::spawner`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::testing::World;
///
/// let mut world = World::new();
/// let (spawner, timer) = (world.spawner(), world.timer().share());
/// world.block_on(async move {
///     let beat = timer.sleep(Duration::from_secs(1));
///     spawner.spawn(async move { beat.await.unwrap() });
///     timer.sleep(Duration::from_secs(2)).await
/// })?;
/// # Ok::<(), tourbillon::Refusal>(())
/// ```
#[derive(Clone, Default)]
pub struct Spawner(Rc<RefCell<Vec<WorldTask>>>);

/// A handle that spawns tasks in a [`World`] from code that requires `Send`, such as closures,
/// handlers and other threads.
///
/// It is created by [`World::remote_spawner`]. A world does not wait for other threads. Whenever it
/// polls its tasks, it takes those that have been spawned by then.
///
/// # Examples
///
/// A nightly asynchronous job whose runs do not overlap:
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::scheduler::{Overlap, Scheduler};
/// use tourbillon::testing::World;
///
/// let mut world = World::new();
/// let (wheel, sweeper) = Builder::new().clock(world.clock().clone()).build()?;
/// let scheduler = Scheduler::new(wheel);
/// let fires = scheduler.clone();
/// world.add(sweeper, move |timer| fires.fire(timer));
///
/// let hour = Duration::from_secs(3600);
/// let (spawner, timer) = (world.remote_spawner(), world.timer().clone());
/// let nights = Arc::new(AtomicU32::new(0));
/// let counted = Arc::clone(&nights);
/// let job = move || {
///     let (work, counted) = (timer.sleep(30 * hour), Arc::clone(&counted));
///     async move {
///         work.await.unwrap();
///         counted.fetch_add(1, Relaxed);
///     }
/// };
/// let nightly = scheduler.every(24 * hour);
/// let _tasks = nightly.run_tasks(Overlap::Forbid, move |task| spawner.spawn(task), job)?;
///
/// let week = world.timer().sleep(7 * 24 * hour);
/// world.block_on(week)?;
/// assert_eq!(nights.load(Relaxed), 3, "each second night");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct RemoteSpawner(Arc<Mutex<Vec<SendFuture>>>);

type SendFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A future, and the flag that tells whether to poll it.
struct WorldTask {
    future: Pin<Box<dyn Future<Output = ()>>>,
    woken: Arc<WokenFlag>,
}

/// A flag that a waker sets.
struct WokenFlag(AtomicBool);

impl WokenFlag {
    /// Creates the flag of a future that was never polled.
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicBool::new(true)))
    }

    /// Clears the flag, and returns `true` if it was set.
    fn take(&self) -> bool {
        // Acquire: pairs with the Release of `wake`, so that the poll sees what the waker did
        // before.
        self.0.swap(false, Acquire)
    }
}

impl std::task::Wake for WokenFlag {
    fn wake(self: Arc<Self>) {
        // Release: as above.
        self.0.store(true, Release);
    }
}

impl World {
    /// Creates a world on a wheel with default settings and one shard.
    ///
    /// # Panics
    ///
    /// Never panics, because the defaults are in range.
    #[must_use]
    #[allow(clippy::expect_used, reason = "the defaults are in range")]
    pub fn new() -> Self {
        Self::with_builder(Builder::new().shards(1)).expect("the defaults are in range")
    }

    /// Creates a world on a wheel that is configured by `builder`. The builder's clock is not used.
    ///
    /// # Errors
    ///
    /// Fails like [`Builder::build`].
    pub fn with_builder(builder: Builder) -> Result<Self, BuildError> {
        let clock = ManualClock::new();
        let (wheel, sweeper) = builder.clock(clock.clone()).build()?;
        let mut world = Self {
            #[cfg(feature = "cron")]
            _wall: crate::follow(&clock),
            clock,
            timer: Timer::new(wheel),
            wheels: Vec::new(),
            tasks: Vec::new(),
            spawner: Spawner::default(),
            remote: RemoteSpawner::default(),
        };
        world.add(sweeper, |timer| timer.value.wake());
        Ok(world)
    }

    /// Adds another wheel, which must use the world's [clock](Self::clock). It is swept with the
    /// world, and its expired timers are passed to `handler`.
    ///
    /// # Examples
    ///
    /// A scheduler, and a task that waits for its closure:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    /// use tourbillon::scheduler::Scheduler;
    /// use tourbillon::testing::World;
    ///
    /// let mut world = World::new();
    /// let (wheel, sweeper) = Builder::new().clock(world.clock().clone()).build()?;
    /// let scheduler = Scheduler::new(wheel);
    /// let fires = scheduler.clone();
    /// world.add(sweeper, move |timer| fires.fire(timer));
    ///
    /// let answer = scheduler.after(Duration::from_secs(3600), || 42)?;
    /// assert_eq!(world.block_on(async { answer.await })?, 42);
    /// assert_eq!(world.clock().elapsed(), Duration::from_secs(3600));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add<T: Send + 'static>(
        &mut self,
        sweeper: Sweeper<T>,
        handler: impl FnMut(Expired<T>) + 'static,
    ) {
        self.wheels.push(Box::new(SweptWheel { sweeper, handler }));
    }

    /// Returns the timer of this world.
    pub fn timer(&self) -> &Timer {
        &self.timer
    }

    /// Returns the clock. It jumps by itself, and may also be moved by hand.
    #[must_use]
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// Returns a spawner for use within the tasks.
    #[must_use]
    pub fn spawner(&self) -> Spawner {
        self.spawner.clone()
    }

    /// Returns a spawner for code that requires `Send`, such as a scheduler's
    /// [`run_tasks`](crate::scheduler::Every::run_tasks).
    #[must_use]
    pub fn remote_spawner(&self) -> RemoteSpawner {
        self.remote.clone()
    }

    /// Adds a task. It runs while [`block_on`](Self::block_on) does.
    pub fn spawn(&mut self, future: impl Future<Output = ()> + 'static) {
        self.spawner.spawn(future);
    }

    /// Runs `main` to completion, and the tasks meanwhile.
    ///
    /// Whenever no task is woken, time jumps to the next expiry. Tasks that have not completed stay
    /// for the next call.
    ///
    /// # Panics
    ///
    /// - Panics if no task is woken and no timer is armed, because `main` would then wait forever.
    ///   A task that another thread is about to wake does not count.
    /// - Panics if an [added](Self::add) wheel has a different clock.
    pub fn block_on<F: Future>(&mut self, main: F) -> F::Output {
        #[cfg(feature = "cron")]
        let _wall = crate::follow(&self.clock);
        let (mut main, woken) = (pin!(main), WokenFlag::new());
        let waker = Waker::from(Arc::clone(&woken));
        loop {
            if woken.take() {
                if let Poll::Ready(output) = main.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return output;
                }
            }
            if !self.run_tasks() && !woken.0.load(Acquire) {
                assert!(
                    self.advance_to_next(),
                    "deadlock in virtual time: no task is woken and no timer is armed"
                );
            }
        }
    }

    /// Moves the clock to the next expiry and sweeps. Returns `false` if no timer is armed.
    fn advance_to_next(&mut self) -> bool {
        loop {
            let nexts = self.wheels.iter_mut().map(|wheel| wheel.next()).enumerate();
            let first = nexts.filter_map(|(place, next)| Some((next?, place))).min();
            let Some((next, place)) = first else {
                return false;
            };
            self.clock.advance(next.saturating_duration_since(self.clock.now()));
            assert!(self.wheels[place].now() >= next, "an added wheel has a different clock");
            // The sweep may have been for the expiry of a slot, and have fired no timer.
            if self.wheels.iter_mut().map(|wheel| wheel.sweep()).sum::<usize>() > 0 {
                return true;
            }
        }
    }

    /// Polls each woken task. Returns `true` if there was one.
    fn run_tasks(&mut self) -> bool {
        self.tasks.append(&mut self.spawner.0.borrow_mut());
        let remote = std::mem::take(&mut *ignore_poison(self.remote.0.lock()));
        self.tasks.extend(remote.into_iter().map(|future| WorldTask::new(future)));
        let mut any = false;
        self.tasks.retain_mut(|task| {
            if !task.woken.take() {
                return true;
            }
            any = true;
            let waker = Waker::from(Arc::clone(&task.woken));
            task.future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
        });
        any
    }
}

impl Spawner {
    /// Adds a task to the world.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        self.0.borrow_mut().push(WorldTask::new(Box::pin(future)));
    }
}

impl RemoteSpawner {
    /// Adds a task to the world.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        ignore_poison(self.0.lock()).push(Box::pin(future));
    }
}

impl WorldTask {
    fn new(future: Pin<Box<dyn Future<Output = ()>>>) -> Self {
        Self { future, woken: WokenFlag::new() }
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let World { clock, tasks, .. } = self;
        f.debug_struct("World").field("clock", clock).field("tasks", &tasks.len()).finish()
    }
}

impl fmt::Debug for RemoteSpawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteSpawner").finish_non_exhaustive()
    }
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner").finish_non_exhaustive()
    }
}
