//! Why a stream was not waited for any longer.

#![forbid(unsafe_code)]

use crate::Refusal;
use std::error::Error;
use std::fmt;
use std::io;

/// One of the times that a [`TimeoutStream`](super::TimeoutStream) allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// For a read that waits for its peer.
    Read,
    /// For a write, flush or shutdown that waits until the system accepts bytes. A slow peer may
    /// delay that for [longer than expected](super#how-long-a-limit-for-writes-must-be).
    Write,
    /// For a silence in both directions.
    Idle,
    /// For all that is to be done by then.
    Deadline,
}

/// Why an operation of a [`TimeoutStream`](super::TimeoutStream) was given up: what the
/// [`io::Error`] that it ends with holds.
///
/// # Examples
///
/// ```
/// use std::io;
/// use tourbillon::io::{Limit, StreamError};
///
/// let error = io::Error::from(StreamError::Elapsed(Limit::Idle));
/// assert_eq!(error.kind(), io::ErrorKind::TimedOut);
/// assert_eq!(error.to_string(), "no bytes went either way within the time allowed");
/// assert_eq!(error.downcast::<StreamError>().ok(), Some(StreamError::Elapsed(Limit::Idle)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamError {
    /// That limit has passed.
    Elapsed(Limit),
    /// The timer cannot say when a limit will have passed: it was shut down, or is full.
    Refused(Refusal),
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StreamError::Elapsed(Limit::Read) => "no bytes came within the time allowed",
            StreamError::Elapsed(Limit::Write) => {
                "the system took no bytes within the time allowed"
            }
            StreamError::Elapsed(Limit::Idle) => "no bytes went either way within the time allowed",
            StreamError::Elapsed(Limit::Deadline) => "the deadline has passed",
            StreamError::Refused(refusal) => {
                return write!(f, "the time-out is not kept: {refusal}");
            }
        })
    }
}

impl Error for StreamError {}

/// Of kind [`TimedOut`](io::ErrorKind::TimedOut) if a limit has passed, else
/// [`Other`](io::ErrorKind::Other).
impl From<StreamError> for io::Error {
    fn from(error: StreamError) -> Self {
        let kind = match error {
            StreamError::Elapsed(_) => io::ErrorKind::TimedOut,
            StreamError::Refused(_) => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
