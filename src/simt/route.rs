//! Which experts a token goes to, and in which order its rows lie.

use std::fmt;
use std::ops::Range;

use super::PORTABLE_CLUSTER;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::problem::Problem;
use crate::spelling::{number, prefixed, spelled, words};

/// Where the weights of a token's experts come from, and what chooses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scoring {
    /// Softmax over all experts. The logit chooses; of a group of experts its largest (DeepSeek-V2).
    Softmax,
    /// Sigmoid. The logit chooses. No groups.
    Sigmoid,
    /// Sigmoid. What chooses is that and the expert's bias together, as an f32 sum; of a group of experts the sum of its best
    /// two (DeepSeek-V3).
    SigmoidBias,
    /// Ids and weights are given.
    Given,
}

words!(Scoring, "scoring", {
    Softmax => "softmax", Sigmoid => "sigmoid", SigmoidBias => "sigmoid_bias", Given => "given",
});

/// The router of a mixture of experts: for each token its k best of E experts with their weights, and the rows of all tokens
/// sorted by (expert, token, slot), as grouped problems take them. The number of tokens is a run-time number.
///
/// k distinct experts are chosen always, and ties go to the lower expert (the lower group). NaN counts as the smallest finite
/// f32 number, and infinities as the smallest and the largest, in a logit as in a bias. What chooses is a stated sequence of
/// IEEE operations (`templates/simt/exact.cuh`): every device chooses alike, at every launch.
///
/// Weights are softmax or sigmoid (its own, without the bias) of the chosen; [renormalised](Route::renormalised), over the
/// chosen's sum (of sigmoids: plus 1e-20); times the launch's scale.
///
/// # A range of experts
/// A device that has some of the experts makes rows for these only: a [local](Route::local) router chooses among all, writes
/// every id and weight, and lists the rows of its own experts, counted from the first of them. A slot whose expert is
/// elsewhere has no row.
///
/// # Spelling
/// `route.SCORING[:LOGITS]:eE:kK[:gG:keepP][:renormalised][:localA-B]`, for example `route.sigmoid_bias:f32:e256:k8:g8:keep4:renormalised`
/// or `route.given:e128:k8`, which has no logits. `Display` writes it and `FromStr` reads exactly what `Display` writes.
///
/// ```
/// use warpsmith::spec::{Route, Scoring};
/// let route = Route::new(Scoring::SigmoidBias).experts(256).k(8).groups(8, 4).renormalised();
/// assert_eq!(route.to_string(), "route.sigmoid_bias:f32:e256:k8:g8:keep4:renormalised");
/// assert_eq!(route.to_string().parse::<Route>()?, route);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Route {
    scoring: Scoring,
    logits: Format,
    experts: u32,
    k: u32,
    /// How many there are, and how many are kept.
    groups: Option<(u32, u32)>,
    is_renormalised: bool,
    /// The first that is here, and the end.
    local: Option<(u32, u32)>,
}

impl Route {
    /// The largest number of experts.
    pub const EXPERTS_MAX: u32 = Problem::GROUPS_MAX;
    /// The largest k.
    pub const K_MAX: u32 = 32;
    /// The largest number of groups of experts.
    pub const GROUPS_MAX: u32 = 32;
    /// With more local experts than this, a block has no static shared memory for what sixteen know of them.
    const EXPERTS_OF_SIXTEEN: u32 = 512;

    /// From f32 logits unless said otherwise; experts and k are still to be said.
    pub fn new(scoring: Scoring) -> Self {
        Self { scoring, logits: Format::F32, experts: 0, k: 0, groups: None, is_renormalised: false, local: None }
    }

    /// E, the experts there are: at most [`Route::EXPERTS_MAX`].
    pub fn experts(mut self, experts: u32) -> Self {
        self.experts = experts;
        self
    }

    /// Experts of a token: at most [`Route::K_MAX`].
    pub fn k(mut self, k: u32) -> Self {
        self.k = k;
        self
    }

    /// The format of the logits: f32, f16 or bf16.
    pub fn logits(mut self, format: Format) -> Self {
        self.logits = format;
        self
    }

