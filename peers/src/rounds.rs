//! Runs every system in turn, round after round, and takes the medians.

use crate::systems::{self, Role, Timer};
use crate::workload::Workload;
use indicatif::{ProgressBar, ProgressStyle};
use std::error::Error;
use std::process::{Command, Stdio};

/// How many timers are armed, and by how many callers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) timers: u32,
    pub(crate) threads: u32,
}

/// What the systems took for one workload.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) workload: Workload,
    pub(crate) medians: Vec<Median>,
}

/// The median of a system's rounds.
#[derive(Debug)]
pub(crate) struct Median {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    /// `None`: the system cannot do it.
    pub(crate) nanos: Option<f64>,
}

/// The medians over `rounds` rounds.
///
/// # Errors
///
/// A measurement failed.
pub(crate) fn run(
    workloads: &[Workload],
    size: Size,
    rounds: u32,
) -> Result<Vec<Results>, Box<dyn Error>> {
    let systems = systems::all();
    let mut taken = vec![vec![Vec::new(); systems.len()]; workloads.len()];
    let bar = ProgressBar::new(u64::from(rounds) * (workloads.len() * systems.len()) as u64);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} {eta} {msg}")?);
    for round in 0..rounds as usize {
        for (&workload, taken) in workloads.iter().zip(&mut taken) {
            for turn in 0..systems.len() {
                let which = (turn + round) % systems.len();
                bar.set_message(format!("{} {}", workload.name(), systems[which].name));
                if (systems[which].can)(workload) {
                    taken[which].push(measure(&systems[which], workload, size)?);
                }
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    let results = workloads.iter().zip(taken).map(|(&workload, taken)| {
        let medians = systems.iter().zip(taken).map(|(system, taken)| Median {
            name: system.name,
            role: system.role,
            nanos: median(taken),
        });
        Results { workload, medians: medians.collect() }
    });
    Ok(results.collect())
}

/// One measurement, in a process of its own.
fn measure(system: &Timer, workload: Workload, size: Size) -> Result<f64, Box<dyn Error>> {
    let callers = size.threads.to_string();
    let what = ["--only", workload.name(), "--threads", &callers];
    Ok(apart(system, &what, size.timers)?.trim().parse()?)
}

/// What this program prints for one system, run by itself with these arguments.
///
/// # Errors
///
/// It failed.
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

/// The median; `None` of nothing.
pub(crate) fn median(mut taken: Vec<f64>) -> Option<f64> {
    taken.sort_by(f64::total_cmp);
    let (low, high) = (taken.get(taken.len().wrapping_sub(1) / 2)?, taken.get(taken.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}
