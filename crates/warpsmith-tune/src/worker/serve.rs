//! The worker's side: opens the device, answers one request after the other, and ends when it is told nothing more.

use std::io::{self, BufRead, IsTerminal, Write};
use std::os::fd::AsFd;
use std::panic;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, getpid, getppid, kill_process};

use super::super::local_backend::{Condition, LocalBackend};
use super::super::measurer::{Backend, Notice};
use super::super::setup::Setup;
use super::command::is_asked;
use super::protocol::{self, Answer, Asked, Facts, Failure, Reply, Request};
use warpsmith::build::Built;
use warpsmith::internal::environment::Environment;
use warpsmith::internal::{self, Raise};
use warpsmith::spec::{Arch, Problem, Spec};
use warpsmith::{Error, Result};

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
    say_why_last();
    end_with_parent();
    // Whatever else writes to stdout (a kernel's printf, a library) must not get between the answers.
    let kept = io::stdout().as_fd().try_clone_to_owned();
    let output = kept.and_then(|kept| Ok(rustix::stdio::dup2_stdout(io::stderr()).map(|()| kept)?));
    let output = output.map_err(|error| Error::internal("taking stdout for answers").with_source(error))?;
    let open = |setup| {
        let backend = LocalBackend::open(setup)?;
        let facts = Facts::of(backend.device());
        let arch = *backend.device().arch();
        Ok((backend, facts, arch))
    };
    let is_usable = |backend: &LocalBackend| *backend.condition() == Condition::Sound;
    if answer_all(io::stdin().lock(), std::fs::File::from(output), open, is_usable)? {
        return Ok(());
    }
    // With a kernel that never ends, the driver's own tidying up would not end either.
    kill_process(getpid(), Signal::KILL).map_err(|error| Error::internal("ending the worker").with_source(error))
}

/// Answers requests; says whether the backend is still usable at the end.
pub(super) fn answer_all<S: Backend>(
    mut input: impl BufRead,
    mut output: impl Write,
    open: impl FnOnce(Setup) -> Result<(S, Facts, Arch)>,
    is_usable: impl Fn(&S) -> bool,
) -> Result<bool> {
    let Some(Request { number: to, what: first }) = protocol::hear(&mut input)? else { return Ok(true) };
    let opened = setup_in(first).and_then(|setup| {
        let problem = *setup.problem();
        open(setup).map(|(backend, device, arch)| (backend, device, arch, problem))
    });
    let (mut backend, device, arch, problem) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            protocol::say(&mut output, &Reply { to, answer: Answer::Failed(Failure::from(error)), last: true })?;
            return Ok(true);
        }
    };
    protocol::say(&mut output, &Reply { to, answer: Answer::ready(&device)?, last: false })?;
    while let Some(Request { number: to, what }) = protocol::hear(&mut input)? {
        let mut launching = || protocol::say(&mut output, &Reply { to, answer: Answer::Launching, last: false });
        let answer = answer(&mut backend, &problem, &arch, what, &mut input, &mut launching);
        let answer = answer.unwrap_or_else(|error| Answer::Failed(Failure::from(error)));
        let last = !is_usable(&backend);
        protocol::say(&mut output, &Reply { to, answer, last })?;
        if last {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What it is for, as the first request says.
fn setup_in(first: Asked) -> Result<Setup> {
    match first {
        Asked::Open { version: protocol::VERSION, setup } => protocol::part(setup),
        Asked::Open { version, .. } => {
            let (ours, remedy) = (protocol::VERSION, protocol::SAME_VERSION);
            Err(Error::unsupported(format!("protocol version {version}, this worker speaks {ours}; remedy: {remedy}")))
        }
        _ => Err(Error::internal("a worker was not told first what it is for")),
    }
}

fn answer(
    backend: &mut impl Backend,
    problem: &Problem,
    arch: &Arch,
    asked: Asked,
    input: &mut impl BufRead,
    launching: Notice<'_>,
) -> Result<Answer> {
    let spec = |variant| Spec::new(problem, &variant, arch);
    match asked {
        Asked::Open { .. } => Err(Error::internal("a worker was told twice what it is for")),
        Asked::Admit { variant, about, image_bytes } => {
            let cubin = Arc::new(internal::cubin(about, protocol::image(input, image_bytes)?)?);
            // SAFETY: whoever started this process and writes to its standard input has built it from this spec: a client
            // sends nothing else (client.rs).
            let built = unsafe { Built::unproven(spec(variant)?, cubin) };
            backend.admit(&built, launching).map(Answer::Admitted)
        }
        Asked::Screen { variant } => backend.screen(&spec(variant)?, launching).map(Answer::Screened),
        Asked::Duel { incumbent, challenger, pairs } => {
            backend.duel(&spec(incumbent)?, &spec(challenger)?, pairs, launching).map(Answer::Duelled)
        }
    }
}

/// Of a panic, the last words are why: a backtrace comes before, if one is asked for.
fn say_why_last() {
    let backtrace = Environment::of_process().asks_for_backtraces().then(panic::take_hook);
    panic::set_hook(Box::new(move |info| {
        if let Some(backtrace) = &backtrace {
            backtrace(info);
        }
        let _ = writeln!(io::stderr(), "warpsmith worker: {info}");
    }));
}

/// Ends this process when the one that started it has gone: what waits for the device would not hear of it.
fn end_with_parent() {
    const LOOK: Duration = Duration::from_secs(1);
    let parent = getppid();
    thread::spawn(move || {
        while getppid() == parent {
            thread::sleep(LOOK);
        }
        // Without tidying up, as below. There is nothing to do about an error.
        let _ = kill_process(getpid(), Signal::KILL);
    });
}
