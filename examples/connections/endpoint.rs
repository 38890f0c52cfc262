//! The endpoint of a program that is watched. Each connection receives a line of [`Figures`] per
//! second. Without connections the wheel is not read.

use super::figures::Figures;
use serde_json::json;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::Wheel;

const BETWEEN: Duration = Duration::from_secs(1);

/// The maximum time for a write to a client that does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of connections. More are closed at once.
const MOST: usize = 8;

/// Opens the endpoint, which lives as long as the process.
///
/// Any client that can connect reads the figures of the program, so use a loopback address.
pub(crate) fn open<T: Send + 'static>(
    wheel: Wheel<T>,
    address: impl ToSocketAddrs,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let opened = Instant::now();
    thread::Builder::new().name("watched".into()).spawn(move || {
        // Each connection has a clone.
        let connections = Arc::new(());
        // A connection that broke before it was accepted is no reason to end.
        for connection in listener.incoming().flatten() {
            if Arc::strong_count(&connections) > MOST {
                continue;
            }
            let (wheel, counted) = (wheel.clone(), Arc::clone(&connections));
            let told = move || {
                tell(connection, &wheel, opened);
                drop(counted);
            };
            // If no thread can be started the connection is closed, and the client may try again.
            let _ = thread::Builder::new().name("watched".into()).spawn(told);
        }
    })?;
    Ok(address)
}

/// Writes figures until the connection ends, or its client has not read for [`WRITE_TIMEOUT`].
fn tell<T: Send + 'static>(mut connection: TcpStream, wheel: &Wheel<T>, opened: Instant) {
    if connection.set_write_timeout(Some(WRITE_TIMEOUT)).is_err() {
        return;
    }
    while connection.write_all(Figures::of(wheel, opened.elapsed()).line().as_bytes()).is_ok() {
        thread::sleep(BETWEEN);
    }
}

impl Figures {
    /// Takes a snapshot of a wheel, which reads each of its entries.
    pub(crate) fn of<T: Send>(wheel: &Wheel<T>, at: Duration) -> Self {
        let (metrics, snapshot) = (wheel.metrics(), wheel.snapshot());
        Self {
            at,
            armed: metrics.armed,
            inserted: metrics.inserted,
            reset: metrics.reset,
            cancelled: metrics.cancelled,
            fired: metrics.fired,
            stale: metrics.stale_references,
            bytes: metrics.bytes,
            longest_sweep: metrics.longest_sweep,
            late: [0.5, 0.99, 1.0].map(|quantile| metrics.lateness.quantile(quantile)),
            ahead: snapshot.ahead().collect(),
        }
    }

    /// Formats the figures as a line.
    pub(crate) fn line(&self) -> String {
        let ahead = self.ahead.iter().map(|(bound, timers)| json!([nanos(*bound), timers]));
        let line = json!({
            "at": nanos(self.at),
            "armed": self.armed,
            "inserted": self.inserted,
            "reset": self.reset,
            "cancelled": self.cancelled,
            "fired": self.fired,
            "stale": self.stale,
            "bytes": self.bytes,
            "longest_sweep": nanos(self.longest_sweep),
            "late": self.late.map(nanos),
            "ahead": ahead.collect::<Vec<_>>(),
        });
        format!("{line}\n")
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
