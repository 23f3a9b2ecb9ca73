//! Makes a pack: one file with the kernels of many problems, for many architectures, from which a machine without
//! NVRTC is served.

mod args;

use std::collections::BTreeSet;
use std::fs;

use serde_json::json;
use warpsmith::cache::{KernelCache, Pack, PackBuilder};
use warpsmith::engine::Manifest;
use warpsmith::internal::build::{Preparation, Simt};
use warpsmith::internal::engine::KernelSet;
use warpsmith::pick::{self, Picker, Table};
use warpsmith::spec::{Arch, Problem, Spec};

use crate::shared::{Result, bar, compile, complain, document, say};
pub use args::Args;

/// Whether the pack is whole.
pub fn run(args: &Args) -> Result<bool> {
    if args.show { show(args) } else { make(args).map(|()| true) }
}

/// Packs all kernels, or none if one could not be made.
fn make(args: &Args) -> Result<()> {
    let read = [
        ("--problems", args.problems.as_deref()),
        ("--tuning", args.tuning.as_deref()),
        ("--manifest", args.manifest.as_deref()),
        ("--sign", args.sign.as_deref()),
    ];
    crate::shared::files::apart(&read, &[("the pack", Some(&args.file))])?;
    let problems = problems(args)?;
    let cache = KernelCache::builder().install_if_missing().build();
    let (mut specs, mut simts) = (specs(args, &problems)?, preparations(args, &problems)?);
    if let Some(path) = &args.manifest {
        let manifest = Manifest::load(path)?;
        for arch in &args.arch {
            of_manifest(args, &manifest, arch, &mut specs, &mut simts)?;
        }
    }
    let mut pack = collect(&cache, &specs, &simts)?;
    if let Some(path) = &args.tuning {
        pack = pack.tuning(fs::read_to_string(path)?);
    }
    if let Some(path) = &args.manifest {
        pack = pack.manifest(fs::read_to_string(path)?);
    }
    if let Some(path) = &args.sign {
        pack = sign(pack, &fs::read(path)?)?;
    }
    pack.write(&args.file)?;
    let stats = cache.stats();
    let pack = Pack::open(&args.file)?;
    say!("{pack}")?;
    say!("{} compiled in {:.1} s, {} from the cache", stats.compiles, stats.compile_ms / 1e3, stats.disk_hits)?;
    document(&told(args, &pack)?)
}

/// A pack to be written, with all of these kernels.
pub fn collect(cache: &KernelCache, specs: &[Spec], simts: &[(Simt, Arch)]) -> Result<PackBuilder> {
    let progress = bar(specs.len(), "kernels");
    let made = compile::all(cache, specs, &progress);
    progress.finish_and_clear();

    let (mut pack, mut failed) = (PackBuilder::new(), 0);
    for (spec, made) in specs.iter().zip(made) {
        match made {
            Ok(fetched) => drop(pack.add(fetched.cubin())?),
            Err(error) => {
                complain!("error: {spec}: {error}");
                failed += 1;
            }
        }
    }
    for (simt, arch) in simts {
        pack.add(cache.simt_cubin(*simt, arch)?.cubin())?;
    }
    if failed > 0 {
        return Err(format!("{failed} of {} kernels could not be made; no pack is written", specs.len()).into());
    }
    Ok(pack)
}

#[cfg(feature = "signed-packs")]
fn sign(pack: PackBuilder, secret: &[u8]) -> Result<PackBuilder> {
    let secret = secret.try_into().map_err(|_| format!("--sign: the key has {} bytes, not 32", secret.len()))?;
    let pack = pack.sign(secret);
    let signer: String = pack.signer().iter().flatten().map(|byte| format!("{byte:02x}")).collect();
    say!("signed; to be opened with the public key {signer}")?;
    Ok(pack)
}

#[cfg(not(feature = "signed-packs"))]
fn sign(_: PackBuilder, _: &[u8]) -> Result<PackBuilder> {
    Err("--sign: built without the feature signed-packs".into())
}

