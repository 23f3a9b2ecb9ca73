//! Device memory that is cleared, or copied, in a stream: between launches, without the host.

use std::ptr;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::{
    CUDA_MEMCPY2D, CUmemorytype, CUresult, CUstream, cuMemcpy2DAsync_v2, cuMemcpyDtoDAsync_v2, cuMemsetD8Async,
};

use super::capture::{Captured, is_captured_untracked};
use super::guards::Tracked;
use super::kernel::dispatch::can_hold;
use super::memory::{Memory, MemoryMut};
use super::retired::Owner;
use super::{LaunchStream, refused};
use crate::error::{Error, Result};

/// Puts a fill or a copy into the stream, which holds the owners of raw memory until it has run, as of a launch; a graph that it is
/// captured into holds them, and shared memory.
fn put(
    stream: &impl LaunchStream,
    owners: [Option<&Owner>; 2],
    shared: impl FnOnce() -> Option<Owner>,
    put: impl FnOnce(&CudaStream, bool) -> Result<()>,
) -> Result<()> {
    let (keeper, stream) = (stream.keeper(), stream.stream());
    let is_captured = is_captured_untracked(stream)?;
    let owners = owners.into_iter().flatten();
    can_hold(keeper, owners.clone().next().is_some())?;
    if is_captured {
        let held: Vec<Owner> = owners.clone().cloned().chain(shared()).collect();
        if !held.is_empty() {
            let keeper = keeper.ok_or_else(|| {
                Error::operand("shared memory is copied in a graph: capture a RawStream, which makes the graph hold it")
            })?;
            Captured::of(stream)?.hold(keeper.retired().when_dropped(held))?;
        }
    }
    stream.context().bind_to_thread().map_err(|error| refused("binding the context", error))?;
    let done = put(stream, is_captured);
    // Also after an error.
    if let Some(keeper) = keeper.filter(|_| !is_captured) {
        owners.for_each(|owner| keeper.keep(owner));
    }
    done
}

impl MemoryMut<'_, u8> {
    /// Makes every byte 0 when `stream` has come to this point; it can be captured.
    ///
    /// # Errors
    /// Operand, if the memory is in another context, has an [`owner`](MemoryMut::owner) that the stream does not hold, or the stream
    /// is being captured while cudarc tracks events; driver, if it refuses.
    pub fn clear(&mut self, stream: &impl LaunchStream) -> Result<()> {
        self.check_context(stream, "what is cleared")?;
        let bytes = self.elements();
        if bytes == 0 {
            return Ok(());
        }
        put(
            stream,
            [self.held(), None],
            || None,
            |stream, _| {
                let mut guards = Tracked::default();
                let address = self.address(stream, &mut guards);
                // SAFETY: so many bytes lie there, live and not used by others until the stream has come to this point: a view's guard
                // and who holds its owner see to that, of other raw memory its caller vouches for it.
                unsafe { cuMemsetD8Async(address, 0, bytes as usize, stream.cu_stream()) }
                    .result()
                    .map_err(|error| refused(format!("clearing {bytes} bytes"), error))
            },
        )
    }
}

impl<T: Send + Sync + 'static> Memory<'_, T> {
    /// Copies all of it when `stream` has come to this point.
    ///
    /// # Errors
    /// Operand, if `to` has another number of elements, one of both is in another context, or has an [`owner`](Memory::owner) that the
    /// stream does not hold, or the stream is being captured while cudarc tracks events; driver, if it refuses.
    pub fn copy_to(&self, stream: &impl LaunchStream, to: &mut MemoryMut<'_, T>) -> Result<()> {
        self.check_contexts(stream, to)?;
        let elements = self.elements();
        if to.elements() != elements {
            return Err(Error::operand(format!("{elements} elements are copied to {}", to.elements())));
        }
        if elements == 0 {
            return Ok(());
        }
        self.copy(
            stream,
            to,
            || format!("copying {elements} elements"),
            |from, to, stream| {
                // SAFETY: so many elements lie at both, which `copy` sees to be live and apart.
                unsafe { cuMemcpyDtoDAsync_v2(to, from, elements as usize * size_of::<T>(), stream) }
            },
        )
    }

