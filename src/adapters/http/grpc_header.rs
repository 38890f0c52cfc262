//! The header `grpc-timeout`, and [`GrpcDeadlineLayer`], which adds it to a client's requests.

#![forbid(unsafe_code)]

use crate::adapters::wraps::wraps_a_service;
use crate::future::{Deadline, Timer};
use ::http::{HeaderName, HeaderValue, Request};
use std::task::{Context, Poll};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// The header with the time that a client allows for a request.
const NAME: HeaderName = HeaderName::from_static("grpc-timeout");

/// Its units in nanoseconds, the finest first.
const UNITS: [(char, u64); 6] = [
    ('n', 1),
    ('u', 1_000),
    ('m', 1_000_000),
    ('S', 1_000_000_000),
    ('M', 60_000_000_000),
    ('H', 3_600_000_000_000),
];

/// The largest number of a unit, which has eight digits.
const MAX_NUMBER: u128 = 99_999_999;

/// Returns the time that a request allows, if it has a valid header.
pub(super) fn asked<B>(request: &Request<B>) -> Option<Duration> {
    let text = request.headers().get(NAME)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let nanos = UNITS.iter().find(|(name, _)| unit.starts_with(*name))?.1;
    let right =
        (1..=8).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit());
    let number = right.then(|| digits.parse::<u32>().ok()).flatten()?;
    Some(Duration::from_nanos(nanos).saturating_mul(number))
}

/// Returns the header for a duration, rounded up to a value that it can express, of at least a
/// nanosecond.
fn header(left: Duration) -> HeaderValue {
    let (nanos, last) = (left.as_nanos().max(1), UNITS[UNITS.len() - 1]);
    let number = |unit: u64| nanos.div_ceil(unit.into());
    let fits = UNITS.into_iter().find(|&(_, unit)| number(unit) <= MAX_NUMBER);
    let (name, unit) = fits.unwrap_or(last);
    let text = format!("{}{name}", number(unit).min(MAX_NUMBER));
    HeaderValue::from_str(&text).unwrap_or_else(|_| unreachable!("digits and a letter"))
}

/// Adds the header `grpc-timeout` with the remaining time to a client's requests. This is the time
/// until the [`Deadline`] of the current scope or the deadline among the request's extensions,
/// whichever is sooner. A request that already has the header, or that has neither deadline, is
/// unchanged. (The scope must enclose the *call*, see [`Deadline::scope`].)
///
/// # Examples
///
/// ```
/// use http::{Request, Response};
/// use std::convert::Infallible;
/// use std::future::{Ready, ready};
/// use std::task::{Context, Poll};
/// use std::time::Duration;
/// use tourbillon::future::{Deadline, Timer};
/// use tourbillon::http::GrpcDeadlineLayer;
/// use tourbillon::{Builder, ManualClock};
/// use tower_layer::Layer;
/// use tower_service::Service;
///
/// /// Tells what it was asked.
/// struct Echo;
///
/// impl Service<Request<()>> for Echo {
///     type Response = Option<String>;
///     type Error = Infallible;
///     type Future = Ready<Result<Option<String>, Infallible>>;
///
///     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
///         Poll::Ready(Ok(()))
///     }
///
///     fn call(&mut self, request: Request<()>) -> Self::Future {
///         let header = request.headers().get("grpc-timeout");
///         ready(Ok(header.and_then(|value| Some(value.to_str().ok()?.to_owned()))))
///     }
/// }
///
/// let (wheel, _sweeper) = Builder::new().clock(ManualClock::new()).build()?;
/// let timer = Timer::new(wheel);
/// let deadline = Deadline::at(timer.now() + Duration::from_millis(1500));
/// let mut client = GrpcDeadlineLayer::new(timer).layer(Echo);
/// let asked = deadline.run(|| client.call(Request::new(())));
/// assert_eq!(pollster::block_on(asked).unwrap().as_deref(), Some("1500000u"));
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct GrpcDeadlineLayer {
    timer: Timer,
}

impl GrpcDeadlineLayer {
    /// Creates a layer that computes the remaining time with the clock of `timer`.
    #[must_use]
    pub fn new(timer: Timer) -> Self {
        Self { timer }
    }
}

impl<S> Layer<S> for GrpcDeadlineLayer {
    type Service = GrpcDeadline<S>;

    fn layer(&self, inner: S) -> GrpcDeadline<S> {
        GrpcDeadline { inner, timer: self.timer.clone() }
    }
}

/// A client whose requests state their remaining time, created by a [`GrpcDeadlineLayer`].
#[derive(Clone, Debug)]
pub struct GrpcDeadline<S> {
    inner: S,
    timer: Timer,
}

wraps_a_service!(GrpcDeadline);

impl<S, Body> Service<Request<Body>> for GrpcDeadline<S>
where
    S: Service<Request<Body>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> S::Future {
        let own = request.extensions().get::<Deadline>().copied();
        if let Some(deadline) = own.into_iter().chain(Deadline::current()).min() {
            let left = || header(deadline.left(self.timer.now()));
            request.headers_mut().entry(NAME).or_insert_with(left);
        }
        self.inner.call(request)
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::{NAME, asked, header};
    use ::http::Request;
    use std::time::Duration;

    fn said(text: &str) -> Option<Duration> {
        asked(&Request::builder().header(NAME, text).body(()).ok()?)
    }

    #[test]
    fn each_unit_is_understood_and_nothing_else() {
        let nanos = |unit| said(&format!("7{unit}")).map(|time| time.as_nanos());
        let hour = 3_600_000_000_000;
        let expected = [7, 7_000, 7_000_000, 7_000_000_000, 7 * hour / 60, 7 * hour];
        assert_eq!(["n", "u", "m", "S", "M", "H"].map(nanos), expected.map(Some));
        assert_eq!(said("99999999H"), Some(Duration::from_secs(3600 * 99_999_999)));
        for wrong in
            ["", "7", "S", "7s", "-7S", "+7S", " 7S", "7 S", "7.5S", "123456789n", "7é", "é"]
        {
            assert_eq!(said(wrong), None, "{wrong}");
        }
        assert_eq!(asked(&Request::new(())), None);
    }

    #[test]
    fn a_time_is_said_as_finely_as_eight_digits_can_and_never_too_short() {
        for (nanos, expected) in [
            (0, "1n"),
            (99_999_999, "99999999n"),
            (100_000_001, "100001u"),
            (99_999_999_001, "100000m"),
        ] {
            assert_eq!(header(Duration::from_nanos(nanos)), expected);
            let understood = said(expected).map(|time| time.as_nanos());
            assert!(understood >= Some(nanos.into()));
        }
        assert_eq!(header(Duration::from_secs(360_000_000_000)), "99999999H");
        assert_eq!(header(Duration::MAX), "99999999H");
    }
}
