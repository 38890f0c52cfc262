//! [`WheelRuntime`]: the timers of quinn's connections on a wheel.
//!
//! A connection has one timer for loss, idleness, pacing, keep-alive and more, and resets it with
//! nearly every packet. Here that is a reset of one [`Sleep`], which lives as long as the
//! connection.
//!
//! **One clock.** A connection reads the time from its runtime and compares it with its deadlines.
//! The runtime therefore returns the wheel's clock, so that a deadline that the wheel has passed
//! has also passed for the connection.
//!
//! **Refused deadlines.** A connection whose timer is ready early resets it and polls again at
//! once. A timer that reported a refusal as an expiry would keep the connection spinning, and one
//! that never became ready would let it hang. A refused deadline is therefore passed to a timer of
//! the runtime below, with the remaining time measured on its clock. That timer is created only
//! then, and dropped when a later deadline finds room in the wheel.

#![forbid(unsafe_code)]

use crate::future::{Sleep, Timer};
use ::quinn::{AsyncTimer, AsyncUdpSocket, Runtime};
use std::io;
use std::net::UdpSocket;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// A runtime for quinn that keeps the timers of connections on the wheel of a [`Timer`] and
/// delegates sockets and tasks to another runtime.
///
/// After [`Timer::shutdown`], or if the wheel is full, the other runtime keeps the deadlines.
/// Connections continue and end as usual.
///
/// Endpoints may share a `WheelRuntime`. All connections then share one counter of sleeps. If that
/// counter becomes a bottleneck, give each endpoint a runtime with its own clone of the timer.
///
/// # Examples
///
/// An endpoint, with `Arc::new(quinn::TokioRuntime)` as `below`, for example. (The example
/// `quic_echo` has a server and a client.)
///
/// ```
/// use quinn::{Endpoint, EndpointConfig, Runtime, ServerConfig};
/// use std::net::UdpSocket;
/// use std::sync::Arc;
/// use tourbillon::future::Timer;
/// use tourbillon::quinn::WheelRuntime;
///
/// fn server(
///     timer: &Timer,
///     below: Arc<dyn Runtime>,
///     config: (EndpointConfig, ServerConfig),
/// ) -> std::io::Result<Endpoint> {
///     let socket = UdpSocket::bind("127.0.0.1:0")?;
///     let runtime = WheelRuntime::new(timer.clone(), below);
///     Endpoint::new(config.0, Some(config.1), socket, Arc::new(runtime))
/// }
/// # use quinn::{AsyncTimer, AsyncUdpSocket};
/// # use std::{future::poll_fn, io, pin::Pin, time::{Duration, Instant}};
/// # #[derive(Debug)]
/// # struct Below;
/// # impl Runtime for Below {
/// #     fn new_timer(&self, _: Instant) -> Pin<Box<dyn AsyncTimer>> { unreachable!() }
/// #     fn spawn(&self, _: Pin<Box<dyn Future<Output = ()> + Send>>) {}
/// #     fn wrap_udp_socket(&self, _: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
/// #         Err(io::ErrorKind::Unsupported.into())
/// #     }
/// # }
/// # let timer = Timer::spawn(tourbillon::Builder::new().driver())?;
/// # let runtime = WheelRuntime::new(timer.clone(), Arc::new(Below));
/// # let mut sleep = runtime.new_timer(runtime.now() + Duration::from_millis(2));
/// # pollster::block_on(poll_fn(|context| sleep.as_mut().poll(context)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct WheelRuntime(Arc<Layers>);

/// The wheel and the runtime below it.
#[derive(Debug)]
struct Layers {
    timer: Timer,
    below: Arc<dyn Runtime>,
}

impl WheelRuntime {
    /// Creates a runtime with timers from `timer` and everything else from `below`.
    #[must_use]
    pub fn new(timer: Timer, below: Arc<dyn Runtime>) -> Self {
        Self(Arc::new(Layers { timer, below }))
    }

    /// Returns the timer.
    pub fn timer(&self) -> &Timer {
        &self.0.timer
    }
}

impl Runtime for WheelRuntime {
    fn new_timer(&self, deadline: Instant) -> Pin<Box<dyn AsyncTimer>> {
        let sleep = self.0.timer.sleep_until(deadline);
        Box::pin(WheelTimer { sleep, layers: Arc::clone(&self.0), refuge: None })
    }

    #[track_caller]
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.0.below.spawn(future);
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        self.0.below.wrap_udp_socket(socket)
    }

    fn now(&self) -> Instant {
        self.0.timer.now()
    }
}

/// The timer of one connection.
#[derive(Debug)]
struct WheelTimer {
    sleep: Sleep,
    layers: Arc<Layers>,
    /// A timer of the runtime below. Set when the wheel has refused the deadline; cleared by a
    /// reset, unless the wheel is closed.
    refuge: Option<Pin<Box<dyn AsyncTimer>>>,
}

impl WheelTimer {
    /// Returns the deadline on the clock of the runtime below.
    fn deadline_below(&self) -> Instant {
        let Layers { timer, below } = &*self.layers;
        // At most 136 years, so that the last instant of all is not now.
        let far = Duration::from_secs(1 << 32);
        let left = self.sleep.deadline().saturating_duration_since(timer.now()).min(far);
        let now = below.now();
        now.checked_add(left).unwrap_or(now)
    }
}

impl AsyncTimer for WheelTimer {
    fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        self.sleep.reset(deadline);
        if !self.layers.timer.wheel().is_closed() {
            self.refuge = None;
            return;
        }
        let deadline_below = self.deadline_below();
        if let Some(refuge) = &mut self.refuge {
            refuge.as_mut().reset(deadline_below);
        }
    }

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Some(refuge) = &mut self.refuge {
            return refuge.as_mut().poll(context);
        }
        if ready!(Pin::new(&mut self.sleep).poll(context)).is_ok() {
            return Poll::Ready(());
        }
        let deadline_below = self.deadline_below();
        let refuge = self.layers.below.new_timer(deadline_below);
        self.refuge.insert(refuge).as_mut().poll(context)
    }
}
