//! What a warm-up is told of a layer.

use warpsmith::Result;
use warpsmith::engine::{Manifest, Rows};
use warpsmith::internal::engine::with_experts;
use warpsmith::internal::spec::baseline;
use warpsmith::spec::{Arch, Spec};

use super::LayerConfig;

impl LayerConfig {
    /// All that the layer launches for these numbers of tokens, on devices of this architecture: its products, weights as
    /// they are taken there, with the rows that so many tokens are; quantisers and what scales factors, where rows are rounded; of
    /// experts the routers (by logits, and by given ids) and the combiner, too (two, where weights multiply what experts get).
    ///
    /// ```
    /// use warpsmith::spec::Arch;
    /// use warpsmith_layers::named;
    /// let layer = named("qwen3-30b").unwrap();
    /// let manifest = layer.manifest(&"1..=8192".parse()?, &Arch::H200)?;
    /// // 8 experts a token; a layer's plans begin with one row.
    /// assert!(manifest.problems().all(|(_, rows)| rows.to_string() == "1..=65536"));
    /// assert_eq!((manifest.routes().count(), manifest.combines().count()), (2, 1));
    /// # Ok::<(), warpsmith::Error>(())
    /// ```
    ///
    /// # Errors
    /// Unsupported, if there is no such layer, or not for so many tokens, or no kernels for it on this architecture.
    pub fn manifest(&self, tokens: &Rows, arch: &Arch) -> Result<Manifest> {
        let mut manifest = Manifest::new();
        for range in tokens.ranges() {
            let (first, last) = range.into_inner();
            for (fewest, most) in self.problems(first)?.iter().zip(&self.problems(last)?) {
                let [fewest, rows] = [fewest, most].map(|problem| problem.m_limit().unwrap_or_default());
                // A layer's plans begin with one row, of which there are never so few where a token chooses several experts.
                let fewest = if first == 1 { 1 } else { fewest };
                let problem = most.native(arch);
                // What has any kernel has this one.
                Spec::new(&problem, &baseline(&problem), arch)?;
                manifest = manifest.with(&problem, &Rows::new(fewest..=rows)?);
            }
        }
        manifest = self.quantisers().iter().fold(manifest, Manifest::with_quantiser);
        manifest = self.scalers()?.iter().fold(manifest, Manifest::with_combine);
        if let Self::Moe(moe) = self {
            manifest = manifest.with_route(moe.route()).with_route(&moe.by_ids()).with_combine(&moe.combine());
            manifest = moe.few_tokens(arch).iter().fold(manifest, with_experts);
            manifest = moe.weigh().iter().fold(manifest, Manifest::with_combine);
        }
        Ok(manifest)
    }
}
