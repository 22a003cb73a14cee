//! Curves over a run's time, as a table and as a picture.

use std::fmt::Write;
use std::fs;
use std::iter::once;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use plotters::prelude::*;

/// The lower end of the scale of latencies, in milliseconds.
const SHORTEST: f64 = 0.1;

/// Throughput and latency, second by second.
pub(crate) struct Curve {
    pub(crate) title: String,
    pub(crate) points: Vec<Point>,
    /// A marked time in seconds, and its label.
    pub(crate) marked: (Range<f64>, &'static str),
}

/// What happened in one second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    /// When the second began.
    pub(crate) second: f64,
    pub(crate) rows: f64,
    /// The p99 of a claim.
    pub(crate) claim_ms: f64,
    /// The p99 of the time from a row's insert to its booking.
    pub(crate) booked_ms: f64,
}

impl Curve {
    /// Writes `name.csv` and `name.svg` into the directory.
    pub(crate) fn write(&self, directory: &Path, name: &str) -> Result<PathBuf> {
        fs::create_dir_all(directory)?;
        let mut table = "second,rows_per_second,claim_p99_ms,booked_p99_ms\n".to_owned();
        for Point { second, rows, claim_ms, booked_ms } in &self.points {
            writeln!(table, "{second},{rows},{claim_ms},{booked_ms}")?;
        }
        fs::write(directory.join(name).with_extension("csv"), table)?;
        let picture = directory.join(name).with_extension("svg");
        fs::write(&picture, self.draw().context("the curve cannot be drawn")?)?;
        Ok(picture)
    }

    fn draw(&self) -> Result<String> {
        let highest = |of: fn(&Point) -> f64| self.points.iter().map(of).fold(0.0, f64::max);
        let seconds = 0.0..self.points.last().map_or(1.0, |point| point.second + 1.0);
        let (most_rows, longest) =
            (highest(|point| point.rows).max(1.0) * 1.15, highest(|point| point.booked_ms).max(10.0));
        let mut picture = String::new();
        {
            let area = SVGBackend::with_string(&mut picture, (1000, 460)).into_drawing_area();
            area.fill(&WHITE)?;
            let mut chart = ChartBuilder::on(&area)
                .caption(&self.title, ("sans-serif", 18))
                .margin(12)
                .x_label_area_size(40)
                .y_label_area_size(60)
                .right_y_label_area_size(60)
                .build_cartesian_2d(seconds.clone(), 0.0..most_rows)?
                // The latency may grow by orders of magnitude.
                .set_secondary_coord(seconds, (SHORTEST..longest * 3.0).log_scale());
            chart.configure_mesh().x_desc("seconds").y_desc("rows per second").light_line_style(WHITE).draw()?;
            chart.configure_secondary_axes().y_desc("p99 in ms").draw()?;
            let (marked, what) = &self.marked;
            let band = Rectangle::new([(marked.start, 0.0), (marked.end, most_rows)], BLACK.mix(0.08).filled());
            chart.draw_series(once(band))?.label(*what).legend(|(x, y)| legend(x, y, BLACK.mix(0.2).filled()));
            let rows = self.points.iter().map(|point| (point.second, point.rows));
            chart
                .draw_series(LineSeries::new(rows, &BLUE))?
                .label("rows per second")
                .legend(|(x, y)| legend(x, y, BLUE.filled()));
            type Latency = (&'static str, RGBColor, fn(&Point) -> f64);
            let latencies: [Latency; 2] = [
                ("p99 of a claim", RED, |point| point.claim_ms),
                ("p99 from enqueued to booked", RGBColor(150, 150, 150), |point| point.booked_ms),
            ];
            for (label, colour, of) in latencies {
                let line = self.points.iter().map(|point| (point.second, of(point).max(SHORTEST)));
                chart
                    .draw_secondary_series(LineSeries::new(line, &colour))?
                    .label(label)
                    .legend(move |(x, y)| legend(x, y, colour.filled()));
            }
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .background_style(WHITE.mix(0.8))
                .border_style(BLACK.mix(0.3))
                .draw()?;
            area.present()?;
        }
        Ok(picture)
    }
}

fn legend(x: i32, y: i32, style: ShapeStyle) -> Rectangle<(i32, i32)> {
    Rectangle::new([(x, y - 3), (x + 16, y + 3)], style)
}
