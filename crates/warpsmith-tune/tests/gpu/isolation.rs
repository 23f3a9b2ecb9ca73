//! Kernels that hang, fault or are wrong, planted in a worker's candidates: each is put into quarantine with its reason,
//! this process's own context goes on, and the next good kernel is admitted and timed.

use std::time::{Duration, Instant};

use warpsmith::cache::KernelCache;
use warpsmith::internal::build::Source;
use warpsmith::spec::{Activation, Arch, Problem, Spec};
use warpsmith_tune::{
    Admission, HostOperands, Launching, LocalMeasurer, Measure, Rejection, Setup, Spread, Trial, WorkerCommand,
    WorkerMeasurer, even_rows,
};

use crate::bench::{Bench, changed, text};

/// Stages of the kernels that something is wrong with.
const HANGS: u32 = 2;
const FAULTS: u32 = 4;
const WRONG: u32 = 5;
/// Those of good ones.
const GOOD: [u32; 2] = [3, 6];
/// No tile's multiple.
const M: u32 = 77;

pub struct Path {
    name: &'static str,
    problem: Problem,
    /// The variant up to its stages, and behind them.
    variant: [&'static str; 2],
    /// What a hang is taken for.
    hang: &'static str,
}

pub fn all(arch: &Arch) -> Vec<Path> {
    // K ends inside a tile.
    let problem = Problem::dual_gemm(Activation::Silu).n(1024).k(2112);
    let mma =
        Path { name: "mma", problem, variant: ["mma.t32x64x128.s", ".interleaved.uniform.direct"], hang: "hangs" };
    let variant = ["wgmma.t64x64x128.s", ".interleaved.ws2.shared"];
    // Its kernels end a wait without end themselves, by a trap.
    let wgmma = Path { name: "wgmma", problem: problem.prepared(), variant, hang: "crashes" };
    // The path wgmma, which only Hopper has.
    if arch.capability() == Arch::H200.capability() { vec![mma, wgmma] } else { vec![mma] }
}

impl Path {
    pub fn name(&self) -> String {
        format!("planted in {}: a hang, an illegal access and a wrong tail are quarantined", self.name)
    }

    fn spec(&self, problem: &Problem, arch: &Arch, stages: u32) -> Spec {
        let [before, behind] = self.variant;
        Spec::new(problem, &format!("{before}{stages}{behind}").parse().unwrap(), arch).unwrap()
    }
}

/// The kernels' source, with a fault where the number of stages says so.
fn planted(spec: &Spec) -> warpsmith::Result<Source> {
    let source = warpsmith::internal::build::render(spec)?;
    const NEVER: &str = "*reinterpret_cast<volatile int*>(16) = 1;";
    let is_prepared = spec.problem().is_prepared();
    let (from, to) = match (spec.variant().stages, is_prepared) {
        // A loop without end.
        (HANGS, false) => ("float run[RUN];", "float run[RUN]; for (;;) __nanosleep(1000000);".to_owned()),
        // A barrier that waits for an arrival too many.
        (HANGS, true) => {
            ("mbarrier_init(full(slot), FULL_ARRIVALS);", "mbarrier_init(full(slot), FULL_ARRIVALS + 1);".to_owned())
        }
        (FAULTS, false) => ("float run[RUN];", format!("float run[RUN]; {NEVER}")),
        (FAULTS, true) => (
            "multiply_stage<LAST_BLOCKS, WIDTH>(*this);",
            format!("multiply_stage<LAST_BLOCKS, WIDTH>(*this); {NEVER}"),
        ),
        (WRONG, false) => ("if (row < block.rows)", "if (row + 1 < block.rows)".to_owned()),
        (WRONG, true) => ("found.rows - offset, found.height);", "found.rows - offset, found.height) - 1;".to_owned()),
        _ => return Ok(source),
    };
    Ok(changed(&source, &[(from, &to)])
        .unwrap_or_else(|from| panic!("`{from}` stands nowhere: a fault is out of date")))
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?}, not {expected:?}")) }
}

