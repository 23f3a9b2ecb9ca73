//! What a measurer and its worker say to each other: one JSON object a line, in turn.
//!
//! ```text
//! measurer                                            worker
//! {"open":{"version":2,"setup":{…}}}                 →
//!                                        ←  {"to":0,"answer":{"ready":{"version":2,"device":{…}}},"last":false}
//! {"number":1,"admit":{"variant":"…","about":{…},"image_bytes":7}}, then the image's 7 bytes
//!                                        ←  {"to":1,"answer":"launching","last":false}
//!                                        ←  {"to":1,"answer":{"admitted":{"passed":{…}}},"last":false}
//! {"number":2,"screen":{"variant":"…"}}              →
//!                                        ←  {"to":2,"answer":"launching","last":false}
//!                                        ←  {"to":2,"answer":{"screened":{"took":12.5}},"last":false}
//! {"number":3,"open":{"version":2,"setup":{…}}}      →
//!                                        ←  {"to":3,"answer":{"ready":{"version":2,"device":{…}}},"last":false}
//! ```
//!
//! A worker knows no source and no compiler: it is given machine code. Before the kernel that it was asked about runs for
//! the first time it says so: what ends the worker before that is not the kernel. Told another time what it is for, it keeps
//! what serves both, and no kernel.
//!
//! The first request, and the version in its answer, are the same in all versions, so that each can tell another.

use std::io::{self, BufRead, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::measure::Admission;
use super::super::measurer::Timed;
use super::super::setup::{Setup, spelled};
use warpsmith::internal::Raise;
use warpsmith::internal::build::About;
use warpsmith::run::{Device, DriverVersion};
use warpsmith::spec::{Arch, DeviceFacts, Variant};
use warpsmith::{Error, Result};

/// Bumped with every change of what is said.
pub(super) const VERSION: u32 = 4;
/// What helps where the other side speaks another version.
pub(super) const SAME_VERSION: &str =
    "use a worker of the same version of warpsmith (`cargo build --bin warpsmith-trial`, or this program itself)";
/// A longer line is none of ours. A duel of thousands of pairs is shorter.
const LINE_MAX: u64 = 1 << 20;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// From 0, which is the first.
    #[serde(default, skip_serializing_if = "is_first")]
    pub number: u64,
    #[serde(flatten)]
    pub what: Asked,
}

fn is_first(number: &u64) -> bool {
    *number == 0
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Asked {
    /// What it is for, as this version has it.
    Open { version: u32, setup: Value },
    /// Followed by the image.
    Admit {
        #[serde(with = "spelled")]
        variant: Variant,
        about: About,
        image_bytes: u64,
    },
    Screen {
        #[serde(with = "spelled")]
        variant: Variant,
    },
    Duel {
        #[serde(with = "spelled")]
        incumbent: Variant,
        #[serde(with = "spelled")]
        challenger: Variant,
        pairs: usize,
    },
}

impl Asked {
    /// For a log.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Open { .. } => "open",
            Self::Admit { .. } => "admit",
            Self::Screen { .. } => "screen",
            Self::Duel { .. } => "duel",
        }
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Reply {
    /// The number of the request.
    #[serde(default)]
    pub to: u64,
    pub answer: Answer,
    /// The worker ends after this: what it ran has left it unusable.
    pub last: bool,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// With [`Facts`], as this version has them.
    Ready {
        version: u32,
        device: Value,
    },
    /// A kernel is about to run; the answer follows.
    Launching,
    Admitted(Admission),
    Screened(Timed<f64>),
    Duelled(Timed<Vec<(f64, f64)>>),
    Failed(Failure),
}

impl Asked {
    pub(super) fn open(setup: &Setup) -> Result<Self> {
        Ok(Self::Open { version: VERSION, setup: value(setup)? })
    }
}

impl Answer {
    pub(super) fn ready(device: &Facts) -> Result<Self> {
        Ok(Self::Ready { version: VERSION, device: value(device)? })
    }
}

fn value(what: &impl Serialize) -> Result<Value> {
    serde_json::to_value(what)
        .map_err(|error| Error::internal("a message cannot be written as JSON").with_source(error))
}

/// What a part of a message is, whose version has been looked at.
pub(super) fn part<T: DeserializeOwned>(value: Value) -> Result<T> {
    serde_json::from_value(value).map_err(|error| Error::internal(format!("a part of a message is none: {error}")))
}

/// What a device is, as far as it takes to know its architecture elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Facts {
    device: DeviceFacts,
    driver: (u32, u32),
}

