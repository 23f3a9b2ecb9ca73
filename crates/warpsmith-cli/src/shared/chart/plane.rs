//! Points and lines over two logarithmic axes.

use std::ops::Range;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::{COLOURS, Failure, GRID, INK, key, letters, svg};
use crate::shared::page::Figure;

const HEIGHT: u32 = 380;
/// On an axis at most.
const TICKS: usize = 7;
const OPACITY: f64 = 0.75;
/// Once every colour was used, the next shape.
const SHAPES: [char; 4] = ['●', '○', '▲', '×'];

/// An axis and what it spans.
pub struct Axis {
    pub name: &'static str,
    pub range: Range<f64>,
}

/// What has one entry in the legend.
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// A chart of one line and of points.
///
/// # Errors
/// The plotting library's.
pub fn figure(x: Axis, y: Axis, line: Series, dots: &[Series], caption: &str) -> Result<Figure, Failure> {
    let shaped = || {
        let shapes = SHAPES.iter().flat_map(|shape| COLOURS.iter().map(move |colour| (*shape, *colour)));
        dots.iter().zip(shapes.cycle())
    };
    let mut legend = vec![key('━', INK, 1.0, &line.name)];
    legend.extend(shaped().map(|(series, (shape, colour))| key(shape, colour, 1.0, &series.name)));
    let svg = svg(HEIGHT, |area| {
        let ticked = |range: Range<f64>| {
            let ticks = ticks(&range);
            range.log_scale().with_key_points(ticks)
        };
        let label = |value: &f64| ((value * 1e6).round() / 1e6).to_string();
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_right(24)
            .x_label_area_size(48)
            .y_label_area_size(64)
            .build_cartesian_2d(ticked(x.range), ticked(y.range))?;
        chart
            .configure_mesh()
            .x_desc(x.name)
            .y_desc(y.name)
            .x_labels(TICKS)
            .y_labels(TICKS)
            .x_label_formatter(&label)
            .y_label_formatter(&label)
            .label_style(letters(HPos::Left, VPos::Top))
            .axis_style(INK)
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .draw()?;
        chart.draw_series(LineSeries::new(line.points, INK.stroke_width(2)))?;
        for (series, (shape, colour)) in shaped() {
            let (points, colour) = (series.points.iter().copied(), colour.mix(OPACITY));
            match shape {
                '●' => chart.draw_series(points.map(|point| Circle::new(point, 4, colour.filled())))?,
                '○' => chart.draw_series(points.map(|point| Circle::new(point, 4, colour.stroke_width(2))))?,
                '▲' => chart.draw_series(points.map(|point| TriangleMarker::new(point, 5, colour.filled())))?,
                _ => chart.draw_series(points.map(|point| Cross::new(point, 4, colour.stroke_width(2))))?,
            };
        }
        Ok(())
    })?;
    Ok(Figure { legend, svg, caption: caption.to_owned() })
}

/// Where an axis is labelled. The plotting library labels powers of ten, of which most ranges of times have one or none.
fn ticks(range: &Range<f64>) -> Vec<f64> {
    let (first, last) = (range.start.log10().floor() as i32, range.end.log10().ceil() as i32);
    let within = |tick: &f64| range.contains(tick);
    let decades = |of: &[f64]| -> Vec<f64> {
        let ticks = (first..=last).flat_map(|power| of.iter().map(move |digit| digit * 10f64.powi(power)));
        ticks.filter(within).collect()
    };
    let fine = decades(&[1.0, 2.0, 5.0]);
    match fine.len() {
        0..3 => {
            let width = range.end - range.start;
            let coarse = 10f64.powf(width.log10().floor());
            // One of these fits three to seven times into any width.
            let step = [2.0, 1.0, 0.5, 0.2].map(|part| part * coarse).into_iter().find(|step| width / step >= 3.0);
            let step = step.unwrap_or(coarse);
            let count = (range.end / step) as u64;
            let from = (range.start / step).ceil() as u64;
            (from..=count).map(|index| index as f64 * step).filter(within).collect()
        }
        3..=TICKS => fine,
        _ => {
            let powers = decades(&[1.0]);
            let apart = powers.len().div_ceil(TICKS).max(1);
            powers.into_iter().step_by(apart).collect()
        }
    }
}

#[test]
fn every_range_has_ticks() {
    for (start, end) in
        [(12.0, 13.0), (12.0, 18.0), (8.0, 12.5), (8.0, 50.0), (12.0, 35.0), (0.011, 0.019), (3.0, 700.0), (1e-3, 1e9)]
    {
        let ticks = ticks(&(start..end));
        assert!((2..=8).contains(&ticks.len()), "{start}..{end}: {ticks:?}");
        assert!(ticks.is_sorted() && ticks.iter().all(|tick| (start..end).contains(tick)), "{start}..{end}: {ticks:?}");
    }
}
