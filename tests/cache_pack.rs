//! A pack serves where there is nothing else, and whatever is wrong with one is found before a kernel of it is used.
//!
//! No NVRTC is needed: cubins are made up, byte by byte.

// Helpers of tests may do what tests may.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

use warpsmith_testing as common;
use warpsmith_testing::cubins as cache_shared;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use warpsmith::Error;
use warpsmith::build::{Cubin, Toolchain};
use warpsmith::cache::{Disk, KernelCache, Pack, PackBuilder, Tier};
use warpsmith::internal::build::Source;
use warpsmith::internal::cache::{Key, KeyChange, Miss, Recipe};
use warpsmith::spec::{Arch, Spec};

use common::{Renders, Stores};

use cache_shared::{cubin_of, logged, render, repacked, sealed, spec, toolchain};

const TRAILER: usize = 128;

/// Two kernels for one architecture and one of them for another.
fn specs() -> [Spec; 3] {
    [spec(256, &Arch::H200), spec(512, &Arch::H200), spec(256, &Arch::A100)]
}

fn cubins(dir: &Path) -> Vec<Cubin> {
    let made = |(index, spec): (usize, &Spec)| {
        cubin_of(dir, "13.0.88", &render(spec).unwrap(), spec.arch().target(), &[index as u8; 150])
    };
    specs().iter().enumerate().map(made).collect()
}

fn builder(dir: &Path) -> PackBuilder {
    let mut builder = PackBuilder::new().tuning("a table").manifest("a manifest");
    cubins(dir).iter().for_each(|cubin| assert!(builder.add(cubin).unwrap()));
    builder
}

fn in_memory(bytes: &[u8]) -> Result<Pack, Error> {
    Pack::from_static(bytes.to_vec().leak())
}

fn recipe(spec: &Spec) -> Recipe {
    Recipe::new(&render(spec).unwrap(), spec.arch().target()).unwrap()
}

#[test]
fn what_goes_in_comes_out() {
    let temp = tempfile::tempdir().unwrap();
    let mut builder = builder(temp.path());
    let cubins = cubins(temp.path());
    assert!(!builder.add(&cubins[1]).unwrap() && builder.len() == 3, "once each");
    let bytes = builder.to_bytes().unwrap();
    let mut backwards = PackBuilder::new().manifest("a manifest").tuning("a table");
    cubins.iter().rev().for_each(|cubin| assert!(backwards.add(cubin).unwrap()));
    assert!(backwards.to_bytes().unwrap() == bytes, "the order of adding does not matter");

    let path = temp.path().join("kernels.pack");
    builder.write(&path).unwrap();
    assert!(fs::read(&path).unwrap() == bytes);
    for pack in [Pack::open(&path).unwrap(), in_memory(&bytes).unwrap()] {
        for (spec, cubin) in specs().iter().zip(&cubins) {
            assert_eq!(pack.get(&recipe(spec)).unwrap().as_ref(), Some(cubin));
        }
        assert_eq!(pack.get(&recipe(&spec(512, &Arch::A100))).unwrap(), None);
        assert_eq!(pack.tuning().unwrap().as_deref(), Some("a table"));
        assert_eq!(pack.manifest().unwrap().as_deref(), Some("a manifest"));
        let listed: Vec<_> = pack.kernels().iter().map(|kernel| (kernel.problem(), kernel.target())).collect();
        assert_eq!(listed.len(), 3);
        assert!(listed.contains(&(&*specs()[2].problem().to_string(), "sm_80")), "{listed:?}");
        assert!(pack.kernels().iter().all(|kernel| kernel.toolchain() == "nvrtc-13.0.88+0.0"));
        assert!(!pack.is_signed() && pack.to_string().contains("3 kernels"), "{pack}");
    }
    // What is open stays what it was.
    let pack = Pack::open(&path).unwrap();
    PackBuilder::new().write(&path).unwrap();
    assert_eq!(pack.get(&recipe(&specs()[0])).unwrap().as_ref(), Some(&cubins[0]));
    let empty = Pack::open(&path).unwrap();
    assert!(empty.kernels().is_empty() && empty.tuning().unwrap().is_none() && empty.manifest().unwrap().is_none());
    // And a link to it a link.
    let link = temp.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    builder.write(&link).unwrap();
    assert!(link.is_symlink() && fs::read(&path).unwrap() == bytes);
}

