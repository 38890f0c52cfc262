//! The results as tables for a terminal.

use crate::contenders::Role;
use crate::rounds::{Measured, Results, median};
use comfy_table::{CellAlignment, Table, presets};
use sysinfo::{CpuRefreshKind, RefreshKind, System};

/// The processor and the number of its cores.
pub(crate) fn machine() -> String {
    let kinds = RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing());
    let system = System::new_with_specifics(kinds);
    let brand = system.cpus().first().map_or("unknown processor", |cpu| cpu.brand());
    format!("{brand}, {} cores", system.cpus().len())
}

/// One line per system, and the share of its CPU time that each mode of tourbillon takes. A time is
/// the median over the rounds, with half of the difference between the slowest and the fastest.
pub(crate) fn table(results: &Results) -> Table {
    let (ours, others): (Vec<_>, Vec<_>) =
        results.systems.iter().partition(|system| matches!(system.role, Role::Ours(_)));
    let rivals = others.iter().filter(|system| system.role == Role::Rival);
    let timed = rivals.filter_map(|system| Some((system.name, system.nanos()?)));
    let best = timed.min_by(|one, other| one.1.total_cmp(&other.1)).map(|(name, _)| name);
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    let ratios = ours.iter().map(|system| format!("{} / it", system.name));
    table.set_header(["system", "CPU ns", "wall ns"].map(String::from).into_iter().chain(ratios));
    let times = |system: &Measured| [spread(&system.cpu_ns), spread(&system.wall_ns())];
    for system in &ours {
        table.add_row([system.name.to_owned()].into_iter().chain(times(system)));
    }
    for system in others {
        let mark = if best == Some(system.name) { " (best rival)" } else { "" };
        let share = |ours: &&Measured| match (ours.nanos(), system.nanos()) {
            (Some(ours), Some(other)) => format!("{:.2}", ours / other),
            _ => String::new(),
        };
        let cells = [format!("{}{mark}", system.name)].into_iter().chain(times(system));
        table.add_row(cells.chain(ours.iter().map(share)));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The median of the rounds, and half of their range as a share of it.
fn spread(rounds: &[f64]) -> String {
    let (least, most) =
        rounds.iter().fold((f64::MAX, f64::MIN), |(low, high), &of| (low.min(of), high.max(of)));
    median(rounds.to_vec())
        .map_or("-".into(), |median| format!("{median:.1} ±{:.0}%", 50.0 * (most - least) / median))
}

/// The table below its title.
pub(crate) fn text(results: &Results) -> String {
    format!("{}\n\n{}\n", results.workload.title(), table(results))
}
