//! Predicted against measured times.

use plotters::prelude::*;

use super::{Failure, Row};

const SIZE: (u32, u32) = (560, 520);
/// Colours that differ for colour-blind readers, too (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
];

/// The kernels of one M.
pub struct Series {
    name: String,
    /// Predicted and measured µs.
    points: Vec<(f64, f64)>,
}

impl Series {
    /// What was tried in a row; none if nothing of it was both predicted and measured.
    pub fn of(row: &Row) -> Option<Self> {
        let of = row.candidates.iter().filter_map(|candidate| Some((candidate.predicted_us?, candidate.measured_us?)));
        let points: Vec<_> = of.filter(|(predicted, measured)| *predicted > 0.0 && *measured > 0.0).collect();
        (!points.is_empty()).then(|| Self { name: format!("M = {}", row.m), points })
    }
}

/// An `<svg>` element: both axes are logarithmic and have the same range, with the diagonal.
pub fn chart(series: &[Series]) -> Result<String, Failure> {
    let all =
        || series.iter().flat_map(|series| &series.points).flat_map(|(predicted, measured)| [*predicted, *measured]);
    let (least, most) = (all().fold(f64::INFINITY, f64::min) / 1.25, all().fold(0.0, f64::max) * 1.25);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(56)
            .build_cartesian_2d((least..most).log_scale(), (least..most).log_scale())?;
        chart
            .configure_mesh()
            .x_desc("measured µs")
            .y_desc("predicted µs")
            .x_labels(6)
            .y_labels(6)
            .x_label_formatter(&|value| value.to_string())
            .y_label_formatter(&|value| value.to_string())
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .draw()?;
        chart.draw_series(LineSeries::new([(least, least), (most, most)], BLACK.mix(0.5)))?;
        for (series, colour) in series.iter().zip(COLOURS.iter().cycle()) {
            let style = colour.mix(0.6).filled();
            let dots = series.points.iter().map(|(predicted, measured)| Circle::new((*measured, *predicted), 3, style));
            chart
                .draw_series(dots)?
                .label(series.name.as_str())
                .legend(move |(x, y)| Circle::new((x + 7, y), 4, style));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        area.present()?;
    }
    Ok(svg)
}
