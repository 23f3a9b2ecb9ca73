//! Modules of a model: which tensors they are made of, whatever a checkpoint calls them.

mod layer;
mod mlp;
mod moe;
mod product;

use warpsmith::internal::Raise;
use warpsmith::{Error, Result};

pub use layer::Multiplier;
pub(crate) use layer::weight_format;
pub use mlp::Mlp;
pub use moe::Moe;
pub use product::{Bias, Product};

use crate::Checkpoint;
use crate::config::Experts;
use crate::weight::{Stack, Weight, find, find_stack};

/// A module of a model.
#[derive(Clone, Debug)]
#[non_exhaustive]
// One at a time.
#[allow(clippy::large_enum_variant)]
pub enum Module<'a> {
    /// One product.
    Linear(Product<'a>),
    /// Up and down.
    Mlp(Mlp<'a>),
    /// Experts.
    Moe(Moe<'a>),
}

/// What the products of an MLP are called: gate, up, down.
const NAMES: [[&str; 3]; 2] = [["gate_proj", "up_proj", "down_proj"], ["w1", "w3", "w2"]];
/// Gate above up.
const FUSED: &str = "gate_up_proj";
/// Projections that others have fused.
const QKV: [&str; 3] = ["q_proj", "k_proj", "v_proj"];

/// Finds what modules are made of.
pub(crate) struct Finder<'a>(pub(crate) &'a Checkpoint);

impl<'a> Finder<'a> {
    /// The module of this name.
    pub(crate) fn module(&self, name: &str) -> Result<Module<'a>> {
        let within = format!("{name}.");
        let is_within = |of: &str| self.0.folder.has_any(&format!("{within}{of}"));
        if is_within("experts.") {
            return self.moe(name).map(Module::Moe);
        }
        let has = |product: &str| is_within(&format!("{product}."));
        if NAMES.iter().any(|names| has(names[1]) || has(names[2])) || has(FUSED) {
            let Some(intermediate) = self.intermediate(name)? else {
                return Err(Error::data("config.json: `intermediate_size` is missing"));
            };
            return self.mlp(name, intermediate).map(Module::Mlp);
        }
        if let Some(product) = self.linear(name)? {
            return Ok(Module::Linear(product));
        }
        let mut all = self.0.modules();
        if all.iter().any(|module| module.starts_with(&within)) {
            all.retain(|module| module.starts_with(&within));
        }
        let count = all.len();
        all.truncate(4);
        let such = if count > all.len() { ", …" } else { "" };
        let known = match self.0.folder.has_any(&within) {
            true => format!("it is no layer; it holds {}{such}", all.join(", ")),
            false => format!("no tensor begins with `{within}`; {count} modules are there: {}{such}", all.join(", ")),
        };
        Err(Error::data(known))
    }

    /// I of an MLP: a shared expert's is not that of the model's.
    fn intermediate(&self, name: &str) -> Result<Option<usize>> {
        let config = self.0.config();
        let experts = config.experts();
        let last = name.rsplit('.').next().unwrap_or_default();
        Ok(match experts {
            Some(experts) if last.starts_with("shared_expert") => experts.shared_size(),
            Some(experts) if name.contains(".experts.") => Some(experts.intermediate_size()),
            _ => config.intermediate_size(),
        })
    }

    /// A product of its own, or the parts of one that others have fused, or a part of one that is fused here.
    fn linear(&self, name: &str) -> Result<Option<Product<'a>>> {
        if let Some(weight) = self.weight(name)? {
            let bias = self.bias(&format!("{name}.bias"))?;
            return Product::new(vec![weight], bias).map(Some);
        }
        let (within, last) = name.rsplit_once('.').map_or(("", name), |(within, last)| (within, last));
        if last == "qkv_proj" {
            let parts = QKV.map(|part| self.linear(&format!("{within}.{part}")));
            let mut all = Vec::new();
            for part in parts {
                let Some(part) = part? else { return Ok(None) };
                all.push(part);
            }
            return joined(all).map(Some);
        }
        let fused = format!("{within}.qkv_proj");
        if let (Some(at), Some(heads)) = (QKV.iter().position(|part| *part == last), self.0.config().heads())
            && self.weight(&fused)?.is_some()
            && let Some(product) = self.linear(&fused)?
        {
            let [q, kv] = [heads.q, heads.kv].map(|heads_of| heads_of.saturating_mul(heads.size));
            let ends = [0, q, q.saturating_add(kv), q.saturating_add(kv).saturating_add(kv)];
            if ends[3] != product.rows() {
                let (found, expected) = (product.rows(), ends[3]);
                return Err(Error::data(format!(
                    "weight `{fused}` has {found} rows, the configuration's heads {expected}"
                )));
            }
            return product.some_rows(ends[at]..ends[at + 1]).map(Some);
        }
        Ok(None)
    }

    fn mlp(&self, name: &str, intermediate: usize) -> Result<Mlp<'a>> {
        let config = self.0.config();
        let is_gated = config.architecture().is_gated();
        let hidden = config.hidden_size();
        let fused = self.linear(&format!("{name}.{FUSED}"))?;
        let names =
            NAMES.iter().find(|names| self.weight(&format!("{name}.{}", names[2])).is_ok_and(|found| found.is_some()));
        let [gate, up, down] = *names.unwrap_or(&NAMES[0]);
        let product = |part: &str| {
            let product = self.linear(&format!("{name}.{part}"))?;
            product.ok_or_else(|| Error::data(format!("tensor `{name}.{part}.weight` is missing")))
        };
        let (gate, up) = match fused {
            Some(fused) if is_gated => {
                let rows = fused.rows();
                (Some(fused.clone().some_rows(0..rows / 2)?), fused.some_rows(rows / 2..rows)?)
            }
            _ if is_gated => (Some(product(gate)?), product(up)?),
            _ => (None, product(up)?),
        };
        Mlp::new(config.activation(), gate, up, product(down)?, [hidden, intermediate])
    }

    fn moe(&self, name: &str) -> Result<Moe<'a>> {
        let config = self.0.config();
        let Some(rule) = config.experts() else {
            let architecture = config.architecture();
            return Err(Error::data(format!(
                "it has experts, which the configuration of {architecture} knows nothing of"
            )));
        };
        if self.0.folder.has(&format!("{name}.fc1_latent_proj.weight")) {
            return Err(Error::unsupported(format!(
                "`{name}.fc1_latent_proj`: experts behind a projection are not read"
            )));
        }
        let (hidden, count) = (config.hidden_size(), rule.route().expert_count() as usize);
        let experts = match self.stacked(name, rule)? {
            Some(experts) => experts,
            None => {
                let of = |expert| self.mlp(&format!("{name}.experts.{expert}"), rule.intermediate_size());
                let experts = (0..count).map(of).collect::<Result<Vec<_>>>()?;
                let beyond = format!("{name}.experts.{count}.");
                if self.0.folder.has_any(&beyond) {
                    return Err(Error::data(format!(
                        "`{name}.experts.{count}` is there, the configuration says {count} experts"
                    )));
                }
                experts
            }
        };
        Mlp::check_biases(&experts)?;
        let router = ["gate", "router", "router.layer"]
            .iter()
            .find_map(|router| self.linear(&format!("{name}.{router}")).transpose());
        let router = router.transpose()?;
        if let Some(router) = &router
            && [router.rows(), router.columns()] != [count, hidden]
        {
            let found = [router.rows(), router.columns()];
            let name = router.name();
            return Err(Error::data(format!(
                "weight `{name}` is {found:?}, the configuration says {:?}",
                [count, hidden]
            )));
        }
        let router_bias = match self.0.folder.find(&format!("{name}.gate.e_score_correction_bias")) {
            Some(bias) => bias.has_shape(&[count])?.values()?,
            None if rule.route().scoring() == warpsmith::spec::Scoring::SigmoidBias => vec![0.0; count],
            None => Vec::new(),
        };
        let shared = |size: usize| {
            let names = ["shared_expert", "shared_experts"].map(|shared| format!("{name}.{shared}"));
            let is_there = |of: &&String| self.0.folder.has_any(&format!("{of}."));
            let found = names.iter().find(is_there);
            let found = found.ok_or_else(|| Error::data(format!("`{}` or `{}` is missing", names[0], names[1])))?;
            self.mlp(found, size)
        };
        let shared_gate = match rule.is_shared_gated() && rule.shared_size().is_some() {
            true => {
                let gate = format!("{name}.shared_expert_gate");
                let of =
                    self.linear(&gate)?.ok_or_else(|| Error::data(format!("tensor `{gate}.weight` is missing")))?;
                if [of.rows(), of.columns()] != [1, hidden] {
                    let (found, expected) = ([of.rows(), of.columns()], [1, hidden]);
                    return Err(Error::data(format!(
                        "weight `{gate}` is {found:?}, the configuration says {expected:?}"
                    )));
                }
                Some(of)
            }
            false => None,
        };
        Ok(Moe {
            shared: rule.shared_size().map(shared).transpose()?,
            rule: rule.clone(),
            router,
            router_bias,
            first: 0,
            experts,
            shared_gate,
        })
    }

    /// Experts in stacks: gate and up in one, down in another.
    fn stacked(&self, name: &str, rule: &Experts) -> Result<Option<Vec<Mlp<'a>>>> {
        let config = self.0.config();
        let (architecture, hidden) = (config.architecture(), config.hidden_size());
        let stack = |of: &str, k: usize| {
            find_stack(&self.0.folder, &format!("{name}.experts.{of}"), k, architecture.is_transposed())
        };
        let Some(up) = stack(FUSED, hidden)? else { return Ok(None) };
        let down = stack("down_proj", rule.intermediate_size())?;
        let down = down.ok_or_else(|| Error::data(format!("tensor `{name}.experts.down_proj` is missing")))?;
        let count = rule.route().expert_count() as usize;
        for stack in [&up, &down] {
            if stack.len() != count {
                let (name, found) = (stack.name(), stack.len());
                return Err(Error::data(format!(
                    "tensor `{name}` has {found} experts, the configuration says {count}"
                )));
            }
        }
        (0..count).map(|expert| self.expert(&up, &down, expert, rule)).collect::<Result<Vec<_>>>().map(Some)
    }

    fn expert(&self, up: &Stack<'a>, down: &Stack<'a>, expert: usize, rule: &Experts) -> Result<Mlp<'a>> {
        let config = self.0.config();
        let weight = |stack: &Stack<'a>| {
            let weight = stack.weight(expert)?;
            self.0.quantisation.check(&weight).map(|()| weight)
        };
        let (both, of_down) = (weight(up)?, weight(down)?);
        let rows = both.rows();
        let bias = |stack: &Stack<'a>, own: std::ops::Range<usize>, step: usize, of: usize| {
            let Some(bias) = self.0.folder.find(&format!("{}_bias", stack.name())) else { return Ok(None) };
            let bias = bias.has_shape(&[rule.route().expert_count() as usize, of])?;
            Bias::of(bias, expert * of + own.start..expert * of + own.end, step).map(Some)
        };
        // Rows of gate and up take turns, or are one below the other.
        let (gate, above, step) = match config.architecture().is_interleaved() {
            true => (0..rows, 1..rows, 2),
            false => (0..rows / 2, rows / 2..rows, 1),
        };
        let part = |own: std::ops::Range<usize>| {
            Product::new(vec![both.clone().every(own.clone(), step)?], bias(up, own, step, rows)?)
        };
        let n = of_down.rows();
        let down = Product::new(vec![of_down], bias(down, 0..n, 1, n)?)?;
        Mlp::new(
            config.activation(),
            Some(part(gate)?),
            part(above)?,
            down,
            [config.hidden_size(), rule.intermediate_size()],
        )
    }

    /// The matrix of a linear layer, if there is one; what is said of it holds.
    fn weight(&self, name: &str) -> Result<Option<Weight<'a>>> {
        let weight = find(&self.0.folder, name)?;
        if let Some(weight) = &weight {
            self.0.quantisation.check(weight)?;
        }
        Ok(weight)
    }

    fn bias(&self, name: &str) -> Result<Option<Bias>> {
        let Some(bias) = self.0.folder.find(name) else { return Ok(None) };
        let elements = bias.shape.iter().product();
        Bias::of(bias, 0..elements, 1).map(Some)
    }
}

/// One below the other.
fn joined<'a>(all: Vec<Product<'a>>) -> Result<Product<'a>> {
    let formats: Vec<_> = all.iter().map(Product::bias_format).collect();
    if formats.iter().any(|format| *format != formats[0]) {
        return Err(Error::unsupported("projections with and without a bias, or of two formats, are one product"));
    }
    let bias = formats.first().copied().flatten().map(|format| {
        let values = all.iter().filter_map(Product::bias).flat_map(|bias| bias.values.iter().copied()).collect();
        Bias { format, values }
    });
    Product::new(all.iter().flat_map(Product::parts).cloned().collect(), bias)
}
