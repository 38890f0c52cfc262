//! The clocks of a wheel: [`Clock`], the monotonic clock, and a clock that is set by hand. [`boot`]
//! has a clock that continues while the machine sleeps.
//!
//! This is the only file that calls [`Instant::now`], and `wall` is the only one that calls
//! [`SystemTime::now`].

#![forbid(unsafe_code)]

#[cfg(all(target_os = "linux", target_pointer_width = "64", not(modelled)))]
mod boot;
#[cfg(feature = "cron")]
mod wall;

#[cfg(all(target_os = "linux", target_pointer_width = "64", not(modelled)))]
pub use boot::BootClock;
#[cfg(feature = "cron")]
pub(crate) use wall::wall_now;
#[cfg(all(feature = "cron", feature = "testing"))]
pub(crate) use wall::{FollowGuard, follow};

use crate::counter;
use crate::panics::ignore_poison;
use crate::sync::{Mutex, MutexGuard};
use std::collections::HashSet;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant, SystemTime};

/// A clock that never goes backwards.
///
/// # Examples
///
/// A wheel on a clock that a test moves by hand:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Builder, ManualClock};
///
/// let clock = ManualClock::new();
/// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
/// wheel.insert("tea", Duration::from_secs(180))?;
///
/// clock.advance(Duration::from_secs(179));
/// assert_eq!(sweeper.sweep(|_| ()).expired, 0);
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(sweeper.sweep(|timer| assert_eq!(timer.value, "tea")).expired, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Clock: Send + Sync + Debug + 'static {
    /// Returns the current time, which is at most [`lag`](Clock::lag) behind the true time and
    /// never ahead of it.
    fn now(&self) -> Instant;

    /// Returns the maximum lag of [`now`](Clock::now) behind the true time.
    ///
    /// The lag is added to every deadline that is given as a delay, so that no timer fires early.
    fn lag(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns `true` if a thread may reuse a reading for at most 100 µs, as long as the
    /// processor's counter shows that no more time has passed. The wheel then adds 100 µs to every
    /// delay, as it does with the [`lag`](Clock::lag).
    ///
    /// Return `true` only for a clock that is derived from that counter. The wheel ignores it if
    /// the kernel keeps its own time by a different clock.
    fn is_cacheable(&self) -> bool {
        false
    }

    /// Returns how long, in the system's time, a tick thread may sleep to wake at `deadline` of
    /// this clock. `None` means until it is woken (see [`subscribe`](Clock::subscribe)).
    fn timeout(&self, deadline: Instant) -> Option<Duration> {
        Some(deadline.saturating_duration_since(self.now()))
    }

    /// Returns `true` if the clock runs by itself, and `false` if it stands still until it is
    /// moved, as in a test.
    ///
    /// On a clock that runs, a timeout whose end is noticed late is reported a little later, so
    /// that the runtime can collect the events of its sockets first. By default, a clock runs if it
    /// has a [`timeout`](Clock::timeout) for the next millisecond.
    fn is_running(&self) -> bool {
        self.timeout(self.now() + Duration::from_millis(1)).is_some()
    }

    /// Returns `true` if the clock continues while the machine is suspended.
    ///
    /// A closure or interval at a fixed rate on such a clock skips missed runs by default, and does
    /// not make up for a whole night of them.
    fn counts_suspension(&self) -> bool {
        false
    }

    /// Registers a function. A clock that does not run by itself calls it whenever the clock was
    /// moved, until the function returns `false`. The clock may call it at other times too, to find
    /// out whether it is still needed.
    fn subscribe(&self, wake: Box<dyn Fn() -> bool + Send + Sync>) {
        drop(wake);
    }
}

/// The system's monotonic clock, as read by [`Instant::now`].
///
/// On Linux it stands still while the machine sleeps. On other systems that depends on the system's
/// clock.
///
/// # Examples
///
/// Delays without the 0.1 ms that the default clock adds:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Builder, MonotonicClock};
///
/// let (wheel, _sweeper) = Builder::new().clock(MonotonicClock).build()?;
/// let deadline = wheel.clock().now() + Duration::from_millis(20);
/// let id = wheel.insert_at("at its tick", deadline)?;
/// let due = wheel.deadline(id).unwrap();
/// assert!(due >= deadline && due < deadline + wheel.resolution());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the time")]
    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// The default clock: the [`MonotonicClock`], whose readings each thread reuses for at most 100 µs.
///
/// A precise reading for each insert and reset costs more than the wheel itself. With this clock
/// delays are counted from a reading that may be 100 µs old, and each is made 100 µs longer, so
/// that no timer fires early. The sweeper reads the precise time.
///
/// It reuses readings on Linux on x86-64 and 64-bit Arm, if the kernel reads its time from the
/// processor's counter (`tsc` or `arch_sys_counter` is the `current_clocksource` below
/// `/sys/devices/system/clocksource`). Elsewhere it is a [`MonotonicClock`]. Each thread compares
/// clock and counter whenever it reads the clock again. If the kernel has switched to another
/// clock, or the counter is slower than it should be (on x86-64 than 0.32 GHz), the thread stops
/// reusing readings.
///
/// Use a [`MonotonicClock`] on Arm processors whose counter has an erratum that the kernel works
/// around (Freescale LS1043A and LS2080A, HiSilicon Hip05 to Hip07, Allwinner A64).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Builder, CachedClock, MonotonicClock};
///
/// let (wheel, _sweeper) = Builder::new().clock(CachedClock).build::<&str>()?; // as by default
/// let (precise, _sweeper) = Builder::new().clock(MonotonicClock).build()?;
/// let id = precise.insert("at a fifth of a second", Duration::from_millis(200))?;
/// # precise.cancel(id);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct CachedClock;

impl Clock for CachedClock {
    fn now(&self) -> Instant {
        MonotonicClock.now()
    }

    fn is_cacheable(&self) -> bool {
        counter::is_the_clocks()
    }
}

/// A clock that you move by hand, for tests in virtual time. Clones share the time.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Builder, ManualClock};
///
/// let clock = ManualClock::new();
/// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
/// let minute = Duration::from_secs(60);
/// let idle = wheel.insert("connection 7", minute)?;
///
/// clock.advance(minute / 2);
/// wheel.reset(idle, minute)?; // a packet arrives
/// clock.advance(minute / 2);
/// assert_eq!(sweeper.sweep(|_| ()).expired, 0);
/// clock.advance(minute / 2);
/// assert_eq!(sweeper.sweep(|_| ()).expired, 1);
/// assert_eq!(clock.elapsed(), Duration::from_secs(90));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ManualClock {
    start: Instant,
    shared: Arc<ManualTime>,
}

