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
    /// The part of an answer that has arrived.
    partly: Vec<u8>,
}

/// The input of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heard {
    /// The answer is complete.
    pub(crate) answer: bool,
    /// The server has closed the connection.
    pub(crate) closed: bool,
}

/// The number of connections per source address. The system has some 28,000 ports for each.
const ON_ONE_ADDRESS: usize = 20_000;

impl Client {
    /// Connects the client with this number.
    pub(crate) fn connect(target: Target, number: usize) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(target.address), Type::STREAM, None)?;
        let group = u8::try_from(number / ON_ONE_ADDRESS).unwrap_or(u8::MAX);
        if group > 0 {
            let source = Ipv4Addr::new(127, 0, 0, 1 + group);
            socket.bind(&SocketAddr::from((source, 0)).into())?;
        }
        socket.connect(&target.address.into())?;
        socket.set_tcp_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let stream = TcpStream::from_std(socket.into());
        Ok(Self { stream, protocol: target.protocol, partly: Vec::new() })
    }

    /// Sends a request, which is short and the only one in progress. Returns `false` if the server
    /// has closed the connection.
    pub(crate) fn send(&mut self) -> Result<bool, Failure> {
        match self.stream.write_all(self.protocol.request()) {
            Ok(()) => Ok(true),
            Err(error) if is_closing(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads all available input.
    pub(crate) fn hear(&mut self) -> Result<Heard, Failure> {
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
        if !self.partly.is_empty() {
            if let Some(length) = self.protocol.answer(&self.partly)? {
                self.partly.drain(..length);
                heard.answer = true;
            }
        }
        Ok(heard)
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
