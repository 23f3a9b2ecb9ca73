//! Quantisers against the oracle: every bit of codes, scales and factor, and nothing else written.

use std::time::Duration;

use cudarc::driver::CudaSlice;
use warpsmith::format::{Format, ScaleLayout};
use warpsmith::internal::build::Simt;
use warpsmith::internal::format::{BLOCK, e4m3};
use warpsmith::internal::run::quantiser;
use warpsmith::run::{QuantiseOperands, Quantiser};
use warpsmith::spec::Quantise;
use warpsmith_tune::oracle::combine::rounded;
use warpsmith_tune::oracle::quantise::{Quantised, quantise as expected};
use warpsmith_tune::{Numbers, wait};

use crate::bench::{Bench, text};
use crate::small::Mutant;

pub const WAIT: Duration = Duration::from_secs(10);
/// Bytes before and behind what is written, and what is there before.
pub const MARGIN: usize = 64;
pub const FILL: u8 = 0x5A;
pub const ROWS: [u32; 5] = [0, 1, 3, 17, 257];

pub struct Case(pub Quantise);

impl Case {
    pub fn name(&self) -> String {
        format!("quantise: {}", self.0)
    }
}

pub fn all() -> Vec<Case> {
    let layouts = [ScaleLayout::Linear, ScaleLayout::Swizzled128x4];
    let formats = [Format::F16, Format::Bf16, Format::F32];
    let of = |format, k, layout| [Quantise::new().x(format).k(k).scales(layout)].map(|of| [of, of.own()]).concat();
    let all = formats.into_iter().flat_map(|format| [64, 7168].map(|k| layouts.map(|layout| of(format, k, layout))));
    all.flatten().flatten().map(Case).collect()
}

/// A tensor, and the factor where it is given.
struct Host {
    x: Vec<f32>,
    given: Option<f32>,
}

impl Host {
    /// Blocks of every sort there is, one after the other from a random one on.
    fn new(of: &Quantise, m: u32, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let format = of.x_format();
        let length = m as usize * of.row_length() as usize;
        // Powers of two have exact ties in every format; the last two leave the range of quick quotients.
        let factor = match (seed % 5, format) {
            (0 | 1, _) => 0.125,
            (2, _) => 0.012_345_678,
            (3, Format::F32) => 1.5e-37,
            (4, Format::F32) => 3.0e33,
            _ => 1.999_999_9 / 64.0,
        };
        let mut x = Vec::with_capacity(length);
        for block in 0..length / BLOCK {
            x.extend(block_of(&mut random, (block as u64 + seed) % 10, factor, format));
        }
        // The largest magnitude, which says the own factor, is the last number. One tensor has none, and all zeros.
        if let Some(last) = x.last_mut() {
            *last = -rounded(format, factor * 2688.0);
        }
        if seed % 11 == 10 {
            x.fill(-0.0);
        }
        let given = (!of.is_own()).then_some(factor);
        Self { x, given }
    }
}

/// A block; but for infinities no magnitude is above 2688 times the factor.
pub fn block_of(random: &mut fastrand::Rng, sort: u64, factor: f32, format: Format) -> Vec<f32> {
    let scale = e4m3::decode(random.u8(0x01..0x7F));
    let divisor = scale * factor;
    let sign = |random: &mut fastrand::Rng| if random.bool() { 1.0f32 } else { -1.0 };
    let normal = |random: &mut fastrand::Rng| 12.0 * random.f32() - 6.0;
    let mut block: Vec<f32> = match sort {
        0 | 1 => (0..BLOCK).map(|_| normal(random) * divisor).collect(),
        // Midpoints of codes and their neighbours under a known scale.
        2..=4 => {
            let ties = [0.25f32, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0];
            let near = |x: f32, ulps: i32| f32::from_bits(x.to_bits().saturating_add_signed(ulps));
            let all = (0..BLOCK).map(|i| near(ties[i % 7] * divisor, random.i32(-2..3) * (i % 2) as i32));
            let mut block: Vec<_> = all.collect();
            block.iter_mut().for_each(|x| *x *= sign(random));
            block[random.usize(..BLOCK)] = 6.0 * divisor;
            block
        }
        // Midpoints of scales.
        5 => {
            let code = random.u8(0x01..0x7E);
            let middle = (e4m3::decode(code) + e4m3::decode(code + 1)) / 2.0 * 6.0 * factor;
            (0..BLOCK).map(|_| middle * random.f32()).chain([middle]).skip(1).collect()
        }
        6 => vec![if random.bool() { 0.0 } else { -0.0 }; BLOCK],
        // Powers of two down to what is subnormal in the format, or far below the smallest scale.
        7 => (0..BLOCK).map(|_| sign(random) * factor * 2f32.powi(random.i32(-40..12))).collect(),
        8 => (0..BLOCK)
            .map(|_| {
                let bits = random.u32(1..24);
                sign(random) * f32::from_bits(random.u32(..1 << bits))
            })
            .collect(),
        _ => {
            let mut block: Vec<_> = (0..BLOCK).map(|_| normal(random) * divisor).collect();
            let special = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN];
            block[random.usize(..BLOCK)] = special[random.usize(..4)];
            block
        }
    };
    // Rounding to a format with a small range may end in an infinity.
    block.iter_mut().for_each(|x| *x = rounded(format, *x));
    block
}

