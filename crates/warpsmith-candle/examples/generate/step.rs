//! One token a step, with all that changes from step to step on the device: so one captured graph is every step.

use candle_core::{D, Tensor};
#[cfg(feature = "cuda")]
use warpsmith_candle::warpsmith::cudarc::driver::{CudaGraph, sys};

use crate::Result;
use crate::model::{Model, Place, Watch};

/// The last token, its place, and what makes the next one of them.
pub struct Step<'m> {
    model: &'m Model,
    /// `[1]`, U32, as are places.
    token: Tensor,
    place: Tensor,
    one: Tensor,
    masks: Tensor,
    #[cfg(feature = "cuda")]
    graph: Option<CudaGraph>,
}

impl<'m> Step<'m> {
    /// Behind `seen` tokens, whose keys the model has kept, comes this one. On CUDA a step is captured: nothing that the device
    /// has been given before tracks its use by events, and the device has a stream of its own.
    pub fn new(model: &'m Model, token: u32, seen: usize) -> Result<Self> {
        let one = |value: u32| Tensor::new(&[value], model.device());
        let mut step = Self {
            model,
            token: one(token)?,
            place: one(u32::try_from(seen)?)?,
            one: one(1)?,
            masks: model.masks()?,
            #[cfg(feature = "cuda")]
            graph: None,
        };
        step.capture(token, seen)?;
        Ok(step)
    }

    /// The next token.
    pub fn next(&self) -> Result<u32> {
        #[cfg(feature = "cuda")]
        if let Some(graph) = &self.graph {
            graph.launch()?;
            return self.token();
        }
        self.advance()?;
        self.token()
    }

    fn token(&self) -> Result<u32> {
        Ok(self.token.squeeze(0)?.to_scalar()?)
    }

    /// Puts the next token and its place where the last ones are.
    fn advance(&self) -> Result<()> {
        let mask = self.masks.index_select(&self.place, 0)?;
        let place = Place::At { place: &self.place, mask: &mask };
        let logits = self.model.forward(&self.token.unsqueeze(0)?, place, &mut Watch::default())?;
        let (next, after) = (logits.flatten_all()?.unsqueeze(0)?.argmax(D::Minus1)?, (&self.place + &self.one)?);
        self.token.slice_set(&next, 0, 0)?;
        Ok(self.place.slice_set(&after, 0, 0)?)
    }

    #[cfg(not(feature = "cuda"))]
    #[expect(clippy::unnecessary_wraps, reason = "as with a device")]
    fn capture(&mut self, _: u32, _: usize) -> Result<()> {
        Ok(())
    }

    /// On CUDA a graph of [`Step::advance`]. A step before it loads all kernels and fills candle's cache of what kernels are
    /// told from the host: a graph reads that cache.
    #[cfg(feature = "cuda")]
    fn capture(&mut self, token: u32, seen: usize) -> Result<()> {
        let candle_core::Device::Cuda(device) = self.model.device().clone() else { return Ok(()) };
        let _cache = device.enable_cuda_graph_htod_cache();
        self.advance()?;
        let stream = device.cuda_stream();
        stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        let captured = self.advance();
        // A capture is ended whether or not all went into it.
        let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = stream.end_capture(flags);
        captured?;
        self.graph = graph?;
        // What the step before has changed.
        let back = |to: &Tensor, value: u32| to.slice_set(&Tensor::new(&[value], to.device())?, 0, 0);
        back(&self.token, token)?;
        Ok(back(&self.place, u32::try_from(seen)?)?)
    }
}
