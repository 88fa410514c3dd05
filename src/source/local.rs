//! A local tree as it is, imported as a tree object.

use std::path::Path;

use anyhow::Context;
use git2::{IndexAddOption, Repository};

use crate::matrix::ConfigurationError;

use super::tree::{SourceTree, open_or_make};

/// Imports the tree. Files that have not changed since the last import are not read again.
pub(super) fn import(cache: &Path, path: &Path) -> anyhow::Result<SourceTree> {
    let top = std::fs::canonicalize(path).map_err(|error| ConfigurationError::new(format!("the source tree {} cannot be read: {error}", path.display())))?;
    if !top.is_dir() {
        return Err(ConfigurationError::new(format!("the source tree {} is not a directory", path.display())).into());
    }
    let digest = blake3::hash(top.as_os_str().as_encoded_bytes()).to_hex();
    let store = cache.join("git").join(format!("path-{}.git", &digest[..8]));
    let repository = open_or_make(&store)?;
    repository.set_workdir(&top, false)?;
    let checkout = Repository::open(&top).ok().filter(|_| top.join(".git").exists());
    let mut index = repository.index()?;
    // In a checkout, .gitignore tells sources from leftovers of builds. Elsewhere, as in a tarball,
    // files that are ignored upstream are part of the release.
    let flag = if checkout.is_some() { IndexAddOption::DEFAULT } else { IndexAddOption::FORCE };
    index
        .add_all(["*"], flag, Some(&mut |path, _| i32::from(path.components().next().is_some_and(|part| part.as_os_str() == ".git"))))
        .with_context(|| format!("cannot import the source tree {}", top.display()))?;
    index.update_all(["*"], None).with_context(|| format!("cannot import the source tree {}", top.display()))?;
    let tree = index.write_tree()?;
    index.write()?;
    let commit = checkout.and_then(|checkout| {
        let head = checkout.head().ok()?.peel_to_commit().ok()?;
        (head.tree_id() == tree).then(|| head.id().to_string())
    });
    Ok(SourceTree {
        store,
        tree: tree.to_string(),
        described: commit.as_ref().map_or_else(|| format!("{} with changes of its own", top.display()), |id| format!("{} at {}", top.display(), &id[..12])),
        commit,
        version: None,
        patches: Vec::new(),
        submodules: std::collections::BTreeMap::new(),
    })
}
