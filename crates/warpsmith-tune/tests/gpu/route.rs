//! Routers against the oracle: every id and list exactly, every weight within its bound, and nothing else written.

use std::time::Duration;

use cudarc::driver::CudaSlice;
use half::{bf16, f16};
use warpsmith::format::Format;
use warpsmith::internal::build::Simt;
use warpsmith::internal::run::router;
use warpsmith::run::{RouteOperands, Router, Values, Workspace};
use warpsmith::spec::{Arch, Route, Scoring};
use warpsmith_tune::oracle::route::{Given, Routed, route as expected};
use warpsmith_tune::wait;

use crate::bench::{Bench, text};
use crate::small::Mutant;

const WAIT: Duration = Duration::from_secs(10);
/// Elements before and behind what is written, and what is there before.
const MARGIN: usize = 64;
const FILL: i32 = 0x5A5A_5A5A;
const TILE: u32 = 16;
const SCALE: f32 = 2.5;
/// In f16 it is an infinity.
const LARGEST_BF16: f32 = 3.389_531_4e38;

/// Routers, and the numbers of tokens that each is tried with: none, one, a part of a chunk, about what one block, eight and
/// sixteen take, many.
const CASES: [(&str, &[u32]); 16] = [
    ("route.softmax:bf16:e128:k8:renormalised", &[0, 1, 3, 8, 9, 17, 32, 33, 64, 65, 256, 257, 512, 513, 8192]),
    ("route.softmax:f16:e60:k4", &[0, 1, 17, 257, 1000]),
    ("route.softmax:f32:e8:k8", &[1, 31, 300]),
    ("route.softmax:f32:e8:k1:renormalised", &[3, 255, 4097]),
    ("route.softmax:f32:e160:k6:g8:keep3", &[1, 100, 513]),
    ("route.softmax:f32:e1024:k32:renormalised", &[0, 1, 17, 257]),
    ("route.sigmoid:bf16:e16:k1", &[1, 64, 300]),
    ("route.sigmoid_bias:f32:e256:k8:g8:keep4:renormalised", &[0, 1, 3, 17, 33, 256, 257, 512, 8192]),
    ("route.sigmoid_bias:f32:e384:k8:renormalised", &[1, 129, 600]),
    ("route.sigmoid_bias:f16:e896:k22", &[1, 17, 257]),
    ("route.given:e128:k8", &[0, 1, 17, 256, 257, 513, 8192]),
    ("route.given:e1024:k32", &[1, 33, 400]),
    ("route.softmax:bf16:e128:k8:renormalised:local32-64", &[0, 1, 17, 256, 257, 3000]),
    ("route.sigmoid_bias:f32:e256:k8:g8:keep4:local255-256", &[1, 33, 300]),
    ("route.softmax:f32:e60:k4:local0-45", &[17, 513]),
    ("route.given:e128:k8:local100-128", &[0, 1, 256, 1000]),
];

/// What logits are like, or ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// As of a model; every other token's are below 0.
    Normal,
    /// Few different values, none above 0, which half of them are, with either sign: ties.
    Ties,
    /// NaN, infinities and what is next to them; ids that are no expert's.
    Wrong,
    /// All tokens to the same experts.
    One,
    /// Some are another's value, or the next to it; the best of every fourth token are a lane's of the warp that chooses.
    Near,
}

const KINDS: [Kind; 5] = [Kind::Normal, Kind::Ties, Kind::Wrong, Kind::One, Kind::Near];

