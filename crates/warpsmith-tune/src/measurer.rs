//! The way of a kernel into a measurer, whichever it is: quarantine, build, gate; and what is remembered of it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::measure::{Admission, Measure, Rejection};
use super::quarantine::{Platform, Quarantine};
use warpsmith::build::Built;
use warpsmith::cache::KernelCache;
use warpsmith::internal::Raise;
use warpsmith::internal::cache::Key;
use warpsmith::spec::Spec;
use warpsmith::{Error, Result};

/// Called before kernels run that were asked about: what goes wrong until then is not theirs.
pub(super) type Notice<'a> = &'a mut dyn FnMut() -> Result<()>;

/// Where kernels run: in this process, or in one that may crash.
pub(super) trait Backend {
    /// The device and its driver.
    fn platform(&mut self) -> Result<Platform>;
    /// Loads and checks a kernel.
    fn admit(&mut self, built: &Built, launching: Notice<'_>) -> Result<Admission>;
    /// Microseconds a call.
    fn screen(&mut self, spec: &Spec, launching: Notice<'_>) -> Result<Timed<f64>>;
    /// Microseconds a call of both, `pairs` times.
    fn duel(
        &mut self,
        incumbent: &Spec,
        challenger: &Spec,
        pairs: usize,
        launching: Notice<'_>,
    ) -> Result<Timed<Vec<(f64, f64)>>>;
}

/// Where nobody needs to know.
fn unnoticed() -> Result<()> {
    Ok(())
}

/// What came of a timing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Timed<T> {
    /// It was timed.
    Took(T),
    /// The kernel, or one of two, is not loaded: not yet, or not any more.
    Absent,
    /// The kernel, or one of two, has failed.
    Failed(Rejection),
}

/// What a build came to.
enum Attempt {
    Built(Box<Built>),
    /// With whether another try would end the same.
    Refused(String, bool),
}

/// A measurer made of a cache, a quarantine and a backend.
///
/// Where nothing is right, it is not the kernels: what was refused is quarantined once a kernel has passed here, and until
/// then remembered by this measurer only.
#[derive(Debug)]
pub(super) struct Measurer<'f, S> {
    cache: &'f KernelCache,
    quarantine: Quarantine,
    backend: S,
    /// Kernels that were admitted, and whether they have been right ever since.
    admitted: HashMap<Spec, bool>,
    /// Kernels that were refused before any was admitted.
    pending: HashMap<Spec, (Key, Rejection)>,
}

impl<'f, S: Backend> Measurer<'f, S> {
    pub(super) fn new(cache: &'f KernelCache, quarantine: Quarantine, backend: S) -> Self {
        Self { cache, quarantine, backend, admitted: HashMap::new(), pending: HashMap::new() }
    }

    pub(super) fn set_quarantine(&mut self, quarantine: Quarantine) {
        self.quarantine = quarantine;
    }

    pub(super) fn backend(&self) -> &S {
        &self.backend
    }

    pub(super) fn backend_mut(&mut self) -> &mut S {
        &mut self.backend
    }

    /// Of kernels nothing is known any more, but what is in quarantine.
    pub(super) fn forget(&mut self) {
        self.admitted.clear();
        self.pending.clear();
    }

    fn build(&self, spec: &Spec) -> Result<Attempt> {
        match self.cache.cubin(spec) {
            Ok(fetched) => Ok(Attempt::Built(Box::new(fetched.built().clone()))),
            Err(error) if error.is_missing_library() => Err(error),
            Err(error) => Ok(Attempt::Refused(error.to_string(), error.is_compile())),
        }
    }

    /// None, if there is neither the kernel nor a toolchain: then nothing can be looked up, nor remembered.
    fn key(&self, spec: &Spec) -> Option<Key> {
        self.cache.key(spec).ok()
    }

    /// Why a kernel was refused, here or in an earlier measurer on this platform.
    fn refused(&mut self, spec: &Spec, key: &Key) -> Result<Option<Rejection>> {
        if let Some((_, rejection)) = self.pending.get(spec) {
            return Ok(Some(rejection.clone()));
        }
        // The platform takes a worker to know.
        if !self.quarantine.has(key) {
            return Ok(None);
        }
        let platform = self.backend.platform()?;
        Ok(self.quarantine.get(key, &platform))
    }

    fn remember(&mut self, key: Option<Key>, spec: &Spec, rejection: &Rejection) -> Result<()> {
        tracing::warn!(kernel = spec.name(), %rejection, "refused for good");
        let Some(key) = key else { return Ok(()) };
        self.pending.insert(*spec, (key, rejection.clone()));
        if self.admitted.is_empty() { Ok(()) } else { self.flush() }
    }

