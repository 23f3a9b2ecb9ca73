//! A model's folder.

use std::collections::BTreeSet;
use std::path::Path;

use warpsmith::format::Format;
use warpsmith::{Error, Result};
use warpsmith_layers::LayerConfig;

use crate::config::{Config, Quantisation};
use crate::folder::{Folder, object};
use crate::module::{Finder, Module};

/// ModelOpt's own word on how it has quantised.
const MODELOPT: &str = "hf_quant_config.json";

/// A model: its configuration, and its tensors, which are mapped.
#[derive(Debug)]
pub struct Checkpoint {
    pub(crate) folder: Folder,
    pub(crate) quantisation: Quantisation,
    config: Config,
}

/// The layers of a checkpoint.
#[derive(Debug)]
pub struct Layers {
    /// Each different one, with its modules.
    pub all: Vec<(LayerConfig, Vec<String>)>,
    /// Quantised modules that no layer computes, and why.
    pub others: Vec<(String, Error)>,
}

impl Checkpoint {
    /// A folder with `config.json` and one or many safetensors files: those that `model.safetensors.index.json` names, or
    /// without that all that are there. Links are followed.
    ///
    /// # Errors
    /// Data, if something is missing, is not what it should be, or says something else than something other; unsupported, if
    /// the architecture or the quantisation is none that is known. The text names the folder and the file.
    ///
    /// # Safety
    /// As long as this lives, nobody changes or shortens these files.
    pub unsafe fn map(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let read = || {
            let config = object(path, "config.json")?;
            let config = config.ok_or_else(|| crate::folder::missing("config.json"))?;
            let quantisation = Quantisation::parse(&config, object(path, MODELOPT)?.as_ref())?;
            let config = Config::parse(&config)?;
            // SAFETY: the caller's promise.
            let folder = unsafe { Folder::map(path)? };
            Ok(Self { folder, quantisation, config })
        };
        read().map_err(|error: warpsmith::Error| error.context(path.display().to_string()))
    }

    /// What it is.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The MLP, the experts or the linear layer of this name, such as `model.layers.0.mlp` or
    /// `model.layers.0.self_attn.o_proj`. `qkv_proj` is found where it is in three, and `q_proj`, `k_proj`, `v_proj` where they are
    /// in one.
    ///
    /// # Errors
    /// Data, if there is no such module, or it lacks a tensor, or one is not as the configuration says; unsupported, if it is of
    /// a form that is not read. The text names the module and the tensor.
    pub fn module(&self, name: &str) -> Result<Module<'_>> {
        Finder(self)
            .module(name)
            .map_err(|error| error.context(format!("{}: module `{name}`", self.folder.path().display())))
    }

    /// The different layers that its quantised modules are, on tokens of this format, each with the names of its modules; and
    /// modules that are none, with why.
    ///
    /// # Errors
    /// Those of [`Checkpoint::module`].
    pub fn layers(&self, format: Format) -> Result<Layers> {
        let mut layers = Layers { all: Vec::new(), others: Vec::new() };
        for name in self.modules() {
            let module = self.module(&name)?;
            if !module.is_quantised() {
                continue;
            }
            let layer = module.layer(format).and_then(|layer| layer.problems(1).map(|_| layer));
            match layer {
                Err(why) if why.is_unsupported() => layers.others.push((name, why)),
                Err(why) => return Err(why.context(format!("module `{name}`"))),
                Ok(layer) => match layers.all.iter_mut().find(|(known, _)| *known == layer) {
                    Some((_, names)) => names.push(name),
                    None => layers.all.push((layer, vec![name])),
                },
            }
        }
        Ok(layers)
    }

    /// The names of MLPs, experts and linear layers outside of these, in order.
    #[must_use]
    pub fn modules(&self) -> Vec<String> {
        // What an MLP or experts hold; and what has a matrix that nothing is multiplied with.
        const WITHIN: [&str; 13] = [
            "experts",
            "shared_expert",
            "shared_experts",
            "gate_proj",
            "up_proj",
            "down_proj",
            "gate_up_proj",
            "w1",
            "w2",
            "w3",
            "gate",
            "router",
            "shared_expert_gate",
        ];
        const TABLES: [&str; 4] = ["embed_tokens", "embeddings", "word_embeddings", "wte"];
        let mut all = BTreeSet::new();
        for name in self.folder.names() {
            let parts: Vec<_> = name.split('.').collect();
            let module = match parts.iter().position(|part| WITHIN.contains(part)) {
                Some(at) => &parts[..at],
                None => match parts.split_last() {
                    Some((&("weight" | "weight_packed"), module)) => module,
                    _ => continue,
                },
            };
            let shape = self.folder.find(name).map_or(0, |tensor| tensor.shape.len());
            let is_table = module.last().is_some_and(|last| TABLES.contains(last));
            if !module.is_empty() && !is_table && shape >= 2 {
                all.insert(module.join("."));
            }
        }
        all.into_iter().collect()
    }
}
