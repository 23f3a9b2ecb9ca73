//! Kernels on a GPU: every family through the gate, every code and scale exactly, mutants of the CUDA itself.
//!
//! Without a GPU every trial is counted as ignored, but for those that emulate one. `WARPSMITH_TEST_SAMPLES` sets how many
//! variants of each family go through the gate (default 12), `WARPSMITH_TEST_SEED` which random problems do;
//! `WARPSMITH_TEST_JSON` writes one line a checked kernel.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod activations;
mod allocations;
mod bench;
use warpsmith_testing::counting;
mod combine;
mod decoders;
mod dispatch;
mod emulated;
mod exact;
mod families;
mod few;
mod graphs;
mod handed_over;
mod isolation;
mod many_tiles;
mod mutants;
mod numerics;
mod nvcc;
mod plan;
mod prepare;
mod quantise;
mod quantise_e4m3;
mod quantise_weights;
mod random;
mod raw;
mod route;
mod serving;
mod small;
mod tcgen05;
mod tuner;
mod uploaded;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};

use warpsmith::run::Device;
use warpsmith::spec::Arch;

use bench::Bench;

type Test = fn(&Bench) -> Result<(), String>;

/// What is to be so of a layer's kernel.
type OfLayer = fn(&Bench, &str) -> Result<(), String>;