/// A tensor with room for what comes of it, with margins around that.
struct Uploaded {
    x: Numbers,
    given: CudaSlice<f32>,
    codes: CudaSlice<u8>,
    scales: CudaSlice<u8>,
    own: CudaSlice<f32>,
    sizes: [usize; 2],
    m: u32,
}

impl Uploaded {
    fn new(bench: &Bench, of: &Quantise, m: u32, host: &Host) -> Result<Self, String> {
        let (stream, k) = (&bench.stream, of.row_length() as usize);
        let sizes = [m as usize * k / 2, of.scale_layout().bytes(m as usize, k)];
        let filled = |bytes: usize| stream.clone_htod(&vec![FILL; bytes + 2 * MARGIN]).map_err(text);
        // Neither 0 nor a number: nothing has to be there before.
        let nan = vec![f32::NAN; Quantise::OWN_LENGTH + 2 * MARGIN];
        Ok(Self {
            x: Numbers::guarded(stream, of.x_format(), &host.x, 16).map_err(text)?,
            given: stream.clone_htod(&[host.given.unwrap_or(f32::NAN)]).map_err(text)?,
            codes: filled(sizes[0])?,
            scales: filled(sizes[1])?,
            own: stream.clone_htod(&nan).map_err(text)?,
            sizes,
            m,
        })
    }

    fn launch(&mut self, bench: &Bench, of: &Quantiser, given: Option<f32>, is_dependent: bool) -> Result<(), String> {
        let Self { x, given: on_device, codes, scales, own, sizes, m } = self;
        let inside = |bytes: usize| MARGIN..MARGIN + bytes;
        let (codes, scales) = (codes.slice_mut(inside(sizes[0])), scales.slice_mut(inside(sizes[1])));
        let operands = QuantiseOperands::new(*m, x.values(), codes, scales);
        let operands = match given {
            None => operands.own_factor(own.slice_mut(inside(Quantise::OWN_LENGTH))),
            Some(_) if is_dependent => operands.factor(&*on_device),
            Some(factor) => operands.factor(factor),
        };
        match is_dependent {
            true => of.launch_dependent(&bench.stream, operands),
            false => of.launch(&bench.stream, operands),
        }
        .map_err(text)
    }

    /// What is wrong with what is there.
    fn wrong(&self, bench: &Bench, of: &Quantise, host: &Host, expected: &Quantised) -> Result<Option<String>, String> {
        let stream = &bench.stream;
        wait(stream, WAIT).map_err(text)?;
        let (codes, scales) =
            (stream.clone_dtoh(&self.codes).map_err(text)?, stream.clone_dtoh(&self.scales).map_err(text)?);
        let own = stream.clone_dtoh(&self.own).map_err(text)?;
        for (name, found, size) in [("codes", &codes, self.sizes[0]), ("scales", &scales, self.sizes[1])] {
            if found[..MARGIN].iter().chain(&found[MARGIN + size..]).any(|byte| *byte != FILL) {
                return Ok(Some(format!("memory outside of the {name} is written")));
            }
        }
        let (before, rest) = own.split_at(MARGIN);
        let length = if of.is_own() && self.m > 0 { Quantise::OWN_LENGTH } else { 0 };
        if before.iter().chain(&rest[length..]).any(|x| x.to_bits() != f32::NAN.to_bits()) {
            return Ok(Some("memory outside of the factor is written".to_owned()));
        }
        if length > 0 && rest[0].to_bits() != expected.factor.to_bits() {
            return Ok(Some(format!("the factor is {:e}, not {:e}", rest[0], expected.factor)));
        }
        let (codes, scales) = (&codes[MARGIN..][..self.sizes[0]], &scales[MARGIN..][..self.sizes[1]]);
        if let Some(at) = (0..scales.len()).find(|at| scales[*at] != expected.scales[*at]) {
            let (found, expected) = (scales[at], expected.scales[at]);
            return Ok(Some(format!("byte {at} of the scales is {found:#04x}, not {expected:#04x}")));
        }
        let differs = (0..codes.len()).find(|at| codes[*at] != expected.codes[*at]);
        Ok(differs.map(|at| {
            let (pair, factor) = (&host.x[2 * at..][..2], expected.factor);
            let (found, expected) = (codes[at], expected.codes[at]);
            format!("byte {at} of the codes is {found:#04x}, not {expected:#04x}: {pair:?}, factor {factor:e}")
        }))
    }
}

