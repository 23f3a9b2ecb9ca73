//! A cubin loaded on a device.

pub(super) mod dispatch;

use std::fmt;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};

use super::check::OperandSpec;
use super::code::{Code, Modules};
use super::launch::Ready;
use super::set_up::{early_prepass, most_rows, ready};
use super::tokens::TokensFrom;
use super::{Device, LoadTime, Workspace, refused};
use crate::build::{Built, Cubin};
use crate::error::{Error, Result};
use crate::spec::Spec;

/// Machine code loaded on a device, with its geometry. Holding it keeps it loaded; it can be shared between threads.
///
/// Loading may wait for the device: load ahead, not on the hot path. It does not disturb graphs that other threads
/// capture. A graph that a launch was captured into holds the kernel for itself. The last holder may drop it at any time,
/// also while it runs: it is unloaded by [`Device::reclaim`].
pub struct Kernel {
    spec: Spec,
    cubin: Arc<Cubin>,
    operand_spec: OperandSpec,
    /// The driver's handle of the context that it is loaded in.
    context: usize,
    /// In their order.
    launches: Vec<Ready>,
    /// In the place of the prepass among them where the launch is a dependent one of up to so many rows.
    early_prepass: Option<(Ready, u32)>,
    /// Rows whose blocks a grid has room for.
    most_rows: u32,
    tokens: TokensFrom,
    /// Whether kernels of one call wait for each other by themselves.
    can_depend: bool,
    /// Clusters of the matrix kernel that the device runs at a time, if it has any.
    resident_clusters: Option<u32>,
    load_time: LoadTime,
    /// `PROBLEM/VARIANT`, for errors.
    name: String,
    code: Arc<Code>,
    /// Behind the code, which comes here when it goes.
    modules: Arc<Modules>,
}

impl Kernel {
    /// Loads machine code onto a device.
    ///
    /// # Errors
    /// Driver, if it refuses the image (another architecture, an ABI newer than the driver) or has not enough memory;
    /// unsupported, if the device cannot run a block of it.
    pub fn load(device: &Device, built: &Built) -> Result<Self> {
        let name = built.of().name();
        Self::load_named(device.modules(), built, &name).map_err(|error| error.context(format!("loading {name}")))
    }

    fn load_named(modules: &Arc<Modules>, built: &Built, name: &str) -> Result<Self> {
        let (spec, cubin, context) = (built.of(), built.cubin(), modules.context());
        let refuses = |error| refused(format!("the driver refuses the cubin for {}", spec.arch().target()), error);
        let set_up = |code: Arc<Code>| {
            let launches =
                spec.launches().map(|launch| ready(context, &code, spec, launch)).collect::<Result<Vec<_>>>()?;
            let early_prepass = early_prepass(context, &code, spec)?;
            let resident = launches.iter().map(Ready::resident_clusters).find_map(Result::transpose).transpose();
            let resident = resident.map_err(|error| refused("asking how many clusters are resident", error))?;
            Ok((code, launches, early_prepass, resident))
        };
        let ((code, launches, early_prepass, resident_clusters), load_time) = modules.load(cubin, refuses, set_up)?;
        if resident_clusters == Some(0) {
            let (blocks, shared) = (spec.variant().cluster.blocks(), spec.geometry().shared_bytes);
            return Err(Error::unsupported(format!(
                "the device runs no cluster of {blocks} blocks with {shared} bytes of shared memory each"
            )));
        }
        Ok(Self {
            spec: *spec,
            cubin: Arc::clone(cubin),
            operand_spec: OperandSpec::new(spec)?,
            context: context.cu_ctx() as usize,
            launches,
            early_prepass,
            most_rows: most_rows(spec),
            tokens: TokensFrom::new(spec),
            can_depend: spec.variant().path.can_depend(),
            resident_clusters,
            load_time,
            name: name.to_owned(),
            code,
            modules: Arc::clone(modules),
        })
    }

    /// A workspace for launches of up to `m` rows in `stream`: to be made ahead and used again. A few bytes where the
    /// variant needs none.
    ///
    /// # Errors
    /// Driver, if the device has no room.
    pub fn workspace(&self, stream: &Arc<CudaStream>, m: u32) -> Result<Workspace> {
        Workspace::of_bytes(stream, self.spec.workspace_bytes(m)).map_err(|error| error.context(self.name.as_str()))
    }

    /// What it was made for.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The machine code, with its resource use and provenance.
    #[must_use]
    pub fn cubin(&self) -> &Arc<Cubin> {
        &self.cubin
    }

    /// What loading it took: modules of one context are loaded one after the other.
    #[must_use]
    pub fn load_time(&self) -> LoadTime {
        self.load_time
    }

    /// Blocks of clusters that the device runs at a time, for a variant that has clusters: an H200 runs 132 blocks in
    /// clusters of 2, but only 120 in clusters of 4.
    #[must_use]
    pub fn resident_cluster_blocks(&self) -> Option<u32> {
        self.resident_clusters.map(|clusters| clusters * self.spec.variant().cluster.blocks())
    }

    /// Blocks of the matrix kernel that one SM holds at a time, as the driver counts them from its registers, threads and
    /// shared memory.
    ///
    /// # Errors
    /// Driver, if it does not say.
    pub fn resident_blocks_per_sm(&self) -> Result<u32> {
        let geometry = self.spec.geometry();
        self.code
            .entry(&self.spec.symbol())
            .and_then(|function| {
                self.context().bind_to_thread()?;
                function.blocks_per_sm(geometry.threads, geometry.shared_bytes)
            })
            .map_err(|error| refused(format!("{}: asking how many blocks an SM holds", self.name), error))
    }

    /// The context it is loaded in.
    #[must_use]
    pub fn context(&self) -> &Arc<CudaContext> {
        self.modules.context()
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on device {}", self.name, self.context().ordinal())
    }
}
