//! Futures in virtual time: tests of hours that take no time at all.
//!
//! [`block_on`] runs a future on a timer whose clock stands still while any task is woken, and
//! leaps to what fires next when none is. No time-out is late, nothing sleeps, and each run is the
//! same.
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
//! A calendar without its own clock reads the time of day of the world's clock, which is midnight
//! of 1970-01-01 UTC at first, or as set by [`ManualClock::set_wall`].

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

/// Runs the future that `make` makes of a timer, in virtual time.
///
/// For more tasks than one, or a wheel of another shape, or a look at the clock, there is a
/// [`World`].
///
/// # Panics
///
/// As [`World::block_on`].
pub fn block_on<F: Future>(make: impl FnOnce(Timer) -> F) -> F::Output {
    let mut world = World::new();
    let main = make(world.timer().share());
    world.block_on(main)
}

/// A runtime of one thread in virtual time: tasks, a timer, and the clock that it runs by.
///
/// Other wheels by its clock are swept with it if it is [told](Self::add) of them: those of a
/// scheduler, a cache or keyed timers. It does not wait for threads: where a driver sweeps or a
/// file's store answers, time would leap past them. For those a test moves a [`ManualClock`] by
/// hand, and waits for what it expects through a channel.
///
/// # Examples
///
/// A server's task that gives up, and a client's that is slower:
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
    /// The timer's own, and others.
    wheels: Vec<Box<dyn AddedWheel>>,
    tasks: Vec<WorldTask>,
    spawner: Spawner,
    remote: RemoteSpawner,
    /// For calendars that are made before they run.
    #[cfg(feature = "cron")]
    _wall: crate::FollowGuard,
}

/// A wheel that is swept with a world.
trait AddedWheel {
    /// What its clock says.
    fn now(&self) -> Instant;
    /// When something may be due.
    fn next(&mut self) -> Option<Instant>;
    /// How many timers fired.
    fn sweep(&mut self) -> usize;
}

/// A wheel's sweeper, and what is to be done with what is due.
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

/// Spawns tasks in a [`World`] from within its tasks; made by [`World::spawner`].
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
/// handlers and other threads; made by [`World::remote_spawner`].
///
/// A world does not wait for other threads. It takes the tasks that have been spawned when it
/// checks.
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

/// A future, and whether it is to be polled.
struct WorldTask {
    future: Pin<Box<dyn Future<Output = ()>>>,
    woken: Arc<WokenFlag>,
}

/// Set by a waker.
struct WokenFlag(AtomicBool);

impl WokenFlag {
    /// Of a future that was never polled.
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicBool::new(true)))
    }

    /// Whether it was woken since the last look.
    fn take(&self) -> bool {
        // Acquire: pairs with the Release of `wake`: the poll sees what the waker did before.
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
    /// A world on a wheel as by default, of one shard.
    ///
    /// # Panics
    ///
    /// Never: the defaults are in range.
    #[must_use]
    #[allow(clippy::expect_used, reason = "the defaults are in range")]
    pub fn new() -> Self {
        Self::with_builder(Builder::new().shards(1)).expect("the defaults are in range")
    }

    /// A world on a wheel as the builder says. (A clock that the builder was given is not used.)
    ///
    /// # Errors
    ///
    /// As [`Builder::build`].
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

    /// Sweeps another wheel as well, which runs by the world's [clock](Self::clock), and hands what
    /// is due to `handler`.
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

    /// The timer of this world.
    pub fn timer(&self) -> &Timer {
        &self.timer
    }

    /// The clock by which it runs: it leaps by itself, and may be moved.
    #[must_use]
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// Spawns tasks from within the tasks.
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

    /// Adds a task, which runs while [`block_on`](Self::block_on) does.
    pub fn spawn(&mut self, future: impl Future<Output = ()> + 'static) {
        self.spawner.spawn(future);
    }

    /// Runs `main` to its end, and the tasks meanwhile. Whenever none of them is woken, time leaps
    /// to what fires next. Tasks that have not ended by then stay, for the next call.
    ///
    /// # Panics
    ///
    /// None is woken, and nothing is armed: `main` would wait for ever. (What another thread is to
    /// wake is not waited for.) Or a wheel that is [swept](Self::add) has another clock.
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
                assert!(self.advance_to_next(), "no task is woken, and nothing is armed");
            }
        }
    }

    /// Moves the clock to what fires next, and sweeps. `false`: nothing is armed.
    fn advance_to_next(&mut self) -> bool {
        loop {
            let nexts = self.wheels.iter_mut().map(|wheel| wheel.next()).enumerate();
            let first = nexts.filter_map(|(place, next)| Some((next?, place))).min();
            let Some((next, place)) = first else {
                return false;
            };
            self.clock.advance(next.saturating_duration_since(self.clock.now()));
            assert!(self.wheels[place].now() >= next, "a wheel of this world has another clock");
            // What comes next may have been a slot's turn, and no timer.
            if self.wheels.iter_mut().map(|wheel| wheel.sweep()).sum::<usize>() > 0 {
                return true;
            }
        }
    }

    /// Polls each task that is woken. Whether any was.
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
