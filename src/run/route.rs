//! Tokens routed to experts on the device.

use std::fmt;
use std::sync::Arc;

use super::LaunchStream;
use super::memory::{Memory, MemoryMut};
use super::operand::Values;
use super::simt::{Line, Pieces, SimtKernel, SimtLaunch, Visit};
use super::workspace::{Workspace, WorkspaceMemory};
use crate::build::Cubin;
use crate::error::{Error, Result};
use crate::simt::PORTABLE_CLUSTER;
use crate::spec::{Problem, Route, Scoring};

/// Threads of a block: a warp a token of a chunk.
const THREADS: u32 = 1024;
/// Tokens of a chunk at most.
const CHUNK: u32 = 32;
/// So many tokens a block routes as soon as a cluster does, and so many a cluster that every device can run as soon as a wider one.
const OF_ONE_BLOCK: u32 = 8;
const OF_PORTABLE: u32 = 64;
/// Blocks that share many tokens at most: as many as run at a time on a large device.
const BLOCKS: u32 = 128;
/// The kernel's entries, in the order of `Simt::entries`.
const FEW: usize = 0;
const COUNT: usize = 1;
const PLACE: usize = 2;

/// The loaded kernels of a [`Route`], from [`Engine::route`](crate::engine::Engine::route). Holding it keeps them loaded; it can be
/// shared between threads.
#[derive(Clone)]
pub struct Router {
    route: Route,
    kernel: Arc<SimtKernel>,
    /// Blocks at most of the cluster that routes few tokens.
    most_blocks: u32,
}

/// What a [`Router`] works on, all on its device.
///
/// The ids and weights of slot j of token t are element t · k + j.
#[derive(Debug)]
#[must_use]
pub struct RouteOperands<'a> {
    tokens: u32,
    from: From<'a>,
    lists: MemoryMut<'a, i32>,
    tile: u32,
    scale: f32,
    workspace: Option<WorkspaceMemory<'a>>,
}

#[derive(Debug)]
enum From<'a> {
    Logits { logits: Values<'a>, bias: Option<Memory<'a, f32>>, ids: MemoryMut<'a, i32>, weights: MemoryMut<'a, f32> },
    Ids(Memory<'a, i32>),
}

impl<'a> RouteOperands<'a> {
    /// From `logits`, `[tokens, E]`; writes `ids` and `weights`, `[tokens, k]` each, and `lists`, which lie there as
    /// [`Route::lists`] says.
    pub fn new(
        tokens: u32,
        logits: impl Into<Values<'a>>,
        ids: impl Into<MemoryMut<'a, i32>>,
        weights: impl Into<MemoryMut<'a, f32>>,
        lists: impl Into<MemoryMut<'a, i32>>,
    ) -> Self {
        let from = From::Logits { logits: logits.into(), bias: None, ids: ids.into(), weights: weights.into() };
        Self { tokens, from, lists: lists.into(), tile: 1, scale: 1.0, workspace: None }
    }

    /// From `ids` that were chosen elsewhere, `[tokens, k]`. A slot whose id is no expert's, or its token's for the second
    /// time, has no row; [`RouteLists::summary`](crate::spec::RouteLists::summary) says how many these are.
    pub fn given(tokens: u32, ids: impl Into<Memory<'a, i32>>, lists: impl Into<MemoryMut<'a, i32>>) -> Self {
        Self { tokens, from: From::Ids(ids.into()), lists: lists.into(), tile: 1, scale: 1.0, workspace: None }
    }

    /// `[E]`: what is added to an expert's sigmoid before it is chosen by that; needed by [`Scoring::SigmoidBias`], and only by
    /// it. Does nothing where ids are given.
    pub fn bias(mut self, values: impl Into<Memory<'a, f32>>) -> Self {
        if let From::Logits { bias, .. } = &mut self.from {
            *bias = Some(values.into());
        }
        self
    }

    /// Rows of a tile, by which [`RouteLists::tiles_before`](crate::spec::RouteLists::tiles_before) counts; 1 if it is not said.
    pub fn tile(mut self, rows: u32) -> Self {
        self.tile = rows;
        self
    }

    /// The factor of the weights; 1 if it is not said.
    pub fn scale(mut self, scale: f32) -> Self {
        self.scale = scale;
        self
    }

    /// At least [`Router::workspace_bytes`] bytes; not needed where that is 0. Its contents before and after mean nothing.
    pub fn workspace(mut self, workspace: impl Into<WorkspaceMemory<'a>>) -> Self {
        self.workspace = Some(workspace.into());
        self
    }
}

/// The numbers of lines.
mod piece {
    pub(super) const LOGITS: usize = 0;
    pub(super) const BIAS: usize = 1;
    pub(super) const IDS: usize = 2;
    pub(super) const WEIGHTS: usize = 3;
    pub(super) const LISTS: usize = 4;
    pub(super) const WORKSPACE: usize = 5;
    pub(super) const COUNT: usize = 6;
}

