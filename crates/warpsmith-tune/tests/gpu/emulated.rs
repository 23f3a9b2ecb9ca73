//! Kernels on an emulated GPU (tests/support/emulator): a sample of what the other trials do on a real one, and what the
//! emulator has to find. `cargo run -p warpsmith-testing --bin emulate -- a100 -- cargo test -p warpsmith-tune --test gpu`
//! runs all of them.
//!
//! Each trial starts this program again, as one that has such a GPU.

use std::process::{Command, ExitCode};

use cudarc::driver::{LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use libtest_mimic::{Arguments, Trial};
use warpsmith::format::Format;
use warpsmith::internal::build::{Header, Source};
use warpsmith::spec::{Arch, DeviceFacts};
use warpsmith_testing::emulator::{Emulator, Schedule, build, shared_folder};
use warpsmith_testing::{in_turn, step};

use crate::bench::{Bench, text};
use crate::families::Family;
use crate::mutants::{self, Mutant};
use crate::{combine, decoders, families, few, many_tiles, prepare, quantise, quantise_weights, random, route};

mod pairs;

/// What the process with an emulated GPU is to do.
const TASK: &str = "WARPSMITH_TEST_TASK";
/// Kernels as they are changed for racecheck: with an arrival too few or too many they would hang there.
const EVERY_LANE: &str = "every lane arrives";

/// What this process is to do, if a trial has started it.
pub fn asked() -> Option<ExitCode> {
    let task = std::env::var(TASK).ok()?;
    let done = Bench::open().and_then(|bench| run(&bench, &task));
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    })
}

/// What a process with an emulated GPU does, and what it has to say.
struct Case {
    name: String,
    arch: Arch,
    schedule: Schedule,
    task: &'static str,
    said: &'static str,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut case = |name: String, arch, schedule, task, said| {
        cases.push(Case { name: format!("emulated: {name}"), arch, schedule, task, said });
    };
    let schedules = [Schedule::Eager, Schedule::Late, Schedule::Seed(7)];
    let tasks = [
        ("families", "families", Arch::A100),
        ("clusters", "clusters", Arch::H200),
        ("tcgen05", "as they are", with_few_sms(Arch::B200)),
        ("mutants", "mutants", Arch::A100),
        ("few tokens", "few tokens", Arch::H200),
        ("mxf4", "as they are", with_few_sms(Arch::RTX5090)),
        ("small", "small", Arch::A100),
        ("wgmma", "wgmma", Arch::H200),
        ("mutants of wgmma", "mutants of wgmma", Arch::H200),
        (EVERY_LANE, EVERY_LANE, Arch::H200),
        ("random", "random", Arch::H200),
        ("random on Blackwell", "random", with_few_sms(Arch::B200)),
    ];
    for (first, (name, task, arch)) in tasks.into_iter().enumerate() {
        // By one schedule in turn, or by all.
        for schedule in in_turn(&schedules, first) {
            case(format!("{name}, {schedule:?}"), arch, schedule, task, "");
        }
    }
    for schedule in schedules {
        for fault in pairs::FAULTS {
            case(format!("{}, {schedule:?}", fault.name), Arch::B200, schedule, fault.name, fault.said);
        }
        for fault in FAULTS {
            // What was not waited for is there all the same, if it comes at once.
            let is_seen = !fault.only_late || matches!(schedule, Schedule::Late);
            let said = if is_seen { fault.said } else { "" };
            case(format!("{}, {schedule:?}", fault.name), Arch::H200, schedule, fault.name, said);
        }
    }
    for wrong in WRONG {
        case(wrong.mutant.what.to_owned(), Arch::H200, Schedule::Late, wrong.mutant.what, wrong.said);
    }
    cases
}

/// Whether the GPU that all trials have is an emulated one.
pub fn is_all() -> bool {
    std::env::var_os("WARPSMITH_EMULATED_DEVICE").is_some()
}

/// The trials; none where the GPU is emulated already. The emulator is built if one of them is to run.
pub fn trials(arguments: &Arguments) -> Vec<Trial> {
    if is_all() {
        return Vec::new();
    }
    let cases = cases();
    let is_wanted = |case: &Case| arguments.filter.as_ref().is_none_or(|filter| case.name.contains(filter));
    let emulator = match () {
        () if arguments.list || !cases.iter().any(is_wanted) => Err("none of them is to run".to_owned()),
        () => shared_folder()
            .and_then(|folder| build(&folder))
            .inspect_err(|why| eprintln!("SKIPPED: nothing is emulated: {why}")),
    };
    let is_skipped = emulator.is_err() && !arguments.list;
    cases
        .into_iter()
        .map(|case| {
            let (name, emulator) = (case.name.clone(), emulator.clone());
            Trial::test(name, move || passes(&emulator?, &case).map_err(Into::into)).with_ignored_flag(is_skipped)
        })
        .collect()
}

