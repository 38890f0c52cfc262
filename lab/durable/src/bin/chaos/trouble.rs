//! The injection of faults, and their healing.

use crate::Failure;
use crate::crew::{Crew, Member};
use crate::line::State;
use crate::log::millis;
use crate::plan::{Fault, Kind, LEASE};
use crate::site::Site;
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};
use tokio::runtime::Handle;
use tourbillon_durable::{DurableError, DurableTimers};

/// The faults that were injected.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// The number of each kind.
    pub(crate) counts: BTreeMap<Kind, usize>,
    /// The times when no attempt could begin.
    pub(crate) paused: Vec<(u64, u64)>,
}

/// Injects one fault after the other.
pub(crate) fn make(
    faults: &[Fault],
    site: &Site,
    crew: &Crew,
    timers: &DurableTimers,
) -> Result<Made, Failure> {
    let mut made = Made::default();
    for fault in faults {
        sleep(fault.after);
        let begun = Instant::now();
        let Fault { kind, whom, .. } = fault;
        eprintln!("{kind:?} {whom} …");
        match crew.members.get(*whom).filter(|_| kind.is_of_worker()) {
            Some(member) => trouble_worker(*fault, member)?,
            None if *kind == Kind::PauseStore => made.paused.push(pause_store(*fault, timers)?),
            None => site.trouble(*fault),
        }
        eprintln!("{kind:?} {whom}: {:.1} s", begun.elapsed().as_secs_f64());
        *made.counts.entry(*kind).or_default() += 1;
    }
    Ok(made)
}

fn trouble_worker(fault: Fault, worker: &Member) -> Result<(), Failure> {
    match fault.kind {
        Kind::KillWorker => {
            worker.kill()?;
            sleep(fault.lasts);
            worker.start()?;
        }
        Kind::PauseWorker => {
            worker.pause(true)?;
            sleep(fault.lasts);
            worker.pause(false)?;
        }
        kind => {
            worker.set_line(if kind == Kind::CutWorker { State::Cut } else { State::Silent });
            sleep(fault.lasts);
            worker.set_line(State::Open);
        }
    }
    Ok(())
}

/// Pauses the store, however long that takes. Returns the period when no attempt could begin.
fn pause_store(fault: Fault, timers: &DurableTimers) -> Result<(u64, u64), Failure> {
    let insist = |pauses: bool| {
        loop {
            let call = async { if pauses { timers.pause().await } else { timers.resume().await } };
            match Handle::current().block_on(call) {
                Err(DurableError::Unreachable(_)) => sleep(Duration::from_millis(100)),
                done => break done,
            }
        }
    };
    insist(true)?;
    // An attempt may begin as long as a lease from before is valid.
    sleep(LEASE);
    let since = millis(SystemTime::now());
    sleep(fault.lasts);
    let until = millis(SystemTime::now());
    insist(false)?;
    Ok((since, until))
}
