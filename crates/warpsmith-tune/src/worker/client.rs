//! The measurer's side: asks, waits, and starts another worker when one is lost.

use std::time::{Duration, Instant};

use super::super::measure::{Admission, Rejection};
use super::super::measurer::{Backend, Notice, Timed};
use super::super::quarantine::Platform;
use super::super::setup::Setup;
use super::command::WorkerCommand;
use super::process::{NoReply, Process, Why};
use super::protocol::{self, Answer, Asked, Facts, Request, WorkerDevice};
use warpsmith::build::Built;
use warpsmith::internal::{self, Raise};
use warpsmith::spec::Spec;
use warpsmith::{Error, Result};

/// Opening a device, drawing operands and computing the reference take seconds; on few cores, a minute.
const OPENING: Duration = Duration::from_secs(180);
/// A worker finds out itself that a kernel hangs (see [`Setup::limit`]); this is for one that cannot tell any more.
const DEADLINE: Duration = Duration::from_secs(30);

/// A backend in a process of its own, which is started when it is first needed.
#[derive(Debug)]
pub(super) struct Client {
    command: WorkerCommand,
    setup: Setup,
    pub opening: Duration,
    pub deadline: Duration,
    process: Option<Process>,
    /// Whether the process knows of the setup.
    is_told: bool,
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
        Self {
            command,
            setup,
            opening: OPENING,
            deadline: DEADLINE,
            process: None,
            is_told: false,
            device: None,
            starts: 0,
        }
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

    /// For another setup from now on; a worker that runs stays, if it is one for the same device.
    pub(super) fn turn_to(&mut self, setup: Setup) {
        if setup.ordinal() != self.setup.ordinal() {
            (self.process, self.device) = (None, None);
        }
        (self.setup, self.is_told) = (setup, false);
    }

    /// A worker that is ready.
    fn running(&mut self) -> Result<&mut Process> {
        // One that died while nobody asked it anything is not the fault of the next kernel.
        let alive = self.process.take().and_then(|mut process| process.is_alive().then_some(process));
        let mut process = match alive {
            Some(process) if self.is_told => return Ok(self.process.insert(process)),
            Some(process) => process,
            None => {
                let process = Process::start(&self.command)?;
                self.starts += 1;
                process
            }
        };
        let (number, begun) = (process.next_number(), Instant::now());
        let open = protocol::line(&Request { number, what: Asked::open(&self.setup)? })?;
        let reply = process.ask(open, number, self.opening).map_err(|silence| {
            Error::driver(format!("the worker did not get ready: {}", told(silence.why, self.opening)))
        })?;
        let device = match reply.answer {
            Answer::Ready { version: protocol::VERSION, device } => protocol::part::<Facts>(device)?.device()?,
            Answer::Ready { version, .. } => {
                let (ours, remedy) = (protocol::VERSION, protocol::SAME_VERSION);
                return Err(Error::unsupported(format!(
                    "the worker speaks version {version} of the protocol, this program version {ours}; remedy: {remedy}"
                )));
            }
            Answer::Failed(failure) => return Err(failure.into()),
            answer => return Err(unexpected(&answer)),
        };
        tracing::info!(device = device.name(), starts = self.starts, took = ?begun.elapsed(), "worker ready");
        (self.is_told, self.device) = (true, Some(device));
        Ok(self.process.insert(process))
    }

    fn ask(&mut self, what: Asked, image: &[u8]) -> Result<Reached> {
        let deadline = self.deadline;
        let process = self.running()?;
        let (asked, begun) = (what.word(), Instant::now());
        let number = process.next_number();
        let mut bytes = protocol::line(&Request { number, what })?;
        bytes.extend_from_slice(image);
        let reached = match process.ask(bytes, number, deadline) {
            Ok(reply) => {
                tracing::debug!(asked, took = ?begun.elapsed(), "worker answered");
                if reply.last {
                    self.process = None;
                }
                return match reply.answer {
                    Answer::Failed(failure) => Err(failure.into()),
                    answer => Ok(Reached::Answer(answer)),
                };
            }
            // Only a kernel that was launched can be to blame, for what kernels do.
            Err(NoReply { why: Why::Late, launched: true }) => Ok(Reached::Fell(Rejection::Hangs)),
            Err(NoReply { why: Why::Faulted(how), launched: true }) => Ok(Reached::Fell(Rejection::Crashes(how))),
            Err(NoReply { why, .. }) => Err(Error::driver(format!(
                "the worker is lost, which says nothing of the kernel: {}",
                told(why, deadline)
            ))),
        };
        // What is left of it is killed.
        self.process = None;
        reached
    }

    /// An answer to something else: whoever gives it is not to be asked again.
    fn out_of_turn(&mut self, answer: &Answer) -> Error {
        self.process = None;
        unexpected(answer)
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

impl Backend for Client {
    fn platform(&mut self) -> Result<Platform> {
        self.device().map(|device| Platform::new(device.name(), device.driver_version()))
    }

    fn admit(&mut self, built: &Built, _: Notice<'_>) -> Result<Admission> {
        let (spec, cubin) = (built.of(), built.cubin());
        self.check(spec)?;
        let image = cubin.image();
        let (variant, about) = (*spec.variant(), internal::about(cubin).clone());
        match self.ask(Asked::Admit { variant, about, image_bytes: image.len() as u64 }, image)? {
            Reached::Answer(Answer::Admitted(admission)) => Ok(admission),
            Reached::Answer(answer) => Err(self.out_of_turn(&answer)),
            Reached::Fell(rejection) => Ok(Admission::Refused(rejection)),
        }
    }

    fn screen(&mut self, spec: &Spec, _: Notice<'_>) -> Result<Timed<f64>> {
        match self.ask(Asked::Screen { variant: *spec.variant() }, &[])? {
            Reached::Answer(Answer::Screened(timed)) => Ok(timed),
            Reached::Answer(answer) => Err(self.out_of_turn(&answer)),
            Reached::Fell(rejection) => Ok(Timed::Failed(rejection)),
        }
    }

    fn duel(
        &mut self,
        incumbent: &Spec,
        challenger: &Spec,
        pairs: usize,
        _: Notice<'_>,
    ) -> Result<Timed<Vec<(f64, f64)>>> {
        let (incumbent, challenger) = (*incumbent.variant(), *challenger.variant());
        match self.ask(Asked::Duel { incumbent, challenger, pairs }, &[])? {
            Reached::Answer(Answer::Duelled(timed)) => Ok(timed),
            Reached::Answer(answer) => Err(self.out_of_turn(&answer)),
            Reached::Fell(rejection) => Ok(Timed::Failed(rejection)),
        }
    }
}

fn unexpected(answer: &Answer) -> Error {
    Error::internal(format!("the worker answered something else: {answer:?}"))
}

fn told(why: Why, deadline: Duration) -> String {
    match why {
        Why::Late => format!("no answer within {:.1} s", deadline.as_secs_f64()),
        Why::Faulted(how) | Why::Ended(how) | Why::Killed(how) | Why::Garbled(how) => how,
    }
}
