//! Predicted against measured times.

use super::Row;
use crate::shared::chart::Failure;
use crate::shared::chart::plane::{self, Axis, Series};
use crate::shared::page::Figure;

/// The kernels of one M, measured and predicted µs; none if nothing was both.
pub fn series(row: &Row) -> Option<Series> {
    let of = row.candidates.iter().filter_map(|candidate| Some((candidate.measured_us?, candidate.predicted_us?)));
    let points: Vec<_> = of.filter(|(measured, predicted)| *measured > 0.0 && *predicted > 0.0).collect();
    (!points.is_empty()).then(|| Series { name: format!("M = {}", row.m), points })
}

/// Both axes have the same range.
pub fn chart(series: &[Series]) -> Result<Figure, Failure> {
    let all = || series.iter().flat_map(|series| &series.points).flat_map(|(x, y)| [*x, *y]);
    let (least, most) = (all().fold(f64::INFINITY, f64::min) / 1.25, all().fold(0.0, f64::max) * 1.25);
    plane::figure(
        Axis { name: "measured µs", range: least..most },
        Axis { name: "predicted µs", range: least..most },
        Series { name: "predicted = measured".to_owned(), points: vec![(least, least), (most, most)] },
        series,
        "Every kernel that was measured; on the line, predictions were right.",
    )
}
