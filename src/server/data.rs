//! Data directories as files: copied as snapshots and back, and removed.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, ensure};

use crate::process::{Account, stop_if_interrupted};

use super::Area;

/// Copies the data directory of a stopped server, or an installation. Blocks are shared where the
/// filesystem can (reflink), else copied; modes are kept and `account` becomes the owner. Nothing is
/// synced. A half-made copy never has the name `to`: it is made beside it and renamed.
///
/// # Errors
/// When `to` exists, `from` is no directory, a link leads out of `from`, something cannot be read or
/// written, or the user interrupts. Nothing named `to` was made then, and nothing is left beside it.
pub fn copy_data(from: &Path, to: &Path, account: Option<&Account>) -> anyhow::Result<()> {
    ensure!(from.is_dir(), "the directory {} that should be copied is not there", from.display());
    ensure!(!to.exists(), "{} exists already; remove it before another directory is copied to it", to.display());
    let half = half_made(to)?;
    // Left by a dbisect that was killed while it copied.
    remove_data(&half)?;
    let copied = copy_tree(from, &half, account)
        .and_then(|()| std::fs::rename(&half, to).with_context(|| format!("cannot give the copied directory its name {}", to.display())));
    if copied.is_err()
        && let Err(error) = remove_data(&half)
    {
        tracing::warn!("the rest of a failed copy stays: {error:#}");
    }
    copied
}

/// The name that a copy has until it is whole. The whole name of `to` is in it: directories may have
/// dots in their names, and two copies must not share one temporary name.
fn half_made(to: &Path) -> anyhow::Result<PathBuf> {
    let name = to.file_name().with_context(|| format!("a directory cannot be named {}", to.display()))?;
    let mut half = name.to_owned();
    half.push(".half");
    Ok(to.with_file_name(half))
}

fn copy_tree(from: &Path, half: &Path, account: Option<&Account>) -> anyhow::Result<()> {
    for entry in walkdir::WalkDir::new(from) {
        stop_if_interrupted()?;
        let entry = entry.with_context(|| format!("cannot list {}", from.display()))?;
        let inner = entry.path().strip_prefix(from).with_context(|| format!("{} is not below {}", entry.path().display(), from.display()))?;
        // Joining an empty path would append a slash, which a directory's name must not end with.
        let target = if inner.as_os_str().is_empty() { half.to_owned() } else { half.join(inner) };
        copy_one(&entry, inner, &target, account).with_context(|| format!("cannot copy {} to {}", entry.path().display(), target.display()))?;
    }
    Ok(())
}

fn copy_one(entry: &walkdir::DirEntry, inner: &Path, target: &Path, account: Option<&Account>) -> anyhow::Result<()> {
    let kind = entry.file_type();
    if kind.is_symlink() {
        let link = std::fs::read_link(entry.path())?;
        ensure!(stays_inside(inner, &link), "it is a link to {}, outside of the directory, so a copy would share data with the original", link.display());
        std::os::unix::fs::symlink(link, target)?;
    } else if kind.is_dir() || kind.is_file() {
        if kind.is_dir() {
            std::fs::create_dir(target)?;
        } else {
            reflink_copy::reflink_or_copy(entry.path(), target)?;
        }
        let mode = entry.metadata()?.permissions().mode() & 0o7777;
        std::fs::set_permissions(target, std::fs::Permissions::from_mode(mode))?;
    } else {
        // Sockets and pipes belong to a server that ran, not to its data.
        return Ok(());
    }
    account.map_or(Ok(()), |account| account.own(target))
}

/// Whether a link at `inner` (relative to the top) points to something below the top.
fn stays_inside(inner: &Path, link: &Path) -> bool {
    let mut depth = inner.components().count().saturating_sub(1);
    link.components().all(|part| match part {
        Component::Normal(_) => {
            depth += 1;
            true
        }
        Component::CurDir => true,
        Component::ParentDir if depth > 0 => {
            depth -= 1;
            true
        }
        Component::ParentDir | Component::RootDir | Component::Prefix(_) => false,
    })
}

