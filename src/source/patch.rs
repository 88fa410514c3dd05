//! Our own patches: a header that says why and for what, then a diff that must apply cleanly.

use std::path::Path;

use anyhow::{Context, bail};
use git2::{Diff, Oid, Repository};
use serde::{Deserialize, Serialize};

use crate::matrix::{Cell, ConfigurationError};

use super::relocate::relocate;
use super::tree::{SourceTree, open};

/// A patch that was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedPatch {
    /// Name, without folder and ending.
    pub name: String,
    /// BLAKE3 of the patch file.
    pub digest: String,
    /// Why it exists, from its header.
    pub why: String,
}

/// A patch file, taken apart.
struct PatchFile {
    name: String,
    digest: String,
    why: String,
    range: String,
    diff: String,
}

/// Applies what the cell needs: the patches without which such a tree would not compile here
/// (`<dbms>/always/`), then those that it asks for. A patch whose range does not cover the tree is
/// not applied; one that covers it must apply.
pub(super) fn apply(mut tree: SourceTree, cell: &Cell, patches: &Path) -> anyhow::Result<SourceTree> {
    let dir = patches.join(cell.dbms.name());
    let mut files = patch_files(&dir.join("always"), cell)?;
    for name in &cell.patches {
        let several = patch_files(&dir.join(name), cell)?;
        if several.is_empty() { files.push(read(&dir.join(format!("{name}.patch")), cell, &dir)?) } else { files.extend(several) }
    }
    if files.is_empty() {
        return Ok(tree);
    }
    let version = tree.version.clone().context("the version of a tree is read before its patches are applied")?;
    for file in files {
        let repository = open(&tree.store)?;
        if covers(&file, &version, tree.commit.as_deref(), &repository)? {
            let diff = relocate(&file.diff, &|path| tree.read(path));
            tree.tree = diff
                .and_then(|diff| apply_one(&repository, &tree.tree, &file.name, &diff))
                .with_context(|| format!("the patch {} covers {} (Range: {}) and must apply", file.name, tree.described, file.range))?
                .to_string();
            tree.patches.push(AppliedPatch { name: file.name, digest: file.digest, why: file.why });
        }
    }
    Ok(tree)
}

/// The patches of a directory, by name; none when there is no such directory.
fn patch_files(dir: &Path, cell: &Cell) -> anyhow::Result<Vec<PatchFile>> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("cannot list {}", dir.display()))?,
    };
    let mut paths =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>().with_context(|| format!("cannot list {}", dir.display()))?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    paths.sort();
    paths.iter().map(|path| read(path, cell, dir)).collect()
}

/// Reads one patch file; `dir` is where others of its kind are, for the message.
fn read(path: &Path, cell: &Cell, dir: &Path) -> anyhow::Result<PatchFile> {
    // Within a patch's own directory the directory's name comes first: `hack100/unlimited`.
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = if dir.ends_with(cell.dbms.name()) { stem } else { format!("{}/{stem}", dir.file_name().unwrap_or_default().to_string_lossy()) };
    let text = std::fs::read_to_string(path).map_err(|error| {
        let mut there: Vec<_> = std::fs::read_dir(dir)
            .map(|entries| {
                let named = |entry: std::fs::DirEntry| {
                    let name = entry.file_name().into_string().ok()?;
                    if entry.path().is_dir() { (name != "always").then_some(name) } else { name.strip_suffix(".patch").map(str::to_owned) }
                };
                entries.flatten().filter_map(named).collect()
            })
            .unwrap_or_default();
        there.sort();
        let there = if there.is_empty() { "there is none".to_owned() } else { format!("there are: {}", there.join(", ")) };
        ConfigurationError::new(format!(
            "the cell {} asks for the patch `{name}`, but {} cannot be read: {error}; for {} {there}",
            cell.name,
            path.display(),
            cell.dbms
        ))
    })?;
    let start = text.find("diff --git ").or_else(|| text.find("--- ")).unwrap_or(text.len());
    let (header, diff) = text.split_at(start);
    let field = |key: &str| {
        header
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
            .map(str::trim)
            .filter(|value| !value.is_empty())
            .map(str::to_owned)
            .ok_or_else(|| {
                ConfigurationError::new(format!("the header of the patch {} has no line `{key}: ...`; patches/README.md shows the format", path.display()))
            })
    };
    let (why, dbms, range) = (field("Why")?, field("Dbms")?, field("Range")?);
    if dbms != cell.dbms.name() {
        bail!(ConfigurationError::new(format!("the patch {} is for {dbms}, and the cell {} is {}", path.display(), cell.name, cell.dbms)));
    }
    if diff.is_empty() {
        bail!(ConfigurationError::new(format!("the patch {} has a header and no diff", path.display())));
    }
    Ok(PatchFile { name, digest: blake3::hash(text.as_bytes()).to_hex().to_string(), why, range, diff: diff.to_owned() })
}