impl Pieces for RouteOperands<'_> {
    fn visit<'b, V: Visit<'b>>(&'b mut self, visitor: &mut V) -> Result<()> {
        match &mut self.from {
            From::Logits { logits, bias, ids, weights } => {
                visitor.values(piece::LOGITS, logits)?;
                if let Some(bias) = bias {
                    visitor.read(piece::BIAS, bias)?;
                }
                visitor.write(piece::IDS, ids)?;
                visitor.write(piece::WEIGHTS, weights)?;
            }
            From::Ids(ids) => visitor.read(piece::IDS, ids)?,
        }
        visitor.write(piece::LISTS, &mut self.lists)?;
        match &mut self.workspace {
            Some(workspace) => visitor.workspace(piece::WORKSPACE, workspace),
            None => Ok(()),
        }
    }
}

impl Router {
    pub(crate) fn new(route: Route, kernel: Arc<SimtKernel>) -> Self {
        let most_blocks = kernel.widest_cluster(FEW, THREADS, route.cluster());
        Self { route, kernel, most_blocks }
    }

    /// What it was made for.
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// The machine code, with its resource use and provenance.
    #[must_use]
    pub fn cubin(&self) -> &Arc<Cubin> {
        self.kernel.cubin()
    }

    /// Bytes of workspace that launches of up to `tokens` tokens need: none for few.
    #[must_use]
    pub fn workspace_bytes(&self, tokens: u32) -> u64 {
        // Somewhat more tokens may be shared by fewer blocks.
        let most = tokens.div_ceil(CHUNK).min(BLOCKS);
        self.share(tokens).map_or(0, |_| u64::from(most) * self.route.local_experts().len() as u64 * 4)
    }

    /// A workspace for launches of up to `tokens` tokens in `stream`.
    ///
    /// # Errors
    /// Driver, if the device has no room.
    pub fn workspace(&self, stream: &Arc<cudarc::driver::CudaStream>, tokens: u32) -> Result<Workspace> {
        Workspace::of_bytes(stream, self.workspace_bytes(tokens)).map_err(|error| error.context(self.route.to_string()))
    }

    /// Routes `operands` in `stream`: checks them, puts one launch into the stream (few tokens) or two, and returns. Lists are
    /// written for no tokens, too. Nothing is allocated; the call can be captured into a graph as
    /// [`Kernel::launch`](crate::run::Kernel::launch) can.
    ///
    /// # Errors
    /// Operand, if a format, size, alignment or device does not fit, before anything is launched; driver, if a launch is refused
    /// or an earlier asynchronous failure shows.
    pub fn launch(&self, stream: &impl LaunchStream, mut operands: RouteOperands<'_>) -> Result<()> {
        self.put(stream, &mut operands, false).map_err(|error| error.context(self.route.to_string()))
    }

    /// As [`Router::launch`], but the kernel may begin while what is before it in the stream still runs, and waits for its end by
    /// itself (programmatic dependent launch; before sm_90 a plain one).
    ///
    /// # Errors
    /// As [`Router::launch`].
    pub fn launch_dependent(&self, stream: &impl LaunchStream, mut operands: RouteOperands<'_>) -> Result<()> {
        self.put(stream, &mut operands, true).map_err(|error| error.context(self.route.to_string()))
    }

