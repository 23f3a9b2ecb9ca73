//! Kernels without matrix instructions: loading, and what all their launches do.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::capture::{Captured, is_captured_untracked};
use super::check::{self, Buffer, ContextId};
use super::code::{Code, Modules};
use super::guards::{Guards, Tracked, Untracked};
use super::kernel::dispatch::can_hold;
use super::launch::Blocks;
use super::memory::{Memory, MemoryMut};
use super::module::Function;
use super::operand::{MatrixMut, Values};
use super::retired::Owner;
use super::visit::{EachMemory, EachOwner, HeldByGraph, Order};
use super::weights::PreparedWeights;
use super::workspace::WorkspaceMemory;
use super::{Device, LaunchStream, LoadTime, refused};
use crate::build::{Built, Cubin};
use crate::error::{Error, Result};
use crate::simt::{PORTABLE_CLUSTER, Simt};
use crate::spec::Spread;

/// A loaded kernel without matrix instructions. Holding it keeps it loaded.
pub struct SimtKernel {
    simt: Simt,
    cubin: Arc<Cubin>,
    /// Of its entries.
    functions: Vec<Function>,
    /// Of dynamic shared memory of a block.
    shared_bytes: u32,
    /// How few blocks of a dependent launch are kept apart, if they are.
    spread: Spread,
    /// Whether its blocks may be a cluster, and it waits by itself for what was before: from sm_90 on.
    has_clusters: bool,
    load_time: LoadTime,
    code: Arc<Code>,
    /// Behind the code, which comes here when it goes.
    modules: Arc<Modules>,
}

/// One launch of a kernel: which of its entries, and in which blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimtLaunch {
    pub(super) entry: usize,
    /// Blocks.
    pub(super) grid: u32,
    pub(super) threads: u32,
    /// Blocks of a cluster.
    pub(super) cluster: u32,
    /// Bytes of shared memory that only keep its blocks apart.
    pub(super) apart: u32,
}

impl SimtLaunch {
    /// Of blocks that are in no cluster.
    pub(super) fn new(entry: usize, grid: u32, threads: u32) -> Self {
        Self { entry, grid, threads, cluster: 1, apart: 0 }
    }

    /// The same with blocks that are kept apart, where that is worth it.
    pub(super) fn apart(self, kernel: &SimtKernel, is_dependent: bool) -> Self {
        let begins_early = is_dependent && kernel.can_depend();
        let apart = if begins_early && self.grid > TOGETHER_MAX { kernel.spread.bytes(self.grid) } else { 0 };
        Self { apart, ..self }
    }
}

impl SimtKernel {
    /// Loads machine code onto a device.
    ///
    /// # Errors
    /// Driver, if it refuses the image or has not enough memory.
    pub fn load(device: &Device, built: &Built<Simt>) -> Result<Self> {
        let (simt, cubin) = (*built.of(), Arc::clone(built.cubin()));
        let shared_bytes = simt.shared_bytes();
        let modules = device.modules();
        // Measured on Hopper alone.
        let arch = device.arch();
        let keeps_apart = simt.keeps_blocks_apart() && arch.capability().major == 9;
        let refuses = |error| refused(format!("loading {}", simt.symbol()), error);
        let set_up = |code: Arc<Code>| {
            let entries = simt.entries();
            let functions = entries.iter().map(|entry| code.entry(entry)).collect::<Result<Vec<Function>, _>>();
            let functions = functions.map_err(refuses)?;
            if shared_bytes > 0 {
                let refuses =
                    |error| refused(format!("asking for {shared_bytes} bytes of shared memory a block"), error);
                functions.iter().try_for_each(|function| function.allow_shared(shared_bytes)).map_err(refuses)?;
            }
            // What is only preferred may be refused.
            let is_preferred = keeps_apart && functions.iter().all(|function| function.prefer_least_shared().is_ok());
            let spread = if is_preferred { Spread::new(arch.sms(), APART) } else { Spread::default() };
            Ok((functions, spread, code))
        };
        let ((functions, spread, code), load_time) = modules.load(&cubin, refuses, set_up)?;
        let has_clusters = has_clusters(cubin.provenance().target());
        Ok(Self {
            simt,
            cubin,
            functions,
            shared_bytes,
            spread,
            has_clusters,
            load_time,
            code,
            modules: Arc::clone(modules),
        })
    }

    /// What loading it took: modules of one context are loaded one after the other.
    #[must_use]
    pub fn load_time(&self) -> LoadTime {
        self.load_time
    }

    /// The machine code, with its resource use and provenance.
    #[must_use]
    pub fn cubin(&self) -> &Arc<Cubin> {
        &self.cubin
    }