fn main() -> ExitCode {
    // In a worker that a trial has started, this does not return.
    warpsmith_tune::serve_if_asked();
    if let Some(ended) = emulated::asked() {
        return ended;
    }
    let arguments = Arguments::from_args();
    let bench = match Bench::open() {
        Ok(bench) => Some(Arc::new(bench)),
        Err(why) => {
            eprintln!("SKIPPED: no kernel is launched: {why}");
            None
        }
    };
    let mut trials = Vec::new();
    let arch = bench.as_ref().map_or(Arch::H200, |bench| *bench.arch());
    for family in families::all(&arch) {
        trials.push(trial(&bench, family.name(), move |bench| families::passes_the_gate(bench, &family)));
    }
    for seed in random::seeds() {
        trials.push(trial(&bench, format!("random: gate: seed {seed}"), move |bench| {
            random::passes_the_gate(bench, seed)
        }));
    }
    trials.push(Trial::test("activations: kernels are legal", || activations::are_legal().map_err(Into::into)));
    for case in activations::all(&arch) {
        trials.push(trial(&bench, case.name(), move |bench| activations::are_evaluated(bench, &case)));
    }
    for case in exact::all(&arch) {
        trials.push(trial(&bench, case.name(), move |bench| exact::is_exact(bench, &case)));
    }
    let alike = "a tuner of alike candidates changes nothing".to_owned();
    trials.push(trial(&bench, alike, tuner::alike_kernels_change_nothing));
    for case in numerics::all(&arch) {
        let invariant = case.clone();
        trials.push(trial(&bench, format!("numerics: {case}, any M, one class"), move |bench| {
            numerics::is_batch_invariant(bench, &invariant)
        }));
        trials.push(trial(&bench, format!("numerics: {case}, equal classes, equal bits"), move |bench| {
            numerics::equal_classes_give_equal_bits(bench, &case)
        }));
    }
    for case in prepare::all() {
        trials.push(trial(&bench, case.name(), move |bench| prepare::is_what_the_host_prepares(bench, &case)));
    }
    trials.push(trial(&bench, "prepare: bad operands are refused".to_owned(), prepare::bad_operands_are_refused));
    for case in route::all() {
        trials.push(trial(&bench, case.name(), move |bench| route::is_right(bench, &case)));
    }
    trials.push(trial(
        &bench,
        "experts: route: replays are bit-identical".to_owned(),
        route::replays_are_bit_identical,
    ));
    trials.push(trial(&bench, "experts: route: bad operands are refused".to_owned(), route::bad_operands_are_refused));
    trials.push(Trial::test("experts: mutants of route are up to date", || {
        small::are_up_to_date(&route::mutants()).map_err(Into::into)
    }));
    for mutant in route::mutants_of(&arch) {
        trials.push(trial(&bench, mutant.name(), move |bench| route::is_killed(bench, &mutant)));
    }
    for case in combine::all() {
        trials.push(trial(&bench, case.name(), move |bench| combine::is_right(bench, &case)));
    }
    trials.push(trial(
        &bench,
        "experts: combine: bad operands are refused".to_owned(),
        combine::bad_operands_are_refused,
    ));
    trials.push(Trial::test("experts: mutants of combine are up to date", || {
        small::are_up_to_date(&combine::mutants()).map_err(Into::into)
    }));
    for mutant in combine::mutants() {
        trials.push(trial(&bench, mutant.name(), move |bench| combine::is_killed(bench, &mutant)));
    }
    // Kernels of Hopper.
    if arch.capability() == Arch::H200.capability() {
        for layer in few::LAYERS {
            let name = format!("experts: few tokens: {layer}");
            trials.push(trial(&bench, name, move |bench| few::is_right(bench, layer)));
        }
        for layer in few::OF_MUTANTS {
            let right: [(&str, OfLayer); 4] = [
                ("a kernel by hand", few::the_kernel_itself_is_right),
                ("nothing is left over", few::nothing_is_left_over),
                ("bits do not depend on how rows are exchanged", few::bits_do_not_depend_on_how_rows_are_exchanged),
                (
                    "a factor that is no number stays with its tokens",
                    few::a_factor_that_is_no_number_stays_with_its_tokens,
                ),
            ];
            for (what, is_so) in right {
                let name = format!("experts: few tokens: {what}: {layer}");
                trials.push(trial(&bench, name, move |bench| is_so(bench, layer)));
            }
        }
        for mutant in few::left_over() {
            trials.push(trial(&bench, mutant.name(), move |bench| {
                few::is_left_over(bench, &mutant)?.map(drop).ok_or_else(|| "nothing is left over".to_owned())
            }));
        }
        let sought = [few::mutants(), few::mutants_of_e4m3()].concat();
        for (mutants, is_sought) in [(sought, true), (few::races(), emulated::is_all())] {
            for mutant in mutants {
                let trial = trial(&bench, mutant.name(), move |bench| few::is_killed(bench, &mutant));
                trials.push(if is_sought { trial } else { trial.with_ignored_flag(true) });
            }
        }
    }
    trials.push(Trial::test("experts: mutants of few tokens are up to date", || {
        small::are_up_to_date(&[few::mutants(), few::mutants_of_e4m3(), few::races(), few::left_over()].concat())
            .map_err(Into::into)
    }));
    for case in quantise::all() {
        trials.push(trial(&bench, case.name(), move |bench| quantise::is_right(bench, &case)));
    }
    for case in quantise_e4m3::all() {
        trials.push(trial(&bench, case.name(), move |bench| quantise_e4m3::is_right(bench, &case)));
    }
    trials.push(trial(
        &bench,
        "quantise: every f16 and bf16 number to e4m3".to_owned(),
        quantise_e4m3::every_number_is_right,
    ));
    trials.push(Trial::test("quantise: mutants to e4m3 are up to date", || {
        small::are_up_to_date(&quantise_e4m3::mutants()).map_err(Into::into)
    }));
    for mutant in quantise_e4m3::mutants() {
        trials.push(trial(&bench, mutant.name(), move |bench| quantise_e4m3::is_killed(bench, &mutant)));
    }
    for case in quantise_weights::all() {
        trials.push(trial(&bench, case.name(), move |bench| quantise_weights::is_right(bench, &case)));
    }
    trials.push(Trial::test("quantise: mutants of weights are up to date", || {
        small::are_up_to_date(&quantise_weights::mutants()).map_err(Into::into)
    }));
    for mutant in quantise_weights::mutants() {
        trials.push(trial(&bench, mutant.name(), move |bench| quantise_weights::is_killed(bench, &mutant)));
    }
    for (name, run) in [
        ("every f16 and bf16 number", quantise::every_number_is_right as fn(&Bench) -> _),
        ("replays with other tensors", quantise::replays_with_other_tensors),
        ("weights: many rows", quantise_weights::many_rows_are_right),
        ("weights: what is no number", quantise_weights::what_is_no_number_is_found),
    ] {
        trials.push(trial(&bench, format!("quantise: {name}"), run));
    }
    trials.push(Trial::test("quantise: mutants are up to date", || {
        small::are_up_to_date(&quantise::mutants()).map_err(Into::into)
    }));
    for mutant in quantise::mutants() {
        trials.push(trial(&bench, mutant.name(), move |bench| quantise::is_killed(bench, &mutant)));
    }
    trials.push(Trial::test("mutants are up to date", || mutants::are_up_to_date().map_err(Into::into)));
    for mutant in mutants::all(&arch) {
        let is_sought = !mutant.races || emulated::is_all();
        let trial = trial(&bench, mutant.name(), move |bench| mutants::is_killed(bench, &mutant));
        trials.push(if is_sought { trial } else { trial.with_ignored_flag(true) });
    }
    trials.push(trial(
        &bench,
        "a graph is replayed with other group sizes".to_owned(),
        graphs::replays_with_other_sizes,
    ));
    trials.push(trial(&bench, "wrong offsets touch nothing outside".to_owned(), graphs::wrong_offsets_stay_inside));
    if arch.capability() == Arch::H200.capability() {
        let name = "10 000 replays of a graph of dependent launches give the same bits".to_owned();
        trials.push(trial(&bench, name, graphs::replays_are_bit_identical));
        let name = "a dependent launch waits for what is written last before it".to_owned();
        trials.push(trial(&bench, name, handed_over::is_waited_for));
        let name = "a quantiser waits for x unless it is settled".to_owned();
        trials.push(trial(&bench, name, handed_over::x_is_waited_for));
    }
    trials.push(trial(&bench, "bad operands are refused before a launch".to_owned(), graphs::bad_operands_are_refused));
    trials.push(trial(&bench, "a launch allocates nothing on the host".to_owned(), allocations::a_launch_makes_none));
    trials.push(trial(
        &bench,
        "a launch with prepared weights allocates nothing on the host".to_owned(),
        allocations::a_prepared_launch_makes_none,
    ));
    for path in isolation::all(&arch) {
        trials.push(trial(&bench, path.name(), move |bench| isolation::faults_are_quarantined(bench, &path)));
    }
    trials.push(trial(&bench, "a kernel is as fast as itself".to_owned(), isolation::a_kernel_is_as_fast_as_itself));
    trials.push(trial(&bench, "a worker goes on with other rows".to_owned(), isolation::a_worker_goes_on));
    trials.push(trial(&bench, "further rows are timed".to_owned(), isolation::further_rows_are_timed));
    for (name, run) in [
        ("after a warm-up nothing is compiled or loaded", serving::nothing_is_made_after_a_warm_up as fn(&Bench) -> _),
        ("a kernel that stands in is right, and so is the one that follows it", serving::a_stand_in_is_right),
        ("a miss does not spoil a capture", serving::a_miss_does_not_spoil_a_capture),
        ("an engine can go while a kernel is made behind it", serving::an_engine_can_go_at_any_time),
    ] {
        trials.push(trial(&bench, format!("serving: {name}"), run));
    }
    for (name, run) in [
        ("another cudarc is served", raw::another_cudarc_is_served as fn(&Bench) -> _),
        ("bare handles are served", raw::bare_handles_are_served),
        ("raw memory costs no more", raw::cost_no_more),
        ("streams share weights", raw::streams_share_weights),
    ] {
        trials.push(trial(&bench, format!("guest: {name}"), run));
    }
    trials.push(trial(&bench, "NVRTC's code is as fast as nvcc's".to_owned(), nvcc::is_not_faster));
    // Of prepared weights, and so for Hopper.
    let hopper = bench.clone().filter(|bench| bench.arch().capability() == Arch::H200.capability());
    trials.push(trial(&hopper, "groups of many tiles are right".to_owned(), many_tiles::are_right));
    trials.push(trial(&hopper, "groups of many e4m3 tiles are right".to_owned(), many_tiles::are_right_rounded));
    trials.push(trial(&hopper, "many tiles in bands are right".to_owned(), many_tiles::are_right_in_bands));
    trials.push(trial(&hopper, "decoders leave no task out".to_owned(), decoders::leave_no_task_out));
    let plans: [(&str, Test); 8] = [
        ("right for every M", plan::is_right_for_every_m),
        ("bound to operands, right for every M", plan::is_right_when_bound),
        ("outlived by its graph", plan::is_outlived_by_its_graph),
        ("dropped while it runs", plan::is_dropped_while_it_runs),
        ("loads beside captures", plan::loads_beside_captures),
        ("reclaims nothing during a capture", plan::reclaims_nothing_during_a_capture),
        ("shared by threads", plan::is_shared_by_threads),
        ("little more than a bare launch", dispatch::is_little_more_than_bare),
    ];
    for (name, run) in plans {
        trials.push(trial(&hopper, format!("plan: {name}"), run));
    }
    let two = hopper.filter(|_| Device::count().is_ok_and(|count| count > 1));
    trials.push(trial(&two, "plan: right on two devices".to_owned(), plan::is_right_on_two_devices));
    trials.extend(emulated::trials(&arguments));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(
    bench: &Option<Arc<Bench>>,
    name: String,
    run: impl FnOnce(&Bench) -> Result<(), String> + Send + 'static,
) -> Trial {
    let ignored = bench.is_none();
    let bench = bench.clone();
    Trial::test(name, move || match bench {
        Some(bench) => run(&bench).map_err(Into::into),
        None => Err("there is no GPU".into()),
    })
    .with_ignored_flag(ignored)
}
