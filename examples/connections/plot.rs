//! The plot of lateness and of operations per second.

use crate::server::{Outcome, Sample};
use plotters::prelude::*;
use std::error::Error;
use std::path::Path;

/// One line of the second chart, as its name and its rate in a sample.
type Line = (&'static str, fn(&Sample) -> f64);

/// Draws both charts into one SVG file.
pub(crate) fn draw(path: &Path, outcome: &Outcome) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(path, (900, 800)).into_drawing_area();
    area.fill(&WHITE)?;
    let (above, below) = area.split_vertically(400);
    lateness(&above, outcome)?;
    rates(&below, outcome)?;
    area.present()?;
    Ok(())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn lateness(area: &Area<'_>, outcome: &Outcome) -> Result<(), Box<dyn Error>> {
    let points: Vec<(f64, f64)> = outcome
        .lateness
        .iter_quantiles(4)
        .map(|step| (step.value_iterated_to() as f64 / 1e6, step.quantile() * 100.0))
        .collect();
    let longest = points.last().map_or(1.0, |&(late, _)| late.max(1e-3)) * 1.1;
    let mut chart = ChartBuilder::on(area)
        .caption("Lateness of fired timers", ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d((1e-3..longest).log_scale(), 0.0..100.0)?;
    chart.configure_mesh().x_desc("late by, ms").y_desc("% of timers").draw()?;
    chart.draw_series(LineSeries::new(points, BLUE.stroke_width(2)))?;
    Ok(())
}

fn rates(area: &Area<'_>, outcome: &Outcome) -> Result<(), Box<dyn Error>> {
    let lines: [Line; 4] = [
        ("reset", |sample| sample.resets),
        ("insert", |sample| sample.inserts),
        ("cancel", |sample| sample.cancels),
        ("fire", |sample| sample.fires),
    ];
    let samples = &outcome.rates;
    let end = samples.last().map_or(1.0, |sample| sample.at);
    let rates = samples.iter().flat_map(|sample| lines.map(|(_, rate)| rate(sample)));
    // Room for the names above the curves.
    let highest = rates.fold(1.0, f64::max) / 1e6 * 1.5;
    let mut chart = ChartBuilder::on(area)
        .caption("Operations a second", ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..end, 0.0..highest)?;
    chart.configure_mesh().x_desc("s").y_desc("millions a second").draw()?;
    for (number, (name, rate)) in lines.into_iter().enumerate() {
        let colour = Palette99::pick(number).stroke_width(2);
        let points = samples.iter().map(|sample| (sample.at, rate(sample) / 1e6));
        chart
            .draw_series(LineSeries::new(points, colour))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
    }
    let mut legend = chart.configure_series_labels();
    legend.position(SeriesLabelPosition::UpperRight).background_style(WHITE).draw()?;
    Ok(())
}
