//! What the charts of all reports have in common: size, letters, palette. Drawings have no background and no legend: both
//! are the page's, which has a light and a dark one.

pub mod plane;

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::page::Key;

/// What the plotting library says.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Of every chart, in pixels: narrow, so that a telephone shows its letters in nearly their size.
const WIDTH: u32 = 480;
/// Lines and letters; the page replaces it by the colour of its text.
pub const INK: RGBColor = BLACK;
/// Lines behind what is shown.
pub const GRID: RGBAColor = RGBAColor(0, 0, 0, 0.15);
/// Colours that differ for colour-blind readers, too (Okabe and Ito), and that stand out from white and from black.
pub const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115), RGBColor(204, 121, 167)];

/// An `<svg>` element of this height.
pub fn svg(
    height: u32,
    draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), Failure>,
) -> Result<String, Failure> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
    draw(&area)?;
    area.present()?;
    drop(area);
    Ok(svg)
}

/// Letters of every chart.
pub fn letters(at: HPos, below: VPos) -> TextStyle<'static> {
    // The library divides sizes by 1.24.
    ("sans-serif", 14.0 * 1.24).into_font().color(&INK).pos(Pos::new(at, below))
}

/// An entry of a legend.
pub fn key(mark: char, colour: RGBColor, opacity: f64, name: &str) -> Key {
    let colour = match colour {
        INK => "var(--ink)".to_owned(),
        RGBColor(red, green, blue) => format!("#{red:02X}{green:02X}{blue:02X}"),
    };
    Key { mark, colour, opacity, name: name.to_owned() }
}
