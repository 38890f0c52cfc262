//! [`Acceptor`] accepts connections on a thread and hands them to the loops in turn.

use super::config::Failure;
use super::counts::Counts;
use super::mailbox::{MAIL, Mailbox, Message};
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};
use socket2::{Domain, Socket, Type};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The pause after a failed accept, as when the process has no free descriptors.
const PAUSE: Duration = Duration::from_millis(20);

/// The number of connections that may wait to be accepted, if the system allows it. With mio's 128,
/// clients of a burst would try again after a second.
const BACKLOG: i32 = 4096;

/// A handle on the thread.
pub(crate) struct Acceptor {
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// The state of the thread.
struct Door {
    poll: Poll,
    listener: TcpListener,
    mailboxes: Arc<[Mailbox]>,
    counts: Arc<Counts>,
    stop: Arc<AtomicBool>,
    /// The number of connections that were handed out.
    handed: usize,
}

/// Listens on the address. Fails if another server listens there.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // Connections of a server that has ended must not prevent this.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(TcpListener::from_std(socket.into()))
}

impl Acceptor {
    pub(crate) fn spawn(
        mut listener: TcpListener,
        mailboxes: Arc<[Mailbox]>,
        counts: Arc<Counts>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, Token(0), Interest::READABLE)?;
        let waker = Waker::new(poll.registry(), MAIL)?;
        let stop = Arc::new(AtomicBool::new(false));
        let door = Door { poll, listener, mailboxes, counts, stop: Arc::clone(&stop), handed: 0 };
        let named = thread::Builder::new().name("acceptor".into());
        let thread = Some(named.spawn(move || door.run())?);
        Ok(Self { stop, waker, thread })
    }

    /// Closes the listener and waits for the thread.
    pub(crate) fn stop(&mut self) -> Result<(), Failure> {
        if let Some(thread) = self.thread.take() {
            self.stop.store(true, Release);
            self.waker.wake()?;
            thread.join().map_err(|_| "the acceptor panicked")??;
        }
        Ok(())
    }
}

impl Door {
    fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(2);
        let mut pause = None;
        while !self.stop.load(Acquire) {
            match self.poll.poll(&mut events, pause) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => pause = self.accept_all(),
            }
        }
        Ok(())
    }

    /// Accepts all waiting connections. If one cannot be accepted now, returns the time until the
    /// next try, because no event will report that it still waits.
    fn accept_all(&mut self) -> Option<Duration> {
        while !self.stop.load(Relaxed) {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    self.counts.accepted.fetch_add(1, Relaxed);
                    self.counts.live.fetch_add(1, Relaxed);
                    self.mailboxes[self.handed % self.mailboxes.len()].post(Message::Open(stream));
                    self.handed += 1;
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return None,
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                    _ => return Some(PAUSE),
                },
            }
        }
        None
    }
}
