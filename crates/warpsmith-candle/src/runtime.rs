//! What all layers of a device share.

use std::sync::Arc;
#[cfg(feature = "cuda")]
use std::sync::Mutex;

use candle_core::{Device, Error, Result};
use warpsmith::engine::{Engine, Manifest, WarmUpReport};
use warpsmith::internal::Raise;
#[cfg(feature = "cuda")]
use warpsmith_checkpoint::Uploader;

/// A device of candle's with the engine that makes, finds and holds the kernels of all its layers; on the CPU there are none.
#[derive(Clone, Debug)]
pub struct Runtime {
    device: Device,
    engine: Option<Arc<Engine>>,
    /// With 32 MiB of pinned memory, from the first layer of a checkpoint on.
    #[cfg(feature = "cuda")]
    uploader: Arc<Mutex<Option<Uploader<'static>>>>,
}

impl Runtime {
    /// With an [`Engine::new`], which finds NVRTC and never installs it.
    ///
    /// # Errors
    /// If no kernels are written for the device, or it is neither a CPU nor a CUDA device.
    pub fn new(device: &Device) -> Result<Self> {
        Self::with_engine(device, Engine::new)
    }

    /// With an engine of the caller's, which may have a cache and a picker of its own. On the CPU none is made.
    ///
    /// # Errors
    /// As for [`Runtime::new`].
    pub fn with_engine(device: &Device, engine: impl FnOnce(&warpsmith::run::Device) -> Engine) -> Result<Self> {
        // Without the feature there is no device that it could be made for.
        #[cfg(not(feature = "cuda"))]
        drop(engine);
        let made = match device {
            Device::Cpu => None,
            #[cfg(feature = "cuda")]
            Device::Cuda(cuda) => {
                let stream = cuda.cuda_stream();
                let device = warpsmith::run::Device::of_context(stream.context()).map_err(Error::wrap)?;
                Some(Arc::new(engine(&device)))
            }
            _ => {
                let text = "layers run on the CPU and, with the feature `cuda`, on CUDA devices";
                return Err(refused(warpsmith::Error::unsupported(text)));
            }
        };
        Ok(Self {
            device: device.clone(),
            engine: made,
            #[cfg(feature = "cuda")]
            uploader: Arc::default(),
        })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The engine; none on the CPU.
    #[must_use]
    pub fn engine(&self) -> Option<&Engine> {
        self.engine.as_deref()
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn uploader(&self) -> &Mutex<Option<Uploader<'static>>> {
        &self.uploader
    }

    /// Has all that a manifest names ready, so that layers are made without a compile; nothing on the CPU. The report says
    /// what is not ready, and why.
    #[must_use]
    pub fn warm(&self, manifest: &Manifest) -> Option<WarmUpReport> {
        self.engine.as_ref().map(|engine| engine.warm_up(manifest))
    }
}

/// An error of warpsmith's as one of candle's.
pub(crate) fn refused(error: warpsmith::Error) -> Error {
    Error::wrap(error)
}
