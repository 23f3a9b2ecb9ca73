//! A pack that has changed is refused, or serves what was packed and names the rest; under digests that are right, it still
//! serves under each recipe what was made by it.

use rand::Rng;
use rand::rngs::SmallRng;
use serde_json::Value;
use warpsmith::build::Cubin;
use warpsmith::cache::{Pack, PackBuilder};
use warpsmith::internal::cache::Recipe;
use warpsmith::spec::Arch;
use warpsmith::{Error, Result};

use super::entries::assert_sound;
use warpsmith_testing::cubins::{cubin_of, pack_of, parts_of, render, repacked, sealed, spec, write};
use warpsmith_testing::fuzz::{run, within};
use warpsmith_testing::mutate::mutate;

/// What opening and reading a pack may take beyond some times the file's size: paths and errors.
const BESIDE: usize = 64 << 10;

/// Two kernels, packed.
struct Bench {
    cubins: Vec<Cubin>,
    builder: PackBuilder,
    temp: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let made = |n: u32| {
            let source = render(&spec(n, &Arch::H200)).unwrap();
            cubin_of(temp.path(), "13.0.88", &source, "sm_90a", &[n as u8; 50])
        };
        let (cubins, mut builder) = ([256, 512].map(made).to_vec(), PackBuilder::new());
        cubins.iter().for_each(|cubin| assert!(builder.add(cubin).unwrap()));
        Self { cubins, builder: builder.tuning("a table").manifest("a manifest"), temp }
    }

    /// Opens these bytes and reads all of it; what each recipe gives, unless it is refused.
    fn read(
        &self,
        bytes: &[u8],
        open: impl FnOnce(&std::path::Path) -> Result<Pack>,
    ) -> Option<Vec<Result<Option<Cubin>>>> {
        let path = self.temp.path().join("kernels.pack");
        write(&path, bytes);
        within(16 * bytes.len() + BESIDE, || {
            let pack = open(&path).map_err(|error| assert!(error.is_data() || error.is_untrusted(), "{error}")).ok()?;
            let got: Vec<_> = self.cubins.iter().map(|cubin| pack.get(&Recipe::of(cubin))).collect();
            let sections = [pack.tuning(), pack.manifest()];
            let errors = || got.iter().filter_map(|got| got.as_ref().err());
            assert!(errors().chain(sections.iter().filter_map(|got| got.as_ref().err())).all(Error::is_data));
            let damaged = pack.damaged();
            assert!(damaged.len() >= errors().count() + sections.iter().filter(|got| got.is_err()).count());
            assert!(!damaged.iter().any(|error| error.to_string().contains(char::is_control)), "{damaged:?}");
            Some(got)
        })
    }

    /// What was packed, or nothing.
    fn is_served_as_packed(&self, got: &[Result<Option<Cubin>>]) -> bool {
        got.iter().zip(&self.cubins).all(|(got, cubin)| match got {
            Ok(Some(got)) => got == cubin,
            Ok(None) | Err(_) => true,
        })
    }
}

#[test]
fn what_is_damaged_is_never_served() {
    let bench = Bench::new();
    let packed = bench.builder.to_bytes().unwrap();
    run("damaged packs", |rng| {
        let mut bytes = packed.clone();
        mutate(rng, &mut bytes);
        let Some(got) = bench.read(&bytes, |path| Pack::open(path)) else { return };
        // Its index is as it was, so it names each kernel.
        assert!(bench.is_served_as_packed(&got) && got.iter().all(|got| !matches!(got, Ok(None))), "{got:?}");
    });
}

/// An index that says what it likes of entries that are whole: under each recipe is the kernel that was made by it.
#[test]
fn what_is_indexed_wrongly_is_never_served() {
    let bench = Bench::new();
    let packed = bench.builder.to_bytes().unwrap();
    let (body, index) = parts_of(&packed);
    let (mut opened, mut served) = (0, 0);
    run("forged indexes", |rng| {
        let bytes = if rng.random() {
            let mut index = index.to_vec();
            mutate(rng, &mut index);
            pack_of(body, &index)
        } else {
            repacked(&packed, |_, index| exchange(rng, index))
        };
        let Some(got) = bench.read(&bytes, |path| Pack::open(path)) else { return };
        opened += 1;
        served += got.iter().filter(|got| matches!(got, Ok(Some(_)))).count();
        assert!(bench.is_served_as_packed(&got), "{got:?}");
    });
    assert!(opened > 0 && served > 0, "not one index that can be read");
}

/// Entries that say what they like, under digests that are right.
#[test]
fn what_is_forged_is_machine_code_of_its_recipe_or_refused() {
    let bench = Bench::new();
    let packed = bench.builder.to_bytes().unwrap();
    let mut served = 0;
    run("forged packs", |rng| {
        let bytes = repacked(&packed, |body, index| {
            let kernel = &index["kernels"][rng.random_range(0..2)];
            let (at, bytes) = (kernel["at"].as_u64().unwrap() as usize, kernel["bytes"].as_u64().unwrap() as usize);
            let mut inside = body[at..at + bytes - 32].to_vec();
            mutate(rng, &mut inside);
            // As long as it was: what is too short is filled with zeros.
            inside.resize(bytes - 32, 0);
            body[at..at + bytes].copy_from_slice(&sealed(&inside));
        });
        let Some(got) = bench.read(&bytes, |path| Pack::open(path)) else { panic!("the index is as it was") };
        for (got, cubin) in got.iter().zip(&bench.cubins) {
            let Ok(got) = got else { continue };
            let got = got.as_ref().expect("the index names it");
            served += 1;
            assert_sound(got);
            assert_eq!(Recipe::of(got), Recipe::of(cubin));
        }
    });
    assert!(served > 0);
}

/// Whoever has not the key can only break what is signed.
#[cfg(feature = "signed-packs")]
#[test]
fn what_is_signed_is_served_as_signed() {
    let bench = Bench::new();
    let signed = Bench::new().builder.sign([7; 32]);
    let (packed, signer) = (signed.to_bytes().unwrap(), signed.signer().unwrap());
    let (body, index) = parts_of(&packed);
    run("signed packs", |rng| {
        let mut bytes = packed.clone();
        if rng.random() {
            mutate(rng, &mut bytes);
        } else {
            // Another index with a right digest, and the signature of the one before.
            let mut other = index.to_vec();
            mutate(rng, &mut other);
            bytes = pack_of(body, &other);
            let (new, old) = (bytes.len() - 80, packed.len() - 80);
            bytes[new..new + 72].copy_from_slice(&packed[old..old + 72]);
        }
        let same_index = bytes.len() >= 128 && bytes.ends_with(&packed[packed.len() - 128..]);
        let Some(got) = bench.read(&bytes, |path| Pack::open_signed(path, &signer)) else { return };
        assert!(same_index && bench.is_served_as_packed(&got), "{got:?}");
    });
}

/// Gives a part of one kernel to the other, or a number that matters to one.
fn exchange(rng: &mut SmallRng, index: &mut Value) {
    for _ in 0..rng.random_range(1..4) {
        let fields = ["at", "bytes", "name", "problem", "variant", "target", "toolchain", "recipe"];
        let field = fields[rng.random_range(0..fields.len())];
        let (from, to) = (rng.random_range(0..2), rng.random_range(0..2));
        index["kernels"][to][field] = match rng.random_range(0..4) {
            0 => rng.random_range(0..4000_u64).into(),
            1 => (u64::MAX - rng.random_range(0..4000)).into(),
            _ => index["kernels"][from][field].clone(),
        };
    }
}
