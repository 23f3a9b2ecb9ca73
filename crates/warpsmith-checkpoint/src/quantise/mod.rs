//! Checkpoints in NVFP4, from those in f16, bf16 or f32.

mod block;
mod device;
mod file;
mod layout;
mod matrix;
mod plan;
mod report;
mod state;
#[cfg(test)]
mod tests;
mod writer;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::thread;
use std::time::UNIX_EPOCH;

use serde_json::{Map, Value, json};
use warpsmith::engine::Engine;
use warpsmith::internal::Raise;
use warpsmith::{Error, Result};

use crate::folder::{Folder, INDEX, missing, object};
use device::OnDevice;
use file::copy;
pub use layout::Layout;
use layout::Shape;
use matrix::{Coded, Matrix};
use plan::{Item, Plan, Planned};
pub use report::{Quantised, QuantisedWeight};
use state::State;
use writer::{Step, Writer};

const CONFIG: &str = "config.json";
const MODELOPT: &str = "hf_quant_config.json";
/// What ends the names of weights that nobody reads here, and of lists of them.
const WEIGHTS: [&str; 9] = [".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".index.json"];

/// How scales are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scales {
    /// The e4m3 scale under which a block's squared errors are least, of those from half of to 1.75 times the plain one.
    #[default]
    Search,
    /// The plain rule: a block's largest magnitude becomes 6 ([`Nvfp4Tensor::quantise`](warpsmith::format::Nvfp4Tensor::quantise)).
    Largest,
}

const SCALES: [(Scales, &str); 2] = [(Scales::Search, "search"), (Scales::Largest, "largest")];

/// Which weights have one factor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Factors {
    /// Those that engines make one product of: q, k and v; gate and up.
    #[default]
    Shared,
    /// None: each has its own.
    Own,
}

const FACTORS: [(Factors, &str); 2] = [(Factors::Shared, "shared"), (Factors::Own, "own")];

/// How a checkpoint is quantised.
///
/// ```no_run
/// use warpsmith_checkpoint::{Layout, Quantise};
/// let how = Quantise::new().layout(Layout::CompressedTensors).exclude("*.self_attn.*");
/// // SAFETY: nobody changes these files meanwhile.
/// let done = unsafe { how.run("Qwen3-8B", "Qwen3-8B-NVFP4", |_, _| ())? };
/// println!("{} weights, relative error {:.4}", done.weights().len(), done.error());
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Quantise {
    layout: Layout,
    scales: Scales,
    factors: Factors,
    excluded: Vec<String>,
    threads: usize,
}

impl Default for Quantise {
    fn default() -> Self {
        Self::new()
    }
}

