//! What a layer has to move and to compute, whoever does it.

use warpsmith::format::Format;
use warpsmith::spec::Arch;
use warpsmith_layers::{LayerConfig, Step};

/// Bytes and floating-point operations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Of device memory, each read or written once.
    pub bytes: f64,
    /// Of products of 16-bit values.
    pub flop: f64,
    /// Of products of e4m3 values, which take half the time.
    pub e4m3_flop: f64,
    /// Of products of NVFP4 values, which take what the architecture says.
    pub nvfp4_flop: f64,
}

/// NVFP4: half a byte, and a scale for 16.
const WEIGHT_BYTES: f64 = 9.0 / 16.0;
/// f16 or bf16.
const TOKEN_BYTES: f64 = 2.0;

impl Work {
    /// Of a whole layer, or a step of it, for `tokens` tokens, of which `hit` experts have any. What one step
    /// hands to the next counts for the steps, not for the layer.
    #[must_use]
    pub fn of(config: &LayerConfig, tokens: u32, hit: u32, only: Option<Step>) -> Self {
        let tokens = f64::from(tokens);
        let rounded = config.rounded();
        let of_bytes = |bytes: f64| Self { bytes, ..Self::default() };
        let product = |n: f64, k: f64, rows: f64, groups: f64| {
            let (work, flop) = (of_bytes(n * k * groups * WEIGHT_BYTES), 2.0 * rows * n * k);
            match rounded {
                Some(Format::Nvfp4) => Self { nvfp4_flop: flop, ..work },
                Some(_) => Self { e4m3_flop: flop, ..work },
                None => Self { flop, ..work },
            }
        };
        let moved = |elements: f64| of_bytes(elements * TOKEN_BYTES);
        // What an element takes that is rounded, which is written and read once more.
        let each = rounded.map_or(0.0, |to| if to == Format::Nvfp4 { WEIGHT_BYTES } else { 1.0 });
        // The maximum of NVFP4 is found first, of the same elements.
        let again = if rounded == Some(Format::Nvfp4) { TOKEN_BYTES } else { 0.0 };
        let quantised = |elements: f64| of_bytes((2.0 * each + again) * elements);
        match config {
            LayerConfig::Linear(of) => {
                let [k, n] = of.columns().map(f64::from);
                product(n, k, tokens, 1.0).and(moved(tokens * (n + k)))
            }
            LayerConfig::Mlp(of) => {
                let (hidden, intermediate) = (f64::from(of.hidden_size()), f64::from(of.intermediate_size()));
                let first = if of.is_gated() { 2.0 } else { 1.0 };
                let up = product(first * intermediate, hidden, tokens, 1.0);
                let down = product(hidden, intermediate, tokens, 1.0);
                let [x, h] = [tokens * hidden, tokens * intermediate];
                match only {
                    Some(Step::Up) => up.and(moved(x + h)).and(quantised(x)),
                    Some(Step::Down) => down.and(moved(h + x)).and(quantised(h)),
                    Some(_) => Self::default(),
                    None => up.and(down).and(moved(2.0 * x)),
                }
            }
            LayerConfig::Moe(of) => {
                let expert = of.expert();
                let (hidden, intermediate) = (f64::from(expert.hidden_size()), f64::from(expert.intermediate_size()));
                let rows = tokens * f64::from(of.route().experts_per_token());
                let first = if expert.is_gated() { 2.0 } else { 1.0 };
                let [x, h, y] = [tokens * hidden, rows * intermediate, rows * hidden];
                let shared = of
                    .shared_expert()
                    .map(|of| product((first + 1.0) * f64::from(of.intermediate_size()), hidden, tokens, 1.0));
                let up = product(first * intermediate, hidden, rows, hit.into());
                let down = product(hidden, intermediate, rows, hit.into());
                let logits = of.route().logits_format().map_or(4, |format| format.bytes(1)) as f64;
                let logits = of_bytes(tokens * f64::from(of.route().expert_count()) * logits);
                let added = x * (1.0 + f64::from(u8::from(of.has_residual())));
                let of_shared = if shared.is_some() { x } else { 0.0 };
                // The gate's x; what is weighted is written and read once more.
                let of_gate = if of.has_shared_gate() { x } else { 0.0 };
                let of_inputs = if of.has_weighted_inputs() { 2.0 * x } else { 0.0 };
                match only {
                    // Ids, weights, rows, slots and positions.
                    Some(Step::Route) => logits.and(of_bytes(20.0 * rows)),
                    // What the shared expert got is there already.
                    Some(Step::Up) if rounded.is_some() && shared.is_some() && !of.has_weighted_inputs() => {
                        up.and(of_bytes(each * x)).and(moved(h))
                    }
                    Some(Step::Up) => up.and(moved(x + of_inputs + h)).and(quantised(x)),
                    Some(Step::Down) => down.and(moved(h + y)).and(quantised(h)),
                    Some(Step::Combine) => moved(y + added + of_shared + of_gate),
                    Some(Step::Experts) => up.and(down).and(moved(x + added + of_shared)),
                    Some(Step::Shared) => {
                        shared.map_or_else(Self::default, |shared| shared.and(moved(x + of_shared)).and(quantised(x)))
                    }
                    None => up.and(down).and(shared.unwrap_or_default()).and(logits).and(moved(x + added)),
                }
            }
            _ => Self::default(),
        }
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            flop: self.flop + other.flop,
            e4m3_flop: self.e4m3_flop + other.e4m3_flop,
            nvfp4_flop: self.nvfp4_flop + other.nvfp4_flop,
        }
    }

    /// The microseconds that it takes at least: its bytes, or its products, whichever take longer.
    #[must_use]
    pub fn floor_us(&self, arch: &Arch) -> f64 {
        let flop = self.flop + self.e4m3_flop / 2.0;
        let products = flop / arch.matrix_flop_per_s() + self.nvfp4_flop / arch.coded_flop_per_s();
        f64::max(self.bytes / arch.memory_bytes_per_s(), products) * 1e6
    }
}

