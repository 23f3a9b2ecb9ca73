//! Spec → Source. The only file that knows the template engine.
//!
//! A rendered template holds constants and includes by name and does not branch: which code is used is decided by file
//! names (`#include "fusion/interleaved.cuh"`), so that a word without a file is a compile error and never a silent
//! other branch. Rendering is strict: a name without a value is an error.

use std::borrow::Cow;
use std::sync::OnceLock;

use serde::Serialize;
use tera::{Context, Delimiters, Tera};

use super::names::{MmaNames, WgmmaNames};
use super::{Header, Source};
use crate::error::{Error, Result};
use crate::operand::PARAMS_CUH;
use crate::spec::{Layout, Spec};

/// Rendered templates, by name: of kernels that compute.
const TEMPLATES: [(&str, &str); 6] = [
    ("constants.cu", include_str!("../../templates/constants.cu")),
    ("mma.cu", include_str!("../../templates/mma.cu")),
    ("wgmma.cu", include_str!("../../templates/wgmma.cu")),
    ("prepass.cu", include_str!("../../templates/prepass.cu")),
    ("early_prepass.cu", include_str!("../../templates/early_prepass.cu")),
    ("finish.cu", include_str!("../../templates/finish.cu")),
];

/// And of those that prepare weights.
const PREPARE: (&str, &str) = ("prepare.cu", include_str!("../../templates/prepare.cu"));

macro_rules! headers {
    ($($name:literal),+ $(,)?) => {
        &[Header { name: "params.cuh", text: PARAMS_CUH }, $(Header { name: $name, text: include_str!(concat!("../../templates/lib/", $name)) }),+]
    };
}

/// Ordinary CUDA, given to NVRTC in memory: everything under `templates/lib/`, and the parameters.
const HEADERS: &[Header] = headers![
    "activation/gelu_tanh.cuh",
    "activation/none.cuh",
    "activation/silu.cuh",
    "base.cuh",
    "bias/bf16.cuh",
    "bias/column.cuh",
    "bias/f16.cuh",
    "bias/f32.cuh",
    "bias/none.cuh",
    "dequant/e2m1.cuh",
    "epilogue/direct.cuh",
    "fusion/interleaved.cuh",
    "fusion/one_product.cuh",
    "fusion/sequential.cuh",
    "fusion/single.cuh",
    "fusion/two_pass.cuh",
    "groups/grouped.cuh",
    "groups/single.cuh",
    "launch/dependent.cuh",
    "launch/plain.cuh",
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
    "row_scale/f32.cuh",
    "row_scale/none.cuh",
    "scales/128x4.cuh",
    "scales/linear.cuh",
    "schedule/columns.cuh",
    "schedule/grouped.cuh",
    "schedule/single.cuh",
    "tile.cuh",
    "warps/uniform.cuh",
    "wgmma/along_k.cuh",
    "wgmma/decode/bf16.cuh",
    "wgmma/decode/f16.cuh",
    "wgmma/epilogue/direct.cuh",
    "wgmma/epilogue/shared.cuh",
    "wgmma/epilogue/staged.cuh",
    "wgmma/epilogue/tma.cuh",
    "wgmma/filling.cuh",
    "wgmma/fusion/both_products.cuh",
    "wgmma/fusion/interleaved.cuh",
    "wgmma/fusion/one_product.cuh",
    "wgmma/fusion/per_product.cuh",
    "wgmma/fusion/ping_pong.cuh",
    "wgmma/fusion/sequential.cuh",
    "wgmma/fusion/single.cuh",
    "wgmma/fusion/two_pass.cuh",
    "wgmma/layout.cuh",
    "wgmma/prepass.cuh",
    "wgmma/ptx.cuh",
    "wgmma/result/final.cuh",
    "wgmma/result/partial.cuh",
    "wgmma/ring.cuh",
    "wgmma/rows.cuh",
    "wgmma/schedule/grouped.cuh",
    "wgmma/schedule/grouped_persistent.cuh",
    "wgmma/schedule/single.cuh",
    "wgmma/schedule/single_persistent.cuh",
    "wgmma/schedule/table.cuh",
    "wgmma/sums.cuh",
    "wgmma/tiles.cuh",
    "wgmma/tokens/decoded.cuh",
    "wgmma/tokens/multicast.cuh",
    "wgmma/tokens/tma.cuh",
    "wgmma/warps/specialised.cuh",
    "wgmma/warps/uniform.cuh",
    "wgmma/weights.cuh",
];

/// Renders the CUDA text of a spec.
///
/// # Errors
/// Internal, if a template names what there is no value for.
pub fn render(spec: &Spec) -> Result<Source> {
    let wrong = |error: tera::Error| Error::internal(format!("rendering {spec}: {error}")).with_source(error);
    let (matrix, context) = match spec.geometry().layout {
        Layout::Mma(layout) => ("mma.cu", Context::from_serialize(&MmaNames::new(spec, &layout))),
        Layout::Wgmma(layout) => ("wgmma.cu", Context::from_serialize(&WgmmaNames::new(spec, &layout))),
    };
    let context = context.map_err(wrong)?;
    let templates = templates()?;
    let mut text = templates.render(matrix, &context).map_err(wrong)?;
    let mut entries = vec![spec.symbol()];
    let others = [
        ("prepass.cu", spec.prepass_symbol()),
        ("early_prepass.cu", spec.early_prepass_symbol()),
        ("finish.cu", spec.finish_symbol()),
    ];
    for (template, symbol) in others {
        if let Some(symbol) = symbol {
            text.push_str(&templates.render(template, &context).map_err(wrong)?);
            entries.push(symbol);
        }
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
        found.insert("params.cuh".to_owned());
        let listed: BTreeSet<_> = HEADERS.iter().map(|header| header.name.to_owned()).collect();
        assert_eq!(found, listed);
    }

    /// The values of a template are those that it names, or the kernels that go with it.
    #[test]
    fn every_value_is_named_by_a_template() {
        use crate::spec::{Arch, Problem, Spec, baseline};
        let tera = parse().unwrap();
        let problem = Problem::gemm().n(64).k(64);
        for (problem, matrix) in [(problem, "mma.cu"), (problem.prepared(), "wgmma.cu")] {
            let named: BTreeSet<String> = ["constants.cu", matrix, "prepass.cu", "early_prepass.cu", "finish.cu"]
                .iter()
                .flat_map(|name| tera.get_template_variables(name).unwrap())
                .map(str::to_owned)
                .collect();
            let spec = Spec::new(&problem, &baseline(&problem), &Arch::H200).unwrap();
            let given = match spec.geometry().layout {
                Layout::Mma(layout) => serde_json::to_value(MmaNames::new(&spec, &layout)),
                Layout::Wgmma(layout) => serde_json::to_value(WgmmaNames::new(&spec, &layout)),
            };
            let given: BTreeSet<String> = given.unwrap().as_object().unwrap().keys().cloned().collect();
            assert_eq!(named, given, "{matrix}");
        }
    }
}