/// A bit flipped anywhere: either the pack is refused as it is opened, or exactly what the bit belongs to is when it is
/// asked for. Never is anything else served.
#[test]
fn a_flipped_bit_anywhere() {
    let temp = tempfile::tempdir().unwrap();
    let (bytes, cubins) = (builder(temp.path()).to_bytes().unwrap(), cubins(temp.path()));
    let at = u64::from_le_bytes(bytes[bytes.len() - TRAILER..][..8].try_into().unwrap()) as usize;
    let (recipes, mut refused_entries) = (specs().map(|spec| recipe(&spec)), 0);
    for byte in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[byte] ^= 1 << (byte % 8);
        // Says only that there is a signature, which nobody asked for.
        if byte == bytes.len() - TRAILER + 112 {
            continue;
        }
        let pack = match in_memory(&flipped) {
            Err(error) => {
                assert!(error.is_data() && (byte < 17 || byte >= at), "byte {byte}: {error}");
                continue;
            }
            Ok(pack) => pack,
        };
        assert!((17..at).contains(&byte), "byte {byte} of index or trailer was not noticed");
        let kernels = recipes.each_ref().map(|recipe| pack.get(recipe));
        let sections = [pack.tuning().map(|text| text == Some("a table".to_owned())), pack.manifest().map(|_| true)];
        let wrong =
            kernels.iter().filter(|got| got.is_err()).count() + sections.iter().filter(|got| got.is_err()).count();
        assert_eq!(wrong, 1, "byte {byte}");
        refused_entries += kernels.iter().filter(|got| got.is_err()).count();
        assert!(
            kernels
                .iter()
                .zip(&cubins)
                .all(|(got, cubin)| got.as_ref().map_or(true, |got| got.as_ref() == Some(cubin)))
        );
        assert!(sections.iter().flatten().all(|right| *right));
    }
    assert_eq!(refused_entries, at - 17 - "a tablea manifest".len());
}

#[test]
fn cut_short_or_with_more_behind() {
    let temp = tempfile::tempdir().unwrap();
    let bytes = builder(temp.path()).to_bytes().unwrap();
    let path = temp.path().join("cut.pack");
    fs::write(&path, &bytes).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    for length in (0..bytes.len()).rev() {
        file.set_len(length as u64).unwrap();
        assert!(Pack::open(&path).unwrap_err().is_data(), "{length} bytes");
    }
    assert!(in_memory(&[&bytes[..], b"x"].concat()).unwrap_err().is_data());
    assert!(in_memory(&[&b"x"[..], &bytes].concat()).unwrap_err().is_data());
    // Cut while it is open.
    fs::write(&path, &bytes).unwrap();
    let pack = Pack::open(&path).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
    assert!(specs().iter().all(|spec| pack.get(&recipe(spec)).unwrap_err().is_data()));
}

/// Machine code under digests that are right, but for a processor: it is never served, and named.
#[test]
fn machine_code_that_a_driver_must_not_be_given() {
    let temp = tempfile::tempdir().unwrap();
    let bytes = builder(temp.path()).to_bytes().unwrap();
    let changed = repacked(&bytes, |body, index| {
        let kernel = &index["kernels"][0];
        let (at, bytes) = (kernel["at"].as_u64().unwrap() as usize, kernel["bytes"].as_u64().unwrap() as usize);
        let entry = &mut body[at..at + bytes];
        let elf = entry.windows(4).position(|window| window == b"\x7fELF").unwrap();
        entry[elf + 0x12] = 62;
        let again = sealed(&entry[..bytes - 32]);
        entry.copy_from_slice(&again);
    });
    let pack = in_memory(&changed).unwrap();
    let damaged = pack.damaged();
    assert!(damaged.len() == 1 && damaged[0].to_string().contains("machine 62, not 190"), "{damaged:?}");
    let got = specs().map(|spec| pack.get(&recipe(&spec)));
    assert_eq!(got.iter().filter(|got| got.as_ref().is_err_and(Error::is_data)).count(), 1);
    assert_eq!(got.iter().filter(|got| got.as_ref().is_ok_and(Option::is_some)).count(), 2);
}

