//! Speed-ups as bars: for every value of a proposal one for each ground, beside what was promised.

use std::error::Error;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::proposals::KEEP;

/// What the plotting library says.
pub type Failure = Box<dyn Error + Send + Sync>;

/// A group of bars.
pub struct Group {
    pub name: String,
    /// One for each series; none where there is nothing to show.
    pub bars: Vec<Option<f64>>,
}

const COLOURS: [RGBColor; 3] = [RGBColor(86, 180, 233), RGBColor(0, 114, 178), RGBColor(213, 94, 0)];
const PROMISED: RGBColor = RGBColor(240, 228, 66);
const HEIGHT: u32 = 300;
/// Of one group, and of what is beside all of them.
const GROUP_WIDTH: u32 = 150;
const BESIDE: u32 = 60;

/// An `<svg>` element. The promised speed-ups, from and to, are a band behind the bars.
pub fn bars(series: &[&str], groups: &[Group], promised: Option<(f64, f64)>) -> Result<String, Failure> {
    let tallest = groups.iter().flat_map(|group| &group.bars).flatten().copied().fold(KEEP, f64::max);
    // With room for the key.
    let top = 1.4 * promised.map_or(tallest, |(_, high)| high.max(tallest));
    let width = BESIDE + GROUP_WIDTH * groups.len().max(2) as u32;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (width, HEIGHT)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .x_label_area_size(26)
            .y_label_area_size(40)
            .build_cartesian_2d(0.0..groups.len() as f64, 0.0..top)?;
        chart.configure_mesh().disable_x_mesh().x_labels(0).y_desc("speed-up").light_line_style(TRANSPARENT).draw()?;
        let right = groups.len() as f64;
        if let Some((low, high)) = promised {
            chart
                .draw_series([Rectangle::new([(0.0, low), (right, high)], PROMISED.mix(0.45).filled())])?
                .label("promised")
                .legend(|(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], PROMISED.mix(0.45).filled()));
        }
        let width = 0.84 / series.len().max(1) as f64;
        for (index, (name, colour)) in series.iter().zip(COLOURS.iter().cycle()).enumerate() {
            let bar = |(group, bars): (usize, &Group)| {
                let left = group as f64 + 0.08 + width * index as f64;
                let height = bars.bars.get(index).copied().flatten()?;
                Some(Rectangle::new([(left, 0.0), (left + width * 0.94, height)], colour.filled()))
            };
            chart
                .draw_series(groups.iter().enumerate().filter_map(bar))?
                .label(*name)
                .legend(|(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
        }
        chart.draw_series(LineSeries::new([(0.0, 1.0), (right, 1.0)], BLACK.mix(0.6)))?;
        let below = ("sans-serif", 12).into_font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Top));
        for (index, group) in groups.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(index as f64 + 0.5, 0.0));
            area.draw(&Text::new(group.name.clone(), (x, y + 6), below.clone()))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        area.present()?;
    }
    Ok(svg)
}
