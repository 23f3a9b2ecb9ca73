//! What the model knows of a device beside its [limits](crate::arch::Arch): numbers for each [`Kind`] of problem.
//!
//! They were fitted to calls of which each may begin while the one before still runs, as those of a layer: the first on an H100, the others
//! on an H200, those of 16-bit groups to what tuners decided there, too (`warpsmith calibrate`, docs/measurements/). Every number is the one with which picks lose
//! least, so a number stands for what its term stands for and not for an experiment of its own. All architectures take the same cycles: how
//! many SMs there are, what memory and tensor cores do in a second and what a block may have comes from their `Arch`.

use std::sync::OnceLock;

use crate::format::Format;
use crate::problem::Problem;

macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident = $single:expr, $groups:expr, $single_e4m3:expr, $groups_e4m3:expr;)*) => {
        /// Numbers of the model, each with its unit. Cycles are those of an SM at [`ghz`](Constants::ghz).
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct Constants {
            $($(#[$doc])* pub $name: f64,)*
        }

        impl Constants {
            /// The names, in order.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

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

        impl Tables {
            /// Fitted to measurements.
            pub const BUILT_IN: Self = Self([
                Constants { $($name: $single,)* },
                Constants { $($name: $groups,)* },
                Constants { $($name: $single_e4m3,)* },
                Constants { $($name: $groups_e4m3,)* },
            ]);
        }
    };
}

constants! {
    // The device.
    /// GHz that cycles are counted at.
    ghz = 1.75, 1.75, 1.75, 1.75;
    /// Share of [`memory_bytes_per_s`](crate::arch::Arch::memory_bytes_per_s) that a kernel's stream of weights reaches.
    memory_share = 1.0, 1.0, 1.0, 1.0;
    /// Share of the bytes under way that one SM is ahead of another in the end.
    ahead = 0.02875, 0.06173, 0.01236, 0.02668;
    /// Share of the time of a stage of all blocks at the memory's speed that passes before loops begin.
    fill = 0.6684, 0.117, 1.158, 0.1134;
    /// Share of a warpgroup's time for a stage that passes after the last has arrived.
    drain = 0.2672, 0.9984, 0.07181, 0.7304;
    /// Bytes that reach an SM in a cycle at most.
    ingress = 702.5, 178.4, 521.1, 344.2;
    /// Bytes a cycle of all SMs that partial sums and decoded tokens travel at, by way of the L2 cache.
    workspace = 4779.0, 4241.3, 5283.3, 4326.0;
    /// Share of a call by which it takes longer if the tensor cores work all the time; less by the square of how much.
    power = 0.001957, 0.00195, 0.001946, 0.001875;
    /// Share of the SMs that clusters of four can cover (30 clusters on 132 SMs: the SMs of a GPC come in other numbers).
    cluster_of_four = 0.913, 0.913, 0.913, 0.913;

    // A launch.
    /// µs between the end of a kernel and the begin of the next, for the first of a call.
    launch = 0.2277, 0.4545, 0.07913, 0.3117;
    /// µs that a further kernel of a call takes beside its own work.
    relaunch = 0.9252, 1.343, 0.8932, 1.156;
    /// µs that the kernel that adds partial sums takes for each split of K.
    finish_split = 0.4394, 0.2389, 0.3678, 0.2152;
    /// µs that a kernel before takes that decodes tokens.
    prepass = 0.2126, 0.191, 0.2126, 0.191;

    // A block of the path `wgmma`.
    /// Cycles of a block before its loop: barriers, first addresses.
    block = 1165.0, 812.0, 1445.1, 1567.8;
    /// More of them where a block stays for all its tiles.
    stays = 789.1, 0.9953, 1287.4, 0.986;
    /// Share of a block's fixed cycles that is seen where other blocks of the SM work meanwhile.
    hidden = 0.8211, 0.9841, 1.18, 1.082;
    /// Cycles from the request of a stage to its arrival.
    latency = 1353.0, 1578.6, 1277.7, 1636.0;
    /// Share of a warpgroup's time for a stage after which it releases the stage before.
    hold = 0.646, 0.2114, 0.2332, 0.2369;
    /// Cycles of the tensor cores for 64 rows × 64 of k and one token.
    tensor = 2.0, 2.0, 2.0, 2.0;
    /// Cycles that 64 rows × 64 of k take at least, however few tokens there are.
    tensor_min = 64.07, 24.16, 83.52, 29.46;
    /// Instruction cycles to decode 64 rows × 64 of k (four schedulers at work).
    decode = 97.84, 78.58, 57.26, 77.65;
    /// And for each token: registers that the tensor cores read cannot be decoded into.
    decode_width = 0.4865, 1.324, 0.8168, 0.6944;
    /// How much more of them where products are apart.
    decode_apart = 1.604, 1.323, 1.428, 1.207;
    /// Instruction cycles of a stage beside its decoding, for each 64 rows: to wait for it, to find it and to release it.
    stage_issue = 59.05, 11.16, 99.48, 6.472;
    /// Cycles from the codes of 64 rows × 64 of k to the start of their multiplication, for one warpgroup alone.
    decode_chain = 108.4, 117.4, 161.5, 137.6;
    /// Cycles a warpgroup loses with each 64 of k.
    turn = 2.041, 1.998, 1.83, 1.636;
    /// Cycles a warpgroup loses with each stage.
    stage = 175.1, 239.7, 97.07, 34.65;
    /// More of them where it loads as well.
    uniform = 1068.0, 546.4, 824.6, 718.2;
    /// Cycles that the warp that loads needs for a stage.
    load = 191.1, 215.3, 220.9, 238.3;
    /// And for each m64 tile of weights in it.
    load_tile = 50.08, 57.32, 34.21, 104.6;
    /// How much longer a stage takes to arrive where the blocks of a cluster send it to each other, each block.
    multicast = 0.4536, 0.4319, 0.4536, 0.4319;
    /// Cycles that each further block of such a cluster costs a stage.
    couple = 118.0, 112.8, 118.0, 112.8;
    /// How much longer a loop takes where a place in the ring is another warpgroup's in every round, as a factor.
    rotation = 1.028, 1.083, 1.095, 1.0;
    /// Cycles that warps take to decode the tokens of a stage.
    decode_stage = 481.2, 500.0, 481.2, 500.0;
    /// And for each row's 64 of k.
    decode_line = 7.429, 7.7, 7.429, 7.7;
    // After the loop.
    /// Cycles to meet after the loop where several warpgroups share K, and then for each token.
    reduce = 78.98, 127.5, 56.47, 97.89;
    /// Of the same, for each token.
    reduce_token = 2.783, 2.774, 6.004, 3.477;
    /// Cycles to meet with the other blocks of a cluster, and then for each token sent.
    exchange = 604.0, 1604.1, 531.6, 1239.5;
    /// Of the same, for each token that is sent.
    exchange_token = 14.68, 6.389, 10.68, 6.308;
    /// Cycles of a store from registers, for each token.
    direct_token = 7.643, 6.103, 7.195, 4.842;
    /// Of a store by way of shared memory.
    shared = 211.3, 444.1, 380.3, 176.0;
    /// Of the same, for each token.
    shared_token = 0.3276, 0.4973, 0.2711, 0.788;
    /// Of a store by bulk copies.
    bulk = 402.4, 610.4, 377.4, 496.1;
    /// Of the same, for each token.
    bulk_token = 55.64, 47.96, 52.53, 39.45;
    /// Of a store of partial sums, for each token.
    partial_token = 16.22, 11.41, 12.39, 10.88;
    /// Cycles between two tiles of a persistent block.
    persistent = 17.7, 18.86, 18.32, 851.1;
    /// How much longer decoding takes where the warpgroups of a persistent block never meet.
    drift = 1.291, 1.312, 1.258, 1.204;
    /// Share of the epilogue that is seen where two groups of warpgroups have every second tile each.
    ping_pong = 0.3386, 0.447, 0.3002, 0.4763;

    // The path `wgmma` with e4m3 values: nothing else reads these.
    /// Instruction cycles of a token and 64 of K that sums take to be promoted, beside [`decode_width`](Constants::decode_width).
    promotion = 0.25, 0.25, 0.2591, 0.7088;
    /// How many times as long decoding takes in tiles of more than 96 tokens.
    tall = 1.15, 1.15, 1.28, 1.104;
    /// And how many times that where weights are decoded 64 of K at a time.
    tall_short = 1.113, 1.113, 1.145, 1.0;
    /// Cycles that a tall tile in halves takes longer behind another block.
    halves_behind = 4000.0, 4000.0, 2014.6, 4000.0;
    /// Where others decode: cycles of a token that a warpgroup promotes in a step.
    promoted = 0.5, 0.5, 0.2405, 0.2785;
    /// And of a step beside that.
    promoted_step = 40.0, 40.0, 99.4, 128.0;
    /// And that their first values take longer to the tensor cores.
    decoded_first = 1200.0, 1200.0, 624.4, 1111.3;
    /// And how many times as long as its bytes say shared memory takes.
    decoded = 1.0, 1.0, 0.6997, 0.8318;
    /// The same of expanded weights, which nobody decodes.
    expanded = 1.15, 1.15, 0.87, 1.15;

    // Groups.
    /// More cycles to decode 64 rows × 64 of k in a loop that there is for each of several widths.
    ragged = 6.185, 2.309, 6.185, 4.395;
    /// And more where warps load as well, or blocks are persistent.
    ragged_short = 31.23, 5.082, 31.23, 8.263;
    /// And that a warpgroup loses there with each 64 of k.
    ragged_turn = 4.477, 4.867, 4.477, 6.06;
    /// Cycles in which a block finds out about groups, and then for each of them.
    table = 970.3, 970.3, 970.3, 970.3;
    /// Of the same, for each group.
    table_group = 71.91, 71.91, 71.91, 71.91;
    /// Share of that by which each further block of an SM holds up the others, as all sort the groups at once.
    table_beside = 0.05696, 0.3872, 0.05696, 0.5989;
    /// Blocks that the busiest SM has more than its even share.
    straggler = 0.002533, 0.002398, 0.002533, 0.002482;

    // The path `mma`.
    /// As [`block`](Constants::block).
    mma_block = 158.4, 166.4, 158.4, 166.4;
    /// As [`latency`](Constants::latency).
    mma_latency = 363.3, 374.2, 363.3, 374.2;
    /// As [`hold`](Constants::hold).
    mma_hold = 0.4734, 0.414, 0.4734, 0.414;
    /// As [`tensor`](Constants::tensor).
    mma_tensor = 4.337, 4.005, 4.337, 4.005;
    /// As [`decode`](Constants::decode).
    mma_decode = 292.0, 266.8, 292.0, 266.8;
    /// Instruction cycles to decode a token's 64 of k, once a stage.
    mma_decode_token = 4.006, 4.006, 4.006, 4.006;
    /// Share of tensor cores' and decoding time that eight warps take one after the other.
    mma_chain = 0.2603, 0.284, 0.2603, 0.284;
    /// As [`stage`](Constants::stage): every stage ends at a barrier.
    mma_stage = 739.4, 430.8, 739.4, 430.8;
    /// How much longer decoding and multiplying take where a block's stages have 128 KiB, as a share.
    mma_crowded = 0.2492, 0.252, 0.2492, 0.252;
    /// As [`ingress`](Constants::ingress).
    mma_ingress = 26.63, 28.52, 26.63, 28.52;
    /// Cycles for each token to add the sums of another warp.
    mma_reduce_token = 0.4069, 0.405, 0.4069, 0.405;
    /// Cycles for each token to store.
    mma_store_token = 7.955, 9.151, 7.955, 9.151;

    // The path `tcgen05`: not measured; from documents and others' kernels.
    /// Cycles of an instruction at least.
    tcgen05_min = 16.0, 16.0, 16.0, 16.0;
    /// Bytes a cycle that the tensor cores read of shared memory.
    tcgen05_operands = 128.0, 128.0, 128.0, 128.0;
    /// Bytes a cycle that reach an SM.
    tcgen05_ingress = 64.0, 64.0, 64.0, 64.0;
    /// As [`stage`](Constants::stage).
    tcgen05_stage = 40.0, 40.0, 40.0, 40.0;
    /// Cycles of warps that copy scales, for a stage.
    tcgen05_copy = 300.0, 300.0, 300.0, 300.0;
    /// Of the same warps, for each gathered row of a stage.
    tcgen05_gather = 4.0, 4.0, 4.0, 4.0;
    /// As [`latency`](Constants::latency).
    tcgen05_latency = 1400.0, 1400.0, 1400.0, 1400.0;
    /// As [`block`](Constants::block): with the allocation of tensor memory.
    tcgen05_block = 2400.0, 2400.0, 2400.0, 2400.0;
    /// Cycles after the loop, and then for each column of sums.
    tcgen05_tail = 1200.0, 1200.0, 1200.0, 1200.0;
    /// Of the same, for each column of sums.
    tcgen05_store = 6.0, 6.0, 6.0, 6.0;
}

/// Problems that have constants of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Without groups, products of 16-bit values.
    Single,
    /// With groups.
    Groups,
    /// Without groups, products of e4m3 values.
    SingleE4m3,
    /// With groups.
    GroupsE4m3,
}

impl Kind {
    /// All, in the order of their constants.
    pub const ALL: [Self; 4] = [Self::Single, Self::Groups, Self::SingleE4m3, Self::GroupsE4m3];

    /// That of a problem.
    #[must_use]
    pub fn of(problem: &Problem) -> Self {
        match (problem.compute_format() == Format::E4m3, problem.groups().is_some()) {
            (false, false) => Self::Single,
            (false, true) => Self::Groups,
            (true, false) => Self::SingleE4m3,
            (true, true) => Self::GroupsE4m3,
        }
    }

    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Groups => "groups",
            Self::SingleE4m3 => "single, e4m3",
            Self::GroupsE4m3 => "groups, e4m3",
        }
    }
}

/// Constants of each [`Kind`] of problem.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tables([Constants; Kind::ALL.len()]);

/// What stands for the built-in ones.
static REPLACED: OnceLock<Tables> = OnceLock::new();

impl Tables {
    /// One for each of [`Kind::ALL`].
    #[must_use]
    pub fn new(of: impl FnMut(Kind) -> Constants) -> Self {
        Self(Kind::ALL.map(of))
    }

    /// Those of a kind of problems.
    #[must_use]
    pub const fn get(&self, kind: Kind) -> &Constants {
        &self.0[kind as usize]
    }

    /// Those of a problem.
    #[must_use]
    pub fn of(&self, problem: &Problem) -> &Constants {
        self.get(Kind::of(problem))
    }

    /// Has everything in this process predicted and picked by these, so that other constants can be judged by what is picked: before
    /// anything is. Says whether they are the first.
    pub fn replace(self) -> bool {
        REPLACED.set(self).is_ok()
    }
}

impl Constants {
    /// Those of a problem.
    #[must_use]
    pub fn of(problem: &Problem) -> &'static Self {
        const BUILT_IN: &Tables = &Tables::BUILT_IN;
        REPLACED.get().unwrap_or(BUILT_IN).of(problem)
    }
}
