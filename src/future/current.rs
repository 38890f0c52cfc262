//! The default timer of a thread, a scope or a future, in place of that of the process.

#![forbid(unsafe_code)]

use super::process::of_the_process;
use super::timer::Timer;
use pin_project_lite::pin_project;
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

thread_local! {
    /// The timer of the innermost scope that the thread is in. In none, the thread's own clone of
    /// the process's timer, so that threads share no count of sleeps.
    static CURRENT: RefCell<Option<Timer>> = const { RefCell::new(None) };
}

/// The default timer, which [`sleep`](super::sleep), [`timeout`](super::timeout()) and
/// [`interval`](super::interval()) use.
///
/// It is the timer of the innermost [scope](with_default_timer) that the caller is in. In none it
/// is the timer of the process: the one that was [set](super::set_default_timer), or one with a
/// driver of its own that is started at the first call, and whose thread lives as long as the
/// process. A timer that was shut down by its owner is passed over for the latter. A process that
/// was forked without `exec` starts a timer of its own at its first call.
///
/// The timer is shared by all code of the process, and so its handle cannot end it:
/// [`Timer::shutdown`] does nothing there, and [`Timer::driver`] is `None`.
///
/// # Panics
///
/// It is the first call, and the system starts no thread.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::future::{default_timer, sleep};
///
/// default_timer().shutdown(); // does nothing
/// pollster::block_on(sleep(Duration::from_millis(5)))?;
/// assert!(default_timer().wheel().is_empty());
/// # Ok::<(), tourbillon::Refusal>(())
/// ```
pub fn default_timer() -> Timer {
    let open = |timer: &Timer| (!timer.wheel().is_closed()).then(|| timer.share());
    let current = CURRENT.try_with(|current| current.borrow().as_ref().and_then(open));
    // A thread that is being torn down has none.
    current.ok().flatten().unwrap_or_else(begin)
}

/// Returns the process's timer, and makes it the thread's in place of one that is closed.
#[cold]
fn begin() -> Timer {
    let timer = of_the_process().lent();
    drop(replace(Some(timer.share())));
    timer
}

/// Runs a function with `timer` as the [default timer](default_timer) of the calling thread.
///
/// For a test or a runtime whose sleeps are made by code that takes no handle. It costs an
/// allocation. Tasks and threads that are spawned within are in no scope of this kind; see
/// [`Timer::scope`] for futures.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::future::{Timer, sleep, with_default_timer};
///
/// let timer = Timer::spawn(Builder::new().driver())?;
/// let mut hour = with_default_timer(&timer, || sleep(Duration::from_secs(3600)));
/// timer.shutdown();
/// assert!(pollster::block_on(&mut hour).is_err(), "it is a sleep of that timer");
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
pub fn with_default_timer<R>(timer: &Timer, function: impl FnOnce() -> R) -> R {
    let _entered = timer.enter();
    function()
}

impl Timer {
    /// Makes this the [default timer](default_timer) of the calling thread, until the guard is
    /// dropped.
    ///
    /// Guards are dropped in reverse order; one that is dropped too early brings back the timer
    /// from before it, and one that is dropped too late does so again. It costs an allocation.
    ///
    /// # Examples
    ///
    /// A runtime with a timer of its own: each of its threads enters it, and stays.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    /// use tourbillon::future::{Timer, default_timer, sleep};
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
        let outer = replace(Some(self.lent()));
        EnteredTimer { outer: Some(outer), _of_its_thread: PhantomData }
    }

    /// The same future, with this as the [default timer](default_timer) whenever it is polled,
    /// across each `.await` and on whichever thread.
    ///
    /// It costs an allocation, and a poll costs a count.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::future::sleep;
    /// use tourbillon::testing::World;
    ///
    /// // A library without a place for a timer's handle.
    /// async fn work() {
    ///     sleep(Duration::from_secs(3600)).await.unwrap();
    ///     sleep(Duration::from_secs(3600)).await.unwrap();
    /// }
    ///
    /// let mut world = World::new();
    /// let work = world.timer().scope(work());
    /// world.block_on(work);
    /// assert_eq!(world.clock().elapsed(), Duration::from_secs(7200));
    /// ```
    pub fn scope<F: IntoFuture>(&self, future: F) -> WithDefaultTimer<F::IntoFuture> {
        WithDefaultTimer { future: future.into_future(), timer: self.lent() }
    }
}

/// Replaces the thread's timer. On a thread that is being torn down it does nothing.
fn replace(timer: Option<Timer>) -> Option<Timer> {
    CURRENT.try_with(|current| current.replace(timer)).ok().flatten()
}

/// A default timer of the calling thread, until this is dropped; made by [`Timer::enter`].
#[must_use = "dropping it ends the scope"]
pub struct EnteredTimer {
    /// What the drop brings back, if anything.
    outer: Option<Option<Timer>>,
    _of_its_thread: PhantomData<*const ()>,
}

impl EnteredTimer {
    /// Leaves the timer the default of the thread until the thread ends.
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
    /// A future with a default timer of its own; made by [`Timer::scope`].
    #[derive(Debug)]
    #[must_use = "a future does nothing unless it is polled"]
    pub struct WithDefaultTimer<F> {
        #[pin]
        future: F,
        timer: Timer,
    }
}

impl<F> WithDefaultTimer<F> {
    /// The future, with the default timer of whatever polls it.
    pub fn into_inner(self) -> F {
        self.future
    }
}

impl<F: Future> Future for WithDefaultTimer<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let outer = replace(Some(this.timer.share()));
        let _entered = EnteredTimer { outer: Some(outer), _of_its_thread: PhantomData };
        this.future.poll(context)
    }
}
