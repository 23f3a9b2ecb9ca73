//! Where kernels run, if anywhere.

use warpsmith::pick::{Picker, Table};
use warpsmith::run::Device;
use warpsmith::spec::Arch;

use super::Result;

pub enum Place {
    Device(Device),
    /// No device, and why.
    Host(Arch, String),
}

impl Place {
    /// The device of this ordinal, unless an architecture is given or there is no device at all.
    pub fn find(arch: Option<Arch>, ordinal: usize) -> Result<Self> {
        if let Some(arch) = arch {
            return Ok(Place::Host(arch, "--arch given".to_owned()));
        }
        match Device::count() {
            Ok(0) => Ok(Place::Host(Arch::H200, "the CUDA driver finds no device".to_owned())),
            Err(error) if error.is_missing_library() => Ok(Place::Host(Arch::H200, error.to_string())),
            _ => Ok(Place::Device(Device::open(ordinal)?)),
        }
    }

    pub fn arch(&self) -> Arch {
        match self {
            Place::Device(device) => *device.arch(),
            Place::Host(arch, _) => *arch,
        }
    }

    /// Chooses as an engine would: for the device by its name, too.
    pub fn picker(&self) -> Picker {
        Picker::new(&self.name(), &self.arch())
    }

    /// As [`Place::picker`], with what this table says, too.
    pub fn picker_with(&self, table: &Table) -> Result<Picker> {
        Ok(Picker::builder(&self.name(), &self.arch()).table(table).build()?)
    }

    /// What choices know it by.
    pub fn name(&self) -> String {
        match self {
            Place::Device(device) => device.name().to_owned(),
            Place::Host(arch, _) => arch.to_string(),
        }
    }

    /// The device, or why there is none and what is done `instead`.
    pub fn describe(&self, instead: &str) -> String {
        match self {
            Place::Device(device) => device.to_string(),
            Place::Host(arch, why) => format!("no GPU used ({why}): compiling for {arch}, {instead}"),
        }
    }
}
