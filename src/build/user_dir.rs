//! Where the user's files of this crate live.

use std::ffi::OsString;
use std::path::PathBuf;

/// `$WARPSMITH_CACHE_DIR`, else `$XDG_CACHE_HOME/warpsmith`, else `~/.cache/warpsmith`; none if no variable says.
///
/// A relative `XDG_CACHE_HOME` is ignored, as its specification asks.
pub(crate) fn user_cache_dir(var: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| var(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("WARPSMITH_CACHE_DIR")
        .or_else(|| set("XDG_CACHE_HOME").filter(|path| path.is_absolute()).map(|path| path.join("warpsmith")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/warpsmith")))
}

/// What to say when [`user_cache_dir`] gives nothing.
pub(crate) const NO_USER_DIR: &str = "none of WARPSMITH_CACHE_DIR, XDG_CACHE_HOME and HOME is set";

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(vars: &[(&str, &str)]) -> Option<PathBuf> {
        user_cache_dir(|name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn the_most_specific_variable_wins() {
        let all = [("HOME", "/h"), ("XDG_CACHE_HOME", "/x"), ("WARPSMITH_CACHE_DIR", "/w")];
        assert_eq!(dir(&all), Some("/w".into()));
        assert_eq!(dir(&all[..2]), Some("/x/warpsmith".into()));
        assert_eq!(dir(&all[..1]), Some("/h/.cache/warpsmith".into()));
        assert_eq!(dir(&[]), None);
        assert_eq!(dir(&[("HOME", "/h"), ("XDG_CACHE_HOME", "x"), ("WARPSMITH_CACHE_DIR", "")]), dir(&all[..1]));
    }
}
