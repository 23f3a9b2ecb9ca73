//! A measurer without a device: true times from a formula, and the ways in which real ones are not the true ones.

use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpsmith::spec::Spec;
use warpsmith::{Error, Result};
use warpsmith_tune::{Admission, Clock, Measure};

/// What lies between a kernel's true time and a sample of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Noise {
    /// Each sample for itself, by this share (standard deviation).
    White(f64),
    /// White, and one of 20 samples takes up to three times as long.
    HeavyTails,
    /// White, and everything becomes slower, by this share over 100 samples.
    Drift(f64),
    /// White, and a clock that changes between two states, this share apart, every 40 samples or so.
    Clocks(f64),
    /// The device is faster or slower by a share (standard deviation) that takes after the sample before it.
    Wandering(f64),
    /// As that, but each of two kernels for itself, so that pairs are of no help.
    WanderingApart(f64),
    /// White, and the second of a pair is faster by this share, whichever it is.
    SecondIsFaster(f64),
    /// Now and then somebody else uses the device.
    Tenant,
}

/// White noise of a quiet device.
const QUIET: f64 = 0.003;

pub struct Simulated<'a> {
    pub truth: &'a dyn Fn(&Spec) -> f64,
    pub admission: &'a dyn Fn(&Spec) -> Admission,
    noise: Noise,
    rng: SmallRng,
    admitted: HashSet<Spec>,
    samples: usize,
    fast: bool,
    wandered: [f64; 2],
    shared: bool,
}

pub fn passed(_: &Spec) -> Admission {
    Admission::Passed { worst: 0.1 }
}

impl<'a> Simulated<'a> {
    pub fn new(truth: &'a dyn Fn(&Spec) -> f64, noise: Noise, seed: u64) -> Self {
        Self {
            truth,
            admission: &passed,
            noise,
            rng: SmallRng::seed_from_u64(seed),
            admitted: HashSet::new(),
            samples: 0,
            fast: true,
            wandered: [0.0; 2],
            shared: false,
        }
    }

    fn normal(&mut self) -> f64 {
        // Twelve uniform numbers have variance 1.
        (0..12).map(|_| self.rng.random::<f64>()).sum::<f64>() - 6.0
    }

    /// A sample of a kernel that is the first or the second of a pair.
    fn sample(&mut self, spec: &Spec, second: bool) -> f64 {
        self.samples += 1;
        let white = 1.0 + QUIET * self.normal();
        let factor = match self.noise {
            Noise::White(share) => 1.0 + share * self.normal(),
            Noise::HeavyTails if self.rng.random_bool(0.05) => white * self.rng.random_range(1.0..3.0),
            Noise::HeavyTails => white,
            Noise::Drift(share) => white * (1.0 + share * self.samples as f64 / 100.0),
            Noise::Clocks(share) => {
                self.fast ^= self.rng.random_bool(1.0 / 40.0);
                white * if self.fast { 1.0 } else { 1.0 + share }
            }
            Noise::Wandering(share) => white * self.wander(0, share),
            Noise::WanderingApart(share) => white * self.wander(usize::from(second), share),
            Noise::SecondIsFaster(share) => white * if second { 1.0 - share } else { 1.0 },
            Noise::Tenant => {
                self.shared ^= self.rng.random_bool(0.03);
                white * if self.shared { self.rng.random_range(1.0..3.0) } else { 1.0 }
            }
        };
        (self.truth)(spec) * factor.max(0.1)
    }

    /// A first-order autoregressive process with coefficient 0.9.
    fn wander(&mut self, whose: usize, share: f64) -> f64 {
        self.wandered[whose] = 0.9 * self.wandered[whose] + (1.0f64 - 0.81).sqrt() * self.normal();
        1.0 + share * self.wandered[whose]
    }

    fn known(&self, spec: &Spec) -> Result<()> {
        if self.admitted.contains(spec) { Ok(()) } else { Err(never_admitted()) }
    }
}