    pub(super) fn modules(&self) -> &Arc<Modules> {
        &self.modules
    }

    /// The stream's context, which has to have the kernel's handle.
    pub(super) fn context_id(&self, stream: &CudaStream) -> Result<ContextId> {
        let context = stream.context();
        if context.cu_ctx() == self.modules.context().cu_ctx() {
            return Ok(ContextId::of(stream));
        }
        let (here, there) = (self.modules.context().ordinal(), context.ordinal());
        Err(Error::operand(format!(
            "the stream is of another context (device {there}) than the kernel (device {here})"
        )))
    }

    /// Puts launches into the stream, one behind the other, each with `params` as its only argument.
    ///
    /// # Safety
    /// The kernel's entries take one parameter of the layout of `P`, and use memory at its addresses as far as that is live in
    /// the stream's context, which is the kernel's, until they have run. A dependent launch waits for what was before.
    pub(super) unsafe fn put<P: Copy>(
        &self,
        stream: &CudaStream,
        params: &mut P,
        launches: &[SimtLaunch],
        is_dependent: bool,
    ) -> Result<()> {
        stream.context().bind_to_thread().map_err(|error| refused("binding the context", error))?;
        for (nth, SimtLaunch { entry, grid, threads, cluster, apart }) in launches.iter().enumerate() {
            let function = self.functions.get(*entry).ok_or_else(|| Error::internal("a launch of no entry"))?;
            let blocks = Blocks::new(*function, *threads, self.shared_bytes + apart, [*cluster, 1, 1]);
            let mut arguments = [(&raw mut *params).cast::<c_void>()];
            // Later ones of the call wait by themselves for the first.
            let depends = is_dependent || (nth > 0 && self.can_depend());
            // SAFETY: the function is of a module that `self` keeps loaded, in the context that is bound; the driver copies
            // the parameter before it returns. The rest is the caller's promise.
            unsafe { blocks.launch([*grid, 1, 1], stream, depends, &mut arguments) }
                .map_err(|error| refused(format!("launching {grid} blocks of {threads} threads"), error))?;
        }
        Ok(())
    }

    pub(super) fn can_depend(&self) -> bool {
        self.has_clusters
    }

    /// Blocks of the widest cluster of an entry that the device runs, at most `most`: more than eight need as many SMs in one of its
    /// processor clusters, which not every device of an architecture has, nor every part of one. A driver that refuses to say has none.
    pub(super) fn widest_cluster(&self, entry: usize, threads: u32, most: u32) -> u32 {
        match self.functions.get(entry) {
            _ if !self.has_clusters => 1,
            Some(function) if most > PORTABLE_CLUSTER => {
                let blocks = Blocks::new(*function, threads, self.shared_bytes, [most, 1, 1]);
                let resident = self.modules.context().bind_to_thread().and_then(|()| {
                    function.allow_wide_clusters()?;
                    blocks.resident_clusters([most, 1, 1])
                });
                if resident.is_ok_and(|clusters| clusters > 0) { most } else { PORTABLE_CLUSTER }
            }
            _ => most,
        }
    }

    /// Checks `operands`, and puts `launches` of them into the stream; nothing is allocated. `params` is told the addresses,
    /// in the order in which they are visited, and gives what the kernel takes.
    ///
    /// # Errors
    /// Operand, if a piece is too small, not aligned or of another context, before anything is launched; driver.
    ///
    /// # Safety
    /// As for [`SimtKernel::put`], where every piece has as many elements as its line says.
    pub(super) unsafe fn launch<O: Pieces, P: Copy, const COUNT: usize>(
        &self,
        stream: &impl LaunchStream,
        operands: &mut O,
        lines: &[Line; COUNT],
        params: impl FnOnce([u64; COUNT]) -> P,
        launches: &[SimtLaunch],
        is_dependent: bool,
    ) -> Result<()> {
        let (stream, keeper) = (stream.stream(), stream.keeper());
        let context_id = self.context_id(stream)?;
        let mut check = Check { context_id, lines, given: [false; COUNT] };
        operands.visit(&mut check)?;
        if let Some((line, _)) = lines.iter().zip(check.given).find(|(line, given)| line.needed > 0 && !given) {
            return Err(Error::operand(format!("no {} given: {} elements are needed", line.name, line.needed)));
        }
        let is_captured = is_captured_untracked(stream)?;
        let tracks = stream.context().is_event_tracking();
        operands.visit(&mut Order::new(stream, is_captured))?;
        let mut owners = false;
        operands.visit(&mut EachOwner(|_| owners = true))?;
        can_hold(keeper, owners)?;
        let put = |addresses: [u64; COUNT]| {
            let mut params = params(addresses);
            // SAFETY: the caller's promise; of cudarc's and shared memory the guards, the order above and what a graph holds
            // see to it that it is live, of raw memory its caller vouches for that.
            unsafe { self.put(stream, &mut params, launches, is_dependent && self.can_depend()) }
        };
        let place = |place: &[u64; COUNT]| {
            let misplaced = lines.iter().zip(place).find(|(line, address)| !address.is_multiple_of(line.alignment));
            misplaced.map_or(Ok(()), |(line, address)| check::aligned(&[(line.name, *address)], line.alignment))
        };
        if is_captured {
            let captured = Captured::of(stream)?;
            self.code.hold_by_graph(&captured)?;
            let mut held = HeldByGraph::default();
            operands.visit(&mut held)?;
            if !held.0.is_empty() {
                captured.hold(self.modules.retired().when_dropped(held.0))?;
            }
        }
        let put = if tracks {
            let mut guards = Tracked::default();
            let mut places = Place { stream, guards: &mut guards, addresses: [0; COUNT] };
            operands.visit(&mut places)?;
            let addresses = places.addresses;
            place(&addresses)?;
            put(addresses)
        } else {
            let mut guards = Untracked::default();
            let mut places = Place { stream, guards: &mut guards, addresses: [0; COUNT] };
            operands.visit(&mut places)?;
            let addresses = places.addresses;
            place(&addresses)?;
            put(addresses)
        };
        if let Some(keeper) = keeper
            && !is_captured
        {
            operands.visit(&mut EachOwner(|owner: &Owner| keeper.keep(owner)))?;
        }
        put
    }
}

