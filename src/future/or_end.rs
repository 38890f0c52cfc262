//! [`OrEnd`]: a sleep without an error.

#![forbid(unsafe_code)]

use super::sleep::Sleep;
use futures_core::FusedFuture;
use std::pin::Pin;
use std::task::{Context, Poll};

impl Sleep {
    /// Converts this into a sleep with the output `()`, which also completes as soon as it is
    /// refused.
    pub fn or_end(self) -> OrEnd {
        OrEnd(self)
    }
}

/// A [`Sleep`] with the output `()`, for interfaces without an error.
///
/// It is created by [`Sleep::or_end`]. It completes early if the sleep is refused, because the
/// timer was shut down or is full, but yields to other tasks first. If it never completed, code
/// that waits for it would hang, such as a server that is shutting down. A loop over such sleeps
/// runs without delay once the timer is shut down, so end it by checking
/// [`Wheel::is_closed`](crate::Wheel::is_closed).
///
/// # Examples
///
/// A delay of an hour that is shortened, and another that ends with its timer:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::future::{OrEnd, Timer};
///
/// fn pause(timer: &Timer) -> impl Future<Output = ()> + Unpin + use<> {
///     let mut hour: OrEnd = timer.sleep(Duration::from_secs(3600)).or_end();
///     hour.get_mut().reset_after(Duration::from_millis(5));
///     hour
/// }
///
/// let timer = Timer::spawn(Builder::new().driver())?;
/// pollster::block_on(pause(&timer));
/// let hour = timer.sleep(Duration::from_secs(3600)).or_end();
/// timer.shutdown();
/// pollster::block_on(hour);
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
#[derive(Debug)]
#[must_use = "a sleep does nothing unless it is polled"]
pub struct OrEnd(Sleep);

impl OrEnd {
    /// Returns a reference to the sleep.
    pub fn get_ref(&self) -> &Sleep {
        &self.0
    }

    /// Returns a mutable reference to the sleep, for example to reset it.
    pub fn get_mut(&mut self) -> &mut Sleep {
        &mut self.0
    }

    /// Returns the sleep, which reports its errors.
    pub fn into_inner(self) -> Sleep {
        self.0
    }
}

impl Future for OrEnd {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(context).map(drop)
    }
}

impl FusedFuture for OrEnd {
    fn is_terminated(&self) -> bool {
        self.0.is_terminated()
    }
}