/// So few that persistent blocks have several tiles each.
fn with_few_sms(arch: Arch) -> Arch {
    Arch::of_device(&DeviceFacts { sms: 2, ..DeviceFacts::of_preset(&arch) }).unwrap()
}

/// Runs a task in a process that has an emulated GPU. It has to succeed, and say this on stderr.
fn passes(emulator: &Emulator, case: &Case) -> Result<(), String> {
    let Case { arch, schedule, task, said, .. } = case;
    let mut command = Command::new(std::env::current_exe().map_err(text)?);
    emulator.set_up(&mut command, arch, *schedule).env(TASK, task).env("WARPSMITH_TEST_SAMPLES", "1");
    if *task == EVERY_LANE {
        command.env("WARPSMITH_TEST_RACECHECK", "1");
    }
    let output = command.output().map_err(text)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        false => Err(format!("{}: {stderr}", output.status)),
        true if !stderr.contains(said) => Err(format!("`{said}` is not said: {stderr}")),
        true => Ok(()),
    }
}

fn run(bench: &Bench, task: &str) -> Result<(), String> {
    match task {
        "families" => {
            let families = families::all(bench.arch());
            families.iter().step_by(61 * step(3)).try_for_each(|family| families::passes_the_gate(bench, family))
        }
        "random" => random::seeds().take(2).try_for_each(|seed| random::passes_the_gate(bench, seed)),
        "mutants" => {
            let mutants = mutants::all(bench.arch());
            mutants.iter().step_by(34 * step(3)).try_for_each(|mutant| mutants::is_killed(bench, mutant))
        }
        "small" => {
            prepare::all().iter().step_by(5).try_for_each(|case| prepare::is_what_the_host_prepares(bench, case))?;
            quantise::mutants().iter().step_by(7).try_for_each(|mutant| quantise::is_killed(bench, mutant))?;
            let weights = quantise_weights::mutants();
            weights.iter().step_by(9).try_for_each(|mutant| quantise_weights::is_killed(bench, mutant))?;
            combine::mutants().iter().step_by(4).try_for_each(|mutant| combine::is_killed(bench, mutant))
        }
        "clusters" => {
            route::mutants_of(bench.arch()).iter().step_by(9).try_for_each(|mutant| route::is_killed(bench, mutant))
        }
        "few tokens" => {
            few::LAYERS.iter().skip(turn()).step_by(3).try_for_each(|layer| few::is_right(bench, layer))?;
            few::nothing_is_left_over(bench, few::OF_MUTANTS[turn() % 2])?;
            let mutants = [few::races(), few::mutants(), few::mutants_of_e4m3()].concat();
            mutants.iter().skip(turn()).step_by(7 * step(3)).try_for_each(|mutant| few::is_killed(bench, mutant))
        }
        "wgmma" => {
            many_tiles::are_right(bench)?;
            decoders::leave_no_task_out(bench)?;
            let families = families::all(bench.arch());
            let prepared = families.iter().filter(|family| family.name().contains(":prepared"));
            prepared
                .skip(turn() * 17)
                .step_by(340 * step(3))
                .try_for_each(|family| families::passes_the_gate(bench, family))
        }
        // The path that multiplies NVFP4 as it is: some families and mutants.
        "as they are" => {
            let path = families::block_scaled(bench.arch()).ok_or("there is no such path")?.to_string();
            let families = families::all(bench.arch());
            let of_path = families.iter().filter(|family| family.name().ends_with(&format!(" on {path}")));
            of_path
                .skip(turn() * 7)
                .step_by(75 * step(3))
                .try_for_each(|family| families::passes_the_gate(bench, family))?;
            let mutants = mutants::all(bench.arch());
            let of_path = mutants.iter().filter(|mutant| mutant.variant.starts_with(&path));
            of_path.skip(turn() * 5).step_by(46 * step(3)).try_for_each(|mutant| mutants::is_killed(bench, mutant))
        }
        EVERY_LANE => {
            let families = families::all(bench.arch());
            // Tokens that are decoded, that are copied by their numbers, that TMA loads, that have factors along K.
            let words = [["nvfp4*nvfp4", ":gathered"], ["e4m3*", ":k_factors"], [":gathered", ":k_factors"]];
            words[turn()].iter().try_for_each(|word| {
                let is_one = |family: &&Family| family.name().contains(":prepared") && family.name().contains(word);
                let of_word: Vec<_> = families.iter().filter(is_one).collect();
                families::passes_the_gate(bench, of_word[turn() * of_word.len() / 3])
            })
        }
        "mutants of wgmma" => {
            let mutants = mutants::all(bench.arch());
            let of_path = mutants.iter().filter(|mutant| mutant.variant.starts_with("wgmma"));
            of_path.skip(turn() * 9).step_by(80 * step(3)).try_for_each(|mutant| mutants::is_killed(bench, mutant))
        }
        fault => {
            let wrong = WRONG.iter().find(|wrong| wrong.mutant.what == fault);
            let of_pair = pairs::FAULTS.iter().find(|known| known.name == fault);
            match (wrong, of_pair) {
                (Some(wrong), _) => mutants::is_killed(bench, &wrong.mutant),
                (_, Some(of_pair)) => of_pair.is_found(bench),
                _ => FAULTS.iter().find(|known| known.name == fault).unwrap().is_found(bench),
            }
        }
    }
}

