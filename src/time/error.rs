//! Errors.

#![forbid(unsafe_code)]

#[doc(no_inline)]
pub use ::tokio::time::error::Error;
use std::fmt;
use std::io;

/// The error of a [`Timeout`](super::Timeout) whose future has not completed in time.
///
/// # Examples
///
/// ```
/// use std::future::pending;
/// use std::io;
/// use tourbillon::time::{Duration, error::Elapsed, timeout};
///
/// async fn read() -> io::Result<()> {
///     Ok(timeout(Duration::from_millis(5), pending()).await?)
/// }
///
/// let silent = timeout(Duration::from_millis(5), pending::<()>());
/// let elapsed: Elapsed = pollster::block_on(silent).unwrap_err();
/// assert_eq!(elapsed.to_string(), "deadline has elapsed");
/// assert_eq!(pollster::block_on(read()).unwrap_err().kind(), io::ErrorKind::TimedOut);
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct Elapsed(());

impl Elapsed {
    pub(super) fn new() -> Self {
        Self(())
    }
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("deadline has elapsed")
    }
}

impl std::error::Error for Elapsed {}

/// Converts the error to one of kind [`TimedOut`](io::ErrorKind::TimedOut).
impl From<Elapsed> for io::Error {
    fn from(_: Elapsed) -> Self {
        io::ErrorKind::TimedOut.into()
    }
}
