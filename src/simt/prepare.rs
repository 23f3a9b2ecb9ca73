//! The kernels that prepare weights: which there are.

use crate::format::{Coding, Format, PreparedLayout, ScaleLayout};

/// Which of the preparing kernels: one serves every n, k and number of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Preparation {
    products: u32,
    coding: Coding,
    source: Source,
}

/// What is prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Source {
    /// NVFP4, with block scales in this layout.
    Nvfp4(ScaleLayout),
    Mxfp4,
}

impl Source {
    const ALL: [Self; 3] = [Self::Nvfp4(ScaleLayout::Linear), Self::Nvfp4(ScaleLayout::Swizzled128x4), Self::Mxfp4];
}

impl Preparation {
    /// The kernel for weights of this layout, from operands with block scales in `scales`; MXFP4 has them in one way.
    pub fn new(layout: &PreparedLayout, scales: ScaleLayout) -> Self {
        let source = if layout.weights_format() == Format::Mxfp4 { Source::Mxfp4 } else { Source::Nvfp4(scales) };
        Self { products: layout.products(), coding: layout.coding(), source }
    }

    /// All twenty there are.
    pub fn all() -> impl Iterator<Item = Self> {
        let all = [1, 2].into_iter().flat_map(|products| {
            Coding::ALL.into_iter().flat_map(move |coding| Source::ALL.map(|source| Self { products, coding, source }))
        });
        // MXFP4 does not become e4m3.
        all.filter(|one| one.compute() != Format::E4m3 || one.source != Source::Mxfp4)
    }

    /// Operands prepared together.
    #[must_use]
    pub fn products(&self) -> u32 {
        self.products
    }

    /// The format that kernels make of the weights and multiply.
    #[must_use]
    pub fn compute(&self) -> Format {
        self.coding.compute()
    }

    /// The format of the operands.
    #[must_use]
    pub fn weights(&self) -> Format {
        if self.source == Source::Mxfp4 { Format::Mxfp4 } else { Format::Nvfp4 }
    }

    /// How the block scales of the operands lie.
    #[must_use]
    pub fn scales(&self) -> ScaleLayout {
        match self.source {
            Source::Nvfp4(scales) => scales,
            Source::Mxfp4 => ScaleLayout::Linear,
        }
    }

    /// The word for both.
    pub(crate) fn scales_word(&self) -> &'static str {
        match self.source {
            Source::Nvfp4(scales) => scales.word(),
            Source::Mxfp4 => Format::Mxfp4.word(),
        }
    }

    /// How its blocks are coded.
    pub(crate) fn coding(&self) -> Coding {
        self.coding
    }

    /// Whether rows of the weights have factors, which a kernel before finds.
    pub(crate) fn has_row_factors(&self) -> bool {
        self.coding.has_row_factors()
    }

    /// Bytes of 64 rows × 64 columns.
    pub(crate) fn block_bytes(&self) -> usize {
        PreparedLayout::block_bytes_of(self.coding, self.weights())
    }

    /// The kernel's symbol, such as `prepare_dual_f16_128x4`.
    #[must_use]
    pub fn symbol(&self) -> String {
        let products = if self.products == 1 { "single" } else { "dual" };
        let expanded = if self.coding == Coding::Expanded { "_expanded" } else { "" };
        format!("prepare_{products}_{}_{}{expanded}", self.compute(), self.scales_word())
    }
}
