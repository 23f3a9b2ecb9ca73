//! Whole layers: some elements are checked against the oracle, then the layer is timed as one captured graph, and each of its
//! steps alone, with weights and routings that are not in the L2 cache.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use warpsmith::cache::KernelCache;
use warpsmith::format::Format;
use warpsmith::internal::build::Simt;
use warpsmith::pick::{Picker, Table};
use warpsmith::spec::Arch;
use warpsmith_layers::{LayerConfig, Step};
use warpsmith_tune::layer::{DeviceLayer, DeviceTokens, HostLayer, HostTokens, Work};
use warpsmith_tune::{Pace, Timer, operand_sets, wait};

use super::Args;
use crate::shared::gpu::Gpu;
use crate::shared::layers::TOKENS;
use crate::shared::place::Place;
use crate::shared::{Result, document, say};

/// Columns that are checked, of the first and the last token.
const COLUMNS: usize = 32;
/// Bytes of the weights of all sets at most.
const SETS_BYTES: f64 = 24e9;
/// A step reads about such a part of what a layer reads; it is not to be in the L2 cache, either.
const STEPS: u64 = 3;
const LIMIT: Duration = Duration::from_secs(10);

/// Whether everything is right.
pub fn run(args: &Args, place: &Place, cache: KernelCache) -> Result<bool> {
    let tokens = if args.tokens.is_empty() { &TOKENS[..] } else { &args.tokens };
    let Place::Device(device) = place else { return built(args, tokens, place, &cache) };
    let gpu = Gpu::with_picker(device, cache, picker(args, place)?)?;
    let arch = *gpu.engine().device().arch();
    let (memory, matrix) = (arch.memory_bytes_per_s() / 1e9, arch.matrix_flop_per_s() / 1e12);
    let has = |to| args.layer.iter().any(|layer| layer.rounded() == Some(to));
    let of_e4m3 = if has(Format::E4m3) { ", of e4m3 values at twice that" } else { "" };
    let coded = arch.coded_flop_per_s() / 1e12;
    let of_nvfp4 = if has(Format::Nvfp4) { format!(", of NVFP4 ones at {coded:.0}") } else { String::new() };
    say!(
        "floor: bytes at {memory:.0} GB/s or products at {matrix:.0} TFLOP/s{of_e4m3}{of_nvfp4}; medians, weights not in the \
         L2 cache{}",
        args.load()
    )?;
    say!("{:>7} {:>9} {:>9} {:>6}  layer, and its steps alone", "tokens", "us", "floor us", "share")?;
    let (mut is_right, mut rows) = (true, Vec::new());
    for config in &args.layer {
        let skew = args.skew.unwrap_or_else(|| stated_skew(config));
        let bench = Bench::new(&gpu, config, tokens, skew, &arch)?;
        for tokens in tokens {
            match bench.timed(&gpu, *tokens, &arch, args.pace()) {
                Ok(row) => {
                    say!("{}", row.line(config))?;
                    rows.push(row.json(config, skew));
                }
                Err(why) => {
                    is_right = false;
                    say!("{tokens:>7} WRONG: {why}  {config}")?;
                    rows.push(json!({ "layer": config.to_string(), "tokens": tokens, "wrong": why.to_string() }));
                }
            }
        }
    }
    let machine = place.describe("nothing is launched").to_string();
    document(&json!({ "machine": machine, "steady": args.steady, "layers": rows }))?;
    Ok(is_right)
}

fn picker(args: &Args, place: &Place) -> Result<Picker> {
    Ok(match &args.table {
        None => place.picker(),
        Some(path) => place.picker_with(&Table::load(path)?.0)?,
    })
}

/// Without a device: the kernels are built.
fn built(args: &Args, tokens: &[u32], place: &Place, cache: &KernelCache) -> Result<bool> {
    let (arch, picker) = (place.arch(), picker(args, place)?);
    for config in &args.layer {
        let mut specs = BTreeSet::new();
        for tokens in tokens {
            for problem in config.problems(*tokens)? {
                let problem = problem.native(&arch);
                let choice = picker.choose(&problem, problem.m_limit().unwrap_or(*tokens))?;
                let fetched = cache.cubin(choice.spec())?;
                specs.insert(fetched.built().of().symbol());
            }
        }
        let mut beside: Vec<Simt> = config.quantisers().into_iter().map(Simt::from).collect();
        beside.extend(config.scalers()?.into_iter().map(Simt::from));
        if let LayerConfig::Moe(of) = config {
            beside.extend([Simt::from(*of.route()), of.combine().into()]);
            beside.extend(of.weigh().map(Simt::from));
            beside.extend(of.few_tokens(&arch).into_iter().map(Simt::from));
        }
        for simt in beside {
            specs.insert(cache.simt_cubin(simt, &arch)?.built().of().symbol());
        }
        say!("{config}: {} kernels built", specs.len())?;
    }
    Ok(true)
}

/// A layer with so many sets of weights that they are not in the L2 cache when they come round.
struct Bench {
    host: HostLayer,
    skew: f64,
    layers: Vec<DeviceLayer>,
}

/// What the layer says of its experts.
fn stated_skew(config: &LayerConfig) -> f64 {
    let LayerConfig::Moe(moe) = config else { return 0.0 };
    f64::from(moe.stated_skew().unwrap_or(0)) / 100.0
}

