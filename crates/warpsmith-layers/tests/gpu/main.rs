//! Layers on a GPU against the oracle: every element within its bound, nothing else written, the same bits whole, in chunks and
//! replayed; layers of a list, and random ones by `WARPSMITH_TEST_SEED`. Without a GPU every trial is counted as ignored, and
//! those of layers that its GPU has no kernels for.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::process::ExitCode;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cudarc::driver::CudaStream;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use half::bf16;
use libtest_mimic::{Arguments, Trial};
use warpsmith::cache::KernelCache;
use warpsmith::engine::{Engine, Rows};
use warpsmith::format::Format;
use warpsmith::pick::{Picker, Policy};
use warpsmith::run::Device;
use warpsmith_layers::{LayerConfig, Step};
use warpsmith_testing::layers;
use warpsmith_tune::layer::{DeviceLayer, DeviceTokens, HostLayer, HostTokens};
use warpsmith_tune::oracle::Reference;
use warpsmith_tune::wait;

mod by_hand;
use by_hand::{Hand, Mutant};

const WAIT: Duration = Duration::from_secs(10);
const TOKENS: [u32; 6] = [0, 1, 3, 8, 17, 257];
const LIMIT: u32 = 300;
/// How often a graph is replayed, as long as that takes no longer: an emulated GPU takes longer for a few.
const REPLAYS: u64 = 1000;
const REPLAYED: Duration = Duration::from_secs(5);
const REPLAYED_AT_LEAST: u64 = 11;

/// Its tokens are copied, with zeros behind them.
const PADDED: &str = "linear:f16:n272:k208:bias_f16";

