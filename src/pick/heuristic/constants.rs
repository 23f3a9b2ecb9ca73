//! What the model knows of a device beside its [limits](Arch): one table per architecture.
//!
//! The row of the H200 was fitted to a campaign on one (`examples/calibrate`, docs/measurements/); every number is the one
//! with which predictions come closest to what was measured, so a number stands for what its term stands for and not for
//! an experiment of its own. Other architectures take the same cycles: how many SMs there are, what memory and tensor
//! cores do in a second and what a block may have comes from their [`Arch`]. Nothing of theirs was measured.

use crate::spec::Arch;

macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident = $value:expr,)*) => {
        /// Numbers of the model, each with its unit. Cycles are those of an SM at [`ghz`](Constants::ghz).
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct Constants {
            $($(#[$doc])* pub $name: f64,)*
        }

        impl Constants {
            /// The names, in order.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Fitted on an H200.
            pub const H200: Constants = Constants { $($name: $value,)* };

            /// The numbers, in the order of [`Constants::NAMES`].
            #[must_use]
            pub fn values(&self) -> Vec<f64> {
                vec![$(self.$name),*]
            }

            /// The same with other numbers, in the order of [`Constants::NAMES`]; those that are missing stay.
            #[must_use]
            pub fn with_values(mut self, values: &[f64]) -> Self {
                let mut values = values.iter();
                $(self.$name = values.next().copied().unwrap_or(self.$name);)*
                self
            }
        }
    };
}

constants! {
    // The device.
    /// GHz that cycles are counted at.
    ghz = 1.75,
    /// Share of [`Arch::memory_bytes_per_s`] that a kernel's stream of weights reaches.
    memory_share = 1.0,
    /// Share of the bytes under way that one SM is ahead of another in the end.
    ahead = 0.0407,
    /// Bytes that reach an SM in a cycle at most.
    ingress = 532.9,
    /// Bytes a cycle of all SMs that partial sums and decoded tokens travel at, by way of the L2 cache.
    workspace = 9077.0,
    /// Share of a call by which it takes longer if the tensor cores work all the time; less by the square of how much.
    power = 0.003,
    /// Share of the SMs that clusters of four can cover (30 clusters on 132 SMs: the SMs of a GPC come in other numbers).
    cluster_of_four = 0.913,

    // A launch.
    /// µs between the end of a kernel and the begin of the next, for the first of a call.
    launch = 1.288,
    /// µs that a further kernel of a call takes beside its own work.
    relaunch = 0.873,
    /// µs that the kernel that adds partial sums takes for each split of K.
    finish_split = 0.121,
    /// µs that a kernel before takes that decodes tokens.
    prepass = 0.237,

    // A block of the path `wgmma`.
    /// Cycles of a block before its loop: barriers, first addresses.
    block = 957.2,
    /// Share of a block's fixed cycles that is seen where other blocks of the SM work meanwhile.
    hidden = 1.209,
    /// Cycles from the request of a stage to its arrival.
    latency = 1132.0,
    /// Share of a warpgroup's time for a stage after which it releases the stage before.
    hold = 0.436,
    /// Cycles of the tensor cores for 64 rows × 64 of k and one token.
    tensor = 2.0,
    /// Cycles that 64 rows × 64 of k take at least, however few tokens there are.
    tensor_min = 23.35,
    /// Instruction cycles to decode 64 rows × 64 of k (four schedulers at work).
    decode = 109.4,
    /// And for each token: registers that the tensor cores read cannot be decoded into.
    decode_width = 1.162,
    /// How much more of them where products are apart.
    decode_apart = 1.153,
    /// Cycles from the codes of 64 rows × 64 of k to the start of their multiplication, for one warpgroup alone.
    decode_chain = 170.2,
    /// Cycles a warpgroup loses with each 64 of k.
    turn = 2.81,
    /// Cycles a warpgroup loses with each stage.
    stage = 129.6,
    /// More of them where it loads as well.
    uniform = 560.8,
    /// Cycles that the warp that loads needs for a stage.
    load = 186.8,
    /// And for each m64 tile of weights in it.
    load_tile = 83.1,
    /// How much longer a stage takes to arrive where the blocks of a cluster send it to each other, each block.
    multicast = 0.389,
    /// Cycles that each further block of such a cluster costs a stage.
    couple = 69.37,
    /// Cycles of the warps that decode tokens, for a token and 64 of k.
    decode_token = 18.24,
    // After the loop.
    /// Cycles to meet after the loop where several warpgroups share K, and then for each token.
    reduce = 146.5,
    /// Of the same, for each token.
    reduce_token = 1.142,
    /// Cycles to meet with the other blocks of a cluster, and then for each token sent.
    exchange = 2220.0,
    /// Of the same, for each token that is sent.
    exchange_token = 6.464,
    /// Cycles of a store from registers, for each token.
    direct_token = 8.796,
    /// Of a store by way of shared memory.
    shared = 518.0,
    /// Of the same, for each token.
    shared_token = 0.201,
    /// Of a store by bulk copies.
    bulk = 496.7,
    /// Of the same, for each token.
    bulk_token = 52.99,
    /// Of a store of partial sums, for each token.
    partial_token = 18.5,
    /// Cycles between two tiles of a persistent block.
    persistent = 24.17,
    /// How much longer decoding takes where the warpgroups of a persistent block never meet.
    drift = 1.148,
    /// Share of the epilogue that is seen where two groups of warpgroups take turns.
    ping_pong = 0.282,

    // Groups.
    /// How uneven groups are taken to be: the largest has this much more than the average, as a share of it.
    uneven = 0.591,
    /// More cycles to decode 64 rows × 64 of k in a loop that there is for each of several widths.
    ragged = 7.222,
    /// And more where warps load as well, or blocks are persistent.
    ragged_short = 52.39,
    /// And that a warpgroup loses there with each 64 of k.
    ragged_turn = 5.78,
    /// Cycles in which a block finds out about groups, and then for each of them.
    table = 396.3,
    /// Of the same, for each group.
    table_group = 89.34,
    /// Blocks up to which the busiest SM has whole ones; the more there are, the better the last and smallest fill up.
    lumpy = 0.7,
    /// Blocks that the busiest SM has more than its even share.
    straggler = 0.0039,

    // The path `mma`.
    /// As [`block`](Constants::block).
    mma_block = 331.8,
    /// As [`latency`](Constants::latency).
    mma_latency = 124.6,
    /// As [`hold`](Constants::hold).
    mma_hold = 0.0957,
    /// As [`tensor`](Constants::tensor).
    mma_tensor = 4.476,
    /// As [`decode`](Constants::decode).
    mma_decode = 240.6,
    /// Instruction cycles to decode a token's 64 of k, once a stage.
    mma_decode_token = 4.002,
    /// Share of tensor cores' and decoding time that eight warps take one after the other.
    mma_chain = 0.347,
    /// As [`stage`](Constants::stage): every stage ends at a barrier.
    mma_stage = 108.1,
    /// How much longer decoding and multiplying take where a block's stages have 128 KiB, as a share.
    mma_crowded = 0.284,
    /// As [`ingress`](Constants::ingress).
    mma_ingress = 37.99,
    /// Cycles for each token to add the sums of another warp.
    mma_reduce_token = 0.507,
    /// Cycles for each token to store.
    mma_store_token = 13.88,
}

impl Constants {
    /// The table of an architecture.
    #[must_use]
    pub fn of(_arch: &Arch) -> &'static Self {
        const TABLE: Constants = Constants::H200;
        &TABLE
    }
}
