//! The problems of the built-in suite, as data: one a line, each with its reason.

/// One problem with its rows.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The problem's spelling.
    pub problem: &'static str,
    /// Rows of A, of each group if grouped.
    pub rows: &'static [u32],
    /// Whether α is 1; otherwise operands hold every scale, and α (one a group) brings the result back to size.
    pub plain: bool,
    /// What it is there for.
    pub why: &'static str,
}

const fn entry(problem: &'static str, rows: &'static [u32], plain: bool, why: &'static str) -> Entry {
    Entry { problem, rows, plain, why }
}

const DUAL: &str = "dual_gemm.silu:nvfp4*nvfp4>f16:n4096:k7168";
const DUAL_NARROW: &str = "dual_gemm.silu:nvfp4*nvfp4>f16:n3072:k7168";
const DUAL_SHALLOW: &str = "dual_gemm.silu:nvfp4*nvfp4>f16:n3072:k4096";
const DECODE: &str = "dual_gemm.silu:f16*nvfp4>f16:n4096:k7168";

/// The rows of the contest's four grouped cases (public NVFP4 grouped-GEMM benchmark shapes).
const ROWS_WIDE: &[u32] = &[80, 176, 128, 72, 64, 248, 96, 160];
const ROWS_DEEP: &[u32] = &[40, 76, 168, 72, 164, 148, 196, 160];
const ROWS_TWO: &[u32] = &[192, 320];
const ROWS_UNEVEN: &[u32] = &[128, 384];

/// The suite.
pub const SUITE: &[Entry] = &[
    entry(DUAL, &[256], true, "dual GEMM of the public NVFP4 benchmark"),
    entry(DUAL, &[512], false, "the same, more rows; every scale, α≠1"),
    entry(DUAL_SHALLOW, &[256], false, "few tiles and a shallow K; every scale, α≠1"),
    entry(DUAL_NARROW, &[512], true, "tiles that do not divide among the SMs"),
    entry(DECODE, &[1], true, "decoding one sequence: weights only"),
    entry(DECODE, &[8], false, "one row of matrix instructions; every scale, α≠1"),
    entry(DECODE, &[16], true, "two rows of matrix instructions"),
    entry(DECODE, &[40], false, "not a power of two; every scale, α≠1"),
    entry(DECODE, &[64], true, "near the ridge between memory and matrix rate"),
    entry(DECODE, &[128], true, "a full tile of tokens"),
    entry(DECODE, &[192], true, "one tile and a half"),
    entry(DECODE, &[248], false, "not a multiple of 16; every scale, α≠1"),
    entry("grouped8.gemm:nvfp4*nvfp4>f16:n4096:k7168", ROWS_WIDE, true, "grouped GEMM of the public benchmark"),
    entry("grouped8.gemm:nvfp4*nvfp4>f16:n7168:k2048", ROWS_DEEP, false, "awkward rows; every scale, α≠1 a group"),
    entry("grouped2.gemm:nvfp4*nvfp4>f16:n3072:k4096", ROWS_TWO, true, "two groups"),
    entry("grouped2.gemm:nvfp4*nvfp4>f16:n4096:k1536", ROWS_UNEVEN, true, "two uneven groups, little work"),
    entry("grouped8.dual_gemm.silu:nvfp4*nvfp4>f16:n4096:k7168", ROWS_WIDE, false, "as experts of an MLP; α≠1 a group"),
    entry("grouped8.dual_gemm.silu:nvfp4*nvfp4>f16:n7168:k2048", ROWS_DEEP, true, "as experts, awkward rows"),
    entry(
        "grouped2.dual_gemm.gelu_tanh:nvfp4*nvfp4>f16:n3072:k4096",
        ROWS_TWO,
        false,
        "gelu; every scale, α≠1 a group",
    ),
    entry("grouped2.dual_gemm.silu:nvfp4*nvfp4>f16:n4096:k1536", ROWS_UNEVEN, true, "two uneven experts"),
];