impl fmt::Debug for SimtKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on device {}", self.simt.symbol(), self.modules.context().ordinal())
    }
}

/// Of an SM that is set up for as little shared memory as can be. It would be filled with six blocks; beside a block of most matrix kernels
/// there is room for one.
const APART: [u32; Spread::MOST] = [4096, 2560, 1536, 960];
/// Blocks that the SMs have room enough for that a matrix kernel leaves free.
const TOGETHER_MAX: u32 = 8;

/// Whether kernels for `target` know clusters and `griddepcontrol`.
fn has_clusters(target: &str) -> bool {
    let number = target.trim_start_matches("sm_").trim_start_matches("compute_").trim_end_matches(['a', 'f']);
    number.parse::<u32>().is_ok_and(|number| number >= 90)
}

/// Refuses the first of `(name, is given, is wanted)` that is given and not wanted, or wanted and not given.
pub(super) fn check_given<'n>(pieces: impl IntoIterator<Item = (&'n str, bool, bool)>) -> Result<()> {
    match pieces.into_iter().find(|(_, is_given, is_wanted)| is_given != is_wanted) {
        Some((name, true, _)) => Err(Error::operand(format!("{name}: given, the problem has none"))),
        Some((name, false, _)) => Err(Error::operand(format!("{name}: not given, the problem has one"))),
        None => Ok(()),
    }
}

/// What a piece of memory must have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) name: &'static str,
    /// Elements; 0 for what need not be there.
    pub(super) needed: u64,
    /// The address is a multiple of this.
    pub(super) alignment: u64,
}

/// The memory of a launch, each piece by the number of its line.
pub(super) trait Pieces {
    fn visit<'b, V: Visit<'b>>(&'b mut self, visitor: &mut V) -> Result<()>;
}

/// Something that is done with every piece.
pub(super) trait Visit<'b> {
    fn read<T: Send + Sync + 'static>(&mut self, at: usize, memory: &'b Memory<'_, T>) -> Result<()>;

    fn write<T>(&mut self, at: usize, memory: &'b mut MemoryMut<'_, T>) -> Result<()>;

    fn workspace(&mut self, at: usize, memory: &'b mut WorkspaceMemory<'_>) -> Result<()>;

    fn prepared(&mut self, at: usize, weights: &'b PreparedWeights) -> Result<()>;

    fn values(&mut self, at: usize, values: &'b Values<'_>) -> Result<()> {
        match values {
            Values::F16(values) => self.read(at, values),
            Values::Bf16(values) => self.read(at, values),
            Values::F32(values) => self.read(at, values),
        }
    }

    fn result(&mut self, at: usize, values: &'b mut MatrixMut<'_>) -> Result<()> {
        match values {
            MatrixMut::F16(values) => self.write(at, values),
            MatrixMut::Bf16(values) => self.write(at, values),
            MatrixMut::F32(values) => self.write(at, values),
            // Refused before, by its format: none of these kernels writes it.
            MatrixMut::Nvfp4 { codes, .. } => self.write(at, codes),
        }
    }
}

impl<'b, E: EachMemory<'b>> Visit<'b> for E
where
    E::Refusal: Into<Error>,
{
    fn read<T: Send + Sync + 'static>(&mut self, _: usize, memory: &'b Memory<'_, T>) -> Result<()> {
        EachMemory::read(self, memory).map_err(Into::into)
    }