pub struct Case(Route, &'static [u32]);

impl Case {
    pub fn name(&self) -> String {
        format!("experts: {}", self.0)
    }
}

pub fn all() -> Vec<Case> {
    CASES.iter().map(|(route, tokens)| Case(route.parse().unwrap(), tokens)).collect()
}

/// A logit as it is in its format.
fn rounded(format: Format, value: f32) -> f32 {
    match format {
        Format::F16 => f16::from_f32(value).to_f32(),
        Format::Bf16 => bf16::from_f32(value).to_f32(),
        _ => value,
    }
}

/// What a router is given, on the host.
struct Host {
    tokens: u32,
    logits: Vec<f32>,
    bias: Vec<f32>,
    ids: Vec<i32>,
}

impl Host {
    fn new(route: &Route, tokens: u32, kind: Kind) -> Self {
        let mut random = fastrand::Rng::with_seed(u64::from(tokens) * 7 + kind as u64);
        let (experts, k) = (route.expert_count(), route.experts_per_token());
        let mut normal = || (0..6).map(|_| random.f32() - 0.5).sum::<f32>() * 2.8;
        let (mut logits, mut ids, mut bias) = (Vec::new(), Vec::new(), Vec::new());
        let Some(format) = route.logits_format() else {
            for _ in 0..tokens {
                for slot in 0..k {
                    ids.push(match kind {
                        Kind::Normal | Kind::Ties | Kind::Near => random.i32(0..experts as i32),
                        Kind::Wrong if random.u8(..) < 60 => random.i32(..),
                        Kind::Wrong => random.i32(-1..=experts as i32),
                        Kind::One => slot as i32,
                    });
                }
            }
            return Self { tokens, logits, bias, ids };
        };
        for token in 0..tokens {
            for expert in 0..experts {
                let value = normal();
                let value = match kind {
                    Kind::Normal if token % 2 == 1 => value - 12.0,
                    Kind::Normal => value,
                    Kind::Ties if value > 0.0 => 0.0,
                    Kind::Ties => value.round(),
                    Kind::Wrong => match (value * 1000.0) as i32 & 7 {
                        0 => f32::NAN,
                        1 => f32::INFINITY,
                        2 => f32::NEG_INFINITY,
                        3 => -0.0,
                        4 => LARGEST_BF16,
                        _ => value,
                    },
                    Kind::Near => {
                        // Of an expert of the next lane, of the same lane, of both another.
                        let other = logits.len().checked_sub([1, 32, 33][token as usize % 3]);
                        let other =
                            other.filter(|other| *other >= (token * experts) as usize && expert * 7 % 16 == token % 16);
                        match other {
                            Some(other) => f32::from_bits(logits[other].to_bits() + token % 2),
                            None if token % 4 == 3 && expert % 32 == token % 32 => value + 6.0,
                            None => value,
                        }
                    }
                    Kind::One => value + if expert >= experts - k { 40.0 } else { 0.0 },
                };
                logits.push(rounded(format, value));
            }
        }
        if route.scoring() == Scoring::SigmoidBias {
            bias = (0..experts).map(|_| normal() * 0.1).collect();
            match kind {
                Kind::Ties | Kind::Near => bias.fill(0.25),
                Kind::Wrong => bias[..3].copy_from_slice(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY]),
                Kind::Normal | Kind::One => {}
            }
        }
        Self { tokens, logits, bias, ids }
    }

    fn expected(&self, route: &Route) -> Result<Routed, String> {
        let given = if self.ids.is_empty() { Given::Logits(&self.logits, &self.bias) } else { Given::Ids(&self.ids) };
        expected(route, self.tokens, given, TILE, SCALE).map_err(text)
    }
}

/// Logits on the device.
enum Logits {
    F32(CudaSlice<f32>),
    F16(CudaSlice<f16>),
    Bf16(CudaSlice<bf16>),
}

/// Everything of a launch on the device, with margins around what is written.
struct Uploaded {
    route: Route,
    tokens: u32,
    logits: Logits,
    bias: CudaSlice<f32>,
    ids: CudaSlice<i32>,
    weights: CudaSlice<f32>,
    lists: CudaSlice<i32>,
    workspace: Workspace,
}

/// What a launch leaves, margins and all.
#[derive(PartialEq, Eq)]
struct Found {
    ids: Vec<i32>,
    weights: Vec<u32>,
    lists: Vec<i32>,
}

fn guarded(values: &[i32]) -> Vec<i32> {
    let margin = vec![FILL; MARGIN];
    [&margin[..], values, &margin[..]].concat()
}