impl Quantise {
    /// ModelOpt's layout, searched scales, shared factors, nothing excluded, as many threads as there are cores.
    #[must_use]
    pub fn new() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let (layout, scales, factors) = Default::default();
        Self { layout, scales, factors, excluded: Vec::new(), threads }
    }

    /// Whose names the checkpoint has.
    #[must_use]
    pub fn layout(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }

    /// How scales are chosen.
    #[must_use]
    pub fn scales(self, scales: Scales) -> Self {
        Self { scales, ..self }
    }

    /// Which weights have one factor.
    #[must_use]
    pub fn factors(self, factors: Factors) -> Self {
        Self { factors, ..self }
    }

    /// Leaves modules of this name, and what is in them, as they are; `*` stands for anything.
    #[must_use]
    pub fn exclude(mut self, pattern: impl Into<String>) -> Self {
        self.excluded.push(pattern.into());
        self
    }

    /// So many threads, at least one. The bytes are the same for any number.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Self { threads: threads.max(1), ..self }
    }

    /// Quantises the linear layers of a folder into another one, which is made. `told` is called with the bytes of tensors that
    /// are done and with all of them.
    ///
    /// What has been stopped goes on where it was if it is run again, and gives the same bytes. One run has a folder at a time,
    /// and others are refused; that one was killed keeps nobody out.
    ///
    /// # Errors
    /// Data, if something is missing, is not what it should be, is NaN or infinite, cannot be written, or if the new folder is in
    /// the old one, holds something else, is another run's, or was begun with other arguments; unsupported, if weights are quantised already, or
    /// experts lie as is not known.
    ///
    /// # Safety
    /// As long as this runs, nobody changes or shortens the files of both folders.
    pub unsafe fn run(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        told: impl FnMut(u64, u64),
    ) -> Result<Quantised> {
        // SAFETY: the caller's promise.
        unsafe { self.run_by(None, from.as_ref(), to.as_ref(), told) }
    }

    /// As [`Quantise::run`], by an engine's device: the bytes are the same, so that one goes on where the other was. It takes
    /// two streams of its own, some 50 MiB of pinned memory, and of the device's twice that of the largest weights under one factor, 1 GiB
    /// at most, unless a row has more than 16 MiB.
    ///
    /// # Errors
    /// As for [`Quantise::run`]; and those of [`Engine::quantise`], before anything is written; driver, if the device has no
    /// room or refuses a launch.
    ///
    /// # Safety
    /// As for [`Quantise::run`].
    pub unsafe fn run_on(
        &self,
        engine: &Engine,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        told: impl FnMut(u64, u64),
    ) -> Result<Quantised> {
        // SAFETY: the caller's promise.
        unsafe { self.run_by(Some(engine), from.as_ref(), to.as_ref(), told) }
    }

    /// # Safety
    /// As for [`Quantise::run`].
    unsafe fn run_by(
        &self,
        engine: Option<&Engine>,
        from: &Path,
        to: &Path,
        told: impl FnMut(u64, u64),
    ) -> Result<Quantised> {
        let of_source = |error: Error| error.context(from.display().to_string());
        let config = source_config(from).map_err(of_source)?;
        apart(from, to)?;
        // SAFETY: the caller's promise.
        let folder = unsafe { Folder::map(from) }.map_err(of_source)?;
        let plan = Plan::new(&folder, &config, self).map_err(of_source)?;
        let others = Others::of(from, &plan).map_err(of_source)?;
        let groups = || plan.groups.values().map(Vec::as_slice);
        let device = engine.map(|engine| OnDevice::new(engine, self, groups())).transpose()?;
        let state = State::open(to, &self.arguments(from, &plan, &others)?)?;
        apart(from, to)?;
        let made = HashMap::new();
        Run { how: self, from, to, plan: &plan, others: &others, device, largest: HashMap::new(), made }
            .run(state, told)
    }

    /// What another run must have in common with this one to go on.
    fn arguments(&self, from: &Path, plan: &Plan<'_>, others: &Others) -> Result<Map<String, Value>> {
        let names = plan.files.iter().map(|file| &file.name).chain(&others.copied);
        let mut source = Map::new();
        for name in names.map(String::as_str).chain([CONFIG]) {
            let about = from.join(name).metadata().map_err(|error| unread(&from.join(name), error))?;
            let modified = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            let modified = modified.unwrap_or_default().as_nanos().to_string();
            source.insert(name.to_owned(), json!([about.len(), modified]));
        }
        let (layout, scales, factors) = (self.layout.to_string(), self.scales.to_string(), self.factors.to_string());
        let mut all = Map::new();
        all.insert("exclude".to_owned(), json!(self.excluded));
        all.insert("factors".to_owned(), json!(factors));
        all.insert("layout".to_owned(), json!(layout));
        all.insert("scales".to_owned(), json!(scales));
        all.insert("source".to_owned(), Value::Object(source));
        all.insert("version".to_owned(), json!(env!("CARGO_PKG_VERSION")));
        Ok(all)
    }
}

/// Files that hold no tensors.
#[derive(Debug, Default)]
struct Others {
    copied: Vec<String>,
    /// Folders, and weights in other formats.
    left: Vec<String>,
}

