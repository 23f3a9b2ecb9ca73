//! Why a kernel is not in a cache, although one of its name is.

use std::fmt;

use serde::Serialize;

use super::key::Recipe;
use crate::build::Provenance;

/// Why no tier has a kernel; printed as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "why", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Miss {
    /// There is none of this name for this target.
    Unknown,
    /// There is one, made otherwise: of all that were found, the one with the fewest changes.
    Changed {
        /// The file.
        place: String,
        /// What differs, at least one thing.
        changes: Vec<KeyChange>,
    },
    /// It is there and cannot be used.
    Unusable {
        /// The file.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// One thing in which a kernel that was found differs from the one that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
#[non_exhaustive]
pub enum KeyChange {
    /// The compiler, by identity.
    Toolchain {
        /// Of what was found.
        was: String,
        /// Of what is asked for.
        is: String,
    },
    /// The CUDA, by digest in hexadecimal.
    Source {
        /// Of what was found.
        was: String,
        /// Of what is asked for.
        is: String,
    },
    /// Compiler options.
    Options {
        /// Of what was found.
        was: Vec<String>,
        /// Of what is asked for.
        is: Vec<String>,
    },
}

impl Miss {
    /// What stands between the kernel that is asked for and the nearest of those `found`, each with its place. Without
    /// a toolchain, any would do.
    pub(super) fn nearest(
        wanted: &Recipe,
        toolchain: Option<&str>,
        found: impl Iterator<Item = (String, Provenance)>,
    ) -> Self {
        found
            .map(|(place, from)| (place, changes(wanted, toolchain, &from)))
            .filter(|(_, changes)| !changes.is_empty())
            .min_by_key(|(_, changes)| changes.len())
            .map_or(Self::Unknown, |(place, changes)| Self::Changed { place, changes })
    }
}

fn changes(wanted: &Recipe, toolchain: Option<&str>, found: &Provenance) -> Vec<KeyChange> {
    let toolchain = toolchain
        .filter(|wanted| *wanted != found.toolchain())
        .map(|wanted| KeyChange::Toolchain { was: found.toolchain().to_owned(), is: wanted.to_owned() });
    let source = (wanted.source() != found.source())
        .then(|| KeyChange::Source { was: found.source().to_owned(), is: wanted.source().to_owned() });
    let options = (!wanted.options().iter().eq(found.code_options()))
        .then(|| KeyChange::Options { was: found.code_options().cloned().collect(), is: wanted.options().to_vec() });
    [toolchain, source, options].into_iter().flatten().collect()
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("not in cache: no kernel of this name and target"),
            Self::Unusable { place, reason } => write!(f, "not in cache because {place} cannot be used: {reason}"),
            Self::Changed { place, changes } => {
                f.write_str("not in cache because ")?;
                for (index, change) in changes.iter().enumerate() {
                    write!(f, "{}{change}", if index == 0 { "" } else { ", " })?;
                }
                write!(f, " (found {place})")
            }
        }
    }
}

impl fmt::Display for KeyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Toolchain { was, is } => match (version(was), version(is)) {
                (Some(was), Some(is)) if was != is => write!(f, "NVRTC {was} → {is}"),
                // One version in two builds.
                _ => write!(f, "NVRTC {was} → {is}"),
            },
            Self::Source { was, is } => write!(f, "CUDA source {} → {}", short(was), short(is)),
            Self::Options { was, is } => write!(f, "options {} → {}", was.join(" "), is.join(" ")),
        }
    }
}

/// The version in an identity: `13.0.88` of `nvrtc-13.0.88+1.2`.
fn version(identity: &str) -> Option<&str> {
    identity.strip_prefix("nvrtc-")?.split('+').next()
}

fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_said_in_words() {
        let toolchain =
            |was: &str, is: &str| KeyChange::Toolchain { was: was.to_owned(), is: is.to_owned() }.to_string();
        assert_eq!(toolchain("nvrtc-13.0.88+1.2", "nvrtc-13.5.37+1.2"), "NVRTC 13.0.88 → 13.5.37");
        assert_eq!(toolchain("nvrtc-13+1.2", "nvrtc-13+1.3"), "NVRTC nvrtc-13+1.2 → nvrtc-13+1.3");
        let changes = vec![
            KeyChange::Source { was: "0123456789abcdef".to_owned(), is: "fedcba9876543210".to_owned() },
            KeyChange::Options { was: vec!["-a".to_owned()], is: vec!["-a".to_owned(), "-b".to_owned()] },
        ];
        assert_eq!(
            Miss::Changed { place: "/p".to_owned(), changes }.to_string(),
            "not in cache because CUDA source 0123456789ab → fedcba987654, options -a → -a -b (found /p)"
        );
    }
}
