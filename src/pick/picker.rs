//! What a device's choices come from, in their order.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;

use super::choice::{Choice, Origin, Reason};
use super::entry::Entry;
use super::intervals::{Decision, Intervals};
use super::policy::Policy;
use super::schedule::{Schedule, Sources};
use super::table::Table;
use super::untuned;
use crate::error::{Error, Result};
use crate::spec::{Arch, Numerics, Problem, Spec, Variant, baseline};

/// Schedules that are remembered.
const REMEMBERED: NonZeroUsize = match NonZeroUsize::new(1024) {
    Some(count) => count,
    None => NonZeroUsize::MIN,
};

/// Chooses variants for one model of device: pinned ▸ measured on this model ▸ measured there for a like problem ▸ measured on
/// its architecture ▸ heuristic ▸ fallback. Shared between threads by reference; needs no device.
///
/// Its table is read once, when it is built. From then on a choice depends on the problem and M alone.
///
/// ```
/// use warpsmith::pick::Picker;
/// use warpsmith::spec::{Activation, Arch, Problem};
/// let picker = Picker::new("NVIDIA H200", &Arch::H200);
/// let problem = Problem::dual_gemm(Activation::Silu).n(4096).k(7168).prepared();
/// let choice = picker.choose(&problem, 64)?;
/// println!("{}: {}, {}", choice.spec(), choice.origin(), choice.reason());
/// println!("{}", picker.explain(&problem, 64)?);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[derive(Debug)]
pub struct Picker {
    device: String,
    arch: Arch,
    policy: Policy,
    table: Table,
    classes: HashMap<Problem, Numerics>,
    pins: HashMap<Problem, Choice>,
    /// Decisions that can be followed for their own problems, of each problem and its kin.
    measured: HashMap<Problem, Vec<Entry>>,
    ignored: Vec<Ignored>,
    schedules: Mutex<LruCache<Problem, Arc<Schedule>>>,
}

/// A decision of the table that is for this architecture, but is not followed.
#[derive(Clone, Debug, PartialEq)]
pub struct Ignored {
    /// The decision.
    pub entry: Entry,
    /// Why it is not followed.
    pub why: String,
}

impl Picker {
    /// With the built-in table, no pins, and whatever is fastest.
    #[must_use]
    pub fn new(device: &str, arch: &Arch) -> Self {
        Self::with(Table::built_in(), device, arch)
    }

    /// One to be set up, for a device that the driver calls `device` and that has the SMs of `arch`.
    pub fn builder(device: &str, arch: &Arch) -> PickerBuilder {
        let (device, arch, table) = (device.to_owned(), *arch, Table::built_in());
        PickerBuilder { device, arch, table, policy: Policy::default(), classes: HashMap::new(), pins: Vec::new() }
    }

    /// Without pins and classes nothing can be refused.
    fn with(table: Table, device: &str, arch: &Arch) -> Self {
        let schedules = Mutex::new(LruCache::new(REMEMBERED));
        let (device, arch) = (device.to_owned(), *arch);
        let (classes, pins, measured) = (HashMap::new(), HashMap::new(), HashMap::new());
        let policy = Policy::default();
        let mut picker = Self { device, arch, policy, table, classes, pins, measured, ignored: Vec::new(), schedules };
        picker.read_table();
        picker
    }

    /// Chooses a variant for `m` rows (of all groups together): looks it up in the problem's [`Schedule`], whatever limit
    /// is stated. For a problem that it has chosen for before, it allocates nothing.
    ///
    /// # Errors
    /// Those of [`Problem::check_for`]; unsupported, if no variant is legal, or none of the class that the problem is
    /// pinned to.
    pub fn choose(&self, problem: &Problem, m: u32) -> Result<Choice> {
        problem.check_for(m)?;
        let schedule = self.schedule(&problem.for_pick())?;
        schedule.reach(m)?;
        Ok(*schedule.at(m))
    }

