//! Graphs being captured.

use std::sync::Arc;

use cudarc::driver::sys::{self, CUgraph, CUresult, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus};
use cudarc::driver::{CudaContext, CudaStream, DriverError};

use super::driver::driver;
use super::refused;
use crate::error::{Error, Result};

/// Whether a stream is being captured. One call of the driver, which waits for nothing.
pub(crate) fn is_captured(stream: &CudaStream) -> Result<bool> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: `status` is a valid place for a status, and the stream is alive.
    unsafe { sys::cuStreamIsCapturing(stream.cu_stream(), &raw mut status) }
        .result()
        .map_err(|error| refused("asking whether the stream is being captured", error))?;
    Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
}

/// The same, where a capture is refused while cudarc tracks events: before it is spoilt, by waiting for events from outside of it; and
/// without tracking, whoever turned it off vouches for the life of what a graph reads.
pub(super) fn is_captured_untracked(stream: &CudaStream) -> Result<bool> {
    let is_captured = is_captured(stream)?;
    if is_captured && stream.context().is_event_tracking() { Err(captured_while_tracked()) } else { Ok(is_captured) }
}

#[cold]
pub(super) fn captured_while_tracked() -> Error {
    Error::operand(
        "the stream is being captured while cudarc tracks events in its context: call the unsafe \
         `CudaContext::disable_event_tracking` first",
    )
}

/// Whether any stream of the context that waits for the default stream is being captured. Of others the driver does not
/// tell. No capture is lost by asking (CUDA driver API, `cuStreamIsCapturing`).
pub(super) fn others_are_captured(context: &CudaContext) -> Result<bool, DriverError> {
    // The handle of the legacy default stream, whatever 0 stands for here (cuda.h, `CU_STREAM_LEGACY`).
    const DEFAULT: CUstream = std::ptr::without_provenance_mut(1);
    context.bind_to_thread()?;
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: `status` is a valid place for a status, and the context of the default stream is bound.
    match unsafe { sys::cuStreamIsCapturing(DEFAULT, &raw mut status) }.result() {
        Err(DriverError(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)) => Ok(true),
        asked => asked.map(|()| false),
    }
}

/// A graph that is being captured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Captured {
    graph: CUgraph,
    /// Of the capture: no two in a process have the same.
    pub(super) id: u64,
}

impl Captured {
    /// The graph that a stream is being captured into.
    ///
    /// # Errors
    /// Driver, if it does not say.
    pub(super) fn of(stream: &CudaStream) -> Result<Self> {
        let (mut status, mut id) = (CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE, 0);
        let (mut graph, nodes, count) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        let ask = driver()?.capture_info;
        // SAFETY: status, id and graph are valid places for what is asked for; null stands for what is not.
        unsafe { ask(stream.cu_stream(), &raw mut status, &raw mut id, &raw mut graph, nodes, count) }
            .result()
            .map_err(|error| refused("asking for the graph that is being captured", error))?;
        Ok(Self { graph, id })
    }

    /// Makes the graph, its copies and what is instantiated from it hold `value` until the last of them is gone and no
    /// replay runs any more (CUDA C++ Programming Guide, "CUDA User Objects"). `V` is then dropped by a thread of the
    /// driver, on which nothing of CUDA may be called.
    pub(super) fn hold<V: Send + Sync + 'static>(&self, value: Arc<V>) -> Result<()> {
        self.give(value).map_err(|error| refused("making the captured graph hold what it uses", error))
    }

    fn give<V: Send + Sync + 'static>(&self, value: Arc<V>) -> Result<(), DriverError> {
        /// Drops what [`Captured::hold`] gave away.
        unsafe extern "C" fn release<V>(value: *mut std::ffi::c_void) {
            // SAFETY: it came from `Arc::into_raw` of the same type, and the driver calls this once.
            drop(unsafe { Arc::from_raw(value.cast_const().cast::<V>()) });
        }
        let mut object = std::ptr::null_mut();
        let value = Arc::into_raw(value).cast_mut().cast();
        let unsynchronised = sys::CUuserObject_flags::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC as u32;
        // SAFETY: `object` is a valid place for a handle, and `release` is right for `value`.
        let created =
            unsafe { sys::cuUserObjectCreate(&raw mut object, value, Some(release::<V>), 1, unsynchronised) }.result();
        if let Err(error) = created {
            // SAFETY: no object has it.
            unsafe { release::<V>(value) };
            return Err(error);
        }
        let moved = sys::CUuserObjectRetain_flags::CU_GRAPH_USER_OBJECT_MOVE as u32;
        // SAFETY: the graph is being captured, so it is alive; the object's only reference becomes the graph's.
        unsafe { sys::cuGraphRetainUserObject(self.graph, object, 1, moved) }.result().inspect_err(|_| {
            // SAFETY: the reference is still this one's. An error of this call would hide the first.
            let _ = unsafe { sys::cuUserObjectRelease(object, 1) };
        })
    }
}

/// Lets the calling thread do, for as long as this lives, what a capture of the mode "global" in another thread would
/// forbid, and be lost by: load and unload modules (CUDA driver API, `cuThreadExchangeStreamCaptureMode`).
pub(super) struct BesideCaptures(CUstreamCaptureMode);

impl BesideCaptures {
    pub(super) fn new() -> Result<Self, DriverError> {
        Self::exchange(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).map(Self)
    }

    fn exchange(mut mode: CUstreamCaptureMode) -> Result<CUstreamCaptureMode, DriverError> {
        // SAFETY: `mode` is a valid place for one mode, and holds one.
        unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) }.result().map(|()| mode)
    }
}

impl Drop for BesideCaptures {
    fn drop(&mut self) {
        // It was exchanged once; there is nothing to do about an error here.
        let _ = Self::exchange(self.0);
    }
}