    /// Experts lie in `groups` groups of the same size, one after the other; a token's experts are of its `kept` best groups.
    pub fn groups(mut self, groups: u32, kept: u32) -> Self {
        self.groups = Some((groups, kept));
        self
    }

    /// The weights of a token's experts sum to 1 (before the scale).
    pub fn renormalised(mut self) -> Self {
        self.is_renormalised = true;
        self
    }

    /// Rows are those of these experts.
    pub fn local(mut self, experts: Range<u32>) -> Self {
        self.local = Some((experts.start, experts.end));
        self
    }

    /// What chooses, and where weights come from.
    #[must_use]
    pub fn scoring(&self) -> Scoring {
        self.scoring
    }

    /// The format of the logits; none where ids are given.
    #[must_use]
    pub fn logits_format(&self) -> Option<Format> {
        (self.scoring != Scoring::Given).then_some(self.logits)
    }

    /// E.
    #[must_use]
    pub fn expert_count(&self) -> u32 {
        self.experts
    }

    /// Experts of a token.
    #[must_use]
    pub fn experts_per_token(&self) -> u32 {
        self.k
    }

    /// Groups of experts, and how many of them a token's experts are of; (1, 1) where there are none.
    #[must_use]
    pub fn group_counts(&self) -> (u32, u32) {
        self.groups.unwrap_or((1, 1))
    }

    /// Whether the weights of a token's experts sum to 1.
    #[must_use]
    pub fn is_renormalised(&self) -> bool {
        self.is_renormalised
    }

    /// The experts that rows are made for: all, unless a range was said.
    #[must_use]
    pub fn local_experts(&self) -> Range<u32> {
        self.local.map_or(0..self.experts, |(first, end)| first..end)
    }

    /// Blocks at most of the cluster that routes few tokens.
    pub(crate) fn cluster(&self) -> u32 {
        if self.local_experts().len() <= Self::EXPERTS_OF_SIXTEEN as usize { 16 } else { PORTABLE_CLUSTER }
    }

    /// Where the lists of `tokens` tokens lie, in one piece of memory of i32 numbers.
    #[must_use]
    pub fn lists(&self, tokens: u32) -> RouteLists {
        let (experts, rows) = (self.local_experts().len(), tokens as usize * self.k as usize);
        let mut end = 0;
        // 16 bytes at a time.
        let mut next = |length: usize| {
            let begin: usize = end;
            // A k that no route has is asked for, too.
            end = begin.saturating_add(length.next_multiple_of(4));
            begin..begin.saturating_add(length)
        };
        RouteLists {
            offsets: next(experts + 1),
            tiles_before: next(experts + 1),
            hit: next(experts),
            summary: next(4),
            rows: next(rows),
            slots: next(rows),
            positions: next(rows),
            length: end,
        }
    }

    /// Whether a kernel can be made of it.
    ///
    /// # Errors
    /// Unsupported, with the value and its limit.
    pub fn check(&self) -> Result<()> {
        self.checked().map_err(|error| error.context(self.to_string()))
    }

    fn checked(&self) -> Result<()> {
        let Self { scoring, logits, experts, k, groups, is_renormalised, local } = *self;
        let within = |what: &str, value: u32, most: u32, why: &str| match (1..=most).contains(&value) {
            true => Ok(()),
            false => Err(Error::unsupported(format!("{what} = {value}: must be 1 to {most}{why}"))),
        };
        within("experts", experts, Self::EXPERTS_MAX, "")?;
        within("k", k, Self::K_MAX, "")?;
        within("k", k, experts, ", the experts there are")?;
        if let Some((first, end)) = local.filter(|(first, end)| first >= end || *end > experts) {
            return Err(Error::unsupported(format!(
                "local experts {first} to {end}: a range of the {experts} experts"
            )));
        }
        if scoring == Scoring::Given && (groups.is_some() || is_renormalised) {
            return Err(Error::unsupported("given ids are taken as they are, without groups and not renormalised"));
        }
        if scoring != Scoring::Given && logits.is_coded() {
            return Err(Error::unsupported(format!("logits are f32, f16 or bf16, not {logits}")));
        }
        let Some((groups, kept)) = groups else { return Ok(()) };
        if scoring == Scoring::Sigmoid {
            return Err(Error::unsupported("sigmoid without bias has no groups: sigmoid_bias has them"));
        }
        within("groups", groups, Self::GROUPS_MAX, "")?;
        within("kept groups", kept, groups, ", the groups there are")?;
        if !experts.is_multiple_of(groups) {
            return Err(Error::unsupported(format!("{experts} experts do not make {groups} groups of one size")));
        }
        let each = experts / groups;
        if scoring == Scoring::SigmoidBias && each < 2 {
            return Err(Error::unsupported("a group of sigmoid_bias has 2 experts at least, not 1"));
        }
        within("k", k, kept * each, &format!(", the experts of {kept} groups of {each}"))
    }
}

