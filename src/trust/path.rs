//! Judges a path from the root of the file system down.

use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, getxattr_query, statvfs};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::{ALL_WRITE, GROUP_WRITES, ROOT, check_mode, check_owner, mode_lets_others};

/// What is in such a directory only its owner removes or renames.
const STICKY: u32 = 0o1000;

/// What others could change, and how they could.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Untrusted {
    path: PathBuf,
    why: String,
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.why)
    }
}

/// Refuses `path`, if it or anything from `top` down to it is not its owner's alone, or that owner is another user. What
/// is not below `top` is not looked at. Both are canonical.
pub(crate) fn check_below(top: &Path, path: &Path) -> Result<(), Untrusted> {
    let parts = path.ancestors().take_while(|part| part.starts_with(top));
    from_the_top(parts).try_for_each(|part| {
        let judged = look(part).and_then(|about| check_owner(&about).and_then(|()| check_mode(&about)));
        judged.map_err(|why| Untrusted { path: part.to_owned(), why })
    })
}

/// Refuses a file or directory that others could change or replace: each directory above it belongs to this user or to
/// root, and nobody else can write to it. `path` is canonical.
///
/// Who passes cannot be fooled by a change between this and the use of `path`: from the root down, nobody else can
/// rename, replace or write to any part of it.
pub(crate) fn check_path(path: &Path) -> Result<(), Untrusted> {
    let in_here = if path.is_dir() { Some(path) } else { path.parent() };
    from_the_top(path.ancestors()).try_for_each(|part| {
        // In a sticky directory others may put files of their own beside what is there, but not in its place. So it may
        // be on the way (`/tmp`), and may not be the directory that libraries lie in.
        let on_the_way = part != path && Some(part) != in_here;
        let judged = look(part).and_then(|about| judge(part, &about, on_the_way));
        judged.map_err(|why| Untrusted { path: part.to_owned(), why })
    })
}

fn judge(part: &Path, about: &Metadata, on_the_way: bool) -> Result<(), String> {
    let hidden = || is_hidden(about.uid()) && (on_the_way || is_read_only(part));
    check_owner(about).or_else(|why| if hidden() { Ok(()) } else { Err(why) })?;
    let sticky = on_the_way && about.mode() & STICKY != 0;
    let all = about.mode() & ALL_WRITE != 0;
    let group = about.mode() & GROUP_WRITES != 0 && (!is_private(about.gid()) || has_acl(part));
    if !sticky && (all || group) { Err(mode_lets_others(about)) } else { Ok(()) }
}

fn from_the_top<'p>(parts: impl Iterator<Item = &'p Path>) -> impl Iterator<Item = &'p Path> {
    parts.collect::<Vec<_>>().into_iter().rev()
}

fn look(part: &Path) -> Result<Metadata, String> {
    // Of a link itself, should there be one by now: links let everybody write, so it is refused.
    fs::symlink_metadata(part).map_err(|error| error.to_string())
}

/// Whether nobody is in this group but this user and root, as far as the system's own files tell. A group that is not
/// in them (of a directory service, say) has anybody in it.
fn is_private(group: u32) -> bool {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let me = geteuid().as_raw();
    let members = members(group, &read("/etc/passwd"), &read("/etc/group"));
    members.is_some_and(|members| members.iter().all(|user| *user == me || *user == ROOT))
}

/// The users in a group, from the text of `/etc/passwd` and `/etc/group`; none if they do not tell.
fn members(group: u32, passwd: &str, groups: &str) -> Option<Vec<u32>> {
    let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
    let users: Vec<(String, u32, u32)> = passwd
        .lines()
        .map(fields)
        .filter_map(|user| Some((user.first()?.clone(), user.get(2)?.parse().ok()?, user.get(3)?.parse().ok()?)))
        .collect();
    let listed = groups.lines().map(fields).find(|line| line.get(2).and_then(|id| id.parse().ok()) == Some(group))?;
    let names = listed.get(3)?.split(',').filter(|name| !name.is_empty());
    let named = names.map(|name| users.iter().find(|user| user.0 == name).map(|user| user.1));
    let primary = users.iter().filter(|user| user.2 == group).map(|user| Some(user.1));
    named.chain(primary).collect()
}

