//! Weights prepared on the device.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, CudaView, result};

use super::capture::is_captured;
use super::check::{self, Home, MatrixSize, Needed};
use super::code::{Code, Function, Modules};
use super::guards::{Guards, Tracked};
use super::{Device, LoadTime, Matrix, refused};
use crate::build::{Cubin, Preparation};
use crate::error::{Error, Result};
use crate::format::{Format, Prepared, PreparedLayout};

/// Threads of a block, each block of threads repacking blocks of weights.
const THREADS: u32 = 128;
/// Blocks of threads at most: more than any device runs at a time, each then takes several blocks of weights.
const GRID_MAX: u32 = 1 << 16;

/// Prepared weights in device memory.
#[derive(Debug)]
pub struct PreparedWeights {
    bytes: CudaSlice<u8>,
    layout: PreparedLayout,
}

impl PreparedWeights {
    /// Copies weights that were prepared on the host to the device of `stream`.
    ///
    /// # Errors
    /// Driver, if the device has no room or refuses the copy.
    pub fn from_host(stream: &Arc<CudaStream>, prepared: &Prepared) -> Result<Self> {
        let layout = *prepared.layout();
        let doing = || format!("copying {layout} to the device");
        let bytes = stream.clone_htod(prepared.bytes()).map_err(|error| refused(doing(), error))?;
        Ok(Self { bytes, layout })
    }

    /// Copies them to the host, to be stored or looked at; waits for everything in `stream` first.
    ///
    /// # Errors
    /// Driver, if it refuses the copy or something in the stream failed.
    pub fn to_host(&self, stream: &Arc<CudaStream>) -> Result<Prepared> {
        let copy = || {
            let bytes = stream.clone_dtoh(&self.bytes)?;
            stream.synchronize().map(|()| bytes)
        };
        let bytes = copy().map_err(|error| refused(format!("copying {} to the host", self.layout), error))?;
        Prepared::from_bytes(self.layout, bytes)
    }

    /// The same weights a second time on the device, copied in the stream that they were made in.
    ///
    /// # Errors
    /// Driver, if the device has no room or refuses the copy.
    pub fn copy(&self) -> Result<Self> {
        let doing = || format!("copying {} on the device", self.layout);
        let bytes = self.bytes.try_clone().map_err(|error| refused(doing(), error))?;
        Ok(Self { bytes, layout: self.layout })
    }

    /// Where the bytes lie.
    #[must_use]
    pub fn layout(&self) -> &PreparedLayout {
        &self.layout
    }

    pub(super) fn slice(&self) -> &CudaSlice<u8> {
        &self.bytes
    }

    /// The bytes, [`PreparedLayout::bytes`] of them; their address is a multiple of 256.
    #[must_use]
    pub fn as_view(&self) -> CudaView<'_, u8> {
        self.bytes.as_view()
    }
}

/// A loaded kernel that prepares weights of any n, k and number of groups. Holding it keeps it loaded.
///
/// [`Engine::prepare`](crate::engine::Engine::prepare) loads and keeps what it needs; this is for those who have no
/// engine.
pub struct Preparer {
    preparation: Preparation,
    cubin: Arc<Cubin>,
    function: Function,
    load_time: LoadTime,
    /// What holds the function, and then what it goes to.
    _code: Arc<Code>,
    modules: Arc<Modules>,
}

impl Preparer {
    /// Loads the cubin of `preparation` onto a device.
    ///
    /// # Errors
    /// Driver, if it refuses the image or has not enough memory.
    pub fn load(device: &Device, preparation: Preparation, cubin: Arc<Cubin>) -> Result<Self> {
        let (symbol, modules) = (preparation.symbol(), device.modules());
        let refuses = |error| refused(format!("loading {symbol}"), error);
        let set_up = |code: Arc<Code>| {
            let function = Function::from(&code.entry(&symbol).map_err(refuses)?);
            Ok((code, function))
        };
        let ((code, function), load_time) = modules.load(&cubin, refuses, set_up)?;
        Ok(Self { preparation, cubin, function, load_time, _code: code, modules: Arc::clone(modules) })
    }

