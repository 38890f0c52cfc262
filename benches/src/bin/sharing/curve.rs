//! Throughput by cores, as it follows from what was counted.
//!
//! An operation takes what it takes alone (`ci/measure peers`), and [`TRANSFER`] for each line
//! that it has to fetch or to take away. A line can be in one place at a time, so nothing goes
//! faster than the line that moves most. Operations under one lock follow each other as a whole.

use super::replay::{Whose, Workload};
use super::report::Row;
use plotters::prelude::*;
use serde_json::Value;
use std::error::Error;
use std::path::Path;

/// Nanoseconds for a line to go from one core to another: the median of an Intel Xeon Platinum
/// 8375C of 32 cores (<https://github.com/nviennot/core-to-core-latency>; other servers there are
/// between 44 and 115).
const TRANSFER: f64 = 51.0;

/// Millions of operations a second of a row.
fn throughput(row: &Row, alone: f64) -> f64 {
    let each = alone + TRANSFER * row.transfers();
    let nanos = match row.system {
        "heap" => each,
        _ => (each / row.threads as f64).max(TRANSFER * row.hottest()),
    };
    1e3 / nanos
}

/// What an operation takes alone, in nanoseconds.
fn alone(times: &Value, system: &str, workload: Workload) -> Option<f64> {
    let all = times.as_array()?;
    let mut found = all.iter();
    let one = found.find(|one| one["workload"] == workload.name() && one["mode"] == "plain")?;
    if system == "heap" { one["peers"]["heap"].as_f64() } else { one["ours_ns"].as_f64() }
}

/// Draws cancel and insert, and reset to later, of the wheel and of a heap in a lock.
pub(crate) fn draw(rows: &[Row], times: &Value, path: &Path) -> Result<(), Box<dyn Error>> {
    let kinds = [
        ("tourbillon", Whose::Own, "tourbillon, own timers"),
        ("tourbillon", Whose::Others, "tourbillon, another's"),
        ("heap", Whose::Own, "a heap in a lock"),
    ];
    let area = SVGBackend::new(path, (900, 500)).into_drawing_area();
    area.fill(&WHITE)?;
    let (left, right) = area.split_horizontally(620);
    let mut chart = ChartBuilder::on(&left)
        .caption("operations by cores, from the lines that move", ("sans-serif", 18))
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d((1.0..64.0).log_scale(), (1.0..1000.0).log_scale())?;
    let mut mesh = chart.configure_mesh();
    mesh.x_desc("cores").x_label_formatter(&|cores| format!("{cores:.0}"));
    mesh.y_desc("million operations a second").y_label_formatter(&|rate| format!("{rate:.0}"));
    mesh.draw()?;
    let mut place = 0;
    for workload in [Workload::CancelInsert, Workload::ResetLater] {
        for (system, whose, name) in kinds {
            let alone = alone(times, system, workload).ok_or("the times lack an operation")?;
            let row =
                |row: &&Row| row.system == system && row.whose == whose && row.workload == workload;
            let counted = rows.iter().filter(row);
            let points = counted.map(|row| (row.threads as f64, throughput(row, alone)));
            let points: Vec<_> = std::iter::once((1.0, 1e3 / alone)).chain(points).collect();
            let style = Palette99::pick(place).stroke_width(2);
            let mark = |at| match place % 2 {
                0 => Circle::new(at, 4, style.filled()),
                _ => Circle::new(at, 4, style),
            };
            chart.draw_series(points.iter().map(|&point| mark(point)))?;
            chart.draw_series(LineSeries::new(points, style))?;
            let y = 60 + 24 * i32::try_from(place)?;
            right.draw(&PathElement::new([(0, y), (28, y)], style))?;
            let label = format!("{}: {name}", workload.name());
            right.draw(&Text::new(label, (36, y - 7), ("sans-serif", 14)))?;
            place += 1;
        }
    }
    Ok(area.present()?)
}