/// Where each list that a [`Route`] makes lies: elements of i32 memory of [`RouteLists::len`] of them. All but the last three
/// lie where they do for any number of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteLists {
    /// E + 1 (here and below, E counts [local](Route::local_experts) experts): the first row of each, and the end of the last: what
    /// [`Operands::offsets`](crate::run::Operands::offsets) takes.
    pub offsets: Range<usize>,
    /// E + 1: for each of `hit` the tiles of those before it, and then the tiles of all.
    pub tiles_before: Range<usize>,
    /// E: the experts that have rows, ascending, and then −1.
    pub hit: Range<usize>,
    /// 4: experts that have rows; tiles; rows; slots that have no row, which is 0 unless experts are elsewhere, or an id that
    /// was given is no expert's, or its token's for the second time.
    pub summary: Range<usize>,
    /// tokens · k: the token of each row; −1 behind the last.
    pub rows: Range<usize>,
    /// tokens · k: the slot of each row, token · k + j; −1 behind the last.
    pub slots: Range<usize>,
    /// tokens · k: the row of each slot; −1 for a slot without one.
    pub positions: Range<usize>,
    length: usize,
}

impl RouteLists {
    /// Elements of all.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.length
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "route.{}", self.scoring)?;
        if let Some(logits) = self.logits_format() {
            write!(f, ":{logits}")?;
        }
        write!(f, ":e{}:k{}", self.experts, self.k)?;
        if let Some((groups, kept)) = self.groups {
            write!(f, ":g{groups}:keep{kept}")?;
        }
        if self.is_renormalised {
            f.write_str(":renormalised")?;
        }
        self.local.map_or(Ok(()), |(first, end)| write!(f, ":local{first}-{end}"))
    }
}

spelled!(Route, "route", parse);