/// Small tensors have few blocks, and so there are more of them.
fn seeds(of: &Quantise, m: u32) -> u64 {
    if m * of.row_length() < 1 << 16 { 33 } else { 2 }
}

fn wrong(bench: &Bench, quantiser: &Quantiser, m: u32, seed: u64) -> Result<Option<String>, String> {
    let of = quantiser.quantise();
    let host = Host::new(of, m, seed);
    let expected = expected(of, m, &host.x, host.given).map_err(text)?;
    for is_dependent in [false, true] {
        let mut uploaded = Uploaded::new(bench, of, m, &host)?;
        uploaded.launch(bench, quantiser, host.given, is_dependent)?;
        if let Some(why) = uploaded.wrong(bench, of, &host, &expected)? {
            return Ok(Some(format!("{m} rows, seed {seed}: {why}")));
        }
    }
    Ok(None)
}

pub fn is_right(bench: &Bench, case: &Case) -> Result<(), String> {
    let _turn = bench.alone();
    let quantiser = bench.engine().quantise(&case.0).map_err(text)?;
    for m in ROWS {
        for seed in 0..seeds(&case.0, m) {
            if let Some(why) = wrong(bench, &quantiser, m, seed)? {
                return Err(why);
            }
        }
    }
    Ok(())
}

/// Every f16 and every bf16 number, each as the largest of its block and as the smaller beside others.
pub fn every_number_is_right(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    for format in [Format::F16, Format::Bf16] {
        let of = Quantise::new().x(format).k(64);
        let quantiser = bench.engine().quantise(&of).map_err(text)?;
        let number = |bits: u16| match format {
            Format::F16 => half::f16::from_bits(bits).to_f32(),
            _ => half::bf16::from_bits(bits).to_f32(),
        };
        let alone = (0..=u16::MAX).flat_map(|bits| [number(bits), 0.5].into_iter().chain([0.0; BLOCK - 2]));
        let beside = (0..=u16::MAX).map(number);
        let x: Vec<f32> = alone.chain(beside).collect();
        for factor in [1.0, 0.3, 7.0e-5] {
            let (m, host) = ((x.len() / 64) as u32, Host { x: x.clone(), given: Some(factor) });
            let expected = expected(&of, m, &host.x, host.given).map_err(text)?;
            let mut uploaded = Uploaded::new(bench, &of, m, &host)?;
            uploaded.launch(bench, &quantiser, host.given, false)?;
            if let Some(why) = uploaded.wrong(bench, &of, &host, &expected)? {
                return Err(format!("{format}, factor {factor}: {why}"));
            }
        }
    }
    Ok(())
}

/// One capture serves every tensor, smaller ones behind larger ones too.
pub fn replays_with_other_tensors(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    for (of, m) in [("quantise:bf16:k7168:sf128x4:own", 257), ("quantise:f32:k64:own", 3)] {
        let of: Quantise = of.parse().map_err(text)?;
        let quantiser = bench.engine().quantise(&of).map_err(text)?;
        let hosts: Vec<_> = (0..6).map(|seed| Host::new(&of, m, seed)).collect();
        let tensors = hosts.iter().map(|host| Numbers::guarded(&bench.stream, of.x_format(), &host.x, 16));
        let tensors = tensors.collect::<Result<Vec<_>, _>>().map_err(text)?;
        let all = hosts.iter().map(|host| expected(&of, m, &host.x, None));
        let all = all.collect::<Result<Vec<_>, _>>().map_err(text)?;
        if all.iter().all(|one| one.factor == all[0].factor) {
            return Err("all factors are alike".into());
        }
        let mut uploaded = Uploaded::new(bench, &of, m, &hosts[0])?;
        let graph = bench.captured(|| (0..2).try_for_each(|_| uploaded.launch(bench, &quantiser, None, true)))?;
        for round in 0..60 {
            let which = round * 7 % hosts.len();
            uploaded.x.set(&bench.stream, &tensors[which]).map_err(text)?;
            graph.launch().map_err(text)?;
            if let Some(why) = uploaded.wrong(bench, &of, &hosts[which], &all[which])? {
                return Err(format!("{of}, round {round}: {why}"));
            }
        }
    }
    Ok(())
}

