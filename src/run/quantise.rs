//! Values made NVFP4 or e4m3 on the device.

mod e4m3;

use std::fmt;
use std::sync::Arc;

use super::LaunchStream;
use super::check;
use super::memory::{Memory, MemoryMut};
use super::operand::{Alpha, Values};
use super::simt::{Line, Pieces, SimtKernel, SimtLaunch, Visit, check_given};
use crate::build::Cubin;
use crate::error::{Error, Result};
use crate::format::{BLOCK, Format};
use crate::spec::{Problem, Quantise};

/// Threads of a block, each for a block of elements at a time.
const THREADS: u32 = 128;
/// Blocks at most: each thread of so many takes several.
const GRID_MAX: u32 = 1 << 12;
/// Of the maximum's launch, each thread for eight elements at a time. Every block has a word behind an own factor.
const MAXIMUM_THREADS: u32 = 512;
const MAXIMUM_GRID_MAX: u32 = Quantise::OWN_LENGTH as u32 - 1;
/// The kernel's entries, in the order of `Simt::entries`.
const QUANTISE: usize = 0;
const MAXIMUM: usize = 1;

/// The loaded kernels of a [`Quantise`], from [`Engine::quantise`](crate::engine::Engine::quantise). Holding it keeps them loaded; it
/// can be shared between threads.
#[derive(Clone)]
pub struct Quantiser {
    quantise: Quantise,
    kernel: Arc<SimtKernel>,
}

/// What a [`Quantiser`] works on, all on its device.
#[derive(Debug)]
#[must_use]
pub struct QuantiseOperands<'a> {
    m: u32,
    x: Values<'a>,
    /// Codes, or e4m3 values.
    codes: MemoryMut<'a, u8>,
    scales: Option<MemoryMut<'a, u8>>,
    row_factors: Option<MemoryMut<'a, f32>>,
    given: Option<(f32, Option<Memory<'a, f32>>)>,
    own: Option<MemoryMut<'a, f32>>,
    settled: bool,
}

impl<'a> QuantiseOperands<'a> {
    /// From `x`, `[m, K]`, to `codes`, `[m, K/2]`, and `scales`: [`ScaleLayout::bytes`](crate::format::ScaleLayout::bytes) of them. Those
    /// of rows that the layout pads become 0.
    pub fn new(
        m: u32,
        x: impl Into<Values<'a>>,
        codes: impl Into<MemoryMut<'a, u8>>,
        scales: impl Into<MemoryMut<'a, u8>>,
    ) -> Self {
        let (codes, scales) = (codes.into(), Some(scales.into()));
        Self { m, x: x.into(), codes, scales, row_factors: None, given: None, own: None, settled: false }
    }

    /// From `x`, `[m, K]`, to e4m3 `values`, `[m, K]`, and a factor for each of the m rows, or `[m, ⌈K/128⌉]` of them
    /// ([`Quantise::k_factors`]): what [`Matrix::e4m3`](crate::run::Matrix::e4m3) takes.
    pub fn e4m3(
        m: u32,
        x: impl Into<Values<'a>>,
        values: impl Into<MemoryMut<'a, u8>>,
        factors: impl Into<MemoryMut<'a, f32>>,
    ) -> Self {
        let (codes, row_factors) = (values.into(), Some(factors.into()));
        Self { m, x: x.into(), codes, scales: None, row_factors, given: None, own: None, settled: false }
    }

    /// The tensor's factor, a number or one on the device, positive and normal: needed where it is given, and only there.
    pub fn factor(mut self, factor: impl Into<Alpha<'a>>) -> Self {
        self.given = Some(factor.into().parts());
        self
    }

    /// [`Quantise::OWN_LENGTH`] elements: needed where the factor is the tensor's own, and only there. The first becomes the factor,
    /// which the next product takes for α; the others are the launch's while it runs. Nothing has to be there before.
    pub fn own_factor(mut self, factor: impl Into<MemoryMut<'a, f32>>) -> Self {
        self.own = Some(factor.into());
        self
    }
}

