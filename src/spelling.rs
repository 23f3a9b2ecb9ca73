//! The few helpers that the spellings share.

use crate::error::{Error, Result};

/// Declares a closed set of words: an enum value and its one spelling, with `Display` and `FromStr` that agree.
macro_rules! words {
    ($type:ident, $what:literal, { $($(#[$when:meta])? $value:ident => $word:literal),+ $(,)? }) => {
        impl $type {
            /// Every value, in the order of the documentation.
            pub const ALL: &'static [$type] = &[$($(#[$when])? $type::$value),+];

            /// The word for it in every spelling.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $($(#[$when])? $type::$value => $word),+ }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.word())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::error::Error;

            fn from_str(text: &str) -> $crate::error::Result<Self> {
                $crate::spelling::word(Self::ALL, Self::word, $what, text)
            }
        }
    };
}
pub(crate) use words;

/// Gives a type with `Display` and `FromStr` the same spelling in serde's formats; with what it is and who reads it, `FromStr` as
/// well, whose errors say so.
macro_rules! spelled {
    ($type:ident, $what:literal, $read:path) => {
        impl std::str::FromStr for $type {
            type Err = $crate::error::Error;

            fn from_str(text: &str) -> $crate::error::Result<Self> {
                $read(text).map_err(|error| error.context(format!(concat!($what, " `{}`"), text)))
            }
        }

        $crate::spelling::spelled!($type);
    };
    ($type:ident) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use spelled;

/// Finds the value whose word is `text`; the refusal lists the words there are.
pub(crate) fn word<T: Copy>(all: &[T], word_of: fn(T) -> &'static str, what: &str, text: &str) -> Result<T> {
    all.iter().copied().find(|value| word_of(*value) == text).ok_or_else(|| {
        let known: Vec<_> = all.iter().map(|value| word_of(*value)).collect();
        Error::parse(format!("unknown {what} `{text}`: expected {}", known.join(", ")))
    })
}

/// Reads `text` as a letter (or word) followed by a decimal number without sign or leading zeros.
pub fn prefixed(text: &str, prefix: &str) -> Option<u32> {
    number(text.strip_prefix(prefix)?)
}

/// Reads a decimal number as `Display` writes it, so that a spelling has one form only.
pub fn number(text: &str) -> Option<u32> {
    let canonical = text == "0" || (!text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit()));
    if canonical { text.parse().ok() } else { None }
}
