//! One trial, which starts, loads and stops a server.

use crate::Failure;
use crate::child::Child;
use crate::measure::{Load, Outcome};
use crate::report::{Fired, Row};
use crate::servers::{Server, Workload};
use crate::{connections, flows, keys, quic};
use std::time::Duration;

/// The shortest idle timeout of QUIC connections, in all and for each. A client that is held up for
/// as long, as by the handshakes of all others, sends no pings.
const MIN_QUIC: (Duration, Duration) = (Duration::from_secs(2), Duration::from_millis(2));

/// Loads one server.
pub(crate) fn run(server: &Server, load: &Load) -> Result<Row, Failure> {
    let mut load = *load;
    match server.workload {
        Workload::Quic => {
            let (all, each) = MIN_QUIC;
            load.timeout = load.timeout.max(all + each * u32::try_from(load.quic)?);
        }
        Workload::Connections(protocol, _) => load.timeout = protocol.timeout(load.timeout),
        Workload::Flows | Workload::Keys => {}
    }
    let load = &load;
    let child = Child::start(server, load.timeout)?;
    let (size, outcome) = match server.workload {
        Workload::Connections(protocol, habit) => {
            (load.idle + load.busy, connections::load(child, protocol, habit, load)?)
        }
        Workload::Quic => (load.quic, quic::load(child, load)?),
        Workload::Flows => (load.timers as usize, flows::load(child, load)?),
        Workload::Keys => (load.timers as usize, keys::load(child, load)?),
    };
    let Outcome { answers, cpu, early, latest, lost, report } = outcome;
    let reported = |count: &str| report[count].as_u64().unwrap_or(0);
    let requests = answers.latencies.len() as f64;
    Ok(Row {
        server: server.name,
        timers: server.timers,
        size,
        requests_per_s: requests / load.window.as_secs_f64(),
        cpu_us_per_request: cpu.as_secs_f64() * 1e6 / requests.max(1.0),
        p99_ms: answers.latencies.value_at_quantile(0.99) as f64 / 1e6,
        early: early + answers.cut + reported("early"),
        late_max_ms: latest.as_secs_f64() * 1e3,
        lost: lost + reported("lost"),
        left: reported("left"),
        fired: Fired::parse(&report),
    })
}