    /// As [`Picker::choose`], for rows of each group that are known (one number if there are no groups): where nothing is
    /// pinned or was measured, the best for exactly these, which need not be one of the schedule's.
    ///
    /// ```
    /// use warpsmith::pick::Picker;
    /// use warpsmith::spec::{Activation, Arch, Problem};
    /// let picker = Picker::new("NVIDIA H200", &Arch::H200);
    /// let problem = Problem::dual_gemm(Activation::Silu).n(768).k(2048).grouped(4).prepared();
    /// println!("{}", picker.choose_for(&problem, &[0, 0, 90, 6])?.reason());
    /// # Ok::<(), warpsmith::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Picker::choose`]; data, if there are not as many numbers as groups.
    pub fn choose_for(&self, problem: &Problem, rows: &[u32]) -> Result<Choice> {
        let m = rows.iter().map(|rows| u64::from(*rows)).sum::<u64>();
        let choice = self.choose(problem, u32::try_from(m).unwrap_or(u32::MAX))?;
        let groups = problem.groups().unwrap_or(1) as usize;
        if rows.len() != groups {
            return Err(Error::data(format!("rows of {} groups given, {problem} has {groups}", rows.len())));
        }
        match choice.origin() {
            Origin::Heuristic | Origin::Fallback => {
                untuned::choose_for(problem, &problem.load_of(rows), &self.arch, self.class(problem)?.as_ref())
            }
            _ => Ok(choice),
        }
    }

    /// Every choice for a problem, up to its stated limit. The limit changes none of them. Made once and remembered.
    ///
    /// # Errors
    /// Those of [`Problem::check`]; unsupported, if no variant is legal, or none of the class that the problem is pinned
    /// to, for the rows that the problem states; for a problem without a limit the schedule ends before those.
    pub fn schedule(&self, problem: &Problem) -> Result<Arc<Schedule>> {
        let remembered = || self.schedules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(schedule) = remembered().get(problem) {
            return Ok(Arc::clone(schedule));
        }
        problem.check()?;
        let schedule = Arc::new(match problem.m_limit() {
            Some(limit) => self.schedule(&problem.for_pick())?.up_to(limit)?,
            None => self.whole_schedule(problem)?,
        });
        remembered().put(*problem, Arc::clone(&schedule));
        Ok(schedule)
    }

    fn whole_schedule(&self, problem: &Problem) -> Result<Schedule> {
        let kernel = problem.for_kernel();
        if let Some(choice) = self.pins.get(&kernel) {
            return Ok(Schedule::constant(*choice));
        }
        let class = self.class(problem)?;
        let measured = self.measured(problem, class.as_ref());
        Schedule::new(&Sources { problem, arch: &self.arch, class: class.as_ref(), measured: &measured })
    }

    /// What the table has for a problem, the surer first: on this device before others, for this problem before its kin, for
    /// rows that fall as they do here before any. What is followed is found out where nothing surer has a choice.
    fn measured(&self, problem: &Problem, class: Option<&Numerics>) -> Vec<Intervals> {
        let kernel = problem.for_kernel();
        let forms = if kernel == *problem { vec![*problem] } else { vec![*problem, kernel] };
        let mut measured: Vec<Intervals> = Vec::new();
        for (exact, of_kin) in [(true, false), (true, true), (false, false), (false, true)] {
            for form in &forms {
                let all = self.measured.get(&form.kin()).map_or(&[][..], Vec::as_slice);
                let of_these =
                    all.iter().filter(|entry| self.is_exact(entry) == exact && (entry.problem() != form) == of_kin);
                let open = of_these.filter(|entry| !measured.iter().any(|surer| surer.cover(entry.m())));
                // What is not legal for kin is no decision for them.
                let decided = open.filter_map(|entry| self.decide(entry, form).ok());
                let followed: Vec<Decision> =
                    decided.filter(|decision| decision.carries_over(&self.arch, class)).collect();
                measured.push(Intervals::new(&followed));
            }
        }
        measured
    }

    /// The numerics that choices for a problem keep to: the class named for it, else what the policy says.
    ///
    /// # Errors
    /// Unsupported, if the problem is not legal.
    pub fn class(&self, problem: &Problem) -> Result<Option<Numerics>> {
        if let Some(class) = self.classes.get(&problem.for_kernel()) {
            return Ok(Some(*class));
        }
        match self.policy {
            Policy::Fastest => Ok(None),
            Policy::BatchInvariant => Ok(Some(Spec::new(problem, &baseline(problem), &self.arch)?.numerics())),
        }
    }

    /// What the driver calls the device.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The device's row of hardware numbers.
    #[must_use]
    pub fn arch(&self) -> &Arch {
        &self.arch
    }