/// Major version, stage (devel, beta, rc, release), and two numbers within it.
type Order = (u32, u32, u32, u32);

/// A version in an order: 17devel < 17beta1 < 17rc1 < 17.0; 8.0.21 < 8.0.28.
fn ordered(version: &str) -> Option<Order> {
    let end = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    let major = version[..end].parse().ok()?;
    let rest = &version[end..];
    let number = |text: &str| text.parse().ok();
    if let Some(minor) = rest.strip_prefix('.') {
        let (minor, patch) = minor.split_once('.').unwrap_or((minor, "0"));
        return Some((major, 3, number(minor)?, number(patch)?));
    }
    if let Some(number) = rest.strip_prefix("beta").map(number) {
        return Some((major, 1, number?, 0));
    }
    if let Some(number) = rest.strip_prefix("rc").map(number) {
        return Some((major, 2, number?, 0));
    }
    (rest == "devel").then_some((major, 0, 0, 0))
}

/// The versions that one word of a range stands for, first and last: `15` is all of 15, `8.0` all of
/// 8.0.
fn bounds(word: &str) -> Option<(Order, Order)> {
    if let Ok(major) = word.parse::<u32>() {
        return Some(((major, 0, 0, 0), (major, 3, u32::MAX, u32::MAX)));
    }
    let one = ordered(word)?;
    let series = one.1 == 3 && word.split('.').count() == 2;
    Some((one, if series { (one.0, one.1, one.2, u32::MAX) } else { one }))
}

/// Whether the patch's range covers a tree: `any`, versions (`16`, `17beta1`, `11.19-11.22`), git
/// ranges (`A..B`), several separated by commas.
fn covers(file: &PatchFile, version: &str, commit: Option<&str>, repository: &Repository) -> anyhow::Result<bool> {
    let wrong = |word: &str| {
        ConfigurationError::new(format!(
            "the patch {} has the range `{word}`, which is neither a version such as 16 or 11.19-11.22, a git range A..B, nor any",
            file.name
        ))
    };
    let at = ordered(version).ok_or_else(|| wrong(version))?;
    for word in file.range.split(',').map(str::trim) {
        let covered = if word == "any" {
            true
        } else if let Some((from, to)) = word.split_once("..") {
            let Some(commit) = commit else { continue };
            let id =
                |text: &str| repository.revparse_single(text).and_then(|object| object.peel_to_commit()).map(|commit| commit.id()).map_err(|_| wrong(word));
            // A range of a history that this repository does not have covers nothing in it.
            let (Ok(from), Ok(to)) = (id(from), id(to)) else { continue };
            let commit = Oid::from_str(commit)?;
            let before_end = commit == to || repository.graph_descendant_of(to, commit)?;
            before_end && repository.graph_descendant_of(commit, from)?
        } else {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            let (first, last) = (bounds(first.trim()).ok_or_else(|| wrong(word))?, bounds(last.trim()).ok_or_else(|| wrong(word))?);
            first.0 <= at && at <= last.1
        };
        if covered {
            return Ok(true);
        }
    }
    Ok(false)
}

fn apply_one(repository: &Repository, tree: &str, name: &str, diff: &str) -> anyhow::Result<Oid> {
    let tree = repository.find_tree(Oid::from_str(tree)?)?;
    let diff = Diff::from_buffer(diff.as_bytes()).with_context(|| format!("the patch {name} is not a diff that git understands"))?;
    let mut index = repository.apply_to_tree(&tree, &diff, None)?;
    Ok(index.write_tree_to(repository)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered(range: &str, version: &str) -> bool {
        let dir = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(dir.path()).unwrap();
        let file = PatchFile { name: "p".to_owned(), digest: String::new(), why: String::new(), range: range.to_owned(), diff: String::new() };
        covers(&file, version, None, &repository).unwrap()
    }

    #[test]
    fn ranges_cover_what_they_say() {
        for (range, version, wanted) in [
            ("any", "16.3", true),
            ("16", "16.3", true),
            ("16", "16beta1", true),
            ("16", "17beta1", false),
            ("10-15", "15.99", true),
            ("10-15", "16devel", false),
            ("11.19-11.22", "11.18", false),
            ("11.19-11.22", "11.19", true),
            ("17beta1", "17.0", false),
            ("17beta1-17", "17.2", true),
            ("12, 14", "13.4", false),
            ("12, 14", "14.1", true),
            ("8.0", "8.0.37", true),
            ("8.0", "8.4.0", false),
            ("5.7.10-5.7.17", "5.7.17", true),
            ("5.7.10-5.7.17", "5.7.20", false),
        ] {
            assert_eq!(covered(range, version), wanted, "{range} {version}");
        }
    }
}