fn parse(text: &str) -> Result<Route> {
    let wrong = |segment: &str| {
        Error::parse(format!("`{segment}`: expected route.SCORING[:LOGITS]:eE:kK[:gG:keepP][:renormalised][:localA-B]"))
    };
    let mut segments = text.split(':').peekable();
    let head = segments.next().unwrap_or_default();
    let mut route = Route::new(head.strip_prefix("route.").ok_or_else(|| wrong(head))?.parse()?);
    if route.scoring != Scoring::Given {
        route.logits = segments.next().unwrap_or_default().parse()?;
    }
    let mut extent = |prefix: &str| {
        let segment = segments.next().unwrap_or_default();
        prefixed(segment, prefix).ok_or_else(|| wrong(segment))
    };
    (route.experts, route.k) = (extent("e")?, extent("k")?);
    if let Some(groups) = segments.next_if(|segment| segment.starts_with('g')) {
        let kept = segments.next().unwrap_or_default();
        let counts = (prefixed(groups, "g"), kept.strip_prefix("keep").and_then(number));
        let (Some(groups), Some(kept)) = counts else { return Err(wrong(groups)) };
        route.groups = Some((groups, kept));
    }
    route.is_renormalised = segments.next_if_eq(&"renormalised").is_some();
    if let Some(local) = segments.next_if(|segment| segment.starts_with("local")) {
        let ends = local.strip_prefix("local").and_then(|ends| ends.split_once('-'));
        let ends = ends.and_then(|(first, end)| Some((number(first)?, number(end)?)));
        route.local = Some(ends.ok_or_else(|| wrong(local))?);
    }
    match segments.next() {
        Some(rest) => Err(wrong(rest)),
        None => Ok(route),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(route: Route) -> String {
        let error = route.check().unwrap_err();
        assert!(error.is_unsupported(), "{error:?}");
        error.to_string().rsplit(": ").next().unwrap_or_default().to_owned()
    }

    #[test]
    fn spellings_are_read_as_written_and_no_other() {
        for text in [
            "route.softmax:bf16:e128:k8:renormalised",
            "route.sigmoid:f16:e16:k1",
            "route.sigmoid_bias:f32:e256:k8:g8:keep4:renormalised",
            "route.given:e60:k22",
            "route.given:e60:k22:local0-30",
            "route.softmax:f32:e160:k6:g8:keep3:renormalised:local159-160",
        ] {
            assert_eq!(text.parse::<Route>().unwrap().to_string(), text);
            assert!(text.parse::<Route>().unwrap().check().is_ok());
        }
        for text in [
            "route.softmax:e8:k2",
            "route.given:f32:e8:k2",
            "route.softmax:f32:e08:k2",
            "route.softmax:f32:e8:k2:",
            "route.softmax:f32:e8:k2:g2",
            "route.softmax:f32:e8:k2:local4",
            "route.softmax:f32:e8:k2:local04-8",
            "route.softmax:f32:e8:k2:local0-4:renormalised",
            "softmax:f32:e8:k2",
            "route.softmax:f32:k2:e8",
            "route.max:f32:e8:k2",
            "",
        ] {
            assert!(text.parse::<Route>().unwrap_err().is_parse(), "{text}");
        }
    }

    #[test]
    fn what_no_kernel_can_be_made_of_is_refused_with_both_numbers() {
        let softmax = Route::new(Scoring::Softmax).experts(64).k(8);
        assert!(softmax.check().is_ok());
        assert_eq!(refusal(softmax.experts(1025)), "must be 1 to 1024");
        assert_eq!(refusal(softmax.experts(0)), "must be 1 to 1024");
        assert_eq!(refusal(softmax.k(33)), "must be 1 to 32");
        assert_eq!(refusal(softmax.k(0)), "must be 1 to 32");
        assert_eq!(refusal(softmax.experts(7)), "must be 1 to 7, the experts there are");
        assert_eq!(refusal(softmax.groups(8, 9)), "must be 1 to 8, the groups there are");
        assert_eq!(refusal(softmax.groups(16, 1)), "must be 1 to 4, the experts of 1 groups of 4");
        assert!(refusal(softmax.groups(7, 2)).contains("64 experts do not make 7 groups"));
        assert!(refusal(softmax.logits(Format::Nvfp4)).contains("not nvfp4"));
        assert!(refusal(Route::new(Scoring::Given).experts(8).k(2).renormalised()).contains("as they are"));
        assert_eq!(refusal(softmax.local(8..8)), "a range of the 64 experts");
        assert_eq!(refusal(softmax.local(60..65)), "a range of the 64 experts");
        assert!(softmax.experts(1025).check().unwrap_err().to_string().contains("experts = 1025"));
    }

    #[test]
    fn lists_lie_one_behind_the_other() {
        let lists = Route::new(Scoring::Given).experts(60).k(3).lists(5);
        assert_eq!((lists.offsets.clone(), lists.tiles_before.clone()), (0..61, 64..125));
        assert_eq!((lists.hit.clone(), lists.summary.clone()), (128..188, 188..192));
        assert_eq!((lists.rows.clone(), lists.slots.clone(), lists.positions.clone()), (192..207, 208..223, 224..239));
        assert_eq!(lists.len(), 240);
        assert_eq!(Route::new(Scoring::Given).experts(60).k(3).lists(0).len(), 192);
        let local = Route::new(Scoring::Given).experts(60).k(3).local(10..20).lists(5);
        assert_eq!((local.offsets.len(), local.hit.len(), local.rows.len()), (11, 10, 15));
        let illegal = Route::new(Scoring::Given).experts(u32::MAX).k(u32::MAX);
        assert!(illegal.check().is_err() && illegal.lists(u32::MAX).len() == usize::MAX);
    }
}
