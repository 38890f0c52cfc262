//! The commands of the protocol.

use redis_protocol::bytes::Bytes;
use redis_protocol::resp2::types::BytesFrame;
use std::time::Duration;

/// A command.
#[derive(Debug)]
pub(crate) enum Command {
    Set(Bytes, Bytes, Duration),
    Expire(Bytes, Duration),
    Get(Bytes),
    Size,
}

/// The longest time to live.
const LONGEST: Duration = Duration::from_secs(3600);

impl Command {
    /// Parses a command, or returns `None` if it is not supported.
    pub(crate) fn parse(frame: BytesFrame) -> Option<Self> {
        let BytesFrame::Array(words) = frame else {
            return None;
        };
        let mut words = words.into_iter().map(|word| match word {
            BytesFrame::BulkString(word) => Some(word),
            _ => None,
        });
        let mut next = || words.next().flatten();
        let verb = next()?;
        let command = match &*verb {
            b"SET" => {
                let (key, value, unit) = (next()?, next()?, next()?);
                if &*unit != b"PX" {
                    return None;
                }
                Self::Set(key, value, millis(&next()?)?)
            }
            b"PEXPIRE" => Self::Expire(next()?, millis(&next()?)?),
            b"GET" => Self::Get(next()?),
            b"DBSIZE" => Self::Size,
            _ => return None,
        };
        words.next().is_none().then_some(command)
    }
}

fn millis(word: &[u8]) -> Option<Duration> {
    let millis = std::str::from_utf8(word).ok()?.parse().ok()?;
    Some(Duration::from_millis(millis)).filter(|&delay| delay <= LONGEST)
}
