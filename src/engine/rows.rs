//! Which M a problem is asked for: ranges, in one spelling.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::de::{SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result};
use crate::spec::Problem;
use crate::spelling::number;

/// Numbers of rows (of all groups together), 1 to [`Problem::M_MAX`]: ranges that are ascending and do not touch.
///
/// A range is spelled as in the tuning table, `1..=512`, a single number as itself; ranges are separated by commas. What
/// is read may be in any order and overlap; `Display` writes it sorted and merged.
///
/// ```
/// use warpsmith::engine::Rows;
/// let rows: Rows = "256, 1..=64, 32..=128".parse()?;
/// assert_eq!(rows.to_string(), "1..=128, 256");
/// assert!(rows.contains(100) && !rows.contains(200));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rows(Vec<(u32, u32)>);

impl Rows {
    /// One range.
    ///
    /// # Errors
    /// Data, if it is empty or leaves 1 to [`Problem::M_MAX`].
    pub fn new(range: RangeInclusive<u32>) -> Result<Self> {
        let (first, last) = range.into_inner();
        if first == 0 || first > last || last > Problem::M_MAX {
            let most = Problem::M_MAX;
            return Err(Error::data(format!("{first}..={last} rows: must ascend, from 1 or more, to at most {most}")));
        }
        Ok(Self(vec![(first, last)]))
    }

    /// These and others.
    #[must_use]
    pub fn and(mut self, others: &Rows) -> Self {
        self.0.extend_from_slice(&others.0);
        Self::merged(self.0)
    }

    /// All of these.
    pub(super) fn all<'a>(rows: impl IntoIterator<Item = &'a Rows>) -> Self {
        Self::merged(rows.into_iter().flat_map(|rows| rows.0.iter().copied()).collect())
    }

    /// Ranges in any order, sorted once however many there are.
    fn merged(mut ranges: Vec<(u32, u32)>) -> Self {
        // Two sorted runs are merged, which takes no longer than to go through them.
        ranges.sort();
        ranges.dedup_by(|next, before| {
            let touches = next.0 <= before.1 + 1;
            if touches {
                before.1 = before.1.max(next.1);
            }
            touches
        });
        Self(ranges)
    }

    /// The ranges, ascending.
    pub fn ranges(&self) -> impl Iterator<Item = RangeInclusive<u32>> {
        self.0.iter().map(|(first, last)| *first..=*last)
    }

    /// Whether `m` is one of them.
    #[must_use]
    pub fn contains(&self, m: u32) -> bool {
        self.meets(m..=m)
    }

    /// Whether some of `range` is among them.
    #[must_use]
    pub fn meets(&self, range: RangeInclusive<u32>) -> bool {
        let reaching = self.0.partition_point(|(_, last)| last < range.start());
        self.0.get(reaching).is_some_and(|(first, _)| first <= range.end())
    }
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { ", " })?;
            match *range {
                (first, last) if first == last => write!(f, "{first}")?,
                (first, last) => write!(f, "{first}..={last}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Rows {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::parse(format!("rows `{text}`: expected M or FROM..=TO, several with commas between"));
        let rows = text.split(',').map(str::trim).map(|part| {
            let whole = |part| number(part).ok_or_else(wrong);
            let range = match part.split_once("..=") {
                Some((first, last)) => whole(first)?..=whole(last)?,
                None => whole(part)?..=whole(part)?,
            };
            Self::new(range)
        });
        Ok(Self::all(&rows.collect::<Result<Vec<_>>>()?))
    }
}

/// As a text, or a list of one text a range.
impl Serialize for Rows {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let [_] = self.0.as_slice() {
            return serializer.collect_str(self);
        }
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for range in &self.0 {
            list.serialize_element(&Self(vec![*range]).to_string())?;
        }
        list.end()
    }
}

/// From a number, a text, or a list of these.
impl<'de> Deserialize<'de> for Rows {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Rows;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rows: a number, a text such as \"1..=512\", or a list of these")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Rows, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: serde::de::Error>(self, m: i64) -> Result<Rows, E> {
        self.visit_u64(u64::try_from(m).map_err(|_| E::custom(format!("{m} rows")))?)
    }

    fn visit_u64<E: serde::de::Error>(self, m: u64) -> Result<Rows, E> {
        let m = u32::try_from(m).map_err(|_| E::custom(format!("{m} rows")))?;
        Rows::new(m..=m).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Rows, A::Error> {
        let mut all = Vec::new();
        while let Some(rows) = list.next_element::<Rows>()? {
            all.push(rows);
        }
        match all.is_empty() {
            true => Err(serde::de::Error::custom("no rows")),
            false => Ok(Rows::all(&all)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_range_is_refused_with_its_text() {
        for (text, expected) in [
            ("", "``"),
            ("a", "`a`"),
            ("1-8", "`1-8`"),
            ("1..8", "`1..8`"),
            ("01", "`01`"),
            ("0", "0..=0"),
            ("9..=8", "9..=8"),
            ("1..=16777217", "16777217"),
            ("1,,2", "`1,,2`"),
            ("1 2", "`1 2`"),
        ] {
            let error = text.parse::<Rows>().unwrap_err();
            assert!(error.to_string().contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn neighbours_are_merged() {
        let spelled = |text: &str| text.parse::<Rows>().unwrap().to_string();
        assert_eq!(spelled("5..=8,1..=4"), "1..=8");
        assert_eq!(spelled("5..=8,1..=3"), "1..=3, 5..=8");
        assert_eq!(spelled("1..=100,7,101,16777216"), "1..=101, 16777216");
    }

    proptest! {
        /// Every M that was said is in, no other is, and the spelling is read back.
        #[test]
        fn holds_what_was_said(ranges in proptest::collection::vec((1u32..60, 0u32..9), 1..6)) {
            let text: Vec<_> = ranges.iter().map(|(first, more)| format!("{first}..={}", first + more)).collect();
            let rows: Rows = text.join(",").parse().unwrap();
            for m in 1..80 {
                let said = ranges.iter().any(|(first, more)| (*first..=first + more).contains(&m));
                prop_assert_eq!(rows.contains(m), said);
            }
            prop_assert_eq!(&rows.to_string().parse::<Rows>().unwrap(), &rows);
            prop_assert!(rows.0.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
        }
    }
}
