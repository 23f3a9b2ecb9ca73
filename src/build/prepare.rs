//! The kernels that prepare weights: which there are, and their source.

use serde::Serialize;

use super::{Source, render};
use crate::error::Result;
use crate::format::{Coding, Format, PreparedLayout, ScaleLayout};

/// Which of the preparing kernels: one serves every n, k and number of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Preparation {
    products: u32,
    coding: Coding,
    scales: ScaleLayout,
}

impl Preparation {
    /// The kernel for weights of this layout, from operands with block scales in `scales`.
    pub fn new(layout: &PreparedLayout, scales: ScaleLayout) -> Self {
        Self { products: layout.products(), coding: layout.coding(), scales }
    }

    /// All eight there are.
    pub fn all() -> impl Iterator<Item = Self> {
        [1, 2].into_iter().flat_map(|products| {
            Coding::ALL.into_iter().flat_map(move |coding| {
                [ScaleLayout::Linear, ScaleLayout::Swizzled128x4].map(|scales| Self { products, coding, scales })
            })
        })
    }

    /// Operands prepared together.
    #[must_use]
    pub fn products(&self) -> u32 {
        self.products
    }

    /// The format that kernels multiply in.
    #[must_use]
    pub fn compute(&self) -> Format {
        self.coding.compute()
    }

    /// How the block scales of the operands lie.
    #[must_use]
    pub fn scales(&self) -> ScaleLayout {
        self.scales
    }

    /// The kernel's symbol, such as `prepare_dual_f16_128x4`.
    #[must_use]
    pub fn symbol(&self) -> String {
        let products = if self.products == 1 { "single" } else { "dual" };
        format!("prepare_{products}_{}_{}", self.compute(), self.scales)
    }

    /// Its CUDA text.
    ///
    /// # Errors
    /// Internal, if the template names what there is no value for.
    pub fn render(&self) -> Result<Source> {
        let symbol = self.symbol();
        let (text, headers) = render::fill_prepare(&Names::new(self))?;
        Ok(Source::new(format!("{symbol}.cu"), text, headers, [symbol]))
    }
}

/// What the template may name.
#[derive(Serialize)]
struct Names {
    symbol: String,
    products: u32,
    block_bytes: usize,
    encoder: String,
    compute: &'static str,
    scales: &'static str,
}

impl Names {
    fn new(preparation: &Preparation) -> Self {
        Self {
            symbol: preparation.symbol(),
            products: preparation.products,
            block_bytes: PreparedLayout::BLOCK_BYTES,
            encoder: list(preparation.coding.encoder()),
            compute: preparation.compute().word(),
            scales: preparation.scales.word(),
        }
    }
}

/// The words as elements of a CUDA array, eight a line.
fn list(words: &[u32; 32]) -> String {
    let line = |words: &[u32]| words.iter().map(|word| format!("{word:#010x}")).collect::<Vec<_>>().join(", ");
    words.chunks(8).map(line).collect::<Vec<_>>().join(",\n      ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// That every name has a value is checked by rendering.
    #[test]
    fn every_value_is_named_by_the_template() {
        let template = include_str!("../../templates/common/prepare.cu");
        for preparation in Preparation::all() {
            let given = serde_json::to_value(Names::new(&preparation)).unwrap();
            for name in given.as_object().unwrap().keys() {
                assert!(template.contains(&format!("<{{ {name} }}>")), "{name}");
            }
        }
    }
}
