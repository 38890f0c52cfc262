//! One chart: curves over two logarithmic axes, with their names beside it and a caption below it.

use plotters::prelude::*;
use std::error::Error;

/// A curve.
pub(crate) struct Series {
    pub(crate) name: String,
    /// The place of its colour among all colours.
    pub(crate) place: usize,
    pub(crate) is_bold: bool,
    pub(crate) points: Vec<(f64, f64)>,
}

/// The name of an axis, and the text of a number on it.
pub(crate) type Axis = (&'static str, fn(f64) -> String);

/// A chart that can be drawn.
pub(crate) struct Chart {
    pub(crate) title: String,
    /// The machine and the commit of its numbers.
    pub(crate) caption: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

impl Chart {
    /// Returns `true` if there is anything to draw.
    pub(crate) fn has_points(&self) -> bool {
        self.series.iter().any(|series| !series.points.is_empty())
    }

    /// The chart as an SVG.
    ///
    /// # Errors
    ///
    /// Returns an error if the backend does.
    pub(crate) fn draw(&self) -> Result<String, Box<dyn Error>> {
        let mut svg = String::new();
        let area = SVGBackend::with_string(&mut svg, (900, 530)).into_drawing_area();
        area.fill(&WHITE)?;
        let (above, below) = area.split_vertically(500);
        let grey = ("sans-serif", 12).into_font().color(&BLACK.mix(0.6));
        below.draw(&Text::new(&*self.caption, (16, 8), grey))?;
        let (left, right) = above.split_horizontally(680);
        let points = || self.series.iter().flat_map(|series| &series.points);
        let (x, y) = (range(points().map(|point| point.0)), range(points().map(|point| point.1)));
        let mut chart = ChartBuilder::on(&left)
            .caption(&self.title, ("sans-serif", 18))
            .margin(16)
            .margin_right(40)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d((x.0..x.1).log_scale(), (y.0 * 0.8..y.1 * 1.2).log_scale())?;
        let mut mesh = chart.configure_mesh();
        let (x_label, y_label) = (|x: &f64| self.x.1(*x), |y: &f64| self.y.1(*y));
        mesh.max_light_lines(0).x_desc(self.x.0).x_label_formatter(&x_label);
        mesh.y_desc(self.y.0).y_label_formatter(&y_label);
        mesh.draw()?;
        let mut ends = Vec::new();
        for series in &self.series {
            let width = if series.is_bold { 3 } else { 1 };
            let style = Palette99::pick(series.place).stroke_width(width);
            if let Some(&(_, end)) = series.points.last() {
                // A dense curve needs no marks.
                let marked = series.points.iter().filter(|_| series.points.len() < 20);
                chart.draw_series(marked.map(|&point| mark(series.place, point, style)))?;
                chart.draw_series(LineSeries::new(series.points.iter().copied(), style))?;
                ends.push((end, series, style));
            }
        }
        // Beside the curves, in the order in which they end.
        ends.sort_by(|one, other| other.0.total_cmp(&one.0));
        for (y, (_, series, style)) in (60..).step_by(24).zip(ends) {
            right.draw(&PathElement::new([(0, y), (28, y)], style))?;
            right.draw(&mark(series.place, (14, y), style))?;
            right.draw(&Text::new(&*series.name, (36, y - 7), ("sans-serif", 14)))?;
        }
        area.present()?;
        drop((left, right, above, below, chart, area));
        Ok(svg)
    }
}

/// From the least to the greatest value; if they are equal, a little around them.
fn range(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let least = values.clone().fold(f64::INFINITY, f64::min);
    let greatest = values.fold(0.0, f64::max);
    if least < greatest { (least, greatest) } else { (least * 0.5, greatest * 2.0) }
}

/// A number on an axis.
pub(crate) fn short(number: f64) -> String {
    match number {
        1e6.. => format!("{} M", number / 1e6),
        1e3.. => format!("{} k", number / 1e3),
        0.01.. => number.to_string(),
        _ => format!("{number:.0e}"),
    }
}

/// A mark, filled or hollow, so that curves that lie on each other can be told apart.
fn mark<C>(place: usize, at: C, style: ShapeStyle) -> Circle<C, i32> {
    match place % 2 {
        0 => Circle::new(at, 4, style.filled()),
        _ => Circle::new(at, 4, style),
    }
}