impl Others {
    fn of(from: &Path, plan: &Plan<'_>) -> Result<Self> {
        let mut all = Self::default();
        for entry in fs::read_dir(from).map_err(|error| unread(from, error))? {
            let entry = entry.map_err(|error| unread(from, error))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_made = [CONFIG, MODELOPT, INDEX].contains(&name.as_str());
            if is_made || name.starts_with('.') || plan.files.iter().any(|file| file.name == name) {
                continue;
            }
            // Links are followed.
            let is_file = from.join(&name).metadata().is_ok_and(|about| about.is_file());
            let is_copied = is_file && !WEIGHTS.iter().any(|end| name.ends_with(end));
            if is_copied { all.copied.push(name) } else { all.left.push(name) }
        }
        all.copied.sort();
        all.left.sort();
        Ok(all)
    }
}

/// One run.
struct Run<'a> {
    how: &'a Quantise,
    from: &'a Path,
    to: &'a Path,
    plan: &'a Plan<'a>,
    others: &'a Others,
    /// Who computes, if not this process.
    device: Option<OnDevice<'a>>,
    /// The largest magnitudes of groups.
    largest: HashMap<&'a str, f32>,
    /// What the device has made of groups, and has not been asked for.
    made: HashMap<&'a str, Vec<Option<Coded>>>,
}

impl<'a> Run<'a> {
    fn run(mut self, mut state: State, mut told: impl FnMut(u64, u64)) -> Result<Quantised> {
        let plan = self.plan;
        let (mut done, all) = (0, plan.files.iter().flat_map(|file| &file.items).map(Item::bytes).sum());
        told(done, all);
        let mut report = Quantised::default();
        let mut files = BTreeMap::new();
        let whole: Vec<_> = plan.files.iter().map(|file| state.done(&file.name)).collect();
        let groups = groups(plan.files.iter().zip(&whole).filter(|(_, whole)| whole.is_none()).map(|(file, _)| file));
        thread::scope(|scope| {
            let writer = Writer::new(scope, self.to, &mut state);
            let make = || {
                for (file, whole) in plan.files.iter().zip(whole) {
                    let shapes = shapes(file, self.how.layout);
                    report.bytes += shapes.iter().map(Shape::bytes).sum::<usize>() as u64;
                    for shape in &shapes {
                        if files.insert(shape.name.clone(), file.name.clone()).is_some() {
                            return Err(Error::data(format!("there would be two tensors `{}`", shape.name)));
                        }
                    }
                    let weights = match whole {
                        Some(weights) => {
                            done += file.items.iter().map(Item::bytes).sum::<u64>();
                            told(done, all);
                            report.resumed += 1;
                            weights
                        }
                        None => {
                            let more = |more| {
                                done += more;
                                told(done, all);
                            };
                            match self.make(file, shapes, &groups, &writer, more)? {
                                Some(weights) => weights,
                                None => break,
                            }
                        }
                    };
                    report.weights.extend(weights);
                }
                Ok(())
            };
            let made = make();
            // What cannot be written ends the rest, and is the reason.
            writer.end().and(made)
        })?;
        for name in &self.others.copied {
            if state.done(name).is_none() {
                let whole = copy(self.from, self.to, name)?;
                state.add(name, &whole, &[])?;
            }
        }
        self.conclude(&files, report.bytes)?;
        report.source_bytes = all;
        report.kept = plan.files.iter().flat_map(|file| &file.items).filter(|item| is_kept(item)).count();
        report.left = self.others.left.clone();
        Ok(report)
    }