type Subscriber = Arc<dyn Fn() -> bool + Send + Sync>;

/// The functions to call when the clock was moved.
#[derive(Default)]
struct Subscribers {
    functions: Vec<Subscriber>,
    /// The number of functions that were left after all were last called.
    left: usize,
}

/// Returns the address of a function, which is unique while the function lives.
fn place(subscriber: &Subscriber) -> *const () {
    Arc::as_ptr(subscriber).cast()
}

/// The number of subscribers, beyond twice the number left by the last check, that triggers another
/// check.
const ENDED: usize = 64;

#[derive(Default)]
struct ManualTime {
    elapsed_nanos: AtomicU64,
    /// The time of day at the clock's start, if it was set.
    wall: Mutex<Option<SystemTime>>,
    subscribers: Mutex<Subscribers>,
}

impl ManualClock {
    /// Creates a clock that starts at some instant, its [`start`](Self::start).
    #[must_use]
    pub fn new() -> Self {
        Self { start: MonotonicClock.now(), shared: Arc::default() }
    }

    /// Returns the instant when the clock started.
    #[must_use]
    pub fn start(&self) -> Instant {
        self.start
    }

    /// Returns how far the clock has moved since its start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        // Acquire: pairs with the Release of `advance`, so that a thread that sees the new time
        // sees what the mover did before.
        Duration::from_nanos(self.shared.elapsed_nanos.load(Acquire))
    }

    /// Advances the clock by `step`, up to 584 years after its start in total. Wakes its
    /// [subscribers](Clock::subscribe), which may use the clock themselves.
    pub fn advance(&self, step: Duration) {
        let step = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX);
        // Release: pairs with the Acquire of `elapsed`. Acquire: keeps the chain of moves whole.
        let _ = self
            .shared
            .elapsed_nanos
            .fetch_update(Release, Acquire, |elapsed| Some(elapsed.saturating_add(step)));
        self.call_subscribers();
    }

    /// Calls all subscribers, and removes those that have ended.
    fn call_subscribers(&self) {
        // The user's functions must not be called under the lock. A subscriber that another thread
        // calls meanwhile stays in the list, so it is called for each move.
        let mut functions = self.subscribers().functions.clone();
        functions.retain(|wake| !wake());
        let ended: HashSet<*const ()> = functions.iter().map(place).collect();
        let mut subscribers = self.subscribers();
        subscribers.functions.retain(|wake| !ended.contains(&place(wake)));
        subscribers.left = subscribers.functions.len();
    }

    /// Returns the time of day. It is 1970-01-01 00:00 UTC when the clock starts, unless it is
    /// [set](Self::set_wall), and moves with the clock.
    ///
    /// One clock can therefore serve a wheel, the calendars of a scheduler, and a store of durable
    /// timers.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tourbillon::ManualClock;
    ///
    /// let clock = ManualClock::new();
    /// clock.advance(Duration::from_secs(5));
    /// assert_eq!(clock.wall(), SystemTime::UNIX_EPOCH + Duration::from_secs(5));
    /// ```
    #[must_use]
    pub fn wall(&self) -> SystemTime {
        let start = *ignore_poison(self.shared.wall.lock());
        start.unwrap_or(SystemTime::UNIX_EPOCH) + self.elapsed()
    }

    /// Sets the time of day, forwards or backwards, as users and time servers do. The clock itself
    /// is not moved.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tourbillon::{Clock, ManualClock};
    ///
    /// let clock = ManualClock::new();
    /// let billennium = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    /// clock.set_wall(billennium);
    /// assert_eq!((clock.wall(), clock.now()), (billennium, clock.start()));
    /// clock.advance(Duration::from_secs(1));
    /// assert_eq!(clock.wall(), billennium + Duration::from_secs(1));
    /// ```
    pub fn set_wall(&self, time: SystemTime) {
        *ignore_poison(self.shared.wall.lock()) = time.checked_sub(self.elapsed());
    }

    fn subscribers(&self) -> MutexGuard<'_, Subscribers> {
        ignore_poison(self.shared.subscribers.lock())
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        self.start + self.elapsed()
    }

    fn timeout(&self, deadline: Instant) -> Option<Duration> {
        (deadline <= self.now()).then_some(Duration::ZERO)
    }

    fn subscribe(&self, wake: Box<dyn Fn() -> bool + Send + Sync>) {
        let mut subscribers = self.subscribers();
        subscribers.functions.push(wake.into());
        let many = subscribers.functions.len() > 2 * subscribers.left + ENDED;
        drop(subscribers);
        if many {
            // Even if the clock is never moved, the subscribers of dropped wheels do not add up.
            self.call_subscribers();
        }
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualClock").field("elapsed", &self.elapsed()).finish_non_exhaustive()
    }
}

