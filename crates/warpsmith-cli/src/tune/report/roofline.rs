//! Rates over arithmetic intensity, below the device's ceilings.

use super::Ceilings;
use crate::shared::chart::Failure;
use crate::shared::chart::plane::{self, Axis, Series};
use crate::shared::page::Figure;

/// Points are FLOP for each byte, and FLOP in a second.
pub fn chart(ceilings: &Ceilings, points: &[(f64, f64)]) -> Result<Figure, Failure> {
    let knee = ceilings.matrix_flop_per_s / ceilings.memory_bytes_per_s;
    let intensities = || points.iter().map(|(intensity, _)| *intensity);
    let left = intensities().fold(knee, f64::min) / 2.0;
    let right = intensities().fold(knee, f64::max) * 2.0;
    let slowest = points.iter().map(|(_, rate)| *rate).fold(ceilings.at(left), f64::min) / 1e12;
    let top = points.iter().map(|(_, rate)| *rate).fold(ceilings.matrix_flop_per_s, f64::max) / 1e12;
    let roof = [left, knee, right].map(|intensity| (intensity, ceilings.at(intensity) / 1e12));
    let measured = points.iter().map(|(intensity, rate)| (*intensity, rate / 1e12)).collect();
    plane::figure(
        Axis { name: "FLOP for each byte", range: left..right },
        Axis { name: "TFLOP/s", range: slowest / 2.0..top * 1.5 },
        Series { name: "the device's ceilings".to_owned(), points: roof.to_vec() },
        &[Series { name: "measured".to_owned(), points: measured }],
        "Each point is a problem at one M, with the kernel that was chosen.",
    )
}
