//! The results as tables and as JSON.

use crate::rounds::{Median, Results};
use crate::systems::Role;
use crate::workload::Workload;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;

/// Tourbillon, in one of its modes, beside the others in one workload.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    workload: Workload,
    mode: &'static str,
    ours_ns: f64,
    best_peer: &'static str,
    best_peer_ns: f64,
    /// Ours over the best rival's: below 1, ours takes less.
    ratio: f64,
    /// What memory alone takes.
    floor_ns: f64,
    /// Every other system; `None`: it cannot do that.
    peers: BTreeMap<&'static str, Option<f64>>,
}

/// The two modes beside the best rival.
pub(crate) fn comparisons(results: &Results) -> Vec<Comparison> {
    let timed = |median: &Median| Some((median.role, median.name, median.nanos?));
    let rivals = results.medians.iter().filter_map(timed).filter(|one| one.0 == Role::Rival);
    let best = rivals.min_by(|one, other| one.2.total_cmp(&other.2));
    let (_, best_peer, best_peer_ns) = best.expect("tokio can do all");
    let floor = results.medians.iter().filter(|one| one.role == Role::Floor);
    let floor_ns = floor.filter_map(|floor| floor.nanos).next().expect("there is one for each");
    let others = results.medians.iter().filter(|one| !matches!(one.role, Role::Ours(_)));
    let peers: BTreeMap<_, _> = others.map(|other| (other.name, other.nanos)).collect();
    let compare = |(role, _, ours_ns)| {
        let Role::Ours(mode) = role else { return None };
        Some(Comparison {
            workload: results.workload,
            mode,
            ours_ns,
            best_peer,
            best_peer_ns,
            ratio: ours_ns / best_peer_ns,
            floor_ns,
            peers: peers.clone(),
        })
    };
    results.medians.iter().filter_map(timed).filter_map(compare).collect()
}

/// A line for each system; beside the others, what share of their time ours takes.
pub(crate) fn table(results: &Results) -> Table {
    let compared = comparisons(results);
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    let ratios = compared.iter().map(|ours| format!("{} / it", ours.mode));
    table.set_header(["system".into(), "CPU ns".into()].into_iter().chain(ratios));
    for median in &results.medians {
        let best = compared.iter().any(|ours| ours.best_peer == median.name);
        let name = if best { format!("{} (best rival)", median.name) } else { median.name.into() };
        let show = |nanos: Option<f64>| nanos.map_or("-".into(), |nanos| format!("{nanos:.1}"));
        let ratio = |ours: &Comparison| match (median.role, median.nanos) {
            (Role::Ours(_), _) | (_, None) => String::new(),
            (_, Some(nanos)) => format!("{:.2}", ours.ours_ns / nanos),
        };
        let ratios = compared.iter().map(ratio);
        table.add_row([name, show(median.nanos)].into_iter().chain(ratios));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The table with what stands above it.
pub(crate) fn text(results: &Results) -> String {
    format!("{}\n\n{}\n", results.workload.title(), table(results))
}

/// Puts the tables into a document, in the place of those that are there for so many callers.
///
/// # Errors
///
/// The document cannot be read or written, or has no place for them.
pub(crate) fn put(document: &Path, threads: u32, tables: &str) -> Result<(), Box<dyn Error>> {
    let (begin, end) = place(threads);
    let old = fs::read_to_string(document)?;
    let before = old.split_once(&begin).ok_or("no place begins")?.0;
    let after = old.split_once(&end).ok_or("no place ends")?.1;
    Ok(fs::write(document, format!("{before}{begin}\n{tables}\n{end}{after}"))?)
}

/// Between which lines the tables lie.
fn place(threads: u32) -> (String, String) {
    let whose = if threads == 1 { String::new() } else { format!(" of {threads} threads") };
    (format!("<!-- peers{whose} begins -->\n"), format!("<!-- peers{whose} ends -->\n"))
}