impl Uploaded {
    fn new(bench: &Bench, router: &Router, host: &Host) -> Result<Self, String> {
        let (route, stream) = (*router.route(), &bench.stream);
        let rows = (host.tokens * route.experts_per_token()) as usize;
        // Behind the logits lies what would be chosen if it were read.
        let most = [f32::INFINITY; MARGIN];
        let logits = [&host.logits[..], &most].concat();
        let logits = match route.logits_format() {
            Some(Format::F16) => Logits::F16(
                stream.clone_htod(&logits.iter().map(|x| f16::from_f32(*x)).collect::<Vec<_>>()).map_err(text)?,
            ),
            Some(Format::Bf16) => {
                let logits: Vec<_> = logits.iter().map(|x| bf16::from_f32(*x)).collect();
                Logits::Bf16(stream.clone_htod(&logits).map_err(text)?)
            }
            _ => Logits::F32(stream.clone_htod(&logits).map_err(text)?),
        };
        let bias = [&host.bias[..], &most].concat();
        let ids = if host.ids.is_empty() { vec![FILL; rows] } else { host.ids.clone() };
        let weights = vec![f32::from_bits(FILL as u32); rows + 2 * MARGIN];
        Ok(Self {
            route,
            tokens: host.tokens,
            logits,
            bias: stream.clone_htod(&bias).map_err(text)?,
            ids: stream.clone_htod(&guarded(&ids)).map_err(text)?,
            weights: stream.clone_htod(&weights).map_err(text)?,
            lists: stream.clone_htod(&guarded(&vec![FILL; route.lists(host.tokens).len()])).map_err(text)?,
            workspace: router.workspace(stream, host.tokens).map_err(text)?,
        })
    }

    fn operands(&mut self) -> RouteOperands<'_> {
        let rows = (self.tokens * self.route.experts_per_token()) as usize;
        let (ids, lists) = (MARGIN..MARGIN + rows, MARGIN..MARGIN + self.route.lists(self.tokens).len());
        let experts = self.route.expert_count() as usize;
        let logits = self.tokens as usize * experts;
        let operands = if self.route.scoring() == Scoring::Given {
            RouteOperands::given(self.tokens, self.ids.slice(ids), self.lists.slice_mut(lists))
        } else {
            let logits: Values<'_> = match &self.logits {
                Logits::F32(values) => values.slice(..logits).into(),
                Logits::F16(values) => values.slice(..logits).into(),
                Logits::Bf16(values) => values.slice(..logits).into(),
            };
            let weights = self.weights.slice_mut(ids.clone());
            RouteOperands::new(self.tokens, logits, self.ids.slice_mut(ids), weights, self.lists.slice_mut(lists))
        };
        let operands = match self.route.scoring() {
            Scoring::SigmoidBias => operands.bias(self.bias.slice(..experts)),
            _ => operands,
        };
        operands.tile(TILE).scale(SCALE).workspace(&mut self.workspace)
    }

    fn found(&self, bench: &Bench) -> Result<Found, String> {
        wait(&bench.stream, WAIT).map_err(text)?;
        let weights = bench.stream.clone_dtoh(&self.weights).map_err(text)?;
        Ok(Found {
            ids: bench.stream.clone_dtoh(&self.ids).map_err(text)?,
            weights: weights.into_iter().map(f32::to_bits).collect(),
            lists: bench.stream.clone_dtoh(&self.lists).map_err(text)?,
        })
    }
}