    /// Whether tuning may change bits.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// What was measured.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Decisions of the table that are for this architecture, but are not followed.
    #[must_use]
    pub fn ignored(&self) -> &[Ignored] {
        &self.ignored
    }

    /// Whether a decision was made on this model of device. Where there is no device it is called as its preset is: then the preset is
    /// that of the decision's device, so that what is known without one is what is chosen on it.
    pub(super) fn is_exact(&self, entry: &Entry) -> bool {
        if entry.sms() != self.arch.sms() {
            return false;
        }
        let is_preset = self.device == self.arch.name();
        entry.device() == self.device
            || (is_preset && Arch::of_name(entry.device(), entry.sms(), entry.target()) == Some(self.arch))
    }

    /// Finds out which decisions can be followed.
    fn read_table(&mut self) {
        let mut measured: HashMap<Problem, Vec<Entry>> = HashMap::new();
        for entry in self.table.entries().filter(|entry| entry.target() == self.arch.target()) {
            let problem = entry.problem();
            match self.decide(entry, problem) {
                Ok(_) => measured.entry(problem.kin()).or_default().push(entry.clone()),
                Err(error) => {
                    tracing::warn!("tuning table: {} for {problem} is not followed: {error}", entry.variant());
                    self.ignored.push(Ignored { entry: entry.clone(), why: error.to_string() });
                }
            }
        }
        self.measured = measured;
    }

    /// What a decision leads to for `problem`, which is its own or kin.
    pub(super) fn decide(&self, entry: &Entry, problem: &Problem) -> Result<Decision> {
        let (from, to) = entry.m().into_inner();
        let spec = Spec::check(problem, entry.variant(), &self.arch)?;
        if !spec.fits_grid(to) {
            return Err(Error::unsupported(format!("a grid has no room for the blocks of {to} rows")));
        }
        in_class(&spec, self.class(problem)?)?;
        let like = (entry.problem().for_kernel() != problem.for_kernel()).then(|| *entry.problem());
        let exact = self.is_exact(entry);
        let reason = Reason::Measured { measured: entry.evidence().measured, from, to, exact, like };
        Ok(Decision::new(entry, Choice::new(spec, reason), &self.arch))
    }
}

fn in_class(spec: &Spec, class: Option<Numerics>) -> Result<()> {
    match class {
        Some(class) if spec.numerics() != class => {
            Err(Error::unsupported(format!("it adds up as {}, the problem's class is {class}", spec.numerics())))
        }
        _ => Ok(()),
    }
}

/// Sets a [`Picker`] up.
#[derive(Clone, Debug)]
#[must_use]
pub struct PickerBuilder {
    device: String,
    arch: Arch,
    table: Table,
    policy: Policy,
    classes: HashMap<Problem, Numerics>,
    pins: Vec<(Problem, Variant)>,
}

impl PickerBuilder {
    /// Leaves the built-in table out, and what was merged before.
    pub fn without_built_in(mut self) -> Self {
        self.table = Table::new();
        self
    }

    /// Adds what was measured ([`Table::merge`]).
    pub fn table(mut self, table: &Table) -> Self {
        self.table.merge(table);
        self
    }

    /// Whether tuning may change bits.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Keeps the choices for a problem to a class, whatever the policy says.
    pub fn class(mut self, problem: &Problem, class: Numerics) -> Self {
        self.classes.insert(problem.for_kernel(), class);
        self
    }

    /// Names the variant for a problem, at every M.
    pub fn pin(mut self, problem: &Problem, variant: &Variant) -> Self {
        self.pins.push((*problem, *variant));
        self
    }

    /// The picker.
    ///
    /// # Errors
    /// Unsupported, if a pinned variant is not legal, or not of the class that its problem is pinned to.
    pub fn build(self) -> Result<Picker> {
        let Self { device, arch, table, policy, classes, pins } = self;
        let mut picker = Picker { policy, classes, ..Picker::with(Table::new(), &device, &arch) };
        for (problem, variant) in pins {
            let choice = Choice::pinned(&problem, &variant, &arch)?;
            in_class(choice.spec(), picker.class(&problem)?)
                .map_err(|error| error.context(format!("{problem} pinned to {variant}")))?;
            picker.pins.insert(problem.for_kernel(), choice);
        }
        picker.table = table;
        picker.read_table();
        Ok(picker)
    }
}
