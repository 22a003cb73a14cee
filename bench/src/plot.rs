//! The tables as pictures.

use std::fs;
use std::path::Path;

use anyhow::Result;
use plotters::prelude::*;

use crate::results::Tabulated;

const COLOURS: [RGBColor; 8] = [
    RGBColor(31, 119, 180),
    RGBColor(255, 127, 14),
    RGBColor(44, 160, 44),
    RGBColor(214, 39, 40),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(227, 119, 194),
    RGBColor(127, 127, 127),
];

/// Draws a table into `<title>.svg`: a curve for each contestant if the cases follow each other in time, otherwise bars.
pub(crate) fn draw(table: &Tabulated, directory: &Path) -> Result<()> {
    fs::create_dir_all(directory)?;
    let name: String = table.title.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
    let name = name.split('-').filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-");
    let picture = if table.cases.len() > 6 { curves(table)? } else { bars(table)? };
    fs::write(directory.join(name).with_extension("svg"), picture)?;
    Ok(())
}

fn curves(table: &Tabulated) -> Result<String> {
    let values = table.lines.iter().flat_map(|line| line.cells.iter().flatten().map(|(value, _)| *value));
    let most = values.fold(1.0, f64::max) * 1.1;
    let mut picture = String::new();
    {
        let area = SVGBackend::with_string(&mut picture, (1000, 460)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(&table.title, ("sans-serif", 18))
            .margin(12)
            .margin_right(40)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d(0..table.cases.len().saturating_sub(1), 0.0..most)?;
        let case = |case: &usize| table.cases.get(*case).cloned().unwrap_or_default();
        chart.configure_mesh().light_line_style(WHITE).x_labels(table.cases.len()).x_label_formatter(&case).draw()?;
        for (line, colour) in table.lines.iter().zip(COLOURS.into_iter().cycle()) {
            let points = line.cells.iter().enumerate().filter_map(|(case, cell)| Some((case, cell.as_ref()?.0)));
            chart
                .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
                .label(&line.contestant)
                .legend(move |(x, y)| Rectangle::new([(x, y - 3), (x + 16, y + 3)], colour.filled()));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        area.present()?;
    }
    Ok(picture)
}

/// Horizontal bars: a block for each contestant, and a bar for each case with its number and its ratio to the reference. The
/// reference has a block too.
fn bars(table: &Tabulated) -> Result<String> {
    const BAR: i32 = 14;
    const LEFT: i32 = 190;
    const WIDTH: i32 = 1000;
    let cases = i32::try_from(table.cases.len())?;
    let block = cases * BAR + 10;
    let height = 90 + block * i32::try_from(table.lines.len())?;
    let values = table.lines.iter().flat_map(|line| line.cells.iter().flatten().map(|(value, _)| *value));
    let most = values.fold(f64::MIN_POSITIVE, f64::max);
    let mut picture = String::new();
    {
        let area = SVGBackend::with_string(&mut picture, (WIDTH as u32, u32::try_from(height)?)).into_drawing_area();
        area.fill(&WHITE)?;
        let text = ("sans-serif", 13).into_font();
        area.draw(&Text::new(table.title.clone(), (12, 12), ("sans-serif", 18).into_font()))?;
        for (case, (name, colour)) in (0..).zip(table.cases.iter().zip(COLOURS)) {
            let x = LEFT + case * 200;
            area.draw(&Rectangle::new([(x, 44), (x + 12, 56)], colour.filled()))?;
            area.draw(&Text::new(name.clone(), (x + 18, 44), text.clone()))?;
        }
        for (line, y) in table.lines.iter().zip((75..).step_by(usize::try_from(block)?)) {
            area.draw(&Text::new(line.contestant.clone(), (12, y), text.clone()))?;
            for ((cell, colour), y) in line.cells.iter().zip(COLOURS).zip((y..).step_by(BAR as usize)) {
                let Some((value, ratio)) = cell else { continue };
                let end = LEFT + (value / most * f64::from(WIDTH - LEFT - 160)) as i32;
                area.draw(&Rectangle::new([(LEFT, y), (end, y + BAR - 3)], colour.filled()))?;
                let ratio = ratio.map_or_else(String::new, |ratio| format!("  x {ratio:.2}"));
                let number = format!("{}{ratio}", crate::results::legible(*value));
                area.draw(&Text::new(number, (end + 6, y), ("sans-serif", 11).into_font()))?;
            }
        }
        area.present()?;
    }
    Ok(picture)
}
