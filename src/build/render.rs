//! Spec → Source. The only file that knows the template engine.
//!
//! A rendered template holds constants and includes by name and does not branch: which code is used is decided by file
//! names (`#include "wgmma/tokens/tma.cuh"`), so that a word without a file is a compile error and never a silent
//! other branch. Rendering is strict: a name without a value is an error.

use std::borrow::Cow;
use std::sync::OnceLock;

use serde::Serialize;
use tera::{Context, Delimiters, Tera};

use super::names::Names;
use super::{Header, Source};
use crate::error::{Error, Result};
use crate::operand::PARAMS_CUH;
use crate::path::{Cuda, mma_sync, templates};
use crate::spec::{MatrixPath, Spec};

/// What kernels of all paths share.
const COMMON: Cuda = Cuda {
    templates: templates!["common/constants.cu", "common/finish.cu"],
    headers: templates![
        "common/activation/clamped.cuh",
        "common/activation/gelu.cuh",
        "common/activation/gelu_tanh.cuh",
        "common/activation/linear.cuh",
        "common/activation/none.cuh",
        "common/activation/relu2.cuh",
        "common/activation/silu.cuh",
        "common/activation/silu_clamp.cuh",
        "common/activation/swiglu_oai.cuh",
        "common/async.cuh",
        "common/base.cuh",
        "common/bias/bf16.cuh",
        "common/bias/column.cuh",
        "common/bias/f16.cuh",
        "common/bias/f32.cuh",
        "common/bias/none.cuh",
        "common/combine.cuh",
        "common/compute/bf16.cuh",
        "common/compute/f16.cuh",
        "common/e2m1.cuh",
        "common/groups/find.cuh",
        "common/groups/grouped.cuh",
        "common/groups/single.cuh",
        "common/output/bf16.cuh",
        "common/output/columns.cuh",
        "common/output/f16.cuh",
        "common/output/f32.cuh",
        "common/output/nvfp4/128x4.cuh",
        "common/output/nvfp4/block.cuh",
        "common/output/nvfp4/linear.cuh",
        "common/output/vector.cuh",
        "common/prepare/segment.cuh",
        "common/prepare/scales/128x4.cuh",
        "common/prepare/scales/linear.cuh",
        "common/prepare/scales/mxfp4.cuh",
        "common/prepare/store/e4m3.cuh",
        "common/prepare/store/expanded.cuh",
        "common/prepare/store/mxfp4.cuh",
        "common/prepare/store/nvfp4.cuh",
        "common/prepare/weights/mxfp4.cuh",
        "common/prepare/weights/nvfp4.cuh",
        "common/prepare/words/bf16.cuh",
        "common/prepare/words/f16.cuh",
        "common/ptx.cuh",
        "common/quantise/e4m3.cuh",
        "common/quantise/finite.cuh",
        "common/quantise/round.cuh",
        "common/quantise/scales/128x4.cuh",
        "common/quantise/scales/linear.cuh",
        "common/destination/rows.cuh",
        "common/destination/slots.cuh",
        "common/row_scale/f32.cuh",
        "common/row_scale/none.cuh",
        "common/scales/128x4.cuh",
        "common/scales/linear.cuh",
        "common/stuck/store.cuh",
        "common/stuck/trap.cuh",
        "common/words.cuh",
    ],
};

/// The parameters, which are made of the table of operands.
const PARAMS: (&str, &str) = ("common/params.cuh", PARAMS_CUH);

/// Kernels without matrix instructions.
const SIMT: Cuda = Cuda {
    templates: templates![
        "common/prepare.cu",
        "common/prepare_e4m3.cu",
        "simt/combine.cu",
        "simt/experts.cu",
        "simt/maximum.cu",
        "simt/quantise.cu",
        "simt/quantise_e4m3.cu",
        "simt/quantise_weights.cu",
        "simt/route.cu"
    ],
    headers: templates![
        "simt/addend/bf16.cuh",
        "simt/addend/f16.cuh",
        "simt/addend/f32.cuh",
        "simt/exact.cuh",
        "simt/experts/exchange.cuh",
        "simt/experts/products/e4m3.cuh",
        "simt/experts/products/half.cuh",
        "simt/logits/bf16.cuh",
        "simt/logits/f16.cuh",
        "simt/logits/f32.cuh",
        "simt/logits/none.cuh",
        "simt/ptx.cuh",
        "simt/quantise/factor/given.cuh",
        "simt/quantise/factor/own.cuh",
        "simt/quantise/params.cuh",
        "simt/quantise/span/k.cuh",
        "simt/quantise/span/row.cuh",
        "simt/quantise/x/bf16.cuh",
        "simt/quantise/x/f16.cuh",
        "simt/quantise/x/f32.cuh",
        "simt/quantise_weights/error.cuh",
        "simt/quantise_weights/params.cuh",
        "simt/quantise_weights/rule/largest.cuh",
        "simt/quantise_weights/rule/search.cuh",
        "simt/quantise_weights/stored/divide.cuh",
        "simt/quantise_weights/stored/multiply.cuh",
        "simt/route/exchange.cuh",
        "simt/route/score/given.cuh",
        "simt/route/score/sigmoid.cuh",
        "simt/route/score/sigmoid_bias.cuh",
        "simt/route/score/softmax.cuh",
        "simt/route/select.cuh",
        "simt/route/sigmoid_weight.cuh",
        "simt/rows/bf16.cuh",
        "simt/rows/f16.cuh",
        "simt/rows/f32.cuh",
        "simt/shared_gate/none.cuh",
        "simt/shared_gate/sigmoid.cuh",
        "simt/values.cuh",
    ],
};

