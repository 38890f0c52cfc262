//! A proxy in front of a server. It can lose replies, hold back requests, become unresponsive, and
//! lead to another server.

#![allow(clippy::disallowed_methods, reason = "each direction of a connection has a thread")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

/// The state of the next cancel: pass it on, hold it back, held back, released.
const HOLD: u32 = 1;
const HELD: u32 = 2;
const LET_GO: u32 = 3;

/// Forwards the connections to its port.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    /// The port of the server.
    server: Arc<AtomicU16>,
    lose: Arc<AtomicU32>,
    hold: Arc<AtomicU32>,
    /// The number of times that the proxy became unresponsive.
    silent: Arc<AtomicU32>,
}

impl Proxy {
    /// Starts a proxy in front of Redis, which loses replies to batches.
    pub(crate) fn before(port: u16) -> Self {
        Self::that_loses(port, |answer| {
            // These are arrays. Messages are arrays, too.
            answer.starts_with(b"*") && !answer.starts_with(b"*3\r\n$7\r\nmess")
        })
    }

    /// Starts a proxy in front of PostgreSQL, which loses replies to batches that have been
    /// committed.
    pub(crate) fn before_postgres(port: u16) -> Self {
        Self::that_loses(port, |answer| {
            let is_batch = answer.windows(7).any(|word| word == b"answer\0");
            // The server is ready for the next query, outside a transaction.
            is_batch && answer.ends_with(b"Z\0\0\0\x05I")
        })
    }

    fn that_loses(port: u16, is_lost: fn(&[u8]) -> bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let here = listener.local_addr().expect("it has an address").port();
        let server = Arc::new(AtomicU16::new(port));
        let leads = Arc::clone(&server);
        let lose = Arc::<AtomicU32>::default();
        let losing = Arc::clone(&lose);
        let hold = Arc::<AtomicU32>::default();
        let holding = Arc::clone(&hold);
        let silent = Arc::<AtomicU32>::default();
        let silenced = Arc::clone(&silent);
        // Both end with the process.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let port = leads.load(SeqCst);
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let (from, to) = (client.try_clone(), server.try_clone());
                let (from, to) = (from.expect("a socket"), to.expect("a socket"));
                let (holding, cut) = (Arc::clone(&holding), client.try_clone());
                let silenced = Arc::clone(&silenced);
                let before = silenced.load(SeqCst);
                let held = move |request: &[u8]| {
                    while silenced.load(SeqCst) != before {
                        std::thread::park();
                    }
                    let cancel = request.windows(6).any(|word| word == b"cancel");
                    if cancel && holding.compare_exchange(HOLD, HELD, SeqCst, SeqCst).is_ok() {
                        let _ = cut.as_ref().map(|client| client.shutdown(Shutdown::Both));
                        while holding.load(SeqCst) != LET_GO {
                            std::thread::sleep(Duration::from_millis(10));
                        }
                    }
                    false
                };
                std::thread::spawn(move || pass(from, to, held));
                let losing = Arc::clone(&losing);
                let lost = move |answer: &[u8]| {
                    let less = |count: u32| count.checked_sub(1);
                    is_lost(answer) && losing.fetch_update(SeqCst, SeqCst, less).is_ok()
                };
                std::thread::spawn(move || pass(server, client, lost));
            }
        });
        Self { port: here, server, lose, hold, silent }
    }

    /// Leads new connections to another server. Existing ones stay.
    pub(crate) fn leads_to(&self, port: u16) {
        self.server.store(port, SeqCst);
    }

    /// Blocks all requests of the existing connections, which stay open.
    pub(crate) fn silence(&self) {
        self.silent.fetch_add(1, SeqCst);
    }

    /// Holds back the next cancel, and cuts its connection.
    pub(crate) fn hold(&self) {
        self.hold.store(HOLD, SeqCst);
    }

    /// Releases the request that was held back. Returns `true` if there was one.
    pub(crate) fn let_go(&self) -> bool {
        self.hold.swap(LET_GO, SeqCst) == HELD
    }

    /// Loses the next `count` replies with their connections.
    pub(crate) fn lose(&self, count: u32) {
        self.lose.store(count, SeqCst);
    }

    /// Returns the number of replies that are still to be lost.
    pub(crate) fn left(&self) -> u32 {
        self.lose.load(SeqCst)
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, lost: impl Fn(&[u8]) -> bool) {
    let mut bytes = vec![0; 65_536];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        if lost(&bytes[..length]) || to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}