/// The same operands: a dependent launch to e4m3 then reads x and writes at once, and ends behind what is before it in the stream.
///
/// # Safety
/// x was written, and what is written to was free, when the kernel before it in the stream let the next one begin.
pub unsafe fn settled(operands: QuantiseOperands<'_>) -> QuantiseOperands<'_> {
    QuantiseOperands { settled: true, ..operands }
}

const PIECES: usize = 6;

impl Pieces for QuantiseOperands<'_> {
    fn visit<'b, V: Visit<'b>>(&'b mut self, visitor: &mut V) -> Result<()> {
        let Self { m: _, x, codes, scales, row_factors, given, own, settled: _ } = self;
        visitor.values(0, x)?;
        visitor.write(1, codes)?;
        if let Some(scales) = scales {
            visitor.write(2, scales)?;
        }
        if let Some(factors) = row_factors {
            visitor.write(5, factors)?;
        }
        if let Some((_, Some(given))) = given {
            visitor.read(3, given)?;
        }
        own.as_mut().map_or(Ok(()), |own| visitor.write(4, own))
    }
}

impl Quantiser {
    pub(crate) fn new(quantise: Quantise, kernel: Arc<SimtKernel>) -> Self {
        Self { quantise, kernel }
    }

    /// What it was made for.
    pub fn quantise(&self) -> &Quantise {
        &self.quantise
    }

    /// The machine code, with its resource use and provenance.
    #[must_use]
    pub fn cubin(&self) -> &Arc<Cubin> {
        self.kernel.cubin()
    }

    /// Quantises in `stream`: checks `operands`, puts one launch into the stream (two, where the factor is the tensor's own) and
    /// returns; no rows are no launch. Nothing is allocated; the call can be captured into a graph as
    /// [`Kernel::launch`](crate::run::Kernel::launch) can.
    ///
    /// # Errors
    /// Operand, if a format, size, alignment, factor or device does not fit, before anything is launched; driver, if a launch is
    /// refused or an earlier asynchronous failure shows.
    pub fn launch(&self, stream: &impl LaunchStream, mut operands: QuantiseOperands<'_>) -> Result<()> {
        self.put(stream, &mut operands, false).map_err(|error| error.context(self.quantise.to_string()))
    }

    /// As [`Quantiser::launch`], but the kernel may begin while what is before it in the stream still runs, and waits for its end
    /// by itself (programmatic dependent launch; before sm_90 a plain one).
    ///
    /// # Errors
    /// As [`Quantiser::launch`].
    pub fn launch_dependent(&self, stream: &impl LaunchStream, mut operands: QuantiseOperands<'_>) -> Result<()> {
        self.put(stream, &mut operands, true).map_err(|error| error.context(self.quantise.to_string()))
    }