    /// Quarantines what was refused, since another kernel was right.
    fn flush(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let platform = self.backend.platform()?;
        for (spec, (key, rejection)) in self.pending.drain() {
            self.quarantine.put(&key, &spec.name(), &rejection, &platform);
        }
        Ok(())
    }

    /// A kernel that was admitted has failed.
    fn expel(&mut self, spec: &Spec, rejection: &Rejection) -> Result<()> {
        self.admitted.insert(*spec, false);
        if is_lasting(rejection) { self.remember(self.key(spec), spec, rejection) } else { Ok(()) }
    }

    /// Whether a kernel may be timed.
    fn is_good(&self, spec: &Spec) -> Result<bool> {
        let good = self.admitted.get(spec).copied();
        good.ok_or_else(|| Error::unsupported(format!("{} was not admitted, so it is not timed", spec.name())))
    }

    /// Loads and checks kernels that passed before again.
    fn readmit(&mut self, specs: &[&Spec]) -> Result<()> {
        for spec in specs {
            let refused = match self.build(spec)? {
                Attempt::Refused(said, _) => Some(Rejection::Build(said)),
                Attempt::Built(built) => match self.backend.admit(&built, &mut unnoticed)? {
                    Admission::Passed { .. } => None,
                    Admission::Refused(rejection) => Some(rejection),
                },
            };
            if let Some(rejection) = refused {
                self.expel(spec, &rejection)?;
            }
        }
        Ok(())
    }

    /// A timing, once more if something was not loaded. The inner error: one of them has failed, now (with how) or
    /// before.
    fn timed<T>(
        &mut self,
        specs: &[&Spec],
        time: impl Fn(&mut S) -> Result<Timed<T>>,
    ) -> Result<std::result::Result<T, Option<Rejection>>> {
        for _ in 0..2 {
            for spec in specs {
                if !self.is_good(spec)? {
                    return Ok(Err(None));
                }
            }
            match time(&mut self.backend)? {
                Timed::Took(times) => return Ok(Ok(times)),
                Timed::Failed(rejection) => return Ok(Err(Some(rejection))),
                Timed::Absent => self.readmit(specs)?,
            }
        }
        Err(Error::internal(format!("a kernel that was just admitted is gone: {}", names(specs))))
    }
}

impl<S: Backend> Measure for Measurer<'_, S> {
    fn admit(&mut self, spec: &Spec) -> Result<Admission> {
        let key = self.key(spec);
        if let Some(key) = &key
            && let Some(rejection) = self.refused(spec, key)?
        {
            return Ok(Admission::Refused(Rejection::Quarantined(rejection.to_string())));
        }
        let built = match self.build(spec)? {
            Attempt::Built(built) => *built,
            Attempt::Refused(said, is_certain) => {
                let rejection = Rejection::Build(said);
                if is_certain {
                    self.remember(key, spec, &rejection)?;
                }
                return Ok(Admission::Refused(rejection));
            }
        };
        let admission = self.backend.admit(&built, &mut unnoticed)?;
        match &admission {
            Admission::Passed { .. } => {
                self.admitted.insert(*spec, true);
                self.flush()?;
            }
            Admission::Refused(rejection) if is_lasting(rejection) => self.remember(key, spec, rejection)?,
            Admission::Refused(_) => {}
        }
        Ok(admission)
    }

    fn screen(&mut self, spec: &Spec) -> Result<f64> {
        match self.timed(&[spec], |backend| backend.screen(spec, &mut unnoticed))? {
            Ok(us) => Ok(us),
            Err(failed) => {
                if let Some(rejection) = failed {
                    self.expel(spec, &rejection)?;
                }
                Ok(f64::INFINITY)
            }
        }
    }

    fn duel(&mut self, incumbent: &Spec, challenger: &Spec, pairs: usize) -> Result<Vec<(f64, f64)>> {
        let duel = |backend: &mut S| backend.duel(incumbent, challenger, pairs, &mut unnoticed);
        match self.timed(&[incumbent, challenger], duel)? {
            Ok(times) => Ok(times),
            Err(failed) => {
                // Which of the two: the one that fails alone; and if neither does, the newcomer.
                let incumbent_us = self.screen(incumbent)?;
                let mut challenger_us = self.screen(challenger)?;
                if let Some(rejection) = failed
                    && incumbent_us.is_finite()
                    && challenger_us.is_finite()
                {
                    self.expel(challenger, &rejection)?;
                    challenger_us = f64::INFINITY;
                }
                Ok(vec![(incumbent_us, challenger_us); pairs])
            }
        }
    }
}

/// Whether the same kernel would be refused again. What the driver has no memory for today may run tomorrow.
fn is_lasting(rejection: &Rejection) -> bool {
    matches!(rejection, Rejection::Wrong(_) | Rejection::NotRepeatable | Rejection::Hangs | Rejection::Crashes(_))
}