#[cfg(test)]
mod tests {
    use warpsmith_layers::named;

    use super::*;

    #[test]
    fn work_is_what_the_layer_is_known_for() {
        let of = |name: &str, tokens, hit| Work::of(&named(name).unwrap(), tokens, hit, None);
        // 8 experts of 3 · 768 · 2048 weights.
        let one = of("qwen3-30b", 1, 8);
        assert_eq!(one.flop, 2.0 * 8.0 * 3.0 * 768.0 * 2048.0);
        assert_eq!(one.bytes, 8.0 * 3.0 * 768.0 * 2048.0 * 9.0 / 16.0 + 2.0 * 2.0 * 2048.0 + 128.0 * 4.0);
        assert!((one.floor_us(&Arch::H200) - 4.4).abs() < 0.6, "{}", one.floor_us(&Arch::H200));
        assert!(of("qwen3-30b", 8192, 128).floor_us(&Arch::H200) > 600.0);
        // The same bytes, and half the time of products.
        let (rounded, plain) = (of("qwen3-30b:e4m3", 8192, 128), of("qwen3-30b", 8192, 128));
        assert_eq!((rounded.bytes, rounded.e4m3_flop, rounded.flop), (plain.bytes, plain.flop, 0.0));
        let [floor, of_plain] = [rounded, plain].map(|work| work.floor_us(&Arch::H200));
        assert!((of_plain / floor - 2.0).abs() < 1e-9, "{floor} {of_plain}");
        // The rate of NVFP4 products is the architecture's: on Hopper that of 16-bit ones.
        let coded = of("qwen3-30b:nvfp4", 8192, 128);
        assert_eq!((coded.bytes, coded.nvfp4_flop, coded.flop), (plain.bytes, plain.flop, 0.0));
        assert_eq!(coded.floor_us(&Arch::H200), of_plain);
        assert!(coded.floor_us(&Arch::B200) < plain.floor_us(&Arch::B200) / 3.0);
        let dense = of("llama-3.1-8b", 64, 1);
        assert_eq!(dense.flop, 2.0 * 64.0 * 3.0 * 4096.0 * 14336.0);
        for (name, hit) in [("mixtral-8x7b", 8), ("llama-3.1-8b", 1), ("llama-3.1-8b:nvfp4", 1)] {
            let config = named(name).unwrap();
            let steps = Step::of(&config).map(|step| Work::of(&config, 32, hit, Some(step)));
            let all = steps.fold(Work::default(), Work::and);
            assert_eq!((all.flop, all.nvfp4_flop), (of(name, 32, hit).flop, of(name, 32, hit).nvfp4_flop));
            assert!(all.bytes > of(name, 32, hit).bytes);
        }
    }
}