/// Whether more than owner and group may have rights: the group's bits of such a file's mode are only their upper bound.
fn has_acl(part: &Path) -> bool {
    match getxattr_query(part, c"system.posix_acl_access") {
        Ok(_) => true,
        Err(error) => !matches!(error, Errno::NODATA | Errno::NOTSUP),
    }
}

/// Whether this is what all users are shown as that a container does not know, and root is one of them. Then `/` and
/// `/home` are nobody's, and are taken for root's. But what is to be run is not: it may be anybody's, unless it is
/// mounted read-only.
fn is_hidden(owner: u32) -> bool {
    let shown_as = fs::read_to_string("/proc/sys/kernel/overflowuid").ok().and_then(|text| text.trim().parse().ok());
    shown_as == Some(owner) && !knows_root()
}

fn is_read_only(part: &Path) -> bool {
    statvfs(part).is_ok_and(|mount| mount.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Whether root has a number in this user namespace.
fn knows_root() -> bool {
    match fs::read_to_string("/proc/self/uid_map") {
        Ok(map) => map.lines().any(|line| line.split_whitespace().next() == Some("0")),
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        if !geteuid().is_root() {
            eprintln!("SKIPPED: only root gives a file away");
            return;
        }
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().canonicalize().unwrap().join("file");
        fs::write(&path, "").unwrap();
        chown(&path, Some(65_534), None).unwrap();
        assert_eq!(check_path(&path).unwrap_err().path, path);
    }

    #[test]
    fn a_path_is_as_good_as_the_worst_part_of_it() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        let (above, dir) = (top.join("above"), top.join("above/dir"));
        fs::create_dir_all(&dir).unwrap();
        let file = dir.join("file");
        fs::write(&file, "").unwrap();
        [&top, &above, &dir].into_iter().for_each(|part| set(part, 0o755));
        set(&file, 0o644);
        assert_eq!(check_path(&file), Ok(()));
        assert_eq!(check_below(&top, &file), Ok(()));
        // The part, a mode that is bad for it, and whether a sticky directory is good there.
        for (part, sticky_is_good) in [(&above, true), (&dir, false), (&file, false)] {
            let was = fs::metadata(part).unwrap().mode();
            set(part, 0o757);
            assert_eq!(check_path(&file).unwrap_err().path, *part);
            assert_eq!(check_below(&top, &file).unwrap_err().path, *part);
            set(part, 0o1777);
            assert_eq!(check_path(&file).is_ok(), sticky_is_good, "{}", part.display());
            assert_eq!(check_below(&top, &file).unwrap_err().path, *part);
            set(part, was);
        }
        // A group that has nobody else in it may write, but not to what this crate makes itself.
        set(&dir, 0o775);
        assert_eq!(check_path(&file).is_ok(), is_private(fs::metadata(&dir).unwrap().gid()));
        assert_eq!(check_below(&top, &file).unwrap_err().path, dir);
        set(&dir, 0o755);
        set(&top, 0o757);
        assert_eq!(check_below(&dir, &file), Ok(()), "what is above is not looked at");
        set(&top, 0o755);
        // As it was before it was made a link: links are nobody's.
        symlink(&file, dir.join("link")).unwrap();
        assert_eq!(check_path(&dir.join("link")).unwrap_err().path, dir.join("link"));
        assert_eq!(check_path(&dir.join("none")).unwrap_err().path, dir.join("none"));
    }

    #[test]
    fn who_is_in_a_group() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\nbob:x:1001:1000::/:/bin/sh\n\
                      carol:x:1002:1002::/:/bin/sh\nno line\n";
        let groups = "root:x:0:\nstaff:x:50:\nalice:x:1000:\ncarol:x:1002:carol,root\nmixed:x:7:alice,carol\n\
                      foreign:x:8:dave\nshort:x:9\n";
        let of = |group| members(group, passwd, groups);
        assert_eq!(of(0), Some(vec![0]));
        assert_eq!(of(50), Some(vec![]));
        assert_eq!(of(1000), Some(vec![1000, 1001]), "whose first group it is");
        assert_eq!(of(1002), Some(vec![1002, 0, 1002]));
        assert_eq!(of(7), Some(vec![1000, 1002]));
        assert_eq!((of(8), of(9), of(10)), (None, None, None), "nobody knows who that is");
    }
}
