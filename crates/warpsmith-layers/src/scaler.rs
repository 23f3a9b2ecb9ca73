//! Factors of weights times that of NVFP4 tokens, which only the device knows.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use warpsmith::engine::Engine;
use warpsmith::internal::Raise;
use warpsmith::run::{Alpha, CombineOperands, Combiner, LaunchStream, MatrixMut, Memory, MemoryMut, Shared};
use warpsmith::spec::{Combine, Problem};
use warpsmith::{Error, Result};

use crate::config::scaler;
use crate::operands::not_in_parts;

/// A row of all factors of a problem's weights, which a combiner multiplies by that of the tokens.
#[derive(Debug)]
pub(crate) struct Scaler {
    combiner: Combiner,
    /// Those of the first product, one a group, then those of the second; zeros behind.
    factors: Shared<f32>,
    groups: usize,
}

impl Scaler {
    /// Of these factors, those of B, or of B1 and B2; none, where the problem's tokens have no factor of their own.
    ///
    /// # Errors
    /// Those of [`Engine::combine`]; operand, if there are not as many factors as groups; driver, if the device has no room.
    pub(crate) fn new<'a>(
        engine: &Engine,
        stream: &Arc<CudaStream>,
        problem: &Problem,
        alphas: impl Iterator<Item = Alpha<'a>>,
    ) -> Result<Option<Self>> {
        let Some(combine) = scaler(problem) else { return Ok(None) };
        let groups = problem.groups().unwrap_or(1) as usize;
        let mut factors = stream.alloc_zeros::<f32>(combine.hidden_size() as usize)?;
        for (nth, alpha) in alphas.enumerate() {
            let mut part = MemoryMut::from(factors.slice_mut(nth * groups..(nth + 1) * groups));
            match alpha {
                Alpha::Device(values) if values.elements() as usize == groups => values.copy_to(stream, &mut part)?,
                Alpha::Value(value) => {
                    let values = stream.clone_htod(&vec![value; groups])?;
                    Memory::from(&values).copy_to(stream, &mut part)?;
                }
                Alpha::Device(values) => {
                    let given = values.elements();
                    return Err(Error::operand(format!("weights have {given} factors: {groups} are needed")));
                }
                _ => return Err(Error::operand("factors of weights are in a form of their own")),
            }
        }
        let factors = Shared::written_in(stream, factors)?;
        Ok(Some(Self { combiner: engine.combine(&combine)?, factors, groups }))
    }

    fn combine(&self) -> &Combine {
        self.combiner.combine()
    }

    /// Bytes of all products.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.combine().hidden_size()) * size_of::<f32>() as u64
    }

    /// Puts the launch into the stream, behind that which finds the tokens' factor.
    pub(crate) fn launch(
        &self,
        stream: &impl LaunchStream,
        factor: Memory<'_, f32>,
        into: &mut MemoryMut<'_, u8>,
    ) -> Result<()> {
        let out = MatrixMut::F32(into.numbers_mut().ok_or_else(not_in_parts)?);
        self.combiner.launch_dependent(stream, CombineOperands::new(1, &self.factors, out).weights(factor))
    }

    /// What it has made of a product's factors.
    pub(crate) fn made<'a>(&self, nth: usize, of: &'a MemoryMut<'_, u8>) -> Result<Alpha<'a>> {
        let all = of.as_numbers::<f32>().ok_or_else(not_in_parts)?;
        let part = all.part(nth * self.groups..(nth + 1) * self.groups).ok_or_else(not_in_parts)?;
        Ok(Alpha::Device(part))
    }
}
