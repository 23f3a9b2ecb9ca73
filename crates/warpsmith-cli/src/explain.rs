//! Why a kernel is chosen.

use std::path::PathBuf;

use warpsmith::pick::{Explanation, Picker, Table};
use warpsmith::spec::{Arch, Problem};

use crate::shared::place::Place;
use crate::shared::{Result, document, say};

/// Says which kernel is chosen for a problem and M, and why: what was considered, what was refused by which limit, what
/// was measured or predicted. Needs no GPU.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The problem, such as dual_gemm.silu:f16*nvfp4>f16:n4096:k7168:prepared.
    #[arg(value_name = "PROBLEM")]
    pub problem: Problem,

    /// Rows of A, of all groups together; several one after the other.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256")]
    pub m: Vec<u32>,

    /// Chooses from this tuning table first.
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,

    /// On this architecture (a name that is none lists them); without it, on the GPU, or on an H200 where there is none.
    #[arg(long, value_name = "NAME")]
    pub arch: Option<Arch>,

    /// Which GPU.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: usize,
}

pub fn run(args: &Args) -> Result<bool> {
    let place = Place::find(args.arch, args.device)?;
    let picker = match &args.table {
        None => place.picker(),
        Some(path) => Picker::builder(&place.name(), &place.arch()).table(&Table::load(path)?.0).build()?,
    };
    let explain = |m: &u32| Ok(picker.explain(&args.problem, *m)?);
    let told: Vec<Explanation> = args.m.iter().map(explain).collect::<Result<_>>()?;
    told.iter().try_for_each(|told| say!("{told}\n"))?;
    document(&told)?;
    Ok(true)
}