/// Implements `Clock` for pointers to clocks.
macro_rules! pointer_is_clock {
    ($($pointer:ident),*) => {$(
        impl<C: Clock + ?Sized> Clock for $pointer<C> {
            fn now(&self) -> Instant {
                (**self).now()
            }

            fn lag(&self) -> Duration {
                (**self).lag()
            }

            fn is_cacheable(&self) -> bool {
                (**self).is_cacheable()
            }

            fn timeout(&self, deadline: Instant) -> Option<Duration> {
                (**self).timeout(deadline)
            }

            fn is_running(&self) -> bool {
                (**self).is_running()
            }

            fn counts_suspension(&self) -> bool {
                (**self).counts_suspension()
            }

            fn subscribe(&self, wake: Box<dyn Fn() -> bool + Send + Sync>) {
                (**self).subscribe(wake);
            }
        }
    )*};
}

pointer_is_clock!(Box, Arc);

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::{Clock, ENDED, ManualClock};
    use std::time::Duration;

    #[test]
    fn subscribers_that_have_ended_go_even_if_the_clock_stands_still() {
        let clock = ManualClock::new();
        for number in 0..1000 {
            clock.subscribe(Box::new(move || number % 100 == 0));
        }
        let left = clock.subscribers().functions.len();
        assert!((10..=2 * 10 + ENDED).contains(&left), "{left}");
        clock.advance(Duration::from_secs(1));
        assert_eq!(clock.subscribers().functions.len(), 10);
    }
}
