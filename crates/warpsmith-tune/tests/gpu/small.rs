//! Mutants of kernels without matrix instructions: routers, combiners, quantisers.

use std::sync::Arc;

use warpsmith::build::Built;
use warpsmith::format::Format;
use warpsmith::internal::build::{Simt, Source, compile};

use crate::bench::{Bench, changed, text};

/// One thing wrong. None can hang, and none reads or writes where nothing of its own is.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// What is changed.
    of: Simt,
    what: &'static str,
    /// In every header or the entry file where it stands, this text …
    from: &'static str,
    /// … becomes this.
    to: &'static str,
    /// Texts that are changed as well.
    also: &'static [(&'static str, &'static str)],
}

impl Mutant {
    /// Makes mutants of a kernel: what is wrong, and which text becomes which.
    pub fn of(of: impl Into<Simt>) -> impl Fn(&'static str, &'static str, &'static str) -> Self {
        let of = of.into();
        move |what, from, to| Self { of, what, from, to, also: &[] }
    }

    /// With texts that are changed as well.
    pub fn with(self, also: &'static [(&'static str, &'static str)]) -> Self {
        Self { also, ..self }
    }

    pub fn name(&self) -> String {
        let kind = match self.of {
            Simt::Route(_) => "experts: mutant of route",
            Simt::Combine(_) => "experts: mutant of combine",
            Simt::Experts(_) => "experts: mutant of few tokens",
            Simt::Quantise(quantise) if quantise.to_format() == Format::E4m3 => "quantise: mutant to e4m3",
            Simt::QuantiseWeights(_) => "quantise: mutant of weights",
            _ => "quantise: mutant",
        };
        format!("{kind}: {}", self.what)
    }

    /// The text that is changed.
    pub fn from(&self) -> &'static str {
        self.from
    }

    /// What is changed.
    pub fn kernel(&self) -> Simt {
        self.of
    }

    fn source(&self) -> Result<Source, String> {
        let changes = [&[(self.from, self.to)], self.also].concat();
        let source = changed(&self.of.render().map_err(text)?, &changes);
        source.map_err(|from| format!("{}: `{from}` stands nowhere", self.name()))
    }

    /// Its machine code.
    pub fn built(&self, bench: &Bench) -> Result<Built<Simt>, String> {
        let compiled = compile(bench.toolchain(), &self.source()?, bench.arch().target());
        let cubin = compiled.map_err(|error| format!("{error:?}"))?;
        // SAFETY: what mutants change is what they compute, in memory with margins around it.
        Ok(unsafe { Built::unproven(self.of, Arc::new(cubin)) })
    }
}

/// Every mutant finds its place in today's text. Needs no GPU.
pub fn are_up_to_date(mutants: &[Mutant]) -> Result<(), String> {
    mutants.iter().try_for_each(|mutant| mutant.source().map(drop))
}