/// What is wrong with `found`.
fn wrong(route: &Route, host: &Host, routed: &Routed, found: &Found) -> Option<String> {
    let is_given = route.scoring() == Scoring::Given;
    let ids = guarded(if is_given { &host.ids } else { &routed.ids });
    let lists = guarded(&routed.lists(vec![FILL; route.lists(host.tokens).len()]));
    let differs = |what: &str, found: &[i32], expected: &[i32]| {
        let at = found.iter().zip(expected).position(|(found, expected)| found != expected)?;
        let (found, expected) = (found[at], expected[at]);
        Some(format!("{what}: element {} is {found}, expected {expected}", at as isize - MARGIN as isize))
    };
    let inside = MARGIN..found.weights.len() - MARGIN;
    let outside = || found.weights[..inside.start].iter().chain(&found.weights[inside.end..]);
    let weights: Vec<f32> = found.weights[inside.clone()].iter().map(|bits| f32::from_bits(*bits)).collect();
    differs("ids", &found.ids, &ids)
        .or_else(|| differs("lists", &found.lists, &lists))
        .or_else(|| {
            outside().any(|bits| *bits != FILL as u32).then(|| "memory outside of the weights is written".into())
        })
        .or_else(|| routed.wrong_weight(&weights))
}

/// Every number of tokens, every kind of logits.
pub fn is_right(bench: &Bench, case: &Case) -> Result<(), String> {
    let Case(route, all_tokens) = case;
    let _turn = bench.alone();
    let engine = bench.engine();
    let router = engine.route(route).map_err(text)?;
    for tokens in *all_tokens {
        for kind in KINDS {
            let host = Host::new(route, *tokens, kind);
            let mut uploaded = Uploaded::new(bench, &router, &host)?;
            router.launch(&bench.stream, uploaded.operands()).map_err(text)?;
            let found = uploaded.found(bench)?;
            if let Some(why) = wrong(route, &host, &host.expected(route)?, &found) {
                return Err(format!("{tokens} tokens, {kind:?}: {why}"));
            }
        }
    }
    Ok(())
}

/// The bits of the first launch, however often a graph of dependent launches is replayed; of one launch and of two.
pub fn replays_are_bit_identical(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let engine = bench.engine();
    for text_of in ["route.softmax:f32:e128:k8:renormalised", "route.sigmoid_bias:bf16:e256:k8:g8:keep4"] {
        let route: Route = text_of.parse().map_err(text)?;
        let router = engine.route(&route).map_err(text)?;
        for tokens in [200, 3000] {
            let host = Host::new(&route, tokens, Kind::Ties);
            let mut uploaded = Uploaded::new(bench, &router, &host)?;
            router.launch(&bench.stream, uploaded.operands()).map_err(text)?;
            let first = uploaded.found(bench)?;
            if let Some(why) = wrong(&route, &host, &host.expected(&route)?, &first) {
                return Err(format!("{route}, {tokens} tokens: {why}"));
            }
            let graph = bench.captured(|| {
                (0..4).try_for_each(|_| router.launch_dependent(&bench.stream, uploaded.operands()).map_err(text))
            })?;
            for round in 0..50 {
                bench.stream.memset_zeros(&mut uploaded.lists.slice_mut(MARGIN..MARGIN + 64)).map_err(text)?;
                for _ in 0..20 {
                    graph.launch().map_err(text)?;
                }
                if uploaded.found(bench)? != first {
                    return Err(format!("{route}, {tokens} tokens: other bits in round {round}"));
                }
            }
        }
    }
    Ok(())
}

