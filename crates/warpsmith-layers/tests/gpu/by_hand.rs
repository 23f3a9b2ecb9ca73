//! The kernels of a layer of e4m3 or of NVFP4 products, launched by hand one after the other: what the layer's bits are, and, with one thing
//! wrong, what the oracle refuses.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream};
use half::bf16;
use warpsmith::Result;
use warpsmith::engine::{Engine, Plan};
use warpsmith::format::Format;
use warpsmith::run::{CombineOperands, Matrix, Operands, QuantiseOperands, RouteOperands, Weights};
use warpsmith::spec::{Problem, Quantise};
use warpsmith_layers::{LayerConfig, MoeConfig};
use warpsmith_tune::layer::{HostLayer, HostTokens};

/// What is launched so: experts without biases, a shared expert or a residual, whose I needs no padding; tokens in bf16.
pub(crate) const LAYERS: [&str; 3] = [
    "moe.silu:bf16:h256:i192:softmax:e8:k2:renormalised:e4m3",
    "moe.silu:bf16:h320:i64:softmax:e60:k4:e4m3",
    "moe.silu:bf16:h256:i192:softmax:e60:k4:renormalised:nvfp4",
];

/// One thing wrong, or nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mutant {
    None,
    /// The factors of what is between up and down.
    FactorsLeftOut,
    FactorsOfTokens,
    NeighboursTokens,
    /// Of what is between up and down, as many rows as there are tokens.
    FewRows,
    /// The launch that quantises tokens left out.
    NotQuantised,
}

impl Mutant {
    pub(crate) const ALL: [Self; 5] =
        [Self::FactorsLeftOut, Self::FactorsOfTokens, Self::NeighboursTokens, Self::FewRows, Self::NotQuantised];
}

/// A product with its weights and their factors.
struct Product {
    plan: Plan,
    weights: Weights<'static>,
    alphas: Vec<CudaSlice<f32>>,
}

/// Rounded rows.
struct Rows {
    values: CudaSlice<u8>,
    /// Of NVFP4 block scales.
    scales: CudaSlice<u8>,
    /// Those of rows; of NVFP4 the only one.
    factors: CudaSlice<f32>,
    to: Format,
}

impl Rows {
    fn matrix(&self) -> Matrix<'_> {
        match self.to {
            Format::Nvfp4 => (&self.values, &self.scales).into(),
            _ => Matrix::e4m3(&self.values, &self.factors),
        }
    }
}

pub(crate) struct Hand<'a> {
    engine: &'a Engine,
    stream: &'a Arc<CudaStream>,
    config: MoeConfig,
    scale: f32,
    quantisers: Vec<Quantise>,
    up: Product,
    down: Product,
}

impl<'a> Hand<'a> {
    pub(crate) fn new(
        engine: &'a Engine,
        stream: &'a Arc<CudaStream>,
        host: &HostLayer,
        limit: u32,
    ) -> std::result::Result<Self, String> {
        let LayerConfig::Moe(config) = *host.config() else { return Err("a layer of experts".to_owned()) };
        let problems = host.config().problems(limit).map_err(crate::text)?;
        let product = |problem: &Problem, which: &[usize]| -> Result<Product> {
            let (mut given, mut alphas) = (Vec::new(), Vec::new());
            for nth in which {
                let (codes, scales, of_groups) = host.given(stream, *nth)?;
                given.push((codes, scales));
                alphas.push(stream.clone_htod(of_groups)?);
            }
            let problem = engine.native(problem);
            Ok(Product { plan: engine.plan(&problem)?, weights: engine.weights(stream, &problem, given)?, alphas })
        };
        let up = product(&problems[0], &[0, 1]).map_err(crate::text)?;
        let down = product(&problems[1], &[2]).map_err(crate::text)?;
        let quantisers = host.config().quantisers();
        Ok(Self { engine, stream, config, scale: host.scale(), quantisers, up, down })
    }

