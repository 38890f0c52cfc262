//! The results as tables for a terminal.

use crate::contenders::Role;
use crate::rounds::{Measured, Results};
use comfy_table::{CellAlignment, Table, presets};

/// One line per system, and the share of its time that each mode of tourbillon takes.
pub(crate) fn table(results: &Results) -> Table {
    let (ours, others): (Vec<_>, Vec<_>) =
        results.systems.iter().partition(|system| matches!(system.role, Role::Ours(_)));
    let rivals = others.iter().filter(|system| system.role == Role::Rival);
    let timed = rivals.filter_map(|system| Some((system.name, system.nanos()?)));
    let best = timed.min_by(|one, other| one.1.total_cmp(&other.1)).map(|(name, _)| name);
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    let ratios = ours.iter().map(|system| format!("{} / it", system.name));
    table.set_header(["system".into(), "CPU ns".into()].into_iter().chain(ratios));
    let show = |nanos: Option<f64>| nanos.map_or("-".into(), |nanos| format!("{nanos:.1}"));
    for system in &ours {
        table.add_row([system.name.to_owned(), show(system.nanos())]);
    }
    for system in others {
        let mark = if best == Some(system.name) { " (best rival)" } else { "" };
        let share = |ours: &&Measured| match (ours.nanos(), system.nanos()) {
            (Some(ours), Some(other)) => format!("{:.2}", ours / other),
            _ => String::new(),
        };
        let cells = [format!("{}{mark}", system.name), show(system.nanos())];
        table.add_row(cells.into_iter().chain(ours.iter().map(share)));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The table below its title.
pub(crate) fn text(results: &Results) -> String {
    format!("{}\n\n{}\n", results.workload.title(), table(results))
}
