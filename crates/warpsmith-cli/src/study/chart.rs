//! Speed-ups as bars: for every value of a proposal one for each ground, beside what was promised.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::proposals::KEEP;
use crate::shared::chart::{COLOURS, Failure, GRID, INK, key, letters, svg};
use crate::shared::page::Figure;

/// A group of bars.
pub struct Group {
    pub name: String,
    /// One for each series; none where there is nothing to show.
    pub bars: Vec<Option<f64>>,
}

/// In pixels, from one bar to the next, of the bar itself, of a group's name above its bars, between groups.
const PITCH: f64 = 20.0;
const THICK: f64 = 16.0;
const NAME: f64 = 22.0;
const GAP: f64 = 10.0;
/// Half of a label is beyond its axis' end; below are the axis' labels and name.
const MARGIN: u32 = 20;
const LABELS: u32 = 44;
const PROMISED: f64 = 0.18;

/// Bars lie, so that names of any length stand above them. The promised speed-ups, from and to, are a band behind them.
pub fn bars(series: &[&str], groups: &[Group], promised: Option<(f64, f64)>, caption: &str) -> Result<Figure, Failure> {
    let tallest = groups.iter().flat_map(|group| &group.bars).flatten().copied().fold(KEEP, f64::max);
    // With room for the numbers.
    let most = 1.12 * promised.map_or(tallest, |(_, high)| high.max(tallest));
    let of_group = NAME + PITCH * series.len() as f64 + GAP;
    let height = of_group * groups.len() as f64;
    let colours = || series.iter().zip(COLOURS.iter().cycle());

    let mut legend: Vec<_> = colours().map(|(name, colour)| key('■', *colour, 1.0, name)).collect();
    legend.extend(promised.map(|_| key('■', INK, PROMISED, "promised")));
    legend.push(key('│', INK, 1.0, "1×: neither faster nor slower"));
    let svg = svg(height as u32 + LABELS, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(MARGIN)
            .margin_top(0)
            .margin_bottom(0)
            .x_label_area_size(LABELS)
            .build_cartesian_2d(0.0..most, 0.0..height)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .y_labels(0)
            .x_labels(8)
            .x_desc("speed-up")
            .label_style(letters(HPos::Left, VPos::Top))
            .axis_style(INK)
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .draw()?;
        if let Some((low, high)) = promised {
            chart.draw_series([Rectangle::new([(low, 0.0), (high, height)], INK.mix(PROMISED).filled())])?;
        }
        chart.draw_series(LineSeries::new([(1.0, 0.0), (1.0, height)], INK))?;
        for (index, group) in groups.iter().enumerate() {
            let top = height - of_group * index as f64;
            let at = |x: f64, below: f64| chart.backend_coord(&(x, top - below));
            area.draw(&Text::new(group.name.clone(), at(0.0, NAME - 4.0), letters(HPos::Left, VPos::Bottom)))?;
            for (place, (bar, (_, colour))) in group.bars.iter().zip(colours()).enumerate() {
                let below = NAME + PITCH * place as f64;
                let end = bar.unwrap_or_default();
                if bar.is_some() {
                    area.draw(&Rectangle::new([at(0.0, below), at(end, below + THICK)], colour.filled()))?;
                }
                let (x, y) = at(end, below + THICK / 2.0);
                let number = bar.map_or("–".to_owned(), |value| format!("{value:.2}×"));
                area.draw(&Text::new(number, (x + 5, y), letters(HPos::Left, VPos::Center)))?;
            }
        }
        Ok(())
    })?;
    Ok(Figure { legend, svg, caption: caption.to_owned() })
}