/// An error that no test expects: the tuner has timed what was not admitted.
fn never_admitted() -> Error {
    "not a variant".parse::<warpsmith::spec::Variant>().unwrap_err().context("timed without having been admitted")
}

impl Measure for Simulated<'_> {
    fn admit(&mut self, spec: &Spec) -> Result<Admission> {
        let admission = (self.admission)(spec);
        if matches!(admission, Admission::Passed { .. }) {
            self.admitted.insert(*spec);
        }
        Ok(admission)
    }

    fn screen(&mut self, spec: &Spec) -> Result<f64> {
        self.known(spec)?;
        Ok(self.sample(spec, false))
    }

    fn duel(&mut self, incumbent: &Spec, challenger: &Spec, pairs: usize) -> Result<Vec<(f64, f64)>> {
        self.known(incumbent)?;
        self.known(challenger)?;
        Ok((0..pairs).map(|_| (self.sample(incumbent, false), self.sample(challenger, true))).collect())
    }
}

/// A time that passes where somebody says so, for all who have it.
#[derive(Clone, Debug, Default)]
pub struct Time(Rc<Cell<Duration>>);

impl Clock for Time {
    fn now(&self) -> Duration {
        self.0.get()
    }

    fn rest(&self, time: Duration) {
        self.0.set(self.0.get() + time);
    }
}

/// A card that heats where it is timed, and cools where it is not. What a kernel takes is its time on a cool card, and more
/// by a share of its own on a hot one.
pub struct Warm<'a> {
    cool: &'a dyn Fn(&Spec) -> (f64, f64),
    time: Time,
    /// 0 to 1, and when.
    heat: f64,
    at: Duration,
    samples: usize,
    /// What the first admission takes.
    opening: Duration,
}

impl<'a> Warm<'a> {
    const HEATING: Duration = Duration::from_millis(600);
    const COOLING: Duration = Duration::from_millis(150);
    const SHORT: Duration = Duration::from_millis(4);
    const PAIR: Duration = Duration::from_micros(600);
    /// What takes longest of all that is asked of it.
    pub const LONGEST: Duration = Duration::from_millis(30);

    pub fn new(cool: &'a dyn Fn(&Spec) -> (f64, f64), time: Time, heat: f64) -> Self {
        let at = time.now();
        Self { cool, time, heat, at, samples: 0, opening: Duration::ZERO }
    }

    /// A card that is not open yet.
    pub fn opening(self, opening: Duration) -> Self {
        Self { opening, ..self }
    }

    fn busy(&mut self, long: Duration) {
        let share = |time: Duration, of: Duration| (-time.as_secs_f64() / of.as_secs_f64()).exp();
        self.heat *= share(self.time.now() - self.at, Self::COOLING);
        self.heat = 1.0 - (1.0 - self.heat) * share(long, Self::HEATING);
        self.time.rest(long);
        self.at = self.time.now();
    }

    fn us(&mut self, spec: &Spec) -> f64 {
        let (us, minds) = (self.cool)(spec);
        self.samples += 1;
        us * (1.0 + minds * self.heat) * (1.0 + (self.samples * 7 % 11) as f64 * 1e-3)
    }
}

impl Measure for Warm<'_> {
    fn admit(&mut self, _: &Spec) -> Result<Admission> {
        self.time.rest(std::mem::take(&mut self.opening));
        Ok(Admission::Passed { worst: 0.1 })
    }

    fn screen(&mut self, spec: &Spec) -> Result<f64> {
        self.busy(Self::SHORT);
        Ok(self.us(spec))
    }

    fn duel(&mut self, incumbent: &Spec, challenger: &Spec, pairs: usize) -> Result<Vec<(f64, f64)>> {
        let pair = |_| {
            self.busy(Self::PAIR);
            (self.us(incumbent), self.us(challenger))
        };
        Ok((0..pairs).map(pair).collect())
    }
}
