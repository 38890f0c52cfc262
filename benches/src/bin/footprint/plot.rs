//! Distributions of lateness, as an SVG: how many of all timers were later than so much.

use hdrhistogram::Histogram;
use plotters::prelude::*;
use std::error::Error;
use std::path::Path;

/// Draws a line for each distribution, in microseconds.
pub(crate) fn draw(late: &[(&str, Histogram<u64>)], path: &Path) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(path, (800, 500)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption("a million due within a second, two threads churning", ("sans-serif", 18))
        .margin(16)
        .margin_right(40)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d((10.0..100_000.0).log_scale(), (1e-6..1.0).log_scale())?;
    let mut mesh = chart.configure_mesh();
    mesh.x_desc("µs late").x_label_formatter(&|late| format!("{late:.0}"));
    mesh.y_desc("share of timers later than that").draw()?;
    for (place, (name, histogram)) in late.iter().enumerate() {
        let all = histogram.len() as f64;
        let points = histogram.iter_recorded().map(|step| {
            let later = histogram.count_between(step.value_iterated_to() + 1, u64::MAX);
            (step.value_iterated_to().max(1) as f64, later as f64 / all)
        });
        let points: Vec<_> = points.filter(|&(_, share)| share > 0.0).collect();
        let style = Palette99::pick(place).stroke_width(2);
        let line = chart.draw_series(LineSeries::new(points, style))?.label(*name);
        line.legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    let mut legend = chart.configure_series_labels();
    legend.position(SeriesLabelPosition::LowerLeft).background_style(WHITE.mix(0.8)).draw()?;
    Ok(area.present()?)
}
