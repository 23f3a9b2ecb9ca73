//! What the model knows of a device beside its [limits](Arch): one table per architecture.
//!
//! The numbers were fitted to calls of which each may begin while the one before still runs, as those of a layer, on an H100
//! (`warpsmith calibrate --dependent`, docs/measurements/); every number is the one with which picks lose least, so a number
//! stands for what its term stands for and not for an experiment of its own. Other architectures take the same cycles: how many
//! SMs there are, what memory and tensor cores do in a second and what a block may have comes from their [`Arch`].

use std::sync::OnceLock;

use crate::arch::Arch;

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

            /// Fitted on an H100.
            pub const BUILT_IN: Constants = Constants { $($name: $value,)* };

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
    ahead = 0.02875,
    /// Share of the time of a stage of all blocks at the memory's speed that passes before loops begin.
    fill = 0.6684,
    /// Share of a warpgroup's time for a stage that passes after the last has arrived.
    drain = 0.2672,
    /// Bytes that reach an SM in a cycle at most.
    ingress = 702.5,
    /// Bytes a cycle of all SMs that partial sums and decoded tokens travel at, by way of the L2 cache.
    workspace = 4779.0,
    /// Share of a call by which it takes longer if the tensor cores work all the time; less by the square of how much.
    power = 0.001957,
    /// Share of the SMs that clusters of four can cover (30 clusters on 132 SMs: the SMs of a GPC come in other numbers).
    cluster_of_four = 0.9683,

    // A launch.
    /// µs between the end of a kernel and the begin of the next, for the first of a call.
    launch = 0.2277,
    /// µs that a further kernel of a call takes beside its own work.
    relaunch = 0.9252,
    /// µs that the kernel that adds partial sums takes for each split of K.
    finish_split = 0.4394,
    /// µs that a kernel before takes that decodes tokens.
    prepass = 0.2126,

    // A block of the path `wgmma`.
    /// Cycles of a block before its loop: barriers, first addresses.
    block = 1165.0,
    /// More of them where a block stays for all its tiles.
    stays = 789.1,
    /// Share of a block's fixed cycles that is seen where other blocks of the SM work meanwhile.
    hidden = 0.8211,
    /// Cycles from the request of a stage to its arrival.
    latency = 1353.0,
    /// Share of a warpgroup's time for a stage after which it releases the stage before.
    hold = 0.646,
    /// Cycles of the tensor cores for 64 rows × 64 of k and one token.
    tensor = 2.0,
    /// Cycles that 64 rows × 64 of k take at least, however few tokens there are.
    tensor_min = 64.07,
    /// Instruction cycles to decode 64 rows × 64 of k (four schedulers at work).
    decode = 97.84,
    /// And for each token: registers that the tensor cores read cannot be decoded into.
    decode_width = 0.4865,
    /// How much more of them where products are apart.
    decode_apart = 1.604,
    /// Instruction cycles of a stage beside its decoding, for each 64 rows: to wait for it, to find it and to release it.
    stage_issue = 59.05,
    /// Cycles from the codes of 64 rows × 64 of k to the start of their multiplication, for one warpgroup alone.
    decode_chain = 108.4,
    /// Cycles a warpgroup loses with each 64 of k.
    turn = 2.041,
    /// Cycles a warpgroup loses with each stage.
    stage = 175.1,
    /// More of them where it loads as well.
    uniform = 1068.0,
    /// Cycles that the warp that loads needs for a stage.
    load = 191.1,
    /// And for each m64 tile of weights in it.
    load_tile = 50.08,
    /// How much longer a stage takes to arrive where the blocks of a cluster send it to each other, each block.
    multicast = 0.4536,
    /// Cycles that each further block of such a cluster costs a stage.
    couple = 118.0,
    /// How much longer a loop takes where a place in the ring is another warpgroup's in every round, as a factor.
    rotation = 1.028,
    /// Cycles that warps take to decode the tokens of a stage.
    decode_stage = 481.2,
    /// And for each row's 64 of k.
    decode_line = 7.429,
    // After the loop.
    /// Cycles to meet after the loop where several warpgroups share K, and then for each token.
    reduce = 78.98,
    /// Of the same, for each token.
    reduce_token = 2.783,
    /// Cycles to meet with the other blocks of a cluster, and then for each token sent.
    exchange = 604.0,
    /// Of the same, for each token that is sent.
    exchange_token = 14.68,
    /// Cycles of a store from registers, for each token.
    direct_token = 7.643,
    /// Of a store by way of shared memory.
    shared = 211.3,
    /// Of the same, for each token.
    shared_token = 0.3276,
    /// Of a store by bulk copies.
    bulk = 402.4,
    /// Of the same, for each token.
    bulk_token = 55.64,
    /// Of a store of partial sums, for each token.
    partial_token = 16.22,
    /// Cycles between two tiles of a persistent block.
    persistent = 17.7,
    /// How much longer decoding takes where the warpgroups of a persistent block never meet.
    drift = 1.291,
    /// Share of the epilogue that is seen where two groups of warpgroups have every second tile each.
    ping_pong = 0.3386,

    // Groups.
    /// More cycles to decode 64 rows × 64 of k in a loop that there is for each of several widths.
    ragged = 6.185,
    /// And more where warps load as well, or blocks are persistent.
    ragged_short = 31.23,
    /// And that a warpgroup loses there with each 64 of k.
    ragged_turn = 4.477,
    /// Cycles in which a block finds out about groups, and then for each of them.
    table = 970.3,
    /// Of the same, for each group.
    table_group = 71.91,
    /// Share of that by which each further block of an SM holds up the others, as all sort the groups at once. Not fitted.
    table_beside = 0.05696,
    /// Blocks that the busiest SM has more than its even share.
    straggler = 0.002533,

    // The path `mma`.
    /// As [`block`](Constants::block).
    mma_block = 158.4,
    /// As [`latency`](Constants::latency).
    mma_latency = 363.3,
    /// As [`hold`](Constants::hold).
    mma_hold = 0.4734,
    /// As [`tensor`](Constants::tensor).
    mma_tensor = 4.337,
    /// As [`decode`](Constants::decode).
    mma_decode = 292.0,
    /// Instruction cycles to decode a token's 64 of k, once a stage.
    mma_decode_token = 4.006,
    /// Share of tensor cores' and decoding time that eight warps take one after the other.
    mma_chain = 0.2603,
    /// As [`stage`](Constants::stage): every stage ends at a barrier.
    mma_stage = 739.4,
    /// How much longer decoding and multiplying take where a block's stages have 128 KiB, as a share.
    mma_crowded = 0.2492,
    /// As [`ingress`](Constants::ingress).
    mma_ingress = 26.63,
    /// Cycles for each token to add the sums of another warp.
    mma_reduce_token = 0.4069,
    /// Cycles for each token to store.
    mma_store_token = 7.955,

    // The path `tcgen05`: not measured; from documents and others' kernels.
    /// Cycles of an instruction at least.
    tcgen05_min = 16.0,
    /// Bytes a cycle that the tensor cores read of shared memory.
    tcgen05_operands = 128.0,
    /// Bytes a cycle that reach an SM.
    tcgen05_ingress = 64.0,
    /// As [`stage`](Constants::stage).
    tcgen05_stage = 40.0,
    /// Cycles of warps that copy scales, for a stage.
    tcgen05_copy = 300.0,
    /// Of the same warps, for each gathered row of a stage.
    tcgen05_gather = 4.0,
    /// As [`latency`](Constants::latency).
    tcgen05_latency = 1400.0,
    /// As [`block`](Constants::block): with the allocation of tensor memory.
    tcgen05_block = 2400.0,
    /// Cycles after the loop, and then for each column of sums.
    tcgen05_tail = 1200.0,
    /// Of the same, for each column of sums.
    tcgen05_store = 6.0,
}

/// What stands for the tables of all architectures.
static REPLACED: OnceLock<Constants> = OnceLock::new();

impl Constants {
    /// The table of an architecture.
    #[must_use]
    pub fn of(_arch: &Arch) -> &'static Self {
        const TABLE: Constants = Constants::BUILT_IN;
        REPLACED.get().unwrap_or(&TABLE)
    }

    /// Has everything in this process predicted and picked by these, so that other constants can be judged by what is picked: before
    /// anything is. Says whether they are the first.
    pub fn replace_tables(self) -> bool {
        REPLACED.set(self).is_ok()
    }
}
