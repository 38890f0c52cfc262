//! Runs every system in turn, round after round, and keeps what each round gave.

use crate::contenders::{self, Role, Timer};
use crate::measure::Taken;
use crate::workload::Workload;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::error::Error;
use std::process::{Command, Stdio};

/// The size of a measurement and the number of its rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The number of armed timers.
    pub(crate) timers: u32,
    /// The number of calling threads, which share the timers.
    pub(crate) threads: u32,
    /// The number of rounds.
    pub(crate) rounds: u32,
    /// The place of the system that the first round begins with.
    pub(crate) turn: u32,
}

/// The results of all systems in one workload.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) workload: Workload,
    pub(crate) timers: u32,
    pub(crate) threads: u32,
    pub(crate) systems: Vec<Measured>,
}

/// The rounds of one system.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    /// CPU time per operation in nanoseconds, for each round. Empty if the system does not support
    /// the workload.
    pub(crate) cpu_ns: Vec<f64>,
    /// Operations per second of all callers together, for each round. Empty for timers that fire,
    /// because their deadlines set the pace.
    pub(crate) per_second: Vec<f64>,
}

impl Measured {
    /// The median CPU time per operation in nanoseconds.
    pub(crate) fn nanos(&self) -> Option<f64> {
        median(self.cpu_ns.clone())
    }

    /// The wall time per operation of all callers together in nanoseconds, for each round.
    pub(crate) fn wall_ns(&self) -> Vec<f64> {
        self.per_second.iter().map(|per_second| 1e9 / per_second).collect()
    }
}

/// The systems with these names; all of them if no name is given.
///
/// # Errors
///
/// Returns an error if a name is unknown.
pub(crate) fn chosen(names: &[String]) -> Result<Vec<Timer>, Box<dyn Error>> {
    let all = contenders::all();
    let unknown = names.iter().find(|name| all.iter().all(|system| system.name != **name));
    if let Some(name) = unknown {
        let known: Vec<_> = all.iter().map(|system| system.name).collect();
        return Err(format!("unknown system {name:?}; known are {}", known.join(", ")).into());
    }
    let is_chosen = |system: &Timer| names.is_empty() || names.iter().any(|n| n == system.name);
    Ok(all.into_iter().filter(is_chosen).collect())
}

/// Measures these systems in these workloads.
///
/// # Errors
///
/// Returns an error if a measurement failed.
pub(crate) fn run(
    workloads: &[Workload],
    systems: &[Timer],
    plan: Plan,
) -> Result<Vec<Results>, Box<dyn Error>> {
    let Plan { timers, threads, rounds, turn } = plan;
    let empty = |system: &Timer| Measured {
        name: system.name,
        role: system.role,
        cpu_ns: Vec::new(),
        per_second: Vec::new(),
    };
    let mut results: Vec<_> = workloads
        .iter()
        .map(|&workload| {
            let systems = systems.iter().map(empty).collect();
            Results { workload, timers, threads, systems }
        })
        .collect();
    let bar = ProgressBar::new(u64::from(rounds) * (workloads.len() * systems.len()) as u64);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} {eta} {msg}")?);
    for round in turn as usize..(turn + rounds) as usize {
        for results in &mut results {
            for place in (0..systems.len()).map(|place| (place + round) % systems.len()) {
                let (system, workload) = (&systems[place], results.workload);
                bar.set_message(format!("{} {}", workload.name(), system.name));
                if (system.can)(workload) {
                    let taken = measure(system, workload, plan)?;
                    results.systems[place].cpu_ns.push(taken.cpu_ns);
                    results.systems[place].per_second.extend(taken.per_second);
                }
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    Ok(results)
}

/// One measurement, in a process of its own.
fn measure(system: &Timer, workload: Workload, plan: Plan) -> Result<Taken, Box<dyn Error>> {
    let callers = plan.threads.to_string();
    let what = ["--only", workload.name(), "--threads", &callers];
    Ok(serde_json::from_str(&apart(system, &what, plan.timers)?)?)
}

/// The output of this program for one system, run by itself with these arguments.
///
/// # Errors
///
/// Returns an error if it failed.
pub(crate) fn apart(system: &Timer, what: &[&str], timers: u32) -> Result<String, Box<dyn Error>> {
    let output = Command::new(std::env::current_exe()?)
        .args(["--system", system.name, "--timers", &timers.to_string()])
        .args(what)
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("{} failed at {what:?}", system.name).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The median, or `None` if there are no values.
pub(crate) fn median(mut taken: Vec<f64>) -> Option<f64> {
    taken.sort_by(f64::total_cmp);
    let (low, high) = (taken.get(taken.len().wrapping_sub(1) / 2)?, taken.get(taken.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}
