//! The commands of the key-value servers, a few of Redis's.

use futures_util::{SinkExt, StreamExt};
use redis_protocol::bytes::Bytes;
use redis_protocol::codec::Resp2;
use redis_protocol::error::RedisProtocolError;
use redis_protocol::resp2::types::BytesFrame;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::codec::Framed;

/// A command.
#[derive(Debug)]
pub enum Command {
    /// `SET key value PX milliseconds`.
    Set(Bytes, Bytes, Duration),
    /// `PEXPIRE key milliseconds`.
    Expire(Bytes, Duration),
    /// `GET key`.
    Get(Bytes),
    /// `DBSIZE`.
    Size,
}

/// The longest time to live.
const LONGEST: Duration = Duration::from_secs(3600);

impl Command {
    /// Parses a command, or returns `None` if it is not supported.
    #[must_use]
    pub fn parse(frame: BytesFrame) -> Option<Self> {
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

/// Answers the commands of one connection until it ends.
///
/// # Errors
///
/// Fails if the connection does, or does not carry frames of Redis.
pub async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    mut apply: impl FnMut(Command) -> BytesFrame,
) -> Result<(), RedisProtocolError> {
    let mut frames = Framed::new(stream, Resp2::default());
    while let Some(frame) = frames.next().await {
        let answer = match Command::parse(frame?) {
            Some(command) => apply(command),
            None => BytesFrame::Error("ERR unknown command".into()),
        };
        // The answers to commands that arrived together are sent together.
        if frames.read_buffer().is_empty() {
            frames.send(answer).await?;
        } else {
            frames.feed(answer).await?;
        }
    }
    Ok(())
}

fn millis(word: &[u8]) -> Option<Duration> {
    let millis = std::str::from_utf8(word).ok()?.parse().ok()?;
    Some(Duration::from_millis(millis)).filter(|&delay| delay <= LONGEST)
}
