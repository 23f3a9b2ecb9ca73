//! Parts of layers.

use crate::config::LayerConfig;

/// A part of a layer, in the order of launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The shared expert.
    Shared,
    /// The router.
    Route,
    /// The first products.
    Up,
    /// The last.
    Down,
    /// All rows of experts added up.
    Combine,
    /// What up, down and combine do, where one launch does that: of few tokens.
    Experts,
}

impl Step {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Shared, Self::Route, Self::Up, Self::Down, Self::Combine, Self::Experts];

    /// Those of a layer of so few tokens that one launch is all behind a shared expert's.
    pub fn of_few(config: &LayerConfig) -> impl Iterator<Item = Self> + use<> {
        Self::of(config).filter(|step| *step == Self::Shared).chain([Self::Experts])
    }

    /// Those of a layer for any number of tokens; none of a linear one, which has no parts.
    pub fn of(config: &LayerConfig) -> impl Iterator<Item = Self> + use<> {
        let config = *config;
        Self::ALL.into_iter().filter(move |step| match config {
            LayerConfig::Linear(_) => false,
            LayerConfig::Mlp(_) => matches!(step, Self::Up | Self::Down),
            LayerConfig::Moe(of) => match step {
                Self::Shared => of.shared_expert().is_some(),
                other => *other != Self::Experts,
            },
        })
    }
}