/// Whether everything in the pack is whole.
fn show(args: &Args) -> Result<bool> {
    let pack = match &args.signer {
        None => Pack::open(&args.file)?,
        Some(signer) => open_signed(args, signer)?,
    };
    say!("{pack}")?;
    pack.kernels().iter().try_for_each(|kernel| say!("{kernel}"))?;
    for (what, section) in [("tuning table", pack.tuning()?), ("manifest", pack.manifest()?)] {
        say!("{what}: {}", section.map_or_else(|| "none".to_owned(), |text| format!("{} B", text.len())))?;
    }
    let damaged = pack.damaged();
    damaged.iter().for_each(|error| complain!("error: {error}"));
    document(&told(args, &pack)?)?;
    Ok(damaged.is_empty())
}

/// What is in a pack, for machines.
fn told(args: &Args, pack: &Pack) -> Result<serde_json::Value> {
    Ok(json!({
        "file": args.file,
        "kernels": pack.kernels(),
        "tuning": pack.tuning()?,
        "manifest": pack.manifest()?,
        "damaged": pack.damaged().iter().map(ToString::to_string).collect::<Vec<_>>(),
    }))
}

#[cfg(feature = "signed-packs")]
fn open_signed(args: &Args, signer: &str) -> Result<Pack> {
    let byte = |at: usize| signer.get(2 * at..2 * at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    let bytes: Option<Vec<u8>> = (signer.len() == 64).then(|| (0..32).map(byte).collect()).flatten();
    let key: [u8; 32] = bytes.and_then(|bytes| bytes.try_into().ok()).ok_or("--signer: 64 hexadecimal digits")?;
    Ok(Pack::open_signed(&args.file, &key)?)
}

#[cfg(not(feature = "signed-packs"))]
fn open_signed(_: &Args, _: &str) -> Result<Pack> {
    Err("--signer: built without the feature signed-packs".into())
}

fn problems(args: &Args) -> Result<Vec<Problem>> {
    let mut problems = args.problem.clone();
    if let Some(path) = &args.problems {
        let text = fs::read_to_string(path)?;
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        for line in lines.filter(|line| !line.is_empty()) {
            problems.push(line.parse().map_err(|error| format!("{}: {error}", path.display()))?);
        }
    }
    Ok(problems)
}

/// What each problem needs on each architecture, each kernel once.
fn specs(args: &Args, problems: &[Problem]) -> Result<Vec<Spec>> {
    let mut specs = Vec::new();
    for (problem, arch) in each(problems, &args.arch) {
        for variant in &args.variant {
            specs.push(Spec::new(problem, variant, arch)?);
        }
        let picked = args.m.iter().filter(|_| args.variant.is_empty());
        for m in picked.filter(|m| problem.m_limit().is_none_or(|limit| **m <= limit)) {
            specs.push(*pick::choose(problem, *m, arch)?.spec());
        }
    }
    let mut seen = BTreeSet::new();
    specs.retain(|spec| seen.insert((spec.name(), spec.arch().target())));
    Ok(specs)
}

/// Adds what a manifest needs on an architecture, by the tuning table if there is one.
fn of_manifest(
    args: &Args,
    manifest: &Manifest,
    arch: &Arch,
    specs: &mut Vec<Spec>,
    simts: &mut Vec<(Simt, Arch)>,
) -> Result<()> {
    let table = args.tuning.as_ref().map_or(Ok(Table::new()), |path| Table::load(path).map(|(table, _)| table))?;
    let set = KernelSet::new(&Picker::builder(&arch.to_string(), arch).table(&table).build()?, manifest);
    if let Some((problem, why)) = set.refused().first() {
        return Err(format!("{problem}: {why}").into());
    }
    for spec in set.specs() {
        if !specs.iter().any(|known| (known.name(), known.arch().target()) == (spec.name(), arch.target())) {
            specs.push(*spec);
        }
    }
    simts.extend(set.simts().map(|simt| (simt, *arch)));
    Ok(())
}

/// The kernels that prepare the weights of those problems that take them prepared.
fn preparations(args: &Args, problems: &[Problem]) -> Result<Vec<(Simt, Arch)>> {
    let prepared = each(problems, &args.arch).filter(|(problem, _)| problem.is_prepared());
    prepared
        .map(|(problem, arch)| {
            Ok((Preparation::new(&problem.prepared_layout()?, problem.scale_layout()).into(), *arch))
        })
        .collect()
}

fn each<'a>(problems: &'a [Problem], archs: &'a [Arch]) -> impl Iterator<Item = (&'a Problem, &'a Arch)> {
    problems.iter().flat_map(move |problem| archs.iter().map(move |arch| (problem, arch)))
}