    fn write<T>(&mut self, _: usize, memory: &'b mut MemoryMut<'_, T>) -> Result<()> {
        EachMemory::write(self, memory).map_err(Into::into)
    }

    fn workspace(&mut self, _: usize, memory: &'b mut WorkspaceMemory<'_>) -> Result<()> {
        EachMemory::workspace(self, memory).map_err(Into::into)
    }

    fn prepared(&mut self, _: usize, weights: &'b PreparedWeights) -> Result<()> {
        EachMemory::prepared(self, weights).map_err(Into::into)
    }
}

struct Check<'l, const COUNT: usize> {
    context_id: ContextId,
    lines: &'l [Line; COUNT],
    given: [bool; COUNT],
}

impl<const COUNT: usize> Check<'_, COUNT> {
    fn piece(&mut self, at: usize, buffer: &Buffer) -> Result<()> {
        let (Some(line), Some(given)) = (self.lines.get(at), self.given.get_mut(at)) else {
            return Err(Error::internal("a piece of memory without a line"));
        };
        *given = true;
        if buffer.elements < line.needed {
            let Line { name, needed, .. } = line;
            return Err(Error::operand(format!("{name} has {} elements, {needed} are needed", buffer.elements)));
        }
        self.context_id.check(line.name, buffer)
    }
}

impl<'b, const COUNT: usize> Visit<'b> for Check<'_, COUNT> {
    fn read<T: Send + Sync + 'static>(&mut self, at: usize, memory: &'b Memory<'_, T>) -> Result<()> {
        self.piece(at, &memory.buffer())
    }

    fn write<T>(&mut self, at: usize, memory: &'b mut MemoryMut<'_, T>) -> Result<()> {
        self.piece(at, &memory.buffer())
    }

    fn workspace(&mut self, at: usize, memory: &'b mut WorkspaceMemory<'_>) -> Result<()> {
        self.piece(at, &memory.buffer())
    }

    fn prepared(&mut self, at: usize, weights: &'b PreparedWeights) -> Result<()> {
        self.piece(at, &weights.shared().buffer())
    }
}

struct Place<'b, 'g, G, const COUNT: usize> {
    stream: &'b CudaStream,
    guards: &'g mut G,
    addresses: [u64; COUNT],
}

impl<G, const COUNT: usize> Place<'_, '_, G, COUNT> {
    fn note(&mut self, at: usize, address: u64) -> Result<()> {
        let place = self.addresses.get_mut(at).ok_or_else(|| Error::internal("a piece of memory without a line"))?;
        *place = address;
        Ok(())
    }
}

impl<'b, G: Guards<'b>, const COUNT: usize> Visit<'b> for Place<'b, '_, G, COUNT> {
    fn read<T: Send + Sync + 'static>(&mut self, at: usize, memory: &'b Memory<'_, T>) -> Result<()> {
        let address = memory.address(self.stream, self.guards);
        self.note(at, address)
    }

    fn write<T>(&mut self, at: usize, memory: &'b mut MemoryMut<'_, T>) -> Result<()> {
        let address = memory.address(self.stream, self.guards);
        self.note(at, address)
    }

    fn workspace(&mut self, at: usize, memory: &'b mut WorkspaceMemory<'_>) -> Result<()> {
        let address = memory.address(self.stream, self.guards);
        self.note(at, address)
    }

    fn prepared(&mut self, at: usize, weights: &'b PreparedWeights) -> Result<()> {
        let address = weights.shared().address(self.stream, self.guards);
        self.note(at, address)
    }
}

/// The names of a parameter's fields, in the order of a template's text.
#[cfg(test)]
pub(super) fn fields_of<'s>(source: &'s str, name: &str) -> Vec<&'s str> {
    let begin = format!("struct {name} {{");
    let declared =
        source.split_once(&begin).and_then(|(_, rest)| rest.split_once("};")).map_or("", |(fields, _)| fields);
    let names = declared.lines().filter_map(|line| line.split(';').next()?.rsplit([' ', '*']).next());
    names.filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_blocks_as_are_meant_have_room() {
        // Of 8 KiB a block also has 1 KiB for the driver, and a word a warp of its own.
        for (count, bytes) in (1..).zip(APART) {
            let most = (bytes + 1024 + 32).next_multiple_of(128);
            assert!(count * most <= 8192 && (count + 1) * (bytes + 1024) > 8192, "{count}");
        }
    }
}