fn names(specs: &[&Spec]) -> String {
    specs.iter().map(|spec| spec.name()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cache, specs};
    use warpsmith::run::DriverVersion;

    /// A backend on which kernels do as they are told.
    #[derive(Default)]
    struct Scripted {
        refused: HashMap<Spec, Rejection>,
        fails_timed: HashMap<Spec, Rejection>,
        /// Fail together only.
        fails_together: Option<Rejection>,
        loaded: Vec<Spec>,
        admits: usize,
        /// The minor version.
        driver: u32,
    }

    fn platform(minor: u32) -> Platform {
        Platform::new("NVIDIA H200", DriverVersion { major: 13, minor })
    }

    impl Backend for Scripted {
        fn platform(&mut self) -> Result<Platform> {
            Ok(platform(self.driver))
        }

        fn admit(&mut self, built: &Built, _: Notice<'_>) -> Result<Admission> {
            let spec = built.of();
            assert!(!built.cubin().image().is_empty());
            self.admits += 1;
            if let Some(rejection) = self.refused.get(spec) {
                return Ok(Admission::Refused(rejection.clone()));
            }
            self.loaded.push(*spec);
            Ok(Admission::Passed { worst: 0.5 })
        }

        fn screen(&mut self, spec: &Spec, _: Notice<'_>) -> Result<Timed<f64>> {
            if !self.loaded.contains(spec) {
                return Ok(Timed::Absent);
            }
            if let Some(rejection) = self.fails_timed.get(spec) {
                // As if another worker had to be started.
                self.loaded.clear();
                return Ok(Timed::Failed(rejection.clone()));
            }
            Ok(Timed::Took(f64::from(spec.variant().stages)))
        }

        fn duel(
            &mut self,
            incumbent: &Spec,
            challenger: &Spec,
            pairs: usize,
            _: Notice<'_>,
        ) -> Result<Timed<Vec<(f64, f64)>>> {
            if let Some(rejection) = &self.fails_together {
                self.loaded.clear();
                return Ok(Timed::Failed(rejection.clone()));
            }
            Ok(match (self.screen(incumbent, &mut unnoticed)?, self.screen(challenger, &mut unnoticed)?) {
                (Timed::Took(first), Timed::Took(second)) => Timed::Took(vec![(first, second); pairs]),
                (Timed::Failed(rejection), _) | (_, Timed::Failed(rejection)) => Timed::Failed(rejection),
                _ => Timed::Absent,
            })
        }
    }

    fn passed() -> Admission {
        Admission::Passed { worst: 0.5 }
    }

    fn reasons() -> [Rejection; 5] {
        [
            Rejection::Hangs,
            Rejection::Crashes("it says so".to_owned()),
            Rejection::Wrong("wrong: 1 of 8".to_owned()),
            Rejection::NotRepeatable,
            Rejection::Load("no memory".to_owned()),
        ]
    }

    #[test]
    fn what_would_fail_again_is_not_tried_again() {
        let temp = tempfile::tempdir().unwrap();
        let all = specs::<6>();
        let (bad, good) = (&all[..5], &all[5]);
        let cache = cache(temp.path(), &all);
        let reasons = reasons();
        for second_start in [false, true] {
            let refused = bad.iter().copied().zip(reasons.iter().cloned()).collect();
            let backend = Scripted { refused, ..Scripted::default() };
            let mut measurer = Measurer::new(&cache, Quarantine::beside(&cache), backend);
            for (spec, reason) in bad.iter().zip(&reasons) {
                let expected = if second_start && is_lasting(reason) {
                    Rejection::Quarantined(reason.to_string())
                } else {
                    reason.clone()
                };
                assert_eq!(measurer.admit(spec).unwrap(), Admission::Refused(expected));
                assert!(measurer.screen(spec).unwrap_err().is_unsupported());
            }
            assert_eq!(measurer.backend().admits, if second_start { 1 } else { 5 });
            // Here they are not tried again, whatever comes after.
            assert!(matches!(measurer.admit(&bad[0]).unwrap(), Admission::Refused(Rejection::Quarantined(_))));
            assert_eq!(measurer.admit(good).unwrap(), passed());
        }
        // A quarantine of its own knows nothing; nor does any of another driver.
        let mut measurer = Measurer::new(&cache, Quarantine::in_memory(), Scripted::default());
        assert_eq!(measurer.admit(&all[0]).unwrap(), passed());
        let backend = Scripted { driver: 1, ..Scripted::default() };
        let mut measurer = Measurer::new(&cache, Quarantine::beside(&cache), backend);
        assert!(bad.iter().all(|spec| measurer.admit(spec).unwrap() == passed()));
    }

    /// As on a driver that is broken, or a device that somebody else keeps busy.
    #[test]
    fn where_nothing_is_right_nothing_is_quarantined() {
        let temp = tempfile::tempdir().unwrap();
        let all = specs::<6>();
        let (bad, late) = (&all[..4], &all[4..]);
        let cache = cache(temp.path(), &all);
        let entries = || {
            let root = temp.path().join("cubins/quarantine");
            root.read_dir().map_or(0, Iterator::count)
        };
        let refused: HashMap<Spec, Rejection> = bad.iter().copied().zip(reasons()).collect();
        for _ in 0..2 {
            let backend = Scripted { refused: refused.clone(), ..Scripted::default() };
            let mut measurer = Measurer::new(&cache, Quarantine::beside(&cache), backend);
            for (spec, reason) in bad.iter().zip(reasons()) {
                assert_eq!(measurer.admit(spec).unwrap(), Admission::Refused(reason));
            }
            assert_eq!((measurer.backend().admits, entries()), (4, 0));
        }
        // With the first that is right it is the kernels: what was refused before, and after.
        let mut refused = refused;
        refused.insert(late[1], Rejection::NotRepeatable);
        let mut measurer =
            Measurer::new(&cache, Quarantine::beside(&cache), Scripted { refused, ..Scripted::default() });
        for (spec, reason) in bad.iter().zip(reasons()) {
            assert_eq!(measurer.admit(spec).unwrap(), Admission::Refused(reason));
        }
        assert_eq!(measurer.admit(&late[0]).unwrap(), passed());
        assert_eq!(entries(), 4);
        assert_eq!(measurer.admit(&late[1]).unwrap(), Admission::Refused(Rejection::NotRepeatable));
        assert_eq!(entries(), 5);
    }

    #[test]
    fn what_was_lost_is_admitted_again() {
        let temp = tempfile::tempdir().unwrap();
        let [first, second] = specs();
        let cache = cache(temp.path(), &[first, second]);
        let mut measurer = Measurer::new(&cache, Quarantine::in_memory(), Scripted::default());
        assert_eq!([measurer.admit(&first).unwrap(), measurer.admit(&second).unwrap()], [passed(), passed()]);
        measurer.backend_mut().loaded.clear();
        assert_eq!(measurer.duel(&first, &second, 3).unwrap(), [(1.0, 2.0); 3]);
        assert_eq!(measurer.backend().admits, 4);
        assert_eq!(measurer.screen(&second).unwrap(), 2.0);
        assert_eq!(measurer.backend().admits, 4);
        // It passed before, but now does not.
        measurer.backend_mut().loaded.clear();
        measurer.backend_mut().refused.insert(second, Rejection::NotRepeatable);
        assert_eq!(measurer.screen(&second).unwrap(), f64::INFINITY);
        assert!(matches!(measurer.admit(&second).unwrap(), Admission::Refused(Rejection::Quarantined(_))));
    }

    #[test]
    fn of_two_that_fail_the_one_that_fails_alone_is_to_blame_or_the_newcomer() {
        let temp = tempfile::tempdir().unwrap();
        let [incumbent, challenger] = specs();
        let cache = cache(temp.path(), &[incumbent, challenger]);
        let duel = |backend: Scripted| {
            let mut measurer = Measurer::new(&cache, Quarantine::in_memory(), backend);
            assert_eq!(
                [measurer.admit(&incumbent).unwrap(), measurer.admit(&challenger).unwrap()],
                [passed(), passed()]
            );
            let pairs = measurer.duel(&incumbent, &challenger, 2).unwrap();
            assert_eq!(measurer.duel(&incumbent, &challenger, 2).unwrap(), pairs, "and so it stays");
            pairs
        };
        let failing = |spec| Scripted { fails_timed: [(spec, Rejection::Hangs)].into(), ..Scripted::default() };
        assert_eq!(duel(failing(challenger)), [(1.0, f64::INFINITY); 2]);
        assert_eq!(duel(failing(incumbent)), [(f64::INFINITY, 2.0); 2]);
        let together = Scripted { fails_together: Some(Rejection::Hangs), ..Scripted::default() };
        assert_eq!(duel(together), [(1.0, f64::INFINITY); 2]);
    }

    #[test]
    fn without_a_compiler_there_is_no_verdict() {
        let temp = tempfile::tempdir().unwrap();
        let [spec] = specs();
        let cache = cache(temp.path(), &[]);
        let mut measurer = Measurer::new(&cache, Quarantine::beside(&cache), Scripted::default());
        assert!(measurer.admit(&spec).unwrap_err().is_missing_library());
        assert_eq!(measurer.backend().admits, 0);
    }
}
