//! [`StreamError`]: the error of an operation that was given up.

#![forbid(unsafe_code)]

use crate::Refusal;
use std::error::Error;
use std::fmt;
use std::io;

/// A limit of a [`TimeoutStream`](super::TimeoutStream).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// The limit for a read that waits for the peer.
    Read,
    /// The limit for a write, flush or shutdown that waits until the system accepts bytes. A slow
    /// peer may delay that for [longer than
    /// expected](super#how-long-limits-must-be-while-a-stream-sends).
    Write,
    /// The limit for silence in both directions. The system accepted no byte, which also happens
    /// while a peer [reads slowly](super#how-long-limits-must-be-while-a-stream-sends).
    Idle,
    /// The limit for the time between two [pauses](super::StreamHandle::pause), while a connection
    /// has no request.
    KeepAlive,
    /// The deadline for all operations.
    Deadline,
}

/// The reason why an operation of a [`TimeoutStream`](super::TimeoutStream) failed without an error
/// of the inner stream.
///
/// The [`io::Error`] that the operation returns contains this error.
///
/// # Examples
///
/// ```
/// use std::io;
/// use tourbillon::io::{Limit, StreamError};
///
/// let error = io::Error::from(StreamError::Elapsed(Limit::Idle));
/// assert_eq!(error.kind(), io::ErrorKind::TimedOut);
/// assert_eq!(error.to_string(), "no bytes moved in either direction within the idle timeout");
/// assert_eq!(error.downcast::<StreamError>().ok(), Some(StreamError::Elapsed(Limit::Idle)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamError {
    /// A limit has passed.
    Elapsed(Limit),
    /// The timer could not be armed because it was shut down or is full.
    Refused(Refusal),
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StreamError::Elapsed(Limit::Read) => "no bytes were received within the read timeout",
            StreamError::Elapsed(Limit::Write) => "no bytes were accepted within the write timeout",
            StreamError::Elapsed(Limit::Idle) => {
                "no bytes moved in either direction within the idle timeout"
            }
            StreamError::Elapsed(Limit::KeepAlive) => {
                "the stream was not used within the keep-alive timeout"
            }
            StreamError::Elapsed(Limit::Deadline) => "the deadline has passed",
            StreamError::Refused(refusal) => {
                return write!(f, "could not arm the timeout: {refusal}");
            }
        })
    }
}

impl Error for StreamError {}

/// Converts the error to one of kind [`TimedOut`](io::ErrorKind::TimedOut) if a limit has passed,
/// and [`Other`](io::ErrorKind::Other) otherwise.
impl From<StreamError> for io::Error {
    fn from(error: StreamError) -> Self {
        let kind = match error {
            StreamError::Elapsed(_) => io::ErrorKind::TimedOut,
            StreamError::Refused(_) => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
