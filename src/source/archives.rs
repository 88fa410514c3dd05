//! Archives that a build needs beside its source: looked for in the cache, then in
//! `DBISECT_ARCHIVES`, then downloaded; never used unless their hash is the one wanted.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::process::{Held, Program};

use super::archive;
use super::debian::sha256_of;
use super::tree::{SourceTree, open_or_make};

/// Directory of archives that were fetched by hand, for machines without a network.
pub(super) const VARIABLE: &str = "DBISECT_ARCHIVES";
/// Longest time for a download of some hundred megabytes.
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(3600);

/// An archive with known content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archive {
    /// Name of the directory that it becomes.
    pub name: String,
    /// File name.
    pub file: String,
    /// SHA-256 of the file, in hexadecimal digits.
    pub sha256: String,
    /// Where it is published.
    pub url: String,
    /// The part of it that is needed: paths that begin with this.
    pub part: String,
}

/// The archive as a tree, fetched where it is missing.
pub(super) fn obtain(cache: &Path, archive: &Archive, by_hand: Option<&str>, say: &dyn Fn(&str)) -> anyhow::Result<SourceTree> {
    let store = cache.join("git").join(format!("archive-{}.git", archive.name));
    let note = store.join("dbisect-tree");
    let _held = Held::take(&store.with_extension("lock"), &format!("fetching {}", archive.file), &|holder| say(&format!("waiting for {}", holder.0)))?;
    // The note is written last, and is for one content only.
    let kept = std::fs::read_to_string(&note).ok().and_then(|text| text.strip_prefix(&archive.sha256)?.trim().parse::<git2::Oid>().ok());
    let id = match kept {
        Some(id) => id,
        None => {
            let path = file(cache, archive, by_hand, say)?;
            say(&format!("reading {}", archive.file));
            let id = archive::import(&open_or_make(&store)?, &path)?;
            std::fs::write(&note, format!("{} {id}\n", archive.sha256)).with_context(|| format!("cannot write {}", note.display()))?;
            id
        }
    };
    Ok(SourceTree {
        store,
        tree: id.to_string(),
        commit: None,
        version: None,
        described: archive.file.clone(),
        patches: Vec::new(),
        submodules: std::collections::BTreeMap::new(),
    })
}

fn file(cache: &Path, archive: &Archive, by_hand: Option<&str>, say: &dyn Fn(&str)) -> anyhow::Result<PathBuf> {
    let own = cache.join("archives").join(&archive.file);
    let given = by_hand.map(|dir| Path::new(dir).join(&archive.file));
    for path in std::iter::once(&own).chain(&given) {
        if path.exists() {
            return checked(path, archive);
        }
    }
    std::fs::create_dir_all(cache.join("archives")).with_context(|| format!("cannot make the directory of {}", own.display()))?;
    say(&format!("fetching {}", archive.url));
    let half = own.with_extension("half");
    Program::new("curl")
        .args(["--fail", "--silent", "--show-error", "--location", "--output"])
        .arg(&half)
        .arg(&archive.url)
        .deadline(DOWNLOAD_LIMIT)
        .output()
        .with_context(|| {
            format!(
                "cannot fetch {}; put the file {} into {} or into the directory that {VARIABLE} names",
                archive.url,
                archive.file,
                cache.join("archives").display()
            )
        })?;
    let half = checked(&half, archive)?;
    std::fs::rename(&half, &own).with_context(|| format!("cannot keep {}", own.display()))?;
    Ok(own)
}

fn checked(path: &Path, archive: &Archive) -> anyhow::Result<PathBuf> {
    let found = sha256_of(path)?;
    if found != archive.sha256 {
        bail!("the archive {} has the SHA-256 {found}, and {} is wanted for {}; remove it and fetch it again", path.display(), archive.sha256, archive.file);
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tarball(dir: &Path) -> (PathBuf, String) {
        let path = dir.join("boost_9_9_9.tar");
        let mut builder = tar::Builder::new(std::fs::File::create(&path).unwrap());
        let text = b"#define BOOST_VERSION 909909\n";
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append_data(&mut header, "boost_9_9_9/boost/version.hpp", &text[..]).unwrap();
        builder.finish().unwrap();
        let sha256 = sha256_of(&path).unwrap();
        (path, sha256)
    }

    fn archive(sha256: &str) -> Archive {
        Archive {
            name: "boost_9_9_9".to_owned(),
            file: "boost_9_9_9.tar".to_owned(),
            sha256: sha256.to_owned(),
            url: "file:///none/boost_9_9_9.tar".to_owned(),
            part: "boost/".to_owned(),
        }
    }

    #[test]
    fn an_archive_is_used_when_its_hash_holds_and_then_kept() {
        let [cache, hand] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let (path, sha256) = tarball(hand.path());
        let obtain = |archive: &Archive| obtain(cache.path(), archive, hand.path().to_str(), &|_| ());
        let error = obtain(&archive(&"0".repeat(64))).unwrap_err().to_string();
        assert!(error.contains(&sha256) && error.contains("is wanted"), "{error}");
        let tree = obtain(&archive(&sha256)).unwrap();
        assert!(tree.read("boost/version.hpp").unwrap().unwrap().contains("909909"));
        std::fs::remove_file(path).unwrap();
        assert_eq!(obtain(&archive(&sha256)).unwrap().tree, tree.tree);
    }

    #[test]
    fn an_archive_that_cannot_be_had_says_where_to_put_it() {
        let cache = tempfile::tempdir().unwrap();
        let error = format!("{:#}", obtain(cache.path(), &archive(&"0".repeat(64)), None, &|_| ()).unwrap_err());
        assert!(error.contains("archives") && error.contains(VARIABLE), "{error}");
    }
}