/// One thing wrong in each. None can hang, and none reads or writes where nothing of its own is.
pub fn mutants() -> Vec<Mutant> {
    // In f32, where every bit shows.
    let of: Quantise = "quantise:f32:k128:sf128x4:own".parse().unwrap();
    let mutant = Mutant::of(of);
    vec![
        mutant(
            "scales rounded down",
            "return rounded<0x3C800000u, 3>(kept);",
            "return __uint_as_float(__float_as_uint(kept) & 0xFFF00000u);",
        ),
        mutant(
            "ties away from zero",
            "__fadd_rn(magnitude, rounder)",
            "__fadd_rn(__uint_as_float(__float_as_uint(magnitude) + 1), rounder)",
        ),
        mutant(
            "codes that do not saturate",
            "fminf(fabsf(quotients.of(x)), 6.0f * 0x1p-14f)",
            "fabsf(quotients.of(x))",
        ),
        mutant("scales that do not saturate", "fminf(fmaxf(scale, 0x1p-9f), 448.0f)", "fmaxf(scale, 0x1p-9f)"),
        mutant("scales of 0", "fminf(fmaxf(scale, 0x1p-9f), 448.0f)", "fminf(scale, 448.0f)"),
        mutant("blocks of zeros with another scale", "most == 0.0f ? 1.0f", "most == 0.0f ? 0x1p-9f"),
        mutant("the neighbour's scale", "at / BLOCKS, at % BLOCKS)", "at / BLOCKS, (at ^ 1) % BLOCKS)"),
        mutant("a quotient by the reciprocal alone", "__fmaf_rn(x, high, __fmul_rn(x, low))", "__fmul_rn(x, high)"),
        mutant("every divisor a quick one", "divisor > 0x1p-80f && divisor < 0x1p80f", "true"),
        mutant(
            "the sign of zeros lost",
            "(__float_as_uint(x) & 0x80000000u)",
            "(x == 0.0f ? 0u : __float_as_uint(x) & 0x80000000u)",
        ),
        mutant("NaN lost", "is_nan ? 0x7F : e4m3_byte(scale)", "e4m3_byte(scale)"),
        mutant("codes beside NaN", "is_nan ? 0 : words[i]", "words[i]"),
        mutant("NaN not looked for", "max_nan(most, fabsf(", "fmaxf(most, fabsf("),
        mutant("codes in another order", "x.at(i + 4)", "x.at(7 - i)"),
        mutant("scales of padding not written", "*to = 0;", "*to = *to;"),
        mutant("the maximum of half of the tensor", "eights = 2ll * params.blocks", "eights = 1ll * params.blocks"),
        mutant("a maximum that infinities count for", "if (is_number(most)) return", "return"),
        mutant("maxima that are there from before", "if (place < MAXIMA)", "if (place < MAXIMA && threadIdx.x == 0)"),
        mutant("the first maxima alone", "i < MAXIMA / THREADS", "i < 1 / THREADS"),
        mutant("the factor of zeros", "most == 0 ? 1.0f", "false ? 1.0f"),
        mutant("the factor not written", "params.own[0] = factor;", ""),
    ]
}

pub fn is_killed(bench: &Bench, mutant: &Mutant) -> Result<(), String> {
    let Simt::Quantise(of) = mutant.kernel() else { return Err("no quantiser".to_owned()) };
    let quantiser = quantiser(&bench.device, of, &mutant.built(bench)?).map_err(text)?;
    let _turn = bench.alone();
    for seed in 0..33 {
        if wrong(bench, &quantiser, 37, seed)?.is_some() {
            return Ok(());
        }
    }
    Err("nothing is found wrong".to_owned())
}