const LAYERS: &[&str] = &[
    "linear:f16:n272:k256",
    "linear:bf16:n64:k512:bias_f32",
    PADDED,
    "linear:bf16:n48:k16",
    "linear:f16:n272:k192:row_scale:bias_bf16",
    "linear:bf16:n272:k192:row_scale:e4m3",
    "mlp.silu:f16:h256:i704",
    "mlp.silu:bf16:h512:i96",
    "mlp.relu2:f16:h256:i96",
    "mlp.swiglu_oai:bf16:h320:i320:bias_bf16",
    "mlp.gelu:f16:h256:i96:ungated",
    "mlp.relu2:bf16:h192:i1856",
    "moe.silu:f16:h256:i96:softmax:e8:k1:renormalised",
    "moe.silu:bf16:h256:i192:softmax:bf16:e128:k8:renormalised",
    "moe.silu:bf16:h256:i96:sigmoid_bias:e60:k8:g4:keep2:renormalised:shared96:residual",
    "moe.silu:f16:h256:i128:sigmoid_bias:e128:k8:renormalised:shared64",
    "moe.relu2:f16:h256:i96:sigmoid_bias:e60:k8:renormalised:shared192",
    "moe.relu2:bf16:h256:i64:softmax:f16:e8:k1",
    "moe.swiglu_oai:f16:h320:i320:softmax:e8:k4:renormalised:bias_f16:residual",
    "moe.swiglu_oai:bf16:h320:i96:softmax:e128:k4:renormalised:bias_f32",
    "moe.silu:bf16:h128:i96:sigmoid_bias:e384:k22:renormalised",
    "moe.silu:f16:h128:i64:softmax:e896:k1",
    "moe.silu:bf16:h256:i96:softmax:e60:k8:renormalised:local20-35:shared64:residual",
    "moe.relu2:f16:h128:i64:sigmoid_bias:e16:k8:renormalised:local12-16",
    "moe.silu:f16:h256:i704:softmax:e8:k8:renormalised:residual",
    "moe.silu:bf16:h256:i96:softmax:e8:k2:renormalised:shared64:shared_gate",
    "moe.silu:f16:h1280:i64:softmax:e16:k4:shared128:shared_gate:residual",
    "moe.silu:bf16:h256:i96:sigmoid:e16:k1:shared96:weighted_inputs",
    "moe.silu:f16:h320:i64:sigmoid:f16:e8:k1:weighted_inputs:residual",
    "moe.silu:bf16:h256:i96:softmax:e60:k1:weighted_inputs",
    "moe.gelu:f16:h256:i96:sigmoid_bias:bf16:e16:k1:renormalised:shared64:weighted_inputs",
    "linear:f16:n272:k256:bias_f16:mxfp4",
    "linear:bf16:n272:k288:mxfp4",
    "mlp.silu:bf16:h512:i96:mxfp4",
    "moe.swiglu_oai:bf16:h320:i320:softmax:e8:k4:renormalised:bias_bf16:mxfp4",
    "moe.silu:bf16:h256:i96:softmax:e8:k2:renormalised:shared64:mxfp4:residual",
    "linear:f16:n272:k192:e4m3",
    "linear:bf16:n272:k176:e4m3",
    "linear:bf16:n64:k512:bias_f32:e4m3",
    "mlp.silu:f16:h256:i96:e4m3",
    "mlp.relu2:bf16:h192:i320:e4m3",
    "mlp.swiglu_oai:bf16:h320:i320:bias_bf16:e4m3",
    "linear:bf16:n272:k176:e4m3:expanded",
    "mlp.silu:f16:h256:i96:e4m3:expanded",
    "moe.silu:f16:h256:i96:softmax:e8:k1:renormalised:e4m3",
    "moe.silu:bf16:h128:i96:softmax:e60:k8:renormalised:local20-35:shared64:e4m3:expanded:residual",
    "moe.silu:bf16:h128:i64:softmax:bf16:e128:k8:renormalised:e4m3",
    "moe.silu:bf16:h128:i96:sigmoid_bias:e60:k8:g4:keep2:renormalised:shared192:e4m3:residual",
    "moe.relu2:f16:h192:i64:sigmoid_bias:e60:k4:renormalised:shared320:e4m3",
    "moe.silu:bf16:h128:i96:softmax:e60:k8:renormalised:local20-35:shared64:e4m3:residual",
    "moe.silu:bf16:h192:i96:sigmoid:e16:k1:shared320:weighted_inputs:e4m3",
    "moe.swiglu_oai:f16:h320:i64:softmax:e8:k4:shared128:shared_gate:bias_f16:e4m3",
    "linear:f16:n272:k192:nvfp4",
    "linear:bf16:n272:k208:nvfp4",
    "linear:bf16:n64:k512:bias_f32:nvfp4",
    "mlp.silu:f16:h256:i96:nvfp4",
    "mlp.relu2:bf16:h192:i320:nvfp4",
    "mlp.swiglu_oai:bf16:h320:i320:bias_bf16:nvfp4",
    "moe.silu:f16:h256:i96:softmax:e8:k1:renormalised:nvfp4",
    "moe.silu:bf16:h128:i64:softmax:bf16:e128:k8:renormalised:nvfp4",
    "moe.silu:bf16:h128:i96:sigmoid_bias:e60:k8:g4:keep2:renormalised:shared192:nvfp4:residual",
    "moe.relu2:f16:h192:i64:sigmoid_bias:e60:k4:renormalised:shared320:nvfp4",
    "moe.silu:bf16:h128:i96:softmax:e60:k8:renormalised:local20-35:shared64:nvfp4:residual",
    "moe.silu:bf16:h192:i96:sigmoid:e16:k1:shared320:weighted_inputs:nvfp4",
    "moe.swiglu_oai:f16:h320:i64:softmax:e8:k4:shared128:shared_gate:bias_f16:nvfp4",
];

static RANDOM: LazyLock<Vec<String>> =
    LazyLock::new(|| layers::random(|text| text.parse().is_ok_and(|layer: LayerConfig| layer.problems(LIMIT).is_ok())));

