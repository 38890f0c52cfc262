//! One trial, in which a server is started, loaded and stopped.

use crate::Failure;
use crate::busy::{Answers, Crew};
use crate::child::Child;
use crate::client::Target;
use crate::crowd::Crowd;
use crate::report::Row;
use crate::servers::Server;
use std::sync::{Barrier, mpsc};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

/// The number of threads of the busy clients.
const CREWS: usize = 2;

/// The load of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// The number of idle connections.
    pub(crate) idle: usize,
    /// The number of busy connections.
    pub(crate) busy: usize,
    /// The duration of the load.
    pub(crate) window: Duration,
    /// The idle timeout.
    pub(crate) timeout: Duration,
}

/// Loads one server.
pub(crate) fn run(server: &Server, load: &Load) -> Result<Row, Failure> {
    let child = Child::start(server, load.timeout)?;
    let target = Target { address: child.address(), protocol: server.protocol };
    let crowd = Crowd::new(target, load.idle, load.timeout)?;
    let (opened, all_open) = mpsc::channel();
    let (closings, answers, cpu) = thread::scope(|scope| {
        let crowd = scope.spawn(move || crowd.run(&opened));
        // It fails if the crowd has failed, and then joining the crowd returns the cause.
        let busy = all_open.recv().map(|()| keep_busy(&child, target, load));
        let closings = joined(crowd)?;
        let (answers, cpu) = busy.unwrap_or_else(|error| Err(error.into()))?;
        Ok::<_, Failure>((closings, answers, cpu))
    })?;
    let report = child.stop()?;
    let requests = answers.latencies.len() as f64;
    Ok(Row {
        server: server.program,
        timers: server.timers,
        connections: load.idle + load.busy,
        requests_per_s: requests / load.window.as_secs_f64(),
        cpu_us_per_request: cpu.as_secs_f64() * 1e6 / requests.max(1.0),
        p99_ms: answers.latencies.value_at_quantile(0.99) as f64 / 1e6,
        early: closings.early + answers.cut,
        late_max_ms: closings.latest.as_secs_f64() * 1e3,
        lost: closings.lost,
        left: report["left"].as_u64().unwrap_or(0),
    })
}

/// Runs the busy clients, and returns their results with the CPU time that the server used
/// meanwhile.
fn keep_busy(child: &Child, target: Target, load: &Load) -> Result<(Answers, Duration), Failure> {
    let crews = CREWS.min(load.busy);
    let crews: Vec<_> = (0..crews)
        .map(|crew| {
            let first = |crew| load.idle + load.busy * crew / crews;
            Crew::connect(target, first(crew)..first(crew + 1))
        })
        .collect::<Result<_, _>>()?;
    let ready = Barrier::new(crews.len() + 1);
    thread::scope(|scope| {
        let ready = &ready;
        let start = |crew: Crew| {
            scope.spawn(move || {
                ready.wait();
                crew.run(load.window)
            })
        };
        let crews: Vec<_> = crews.into_iter().map(start).collect();
        let before = child.cpu();
        ready.wait();
        thread::sleep(load.window);
        let cpu = child.cpu()?.saturating_sub(before?);
        let mut answers = Answers::none()?;
        for crew in crews {
            answers.add(&joined(crew)?)?;
        }
        Ok((answers, cpu))
    })
}

fn joined<T>(thread: ScopedJoinHandle<'_, Result<T, Failure>>) -> Result<T, Failure> {
    thread.join().map_err(|_| "a client thread panicked")?
}