/// The CUDA of all paths, what they share, and what needs no path.
fn all() -> impl Iterator<Item = Cuda> {
    MatrixPath::ALL.iter().map(|path| path.cuda()).chain([mma_sync::CUDA, COMMON, SIMT])
}

/// Ordinary CUDA, given to NVRTC in memory: every header under `templates/`.
fn headers() -> &'static [Header] {
    static HEADERS: OnceLock<Vec<Header>> = OnceLock::new();
    HEADERS.get_or_init(|| {
        let files = all().flat_map(|cuda| cuda.headers).chain([&PARAMS]);
        files.map(|&(name, text)| Header { name, text }).collect()
    })
}

/// What the templates name for a spec.
fn context(spec: &Spec) -> std::result::Result<Context, tera::Error> {
    let mut context = Context::from_serialize(&Names::new(spec))?;
    for (name, value) in spec.geometry().layout.names(spec.problem(), spec.variant()) {
        context.insert(name, &value);
    }
    Ok(context)
}

/// Renders the CUDA text of a spec.
///
/// # Errors
/// Internal, if a template names what there is no value for.
pub fn render(spec: &Spec) -> Result<Source> {
    let wrong = |error: tera::Error| Error::internal(format!("rendering {spec}: {error}")).with_source(error);
    let (path, context) = (spec.variant().path, context(spec).map_err(wrong)?);
    let (templates, mut text) = (templates()?, String::new());
    let kernels = [
        (format!("{path}/kernel.cu"), Some(spec.symbol())),
        (format!("{path}/prepass.cu"), spec.prepass_symbol()),
        (format!("{path}/early_prepass.cu"), spec.early_prepass_symbol()),
        ("common/finish.cu".to_owned(), spec.finish_symbol()),
    ];
    let mut entries = Vec::new();
    for (template, symbol) in kernels {
        if let Some(symbol) = symbol {
            text.push_str(&templates.render(&template, &context).map_err(wrong)?);
            entries.push(symbol);
        }
    }
    let source = Source::new(format!("{}.cu", spec.symbol()), text, headers(), entries);
    Ok(source.rendered_from(spec.problem().to_string(), spec.variant().to_string()))
}

/// The text of a template, from the values that it names, and the headers it includes.
pub(super) fn fill(template: &str, names: &impl Serialize) -> Result<(String, &'static [Header])> {
    let wrong = |error: tera::Error| Error::internal(format!("rendering {template}: {error}")).with_source(error);
    let context = Context::from_serialize(names).map_err(wrong)?;
    Ok((templates()?.render(template, &context).map_err(wrong)?, headers()))
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
    tera.add_raw_templates(all().flat_map(|cuda| cuda.templates).copied())?;
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
    fn every_file_is_listed() {
        let mut found = BTreeSet::new();
        files_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("templates"), "", &mut found);
        let files = all().flat_map(|cuda| cuda.templates.iter().chain(cuda.headers));
        let listed: BTreeSet<_> = files.map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(found, listed);
    }

    /// The values of a template are those that it names, or the kernels that go with it.
    #[test]
    fn every_value_is_named_by_a_template() {
        use crate::spec::{Arch, Problem, baseline};
        let tera = parse().unwrap();
        let problem = Problem::gemm().n(64).k(64);
        for problem in [problem, problem.prepared()] {
            let spec = Spec::new(&problem, &baseline(&problem), &Arch::H200).unwrap();
            let named: BTreeSet<String> = [spec.variant().path.cuda(), COMMON]
                .iter()
                .flat_map(|cuda| cuda.templates)
                .flat_map(|(name, _)| tera.get_template_variables(name).unwrap())
                .map(str::to_owned)
                .collect();
            let given: BTreeSet<String> = serde_json::to_value(Names::new(&spec))
                .unwrap()
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .chain(
                    spec.geometry().layout.names(&problem, spec.variant()).iter().map(|(name, _)| (*name).to_owned()),
                )
                .collect();
            assert_eq!(named, given, "{spec}");
        }
    }
}