    /// Bytes of the result.
    pub(crate) fn forward(&self, tokens: &HostTokens, mutant: Mutant) -> Result<Vec<u8>> {
        let Self { engine, config, scale, quantisers, up, down, .. } = self;
        let stream = self.stream;
        let (count, k) = (tokens.count(), config.route().experts_per_token() as usize);
        let (hidden, intermediate) =
            (config.expert().hidden_size() as usize, config.expert().intermediate_size() as usize);
        let (rows, m) = (count * k, (count * k) as u32);

        let router = engine.route(config.route())?;
        let mut ids = stream.alloc_zeros::<i32>(rows)?;
        let mut weights = stream.alloc_zeros::<f32>(rows)?;
        let lists = config.route().lists(count as u32);
        let mut list = stream.alloc_zeros::<i32>(lists.len())?;
        let logits = stream.clone_htod(tokens.logits())?;
        let mut room = router.workspace(stream, count as u32)?;
        let operands = RouteOperands::new(count as u32, &logits, &mut ids, &mut weights, &mut list);
        router.launch(stream, operands.scale(*scale).workspace(&mut room))?;
        let of = |range: &std::ops::Range<usize>| list.slice(range.clone());

        // Each token's row, or its neighbour's.
        let from = |row: usize| if mutant == Mutant::NeighboursTokens { (row + 1) % count } else { row };
        let x: Vec<bf16> = (0..count)
            .flat_map(|row| &tokens.x()[from(row) * hidden..][..hidden])
            .map(|x| bf16::from_f32(*x))
            .collect();
        let x = stream.clone_htod(&x)?;
        let given = match mutant {
            Mutant::NotQuantised => self.zeros(&quantisers[0], count)?,
            _ => self.quantised(&quantisers[0], &x, count, count)?,
        };
        let mut h = stream.alloc_zeros::<bf16>(rows * intermediate)?;
        let mut room = up.plan.workspace(stream, m)?;
        let operands = Operands::new(m, given.matrix(), &up.weights, &mut h);
        let alphas = self.scaled(up, &given)?;
        let operands = operands.alphas(&alphas[0], &alphas[1]).rows(of(&lists.rows)).offsets(of(&lists.offsets));
        up.plan.launch(stream, operands.workspace(&mut room))?;

        let kept = if mutant == Mutant::FewRows { count } else { rows };
        let mut between = self.quantised(&quantisers[1], &h, kept, rows)?;
        match mutant {
            Mutant::FactorsLeftOut => between.factors = stream.clone_htod(&vec![1.0; between.factors.len()])?,
            Mutant::FactorsOfTokens => {
                let of_tokens = stream.clone_dtoh(&given.factors)?;
                let all = of_tokens.iter().copied().cycle().take(between.factors.len());
                between.factors = stream.clone_htod(&all.collect::<Vec<_>>())?;
            }
            _ => {}
        }
        let mut y = stream.alloc_zeros::<bf16>(rows * hidden)?;
        let mut room = down.plan.workspace(stream, m)?;
        let operands = Operands::new(m, between.matrix(), &down.weights, &mut y);
        let alphas = self.scaled(down, &between)?;
        let operands = operands.alpha(&alphas[0]).offsets(of(&lists.offsets));
        down.plan.launch(stream, operands.workspace(&mut room))?;

        let mut out = stream.alloc_zeros::<bf16>(count * hidden)?;
        let operands = CombineOperands::new(count as u32, &y, &mut out).positions(of(&lists.positions));
        engine.combine(&config.combine())?.launch(stream, operands.weights(&weights))?;
        let out = stream.clone_dtoh(&out)?;
        stream.synchronize()?;
        Ok(out.iter().flat_map(|y| y.to_le_bytes()).collect())
    }

    fn zeros(&self, quantise: &Quantise, rows: usize) -> Result<Rows> {
        let (to, k, stream) = (quantise.to_format(), quantise.row_length() as usize, self.stream);
        let (scales, factors) = match to {
            Format::Nvfp4 => (rows * k / 16, Quantise::OWN_LENGTH),
            _ => (0, rows),
        };
        let values = stream.alloc_zeros(to.bytes(rows * k))?;
        Ok(Rows { values, scales: stream.alloc_zeros(scales)?, factors: stream.alloc_zeros(factors)?, to })
    }

    /// The factors of a product's weights, of NVFP4 times that of its tokens.
    fn scaled(&self, product: &Product, rows: &Rows) -> Result<Vec<CudaSlice<f32>>> {
        let factor = if rows.to == Format::Nvfp4 { self.stream.clone_dtoh(&rows.factors)?[0] } else { 1.0 };
        let scaled = |alphas: &CudaSlice<f32>| {
            let alphas = self.stream.clone_dtoh(alphas)?;
            Ok(self.stream.clone_htod(&alphas.iter().map(|alpha| alpha * factor).collect::<Vec<_>>())?)
        };
        product.alphas.iter().map(scaled).collect()
    }

    /// The first `kept` of `rows` rows; the others are zeros.
    fn quantised(&self, quantise: &Quantise, x: &CudaSlice<bf16>, kept: usize, rows: usize) -> Result<Rows> {
        let mut made = self.zeros(quantise, rows)?;
        let Rows { values, scales, factors, to } = &mut made;
        let operands = match to {
            Format::Nvfp4 => QuantiseOperands::new(kept as u32, x, values, scales).own_factor(factors),
            _ => QuantiseOperands::e4m3(kept as u32, x, values, factors),
        };
        self.engine.quantise(quantise)?.launch(self.stream, operands)?;
        Ok(made)
    }
}
