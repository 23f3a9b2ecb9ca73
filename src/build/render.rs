//! Spec → Source. The only file that knows the template engine.
//!
//! A rendered template holds constants and includes by name and does not branch: which code is used is decided by file
//! names (`#include "fusion/interleaved.cuh"`), so that a word without a file is a compile error and never a silent
//! other branch. Rendering is strict: a name without a value is an error.

use std::borrow::Cow;
use std::sync::OnceLock;

use serde::Serialize;
use tera::{Context, Delimiters, Tera};

use super::{Header, Source};
use crate::error::{Error, Result};
use crate::format::{Format, ScaleLayout};
use crate::spec::Spec;

/// Rendered templates, by name: of kernels that compute.
const TEMPLATES: [(&str, &str); 2] =
    [("mma.cu", include_str!("../../templates/mma.cu")), ("finish.cu", include_str!("../../templates/finish.cu"))];

/// And of those that prepare weights.
const PREPARE: (&str, &str) = ("prepare.cu", include_str!("../../templates/prepare.cu"));

macro_rules! headers {
    ($($name:literal),+ $(,)?) => {
        &[$(Header { name: $name, text: include_str!(concat!("../../templates/lib/", $name)) }),+]
    };
}

/// Ordinary CUDA, given to NVRTC in memory: everything under `templates/lib/`.
const HEADERS: &[Header] = headers![
    "activation/gelu_tanh.cuh",
    "activation/none.cuh",
    "activation/silu.cuh",
    "base.cuh",
    "dequant/e2m1.cuh",
    "epilogue/direct.cuh",
    "fusion/interleaved.cuh",
    "fusion/one_product.cuh",
    "fusion/sequential.cuh",
    "fusion/single.cuh",
    "fusion/two_pass.cuh",
    "load/decoded.cuh",
    "load/half.cuh",
    "load/nvfp4.cuh",
    "mma/bf16.cuh",
    "mma/f16.cuh",
    "output/bf16.cuh",
    "output/f16.cuh",
    "output/f32.cuh",
    "output/vector.cuh",
    "pipeline.cuh",
    "prepared/scales/128x4.cuh",
    "prepared/scales/linear.cuh",
    "prepared/words/bf16.cuh",
    "prepared/words/f16.cuh",
    "ptx.cuh",
    "result/combine.cuh",
    "result/final.cuh",
    "result/partial.cuh",
    "scales/128x4.cuh",
    "scales/linear.cuh",
    "schedule/columns.cuh",
    "schedule/grouped.cuh",
    "schedule/single.cuh",
    "tile.cuh",
    "warps/uniform.cuh",
];

/// What the templates may name.
#[derive(Serialize)]
struct Names {
    name: String,
    symbol: String,
    n: u32,
    k: u32,
    groups: u32,
    products: u32,
    tokens: u32,
    columns: u32,
    tile_k: u32,
    stages: u32,
    splits: u32,
    warps_tokens: u32,
    warps_columns: u32,
    warps_k: u32,
    stage_bytes: u32,
    shared_bytes: u32,
    blocks_per_sm: u32,
    compute: &'static str,
    scales: &'static str,
    load_a: &'static str,
    load_b: &'static str,
    tile_a: &'static str,
    tile_b: &'static str,
    schedule: &'static str,
    warps: &'static str,
    fusion: &'static str,
    activation: &'static str,
    c: &'static str,
    epilogue: &'static str,
    result: &'static str,
}

impl Names {
    fn new(spec: &Spec) -> Self {
        let (problem, variant, geometry) = (spec.problem(), spec.variant(), spec.geometry());
        let (load_a, tile_a) = match problem.a_format() {
            Format::Nvfp4 => ("decoded", "DecodedTile"),
            Format::F16 | Format::Bf16 | Format::F32 => HALF,
        };
        let (load_b, tile_b) = match problem.b_format() {
            Format::Nvfp4 => ("nvfp4", "Nvfp4Tile"),
            Format::F16 | Format::Bf16 | Format::F32 => HALF,
        };
        Self {
            name: spec.name(),
            symbol: spec.symbol(),
            n: problem.columns(),
            k: problem.depth(),
            groups: problem.groups().unwrap_or(1),
            products: problem.operation().products(),
            tokens: variant.tile.tokens,
            columns: variant.tile.columns,
            tile_k: variant.tile.k,
            stages: variant.stages,
            splits: variant.split_k,
            warps_tokens: geometry.warps_tokens,
            warps_columns: geometry.warps_columns,
            warps_k: geometry.warps_k,
            stage_bytes: geometry.stage_bytes,
            shared_bytes: geometry.shared_bytes,
            blocks_per_sm: geometry.blocks_per_sm,
            compute: problem.compute_format().word(),
            scales: match problem.scale_layout() {
                ScaleLayout::Linear => "linear",
                ScaleLayout::Swizzled128x4 => "128x4",
            },
            load_a,
            load_b,
            tile_a,
            tile_b,
            schedule: if problem.groups().is_some() { "grouped" } else { "single" },
            warps: variant.warps.word(),
            fusion: variant.fusion.word(),
            activation: problem.operation().activation().word(),
            c: problem.c_format().word(),
            epilogue: variant.epilogue.word(),
            result: if spec.finish_symbol().is_some() { "partial" } else { "final" },
        }
    }
}