pub fn faults_are_quarantined(bench: &Bench, path: &Path) -> Result<(), String> {
    let _turn = bench.alone();
    let arch = bench.arch();
    let problem = path.problem.grouped(3);
    let spec = |stages| path.spec(&problem, arch, stages);
    let ([hangs, faults, wrong], good) = ([HANGS, FAULTS, WRONG].map(spec), GOOD.map(spec));

    // A kernel of this process, in its own context.
    let host = HostOperands::random(&problem, &even_rows(&problem, M).unwrap(), Spread::Uniform, 3);
    let reference = warpsmith_tune::reference::of(&host).map_err(text)?;
    let trial = Trial::new(&bench.stream, &host, &reference).map_err(text)?;
    let own = bench.kernel(&good[0])?;
    let goes_on = || trial.check(&own).map_err(text).and_then(|checked| expect("own kernel", checked.passed(), true));
    goes_on()?;

    let temp = tempfile::tempdir().unwrap();
    let cache = || {
        let toolchain = bench.toolchain().clone();
        // SAFETY: they are wrong on purpose, in a process that may crash.
        unsafe { KernelCache::builder().toolchain(toolchain).render(planted) }.disk(temp.path()).build()
    };
    let cache_ = cache();
    let setup = Setup::new(&problem, M).limit(Duration::from_secs(2));
    let command = WorkerCommand::this_binary().map_err(text)?;
    let mut measurer = WorkerMeasurer::new(command.clone(), &cache_, setup.clone());
    expect("architecture", *measurer.device().map_err(text)?.arch(), *arch)?;

    let is_timed = |measurer: &mut WorkerMeasurer<'_>| -> Result<(), String> {
        for spec in &good {
            match measurer.admit(spec).map_err(text)? {
                Admission::Passed { worst } if worst <= 1.0 => {}
                other => return Err(format!("{spec}: {other}")),
            }
            let us = measurer.screen(spec).map_err(text)?;
            expect("finite", us.is_finite() && us > 0.0, true)?;
        }
        let pairs = measurer.duel(&good[0], &good[1], 5).map_err(text)?;
        expect("pairs", pairs.iter().filter(|(a, b)| a.is_finite() && b.is_finite()).count(), 5)
    };
    is_timed(&mut measurer)?;
    expect("workers", measurer.starts(), 1)?;

    let planted = [(hangs, path.hang), (faults, "crashes"), (wrong, "wrong")];
    let mut reasons = Vec::new();
    for (count, (spec, word)) in planted.iter().enumerate() {
        let reason = match measurer.admit(spec).map_err(text)? {
            Admission::Refused(reason) => reason,
            passed => return Err(format!("{spec}: {passed}")),
        };
        expect("reason", reason.word(), *word)?;
        goes_on().map_err(|error| format!("after one that {word}: {error}"))?;
        // What passed before is timed again, in another worker.
        let us = measurer.screen(&good[0]).map_err(text)?;
        expect("finite", us.is_finite(), true)?;
        expect("workers", measurer.starts(), count as u64 + 2)?;
        is_timed(&mut measurer)?;
        reasons.push(reason);
    }
    expect("code", reasons[1].to_string().contains("ILLEGAL_ADDRESS"), true).map_err(|_| reasons[1].to_string())?;

    // Neither this measurer nor one of a second start tries them again.
    let cache_ = cache();
    let mut next = WorkerMeasurer::new(command, &cache_, setup);
    for ((spec, _), reason) in planted.iter().zip(&reasons) {
        let expected = Admission::Refused(Rejection::Quarantined(reason.to_string()));
        expect("this start", measurer.admit(spec).map_err(text)?, expected.clone())?;
        expect("next start", next.admit(spec).map_err(text)?, expected)?;
    }
    // The next measurer's worker has told which driver there is, and was asked for nothing else.
    expect("workers", (measurer.starts(), next.starts()), (4, 1))?;
    goes_on()
}