/// What does not fit ends in a sentence with both numbers, and nothing is launched.
pub fn bad_operands_are_refused(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let engine = bench.engine();
    let route = Route::new(Scoring::SigmoidBias).experts(64).k(4);
    let router = engine.route(&route).map_err(text)?;
    let host = Host::new(&route, 600, Kind::Normal);
    let mut uploaded = Uploaded::new(bench, &router, &host)?;
    let stream = &bench.stream;
    let mut short = stream.alloc_zeros::<i32>(2399).map_err(text)?;
    let refusals = {
        let Uploaded { logits: Logits::F32(logits), bias, ids, weights, lists, .. } = &mut uploaded else {
            return Err("the logits are f32".into());
        };
        let mut refusal = |change: &dyn Fn(RouteOperands<'_>) -> Result<(), String>, ids: &mut CudaSlice<i32>| {
            let operands = RouteOperands::new(600, &*logits, ids, &mut *weights, &mut *lists);
            change(operands.bias(&*bias)).err().unwrap_or_default()
        };
        let launch = |operands: RouteOperands<'_>| router.launch(stream, operands).map_err(text);
        [
            (refusal(&|operands| launch(operands), &mut short), "ids has 2399 elements, 2400 are needed"),
            (refusal(&|operands| launch(operands), ids), "no workspace given: 4864 elements are needed"),
            (refusal(&|operands| launch(operands.tile(0)), ids), "a tile of 0 rows: must be 1 to 65536"),
        ]
    };
    let ids = RouteOperands::given(600, &uploaded.ids, &mut uploaded.lists);
    let ids = router.launch(stream, ids).map_err(text).err().unwrap_or_default();
    let refused = engine.route(&route.k(65)).map(|_| ()).map_err(text).err().unwrap_or_default();
    let found = refusals
        .into_iter()
        .chain([(ids, "ids given, the kernel chooses by f32 logits"), (refused, "k = 65: must be 1 to 32")]);
    for (found, expected) in found {
        if !found.ends_with(expected) {
            return Err(format!("`{found}`, not `{expected}`"));
        }
    }
    Ok(())
}

