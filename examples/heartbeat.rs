//! Heartbeats and idle checks of connections, by key and in virtual time. A minute and a half
//! passes at once, with the same result each time.
//!
//! Each connection has two timers. Its heartbeat arms itself again, and every packet moves its idle
//! check. A server on the real clock makes its timers with `KeyedTimers::spawn_with` and passes
//! `fired` as the handler. There the two handlers of a connection may run side by side, so the
//! heartbeat arms itself by its token, which fails after the connection was closed.
//!
//! ```text
//! cargo run --features keyed --example heartbeat
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::Duration;
use tourbillon::keyed::{Fired, KeyedTimer, KeyedTimers};
use tourbillon::{Builder, ManualClock};

const HEARTBEAT: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(30);

/// The key of a timer, which is a kind of event of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Waits {
    Heartbeat(u32),
    Idle(u32),
}

/// The peers, and the second when each falls silent.
const PEERS: [(u32, u64); 3] = [(1, u64::MAX), (2, 25), (3, 0)];

struct Server {
    timers: KeyedTimers<Waits, ()>,
    /// Closed connections, with the second of each close.
    closed: Vec<(u32, u64)>,
}

impl Server {
    fn open(&self, connection: u32) -> Result<(), Box<dyn Error>> {
        self.timers.insert(Waits::Heartbeat(connection), (), HEARTBEAT)?;
        self.timers.insert(Waits::Idle(connection), (), IDLE)?;
        Ok(())
    }

    fn fired(&mut self, Fired { key, token, .. }: Fired<Waits, ()>, second: u64) {
        match key {
            Waits::Heartbeat(connection) => {
                println!("{second:3} s  ping to {connection}");
                // Refused if the connection was closed, and if the timers were shut down.
                let _ = token.rearm((), HEARTBEAT);
                if PEERS.iter().any(|&(peer, until)| peer == connection && second < until) {
                    self.answered(connection);
                }
            }
            Waits::Idle(connection) => {
                println!("{second:3} s  {connection} has been silent for {IDLE:?}: closed");
                // Even if the heartbeat is due in the same tick, or its handler is running.
                self.timers.cancel(&Waits::Heartbeat(connection));
                self.closed.push((connection, second));
            }
        }
    }

    /// Handles a packet. The connection is then not idle.
    fn answered(&self, connection: u32) {
        assert_eq!(self.timers.reset(&Waits::Idle(connection), IDLE), Ok(true));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let clock = ManualClock::new();
    let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build::<KeyedTimer<Waits>>()?;
    let mut server = Server { timers: KeyedTimers::new(wheel), closed: Vec::new() };
    for (connection, _) in PEERS {
        server.open(connection)?;
    }
    for second in 1..=90 {
        clock.advance(Duration::from_secs(1));
        let _ = sweeper.sweep(|expired| {
            if let Some(fired) = server.timers.fire_with_token(expired) {
                server.fired(fired, second);
            }
        });
    }
    // The last packet of connection 2 arrived with the answer to its second ping.
    assert_eq!(server.closed, [(3, 30), (2, 50)]);
    let drained = server.timers.drain(|key, ()| println!("shutdown: {key:?} is not waited for"));
    assert_eq!(drained.wait().keys, 2);
    Ok(())
}