struct Bench {
    device: Device,
    cache: Arc<KernelCache>,
    stream: Arc<CudaStream>,
    turn: Mutex<()>,
}

impl Bench {
    fn open() -> warpsmith::Result<Self> {
        let device = Device::open(0)?;
        // SAFETY: the one stream below is the only one in this process.
        unsafe { device.context().disable_event_tracking() };
        let stream = device.context().new_stream()?;
        let cache = Arc::new(KernelCache::builder().install_if_missing().build());
        Ok(Self { device, cache, stream, turn: Mutex::new(()) })
    }

    /// Whether there are such on this device: of e4m3 products there are on Hopper alone.
    fn has_kernels_of(&self, layer: &str) -> bool {
        let layer: LayerConfig = layer.parse().unwrap();
        layer.manifest(&Rows::new(1..=LIMIT).unwrap(), self.device.arch()).is_ok()
    }

    fn engine(&self) -> Engine {
        Engine::with_cache(&self.device, Arc::clone(&self.cache))
    }

    /// Whose kernels give a row the same bits at every M.
    fn invariant(&self) -> Result<Engine, String> {
        let picker = Picker::builder(self.device.name(), self.device.arch()).policy(Policy::BatchInvariant);
        let picker = picker.build().map_err(text)?;
        Ok(Engine::with_cache_and_picker(&self.device, Arc::clone(&self.cache), picker))
    }