/// Makes `data`, owned by the server's account. The account may be unable to make it itself.
pub(super) fn make_empty(data: &Path, area: &Area) -> anyhow::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(data) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let mut entries = std::fs::read_dir(data).with_context(|| format!("cannot list {}", data.display()))?;
            ensure!(entries.next().is_none(), "a new data directory was to be made in {}, but there is something in it", data.display());
        }
        Err(error) => return Err(error).with_context(|| format!("cannot make the data directory {}", data.display())),
    }
    area.account.as_ref().map_or(Ok(()), |account| account.own(data))
}

/// Removes a data directory; one that is not there is removed already.
///
/// # Errors
/// When something cannot be removed.
pub fn remove_data(dir: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).with_context(|| format!("cannot remove {}", dir.display())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(dir: &Path) -> PathBuf {
        let from = dir.join("from");
        std::fs::create_dir_all(from.join("base")).unwrap();
        std::fs::write(from.join("base/1"), "data").unwrap();
        std::fs::set_permissions(from.join("base"), std::fs::Permissions::from_mode(0o700)).unwrap();
        std::fs::set_permissions(from.join("base/1"), std::fs::Permissions::from_mode(0o600)).unwrap();
        from
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_copy_has_the_same_files_modes_and_links() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (source(dir.path()), dir.path().join("to"));
        std::os::unix::fs::symlink("base/1", from.join("link")).unwrap();
        copy_data(&from, &to, None).unwrap();
        assert_eq!(std::fs::read_to_string(to.join("link")).unwrap(), "data");
        let mode = |path: &str| std::fs::metadata(to.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("base"), mode("base/1")), (0o700, 0o600));
        std::fs::write(to.join("base/1"), "other").unwrap();
        assert_eq!(std::fs::read_to_string(from.join("base/1")).unwrap(), "data", "a copy shares nothing that is written later");
        assert_eq!(names(dir.path()), ["from", "to"]);
    }

    #[test]
    fn what_a_killed_copy_left_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (source(dir.path()), dir.path().join("pg15.cx9a2a_small"));
        std::fs::create_dir_all(dir.path().join("pg15.cx9a2a_small.half/stale")).unwrap();
        // The temporary name of another copy, whose name differs only after the dot.
        std::fs::create_dir_all(dir.path().join("pg15.cx9a2b_small.half")).unwrap();
        copy_data(&from, &to, None).unwrap();
        assert_eq!(names(&to), ["base"]);
        assert_eq!(names(dir.path()), ["from", "pg15.cx9a2a_small", "pg15.cx9a2b_small.half"]);
    }

    #[test]
    fn a_failed_copy_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("to");
        assert!(copy_data(&dir.path().join("none"), &to, None).unwrap_err().to_string().contains("is not there"));
        let from = source(dir.path());
        std::os::unix::fs::symlink("/elsewhere", from.join("z")).unwrap();
        let error = format!("{:#}", copy_data(&from, &to, None).unwrap_err());
        assert!(error.contains("outside of the directory"), "{error}");
        assert_eq!(names(dir.path()), ["from"]);
    }

    #[test]
    fn an_existing_target_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (source(dir.path()), dir.path().join("to"));
        std::fs::create_dir(&to).unwrap();
        assert!(copy_data(&from, &to, None).unwrap_err().to_string().contains("exists already"));
        assert!(names(&to).is_empty());
    }

    #[test]
    fn links_are_followed_in_thought_only() {
        let inside = |inner: &str, link: &str| stays_inside(Path::new(inner), Path::new(link));
        assert!(inside("base/link", "../pg_wal") && inside("link", "base/./1") && inside("a/b/link", "../../c"));
        assert!(!inside("link", "/base") && !inside("link", "../other") && !inside("a/link", "b/../../../c"));
    }

    #[test]
    fn a_directory_with_something_in_it_is_not_initialised() {
        let dir = tempfile::tempdir().unwrap();
        let area = Area { dir: dir.path().to_owned(), account: None };
        make_empty(&dir.path().join("new"), &area).unwrap();
        make_empty(&dir.path().join("new"), &area).unwrap();
        std::fs::write(dir.path().join("new/file"), "").unwrap();
        assert!(make_empty(&dir.path().join("new"), &area).unwrap_err().to_string().contains("something in it"));
    }
}