/// One thing wrong in each. None can hang, and none writes where nothing of its own is.
pub fn mutants() -> Vec<Mutant> {
    let of = |route: &str| Mutant::of(route.parse::<Route>().unwrap());
    let softmax = of("route.softmax:f32:e128:k8:renormalised");
    let short = of("route.softmax:bf16:e128:k8:renormalised");
    let all = of("route.softmax:f32:e60:k4");
    let bias = of("route.sigmoid_bias:f32:e256:k8:g8:keep4:renormalised");
    let many = of("route.sigmoid_bias:f32:e384:k8:renormalised");
    let given = of("route.given:e128:k8");
    let local = of("route.softmax:f32:e128:k8:renormalised:local32-64");
    vec![
        softmax("ties to the higher expert of a lane", "keys[i] >= key;", "keys[i] > key;"),
        softmax("ties to a later lane", "at * 32 + lane : EXPERTS - 1", "at * 32 + (lane ^ 1) : EXPERTS - 1"),
        softmax(
            "NaN is the best",
            "return __fadd_rn(fminf(fmaxf(x, -LARGEST), LARGEST), 0.0f);",
            "return x == x ? __fadd_rn(fminf(fmaxf(x, -LARGEST), LARGEST), 0.0f) : LARGEST;",
        ),
        softmax("-0 is below 0", "LARGEST), 0.0f);", "LARGEST), -0.0f);"),
        softmax(
            "the last expert forgotten",
            "if (i * 32 + lane < EXPERTS) keys[i]",
            "if (i * 32 + lane < EXPERTS - 1) keys[i]",
        ),
        softmax("an expert chosen twice", "taken |= 1u << at;", "taken |= (at & 1) != 0 ? 0u : 1u << at;"),
        softmax(
            "no scale",
            "__fdiv_rn(is_slot ? e : 1.0f, all), params.scale)",
            "__fdiv_rn(is_slot ? e : 1.0f, all), 1.0f)",
        ),
        softmax(
            "the sum of half of the lanes",
            "int distance = 16; distance > 0; distance /= 2) value = __fadd_rn",
            "int distance = 2; distance > 0; distance /= 2) value = __fadd_rn",
        ),
        softmax(
            "rows in the order of lower tokens last",
            "masks[expert] & ((1u << item) - 1))",
            "masks[expert] >> item >> 1)",
        ),
        softmax(
            "the count of its own block left out",
            "if (block < rank) rows.before += here;",
            "if (block + 1 < rank) rows.before += here;",
        ),
        softmax(
            "shares of other blocks left out",
            "if (block < static_cast<int>(blockIdx.x)) before += count;",
            "if (block + 1 < static_cast<int>(blockIdx.x)) before += count;",
        ),
        softmax("chunks of a block at the same rows", "shared.before[thread] += __popc(masks[thread]);", ""),
        softmax("tiles rounded down", "all = count + rows - 1,", "all = count,"),
        softmax("tiles by the reciprocal alone", "least + (all - least * rows >= rows);", "least;"),
        softmax("the end of the offsets not written", "params.offsets[LOCAL_EXPERTS] = all.rows;", ""),
        softmax("lists of hit experts without an end", "if (expert >= all_hits) {", "if (expert > all_hits) {"),
        short("short keys too short", "return key >> 13;", "return key >> 17 << 4;"),
        short(
            "short keys: the number of another lane",
            "(NUMBERS - (i * 32 + lane_index()))",
            "(NUMBERS - (i * 32 + (lane_index() ^ 1)))",
        ),
        short(
            "a word taken twice",
            "const bool is_taken = greatest.words[0] == best;",
            "const bool is_taken = greatest.words[0] == best && lane != 3;",
        ),
        short("a lane's words not in order", "words[i] = max(words[i], word);", "words[i] = word;"),
        softmax("a word of two lanes for that of one", "(lanes & (lanes - 1)) != 0 ||", ""),
        softmax("keys that differ in the lowest bits only", "(word | PLACES) == (next | PLACES)", "false"),
        softmax("the best of the others not looked at", "lane == K - 1 ? behind : next", "next"),
        many(
            "more experts of a lane than it has words",
            "COUNT < LANE_EXPERTS && greatest.rest >= Word<SHORT>::least(last)",
            "false",
        ),
        all("the sum of a lane for that of all", "sum = sum_of_lanes(part);", "sum = part;"),
        bias(
            "a group counts by its best only",
            "key_of(settled(__fadd_rn(value_of(first), value_of(second))))",
            "first",
        ),
        bias("a group too many kept", "better < KEPT_GROUPS", "better < KEPT_GROUPS + 1"),
        bias("ties to the higher group", "group < lane ? 0 : 1", "group < lane ? 1 : 0"),
        bias(
            "weights with the bias",
            "choice.logit = lane < K ?",
            "choice.logit = lane < K ? params.bias[choice.expert] +",
        ),
        bias("no bias", "settled(bias[i * 32])", "0.0f"),
        given("the second of two equal ids has a row", "(same & ((1u << lane) - 1)) == 0", "true"),
        given("slots without an expert go to the first", "== 0 ? given : -1;", "== 0 ? given : 0;"),
        given("rows behind the last not written", "params.rows[row] = -1;", ""),
        local("local experts counted from 0", "expert - FIRST_LOCAL;", "expert;"),
        local("experts elsewhere have rows of the last", "? local : -1;", "? local : LOCAL_EXPERTS - 1;"),
        local(
            "many tokens: experts elsewhere counted",
            "mark(masks, local_of(Score::choose(params, token)), item);",
            "mark(masks, Score::choose(params, token) % LOCAL_EXPERTS, item);",
        ),
        given("slots without an expert not counted", "params.tokens * K - all.rows;", "0;"),
    ]
}

pub fn is_killed(bench: &Bench, mutant: &Mutant) -> Result<(), String> {
    let Simt::Route(route) = mutant.kernel() else { return Err("no router".to_owned()) };
    let router = router(&bench.device, route, &mutant.built(bench)?).map_err(text)?;
    let _turn = bench.alone();
    for tokens in [250, 5000] {
        for kind in KINDS {
            let host = Host::new(&route, tokens, kind);
            let mut uploaded = Uploaded::new(bench, &router, &host)?;
            router.launch(&bench.stream, uploaded.operands()).map_err(text)?;
            if wrong(&route, &host, &host.expected(&route)?, &uploaded.found(bench)?).is_some() {
                return Ok(());
            }
        }
    }
    Err("nothing is found wrong".to_owned())
}

/// Mutants that this device's kernels have.
pub fn mutants_of(arch: &Arch) -> Vec<Mutant> {
    let has_clusters = arch.capability().major >= 9;
    // Without clusters a block that is not alone has its rows from `_place`.
    mutants().into_iter().filter(|mutant| has_clusters || !mutant.from().contains("block < rank")).collect()
}
