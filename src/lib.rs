//! GPU kernels made for one problem shape.
//!
//! Say *what* is to be computed, as a [`Problem`](spec::Problem): operation, N, K, formats. warpsmith picks *how*, a
//! [`Variant`](spec::Variant): tile, pipeline stages, fusion, split-K; renders the CUDA for exactly that, compiles it
//! with NVRTC to a cubin, remembers it in memory and on disk, and launches it. The home problem is the first half of
//! every SwiGLU MLP on NVFP4 weights, `C = silu(A·B1ᵀ) ⊙ (A·B2ᵀ)`, single and grouped; beside it plain GEMM.
//!
//! ```no_run
//! use warpsmith::engine::Engine;
//! use warpsmith::run::{Device, Operands};
//! use warpsmith::spec::{Activation, Problem};
//!
//! let device = Device::open(0)?;
//! let engine = Engine::new(&device);
//! // f16 A, NVFP4 weights, f16 C
//! let problem = engine.native(&Problem::dual_gemm(Activation::Silu).n(4096).k(7168).m_up_to(512));
//! # let stream = device.context().default_stream();
//! # let (gate, gate_scales, up, up_scales) = (stream.alloc_zeros(4096 * 3584)?, stream.alloc_zeros(4096 * 448)?,
//! #     stream.alloc_zeros(4096 * 3584)?, stream.alloc_zeros(4096 * 448)?);
//! # let a = stream.alloc_zeros::<half::f16>(256 * 7168)?;
//! # let mut c = stream.alloc_zeros::<half::f16>(256 * 4096)?;
//! // Once, at load: repacked where kernels of this device take that, else kept.
//! let weights = engine.weights(&stream, &problem, [(gate, gate_scales), (up, up_scales)])?;
//!
//! let plan = engine.plan(&problem)?;                         // every M: picked, compiled or from a cache, loaded; once
//! let mut workspace = plan.workspace(&stream, 512)?;         // one a stream, for every launch to come
//! let operands = Operands::new(256, &a, &weights, &mut c);
//! plan.launch(&stream, operands.workspace(&mut workspace))?;    // checked, asynchronous, allocates nothing
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # From a problem to a result
//!
//! ```text
//! Problem ─ pick ─▶ Variant ─ check ─▶ Spec ─ render ─▶ Source ─ NVRTC ─▶ Cubin ─ load ─▶ Kernel ─ launch
//!    what             how            legal here      CUDA text          bytes + resources      on a device
//!                                                              memory LRU ▸ pack ▸ disk ▸ compile
//! ```
//!
//! Everything before "load" works with no GPU and no CUDA toolkit: architectures have [presets](spec::Arch), and NVRTC
//! comes from a Python wheel.
//!
//! [`Engine::new`](engine::Engine::new) finds NVRTC and never installs it. To have it installed, say
//! `Engine::with_cache(&device, KernelCache::builder().install_if_missing().build())`, as the examples and the command do.
//!
//! # Where things live
//!
//! Modules use only those above them in this list.
//!
//! | module | |
//! |---|---|
//! | [`mod@format`] | numbers and layouts: e2m1, e4m3, NVFP4 tensors, scale layouts, prepared weights |
//! | `spelling` | what all spellings share |
//! | `routing` | how rows fall into groups |
//! | `arch`, `problem` | on what, and what; [`spec`] shows them |
//! | `path` | how, on a matrix path: variants, and all that depends on the path, a folder each; [`spec`] shows the former |
//! | [`spec`] | problem, variant and architecture checked together; asks the variant's path |
//! | `operand` | what a launch is given, a line each, and the parameters of kernels |
//! | `simt` | kernels without matrix instructions: what each computes; [`spec`] shows those that are asked for |
//! | [`pick`] | which variant, and why |
//! | [`build`] | spec to CUDA to cubin; finds or installs NVRTC |
//! | [`cache`] | memory, packs, disk, and the cache that goes through them |
//! | [`run`] | device side: operands, loading, launching |
//! | [`engine`] | the composition root on a device |
//!
//! The kernels themselves are under `templates/`, a folder a matrix path and one for what these share: rendered files (`.cu`)
//! that name constants and includes, and ordinary CUDA (`.cuh`), where a folder is an axis and a file one of its values.
//! `kernel.cu` of a path says what each of them is to define.

mod arch;
pub mod build;
pub mod cache;
#[cfg(feature = "compile")]
mod child;
mod crew;
pub mod engine;
mod environment;
mod error;
mod file;
pub mod format;
mod host_memory;
#[doc(hidden)]
pub mod internal;
mod lock;
mod open;
mod operand;
mod path;
pub mod pick;
mod problem;
mod routing;
pub mod run;
mod simt;
pub mod spec;
mod spelling;
mod trust;

/// The driver API whose contexts, streams and memory this crate takes.
pub use cudarc;
pub use error::{Error, Result};
/// The 16-bit numbers of operands.
pub use half;

/// The README's first program, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
