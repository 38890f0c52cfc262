//! A proxy before a server, that loses answers when it is told to.

#![allow(clippy::disallowed_methods, reason = "each direction of a connection has a thread")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// Passes on what comes to its port.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    lose: Arc<AtomicU32>,
}

impl Proxy {
    pub(crate) fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let here = listener.local_addr().expect("it has an address").port();
        let lose = Arc::<AtomicU32>::default();
        let losing = Arc::clone(&lose);
        // Both end with the process.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let (from, to) = (client.try_clone(), server.try_clone());
                let (from, to) = (from.expect("a socket"), to.expect("a socket"));
                std::thread::spawn(move || pass(from, to, |_| false));
                let losing = Arc::clone(&losing);
                let lost = move |answer: &[u8]| {
                    // Only answers of groups: those are arrays, and so are messages.
                    let group =
                        answer.starts_with(b"*") && !answer.starts_with(b"*3\r\n$7\r\nmess");
                    let less = |count: u32| count.checked_sub(1);
                    group && losing.fetch_update(SeqCst, SeqCst, less).is_ok()
                };
                std::thread::spawn(move || pass(server, client, lost));
            }
        });
        Self { port: here, lose }
    }

    /// The next so many answers are lost, and their connections with them.
    pub(crate) fn lose(&self, count: u32) {
        self.lose.store(count, SeqCst);
    }

    /// How many of them are still to be lost.
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