    fn alone(&self) -> MutexGuard<'_, ()> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.device.reclaim();
        turn
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

type Test = fn(&Bench, &str) -> Result<(), String>;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let bench = match Bench::open() {
        Ok(bench) => Some(Arc::new(bench)),
        Err(why) => {
            eprintln!("SKIPPED: no layer is launched: {why}");
            None
        }
    };
    let tests: [(&str, Test); 4] = [
        ("right", is_right),
        ("right at awkward routings", is_right_at_awkward_routings),
        ("the same in chunks", is_the_same_in_chunks),
        ("the same replayed", is_the_same_replayed),
    ];
    let mut trials = Vec::new();
    let random = RANDOM.iter().map(|layer| ("random: ", layer.as_str()));
    for (kind, layer) in LAYERS.iter().map(|layer| ("", *layer)).chain(random) {
        for (name, test) in &tests {
            let is_of_experts = layer.starts_with("moe.");
            let is_replayed = *name == "the same replayed" && layer == PADDED;
            if is_of_experts || is_replayed || ["right", "the same in chunks"].contains(name) {
                trials.push(trial(&bench, format!("layers: {kind}{layer}: {name}"), layer, *test));
            }
        }
    }
    let of_rounded: [(&str, Test); 3] = [
        ("the bits of its kernels", has_the_bits_of_its_kernels),
        ("mutants refused", refuses_mutants),
        ("no number", keeps_what_is_no_number),
    ];
    for layer in by_hand::LAYERS {
        for (name, test) in of_rounded {
            trials.push(trial(&bench, format!("layers: {layer}: {name}"), layer, test));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(bench: &Option<Arc<Bench>>, name: String, layer: &'static str, test: Test) -> Trial {
    let ignored = bench.as_ref().is_none_or(|bench| !bench.has_kernels_of(layer));
    let bench = bench.clone();
    let run = move || match bench {
        Some(bench) => test(&bench, layer).map_err(Into::into),
        None => Err("there is no GPU".into()),
    };
    Trial::test(name, run).with_ignored_flag(ignored)
}

/// A layer on the host and on the device.
struct Layer<'a> {
    stream: &'a Arc<CudaStream>,
    host: HostLayer,
    device: DeviceLayer,
    is_random: bool,
}

/// What should come of some tokens, all columns of it; nothing, of none.
struct Wanted {
    which: Vec<usize>,
    columns: Vec<usize>,
    reference: Option<Reference>,
}

impl Wanted {
    fn of(layer: &HostLayer, tokens: &HostTokens) -> Result<Self, String> {
        let [which, columns] = tokens.everything();
        let reference = (!which.is_empty()).then(|| layer.reference(tokens, &which, &columns)).transpose();
        Ok(Self { reference: reference.map_err(text)?, which, columns })
    }
}

/// These with what should come of them, made before the device is one's own: others have it meanwhile.
fn asked(layer: &HostLayer, tokens: HostTokens) -> Result<(HostTokens, Wanted), String> {
    let wanted = Wanted::of(layer, &tokens)?;
    Ok((tokens, wanted))
}

fn host_layer(layer: &str) -> Result<HostLayer, String> {
    Ok(HostLayer::random(&layer.parse().map_err(text)?, 0x1A7E))
}

fn dense(layer: &HostLayer, tokens: u32) -> HostTokens {
    HostTokens::random(layer.config(), tokens, 0.0, u64::from(tokens) + 1)
}

/// Few elements that are not 0 where products are e4m3: the bounds of others are wide.
fn sparse(layer: &HostLayer, tokens: u32) -> HostTokens {
    let dense = dense(layer, tokens);
    if layer.config().rounded() == Some(Format::E4m3) { dense.sparse(u64::from(tokens)) } else { dense }
}

impl<'a> Layer<'a> {
    fn new(bench: &'a Bench, engine: &Engine, layer: &str) -> Result<Self, String> {
        Self::of(bench, engine, host_layer(layer)?)
    }

    fn of(bench: &'a Bench, engine: &Engine, host: HostLayer) -> Result<Self, String> {
        let device = host.upload(engine, &bench.stream, LIMIT).map_err(text)?;
        let is_random = RANDOM.contains(&host.config().to_string());
        Ok(Self { stream: &bench.stream, host, device, is_random })
    }

    fn tokens(&self, tokens: u32) -> HostTokens {
        sparse(&self.host, tokens)
    }

    fn dense(&self, tokens: u32) -> HostTokens {
        dense(&self.host, tokens)
    }

    /// On the device, with a workspace for so many at a time.
    fn upload(&self, tokens: &HostTokens, room: u32) -> Result<DeviceTokens, String> {
        DeviceTokens::new(self.stream, &self.device, tokens, self.device.workspace_bytes(room)).map_err(text)
    }

    fn run(&self, tokens: &mut DeviceTokens) -> Result<Vec<u8>, String> {
        self.device.forward(self.stream, tokens, None).map_err(text)?;
        self.found(tokens)
    }

    fn found(&self, tokens: &DeviceTokens) -> Result<Vec<u8>, String> {
        wait(self.stream, WAIT).map_err(text)?;
        let found = tokens.found(self.stream, &self.device).map_err(text)?;
        if found.is_inside { Ok(found.bytes) } else { Err("memory outside is written".to_owned()) }
    }

    /// Holds every element that is there to the oracle.
    fn check(&self, host: &HostTokens, tokens: &DeviceTokens) -> Result<(), String> {
        self.check_as(&Wanted::of(&self.host, host)?, tokens)
    }

    fn check_as(&self, Wanted { which, columns, reference }: &Wanted, tokens: &DeviceTokens) -> Result<(), String> {
        wait(self.stream, WAIT).map_err(text)?;
        let found = tokens.found(self.stream, &self.device).map_err(text)?;
        let Some(reference) = reference else {
            return if found.is_inside { Ok(()) } else { Err("memory outside is written".to_owned()) };
        };
        let worst = found.check(reference, which, columns).map_err(text)?;
        // A check that nothing reaches is none; of random layers few tokens may all go to experts of others.
        if worst > 0.0 || self.is_random { Ok(()) } else { Err("nothing is off at all".to_owned()) }
    }
}

fn is_right(bench: &Bench, layer: &str) -> Result<(), String> {
    let host = host_layer(layer)?;
    let is_rounded = host.config().rounded() == Some(Format::E4m3);
    let all = TOKENS.map(|count| {
        let densely = is_rounded.then(|| asked(&host, dense(&host, count)));
        (count, asked(&host, sparse(&host, count)), densely)
    });
    let _turn = bench.alone();
    let layer = Layer::of(bench, &bench.engine(), host)?;
    for (count, sparsely, densely) in all {
        let (host, wanted) = sparsely?;
        let mut tokens = layer.upload(&host, LIMIT)?;
        let first = layer.run(&mut tokens)?;
        layer.check_as(&wanted, &tokens).map_err(|why| format!("{count} tokens: {why}"))?;
        if layer.run(&mut tokens)? != first {
            return Err(format!("{count} tokens: other bits the second time"));
        }
        if let Some((host, wanted)) = densely.transpose()? {
            let mut tokens = layer.upload(&host, LIMIT)?;
            layer.run(&mut tokens)?;
            layer.check_as(&wanted, &tokens).map_err(|why| format!("{count} dense tokens: {why}"))?;
        }
        let (ids, weights) = layer.host.chosen(&host).map_err(text)?;
        if !ids.is_empty() {
            let (ids, weights) = (layer.stream.clone_htod(&ids), layer.stream.clone_htod(&weights));
            let (ids, weights) = (ids.map_err(text)?, weights.map_err(text)?);
            let mut tokens = layer.upload(&host, LIMIT)?;
            layer.device.forward_chosen(layer.stream, &mut tokens, &ids, &weights).map_err(text)?;
            layer.check_as(&wanted, &tokens).map_err(|why| format!("{count} tokens that were chosen: {why}"))?;
        }
    }
    Ok(())
}

/// All tokens to the same experts, in exact ties, with no number among the logits.
fn is_right_at_awkward_routings(bench: &Bench, layer: &str) -> Result<(), String> {
    let of_host = host_layer(layer)?;
    let mut all = Vec::new();
    for count in [5, 17, 257] {
        let host = sparse(&of_host, count);
        let experts = host.logits().len() / host.count();
        let of = |logit: &dyn Fn(usize) -> f32| (0..host.logits().len()).map(|at| logit(at % experts)).collect();
        let routings: [(&str, Vec<f32>); 4] = [
            ("all to the last", of(&|expert| expert as f32)),
            ("all to the first", of(&|expert| if expert == 0 { 8.0 } else { -(expert as f32) })),
            ("ties", vec![0.0; host.logits().len()]),
            ("no numbers", of(&|expert| [f32::NAN, f32::INFINITY, 1.0, f32::NEG_INFINITY][expert % 4])),
        ];
        for (name, logits) in routings {
            all.push((count, name, asked(&of_host, host.clone().with_logits(logits))?));
        }
    }
    let _turn = bench.alone();
    let layer = Layer::of(bench, &bench.engine(), of_host)?;
    for (count, name, (host, wanted)) in all {
        let mut tokens = layer.upload(&host, LIMIT)?;
        layer.run(&mut tokens)?;
        layer.check_as(&wanted, &tokens).map_err(|why| format!("{count} tokens, {name}: {why}"))?;
    }
    Ok(())
}

fn is_the_same_in_chunks(bench: &Bench, layer: &str) -> Result<(), String> {
    let _turn = bench.alone();
    let config: LayerConfig = layer.parse().map_err(text)?;
    if config.rounded() == Some(Format::Nvfp4) {
        return is_that_of_its_chunks(bench, layer);
    }
    let layer = Layer::new(bench, &bench.invariant()?, layer)?;
    let host = layer.tokens(257);
    let mut whole = layer.upload(&host, LIMIT)?;
    let expected = layer.run(&mut whole)?;
    layer.check(&host, &whole)?;
    for room in [1, 7, 100, 256] {
        if layer.run(&mut layer.upload(&host, room)?)? != expected {
            return Err(format!("other bits with a workspace for {room} tokens"));
        }
    }
    Ok(())
}

/// Rows of one call have one factor, so that each chunk is as it is alone; kernels whose bits are to be those of any other tokens
/// beside them are refused.
fn is_that_of_its_chunks(bench: &Bench, layer: &str) -> Result<(), String> {
    let Err(why) = Layer::new(bench, &bench.invariant()?, layer) else {
        return Err("made with batch-invariant kernels".to_owned());
    };
    if !why.contains("a token's bits depend on the others") {
        return Err(why);
    }
    let layer = Layer::new(bench, &bench.engine(), layer)?;
    let host = layer.tokens(257);
    for room in [1, 100, 256] {
        // What one token needs may be room for more.
        let bytes = |tokens: &u32| layer.device.workspace_bytes(*tokens);
        let room = (room..LIMIT).take_while(|more| bytes(more) == bytes(&room)).last().unwrap_or(room);
        let chunks = (0..257).step_by(room as usize).map(|first| host.part(first..(first + room as usize).min(257)));
        // The first alone, and the last: of one token at a time there are many.
        let chunks: Vec<_> = chunks.collect();
        let found = layer.run(&mut layer.upload(&host, room)?)?;
        let bytes = found.len() / 257;
        for (nth, chunk) in chunks.iter().enumerate().filter(|(nth, _)| [0, chunks.len() - 1].contains(nth)) {
            let mut alone = layer.upload(chunk, room)?;
            let expected = layer.run(&mut alone)?;
            layer.check(chunk, &alone).map_err(|why| format!("chunk {nth} of {room} tokens: {why}"))?;
            if found[nth * room as usize * bytes..][..expected.len()] != expected {
                return Err(format!("chunk {nth} of {room} tokens: other bits than alone"));
            }
        }
    }
    Ok(())
}

/// Graphs of few tokens and of more, replayed with routings that change, give what launches give.
fn is_the_same_replayed(bench: &Bench, layer: &str) -> Result<(), String> {
    let _turn = bench.alone();
    let layer = Layer::new(bench, &bench.engine(), layer)?;
    [5, 17].into_iter().try_for_each(|count| replays_the_same(&layer, count))
}

fn replays_the_same(layer: &Layer<'_>, count: u32) -> Result<(), String> {
    let (stream, host) = (layer.stream, layer.tokens(count));
    let (mut eager, mut captured) = (layer.upload(&host, LIMIT)?, layer.upload(&host, LIMIT)?);
    layer.run(&mut captured)?;
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).map_err(text)?;
    let put = layer.device.forward(stream, &mut captured, None);
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags).map_err(text);
    put.map_err(text)?;
    let graph = graph?.ok_or("nothing was captured")?;
    let (start, mut replays, mut seen) = (Instant::now(), 0u64, Vec::new());
    let asked: Option<u64> = std::env::var("WARPSMITH_TEST_REPLAYS").ok().and_then(|text| text.parse().ok());
    let goes_on = |replays| match asked {
        Some(asked) => replays < asked,
        None => replays < REPLAYS && start.elapsed() < REPLAYED,
    };
    while replays < REPLAYED_AT_LEAST || goes_on(replays) {
        let other = HostTokens::random(layer.host.config(), count, (replays % 3) as f64 / 2.0, replays);
        for tokens in [&mut eager, &mut captured] {
            match other.logits() {
                [] => tokens.set_x(stream, other.x()),
                logits => tokens.set_logits(stream, logits),
            }
            .map_err(text)?;
        }
        let expected = layer.run(&mut eager)?;
        graph.launch().map_err(text)?;
        if layer.found(&captured)? != expected {
            return Err(format!("{count} tokens: other bits at replay {replays}"));
        }
        seen.push(expected);
        seen.truncate(2);
        replays += 1;
    }
    if seen.first() != seen.last() || layer.is_random {
        Ok(())
    } else {
        Err(format!("{replays} replays, and nothing changes"))
    }
}

