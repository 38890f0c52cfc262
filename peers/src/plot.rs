//! The cost of a workload by the number of armed timers, as an SVG.

use crate::rounds::{Results, run};
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
        by_size.extend(run(&[workload], armed, rounds)?);
    }
    let slowest = by_size.iter().flat_map(|results| &results.medians);
    let slowest = slowest.filter_map(|median| median.nanos).fold(0.0, f64::max);
    let area = SVGBackend::new(path, (800, 500)).into_drawing_area();
    area.fill(&WHITE)?;
    let (first, last) = (ARMED[0], ARMED[ARMED.len() - 1]);
    let mut chart = ChartBuilder::on(&area)
        .caption(workload.title(), ("sans-serif", 18))
        .margin(16)
        .margin_right(40)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d((first..last).log_scale(), (20.0..slowest * 1.2).log_scale())?;
    chart.configure_mesh().x_desc("timers").y_desc("CPU ns an operation").draw()?;
    for (place, system) in by_size[0].medians.iter().enumerate() {
        let width = if matches!(system.role, Role::Ours(_)) { 3 } else { 1 };
        let style = Palette99::pick(place).stroke_width(width);
        let points = ARMED.into_iter().zip(&by_size);
        let nanos =
            |(armed, results): (u32, &Results)| Some((armed, results.medians[place].nanos?));
        let points: Vec<_> = points.filter_map(nanos).collect();
        if !points.is_empty() {
            let line = chart.draw_series(LineSeries::new(points, style))?.label(system.name);
            line.legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .draw()?;
    Ok(area.present()?)
}
