//! Files of tensors, written by a thread of their own: what is made next does not wait for them.

use std::borrow::Cow;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, ScopedJoinHandle};

use warpsmith::internal::Raise;
use warpsmith::{Error, Result};

use super::file::Tensors;
use super::layout::Shape;
use super::plan::Planned;
use super::report::QuantisedWeight;
use super::state::State;

/// Tensors that wait to be written at most: two weights.
const WAITING: usize = 6;

/// What a file gets, in this order.
pub(super) enum Step<'a> {
    Begin(&'a Planned<'a>, Vec<Shape>),
    Tensor(String, Cow<'a, [u8]>),
    End(Vec<QuantisedWeight>),
}

/// Who writes.
pub(super) struct Writer<'s, 'a> {
    steps: SyncSender<Step<'a>>,
    thread: ScopedJoinHandle<'s, Result<()>>,
}

impl<'s, 'a: 's> Writer<'s, 'a> {
    /// Into a folder, whose state knows what is whole.
    pub(super) fn new<'e>(scope: &'s thread::Scope<'s, 'e>, to: &'a Path, state: &'s mut State) -> Self {
        let (steps, all) = sync_channel(WAITING);
        Self { steps, thread: scope.spawn(move || write(to, state, &all)) }
    }

    /// Whether it can still be done: if not, [`Writer::end`] has the reason.
    pub(super) fn put(&self, step: Step<'a>) -> bool {
        self.steps.send(step).is_ok()
    }

    /// When all is written.
    pub(super) fn end(self) -> Result<()> {
        drop(self.steps);
        self.thread.join().unwrap_or_else(|_| Err(Error::internal("the thread that writes files panicked")))
    }
}

fn write(to: &Path, state: &mut State, steps: &Receiver<Step<'_>>) -> Result<()> {
    let lost = || Error::internal("a tensor of no file");
    let mut begun = None;
    for step in steps {
        match step {
            Step::Begin(file, shapes) => begun = Some((file, Tensors::new(to, &file.name, &file.notes, &shapes)?)),
            Step::Tensor(name, bytes) => begun.as_mut().ok_or_else(lost)?.1.put(&name, &bytes)?,
            Step::End(weights) => {
                let (file, tensors) = begun.take().ok_or_else(lost)?;
                state.add(&file.name, &tensors.finish()?, &weights)?;
            }
        }
    }
    Ok(())
}