impl Facts {
    pub(super) fn of(device: &Device) -> Self {
        let driver = device.driver_version();
        Self { device: device.facts().clone(), driver: (driver.major, driver.minor) }
    }

    pub(super) fn device(self) -> Result<WorkerDevice> {
        let arch = Arch::of_device(&self.device)?;
        let driver = DriverVersion { major: self.driver.0, minor: self.driver.1 };
        Ok(WorkerDevice { name: self.device.name, arch, driver })
    }
}

/// The device that a worker has opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerDevice {
    name: String,
    arch: Arch,
    driver: DriverVersion,
}

impl WorkerDevice {
    /// What the driver calls it, such as `NVIDIA H200`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its row of hardware numbers: what specs for this measurer are made with.
    #[must_use]
    pub fn arch(&self) -> &Arch {
        &self.arch
    }

    /// The CUDA version of its driver.
    #[must_use]
    pub fn driver_version(&self) -> DriverVersion {
        self.driver
    }
}

/// An error on its way to another process: its class, and its text.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Failure {
    class: Class,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Class {
    Unsupported,
    MissingLibrary,
    Data,
    Driver,
    Internal,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let class = if error.is_unsupported() || error.is_parse() {
            Class::Unsupported
        } else if error.is_missing_library() {
            Class::MissingLibrary
        } else if error.is_data() || error.is_operand() {
            Class::Data
        } else if error.is_driver() {
            Class::Driver
        } else {
            Class::Internal
        };
        Self { class, text: error.to_string() }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let text = failure.text;
        match failure.class {
            Class::Unsupported => Error::unsupported(text),
            Class::MissingLibrary => Error::missing_library(text),
            Class::Data => Error::data(text),
            Class::Driver => Error::driver(text),
            Class::Internal => Error::internal(text),
        }
        .context("in the worker process")
    }
}

/// A message as the bytes of its line.
pub(super) fn line(message: &impl Serialize) -> Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)
        .map_err(|error| Error::internal("a message cannot be written as JSON").with_source(error))?;
    line.push(b'\n');
    Ok(line)
}

pub(super) fn say(output: &mut impl Write, message: &impl Serialize) -> Result<()> {
    let line = line(message)?;
    output.write_all(&line).and_then(|()| output.flush()).map_err(|error| broken("writing to", error))
}

/// The next message; none if the other side has gone.
pub(super) fn hear<T: DeserializeOwned>(input: &mut impl BufRead) -> Result<Option<T>> {
    let mut line = Vec::new();
    input.take(LINE_MAX).read_until(b'\n', &mut line).map_err(|error| broken("reading from", error))?;
    if line.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(&line).map(Some).map_err(|error| {
        let start = String::from_utf8_lossy(&line[..line.len().min(80)]).trim_end().to_owned();
        Error::internal(format!("`{start}` is no message: {error}"))
    })
}

/// The image that follows a request.
pub(super) fn image(input: &mut impl BufRead, bytes: u64) -> Result<Vec<u8>> {
    let mut image = Vec::new();
    let found = input.take(bytes).read_to_end(&mut image).map_err(|error| broken("reading from", error))?;
    if found as u64 == bytes {
        return Ok(image);
    }
    Err(Error::internal(format!("an image ends after {found} of {bytes} bytes")))
}

fn broken(doing: &str, error: io::Error) -> Error {
    Error::internal(format!("{doing} the other process: {error}")).with_source(error)
}
