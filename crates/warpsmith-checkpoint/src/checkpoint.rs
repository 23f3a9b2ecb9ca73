//! A model's folder.

use std::collections::BTreeSet;
use std::path::Path;

use warpsmith::Result;

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

    /// The names of MLPs, experts and linear layers outside of these, in order.
    #[must_use]
    pub fn modules(&self) -> Vec<String> {
        // Whatever holds products of an MLP, or else has a weight.
        const WITHIN: [&str; 8] = ["experts", "gate_proj", "up_proj", "down_proj", "gate_up_proj", "w1", "w2", "w3"];
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
            if !module.is_empty() && shape >= 2 {
                all.insert(module.join("."));
            }
        }
        all.into_iter().collect()
    }
}