/// Dense tokens, whose bounds are wide, and others: to the bit, where they are not one launch.
fn has_the_bits_of_its_kernels(bench: &Bench, layer: &str) -> Result<(), String> {
    let _turn = bench.alone();
    let engine = bench.engine();
    let layer = Layer::new(bench, &engine, layer)?;
    let hand = Hand::new(&engine, layer.stream, &layer.host, LIMIT)?;
    for count in [1, 3, 9, 17, 257] {
        if layer.device.steps(count).contains(&Step::Experts) {
            continue;
        }
        for host in [layer.dense(count), layer.tokens(count)] {
            let found = layer.run(&mut layer.upload(&host, LIMIT)?)?;
            if found != hand.forward(&host, Mutant::None).map_err(text)? {
                return Err(format!("{count} tokens: other bits than those of its kernels"));
            }
        }
    }
    Ok(())
}

/// NaN and infinities are NaN in the rows of their tokens, and change no bit of others. Of NVFP4, NaN is; infinities are the largest
/// numbers that there are, and the factor of all is another where a token is: so that this is the oracle's to say.
fn keeps_what_is_no_number(bench: &Bench, layer: &str) -> Result<(), String> {
    let _turn = bench.alone();
    let layer = Layer::new(bench, &bench.engine(), layer)?;
    [8, 17].into_iter().try_for_each(|count| keeps_in(&layer, count))
}

