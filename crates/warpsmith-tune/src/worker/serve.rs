//! The worker's side: opens the device, answers one request after the other, and ends when it is told nothing more.

use std::io::{self, BufRead, IsTerminal, Write};
use std::os::fd::AsFd;
use std::panic;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, getpid, getppid, kill_process};
use serde_json::Value;

use super::super::local_backend::{Condition, LocalBackend};
use super::super::measurer::{Backend, Notice};
use super::super::setup::Setup;
use super::command::is_asked;
use super::protocol::{self, Answer, Asked, Facts, Failure, Reply, Request};
use warpsmith::build::Built;
use warpsmith::internal::environment::Environment;
use warpsmith::internal::{self, Raise};
use warpsmith::spec::{Arch, Problem, Spec, Variant};
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
    let open = |setup, before: Option<LocalBackend>| {
        let backend = match before {
            Some(before) => before.turn_to(setup)?,
            None => LocalBackend::open(setup)?,
        };
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

/// What requests are put to.
struct Opened<S> {
    backend: S,
    device: Facts,
    arch: Arch,
    problem: Problem,
}

impl<S> Opened<S> {
    fn spec(&self, variant: Variant) -> Result<Spec> {
        Spec::new(&self.problem, &variant, &self.arch)
    }
}

/// Answers requests; says whether the backend is still usable at the end. `open` is given what it has opened before.
pub(super) fn answer_all<S: Backend>(
    mut input: impl BufRead,
    mut output: impl Write,
    open: impl Fn(Setup, Option<S>) -> Result<(S, Facts, Arch)>,
    is_usable: impl Fn(&S) -> bool,
) -> Result<bool> {
    let mut opened = None;
    while let Some(Request { number: to, what }) = protocol::hear(&mut input)? {
        let mut launching = || protocol::say(&mut output, &Reply { to, answer: Answer::Launching, last: false });
        let answer = answer(&mut opened, &open, what, &mut input, &mut launching);
        let answer = answer.unwrap_or_else(|error| Answer::Failed(Failure::from(error)));
        let last = opened.as_ref().is_none_or(|opened| !is_usable(&opened.backend));
        protocol::say(&mut output, &Reply { to, answer, last })?;
        if last {
            return Ok(opened.is_none());
        }
    }
    Ok(true)
}

fn answer<S: Backend>(
    opened: &mut Option<Opened<S>>,
    open: impl Fn(Setup, Option<S>) -> Result<(S, Facts, Arch)>,
    asked: Asked,
    input: &mut impl BufRead,
    launching: Notice<'_>,
) -> Result<Answer> {
    match asked {
        Asked::Open { version, setup } => {
            let setup = setup_in(version, setup)?;
            let problem = *setup.problem();
            // Where this fails there is nothing left to ask.
            let (backend, device, arch) = open(setup, opened.take().map(|before| before.backend))?;
            Answer::ready(&opened.insert(Opened { backend, device, arch, problem }).device)
        }
        Asked::Admit { variant, about, image_bytes } => {
            let opened = told(opened)?;
            let cubin = Arc::new(internal::cubin(about, protocol::image(input, image_bytes)?)?);
            // SAFETY: whoever started this process and writes to its standard input has built it from this spec: a client
            // sends nothing else (client.rs).
            let built = unsafe { Built::unproven(opened.spec(variant)?, cubin) };
            opened.backend.admit(&built, launching).map(Answer::Admitted)
        }
        Asked::Screen { variant } => {
            let opened = told(opened)?;
            let spec = opened.spec(variant)?;
            opened.backend.screen(&spec, launching).map(Answer::Screened)
        }
        Asked::Duel { incumbent, challenger, pairs } => {
            let opened = told(opened)?;
            let (incumbent, challenger) = (opened.spec(incumbent)?, opened.spec(challenger)?);
            opened.backend.duel(&incumbent, &challenger, pairs, launching).map(Answer::Duelled)
        }
    }
}

fn told<S>(opened: &mut Option<Opened<S>>) -> Result<&mut Opened<S>> {
    opened.as_mut().ok_or_else(|| Error::internal("a worker was not told first what it is for"))
}

/// What it is for, as it is told.
fn setup_in(version: u32, setup: Value) -> Result<Setup> {
    if version == protocol::VERSION {
        return protocol::part(setup);
    }
    let (ours, remedy) = (protocol::VERSION, protocol::SAME_VERSION);
    Err(Error::unsupported(format!("protocol version {version}, this worker speaks {ours}; remedy: {remedy}")))
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
