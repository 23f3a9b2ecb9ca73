//! A pack that accidents have changed is refused, or serves what was packed and names the rest.

use warpsmith::build::Cubin;
use warpsmith::cache::{Pack, PackBuilder, Recipe};
use warpsmith::spec::Arch;

use super::driver::{run, within};
use super::mutate::mutate;
use crate::cache_shared::{cubin_of, render, spec, write};

/// What opening and reading a pack may take beyond the file's size: paths and errors.
const BESIDE: usize = 64 << 10;

#[test]
fn what_is_damaged_is_never_served() {
    let temp = tempfile::tempdir().unwrap();
    let cubins: Vec<Cubin> = [256, 512]
        .iter()
        .map(|n| cubin_of(temp.path(), "13.0.88", &render(&spec(*n, &Arch::H200)).unwrap(), "sm_90a", &[*n as u8; 150]))
        .collect();
    let mut builder = PackBuilder::new().tuning("a table").manifest("a manifest");
    cubins.iter().for_each(|cubin| assert!(builder.add(cubin).unwrap()));
    let (packed, path) = (builder.to_bytes().unwrap(), temp.path().join("kernels.pack"));
    let recipes: Vec<_> = cubins.iter().map(Recipe::of).collect();
    run("packs", |rng| {
        let mut bytes = packed.clone();
        mutate(rng, &mut bytes);
        write(&path, &bytes);
        within(16 * bytes.len() + BESIDE, || {
            let pack = match Pack::open(&path) {
                Ok(pack) => pack,
                Err(error) => return assert!(error.is_data(), "{error}"),
            };
            let got: Vec<_> = recipes.iter().map(|recipe| pack.get(recipe)).collect();
            for (got, cubin) in got.iter().zip(&cubins) {
                assert!(
                    got.as_ref().map_or_else(|error| error.is_data(), |got| got.as_ref() == Some(cubin)),
                    "{got:?}"
                );
            }
            assert!(pack.tuning().map_or(true, |text| text.as_deref() == Some("a table")));
            assert!(pack.manifest().map_or(true, |text| text.as_deref() == Some("a manifest")));
            let wrong = got.iter().filter(|got| got.is_err()).count()
                + usize::from(pack.tuning().is_err())
                + usize::from(pack.manifest().is_err());
            assert_eq!(pack.damaged().len(), wrong);
        });
    });
}
