//! The variants there are for a problem: millions, of which most are refused. Boxed, so that they are looked through in this
//! crate's code, however programs are compiled that ask for them.

use super::{
    Arch, Axes, Cluster, Epilogue, Fusion, MatrixPath, Operation, Problem, Refusal, Rows, Spec, Tile, Variant, Warps,
};

/// The baseline of every comparison and the last rung of every fallback: one stage, a 128×128 tile, and for a dual GEMM
/// two launches and an elementwise kernel. Slow, obviously right, legal for every legal problem on every architecture
/// (for prepared weights, on sm_90a).
#[must_use]
pub fn baseline(problem: &Problem) -> Variant {
    let fusion = match problem.operation() {
        Operation::Gemm(_) => Fusion::Single,
        Operation::DualGemm(_) => Fusion::TwoPass,
    };
    // Legality refuses what no path takes.
    let path = MatrixPath::ALL.iter().copied().find(|path| path.takes(problem).is_ok()).unwrap_or(MatrixPath::ALL[0]);
    path.baseline(problem, fusion)
}

/// Every legal variant of a problem on an architecture, over the axis values that are worth searching, with
/// fusions outermost. (Legal values between them, such as 56 tokens or 7 stages, can be pinned.)
pub fn space(problem: &Problem, arch: &Arch) -> Box<dyn Iterator<Item = Spec>> {
    let (problem, arch) = (*problem, *arch);
    let of_path = move |path: MatrixPath| {
        let axes = path.axes(&problem);
        // What does not go together is refused at every depth.
        let shallow =
            variants(Axes { stages: &[1], ..axes }).filter(move |variant| Spec::can_combine(&problem, variant));
        shallow.flat_map(move |variant| axes.stages.iter().map(move |&stages| Variant { stages, ..variant }))
    };
    let all = MatrixPath::of(&problem, &arch).flat_map(of_path);
    Box::new(all.filter_map(move |variant| Spec::check(&problem, &variant, &arch).ok()))
}

/// Of every path's combinations each `step`th, if it is legal: a few, without a look at all.
pub fn thinned(problem: &Problem, arch: &Arch, step: usize) -> Box<dyn Iterator<Item = Spec>> {
    Box::new(checked(problem, arch, step).filter_map(|(_, checked)| checked.ok()))
}

/// All combinations of the axis values that are worth searching, on every matrix path that takes the problem there, in the
/// order of [`space`]: each with its proof, or with the limit that refuses it.
pub fn candidates(problem: &Problem, arch: &Arch) -> Box<dyn Iterator<Item = (Variant, Result<Spec, Refusal>)>> {
    Box::new(checked(problem, arch, 1))
}

fn checked(
    problem: &Problem,
    arch: &Arch,
    step: usize,
) -> impl Iterator<Item = (Variant, Result<Spec, Refusal>)> + use<> {
    let (problem, arch) = (*problem, *arch);
    MatrixPath::of(&problem, &arch)
        .flat_map(move |path| variants(path.axes(&problem)).step_by(step))
        .map(move |variant| (variant, Spec::check(&problem, &variant, &arch)))
}

impl Axes {
    /// With this tile and fusion, and nothing else chosen: one stage, warps that are alike. It need not be legal.
    pub fn plainest(&self, tile: Tile, fusion: Fusion) -> Variant {
        Variant { path: self.path, ..Variant::mma(tile, 1, fusion, 1) }
    }

    /// Whether some warps may load for others.
    pub fn are_specialised(&self) -> bool {
        self.warps.contains(&Warps::Specialised(2))
    }

    /// Every combination with the fusion and tile of `node`, legal or not, with one stage.
    #[cfg(test)]
    pub fn of_node(&self, node: &Variant) -> impl Iterator<Item = Variant> + use<> {
        of_tile(Self { stages: &[1], ..*self }, node.tile, node.fusion)
    }

    /// The ways in which variants with the fusion and columns of `plain` may share K and stages, keep their SMs and decode
    /// tokens, legal or not.
    pub fn ways(&self, plain: &Variant) -> impl Iterator<Item = Variant> + use<> {
        let (Self { sharing, persistent, prepass, rows, .. }, plain) = (*self, *plain);
        sharing.iter().flat_map(move |&(split_k, cluster)| {
            // Whatever is shared, persistent blocks do not have; but two may multiply together.
            let is_whole = split_k == 1 && matches!(cluster, Cluster::None | Cluster::Pair);
            let persistent = persistent.iter().filter(move |persistent| is_whole || !**persistent);
            persistent.flat_map(move |&persistent| {
                prepass.iter().flat_map(move |&prepass| {
                    rows.iter().map(move |&rows| Variant { split_k, cluster, persistent, prepass, rows, ..plain })
                })
            })
        })
    }

    /// Every combination with the fusion and columns of one of the [`ways`](Self::ways) whose values go together, for some
    /// number of tokens; one for all tokens, stages and epilogues.
    pub fn families(&self, problem: &Problem, way: &Variant) -> Vec<Variant> {
        // So many that they can be shared out evenly, and are not too few for anything.
        const TOKENS: u32 = 128;
        // Or one instruction's rows.
        const TOKEN_ROWS: u32 = 128;
        let tokens = if way.rows == Rows::Tokens { TOKEN_ROWS * way.cluster.tile_blocks() } else { TOKENS };
        // Partial sums are stored directly, everything else can be staged.
        let staged = self.epilogues.get(1).copied().unwrap_or(Epilogue::Direct);
        let epilogue = if way.needs_finish() { Epilogue::Direct } else { staged };
        let mut families = Vec::new();
        for &k in self.k {
            for &warps in self.warps {
                let variant = Variant { tile: Tile { tokens, k, ..way.tile }, warps, epilogue, ..*way };
                if Spec::can_combine(problem, &variant) {
                    families.push(variant);
                }
            }
        }
        families
    }
}

/// Every combination, legal or not; stages innermost.
fn variants(axes: Axes) -> impl Iterator<Item = Variant> {
    axes.fusions.iter().flat_map(move |&fusion| tiles(axes).flat_map(move |tile| of_tile(axes, tile, fusion)))
}

fn of_tile(axes: Axes, tile: Tile, fusion: Fusion) -> impl Iterator<Item = Variant> {
    let Axes { path, .. } = axes;
    axes.warps.iter().flat_map(move |&warps| {
        axes.sharing.iter().flat_map(move |&(split_k, cluster)| {
            axes.epilogues.iter().flat_map(move |&epilogue| {
                axes.persistent.iter().flat_map(move |&persistent| {
                    axes.prepass.iter().flat_map(move |&prepass| {
                        axes.rows.iter().flat_map(move |&rows| {
                            axes.stages.iter().map(move |&stages| Variant {
                                path,
                                tile,
                                stages,
                                fusion,
                                warps,
                                epilogue,
                                split_k,
                                cluster,
                                persistent,
                                prepass,
                                rows,
                            })
                        })
                    })
                })
            })
        })
    })
}

fn tiles(axes: Axes) -> impl Iterator<Item = Tile> {
    axes.tokens.iter().flat_map(move |&tokens| {
        axes.columns.into_iter().flat_map(move |columns| axes.k.iter().map(move |&k| Tile { tokens, columns, k }))
    })
}
