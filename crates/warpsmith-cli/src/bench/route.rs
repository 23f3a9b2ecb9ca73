//! Routers: checked against the oracle, then timed with logits that are not in the L2 cache.

use cudarc::driver::CudaSlice;
use half::{bf16, f16};
use warpsmith::cache::KernelCache;
use warpsmith::format::Format;
use warpsmith::run::{RouteOperands, Router, Values, Workspace};
use warpsmith::spec::{Arch, Route, Scoring};
use warpsmith_tune::oracle::route::{Given, route as expected};
use warpsmith_tune::{Timer, operand_sets, wait};

use super::Args;
use crate::shared::gpu::Gpu;
use crate::shared::place::Place;
use crate::shared::{Result, say};

/// Numbers of tokens where none are said.
const TOKENS: [u32; 7] = [1, 8, 32, 128, 256, 1024, 8192];
const LIMIT: std::time::Duration = std::time::Duration::from_secs(10);
const TILE: u32 = 128;

/// Whether everything is right.
pub fn run(args: &Args, place: &Place, cache: KernelCache) -> Result<bool> {
    for route in &args.route {
        route.check()?;
    }
    let Place::Device(device) = place else {
        for route in &args.route {
            let fetched = cache.simt_cubin(*route, &place.arch())?;
            say!("{route}: built")?;
            fetched.cubin().resources().iter().try_for_each(|resources| say!("  {resources}"))?;
        }
        return Ok(true);
    };
    let gpu = Gpu::new(device, cache)?;
    let arch = *gpu.engine().device().arch();
    say!("floor: bytes at {:.0} GB/s; medians, operands not in the L2 cache", arch.memory_bytes_per_s() / 1e9)?;
    say!("{:>7} {:>9} {:>11} {:>9}  route", "tokens", "plain us", "dependent", "floor us")?;
    let tokens = if args.tokens.is_empty() { &TOKENS[..] } else { &args.tokens };
    let mut is_right = true;
    for route in &args.route {
        let router = gpu.engine().route(route)?;
        for tokens in tokens {
            match timed(&gpu, &router, *tokens, &arch)? {
                Ok([plain, dependent, floor]) => {
                    say!("{tokens:>7} {plain:>9.2} {dependent:>11.2} {floor:>9.2}  {route}")?;
                }
                Err(why) => {
                    is_right = false;
                    say!("{tokens:>7} WRONG: {why}  {route}")?;
                }
            }
        }
    }
    Ok(is_right)
}

/// Logits in their format.
enum Logits {
    F32(CudaSlice<f32>),
    F16(CudaSlice<f16>),
    Bf16(CudaSlice<bf16>),
}

/// The operands of one launch.
struct Set {
    logits: Logits,
    bias: CudaSlice<f32>,
    ids: CudaSlice<i32>,
    weights: CudaSlice<f32>,
    lists: CudaSlice<i32>,
}

impl Set {
    fn new(gpu: &Gpu, route: &Route, tokens: u32, logits: &[f32], bias: &[f32], ids: &[i32]) -> Result<Self> {
        let stream = gpu.stream();
        // Nothing is allocated for nothing.
        let padded = || logits.iter().copied().chain([0.0]);
        let on_device = match route.logits_format() {
            Some(Format::F16) => Logits::F16(stream.clone_htod(&padded().map(f16::from_f32).collect::<Vec<_>>())?),
            Some(Format::Bf16) => Logits::Bf16(stream.clone_htod(&padded().map(bf16::from_f32).collect::<Vec<_>>())?),
            _ => Logits::F32(stream.clone_htod(&padded().collect::<Vec<_>>())?),
        };
        Ok(Self {
            logits: on_device,
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
            let logits: Values<'_> = match &self.logits {
                Logits::F32(values) => values.into(),
                Logits::F16(values) => values.into(),
                Logits::Bf16(values) => values.into(),
            };
            RouteOperands::new(tokens, logits, &mut self.ids, &mut self.weights, &mut self.lists)
        };
        let has_bias = route.scoring() == Scoring::SigmoidBias;
        let operands = if has_bias { operands.bias(&self.bias) } else { operands };
        operands.tile(TILE).workspace(workspace)
    }
}

/// Microseconds of a plain and of a dependent launch, and those that its bytes take; or what is wrong.
fn timed(gpu: &Gpu, router: &Router, tokens: u32, arch: &Arch) -> Result<std::result::Result<[f64; 3], String>> {
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
    let timer = Timer::new(gpu.stream())?;
    let plain = timer
        .time(sets.len(), |set| router.launch(gpu.stream(), sets[set].operands(&route, tokens, &mut workspace)))?;
    let dependent = timer.time(sets.len(), |set| {
        router.launch_dependent(gpu.stream(), sets[set].operands(&route, tokens, &mut workspace))
    })?;
    Ok(Ok([plain.median_us, dependent.median_us, bytes as f64 / arch.memory_bytes_per_s() * 1e6]))
}