/// What was measured: microseconds and the floor, of the layer and of its steps.
struct Row {
    tokens: u32,
    hit: u32,
    worst: f64,
    whole: [f64; 2],
    steps: Vec<(Step, [f64; 2])>,
}

impl Bench {
    fn new(gpu: &Gpu, config: &LayerConfig, tokens: &[u32], skew: f64, arch: &Arch) -> Result<Self> {
        let host = HostLayer::random(config, 0x5EED).evenly_routed();
        let experts = match config {
            LayerConfig::Moe(of) => of.route().expert_count(),
            _ => 1,
        };
        let most = tokens.iter().copied().max().unwrap_or(1);
        let fewest = tokens.iter().copied().min().unwrap_or(1);
        let hit = hit(&host, &HostTokens::random(config, fewest, skew, 1))?;
        let read = Work::of(config, fewest, hit, None).bytes as u64 / STEPS;
        let whole = Work::of(config, fewest, experts, None).bytes;
        let room = (SETS_BYTES / whole) as usize;
        let sets = operand_sets(read, arch.l2_bytes()).min(room.max(2));
        let layers =
            (0..sets).map(|_| host.upload(gpu.engine(), gpu.stream(), most)).collect::<warpsmith::Result<_>>()?;
        wait(gpu.stream(), LIMIT)?;
        Ok(Self { host, skew, layers })
    }

    fn timed(&self, gpu: &Gpu, tokens: u32, arch: &Arch, pace: Pace) -> Result<Row> {
        let (stream, config) = (gpu.stream(), self.host.config());
        // As many sets as these tokens take.
        let host = |seed: usize| HostTokens::random(config, tokens, self.skew, 1 + seed as u64);
        let hit = hit(&self.host, &host(0))?;
        let read = Work::of(config, tokens, hit, None).bytes as u64 / STEPS;
        let sets = operand_sets(read, arch.l2_bytes()).min(self.layers.len());
        let layers = &self.layers[..sets];
        let bytes = layers[0].workspace_bytes(tokens);
        let all = (0..sets).map(|set| DeviceTokens::new(stream, &layers[set], &host(set), bytes));
        let mut all = all.collect::<warpsmith::Result<Vec<_>>>()?;

        layers[0].forward(stream, &mut all[0], None)?;
        wait(stream, LIMIT)?;
        let last = tokens as usize - 1;
        let which = if last > 0 { vec![0, last] } else { vec![0] };
        let [_, outputs] = host(0).columns();
        let columns: Vec<usize> = (0..outputs).step_by((outputs / COLUMNS).max(1)).collect();
        let reference = self.host.reference(&host(0), &which, &columns)?;
        let worst = all[0].found(stream, &layers[0])?.check(&reference, &which, &columns)?;

        let timer = Timer::new(stream)?.pace(pace);
        let mut time = |only| timer.time(sets, |set| layers[set].forward(stream, &mut all[set], only));
        let floor = |only| Work::of(config, tokens, hit, only).floor_us(arch);
        let whole = [time(None)?.median_us, floor(None)];
        let mut steps = Vec::new();
        for step in layers[0].steps(tokens) {
            steps.push((step, [time(Some(step))?.median_us, floor(Some(step))]));
        }
        Ok(Row { tokens, hit, worst, whole, steps })
    }
}

/// Experts that have tokens.
fn hit(layer: &HostLayer, tokens: &HostTokens) -> Result<u32> {
    let (ids, _) = layer.chosen(tokens)?;
    let hit: BTreeSet<i32> = ids.into_iter().filter(|id| *id >= 0).collect();
    Ok((hit.len() as u32).max(1))
}

impl Row {
    fn line(&self, config: &LayerConfig) -> String {
        let [us, floor] = self.whole;
        let steps =
            self.steps.iter().map(|(step, [us, floor])| format!("{step:?} {us:.2} ({:.0} %)", 100.0 * floor / us));
        let steps: Vec<_> = steps.collect();
        let share = 100.0 * floor / us;
        let alone = self.alone().map_or(String::new(), |alone| format!("; {alone:.3} of its steps alone"));
        format!("{:>7} {us:>9.2} {floor:>9.2} {share:>5.0}%  {config}  {}{alone}", self.tokens, steps.join(", "))
    }

    /// What the layer takes, as a share of what its steps take alone, if it has any: below 1 where one begins before the other
    /// has ended.
    fn alone(&self) -> Option<f64> {
        let alone: f64 = self.steps.iter().map(|(_, [us, _])| us).sum();
        (alone > 0.0).then(|| self.whole[0] / alone)
    }

    fn json(&self, config: &LayerConfig, skew: f64) -> Value {
        let [us, floor] = self.whole;
        let steps = self
            .steps
            .iter()
            .map(|(step, [us, floor])| json!({ "step": format!("{step:?}"), "us": us, "floor_us": floor }));
        json!({
            "layer": config.to_string(),
            "tokens": self.tokens,
            "skew": skew,
            "experts_hit": self.hit,
            "us": us,
            "floor_us": floor,
            "worst": self.worst,
            "over_steps_alone": self.alone(),
            "steps": steps.collect::<Vec<_>>(),
        })
    }
}
