//! The laboratory's side: asks, waits, and starts another worker when one is lost.

use std::sync::Arc;
use std::time::Duration;

use super::super::keeper::{Stand, Timed};
use super::super::laboratory::{Admission, Rejection};
use super::super::setup::Setup;
use super::command::WorkerCommand;
use super::process::{Process, Silence};
use super::protocol::{self, Answer, Request, WorkerDevice};
use crate::build::Cubin;
use crate::error::{Error, Result};
use crate::spec::Spec;

/// Opening a device, drawing operands and computing the reference take seconds; on few cores, a minute.
const OPENING: Duration = Duration::from_secs(180);
/// A worker finds out itself that a kernel hangs (see [`Setup::limit`]); this is for one that cannot tell any more.
const DEADLINE: Duration = Duration::from_secs(30);

/// A stand in a process of its own, which is started when it is first needed.
#[derive(Debug)]
pub(super) struct Client {
    command: WorkerCommand,
    setup: Setup,
    pub opening: Duration,
    pub deadline: Duration,
    process: Option<Process>,
    device: Option<WorkerDevice>,
    starts: u64,
}

/// What came of a request.
enum Reached {
    Answer(Answer),
    /// The kernel in question took the worker with it.
    Fell(Rejection),
}

impl Client {
    pub(super) fn new(command: WorkerCommand, setup: Setup) -> Self {
        Self { command, setup, opening: OPENING, deadline: DEADLINE, process: None, device: None, starts: 0 }
    }

    pub(super) fn starts(&self) -> u64 {
        self.starts
    }

    /// The device, which takes a worker to know.
    pub(super) fn device(&mut self) -> Result<&WorkerDevice> {
        if self.device.is_none() {
            self.running()?;
        }
        self.device.as_ref().ok_or_else(|| Error::internal("a worker without a device"))
    }

    /// A worker that is ready.
    fn running(&mut self) -> Result<&mut Process> {
        // One that died while nobody asked it anything is not the fault of the next kernel.
        if self.process.as_mut().is_none_or(|process| !process.is_alive()) {
            self.process = None;
            let mut process = Process::start(&self.command)?;
            self.starts += 1;
            let open = protocol::line(&Request::Open { version: protocol::VERSION, setup: self.setup.clone() })?;
            let reply = process.ask(open, self.opening).map_err(|silence| {
                Error::driver(format!("the worker did not get ready: {}", told(silence, self.opening)))
            })?;
            let device = match reply.answer {
                Answer::Ready { version: protocol::VERSION, device } => device.device()?,
                Answer::Failed(failure) => return Err(failure.into()),
                answer => return Err(Error::internal(format!("the worker speaks another protocol: {answer:?}"))),
            };
            tracing::info!(device = device.name(), starts = self.starts, "worker ready");
            self.device = Some(device);
            self.process = Some(process);
        }
        self.process.as_mut().ok_or_else(|| Error::internal("no worker"))
    }

    fn ask(&mut self, request: &Request, image: &[u8]) -> Result<Reached> {
        let mut bytes = protocol::line(request)?;
        bytes.extend_from_slice(image);
        let deadline = self.deadline;
        let reached = match self.running()?.ask(bytes, deadline) {
            Ok(reply) => {
                if reply.last {
                    self.process = None;
                }
                return match reply.answer {
                    Answer::Failed(failure) => Err(failure.into()),
                    answer => Ok(Reached::Answer(answer)),
                };
            }
            Err(Silence::Late) => Ok(Reached::Fell(Rejection::Hangs)),
            Err(Silence::Died(how)) => Ok(Reached::Fell(Rejection::Crashes(how))),
            Err(silence) => Err(Error::driver(format!("the worker is lost: {}", told(silence, deadline)))),
        };
        // What is left of it is killed.
        self.process = None;
        reached
    }

    fn check(&mut self, spec: &Spec) -> Result<()> {
        self.setup.check(spec)?;
        let device = self.device()?;
        if spec.arch() == device.arch() {
            return Ok(());
        }
        Err(Error::unsupported(format!("{spec} was given to a worker on {} ({})", device.name(), device.arch())))
    }
}

impl Stand for Client {
    fn admit(&mut self, spec: &Spec, cubin: &Arc<Cubin>) -> Result<Admission> {
        self.check(spec)?;
        let image = cubin.image();
        let (variant, about) = (*spec.variant(), cubin.about().clone());
        match self.ask(&Request::Admit { variant, about, image_bytes: image.len() as u64 }, image)? {
            Reached::Answer(Answer::Admitted(admission)) => Ok(admission),
            Reached::Answer(answer) => Err(unexpected(&answer)),
            Reached::Fell(rejection) => Ok(Admission::Refused(rejection)),
        }
    }

    fn screen(&mut self, spec: &Spec) -> Result<Timed<f64>> {
        match self.ask(&Request::Screen { variant: *spec.variant() }, &[])? {
            Reached::Answer(Answer::Screened(timed)) => Ok(timed),
            Reached::Answer(answer) => Err(unexpected(&answer)),
            Reached::Fell(rejection) => Ok(Timed::Failed(rejection)),
        }
    }

    fn duel(&mut self, incumbent: &Spec, challenger: &Spec, pairs: usize) -> Result<Timed<Vec<(f64, f64)>>> {
        let (incumbent, challenger) = (*incumbent.variant(), *challenger.variant());
        match self.ask(&Request::Duel { incumbent, challenger, pairs }, &[])? {
            Reached::Answer(Answer::Duelled(timed)) => Ok(timed),
            Reached::Answer(answer) => Err(unexpected(&answer)),
            Reached::Fell(rejection) => Ok(Timed::Failed(rejection)),
        }
    }
}

fn unexpected(answer: &Answer) -> Error {
    Error::internal(format!("the worker answered something else: {answer:?}"))
}

fn told(silence: Silence, deadline: Duration) -> String {
    match silence {
        Silence::Late => format!("no answer within {:.1} s", deadline.as_secs_f64()),
        Silence::Died(how) | Silence::Killed(how) | Silence::Garbled(how) => how,
    }
}