/// A file says that it is as long as it likes, and takes no space for it: nothing is allocated that it cannot have.
#[test]
fn sizes_that_only_a_sparse_file_has() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("sparse.pack");
    let (length, begins) = (1_u64 << 40, b"warpsmith-pack 1\n");
    let file = fs::File::create(&path).unwrap();
    file.write_all_at(begins, 0).unwrap();
    let (at, index) = (begins.len() as u64, length - begins.len() as u64 - TRAILER as u64);
    let place = [at, index].map(u64::to_le_bytes).concat();
    let trailer = [&place, [0; 32 + 72].as_slice(), b"wspack1\n"].concat();
    file.write_all_at(&trailer, length - TRAILER as u64).unwrap();
    let error = Pack::open(&path).unwrap_err();
    assert!(error.is_data() && error.to_string().ends_with("a part of a pack has at most 67108864"), "{error}");
}

/// Parts of a pack lie before its index, and have no more bytes together than there are.
#[test]
fn parts_that_no_pack_has() {
    let temp = tempfile::tempdir().unwrap();
    let whole = builder(temp.path()).to_bytes().unwrap();
    assert!(in_memory(&repacked(&whole, |_, _| ())).unwrap().damaged().is_empty());
    let refused = |words: &str, change: &dyn Fn(&mut Vec<u8>, &mut Value)| {
        let error = in_memory(&repacked(&whole, change)).unwrap_err();
        assert!(error.is_data() && error.to_string().contains(words), "{error} lacks {words}");
    };
    for numbers in [(0, 40), (17, 1_u64 << 40), (u64::MAX, 2), (1 << 40, 0)] {
        for part in ["/kernels/1", "/tuning"] {
            refused("are not between 17 and", &|_, index| {
                let extent = index.pointer_mut(part).unwrap();
                (extent["at"], extent["bytes"]) = (numbers.0.into(), numbers.1.into());
            });
        }
    }
    // The same entry a hundred times over.
    refused("more bytes together than there are", &|_, index| {
        let kernels = index["kernels"].as_array_mut().unwrap();
        let again = vec![kernels[0].clone(); 100];
        kernels.extend(again);
    });
    // What a terminal would obey, as far as it is printed.
    for field in ["name", "problem", "variant", "target", "toolchain", "recipe"] {
        for text in ["\u{1b}[2Jk.cu", "k\n.cu", "k\u{9b}2J"] {
            refused("has control characters", &|_, index| index["kernels"][0][field] = text.into());
        }
    }
    refused(r#""\u{1b}[2J" has"#, &|_, index| index["kernels"][2]["name"] = "\u{1b}[2J".into());
}

/// Reading everything also finds what is whole by itself, but not what the index says that it is.
#[test]
fn kernels_in_each_others_place() {
    let temp = tempfile::tempdir().unwrap();
    let whole = builder(temp.path()).to_bytes().unwrap();
    let open = |change: &dyn Fn(&mut Value)| in_memory(&repacked(&whole, |_, index| change(index))).unwrap();
    let damaged = |pack: &Pack| pack.damaged().iter().map(ToString::to_string).collect::<Vec<_>>();
    let got = |pack: &Pack| specs().map(|spec| pack.get(&recipe(&spec)).map(|found| found.is_some()));
    let names: Vec<_> = in_memory(&whole).unwrap().kernels().iter().map(|kernel| kernel.name().to_owned()).collect();

    let swapped = open(&|index| {
        for field in ["at", "bytes"] {
            let first = index["kernels"][0][field].take();
            index["kernels"][0][field] = index["kernels"][1][field].take();
            index["kernels"][1][field] = first;
        }
    });
    let expected = [0, 1].map(|at| format!("pack in memory: {}: not what the index says", names[at]));
    assert_eq!(damaged(&swapped), expected);
    assert_eq!(got(&swapped).iter().filter(|got| got.as_ref().is_ok_and(|found| *found)).count(), 1);

    for (field, text) in [("problem", "another"), ("variant", "another"), ("toolchain", "another"), ("target", "sm_80")]
    {
        let other = open(&|index| index["kernels"][2][field] = text.into());
        assert_eq!(damaged(&other), [format!("pack in memory: {}: not what the index says", names[2])], "{field}");
    }

    let recipe_of = |at: usize| in_memory(&whole).unwrap().kernels()[at].recipe().to_owned();
    let twice = open(&|index| index["kernels"][1]["recipe"] = recipe_of(0).into());
    let first = &names[0];
    let expected = format!("pack in memory: {}: its recipe {} is that of {first} before it", names[1], recipe_of(0));
    assert_eq!(damaged(&twice), [expected]);
    let got = got(&twice).map(|got| got.unwrap());
    assert_eq!(got.iter().filter(|found| **found).count(), 2, "the first is served");
}

/// What a reader would refuse is not written: here a name that a terminal would obey.
#[test]
fn what_cannot_be_packed() {
    let Some(nvrtc) = common::toolchain("what_cannot_be_packed") else { return };
    let axpy = common::axpy();
    let source = Source::new("\u{1b}[2J.cu", axpy.text(), &[], axpy.entries());
    let cubin = warpsmith::internal::build::compile(&nvrtc, &source, "sm_90a").unwrap();
    let error = PackBuilder::new().add(&cubin).unwrap_err();
    assert!(error.is_data() && error.to_string().contains("has control characters"), "{error}");
    assert!(!error.to_string().contains(char::is_control), "{error:?}");
    let temp = tempfile::tempdir().unwrap();
    let disk = Disk::open(temp.path());
    let lines = logged(|| disk.stores(&Key::of(&cubin), &cubin));
    assert!(lines.contains("writing failed") && disk.get(&Key::of(&cubin)).is_none(), "{lines}");
    let error = PackBuilder::new().tuning("x".repeat((64 << 20) + 1)).to_bytes().unwrap_err();
    assert!(error.is_data() && error.to_string().contains("67108865 bytes, at most 67108864"), "{error}");
}

#[test]
fn what_is_no_pack_of_this_version_is_told_apart() {
    let temp = tempfile::tempdir().unwrap();
    let bytes = builder(temp.path()).to_bytes().unwrap();
    let mut newer = bytes.clone();
    newer[15] = b'2';
    let says = |bytes: &[u8], words: &str| {
        let error = in_memory(bytes).unwrap_err();
        assert!(error.is_data() && error.to_string().contains(words), "{error} lacks {words}");
    };
    says(&newer, "another version");
    says(b"\x7fELF and so on, for long enough to have a trailer", "no pack");
    says(b"", "no pack");
    let error = Pack::open(temp.path().join("none.pack")).unwrap_err();
    assert!(error.is_data() && error.to_string().contains("none.pack"), "{error}");
    assert!(Pack::open(temp.path()).unwrap_err().to_string().contains("not a regular file"));
}

#[cfg(feature = "signed-packs")]
#[test]
fn signatures() {
    let temp = tempfile::tempdir().unwrap();
    let (secret, other) = ([7; 32], [8; 32]);
    let signed = builder(temp.path()).sign(secret);
    let signer = signed.signer().unwrap();
    let stranger = PackBuilder::new().sign(other).signer().unwrap();
    let bytes = signed.to_bytes().unwrap();
    let open = |bytes: &[u8], signer| Pack::from_static_signed(bytes.to_vec().leak(), signer);

    let pack = open(&bytes, &signer).unwrap();
    assert!(pack.is_signed() && pack.get(&recipe(&specs()[0])).unwrap().is_some());
    let path = temp.path().join("signed.pack");
    signed.write(&path).unwrap();
    assert!(Pack::open_signed(&path, &signer).is_ok() && Pack::open(&path).is_ok(), "nobody has to look");

    let untrusted = |bytes: &[u8], signer, words: &str| {
        let error = open(bytes, signer).unwrap_err();
        assert!(error.is_untrusted() && error.to_string().contains(words), "{error} lacks {words}");
    };
    untrusted(&bytes, &stranger, "not by this key");
    untrusted(&builder(temp.path()).to_bytes().unwrap(), &signer, "not signed");
    // No point of the curve.
    untrusted(&bytes, &[2; 32], "not one of ed25519");
    // By another key, and with the signature of the right one under another index.
    untrusted(&builder(temp.path()).sign(other).to_bytes().unwrap(), &signer, "not by this key");
    let changed = builder(temp.path()).tuning("another table").sign(secret).to_bytes().unwrap();
    let mut grafted = changed.clone();
    let signature = bytes.len() - TRAILER + 48..bytes.len() - TRAILER + 112;
    let place = changed.len() - TRAILER + 48;
    grafted[place..place + 64].copy_from_slice(&bytes[signature]);
    untrusted(&grafted, &signer, "not by this key");

    let index = u64::from_le_bytes(bytes[bytes.len() - TRAILER..][..8].try_into().unwrap()) as usize;
    for byte in index..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[byte] ^= 1 << (byte % 8);
        let error = open(&flipped, &signer).unwrap_err();
        assert!(error.is_untrusted() || error.is_data(), "byte {byte}: {error}");
    }
}

