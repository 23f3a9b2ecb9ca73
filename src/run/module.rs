//! A module of the driver's, and its functions. (cudarc's own would link NVRTC where cudarc is linked.)

use std::ffi::{CString, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUfunction, CUfunction_attribute, CUmodule, CUresult};
use cudarc::driver::{CudaContext, DriverError};

use crate::build::Cubin;

/// A module that is loaded, and unloaded when it is dropped.
#[derive(Debug)]
pub(super) struct Module {
    handle: CUmodule,
    context: Arc<CudaContext>,
}

// SAFETY: a handle that the driver takes from any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// A kernel's handle, for as long as its module is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function(CUfunction);

// SAFETY: a handle that the driver takes from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Module {
    pub(super) fn load(context: &Arc<CudaContext>, cubin: &Cubin) -> Result<Self, DriverError> {
        context.bind_to_thread()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the context is bound, `handle` is a valid place, and the image ends where it says itself (build/image.rs).
        unsafe { sys::cuModuleLoadData(&raw mut handle, cubin.image().as_ptr().cast::<c_void>()) }.result()?;
        Ok(Self { handle, context: Arc::clone(context) })
    }

    pub(super) fn function(&self, symbol: &str) -> Result<Function, DriverError> {
        let name = CString::new(symbol).map_err(|_| DriverError(CUresult::CUDA_ERROR_NOT_FOUND))?;
        self.context.bind_to_thread()?;
        let mut function = std::ptr::null_mut();
        // SAFETY: the module is loaded, the name ends with a NUL, and `function` is a valid place.
        unsafe { sys::cuModuleGetFunction(&raw mut function, self.handle, name.as_ptr()) }.result()?;
        Ok(Function(function))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let unload = || {
            self.context.bind_to_thread()?;
            // SAFETY: it was loaded, and nothing launches its functions any more: whoever holds one holds the module.
            unsafe { sys::cuModuleUnload(self.handle) }.result()
        };
        self.context.record_err(unload());
    }
}

impl Function {
    pub(super) fn handle(self) -> CUfunction {
        self.0
    }

    fn ask(self, attribute: CUfunction_attribute) -> Result<u32, DriverError> {
        let mut value = 0;
        // SAFETY: the function's module is loaded, and `value` is a valid place.
        unsafe { sys::cuFuncGetAttribute(&raw mut value, attribute, self.0) }.result()?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// Threads of a block at most, with the registers that the compiler gave it.
    pub(super) fn max_threads(self) -> Result<u32, DriverError> {
        self.ask(CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
    }

    /// Registers of a thread.
    pub(super) fn registers(self) -> Result<u32, DriverError> {
        self.ask(CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)
    }

    /// Lets a block have so many bytes of dynamic shared memory.
    pub(super) fn allow_shared(self, bytes: u32) -> Result<(), DriverError> {
        let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        // SAFETY: the function's module is loaded.
        unsafe { sys::cuFuncSetAttribute(self.0, most, bytes) }.result()
    }

    /// Of what an SM has for both, its blocks take as much for the first cache and as little for shared memory as they can run with.
    pub(super) fn prefer_least_shared(self) -> Result<(), DriverError> {
        let preferred = CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
        // SAFETY: the function's module is loaded.
        unsafe { sys::cuFuncSetAttribute(self.0, preferred, 0) }.result()
    }

    /// Lets a cluster have more blocks than every device of its architecture can run.
    pub(super) fn allow_wide_clusters(self) -> Result<(), DriverError> {
        let allowed = CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
        // SAFETY: the function's module is loaded.
        unsafe { sys::cuFuncSetAttribute(self.0, allowed, 1) }.result()
    }

    /// Blocks of so many threads and bytes of dynamic shared memory that an SM holds at a time.
    pub(super) fn blocks_per_sm(self, threads: u32, shared_bytes: u32) -> Result<u32, DriverError> {
        let (mut blocks, threads) = (0, i32::try_from(threads).unwrap_or(i32::MAX));
        let ask = sys::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags;
        // SAFETY: the function's module is loaded, and `blocks` is a valid place.
        unsafe { ask(&raw mut blocks, self.0, threads, shared_bytes as usize, 0) }.result()?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }
}
