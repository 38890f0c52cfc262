//! The endpoint that a program opens to be watched: whoever connects gets a line of [`Figures`]
//! each second. Nothing is looked at while nobody is connected.

use super::figures::{Figures, Level};
use serde_json::json;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::Wheel;

const BETWEEN: Duration = Duration::from_secs(1);

/// Opens it. It lives as long as the process.
///
/// It tells whoever connects how the program fares, so let it listen on the machine itself alone.
pub(crate) fn open<T: Send + 'static>(
    wheel: Wheel<T>,
    address: impl ToSocketAddrs,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let opened = Instant::now();
    thread::Builder::new().name("watched".into()).spawn(move || {
        // A connection that broke before it was there is no reason to end.
        for connection in listener.incoming().flatten() {
            let wheel = wheel.clone();
            let told = move || tell(connection, &wheel, opened);
            // Whoever watches will try again.
            let _ = thread::Builder::new().name("watched".into()).spawn(told);
        }
    })?;
    Ok(address)
}

/// Until the connection ends.
fn tell<T: Send + 'static>(mut connection: TcpStream, wheel: &Wheel<T>, opened: Instant) {
    while connection.write_all(Figures::of(wheel, opened.elapsed()).line().as_bytes()).is_ok() {
        thread::sleep(BETWEEN);
    }
}

impl Figures {
    /// Looks at a wheel, at each of its entries.
    pub(crate) fn of<T: Send>(wheel: &Wheel<T>, at: Duration) -> Self {
        let (metrics, snapshot) = (wheel.metrics(), wheel.snapshot());
        let names = |level| {
            let slots = snapshot.slots.iter().filter(|slot| slot.level == level);
            slots.map(|slot| slot.names).sum()
        };
        let levels = snapshot.levels.iter().enumerate().map(|(number, level)| Level {
            slot: level.slot,
            slots: level.slots as u64,
            occupied: level.occupied as u64,
            names: names(number),
        });
        Self {
            at,
            armed: metrics.armed,
            inserted: metrics.inserted,
            reset: metrics.reset,
            cancelled: metrics.cancelled,
            fired: metrics.fired,
            stale: metrics.stale_names,
            bytes: metrics.bytes,
            longest_sweep: metrics.longest_sweep,
            late: [0.5, 0.99, 1.0].map(|quantile| metrics.lateness.quantile(quantile)),
            ahead: snapshot.ahead().collect(),
            levels: levels.collect(),
        }
    }

    /// As a line.
    pub(crate) fn line(&self) -> String {
        let ahead = self.ahead.iter().map(|(bound, timers)| json!([nanos(*bound), timers]));
        let levels = self.levels.iter().map(|&Level { slot, slots, occupied, names }| {
            json!([nanos(slot), slots, occupied, names])
        });
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
            "levels": levels.collect::<Vec<_>>(),
        });
        format!("{line}\n")
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