/// A cache asks the pack before anything else, and goes on without a kernel of it that is damaged.
#[test]
fn a_cache_takes_what_is_whole() {
    let temp = tempfile::tempdir().unwrap();
    let mut bytes = builder(temp.path()).to_bytes().unwrap();
    // In the image of the second kernel.
    let at = bytes.windows(100).position(|window| window == [1; 100]).unwrap();
    bytes[at] ^= 1;
    // Of another version than the compiler of the pack, and of no use to compile.
    let cache = KernelCache::builder()
        .renders(render)
        .pack(in_memory(&bytes).unwrap())
        .toolchain(toolchain(temp.path(), "13.5.37"))
        .disk(temp.path().join("cubins"))
        .build();
    let [first, second, third] = specs();
    // Each with the compiler of what is served.
    let keys = [&first, &second, &third].map(|spec| cache.key(spec).unwrap());
    assert_eq!(keys.each_ref().map(Key::toolchain), ["nvrtc-13.0.88+0.0", "nvrtc-13.5.37+0.0", "nvrtc-13.0.88+0.0"]);
    assert_eq!(keys[0], Key::of(&cubins(temp.path())[0]));
    assert_eq!(
        [&first, &first, &third].map(|spec| cache.cubin(spec).unwrap().tier()),
        [Tier::Pack, Tier::Memory, Tier::Pack]
    );
    assert_eq!(cache.explain(&first).unwrap(), None);
    let lines = logged(|| assert!(cache.cubin(&second).unwrap_err().is_missing_library(), "that is no NVRTC"));
    assert!(lines.contains("WARN") && lines.contains("damaged"), "{lines}");
    let stats = cache.stats();
    assert_eq!(
        (stats.memory_hits, stats.pack_hits, stats.pack_errors, stats.compiles, stats.failures),
        (1, 2, 1, 0, 1)
    );
    assert_eq!((stats.disk.hits, stats.disk.misses), (0, 1));
}