/// Rows of 16-bit values: the header that loads them, and its tile.
const HALF: (&str, &str) = ("half", "HalfTile");

/// Renders the CUDA text of a spec.
///
/// # Errors
/// Internal, if a template names what there is no value for.
pub fn render(spec: &Spec) -> Result<Source> {
    let wrong = |error: tera::Error| Error::internal(format!("rendering {spec}: {error}")).with_source(error);
    let context = Context::from_serialize(&Names::new(spec)).map_err(wrong)?;
    let templates = templates()?;
    let mut text = templates.render("mma.cu", &context).map_err(wrong)?;
    let mut entries = vec![spec.symbol()];
    if let Some(finish) = spec.finish_symbol() {
        text.push_str(&templates.render("finish.cu", &context).map_err(wrong)?);
        entries.push(finish);
    }
    let source = Source::new(format!("{}.cu", spec.symbol()), text, HEADERS, entries);
    Ok(source.rendered_from(spec.problem().to_string(), spec.variant().to_string()))
}

/// The text of the preparing kernel, from the values that its template names, and the headers it includes.
pub(super) fn fill_prepare(names: &impl Serialize) -> Result<(String, &'static [Header])> {
    let wrong = |error: tera::Error| Error::internal(format!("rendering {}: {error}", PREPARE.0)).with_source(error);
    let context = Context::from_serialize(names).map_err(wrong)?;
    Ok((templates()?.render(PREPARE.0, &context).map_err(wrong)?, HEADERS))
}

/// The parsed templates: once a process.
fn templates() -> Result<&'static Tera> {
    static PARSED: OnceLock<std::result::Result<Tera, String>> = OnceLock::new();
    PARSED
        .get_or_init(|| parse().map_err(|error| error.to_string()))
        .as_ref()
        .map_err(|error| Error::internal(format!("parsing the kernel templates: {error}")))
}

fn parse() -> std::result::Result<Tera, tera::Error> {
    let mut tera = Tera::new();
    // Inline PTX is full of `{%0`, which opens a block by default.
    tera.set_delimiters(Delimiters {
        block_start: Cow::Borrowed("<%"),
        block_end: Cow::Borrowed("%>"),
        variable_start: Cow::Borrowed("<{"),
        variable_end: Cow::Borrowed("}>"),
        comment_start: Cow::Borrowed("<#"),
        comment_end: Cow::Borrowed("#>"),
    })?;
    tera.autoescape_on(Vec::<&'static str>::new());
    tera.add_raw_templates(TEMPLATES)?;
    tera.add_raw_templates([PREPARE])?;
    Ok(tera)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn files_below(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                files_below(&entry.path(), &format!("{name}/"), found);
            } else {
                found.insert(name);
            }
        }
    }

    #[test]
    fn every_file_under_lib_is_a_header() {
        let mut found = BTreeSet::new();
        files_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/lib"), "", &mut found);
        let listed: BTreeSet<_> = HEADERS.iter().map(|header| header.name.to_owned()).collect();
        assert_eq!(found, listed);
    }

    #[test]
    fn every_value_is_named_by_a_template() {
        let tera = parse().unwrap();
        let named: BTreeSet<String> = TEMPLATES
            .iter()
            .flat_map(|(name, _)| tera.get_template_variables(name).unwrap())
            .map(str::to_owned)
            .collect();
        let spec = crate::spec::Spec::new(
            &crate::spec::Problem::gemm().n(64).k(64),
            &crate::spec::baseline(crate::spec::Operation::Gemm),
            &crate::spec::Arch::H200,
        )
        .unwrap();
        let given: BTreeSet<String> =
            serde_json::to_value(Names::new(&spec)).unwrap().as_object().unwrap().keys().cloned().collect();
        assert_eq!(named, given);
    }
}