/// Each schedule has samples of its own.
fn turn() -> usize {
    match std::env::var("WARPSMITH_EMULATOR_SCHEDULE").as_deref() {
        Ok("eager") => 0,
        Ok("late") => 1,
        _ => 2,
    }
}

/// A kernel of the path wgmma that may well be right on a GPU, where ptxas or luck comes to its help. The emulator says this.
struct Wrong {
    mutant: Mutant,
    said: &'static str,
}

const fn wrong(what: &'static str, said: &'static str, from: &'static str, to: &'static str) -> Wrong {
    let variant = "wgmma.t64x64x128.s2.interleaved.ws2.shared";
    let mutant = Mutant::new(variant, Format::F16, what, from, to);
    Wrong { mutant, said }
}

const WRONG: &[Wrong] = &[
    wrong("products without a fence", "no wgmma.fence followed", "  wgmma_fence();\n#pragma", "#pragma"),
    wrong(
        "registers of A written under way",
        "wrote registers that are A of a product under way",
        "      wgmma_wait_group<1>();\n      if (!ONLY",
        "      if (!ONLY",
    ),
    wrong(
        "sums read under way",
        "are read while products are under way",
        "void finish_sums(const LineFactors&) {\n  wgmma_wait_group<0>();\n}",
        "void finish_sums(const LineFactors&) {}",
    ),
    wrong(
        "groups of rows at another distance",
        "groups of eight rows are 2048 bytes apart",
        "u64(1024 >> 4) << 32",
        "u64(2048 >> 4) << 32",
    ),
    Wrong {
        mutant: Mutant {
            variant: "wgmma.t64x64x128.s3.interleaved.ws2.shared",
            moved: true,
            ..wrong("copies without a fence", "", "if constexpr (COPIED) fence_proxy_async();", "").mutant
        },
        said: "without a fence.proxy.async since",
    },
];

/// A kernel of 64 threads and 1 KiB of shared memory that does something wrong. It is given 1 KiB of zeros, and an array for
/// 256 numbers.
struct Fault {
    name: &'static str,
    /// What it does.
    body: &'static str,
    /// What the emulator says; nothing, if it is right.
    said: &'static str,
    /// Nothing is wrong where copies are done at once.
    only_late: bool,
}

const fn fault(name: &'static str, said: &'static str, body: &'static str) -> Fault {
    Fault { name, body, said, only_late: false }
}

