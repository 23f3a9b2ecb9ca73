//! Routers: checked against the oracle, then timed with logits that are not in the L2 cache.

use cudarc::driver::CudaSlice;
use half::{bf16, f16};
use warpsmith::cache::KernelCache;
use warpsmith::format::Format;
use warpsmith::run::{RouteOperands, Router, Workspace};
use warpsmith::spec::{Arch, Route, Scoring};
use warpsmith_tune::oracle::route::{Given, route as expected};
use warpsmith_tune::{Numbers, operand_sets, wait};

use super::Args;
use super::small::{self, Timed};
use crate::shared::Result;
use crate::shared::gpu::Gpu;
use crate::shared::place::Place;

/// Numbers of tokens where none are said.
const TOKENS: [u32; 7] = [1, 8, 32, 128, 256, 1024, 8192];
const LIMIT: std::time::Duration = std::time::Duration::from_secs(10);
const TILE: u32 = 128;

/// Whether everything is right.
pub fn run(args: &Args, place: &Place, cache: KernelCache) -> Result<bool> {
    for route in &args.route {
        route.check()?;
    }
    let tokens = if args.tokens.is_empty() { &TOKENS[..] } else { &args.tokens };
    small::run(&args.route, "route", tokens, place, cache, |gpu, route, tokens, arch| {
        timed(gpu, &gpu.engine().route(route)?, tokens, arch)
    })
}

/// The operands of one launch.
struct Set {
    logits: Numbers,
    bias: CudaSlice<f32>,
    ids: CudaSlice<i32>,
    weights: CudaSlice<f32>,
    lists: CudaSlice<i32>,
}

impl Set {
    fn new(gpu: &Gpu, route: &Route, tokens: u32, logits: &[f32], bias: &[f32], ids: &[i32]) -> Result<Self> {
        let stream = gpu.stream();
        // Nothing is allocated for nothing.
        let padded: Vec<f32> = logits.iter().copied().chain([0.0]).collect();
        let format = route.logits_format().unwrap_or(Format::F32);
        Ok(Self {
            logits: Numbers::new(stream, format, &padded, padded.len())?,
            bias: stream.clone_htod(bias)?,
            ids: stream.clone_htod(ids)?,
            weights: stream.alloc_zeros(ids.len())?,
            lists: stream.alloc_zeros(route.lists(tokens).len())?,
        })
    }

    fn operands<'a>(&'a mut self, route: &Route, tokens: u32, workspace: &'a mut Workspace) -> RouteOperands<'a> {
        let operands = if route.scoring() == Scoring::Given {
            RouteOperands::given(tokens, &self.ids, &mut self.lists)
        } else {
            RouteOperands::new(tokens, self.logits.values(), &mut self.ids, &mut self.weights, &mut self.lists)
        };
        let has_bias = route.scoring() == Scoring::SigmoidBias;
        let operands = if has_bias { operands.bias(&self.bias) } else { operands };
        operands.tile(TILE).workspace(workspace)
    }
}

fn timed(gpu: &Gpu, router: &Router, tokens: u32, arch: &Arch) -> Result<Timed> {
    let route = *router.route();
    let (experts, rows) = (route.expert_count(), (tokens * route.experts_per_token()) as usize);
    let mut random = fastrand::Rng::with_seed(0x5EED + u64::from(tokens));
    let values = if route.scoring() == Scoring::Given { 0 } else { tokens * experts };
    let mut normal = || (0..6).map(|_| random.f32() - 0.5).sum::<f32>() * 1.4;
    // Exact in every format.
    let logits: Vec<f32> = (0..values).map(|_| bf16::from_f32(f16::from_f32(normal()).to_f32()).to_f32()).collect();
    let bias: Vec<f32> = (0..experts).map(|_| normal() * 0.1).collect();
    let ids: Vec<i32> =
        (0..tokens).flat_map(|_| random.choose_multiple(0..experts as i32, rows / tokens as usize)).collect();

    let lists = route.lists(tokens).len();
    let logit = route.logits_format().map_or(0, |format| format.bytes(1)) as u64;
    let weights = if logit > 0 { 4 * rows as u64 } else { 0 };
    let bytes = u64::from(values) * logit + 4 * (rows + lists) as u64 + weights;
    let sets = operand_sets(bytes, arch.l2_bytes());
    let mut workspace = router.workspace(gpu.stream(), tokens)?;
    let sets = (0..sets).map(|_| Set::new(gpu, &route, tokens, &logits, &bias, &ids)).collect::<Result<Vec<_>>>();
    let mut sets = sets?;

    router.launch(gpu.stream(), sets[0].operands(&route, tokens, &mut workspace))?;
    wait(gpu.stream(), LIMIT)?;
    let given = if values > 0 { Given::Logits(&logits, &bias) } else { Given::Ids(&ids) };
    let truth = expected(&route, tokens, given, TILE, 1.0)?;
    let stream = gpu.stream();
    let (found, weights) = (stream.clone_dtoh(&sets[0].lists)?, stream.clone_dtoh(&sets[0].weights)?);
    if found != truth.lists(vec![0; lists]) {
        return Ok(Err("other lists than the oracle's".to_owned()));
    }
    if let Some(why) = truth.wrong_weight(&weights) {
        return Ok(Err(why));
    }
    small::times(gpu, arch, bytes, sets.len(), |set, is_dependent| {
        let operands = sets[set].operands(&route, tokens, &mut workspace);
        match is_dependent {
            true => router.launch_dependent(gpu.stream(), operands),
            false => router.launch(gpu.stream(), operands),
        }
    })
    .map(Ok)
}
