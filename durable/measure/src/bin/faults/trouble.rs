//! The injection of faults, each of which is healed again.

use crate::Failure;
use crate::crew::{Crew, Member};
use crate::line::State;
use crate::plan::{Fault, Kind};
use crate::servers::Cluster;
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Instant;

/// Injects one fault after the other, and counts each kind.
pub(crate) fn make(
    faults: &[Fault],
    cluster: &Cluster,
    crew: &Crew,
) -> Result<BTreeMap<Kind, usize>, Failure> {
    let mut made = BTreeMap::new();
    for fault in faults {
        sleep(fault.after);
        let begun = Instant::now();
        let Fault { kind, whom, .. } = fault;
        eprintln!("{kind:?} {whom} …");
        match crew.members.get(*whom).filter(|_| kind.is_of_worker()) {
            Some(member) => trouble_worker(*fault, member)?,
            None => trouble_redis(*fault, cluster),
        }
        eprintln!("{kind:?} {whom}: {:.1} s", begun.elapsed().as_secs_f64());
        *made.entry(*kind).or_default() += 1;
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

fn trouble_redis(fault: Fault, cluster: &Cluster) {
    let key = format!("{{tb:timers:{}}}", fault.whom);
    match fault.kind {
        Kind::RestartRedis => {
            let master = cluster.owner(&key);
            master.kill();
            sleep(fault.lasts);
            master.resume();
            cluster.settle();
        }
        Kind::MoveSlot => cluster.move_slot(&key),
        _ => cluster.fail_over(&key),
    }
}