    /// Prepares the one operand `[groups, n, k]` of `layout`, or the two (B1, the gate, first), in `stream`: checks them,
    /// allocates the result, launches and returns. The operands are not needed once the stream has passed this point;
    /// the result can be used behind it, in the same stream or in one that waits for it.
    ///
    /// # Errors
    /// Operand, if `layout` is another kernel's, a format, size, alignment or device does not fit, or the stream is being
    /// captured (this allocates), before anything is launched; driver, if the device has no room or refuses the launch.
    pub fn prepare(
        &self,
        stream: &Arc<CudaStream>,
        layout: &PreparedLayout,
        operands: &[Matrix<'_>],
    ) -> Result<PreparedWeights> {
        self.checked_launch(stream, layout, operands).map_err(|error| error.context(format!("preparing {layout}")))
    }

    fn checked_launch(
        &self,
        stream: &Arc<CudaStream>,
        layout: &PreparedLayout,
        operands: &[Matrix<'_>],
    ) -> Result<PreparedWeights> {
        let (context, home) = (self.modules.context(), Home::of(self.modules.context()));
        home.check("the stream", stream.context().cu_ctx() as usize, stream.context().ordinal())?;
        let sizes: Vec<_> = operands.iter().map(Matrix::size).collect();
        check_sizes(self.preparation, layout, home, &sizes)?;
        if is_captured(stream)? {
            return Err(Error::operand("the stream is being captured: prepare weights before"));
        }

        let doing = || format!("allocating {} bytes", layout.bytes());
        let mut bytes = stream.alloc_zeros::<u8>(layout.bytes()).map_err(|error| refused(doing(), error))?;
        {
            let mut whole = bytes.as_view_mut();
            let mut guards = Tracked::default();
            let mut params = Params { n: layout.n(), k: layout.k(), groups: layout.groups(), ..Params::default() };
            for ((operand, codes), scales) in operands.iter().zip(&mut params.codes).zip(&mut params.scales) {
                (*codes, *scales) = operand.addresses(stream, &mut guards);
            }
            params.prepared = guards.write(&mut whole, stream);
            params.check_alignment()?;
            context.bind_to_thread().map_err(|error| refused("binding the context", error))?;

            let blocks = u32::try_from(layout.blocks()).unwrap_or(u32::MAX).min(GRID_MAX);
            let mut arguments = [(&raw mut params).cast::<c_void>()];
            // SAFETY: the function is of a module that `self` keeps loaded, in the context that is bound. Its only
            // parameter has the layout of `Params` (checked below against templates/prepare.cu), which the driver copies
            // before it returns. Its addresses are of live memory of this context, as large as the kernel reads for
            // `layout` (check_sizes) and writes (allocated above), and cudarc's guards order this use before the memory
            // is released or used in another stream.
            unsafe {
                result::launch_kernel(
                    self.function.handle(),
                    (blocks, 1, 1),
                    (THREADS, 1, 1),
                    0,
                    stream.cu_stream(),
                    &mut arguments,
                )
            }
            .map_err(|error| refused(format!("launching {blocks} blocks of {THREADS} threads"), error))?;
        }
        Ok(PreparedWeights { bytes, layout: *layout })
    }

    /// What loading it took: modules of one context are loaded one after the other.
    #[must_use]
    pub fn load_time(&self) -> LoadTime {
        self.load_time
    }

    /// Which kernel it is.
    pub fn preparation(&self) -> Preparation {
        self.preparation
    }

    /// The machine code, with its resource use and provenance.
    #[must_use]
    pub fn cubin(&self) -> &Arc<Cubin> {
        &self.cubin
    }
}

impl fmt::Debug for Preparer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on device {}", self.preparation.symbol(), self.modules.context().ordinal())
    }
}

/// Checks number, formats, sizes and places of the operands.
fn check_sizes(preparation: Preparation, layout: &PreparedLayout, home: Home, operands: &[MatrixSize]) -> Result<()> {
    let scales = preparation.scales();
    let needed = Preparation::new(layout, scales);
    if needed != preparation {
        return Err(Error::operand(format!("{} was given what is for {}", preparation.symbol(), needed.symbol())));
    }
    let names: &[&str] = if layout.products() == 1 { &["b"] } else { &["b1", "b2"] };
    if operands.len() != names.len() {
        return Err(Error::operand(format!("{} B given, {} are needed", operands.len(), names.len())));
    }
    let (groups, n, k) = (u64::from(layout.groups()), u64::from(layout.n()), u64::from(layout.k()));
    let needed = Needed::new(Format::Nvfp4, groups * n * k, groups * check::scale_bytes(scales, n, k));
    names.iter().zip(operands).try_for_each(|(name, operand)| needed.check(home, name, operand))
}

