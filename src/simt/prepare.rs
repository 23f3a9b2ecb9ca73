//! The kernels that prepare weights: which there are.

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

    /// All twelve there are.
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

    /// The format that kernels make of the weights and multiply.
    #[must_use]
    pub fn compute(&self) -> Format {
        self.coding.compute()
    }

    /// How the block scales of the operands lie.
    #[must_use]
    pub fn scales(&self) -> ScaleLayout {
        self.scales
    }

    /// How its blocks are coded.
    pub(crate) fn coding(&self) -> Coding {
        self.coding
    }

    /// Whether rows of the weights have factors, which a kernel before finds.
    pub(crate) fn has_row_factors(&self) -> bool {
        self.coding == Coding::E4m3
    }

    /// The kernel's symbol, such as `prepare_dual_f16_128x4`.
    #[must_use]
    pub fn symbol(&self) -> String {
        let products = if self.products == 1 { "single" } else { "dual" };
        format!("prepare_{products}_{}_{}", self.compute(), self.scales)
    }
}