/// A miss next to a kernel of the same name says what has changed, in words and by type.
#[test]
fn misses_are_explained() {
    fn changed(spec: &Spec) -> warpsmith::Result<Source> {
        let source = render(spec)?;
        let text = format!("// another\n{}", source.text());
        Ok(Source::new(source.name(), text, &[], source.entries()).with_option("-lineinfo"))
    }
    let temp = tempfile::tempdir().unwrap();
    let (spec, root) = (specs()[0], temp.path().join("cubins"));
    let cache =
        |version: &str| KernelCache::builder().renders(render).toolchain(toolchain(temp.path(), version)).disk(&root);
    let (old, new) = (cache("13.0.88").build(), cache("13.5.37").build());
    assert_eq!(new.explain(&spec).unwrap(), Some(Miss::Unknown));
    let cubin = &cubins(temp.path())[0];
    old.disk().stores(&Key::of(cubin), cubin);
    assert_eq!(old.explain(&spec).unwrap(), None);

    let miss = new.explain(&spec).unwrap().unwrap();
    assert!(miss.to_string().starts_with("not in cache because NVRTC 13.0.88 → 13.5.37 (found /"), "{miss}");
    let Miss::Changed { changes, .. } = &miss else { panic!("{miss:?}") };
    assert!(matches!(&changes[..], [KeyChange::Toolchain { was, .. }] if was == "nvrtc-13.0.88+0.0"));
    assert!(serde_json::to_string(&miss).unwrap().contains(r#""what":"toolchain""#));
    // As it is asked for, in the log.
    let lines = logged(|| assert!(new.cubin(&spec).is_err(), "that is no NVRTC"));
    assert!(lines.contains("NVRTC 13.0.88 → 13.5.37"), "{lines}");

    let miss = cache("13.0.88").renders(changed).build().explain(&spec).unwrap().unwrap();
    assert!(miss.to_string().contains("CUDA source") && miss.to_string().contains("-lineinfo"), "{miss}");
    // Next to a pack as next to a disk.
    let packed =
        KernelCache::builder().renders(changed).pack(in_memory(&builder(temp.path()).to_bytes().unwrap()).unwrap());
    let miss = packed.toolchain(toolchain(temp.path(), "13.0.88")).no_disk().build().explain(&spec).unwrap().unwrap();
    assert!(miss.to_string().contains("(found pack in memory)"), "{miss}");

    fs::write(old.disk().path_of(&Key::of(cubin)).unwrap(), "torn").unwrap();
    let miss = old.explain(&spec).unwrap().unwrap();
    assert!(matches!(&miss, Miss::Unusable { reason, .. } if reason.contains("torn")), "{miss}");
}

/// Not a test by itself: what the test below runs with nothing around it.
#[test]
fn child() {
    let Some(pack) = std::env::var_os("WARPSMITH_TEST_PACK") else { return };
    assert!(std::env::var_os("HOME").is_none());
    let cache = KernelCache::builder().renders(render).pack(Pack::open(pack).unwrap()).build();
    assert!(cache.disk().root().is_none());
    let tiers = specs().map(|spec| cache.cubin(&spec).unwrap().tier());
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    println!("\ntiers {tiers:?}, mapped {}, {}", maps.contains("libnvrtc"), cache.stats());
    if Toolchain::find().is_ok() {
        return common::skip("a kernel that is not in the pack", "this machine has an NVRTC where everyone looks");
    }
    let error = cache.cubin(&spec(1024, &Arch::H200)).unwrap_err();
    assert!(error.is_missing_library() && error.to_string().contains("not in cache"), "{error}");
}

/// A container without NVRTC, without a home directory, and with a cache directory that cannot be written to.
#[test]
fn with_nothing_around_it() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("kernels.pack");
    builder(temp.path()).write(&path).unwrap();
    for cache in [None, Some("/proc/warpsmith")] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--nocapture"]).env_clear().env("WARPSMITH_TEST_PACK", &path);
        command.envs(cache.map(|dir| ("WARPSMITH_CACHE_DIR", dir))).current_dir("/");
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("tiers [Pack, Pack, Pack], mapped false") && said.contains("0 compiles"), "{said}");
    }
}

