//! Submodules that a build needs, put into the tree itself: from then on the tree is whole, and its
//! digest, patches and checkout treat the submodule's files like any other.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use git2::build::TreeUpdateBuilder;
use git2::{FileMode, ObjectType, Oid, Repository};

use crate::matrix::{Cell, ConfigurationError, Dbms};

use super::git::{Mirror, Resolved};
use super::sources::Environment;
use super::tree::{SourceTree, open};

/// Path of a submodule in its superproject, and the word by which its mirror is named.
struct Needed {
    path: &'static str,
    name: &'static str,
}

/// Submodules without which the server cannot be built; the others stay out.
const fn needed(dbms: Dbms) -> &'static [Needed] {
    match dbms {
        Dbms::Myrocks => &[Needed { path: "rocksdb", name: "rocksdb" }],
        Dbms::Mariadb => &[Needed { path: "libmariadb", name: "libmariadb" }, Needed { path: "storage/rocksdb/rocksdb", name: "rocksdb" }],
        Dbms::Mysql | Dbms::Postgres => &[],
    }
}

/// Puts the needed submodules into the tree; `None` when one is not in the cache and nothing may be
/// fetched. `say` is told what is fetched, and `None` forbids it.
pub(super) fn graft(
    mut tree: SourceTree,
    cell: &Cell,
    cache: &Path,
    environment: &Environment,
    say: Option<&dyn Fn(&str)>,
) -> anyhow::Result<Option<SourceTree>> {
    for needed in needed(cell.dbms) {
        let Some(pinned) = tree.submodules.get(needed.path).cloned() else {
            // A release tarball holds the files themselves.
            if tree.read(&format!("{}/CMakeLists.txt", needed.path))?.is_some() {
                continue;
            }
            return Err(ConfigurationError::new(format!("{} has no submodule {}, so it is not a tree of {}", tree.described, needed.path, cell.dbms)).into());
        };
        let remote = address(&tree, needed.path)?;
        let mirror = Mirror::of_submodule(cache, needed.name, &remote, environment);
        let wanted = if needed.name == "rocksdb" { cell.axis("rocksdb") } else { "submodule" };
        let Some(commit) = resolve(&mirror, wanted, &pinned, say)? else { return Ok(None) };
        insert(&mut tree, &mirror, needed, commit)?;
        if needed.name == "rocksdb" {
            describe_rocksdb(&mut tree, needed.path, wanted, commit)?;
        }
    }
    Ok(Some(tree))
}

/// Address of a submodule from `.gitmodules`; an ssh address, which asks for a key, becomes https.
fn address(tree: &SourceTree, path: &str) -> anyhow::Result<String> {
    let text = tree.read(".gitmodules")?.with_context(|| format!("{} has a submodule {path} and no file .gitmodules", tree.described))?;
    // One section per submodule: the address is in the section that has the path.
    let section = text.split("[submodule ").find(|section| value(section, "path").is_some_and(|found| found == path));
    let url =
        section.and_then(|section| value(section, "url")).with_context(|| format!("the file .gitmodules of {} has no address for {path}", tree.described))?;
    Ok(url.strip_prefix("git@").and_then(|rest| rest.split_once(':')).map_or_else(|| url.to_owned(), |(host, path)| format!("https://{host}/{path}")))
}

fn value<'t>(section: &'t str, key: &str) -> Option<&'t str> {
    section.lines().find_map(|line| line.trim().strip_prefix(key)?.trim_start().strip_prefix('=').map(str::trim))
}

/// The commit that is wanted, fetched if it may be.
fn resolve(mirror: &Mirror, wanted: &str, pinned: &str, say: Option<&dyn Fn(&str)>) -> anyhow::Result<Option<Oid>> {
    let name = match wanted {
        "submodule" => pinned.to_owned(),
        version if version.contains('.') => format!("v{version}"),
        commit => commit.to_owned(),
    };
    let found = match (mirror.commit(&name)?, say) {
        (Resolved::Absent(_), Some(say)) => {
            mirror.fetch(say)?;
            mirror.commit(&name)?
        }
        (found, _) => found,
    };
    match found {
        Resolved::Commit(id) => Ok(Some(id)),
        Resolved::Absent(_) if say.is_none() => Ok(None),
        // Some pins are between releases: 8.7.0 in the posts is a commit whose header says so, not a tag.
        Resolved::Absent(sentence) if wanted.contains('.') => match mirror.commit(pinned)? {
            Resolved::Commit(id) if mirror.rocksdb_version(id)?.as_deref() == Some(wanted) => Ok(Some(id)),
            _ => Err(ConfigurationError::new(format!(
                "{sentence} in {}, and the submodule's own commit is not {wanted}; name a commit instead",
                mirror.remote()
            ))
            .into()),
        },
        Resolved::Absent(sentence) => Err(ConfigurationError::new(format!("{sentence} in {}", mirror.remote())).into()),
    }
}