    /// A file of tensors; nothing, if it cannot be written.
    fn make(
        &mut self,
        file: &'a Planned<'a>,
        shapes: Vec<Shape>,
        groups: &[&'a str],
        writer: &Writer<'_, 'a>,
        mut told: impl FnMut(u64),
    ) -> Result<Option<Vec<QuantisedWeight>>> {
        let mut is_written = writer.put(Step::Begin(file, shapes));
        let mut weights = Vec::new();
        for item in &file.items {
            let mut put = |name: &str, bytes| is_written &= writer.put(Step::Tensor(name.to_owned(), bytes));
            match item {
                Item::Kept { name, bytes, .. } => put(name, Cow::Borrowed(&**bytes)),
                Item::Coded { module, matrix, group, place } => {
                    let (largest, coded) = self.coded((group, *place), matrix, groups)?;
                    let how = self.how;
                    let factor = how.layout.stored(block::factor(largest)).number().to_le_bytes();
                    let all = [coded.codes, coded.scales, factor.to_vec()];
                    for (shape, bytes) in how.layout.tensors(module, matrix).iter().zip(all) {
                        put(&shape.name, Cow::Owned(bytes));
                    }
                    let (rows, columns) = (matrix.rows(), matrix.columns());
                    weights.push(QuantisedWeight { name: module.clone(), rows, columns, squares: coded.squares });
                }
            }
            if !is_written {
                return Ok(None);
            }
            told(item.bytes());
        }
        Ok(writer.put(Step::End(weights.clone())).then_some(weights))
    }

    /// The so many-th matrix of a group, and the group's largest magnitude.
    fn coded(
        &mut self,
        (group, place): (&'a str, usize),
        matrix: &Matrix<'_>,
        groups: &[&'a str],
    ) -> Result<(f32, Coded)> {
        let (how, plan) = (self.how, self.plan);
        let of = |group| plan.groups.get(group).map_or(&[][..], Vec::as_slice);
        let Some(device) = &mut self.device else {
            let largest = self.largest(group)?;
            return Ok((largest, matrix.coded(how.scales, largest, |factor| how.layout.stored(factor), how.threads)));
        };
        if !self.largest.contains_key(group) {
            let next = groups.iter().skip_while(|other| **other != group).nth(1);
            let (largest, all) = device.coded((group, of(group)), next.map(|next| (*next, of(next))))?;
            self.largest.insert(group, largest);
            self.made.insert(group, all.into_iter().map(Some).collect());
        }
        let lost = || Error::internal(format!("weight {place} of `{group}` is made twice, or never"));
        let all = self.made.get_mut(group).ok_or_else(lost)?;
        let coded = all.get_mut(place).and_then(Option::take).ok_or_else(lost)?;
        if all.iter().all(Option::is_none) {
            self.made.remove(group);
        }
        Ok((*self.largest.get(group).ok_or_else(lost)?, coded))
    }

    /// The largest magnitude of a group, whichever of its weights asks first.
    fn largest(&mut self, group: &'a str) -> Result<f32> {
        if let Some(largest) = self.largest.get(group) {
            return Ok(*largest);
        }
        let mut largest = 0.0f32;
        for matrix in self.plan.groups.get(group).into_iter().flatten() {
            largest = largest.max(matrix.amax(&matrix.largest(self.how.threads))?);
        }
        self.largest.insert(group, largest);
        Ok(largest)
    }

    /// What makes it a checkpoint.
    fn conclude(&self, files: &BTreeMap<String, String>, bytes: u64) -> Result<()> {
        let (layout, ignored) = (self.how.layout, &self.plan.ignored);
        if let Some(own) = layout.own_config(ignored) {
            file::text(self.to, MODELOPT, &pretty(&own)?)?;
        }
        if let Some(mut index) = object(self.from, INDEX)? {
            let mut metadata = index.remove("metadata").and_then(|all| all.as_object().cloned()).unwrap_or_default();
            metadata.insert("total_size".to_owned(), json!(bytes));
            index.insert("metadata".to_owned(), Value::Object(metadata));
            index.insert("weight_map".to_owned(), json!(files));
            file::text(self.to, INDEX, &pretty(&Value::Object(index))?)?;
        }
        let path = self.from.join(CONFIG);
        let text = fs::read_to_string(&path).map_err(|error| unread(&path, error))?;
        let said = pretty(&layout.config(ignored))?;
        file::text(self.to, CONFIG, &with_field(&text, "quantization_config", &said))
    }
}

/// The groups of files, in the order in which they are asked for.
fn groups<'a>(files: impl Iterator<Item = &'a Planned<'a>>) -> Vec<&'a str> {
    let mut seen = HashSet::new();
    let groups = files.flat_map(|file| &file.items).filter_map(|item| match item {
        Item::Coded { group, .. } => Some(group.as_str()),
        Item::Kept { .. } => None,
    });
    groups.filter(|group| seen.insert(*group)).collect()
}

/// What a file will hold.
fn shapes(file: &Planned<'_>, layout: Layout) -> Vec<Shape> {
    let of = |item: &Item<'_>| match item {
        Item::Kept { name, dtype, shape, .. } => {
            vec![Shape { name: name.clone(), dtype: *dtype, shape: shape.clone() }]
        }
        Item::Coded { module, matrix, .. } => layout.tensors(module, matrix).into(),
    };
    file.items.iter().flat_map(of).collect()
}

fn is_kept(item: &Item<'_>) -> bool {
    matches!(item, Item::Kept { .. })
}

/// The configuration of a model that is not quantised.
fn source_config(from: &Path) -> Result<Map<String, Value>> {
    let config = object(from, CONFIG)?.ok_or_else(|| missing(CONFIG))?;
    let text = config.get("text_config").and_then(Value::as_object);
    let said = [Some(&config), text].into_iter().flatten().find_map(|all| all.get("quantization_config"));
    if said.is_some_and(|said| !said.is_null()) || from.join(MODELOPT).exists() {
        return Err(Error::unsupported(
            "it is quantised already, by its configuration; only f16, bf16 and f32 become NVFP4",
        ));
    }
    Ok(config)
}

/// Refuses a folder that is another one or in it.
fn apart(from: &Path, to: &Path) -> Result<()> {
    let source = fs::canonicalize(from).map_err(|error| unread(from, error))?;
    let absolute = std::path::absolute(to).map_err(|error| unread(to, error))?;
    // What is there of the path is what links and `..` make of it.
    let known = absolute.ancestors().find_map(|path| Some((path, fs::canonicalize(path).ok()?)));
    let target = known.map(|(path, real)| real.join(absolute.strip_prefix(path).unwrap_or(Path::new(""))));
    if target.unwrap_or(absolute).starts_with(&source) {
        let (from, to) = (from.display(), to.display());
        return Err(Error::data(format!("{to} is {from}, or in it: name another folder")));
    }
    Ok(())
}

/// The text of a JSON object with one more field at its end; the rest stays as it is.
fn with_field(object: &str, name: &str, value: &str) -> String {
    let Some((head, _)) = object.rsplit_once('}') else { return object.to_owned() };
    let head = head.trim_end();
    let comma = if head.ends_with('{') { "" } else { "," };
    let value = value.replace('\n', "\n  ");
    format!("{head}{comma}\n  \"{name}\": {value}\n}}\n")
}

fn pretty(value: &Value) -> Result<String> {
    serde_json::to_string_pretty(value).map_err(|error| Error::internal(format!("JSON: {error}")).with_source(error))
}

fn unread(path: &Path, error: std::io::Error) -> Error {
    Error::data(format!("{} cannot be read: {error}", path.display())).with_source(error)
}

impl fmt::Display for Scales {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        spelled(&SCALES, self, f)
    }
}

impl FromStr for Scales {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parsed(&SCALES, "rule", text)
    }
}

impl fmt::Display for Factors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        spelled(&FACTORS, self, f)
    }
}

impl FromStr for Factors {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parsed(&FACTORS, "choice", text)
    }
}

/// By a table of spellings.
fn spelled<T: PartialEq>(all: &[(T, &str)], value: &T, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let found = all.iter().find(|(known, _)| known == value);
    f.write_str(found.map_or("", |(_, name)| name))
}

fn parsed<T: Copy>(all: &[(T, &str)], what: &str, text: &str) -> Result<T> {
    let found = all.iter().find(|(_, name)| *name == text).map(|(value, _)| *value);
    found.ok_or_else(|| {
        let known: Vec<_> = all.iter().map(|(_, name)| *name).collect();
        Error::parse(format!("`{text}` is no {what}; known are {}", known.join(", ")))
    })
}