fn keeps_in(layer: &Layer<'_>, count: u32) -> Result<(), String> {
    const WRONG: [(usize, f32); 3] = [(2, f32::NAN), (7, f32::INFINITY), (16, f32::NEG_INFINITY)];
    let wrong = WRONG.iter().filter(|(token, _)| *token < count as usize);
    let host = layer.dense(count);
    let plain = layer.run(&mut layer.upload(&host, LIMIT)?)?;
    let [columns, outputs] = host.columns();
    let mut x = host.x().to_vec();
    wrong.for_each(|(token, value)| x[token * columns + 5 * token] = *value);
    let host = HostTokens::given(layer.host.config(), x, host.logits().to_vec());
    let mut tokens = layer.upload(&host, LIMIT)?;
    let found = layer.run(&mut tokens)?;
    if layer.host.config().rounded() == Some(Format::Nvfp4) {
        return layer.check(&host, &tokens);
    }
    for (token, (found, plain)) in found.chunks(2 * outputs).zip(plain.chunks(2 * outputs)).enumerate() {
        let is_nan = |bytes: &[u8]| bf16::from_le_bytes([bytes[0], bytes[1]]).is_nan();
        let is_right = match WRONG.iter().any(|(wrong, _)| *wrong == token) {
            true => found.chunks(2).all(is_nan),
            false => found == plain,
        };
        if !is_right {
            return Err(format!("token {token} is not what it should be"));
        }
    }
    Ok(())
}

fn refuses_mutants(bench: &Bench, layer: &str) -> Result<(), String> {
    let _turn = bench.alone();
    let engine = bench.engine();
    let layer = Layer::new(bench, &engine, layer)?;
    let hand = Hand::new(&engine, layer.stream, &layer.host, LIMIT)?;
    let host = layer.tokens(17);
    let [which, columns] = host.everything();
    let reference = layer.host.reference(&host, &which, &columns).map_err(text)?;
    let mut tokens = layer.upload(&host, LIMIT)?;
    layer.run(&mut tokens)?;
    let mut found = tokens.found(layer.stream, &layer.device).map_err(text)?;
    found.check(&reference, &which, &columns).map_err(text)?;
    for mutant in Mutant::ALL {
        found.bytes = hand.forward(&host, mutant).map_err(text)?;
        if let Ok(worst) = found.check(&reference, &which, &columns) {
            return Err(format!("{mutant:?} is right, by {worst} of a bound"));
        }
    }
    Ok(())
}