/// Replaces the link by the submodule's tree. The superproject's store reads the submodule's objects
/// where they are.
fn insert(tree: &mut SourceTree, mirror: &Mirror, needed: &Needed, commit: Oid) -> anyhow::Result<()> {
    lend(&tree.store, mirror.store())?;
    let repository = open(&tree.store)?;
    let inner = repository.find_commit(commit).with_context(|| format!("the commit {commit} of {} cannot be read", mirror.remote()))?.tree_id();
    let outer = repository.find_tree(Oid::from_str(&tree.tree)?)?;
    let id = TreeUpdateBuilder::new()
        .remove(needed.path)
        .create_updated(&repository, &outer)
        .and_then(|without| TreeUpdateBuilder::new().upsert(needed.path, inner, FileMode::Tree).create_updated(&repository, &repository.find_tree(without)?))
        .with_context(|| format!("cannot put the submodule {} into the tree", needed.path))?;
    tree.tree = id.to_string();
    tree.submodules.insert(needed.path.to_owned(), commit.to_string());
    Ok(())
}

/// Lets one git directory read another's objects.
fn lend(borrower: &Path, lender: &Path) -> anyhow::Result<()> {
    let file = borrower.join("objects/info/alternates");
    let objects = std::fs::canonicalize(lender.join("objects")).with_context(|| format!("cannot find the objects of {}", lender.display()))?;
    let line = objects.to_str().with_context(|| format!("the path {} is not UTF-8", objects.display()))?;
    let text = match std::fs::read_to_string(&file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        text => text.with_context(|| format!("cannot read {}", file.display()))?,
    };
    if text.lines().any(|known| known == line) {
        return Ok(());
    }
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(borrower.join("objects/info"))?;
        let mut out = std::fs::OpenOptions::new().append(true).create(true).open(&file)?;
        writeln!(out, "{line}")
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}

/// Reads `RocksDB`'s version back from its header: it must be what the cell says.
fn describe_rocksdb(tree: &mut SourceTree, path: &str, wanted: &str, commit: Oid) -> anyhow::Result<()> {
    let header = tree.read(&format!("{path}/{VERSION_HEADER}"))?;
    let version =
        header.as_deref().and_then(version_in).with_context(|| format!("commit {commit} has no version in {VERSION_HEADER}, so it is not RocksDB"))?;
    if wanted.contains('.') && version != wanted {
        bail!(ConfigurationError::new(format!("RocksDB {wanted} was asked for, but the header of commit {commit} says {version}")));
    }
    tree.described = format!("{}, with RocksDB {version} ({})", tree.described, &commit.to_string()[..10]);
    Ok(())
}

const VERSION_HEADER: &str = "include/rocksdb/version.h";

fn version_in(header: &str) -> Option<String> {
    let number = |name: &str| header.lines().find_map(|line| line.strip_prefix(&format!("#define ROCKSDB_{name} "))?.trim().parse::<u32>().ok());
    Some(format!("{}.{}.{}", number("MAJOR")?, number("MINOR")?, number("PATCH")?))
}

/// Version that a commit of `RocksDB` says it is.
pub(super) fn rocksdb_version(repository: &Repository, commit: Oid) -> anyhow::Result<Option<String>> {
    let tree = repository.find_commit(commit)?.tree()?;
    let Ok(entry) = tree.get_path(Path::new(VERSION_HEADER)) else { return Ok(None) };
    if entry.kind() != Some(ObjectType::Blob) {
        return Ok(None);
    }
    Ok(version_in(&String::from_utf8_lossy(repository.find_blob(entry.id())?.content())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_header() {
        let text = "#pragma once\n\n#define ROCKSDB_MAJOR 9\n#define ROCKSDB_MINOR 3\n#define ROCKSDB_PATCH 1\n";
        assert_eq!(version_in(text).as_deref(), Some("9.3.1"));
        assert_eq!(version_in("#define ROCKSDB_MAJOR 9\n"), None);
    }

    #[test]
    fn values_are_found_in_a_section() {
        let text = "\"rocksdb\"]\n\tpath = rocksdb\n\turl = git@github.com:facebook/rocksdb.git\n";
        assert_eq!(value(text, "url"), Some("git@github.com:facebook/rocksdb.git"));
        assert_eq!(value(text, "branch"), None);
    }
}