/// Without a compiler, the disk serves what another has made of the same source; with one, it does not.
#[test]
fn a_disk_without_a_compiler() {
    let temp = tempfile::tempdir().unwrap();
    let (cubin, root) = (&cubins(temp.path())[0], temp.path().join("cubins"));
    let warm = KernelCache::builder().toolchain(toolchain(temp.path(), "13.0.88")).disk(&root).build();
    warm.disk().stores(&Key::of(cubin), cubin);
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_without_a_compiler", "--nocapture"])
        .env_clear()
        .env("WARPSMITH_TEST_ROOT", &root)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Not a test by itself: what the test above runs where no variable tells of an NVRTC.
#[test]
fn child_without_a_compiler() {
    let Some(root) = std::env::var_os("WARPSMITH_TEST_ROOT") else { return };
    if Toolchain::find().is_ok() {
        return common::skip("a_disk_without_a_compiler", "this machine has an NVRTC where everyone looks");
    }
    let cache = KernelCache::builder().renders(render).disk(root).build();
    assert_eq!(cache.explain(&specs()[0]).unwrap(), None);
    let key = cache.key(&specs()[0]).unwrap();
    let fetched = cache.cubin(&specs()[0]).unwrap();
    assert_eq!((fetched.tier(), Key::of(fetched.cubin())), (Tier::Disk, key));
    assert!(cache.key(&specs()[1]).unwrap_err().is_missing_library());
    assert!(cache.cubin(&specs()[1]).unwrap_err().is_missing_library());
    assert_eq!(cache.stats().disk_hits, 1);
}
