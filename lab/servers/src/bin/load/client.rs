//! [`Client`] is one connection to the server.

use crate::Failure;
use crate::protocol::Protocol;
use mio::net::TcpStream;
use mio::{Events, Poll};
use socket2::{Domain, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The address of a server, and its protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) protocol: Protocol,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    protocol: Protocol,
    number: usize,
    /// The part of a message that has arrived.
    partly: Vec<u8>,
}

/// The input of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heard {
    /// The answer is complete.
    pub(crate) answer: bool,
    /// The client has replied to a message that asks for it.
    pub(crate) replied: bool,
    /// The server has closed the connection.
    pub(crate) closed: bool,
}

/// The longest wait for the answer to a greeting.
const PATIENCE: Duration = Duration::from_secs(5);

/// The number of connections per source address. The system has some 28,000 ports for each.
const ON_ONE_ADDRESS: usize = 20_000;

impl Client {
    /// Connects the client with this number, and greets the server if the protocol wants that.
    pub(crate) fn connect(target: Target, number: usize) -> Result<Self, Failure> {
        let socket = Socket::new(Domain::for_address(target.address), Type::STREAM, None)?;
        let group = u8::try_from(number / ON_ONE_ADDRESS).unwrap_or(u8::MAX);
        if group > 0 {
            let source = Ipv4Addr::new(127, 0, 0, 1 + group);
            socket.bind(&SocketAddr::from((source, 0)).into())?;
        }
        socket.connect(&target.address.into())?;
        socket.set_tcp_nodelay(true)?;
        let partly = greet(&socket, target.protocol, number)?;
        socket.set_nonblocking(true)?;
        let stream = TcpStream::from_std(socket.into());
        Ok(Self { stream, protocol: target.protocol, number, partly })
    }

    /// Sends a request, which is short and the only one in progress. Returns `false` if the server
    /// has closed the connection.
    pub(crate) fn send(&mut self) -> Result<bool, Failure> {
        self.write(&self.protocol.request(self.number)?)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<bool, Failure> {
        match self.stream.write_all(bytes) {
            Ok(()) => Ok(true),
            Err(error) if is_closing(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads all available input. Replies to messages that ask for it only if `replies` is set.
    pub(crate) fn hear(&mut self, replies: bool) -> Result<Heard, Failure> {
        let mut heard = Heard::default();
        let mut buffer = [0; 4096];
        while !heard.closed {
            match self.stream.read(&mut buffer) {
                Ok(0) => heard.closed = true,
                Ok(length) => self.partly.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_closing(&error) => heard.closed = true,
                Err(error) => return Err(error.into()),
            }
        }
        while !self.partly.is_empty() {
            let Some(message) = self.protocol.message(&self.partly)? else {
                break;
            };
            self.partly.drain(..message.length);
            heard.answer |= message.is_answer;
            if replies && !message.reply.is_empty() && !heard.closed {
                heard.replied = self.write(&message.reply)?;
                heard.closed = !heard.replied;
            }
        }
        Ok(heard)
    }
}

/// Sends the greeting of the protocol and waits for the answer. Returns the bytes that follow it.
fn greet(mut socket: &Socket, protocol: Protocol, number: usize) -> Result<Vec<u8>, Failure> {
    let (greeting, mut answer) = (protocol.greeting(number)?, Vec::new());
    if greeting.is_empty() {
        return Ok(answer);
    }
    socket.write_all(&greeting)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut buffer = [0; 1024];
    loop {
        let length = socket.read(&mut buffer)?;
        answer.extend_from_slice(&buffer[..length]);
        if let Some(length) = protocol.greeted(&answer)? {
            return Ok(answer.split_off(length));
        }
        if length == 0 {
            return Err("the server has closed the connection".into());
        }
    }
}

fn is_closing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// Waits for events. A signal may end the wait without one.
pub(crate) fn wait(poll: &mut Poll, events: &mut Events, longest: Duration) -> io::Result<()> {
    match poll.poll(events, Some(longest)) {
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
        result => result,
    }
}
