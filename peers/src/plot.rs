//! The cost of a workload by the number of armed timers, as an SVG.

use crate::rounds::{Results, Size, run};
use crate::systems::Role;
use crate::workload::Workload;
use plotters::prelude::*;
use std::error::Error;
use std::path::Path;

/// How many timers are armed, one measurement each.
const ARMED: [u32; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// Measures and draws.
///
/// # Errors
///
/// A measurement failed, or the file could not be written.
pub(crate) fn draw(workload: Workload, rounds: u32, path: &Path) -> Result<(), Box<dyn Error>> {
    let mut by_size = Vec::new();
    for armed in ARMED {
        by_size.extend(run(&[workload], Size { timers: armed, threads: 1 }, rounds)?);
    }
    let medians = by_size.iter().flat_map(|results| &results.medians);
    let nanos: Vec<_> = medians.filter_map(|median| median.nanos).collect();
    let fastest = nanos.iter().copied().fold(f64::INFINITY, f64::min);
    let slowest = nanos.into_iter().fold(0.0, f64::max);
    let area = SVGBackend::new(path, (900, 500)).into_drawing_area();
    area.fill(&WHITE)?;
    let (left, right) = area.split_horizontally(720);
    let (first, last) = (ARMED[0], ARMED[ARMED.len() - 1]);
    let mut chart = ChartBuilder::on(&left)
        .caption(workload.title(), ("sans-serif", 18))
        .margin(16)
        .margin_right(40)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(
            (first..last).log_scale(),
            (fastest * 0.8..slowest * 1.2).log_scale(),
        )?;
    let mut mesh = chart.configure_mesh();
    mesh.x_desc("timers").x_label_formatter(&|&armed| short(armed));
    mesh.y_desc("CPU ns an operation").y_label_formatter(&|nanos| format!("{nanos:.0}"));
    mesh.draw()?;
    let mut ends = Vec::new();
    for (place, system) in by_size[0].medians.iter().enumerate() {
        let width = if matches!(system.role, Role::Ours(_)) { 3 } else { 1 };
        let style = Palette99::pick(place).stroke_width(width);
        let points = ARMED.into_iter().zip(&by_size);
        let nanos =
            |(armed, results): (u32, &Results)| Some((armed, results.medians[place].nanos?));
        let points: Vec<_> = points.filter_map(nanos).collect();
        if let Some(&(_, end)) = points.last() {
            chart.draw_series(points.iter().map(|&point| mark(place, point, style)))?;
            chart.draw_series(LineSeries::new(points, style))?;
            ends.push((end, place, system.name, style));
        }
    }
    // In the order in which the curves end, beside them.
    ends.sort_by(|one, other| other.0.total_cmp(&one.0));
    for (y, (_, place, name, style)) in (60..).step_by(24).zip(ends) {
        right.draw(&PathElement::new([(0, y), (28, y)], style))?;
        right.draw(&mark(place, (14, y), style))?;
        right.draw(&Text::new(name, (36, y - 7), ("sans-serif", 14)))?;
    }
    Ok(area.present()?)
}

/// A number of timers on the axis.
fn short(armed: u32) -> String {
    match armed {
        1_000_000.. => format!("{} M", armed / 1_000_000),
        1_000.. => format!("{} k", armed / 1_000),
        _ => armed.to_string(),
    }
}

/// A mark, filled or hollow, so that curves that lie on each other are told apart.
fn mark<C>(place: usize, at: C, style: ShapeStyle) -> Circle<C, i32> {
    match place % 2 {
        0 => Circle::new(at, 4, style.filled()),
        _ => Circle::new(at, 4, style),
    }
}
