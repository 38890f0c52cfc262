//! The default timer of a thread, a scope or a future, which overrides the timer of the process.

#![forbid(unsafe_code)]

use super::process::{Candidate, process_timer};
use super::timer::Timer;
use pin_project_lite::pin_project;
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

thread_local! {
    /// The timer of the thread's innermost scope. Outside of any scope, it is the thread's own
    /// clone of the process's timer, so that threads share no counter of sleeps.
    static CURRENT: RefCell<Option<Candidate>> = const { RefCell::new(None) };
}

/// Returns the default timer, for code that was passed none.
///
/// Within a [scope](with_default_timer), it is the timer of the innermost one. Otherwise it is the
/// timer of the process, which was either [set](super::set_default_timer) or is started by the
/// first call. A timer that the first call starts has its own driver, whose thread runs as long as
/// the process. Such a timer also replaces a timer that its owner has shut down. A process that was
/// forked without `exec` [starts its own](crate::Driver#forked-child-processes) at the first call.
///
/// All code of the process shares the timer, so the returned handle cannot end it.
/// [`Timer::shutdown`] does nothing, and [`Timer::driver`] returns `None`.
///
/// # Panics
///
/// Panics if the first call cannot start a driver because the system refuses a thread or memory.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::future::default_timer;
///
/// default_timer().shutdown(); // does nothing
/// pollster::block_on(default_timer().sleep(Duration::from_millis(5)))?;
/// assert!(default_timer().wheel().is_empty());
/// # Ok::<(), tourbillon::Refusal>(())
/// ```
pub fn default_timer() -> Timer {
    let open = |current: &Candidate| current.is_usable().then(|| current.timer.share());
    let current = CURRENT.try_with(|current| current.borrow().as_ref().and_then(open));
    // A thread that is being torn down has none.
    current.ok().flatten().unwrap_or_else(adopt_process_timer)
}

/// Returns the timer of the process, which it starts if there is none, and stores it as the timer
/// of the thread.
#[cold]
fn adopt_process_timer() -> Timer {
    let timer = process_timer().without_shutdown();
    drop(replace(Some(Candidate::for_this_process(timer.share()))));
    timer
}

/// Runs a function with `timer` as the [default timer](default_timer) of the calling thread.
///
/// Use this for a test or a runtime that calls code without a parameter for the timer. It costs an
/// allocation. The scope does not extend to tasks and threads that the function spawns. For
/// futures, use [`Timer::scope`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::future::{Timer, default_timer, with_default_timer};
///
/// let timer = Timer::spawn(Builder::new().driver())?;
/// let hour = || default_timer().sleep(Duration::from_secs(3600));
/// let mut hour = with_default_timer(&timer, hour);
/// timer.shutdown();
/// assert!(pollster::block_on(&mut hour).is_err(), "it is a sleep of that timer");
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
pub fn with_default_timer<R>(timer: &Timer, function: impl FnOnce() -> R) -> R {
    let _entered = timer.enter();
    function()
}

impl Timer {
    /// Makes this timer the [default timer](default_timer) of the calling thread until the guard is
    /// dropped.
    ///
    /// Each guard restores the timer that was the default when it was created, so drop guards in
    /// reverse order. A guard costs an allocation.
    ///
    /// # Examples
    ///
    /// A runtime with its own timer, which each of its threads enters permanently:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    /// use tourbillon::future::{Timer, default_timer};
    ///
    /// let coarse = Builder::new().resolution(Duration::from_millis(10));
    /// let timer = Timer::spawn(coarse.driver())?;
    /// // With tokio: `runtime_builder.on_thread_start(move || timer.enter().stay())`.
    /// let worker = std::thread::spawn(move || {
    ///     timer.enter().stay();
    ///     default_timer().wheel().resolution()
    /// });
    /// assert_eq!(worker.join().unwrap(), Duration::from_millis(10));
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    pub fn enter(&self) -> EnteredTimer {
        let outer = replace(Some(Candidate::for_any_process(self.without_shutdown())));
        EnteredTimer { outer: Some(outer), _of_its_thread: PhantomData }
    }

    /// Wraps a future so that this timer is the [default timer](default_timer) whenever the future
    /// is polled, across each `.await` and on every thread.
    ///
    /// It costs an allocation, and each poll increments a reference count.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::future::default_timer;
    /// use tourbillon::testing::World;
    ///
    /// // A library without a place for a timer's handle.
    /// async fn work() {
    ///     default_timer().sleep(Duration::from_secs(3600)).await.unwrap();
    ///     default_timer().sleep(Duration::from_secs(3600)).await.unwrap();
    /// }
    ///
    /// let mut world = World::new();
    /// let work = world.timer().scope(work());
    /// world.block_on(work);
    /// assert_eq!(world.clock().elapsed(), Duration::from_secs(7200));
    /// ```
    pub fn scope<F: IntoFuture>(&self, future: F) -> WithDefaultTimer<F::IntoFuture> {
        WithDefaultTimer { future: future.into_future(), timer: self.without_shutdown() }
    }
}

/// Replaces the thread's timer. Does nothing on a thread that is being torn down.
fn replace(by: Option<Candidate>) -> Option<Candidate> {
    CURRENT.try_with(|current| current.replace(by)).ok().flatten()
}

/// A guard that makes a timer the default of the calling thread until it is dropped; created by
/// [`Timer::enter`].
#[must_use = "dropping the guard ends the scope"]
pub struct EnteredTimer {
    /// The timer that the drop restores, if any.
    outer: Option<Option<Candidate>>,
    _of_its_thread: PhantomData<*const ()>,
}

impl EnteredTimer {
    /// Keeps the timer as the default of the thread until the thread ends.
    pub fn stay(mut self) {
        self.outer = None;
    }
}

impl Drop for EnteredTimer {
    fn drop(&mut self) {
        if let Some(outer) = self.outer.take() {
            drop(replace(outer));
        }
    }
}

impl fmt::Debug for EnteredTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnteredTimer").finish_non_exhaustive()
    }
}

pin_project! {
    /// A future with its own default timer; created by [`Timer::scope`].
    #[derive(Debug)]
    #[must_use = "a future does nothing unless it is polled"]
    pub struct WithDefaultTimer<F> {
        #[pin]
        future: F,
        timer: Timer,
    }
}

impl<F> WithDefaultTimer<F> {
    /// Returns the inner future, which then uses the default timer of the code that polls it.
    pub fn into_inner(self) -> F {
        self.future
    }
}

impl<F: Future> Future for WithDefaultTimer<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let outer = replace(Some(Candidate::for_any_process(this.timer.share())));
        let _entered = EnteredTimer { outer: Some(outer), _of_its_thread: PhantomData };
        this.future.poll(context)
    }
}
