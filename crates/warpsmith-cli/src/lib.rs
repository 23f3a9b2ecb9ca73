//! The command `warpsmith`: kernels run, tuned, timed, studied, packed and explained.
//!
//! [`main`] is the whole command, [`run_shapes`] its sub-command `run` as a program of its own. Each prints prose on
//! stdout or, with `--json`, one JSON document there and the prose on stderr, and ends with
//!
//! | status | |
//! |---|---|
//! | 0 | everything is right |
//! | 1 | something is wrong: a kernel, a pack |
//! | 2 | something could not be done; a sentence on stderr tells what |
//! | 3 | wrong usage |
//! | 141 | nobody reads what is printed |

mod bench;
mod calibrate;
mod doctor;
mod explain;
mod layer;
mod manifest;
mod pack;
mod quantize;
mod run;
mod serve;
mod shared;
mod study;
mod tune;
mod verify;
mod warm_up;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use clap_complete::Shell;

use shared::ending::{USAGE, exit};
use shared::{Result, expect_document};

/// GPU kernels made for one problem shape: run, tuned, timed, studied, packed and explained.
///
/// Status: 0 all right, 1 something is wrong, 2 something could not be done, 3 wrong usage, 141 nobody reads on.
#[derive(Debug, Parser)]
#[command(name = "warpsmith", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

// A sub-command's options, and `--json`. No documentation comment: help tells what the options' own says.
#[derive(Debug, Parser)]
#[command(version)]
struct Options<A: clap::Args> {
    #[command(flatten)]
    own: A,

    /// Prints one JSON document on stdout, and everything else on stderr.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Run(Options<run::Args>),
    Tune(Options<tune::Args>),
    Bench(Options<bench::Args>),
    Calibrate(Options<calibrate::Args>),
    Study(Options<study::Args>),
    Serve(Options<serve::Args>),
    Layer(Options<layer::Args>),
    Manifest(Options<manifest::Args>),
    WarmUp(Options<warm_up::Args>),
    Pack(Options<pack::Args>),
    Quantize(Options<quantize::Args>),
    Explain(Options<explain::Args>),
    Doctor(Options<doctor::Args>),
    Verify(Options<verify::Args>),
    /// Prints what a shell completes this command with: bash, zsh, fish, elvish or powershell.
    Completions {
        /// Whose completions.
        shell: Shell,
    },
}

/// The command, with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    // The tuner starts this program again, as its worker.
    warpsmith_tune::serve_if_asked();
    parsed::<Cli>().map_or_else(|status| status, |cli| cli.command.run())
}

/// The sub-command `run` as a program of its own, with the arguments of this process.
#[must_use]
pub fn run_shapes() -> ExitCode {
    parsed::<Options<run::Args>>().map_or_else(|status| status, |options| options.run(run::run))
}

/// The command line; where there is none, or it asks for help, how that ends.
fn parsed<P: Parser>() -> std::result::Result<P, ExitCode> {
    P::try_parse().map_err(|error| {
        // Whoever does not read help needs none.
        let _ = error.print();
        if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
    })
}

impl<A: clap::Args> Options<A> {
    fn run(self, run: impl FnOnce(&A) -> Result<bool>) -> ExitCode {
        if self.json {
            expect_document();
        }
        exit(|| run(&self.own))
    }
}

impl Command {
    fn run(self) -> ExitCode {
        match self {
            Self::Run(options) => options.run(run::run),
            Self::Tune(options) => options.run(tune::run),
            Self::Bench(options) => options.run(bench::run),
            Self::Calibrate(options) => options.run(calibrate::run),
            Self::Study(options) => options.run(study::run),
            Self::Serve(options) => options.run(serve::run),
            Self::Layer(options) => options.run(layer::run),
            Self::Manifest(options) => options.run(manifest::run),
            Self::WarmUp(options) => options.run(warm_up::run),
            Self::Pack(options) => options.run(pack::run),
            Self::Quantize(options) => options.run(quantize::run),
            Self::Explain(options) => options.run(explain::run),
            Self::Doctor(options) => options.run(doctor::run),
            Self::Verify(options) => options.run(verify::run),
            Self::Completions { shell } => exit(|| shared::completions(shell, Cli::command())),
        }
    }
}
