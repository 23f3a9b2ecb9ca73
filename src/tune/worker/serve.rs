//! The worker's side: opens the device, answers one request after the other, and ends when it is told nothing more.

use std::io::{self, BufRead, IsTerminal, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;

use rustix::process::{Signal, getpid, kill_process};

use super::super::keeper::Stand;
use super::super::rig::{Condition, Rig};
use super::super::setup::Setup;
use super::command::is_asked;
use super::protocol::{self, Answer, Facts, Failure, Reply, Request};
use crate::build::Cubin;
use crate::error::{Error, Result};
use crate::spec::{Arch, Problem, Spec};

/// To be called first in `main` by a program that uses [`WorkerCommand::this_binary`](super::WorkerCommand): in a
/// process that was started as a worker it does the work and never returns, in any other it does nothing.
pub fn serve_if_asked() {
    if is_asked() {
        std::process::exit(if serve() == ExitCode::SUCCESS { 0 } else { 1 });
    }
}

/// The whole of a worker program: takes requests from stdin and answers on stdout, until stdin ends.
#[must_use]
pub fn serve() -> ExitCode {
    let told = if io::stdin().is_terminal() {
        Err(Error::unsupported("this is a worker of warpsmith's tuner, which starts it when it needs it"))
    } else {
        serve_on_stdio()
    };
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to be told that this failed.
            let _ = writeln!(io::stderr(), "warpsmith worker: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve_on_stdio() -> Result<()> {
    // Whatever else writes to stdout (a kernel's printf, a library) must not get between the answers.
    let kept = io::stdout().as_fd().try_clone_to_owned();
    let output = kept.and_then(|kept| Ok(rustix::stdio::dup2_stdout(io::stderr()).map(|()| kept)?));
    let output = output.map_err(|error| Error::internal("taking stdout for answers").with_source(error))?;
    let open = |setup| {
        let rig = Rig::open(setup)?;
        let facts = Facts::of(rig.device());
        let arch = *rig.device().arch();
        Ok((rig, facts, arch))
    };
    let is_usable = |rig: &Rig| *rig.condition() == Condition::Sound;
    if answer_all(io::stdin().lock(), std::fs::File::from(output), open, is_usable)? {
        return Ok(());
    }
    // With a kernel that never ends, the driver's own tidying up would not end either.
    kill_process(getpid(), Signal::KILL).map_err(|error| Error::internal("ending the worker").with_source(error))
}

/// Answers requests; says whether the stand is still usable at the end.
pub(super) fn answer_all<S: Stand>(
    mut input: impl BufRead,
    mut output: impl Write,
    open: impl FnOnce(Setup) -> Result<(S, Facts, Arch)>,
    is_usable: impl Fn(&S) -> bool,
) -> Result<bool> {
    let Some(first) = protocol::hear(&mut input)? else { return Ok(true) };
    let mut refuse = |error: Error| {
        protocol::say(&mut output, &Reply { answer: Answer::Failed(Failure::from(error)), last: true })?;
        Ok(true)
    };
    let setup = match first {
        Request::Open { version: protocol::VERSION, setup } => setup,
        Request::Open { version, .. } => {
            let ours = protocol::VERSION;
            return refuse(Error::unsupported(format!("protocol version {version}, this worker speaks {ours}")));
        }
        _ => return refuse(Error::internal("a worker was not told first what it is for")),
    };
    let problem = *setup.problem();
    let (mut stand, device, arch) = match open(setup) {
        Ok(opened) => opened,
        Err(error) => return refuse(error),
    };
    protocol::say(&mut output, &Reply { answer: Answer::Ready { version: protocol::VERSION, device }, last: false })?;
    while let Some(request) = protocol::hear(&mut input)? {
        let answer = answer(&mut stand, &problem, &arch, request, &mut input);
        let answer = answer.unwrap_or_else(|error| Answer::Failed(Failure::from(error)));
        let last = !is_usable(&stand);
        protocol::say(&mut output, &Reply { answer, last })?;
        if last {
            return Ok(false);
        }
    }
    Ok(true)
}

fn answer(
    stand: &mut impl Stand,
    problem: &Problem,
    arch: &Arch,
    request: Request,
    input: &mut impl BufRead,
) -> Result<Answer> {
    let spec = |variant| Spec::new(problem, &variant, arch);
    match request {
        Request::Open { .. } => Err(Error::internal("a worker was told twice what it is for")),
        Request::Admit { variant, about, image_bytes } => {
            let cubin = Cubin::from_parts(about, protocol::image(input, image_bytes)?)?;
            stand.admit(&spec(variant)?, &Arc::new(cubin)).map(Answer::Admitted)
        }
        Request::Screen { variant } => stand.screen(&spec(variant)?).map(Answer::Screened),
        Request::Duel { incumbent, challenger, pairs } => {
            stand.duel(&spec(incumbent)?, &spec(challenger)?, pairs).map(Answer::Duelled)
        }
    }
}