    fn put(&self, stream: &impl LaunchStream, operands: &mut QuantiseOperands<'_>, is_dependent: bool) -> Result<()> {
        let (quantise, m) = (&self.quantise, operands.m);
        let k = quantise.row_length();
        if m > Problem::M_MAX {
            return Err(Error::operand(format!("{m} rows: at most {}", Problem::M_MAX)));
        }
        let QuantiseOperands { x, scales, row_factors, given, own, .. } = &*operands;
        if x.format() != quantise.x_format() {
            return Err(Error::operand(format!("x is {}, the kernel is for {}", x.format(), quantise.x_format())));
        }
        let to_nvfp4 = quantise.to_format() == Format::Nvfp4;
        let optional = [
            ("scales", scales.is_some(), to_nvfp4),
            ("row factors", row_factors.is_some(), !to_nvfp4),
            ("factor", given.is_some(), to_nvfp4 && !quantise.is_own()),
            ("own factor", own.is_some(), quantise.is_own()),
        ];
        check_given(optional)?;
        if !to_nvfp4 {
            return e4m3::launch(&self.kernel, quantise, stream, operands, is_dependent);
        }
        let factor = given.as_ref().map_or(1.0, |(factor, _)| *factor);
        check::positive("the factor", factor)?;
        let layout = quantise.scale_layout();
        let scale_bytes = layout.bytes(m as usize, k as usize) as u64;
        let Ok(all) = i32::try_from(scale_bytes) else {
            return Err(Error::operand(format!("{m} rows have {scale_bytes} bytes of scales: at most {}", i32::MAX)));
        };
        if m == 0 {
            return Ok(());
        }
        let elements = u64::from(m) * u64::from(k);
        let on_device = matches!(given, Some((_, Some(_))));
        let own_length = if quantise.is_own() { Quantise::OWN_LENGTH as u64 } else { 0 };
        let lines = [
            Line { name: "x", needed: elements, alignment: 16 },
            Line { name: "codes", needed: Format::Nvfp4.bytes(elements as usize) as u64, alignment: 8 },
            Line { name: "scales", needed: scale_bytes, alignment: 1 },
            Line { name: "factor", needed: u64::from(on_device), alignment: 4 },
            Line { name: "own factor", needed: own_length, alignment: 4 },
            Line { name: "row factors", needed: 0, alignment: 4 },
        ];
        // No more than bytes of scales, which a padded layout has some more of.
        let blocks = (elements / BLOCK as u64) as u32;
        let params =
            |[x, codes, scales, given, own, _]: [u64; PIECES]| Params { x, codes, scales, given, own, factor, blocks };
        let grid = (all as u32).div_ceil(THREADS).min(GRID_MAX);
        let launch = SimtLaunch::new(QUANTISE, grid, THREADS).apart(&self.kernel, is_dependent);
        let grid = (blocks * 2).div_ceil(MAXIMUM_THREADS).min(MAXIMUM_GRID_MAX);
        let maximum = SimtLaunch::new(MAXIMUM, grid, MAXIMUM_THREADS).apart(&self.kernel, is_dependent);
        let launches = [maximum, launch];
        let launches = if quantise.is_own() { &launches[..] } else { &launches[1..] };
        // SAFETY: the entries' only parameter has the layout of `Params` (checked below against the templates), and they read and
        // write as many elements of each piece as its line says. They wait for what was before the launch before they read or
        // write.
        unsafe { self.kernel.launch(stream, operands, &lines, params, launches, is_dependent) }
    }
}

impl fmt::Debug for Quantiser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kernel.fmt(f)
    }
}

/// Passed by value; `QuantiseParams` in `templates/simt/quantise/params.cuh` has the same order and sizes. Addresses are device
/// memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Params {
    x: u64,
    codes: u64,
    scales: u64,
    given: u64,
    own: u64,
    factor: f32,
    blocks: u32,
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;
    use crate::run::simt::fields_of;

    #[test]
    fn the_parameters_lie_as_on_the_device_side() {
        let source = include_str!("../../templates/simt/quantise/params.cuh");
        let names = fields_of(source, "QuantiseParams");
        assert_eq!(names, ["x", "codes", "scales", "given", "own", "factor", "blocks"]);
        assert_eq!((size_of::<Params>(), offset_of!(Params, own), offset_of!(Params, blocks)), (48, 32, 44));
    }

    #[test]
    fn numbers_are_those_of_the_device_side() {
        let params = include_str!("../../templates/simt/quantise/params.cuh");
        assert!(params.contains(&format!("MAXIMA = {MAXIMUM_GRID_MAX};")));
        assert!(include_str!("../../templates/simt/quantise.cu").contains(&format!("THREADS = {THREADS};")));
        let maximum = include_str!("../../templates/simt/maximum.cu");
        assert!(maximum.contains(&format!("MAXIMUM_THREADS = {MAXIMUM_THREADS};")));
    }
}