/// One worker goes on with other rows of the weights that it has, with other weights, and back; each kernel is checked anew.
pub fn a_worker_goes_on(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let cache = KernelCache::builder().toolchain(bench.toolchain().clone()).no_disk().build();
    let command = WorkerCommand::this_binary().map_err(text)?;
    for path in all(bench.arch()) {
        let problem = path.problem.n(192).k(512);
        let (other, grouped) = (problem.k(448), problem.grouped(3));
        let setup = |problem: &Problem, m| Setup::new(problem, m).limit(Duration::from_secs(60));
        let mut measurer =
            WorkerMeasurer::new(command.clone(), &cache, setup(&problem, M)).deadline(Duration::from_secs(90));
        let turns =
            [(problem, M), (problem, M + 45), (problem, 1), (other, M), (grouped, M), (grouped, 300), (problem, M)];
        for (number, (problem, m)) in turns.into_iter().enumerate() {
            let specs = GOOD.map(|stages| path.spec(&problem, bench.arch(), stages));
            if number > 0 {
                let is_other = problem != turns[number - 1].0;
                expect("another problem", measurer.admit(&specs[0]).is_err(), is_other)?;
                measurer.turn_to(setup(&problem, m));
                expect("not admitted", measurer.screen(&specs[0]).is_err(), true)?;
            }
            for spec in &specs {
                match measurer.admit(spec).map_err(text)? {
                    Admission::Passed { worst } if worst <= 1.0 => {}
                    refused => return Err(format!("{spec}, m = {m}: {refused}")),
                }
            }
        }
        expect("workers", measurer.starts(), 1)?;
    }
    Ok(())
}

/// Calls go round further ways in which rows fall into groups, and the last gives what was checked.
pub fn further_rows_are_timed(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let arch = bench.arch();
    let cache = KernelCache::builder().toolchain(bench.toolchain().clone()).no_disk().build();
    for path in all(arch) {
        let problem = path.problem.n(64).k(128).grouped(3);
        let spec = path.spec(&problem, arch, GOOD[0]);
        let setup = Setup::new(&problem, 30).limit(Duration::from_secs(60));
        let mut measurer =
            LocalMeasurer::open(&cache, setup.further_rows(vec![vec![0, 1, 29], vec![30, 0, 0]])).map_err(text)?;
        match measurer.admit(&spec).map_err(text)? {
            Admission::Passed { .. } => {}
            refused => return Err(format!("{spec}: {refused}")),
        }
        // Not finite, if the last call gave other bits.
        let us = measurer.screen(&spec).map_err(text)?;
        expect("finite", us.is_finite() && us > 0.0, true)?;
    }
    Ok(())
}

/// The measurer of this process: the same kernels, and how long a short timing takes.
pub fn a_kernel_is_as_fast_as_itself(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let arch = bench.arch();
    let cache = KernelCache::builder().toolchain(bench.toolchain().clone()).no_disk().build();
    for path in all(arch) {
        for launching in [Launching::Plain, Launching::Dependent] {
            let grouped = path.problem.grouped(3);
            for (problem, m) in [(path.problem, M), (path.problem, 1), (grouped, 200)] {
                let setup = Setup::new(&problem, m).launching(launching);
                let mut measurer = LocalMeasurer::open(&cache, setup).map_err(text)?;
                let spec = path.spec(&problem, arch, GOOD[0]);
                match measurer.admit(&spec).map_err(text)? {
                    Admission::Passed { .. } => {}
                    refused => return Err(format!("{spec}, m = {m}: {refused}")),
                }
                let us = measurer.screen(&spec).map_err(text)?;
                let start = Instant::now();
                let again = measurer.screen(&spec).map_err(text)?;
                let took = start.elapsed();
                let pairs = measurer.duel(&spec, &spec, 31).map_err(text)?;
                let mut ratios: Vec<f64> = pairs.iter().map(|(first, second)| second / first).collect();
                ratios.sort_by(f64::total_cmp);
                let median = ratios[ratios.len() / 2];
                println!(
                    "{spec}, m = {m}, {launching:?}: {us:.2} and {again:.2} µs; a screening took {:.1} ms; itself {median:.4}",
                    took.as_secs_f64() * 1e3
                );
                expect("a kernel as fast as itself", (0.95..1.05).contains(&median), true)?;
            }
        }
    }
    Ok(())
}
