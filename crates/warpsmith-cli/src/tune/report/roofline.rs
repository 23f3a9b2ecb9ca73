//! Rates over arithmetic intensity, below the device's ceilings.

use plotters::prelude::*;

use super::{Ceilings, Failure};

const SIZE: (u32, u32) = (760, 420);
const POINT: RGBColor = RGBColor(0, 114, 178);
const ROOF: RGBColor = RGBColor(213, 94, 0);

/// An `<svg>` element: points are FLOP for each byte, and FLOP in a second; both axes are logarithmic.
pub fn chart(ceilings: &Ceilings, points: &[(f64, f64)]) -> Result<String, Failure> {
    let knee = ceilings.matrix_flop_per_s / ceilings.memory_bytes_per_s;
    let intensities = || points.iter().map(|(intensity, _)| *intensity);
    let left = intensities().fold(knee, f64::min) / 2.0;
    let right = intensities().fold(knee, f64::max) * 2.0;
    let slowest = points.iter().map(|(_, rate)| *rate).fold(ceilings.at(left), f64::min) / 1e12;
    let top = points.iter().map(|(_, rate)| *rate).fold(ceilings.matrix_flop_per_s, f64::max) / 1e12;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(56)
            .build_cartesian_2d((left..right).log_scale(), (slowest / 2.0..top * 1.5).log_scale())?;
        chart
            .configure_mesh()
            .x_desc("FLOP for each byte")
            .y_desc("TFLOP/s")
            .x_labels(6)
            .y_labels(6)
            .x_label_formatter(&|value| value.to_string())
            .y_label_formatter(&|value| value.to_string())
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .draw()?;
        let roof = [left, knee, right].map(|intensity| (intensity, ceilings.at(intensity) / 1e12));
        chart
            .draw_series(LineSeries::new(roof, ROOF.stroke_width(2)))?
            .label("the device's ceilings")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 14, y)], ROOF.stroke_width(2)));
        let dots =
            points.iter().map(|(intensity, rate)| Circle::new((*intensity, rate / 1e12), 4, POINT.mix(0.7).filled()));
        chart.draw_series(dots)?.label("measured").legend(|(x, y)| Circle::new((x + 7, y), 4, POINT.mix(0.7).filled()));
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        area.present()?;
    }
    Ok(svg)
}