/// Passed by value; `PrepareParams` in `templates/prepare.cu` has the same order and sizes. Addresses are device memory,
/// 0 stands for "none".
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Params {
    codes: [u64; 2],
    scales: [u64; 2],
    prepared: u64,
    n: u32,
    k: u32,
    groups: u32,
}

impl Params {
    /// Codes are loaded 16 bytes at a time, scales 4.
    fn check_alignment(&self) -> Result<()> {
        let ([b, b2], [b_scales, b2_scales]) = (self.codes, self.scales);
        check::aligned(&[("b", b), ("b2", b2)], 16)?;
        check::aligned(&[("scales of b", b_scales), ("scales of b2", b2_scales)], 4)
    }
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::super::check::Buffer;
    use super::*;
    use crate::format::ScaleLayout;

    const HOME: Home = Home { context: 0x1000, ordinal: 0 };

    fn operand(codes: u64, scales: u64) -> MatrixSize {
        let buffer = |elements| Buffer { elements, context: HOME.context, ordinal: HOME.ordinal };
        MatrixSize { format: Format::Nvfp4, values: buffer(codes), scales: Some(buffer(scales)) }
    }

    #[test]
    fn the_parameters_lie_as_on_the_device_side() {
        assert_eq!(size_of::<Params>(), 56);
        let offsets = [
            offset_of!(Params, codes),
            offset_of!(Params, scales),
            offset_of!(Params, prepared),
            offset_of!(Params, n),
            offset_of!(Params, k),
            offset_of!(Params, groups),
        ];
        assert_eq!(offsets, [0, 16, 32, 40, 44, 48]);
    }

    #[test]
    fn operands_that_do_not_fit_are_refused_with_both_numbers() {
        let layout = PreparedLayout::new(2, Format::F16, 3, 48, 192).unwrap();
        let linear = Preparation::new(&layout, ScaleLayout::Linear);
        let swizzled = Preparation::new(&layout, ScaleLayout::Swizzled128x4);
        let (codes, scales, padded) = (3 * 48 * 96, 3 * 48 * 12, 3 * 128 * 12);
        check_sizes(linear, &layout, HOME, &[operand(codes, scales); 2]).unwrap();
        check_sizes(swizzled, &layout, HOME, &[operand(codes, padded); 2]).unwrap();

        let good = operand(codes, padded);
        let refusal = |preparation, operands: &[MatrixSize]| {
            let error = check_sizes(preparation, &layout, HOME, operands).unwrap_err();
            assert!(error.is_operand());
            error.to_string()
        };
        assert_eq!(refusal(swizzled, &[good]), "1 B given, 2 are needed");
        assert_eq!(
            refusal(swizzled, &[good, operand(codes - 1, padded)]),
            "b2 has 13823 bytes of codes, 13824 are needed"
        );
        assert_eq!(
            refusal(swizzled, &[operand(codes, scales), good]),
            "b1 has 1728 bytes of block scales, 4608 are needed"
        );
        assert_eq!(
            refusal(swizzled, &[MatrixSize { format: Format::F16, ..good }, good]),
            "b1 is f16, the kernel is for nvfp4"
        );
        let elsewhere = MatrixSize { values: Buffer { ordinal: 1, context: 0x2000, ..good.values }, ..good };
        assert_eq!(refusal(swizzled, &[good, elsewhere]), "b2 is on device 1, the kernel on device 0");
        let single = Preparation::new(&PreparedLayout::new(1, Format::F16, 1, 16, 64).unwrap(), ScaleLayout::Linear);
        assert_eq!(refusal(single, &[good]), "prepare_single_f16_linear was given what is for prepare_dual_f16_linear");
    }

    #[test]
    fn addresses_are_aligned() {
        let good = Params { codes: [0x100, 0x200], scales: [0x304, 0x408], ..Params::default() };
        good.check_alignment().unwrap();
        let error = Params { codes: [0x100, 0x208], ..good }.check_alignment().unwrap_err();
        assert_eq!(error.to_string(), "b2 begins at 0x208, which is not a multiple of 16 bytes");
        let error = Params { scales: [0x302, 0], ..good }.check_alignment().unwrap_err();
        assert_eq!(error.to_string(), "scales of b begins at 0x302, which is not a multiple of 4 bytes");
    }
}
