//! Data directories as files: copied as snapshots and back, and removed.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Context;

use crate::process::Account;

/// Copies a stopped server's data directory. Blocks are shared where the filesystem can (reflink),
/// else copied. A half-made copy never has the name `to`.
///
/// # Errors
/// When something cannot be read or written; nothing named `to` exists then.
pub fn copy_data(from: &Path, to: &Path, account: Option<&Account>) -> anyhow::Result<()> {
    let half = to.with_extension("half");
    remove_data(&half)?;
    for entry in walkdir::WalkDir::new(from) {
        let entry = entry.with_context(|| format!("cannot list {}", from.display()))?;
        let target = half.join(entry.path().strip_prefix(from)?);
        copy_one(&entry, &target, account).with_context(|| format!("cannot copy {} to {}", entry.path().display(), target.display()))?;
    }
    std::fs::rename(&half, to).with_context(|| format!("cannot give the copied data directory its name {}", to.display()))
}

fn copy_one(entry: &walkdir::DirEntry, target: &Path, account: Option<&Account>) -> anyhow::Result<()> {
    let kind = entry.file_type();
    if kind.is_dir() {
        std::fs::create_dir_all(target)?;
    } else if kind.is_symlink() {
        std::os::unix::fs::symlink(std::fs::read_link(entry.path())?, target)?;
    } else if kind.is_file() {
        reflink_copy::reflink_or_copy(entry.path(), target)?;
    } else {
        // Sockets and pipes belong to a server that ran, not to its data.
        return Ok(());
    }
    if !kind.is_symlink() {
        let mode = entry.metadata()?.permissions().mode() & 0o7777;
        std::fs::set_permissions(target, std::fs::Permissions::from_mode(mode))?;
    }
    if let Some(account) = account {
        account.own(target)?;
    }
    Ok(())
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

    #[test]
    fn a_copy_has_the_same_files_modes_and_links() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        std::fs::create_dir_all(from.join("base")).unwrap();
        std::fs::write(from.join("base/1"), "data").unwrap();
        std::fs::set_permissions(from.join("base"), std::fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink("base/1", from.join("link")).unwrap();
        std::fs::create_dir_all(dir.path().join("to.half")).unwrap();
        copy_data(&from, &to, None).unwrap();
        assert_eq!(std::fs::read_to_string(to.join("link")).unwrap(), "data");
        assert_eq!(std::fs::metadata(to.join("base")).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(!dir.path().join("to.half").exists());
    }

    #[test]
    fn a_copy_of_nothing_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("to");
        assert!(copy_data(&dir.path().join("none"), &to, None).is_err());
        assert!(!to.exists());
    }
}
