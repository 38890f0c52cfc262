//! Datagrams of the protocol with retransmission, received and sent in batches by `recvmmsg` and
//! `sendmmsg`.
//!
//! A client opens a flow with an acknowledgement of segment 0. The server answers each
//! acknowledgement with the next segment, and repeats a segment that is not acknowledged within the
//! timeout that it states.

use nix::errno::Errno;
use nix::sys::socket::{
    MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, sendmmsg, setsockopt, sockopt,
};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// The number of datagrams in a batch.
pub const BATCH: usize = 64;

/// The length of a datagram. After the fields follow zeros, in place of data.
pub const LENGTH: usize = 64;

/// The length of the receive buffer of a socket.
const BUFFER: usize = 4 << 20;

/// A segment, or its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The number of the flow.
    pub flow: u32,
    /// The number of the segment.
    pub segment: u32,
    /// Microseconds until the segment is repeated. Zero in an acknowledgement.
    pub timeout: u32,
}

impl Datagram {
    /// The timeout of a segment.
    #[must_use]
    pub fn timeout(self) -> Duration {
        Duration::from_micros(self.timeout.into())
    }

    /// The content of the datagram.
    #[must_use]
    pub fn bytes(self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        for (place, field) in [self.flow, self.segment, self.timeout].into_iter().enumerate() {
            bytes[place * 4..][..4].copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    /// Parses the content of a datagram, or returns `None` if it is too short.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let field = |place: usize| {
            let field = bytes.get(place * 4..)?.first_chunk()?;
            Some(u32::from_le_bytes(*field))
        };
        Some(Self { flow: field(0)?, segment: field(1)?, timeout: field(2)? })
    }
}

/// Gives a socket a large receive buffer of its own, if the system allows it.
pub fn enlarge_buffer(socket: &impl AsFd) {
    // With a smaller one more datagrams are lost, which the protocol allows.
    let _ = setsockopt(socket, sockopt::RcvBuf, &BUFFER);
}

/// The buffers of a socket.
pub struct Batches {
    headers: MultiHeaders<SockaddrIn>,
    buffers: Vec<[u8; LENGTH]>,
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches").finish_non_exhaustive()
    }
}

impl Batches {
    /// Creates buffers, and gives the socket a large buffer of its own.
    #[must_use]
    pub fn new(socket: &UdpSocket) -> Self {
        enlarge_buffer(socket);
        Self { headers: MultiHeaders::preallocate(BATCH, None), buffers: vec![[0; LENGTH]; BATCH] }
    }

    /// Appends at most a batch of received datagrams with their senders. Waits for the first one
    /// only if the socket is blocking.
    ///
    /// # Errors
    ///
    /// Fails with `WouldBlock` if no datagram arrived.
    pub fn receive(
        &mut self,
        socket: &UdpSocket,
        received: &mut Vec<(Datagram, SockaddrIn)>,
    ) -> io::Result<()> {
        let mut slices: Vec<_> =
            self.buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
        let flags = MsgFlags::MSG_WAITFORONE;
        let messages =
            recvmmsg(socket.as_raw_fd(), &mut self.headers, slices.iter_mut(), flags, None)?;
        received.extend(messages.filter_map(|message| {
            let datagram = Datagram::parse(message.iovs().next()?)?;
            Some((datagram, message.address?))
        }));
        Ok(())
    }

    /// Sends datagrams. Datagrams that the socket has no room for are lost.
    ///
    /// # Errors
    ///
    /// Fails if the system does.
    pub fn send(
        &mut self,
        socket: &UdpSocket,
        datagrams: &[(Datagram, SockaddrIn)],
    ) -> io::Result<()> {
        for batch in datagrams.chunks(BATCH) {
            let bytes: Vec<_> = batch.iter().map(|(datagram, _)| datagram.bytes()).collect();
            let slices: Vec<_> = bytes.iter().map(|bytes| [IoSlice::new(bytes)]).collect();
            let addresses: Vec<_> = batch.iter().map(|(_, address)| Some(*address)).collect();
            let mut headers = MultiHeaders::preallocate(batch.len(), None);
            let flags = MsgFlags::MSG_DONTWAIT;
            match sendmmsg(socket.as_raw_fd(), &mut headers, &slices, addresses, [], flags) {
                Ok(_) | Err(Errno::EAGAIN | Errno::ECONNREFUSED) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
