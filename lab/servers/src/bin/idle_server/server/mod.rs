//! [`Server`], which has the event loops, the thread that accepts, and the timers, from start to
//! stop.
//!
//! ```text
//!             ┌────────────┐  Open   ┌────────────┐
//!   clients ──► acceptor   ├────────►│ mailbox    │  one for each loop, with the waker
//!             └────────────┘  Stop   │ + loop     │  of its poll
//!                             ┌─────►└──┬─────────┘
//!             ┌────────────┐  │ Idle    │ insert, reset, cancel: in batches
//!             │ sweeper    ├──┘         ▼
//!             │ (shared)   │◄──────── timers       (or each loop has and sweeps its own)
//!             └────────────┘
//! ```
//!
//! One thread accepts and hands the connections out in turn. Listeners of each loop's own
//! (`SO_REUSEPORT`) would save a message per connection, but spread connections by a hash, and let
//! a second server take the same port silently.

mod acceptor;
mod config;
mod connection;
mod counts;
mod event_loop;
mod heap;
mod mailbox;
mod timers;
mod wheel;

use acceptor::Acceptor;
pub(crate) use config::{Config, Kind, Sweeping};
use config::{Failure, Handler};
use counts::Counts;
use event_loop::EventLoop;
use mailbox::{Mailbox, Message};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use timers::{Store, Timers};

/// Figures of the server at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) accepted: u64,
    /// Connections that are open.
    pub(crate) live: u64,
    /// Timers that were handed to their loops. A few of them belong to connections that became
    /// active meanwhile.
    pub(crate) fired: u64,
    pub(crate) closed_idle: u64,
    pub(crate) panicked: u64,
    /// Armed timers. There is one per live connection when the server is quiet.
    pub(crate) armed: u64,
}

/// A server that runs until it is stopped or dropped.
pub(crate) struct Server {
    address: SocketAddr,
    counts: Arc<Counts>,
    mailboxes: Arc<[Mailbox]>,
    acceptor: Acceptor,
    loops: Vec<JoinHandle<std::io::Result<()>>>,
    store: Box<dyn Store>,
}

/// The state that the loops are started with.
struct Loops {
    polls: Vec<mio::Poll>,
    mailboxes: Arc<[Mailbox]>,
    counts: Arc<Counts>,
    idle: Duration,
    handler: Handler,
}

impl Server {
    /// Listens, and serves on threads of its own.
    pub(crate) fn start(
        config: &Config,
        handler: impl Fn(&[u8], &mut Vec<u8>) + Send + Sync + 'static,
    ) -> Result<Self, Failure> {
        let listener = acceptor::listen(config.listen)
            .map_err(|error| format!("cannot listen on {}: {error}", config.listen))?;
        let address = listener.local_addr()?;
        let (mut polls, mut mailboxes) = (Vec::new(), Vec::new());
        for _ in 0..config.loops {
            let poll = mio::Poll::new()?;
            mailboxes.push(Mailbox::new(&poll)?);
            polls.push(poll);
        }
        let (mailboxes, counts) = (Arc::from(mailboxes), Arc::new(Counts::default()));
        let loops = Loops {
            polls,
            mailboxes: Arc::clone(&mailboxes),
            counts: Arc::clone(&counts),
            idle: config.idle,
            handler: Arc::new(handler),
        };
        let (loops, store) = match (config.kind, config.sweeping) {
            (Kind::Tourbillon, Sweeping::Own) => loops.spawn(wheel::own(config)?)?,
            (Kind::Tourbillon, Sweeping::Shared) => {
                loops.spawn(wheel::shared(config, &mailboxes)?)?
            }
            (Kind::Heap, Sweeping::Own) => loops.spawn(heap::own(config))?,
            (Kind::Heap, Sweeping::Shared) => loops.spawn(heap::shared(config, &mailboxes)?)?,
        };
        let acceptor = Acceptor::spawn(listener, Arc::clone(&mailboxes), Arc::clone(&counts))?;
        Ok(Self { address, counts, mailboxes, acceptor, loops, store })
    }

    /// The address of the server.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The present figures.
    pub(crate) fn figures(&self) -> Figures {
        Figures {
            accepted: self.counts.accepted.load(Relaxed),
            live: self.counts.live.load(Relaxed),
            fired: self.counts.fired.load(Relaxed),
            closed_idle: self.counts.closed_idle.load(Relaxed),
            panicked: self.counts.panicked.load(Relaxed),
            armed: self.store.armed(),
        }
    }

    /// Closes everything, waits for all threads, and returns the figures.
    pub(crate) fn stop(mut self) -> Result<Figures, Failure> {
        self.end()
    }

    fn end(&mut self) -> Result<Figures, Failure> {
        self.acceptor.stop()?;
        for mailbox in self.mailboxes.iter() {
            mailbox.post(Message::Stop);
        }
        for handle in std::mem::take(&mut self.loops) {
            handle.join().map_err(|_| "an event loop panicked")??;
        }
        let figures = self.figures();
        self.store.stop();
        Ok(figures)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Does nothing if it has been stopped, which would have reported errors.
        let _ = self.end();
    }
}

type Spawned = (Vec<JoinHandle<std::io::Result<()>>>, Box<dyn Store>);

impl Loops {
    /// Starts a loop for each of the timers.
    fn spawn<T: Timers>(self, made: (Vec<T>, Box<dyn Store>)) -> Result<Spawned, Failure> {
        let (timers, store) = made;
        let mut handles = Vec::new();
        for (number, (poll, timers)) in self.polls.into_iter().zip(timers).enumerate() {
            let event_loop = EventLoop::new(
                event_loop::Place { number, mailboxes: Arc::clone(&self.mailboxes) },
                poll,
                timers,
                self.idle,
                Arc::clone(&self.counts),
                Arc::clone(&self.handler),
            );
            let named = thread::Builder::new().name(format!("loop {number}"));
            handles.push(named.spawn(move || event_loop.run())?);
        }
        Ok((handles, store))
    }
}