const FAULTS: &[Fault] = &[
    fault(
        "nothing wrong",
        "",
        "cp_async_16(at + threadIdx.x * 16, from + threadIdx.x * 4, true);
         cp_async_commit_group();
         cp_async_wait_group<0>();
         if (words[threadIdx.x * 4] != 0) __trap();
         __syncthreads();
         to[threadIdx.x] = words[255 - threadIdx.x];",
    ),
    Fault {
        only_late: true,
        ..fault(
            "a copy not waited for",
            "__trap",
            "cp_async_16(at + threadIdx.x * 16, from + threadIdx.x * 4, true);
             cp_async_commit_group();
             cp_async_wait_group<1>();
             if (words[threadIdx.x * 4] != 0) __trap();",
        )
    },
    fault("a thread that does not come", "deadlock: no thread can go on", "if (threadIdx.x < 32) __syncthreads();"),
    fault("a warp that diverges", "diverged", "if (threadIdx.x % 2) __syncwarp(); else __shfl_sync(~0u, 1, 0);"),
    fault("a copy from beyond the end", "are not inside of an allocation", "cp_async_16(at, from + 256, true);"),
    fault("a copy to beyond the end", "are outside of the block's 1024 bytes", "cp_async_16(at + 1024, from, true);"),
    fault("a misaligned copy", "is no multiple of 16", "cp_async_16(at + 8, from, true);"),
    fault("a load far outside", "an access at", "to[threadIdx.x] = from[-(1ll << 38)];"),
    fault("a store behind the end", "an access at", "if (threadIdx.x == 0) to[256] = 1;"),
    fault("a store before the beginning", "wrote around the allocation", "if (threadIdx.x == 0) to[-1] = 1;"),
    fault("another block's turn", "", "to[threadIdx.x] = blockIdx.x;"),
    fault(
        "a barrier that nobody completes",
        "mbarrier.try_wait at 0x400, parity 0: threads 0-63",
        "if (threadIdx.x == 0) mbarrier_init(at, 65);
         __syncthreads();
         mbarrier_arrive(at);
         mbarrier_wait(at, 0);",
    ),
    fault(
        "too many arrivals",
        "more arrivals",
        "if (threadIdx.x == 0) {
           mbarrier_init(at, 1);
           mbarrier_arrive_expect_tx(at, 16);
           mbarrier_arrive(at);
         }",
    ),
    fault(
        "a bulk copy",
        "",
        "if (threadIdx.x == 0) {
           mbarrier_init(at, 1);
           fence_mbarrier_init();
           bulk_load(at + 512, from, 512, at);
           mbarrier_arrive_expect_tx(at, 512);
         }
         __syncthreads();
         mbarrier_wait(at, 0);
         if (words[128 + threadIdx.x] != 0) __trap();",
    ),
    Fault {
        only_late: true,
        ..fault(
            "a bulk copy not waited for",
            "__trap",
            "if (threadIdx.x == 0) {
               mbarrier_init(at, 1);
               bulk_load(at + 512, from, 512, at);
               mbarrier_arrive_expect_tx(at, 512);
             }
             __syncthreads();
             if (words[128 + threadIdx.x] != 0) __trap();
             mbarrier_wait(at, 0);",
        )
    },
    fault(
        "a bulk store without a fence",
        "without a fence.proxy.async since",
        "st_shared_16(at + threadIdx.x * 16, 1, 2, 3, 4);
         __syncthreads();
         if (threadIdx.x == 0) {
           bulk_store(to, at, 1024);
           bulk_commit_group();
           bulk_wait_group();
         }",
    ),
    fault(
        "a bulk store",
        "",
        "st_shared_16(at + threadIdx.x * 16, 1, 2, 3, 4);
         fence_proxy_async();
         __syncthreads();
         if (threadIdx.x == 0) {
           bulk_store(to, at, 1024);
           bulk_commit_group();
           bulk_wait_group();
         }
         __syncthreads();
         if (to[255 - threadIdx.x] != 4 - threadIdx.x % 4) __trap();",
    ),
];

impl Fault {
    /// Its text, with the headers of this crate's kernels.
    fn source(&self) -> Result<Source, String> {
        let problem = warpsmith::spec::Problem::gemm().n(64).k(64).prepared();
        let variant = warpsmith::internal::spec::baseline(&problem);
        let spec = warpsmith::spec::Spec::new(&problem, &variant, &Arch::H200).map_err(text)?;
        let headers: &'static [Header] = warpsmith::internal::build::render(&spec).map_err(text)?.headers();
        let cuda = format!(
            "#include \"common/base.cuh\"\n#include \"common/stuck/trap.cuh\"\n#include \"wgmma/ptx.cuh\"\n\
             extern __shared__ __align__(1024) unsigned words[];\n\
             extern \"C\" __global__ void kernel(const unsigned* from, unsigned* to) {{\n\
             using namespace ws;\nconst u32 at = __cvta_generic_to_shared(words);\n{}\n}}\n",
            self.body
        );
        Ok(Source::new("fault.cu", cuda, headers, ["kernel"]))
    }

    /// Whether the launch fails, if something is wrong. What is said about it the parent looks at.
    fn is_found(&self, bench: &Bench) -> Result<(), String> {
        let (toolchain, target) = (bench.toolchain(), bench.arch().target());
        let cubin = warpsmith::internal::build::compile(toolchain, &self.source()?, target).map_err(text)?;
        let module = bench.device.context().load_module(Ptx::from_binary(cubin.image().to_vec())).map_err(text)?;
        let function = module.load_function("kernel").map_err(text)?;
        let stream = &bench.stream;
        let from = stream.alloc_zeros::<u32>(256).map_err(text)?;
        let mut to = stream.alloc_zeros::<u32>(256).map_err(text)?;
        let config = LaunchConfig { grid_dim: (2, 1, 1), block_dim: (64, 1, 1), shared_mem_bytes: 1024 };
        // SAFETY: the emulator refuses what is wrong.
        let launched = unsafe { stream.launch_builder(&function).arg(&from).arg(&mut to).launch(config) };
        let is_late = std::env::var("WARPSMITH_EMULATOR_SCHEDULE").is_ok_and(|schedule| schedule == "late");
        let is_by_chance = self.only_late && !is_late;
        match launched {
            Ok(_) if self.said.is_empty() || is_by_chance => Ok(()),
            Err(_) if !self.said.is_empty() => Ok(()),
            Ok(_) => Err("the launch succeeds".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}