    fn put(&self, stream: &impl LaunchStream, operands: &mut RouteOperands<'_>, is_dependent: bool) -> Result<()> {
        let (route, tokens) = (&self.route, operands.tokens);
        let (k, experts) = (route.experts_per_token(), route.expert_count());
        let rows = u64::from(tokens) * u64::from(k);
        if rows > u64::from(Problem::M_MAX) {
            return Err(Error::operand(format!("{tokens} tokens have {rows} rows: at most {}", Problem::M_MAX)));
        }
        let tile = i32::try_from(operands.tile).ok().filter(|tile| (1..=1 << 16).contains(tile));
        let Some(tile) = tile else {
            return Err(Error::operand(format!("a tile of {} rows: must be 1 to {}", operands.tile, 1 << 16)));
        };
        let logits = match (&operands.from, route.logits_format()) {
            (From::Ids(_), None) => 0,
            (From::Logits { logits, .. }, Some(format)) if logits.format() == format => {
                u64::from(tokens) * u64::from(experts)
            }
            (From::Logits { logits, .. }, Some(format)) => {
                return Err(Error::operand(format!("the logits are {}, the kernel is for {format}", logits.format())));
            }
            (From::Ids(_), Some(format)) => {
                return Err(Error::operand(format!("ids given, the kernel chooses by {format} logits")));
            }
            (From::Logits { .. }, None) => return Err(Error::operand("logits given, the kernel takes ids")),
        };
        let has_bias = route.scoring() == Scoring::SigmoidBias;
        if let From::Logits { bias: Some(_), .. } = &operands.from
            && !has_bias
        {
            return Err(Error::operand("a bias given, the kernel has none"));
        }
        let lists = route.lists(tokens);
        let value = route.logits_format().map_or(4, |format| format.bytes(1)) as u64;
        let weights = if route.logits_format().is_some() { rows } else { 0 };
        let lines = [
            Line { name: "logits", needed: logits, alignment: value },
            Line { name: "bias", needed: if has_bias { experts.into() } else { 0 }, alignment: 4 },
            Line { name: "ids", needed: rows, alignment: 4 },
            Line { name: "weights", needed: weights, alignment: 4 },
            Line { name: "lists", needed: lists.len() as u64, alignment: 4 },
            Line { name: "workspace", needed: self.workspace_bytes(tokens), alignment: 16 },
        ];
        let (share, cluster) = (self.share(tokens), self.cluster(tokens));
        let scale = operands.scale;
        let params = |addresses: [u64; piece::COUNT]| {
            let list = |at: usize| addresses[piece::LISTS] + 4 * at as u64;
            Params {
                logits: addresses[piece::LOGITS],
                bias: addresses[piece::BIAS],
                ids: addresses[piece::IDS],
                weights: addresses[piece::WEIGHTS],
                offsets: list(lists.offsets.start),
                rows: list(lists.rows.start),
                slots: list(lists.slots.start),
                positions: list(lists.positions.start),
                hit: list(lists.hit.start),
                tiles_before: list(lists.tiles_before.start),
                summary: list(lists.summary.start),
                counts: addresses[piece::WORKSPACE],
                scale,
                // M_MAX is far below.
                tokens: tokens as i32,
                tile_rows: tile,
                share: share.unwrap_or(tokens.div_ceil(cluster).max(1)) as i32,
            }
        };
        let one = |entry, grid, cluster| SimtLaunch { cluster, ..SimtLaunch::new(entry, grid, THREADS) };
        let launches = match share {
            None => &[one(FEW, cluster, cluster)][..],
            Some(share) => &[one(COUNT, blocks(tokens, share), 1), one(PLACE, blocks(tokens, share), 1)][..],
        };
        // SAFETY: the entries' only parameter has the layout of `Params` (checked below against templates/simt/route.cu), and they
        // read and write as many elements of each piece as its line says, whatever ids and logits are. They wait for what was
        // before the launch before they read or write.
        unsafe { self.kernel.launch(stream, operands, &lines, params, launches, is_dependent) }
    }

    /// Blocks of the cluster that routes few tokens: more, as soon as warps hold each other up for longer than blocks wait for each
    /// other.
    fn cluster(&self, tokens: u32) -> u32 {
        match tokens {
            0..=OF_ONE_BLOCK => 1,
            _ if tokens <= OF_PORTABLE => self.most_blocks.min(PORTABLE_CLUSTER),
            _ => self.most_blocks,
        }
    }

    /// Chunks of a block where two launches share `tokens`; none where one launch does it.
    fn share(&self, tokens: u32) -> Option<u32> {
        (tokens > self.most_blocks * CHUNK).then(|| tokens.div_ceil(CHUNK).div_ceil(BLOCKS))
    }
}

/// Blocks of `share` chunks each.
fn blocks(tokens: u32, share: u32) -> u32 {
    tokens.div_ceil(CHUNK).div_ceil(share)
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kernel.fmt(f)
    }
}

/// Passed by value; `RouteParams` in `templates/simt/route.cu` has the same order and sizes. Addresses are device memory.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Params {
    logits: u64,
    bias: u64,
    ids: u64,
    weights: u64,
    offsets: u64,
    rows: u64,
    slots: u64,
    positions: u64,
    hit: u64,
    tiles_before: u64,
    summary: u64,
    counts: u64,
    scale: f32,
    tokens: i32,
    tile_rows: i32,
    share: i32,
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;
    use crate::run::simt::fields_of;

    #[test]
    fn the_parameters_lie_as_on_the_device_side() {
        assert_eq!(size_of::<Params>(), 112);
        let source = include_str!("../../templates/simt/route.cu");
        let names = fields_of(source, "RouteParams");
        assert_eq!(
            names,
            [
                "logits",
                "bias",
                "ids",
                "weights",
                "offsets",
                "rows",
                "slots",
                "positions",
                "hit",
                "tiles_before",
                "summary",
                "counts",
                "scale",
                "tokens",
                "tile_rows",
                "share"
            ]
        );
        assert_eq!((offset_of!(Params, weights), offset_of!(Params, counts)), (24, 88));
        assert_eq!((offset_of!(Params, scale), offset_of!(Params, share)), (96, 108));
    }

    #[test]
    fn tokens_are_shared_out_in_whole_chunks() {
        for tokens in [257_u32, 513, 4096, 4097, 8192, 1 << 19] {
            let share = tokens.div_ceil(CHUNK).div_ceil(BLOCKS);
            let blocks = blocks(tokens, share);
            assert!(blocks <= BLOCKS && blocks * share * CHUNK >= tokens && (blocks - 1) * share * CHUNK < tokens);
        }
    }
}