    /// Copies so many rows, as long as all of it makes them, to the begins of as many longer ones when `stream` has come to this
    /// point. What is behind stays.
    ///
    /// # Errors
    /// Operand, if one of both is not so many rows, or those of `to` are shorter; those of [`Memory::copy_to`].
    pub fn copy_rows_to(&self, stream: &impl LaunchStream, rows: u32, to: &mut MemoryMut<'_, T>) -> Result<()> {
        self.check_contexts(stream, to)?;
        let (given, taken) = (self.elements(), to.elements());
        if rows == 0 {
            return Ok(());
        }
        let each = u64::from(rows);
        if !given.is_multiple_of(each) || !taken.is_multiple_of(each) || given > taken {
            return Err(Error::operand(format!("{given} elements are copied to {taken} in {rows} rows")));
        }
        if given == 0 {
            return Ok(());
        }
        let [width, pitch] = [given, taken].map(|elements| (elements / each) as usize * size_of::<T>());
        self.copy(
            stream,
            to,
            || format!("copying {rows} rows of {width} bytes"),
            |from, to, stream| {
                let device = CUmemorytype::CU_MEMORYTYPE_DEVICE;
                let copy = CUDA_MEMCPY2D {
                    srcXInBytes: 0,
                    srcY: 0,
                    srcMemoryType: device,
                    srcHost: ptr::null(),
                    srcDevice: from,
                    srcArray: ptr::null_mut(),
                    srcPitch: width,
                    dstXInBytes: 0,
                    dstY: 0,
                    dstMemoryType: device,
                    dstHost: ptr::null_mut(),
                    dstDevice: to,
                    dstArray: ptr::null_mut(),
                    dstPitch: pitch,
                    WidthInBytes: width,
                    Height: rows as usize,
                };
                // SAFETY: as many rows lie at both, of `width` and of `pitch` bytes, which is no less, and `copy` sees them to be live and
                // apart. The driver copies the description before it returns.
                unsafe { cuMemcpy2DAsync_v2(&raw const copy, stream) }
            },
        )
    }

    fn check_contexts(&self, stream: &impl LaunchStream, to: &MemoryMut<'_, T>) -> Result<()> {
        self.check_context(stream, "what is copied")?;
        to.check_context(stream, "where it is copied to")
    }

    /// Calls `submit` with both addresses, which are borrowed apart, and live until the stream has come to this point: by their guards
    /// and who holds their owners, or as the caller of other raw memory vouches.
    fn copy(
        &self,
        stream: &impl LaunchStream,
        to: &mut MemoryMut<'_, T>,
        doing: impl FnOnce() -> String,
        submit: impl FnOnce(u64, u64, CUstream) -> CUresult,
    ) -> Result<()> {
        put(
            stream,
            [self.held(), to.held()],
            || self.held_by_graph(),
            |stream, is_captured| {
                self.order(stream, is_captured)?;
                let mut guards = Tracked::default();
                let (from, to) = (self.address(stream, &mut guards), to.address(stream, &mut guards));
                submit(from, to, stream.cu_stream()).result().map_err(|error| refused(doing(), error))
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use warpsmith_testing::null::Null;

    use crate::run::{Device, Memory, MemoryMut, Shared};

    /// By this driver, whose device is the host.
    #[test]
    fn memory_is_cleared_and_copied() {
        Null::driver();
        let stream = Device::open(0).unwrap().context().new_stream().unwrap();
        let mut bytes = stream.clone_htod(&[7u8; 16]).unwrap();
        MemoryMut::from(bytes.slice_mut(4..9)).clear(&stream).unwrap();
        assert_eq!(stream.clone_dtoh(&bytes).unwrap(), [7, 7, 7, 7, 0, 0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7]);
        let given: Shared<f32> = stream.clone_htod(&[1.0f32, 2.0, 3.0]).unwrap().into();
        let mut to = stream.alloc_zeros::<f32>(3).unwrap();
        Memory::from(&given).copy_to(&stream, &mut MemoryMut::from(&mut to)).unwrap();
        assert_eq!(stream.clone_dtoh(&to).unwrap(), [1.0, 2.0, 3.0]);
        let error = Memory::from(&given).copy_to(&stream, &mut MemoryMut::from(&mut stream.alloc_zeros(2).unwrap()));
        assert!(error.unwrap_err().to_string().ends_with("3 elements are copied to 2"));
        let rows = stream.clone_htod(&[1u16, 2, 3, 4, 5, 6]).unwrap();
        let mut longer = stream.clone_htod(&[9u16; 10]).unwrap();
        let copy =
            |rows_in_all, to: &mut _| Memory::from(&rows).copy_rows_to(&stream, rows_in_all, &mut MemoryMut::from(to));
        copy(2, &mut longer).unwrap();
        copy(0, &mut longer).unwrap();
        assert_eq!(stream.clone_dtoh(&longer).unwrap(), [1, 2, 3, 9, 9, 4, 5, 6, 9, 9]);
        for (rows_in_all, elements) in [(4, 12), (2, 7), (2, 4)] {
            let error = copy(rows_in_all, &mut stream.alloc_zeros::<u16>(elements).unwrap()).unwrap_err();
            let why = format!("6 elements are copied to {elements} in {rows_in_all} rows");
            assert!(error.is_operand() && error.to_string().ends_with(&why), "{error}");
        }
    }
}
