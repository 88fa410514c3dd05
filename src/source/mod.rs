//! Revision -> a checked-out, patched, identified tree.
//!
//! Takes a [`Cell`]: its dbms, revision, source and patches. Gives a [`SourceTree`]: a tree object in
//! a bare git repository in the cache, whatever kind of source it came from, so that patching,
//! identifying, checking out and comparing are the same for all kinds; and the [`History`] between
//! two revisions, which a search can blame.
//! Never builds, never writes outside the cache and the directory it is told to check out into, never
//! changes the system's apt state, and asks the network only where the method says so.

mod apply;
mod apt;
mod archive;
mod debian;
mod history;
mod local;
mod mirror;
mod patch;
mod revision;
mod store;
mod tree;
mod version;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use git2::{Oid, Repository};

use crate::matrix::{Cell, ConfigurationError, Revision, SourceSpec};
use debian::Package;
use mirror::{Environment, Fetched, Mirror};
use patch::{PatchFile, Range};
use revision::Found;
use version::Version;

pub use history::{Commit, History};
pub use tree::{AppliedPatch, SourceTree};
pub use version::postgres_version;

/// Where sources are kept and patches are found.
#[derive(Debug)]
pub struct Sources {
    cache: PathBuf,
    patches: PathBuf,
    refresh: bool,
    env: Environment,
    fetched: Fetched,
}

impl Sources {
    /// Sources kept under `cache`, patched from `patches`, with the environment of this process.
    #[must_use]
    pub fn new(cache: &Path, patches: &Path) -> Self {
        Self { cache: cache.to_owned(), patches: patches.to_owned(), refresh: false, env: std::env::vars_os().collect(), fetched: Fetched::default() }
    }

    /// Whether remotes are asked again even where an answer is stored.
    #[must_use]
    pub fn refresh(mut self, yes: bool) -> Self {
        self.refresh = yes;
        self
    }

    /// Takes `DBISECT_MIRROR_*` and all that git reads from this environment instead of the process'.
    #[must_use]
    pub fn environment(mut self, env: impl IntoIterator<Item = (std::ffi::OsString, std::ffi::OsString)>) -> Self {
        self.env = env.into_iter().collect();
        self
    }

    /// The cell's tree, if everything it needs is in the cache; asks no network.
    ///
    /// # Errors
    /// [`ConfigurationError`] when the cell cannot be meant (a patch or path that does not exist, an
    /// ambiguous commit); other errors when the cache or a local tree cannot be read, or a patch does
    /// not apply.
    pub fn locate(&self, cell: &Cell) -> anyhow::Result<Option<SourceTree>> {
        let patches = self.read_patches(cell)?;
        match &cell.source {
            SourceSpec::Git { remote } => {
                let mirror = self.mirror(cell, remote.as_deref())?;
                let Some(repo) = mirror.existing()? else { return Ok(None) };
                let Some(found) = revision::find(&mirror, &repo, &cell.revision, &self.env)? else { return Ok(None) };
                self.git_tree(cell, &patches, &mirror, &repo, found).map(Some)
            }
            SourceSpec::Debian { package, suite } => {
                let located = Package::new(&self.cache, package, suite.as_deref(), &cell.revision)?.locate()?;
                located.map(|tree| patched(cell, &patches, tree, &no_history)).transpose()
            }
            SourceSpec::Path { path } => self.path_tree(cell, &patches, path, &|_| {}).map(Some),
        }
    }

    /// The cell's tree, fetched as far as the cache lacks it (or refresh was asked for). A branch is
    /// always asked for again, once per process, because it moves. `say` gets progress sentences.
    ///
    /// # Errors
    /// As [`Self::locate`]; also when the remote cannot be reached or does not have the revision.
    pub fn obtain(&self, cell: &Cell, say: &dyn Fn(&str)) -> anyhow::Result<SourceTree> {
        let patches = self.read_patches(cell)?;
        match &cell.source {
            SourceSpec::Git { remote } => {
                let mirror = self.mirror(cell, remote.as_deref())?;
                let find = |repo: &Repository| revision::find(&mirror, repo, &cell.revision, &self.env);
                let (repo, found) = self.find_or_fetch(&mirror, cell.revision.text(), &find, say)?;
                self.git_tree(cell, &patches, &mirror, &repo, found)
            }
            SourceSpec::Debian { package, suite } => {
                let package = Package::new(&self.cache, package, suite.as_deref(), &cell.revision)?;
                let known = if self.refresh { None } else { package.locate()? };
                let tree = known.map_or_else(|| package.obtain(say), Ok)?;
                patched(cell, &patches, tree, &no_history)
            }
            SourceSpec::Path { path } => self.path_tree(cell, &patches, path, say),
        }
    }

    /// The commits that a search between `good` and `bad` can blame, oldest first. Each end may be a
    /// version, tag, branch or commit id; what the mirror lacks is fetched.
    ///
    /// # Errors
    /// [`ConfigurationError`] when the cell's source is not git, an end does not exist, or the ends
    /// are equal, swapped or unrelated; other errors when the remote or the mirror cannot be read.
    pub fn history(&self, cell: &Cell, good: &str, bad: &str, say: &dyn Fn(&str)) -> anyhow::Result<History> {
        let SourceSpec::Git { remote } = &cell.source else {
            let sentence = format!("cell {} has no git source, so there is no history between `{good}` and `{bad}`; give it a git source", cell.name);
            return Err(ConfigurationError::new(sentence).into());
        };
        let mirror = self.mirror(cell, remote.as_deref())?;
        let find = |text: &str| {
            let text = text.to_owned();
            let (mirror, env) = (&mirror, &self.env);
            move |repo: &Repository| revision::find_either(mirror, repo, &text, env)
        };
        let (_, good_found) = self.find_or_fetch(&mirror, good, &find(good), say)?;
        let (repo, bad_found) = self.find_or_fetch(&mirror, bad, &find(bad), say)?;
        history::line(&repo, (good, &good_found), (bad, &bad_found))
    }

    fn mirror(&self, cell: &Cell, remote: Option<&str>) -> anyhow::Result<Mirror> {
        Mirror::of(&self.cache, cell.dbms, remote, &self.env)
    }

    fn read_patches(&self, cell: &Cell) -> anyhow::Result<Vec<PatchFile>> {
        cell.patches.iter().map(|name| PatchFile::read(&self.patches, cell.dbms, name)).collect()
    }

    /// Looks in the mirror, and fetches when that is not enough.
    fn find_or_fetch(
        &self,
        mirror: &Mirror,
        text: &str,
        find: &dyn Fn(&Repository) -> anyhow::Result<Option<Found>>,
        say: &dyn Fn(&str),
    ) -> anyhow::Result<(Repository, Found)> {
        let fresh = self.fetched.has(mirror);
        if let Some(repo) = mirror.existing()?.filter(|_| fresh || !self.refresh) {
            match find(&repo)? {
                Some(found) if fresh || !found.moves => return Ok((repo, found)),
                None if fresh => return Err(revision::absent(mirror, &repo, text)),
                _ => {}
            }
        }
        let repo = mirror.fetch(&self.fetched, &self.env, say)?;
        match find(&repo)? {
            Some(found) => Ok((repo, found)),
            None => Err(revision::absent(mirror, &repo, text)),
        }
    }

    fn git_tree(&self, cell: &Cell, patches: &[PatchFile], mirror: &Mirror, repo: &Repository, found: Found) -> anyhow::Result<SourceTree> {
        let id = repo.find_commit(found.commit)?.tree_id();
        let tree = unpatched(mirror.store.clone(), id, Some(found.commit), found.version, found.described)?;
        let lies_in = |from: &str, to: &str| {
            let end = |text: &str| {
                let found = revision::find_either(mirror, repo, text, &self.env)?;
                found.map_or_else(|| Err(revision::absent(mirror, repo, text)), |found| Ok(found.commit))
            };
            history::lies_between(repo, found.commit, end(from)?, end(to)?)
        };
        patched(cell, patches, tree, &lies_in)
    }

    fn path_tree(&self, cell: &Cell, patches: &[PatchFile], path: &Path, say: &dyn Fn(&str)) -> anyhow::Result<SourceTree> {
        let tree = local::import(&self.cache, path, say)?;
        if let Revision::Version(wanted) = &cell.revision {
            let has = version::version_of(cell.dbms, &tree)?;
            if Version::parse(wanted).is_none_or(|wanted| !wanted.covers(&has)) {
                let sentence = format!("cell {} asks for version `{wanted}` and the source tree {} is version {has}; correct the one or the other", cell.name, path.display());
                return Err(ConfigurationError::new(sentence).into());
            }
        }
        patched(cell, patches, tree, &no_history)
    }
}

/// A tree as it came from its source.
fn unpatched(store: PathBuf, tree: Oid, commit: Option<Oid>, version: Option<String>, described: String) -> anyhow::Result<SourceTree> {
    let mut tree = SourceTree {
        store,
        tree: tree.to_string(),
        commit: commit.map(|id| id.to_string()),
        version,
        described,
        patches: Vec::new(),
        submodules: BTreeMap::new(),
    };
    tree.submodules = tree.gitlinks()?;
    Ok(tree)
}

/// Applies, in order, those of the patches whose range covers the tree. `lies_in` decides ranges of commits.
fn patched(cell: &Cell, patches: &[PatchFile], mut tree: SourceTree, lies_in: &dyn Fn(&str, &str) -> anyhow::Result<bool>) -> anyhow::Result<SourceTree> {
    if patches.is_empty() {
        return Ok(tree);
    }
    let repo = store::open(&tree.store)?;
    for patch in patches {
        let about = || format!("patch `{}` ({}/{}.patch)", patch.name, cell.dbms, patch.name);
        let applies = match &patch.range {
            Range::Any => true,
            Range::Versions(pairs) => Range::covers(pairs, &version::version_of(cell.dbms, &tree).with_context(about)?),
            Range::Commits { from, to } => lies_in(from, to).with_context(about)?,
        };
        if applies {
            let id = apply::apply(&repo, Oid::from_str(&tree.tree)?, &patch.body);
            tree.tree = id.with_context(|| format!("{} does not apply to {}", about(), tree.described))?.to_string();
            tree.patches.push(patch.applied());
        }
    }
    Ok(tree)
}

/// The answer of sources whose trees belong to no history.
fn no_history(from: &str, to: &str) -> anyhow::Result<bool> {
    Err(ConfigurationError::new(format!("its range {from}..{to} is one of commits, and only a git source has those; give the range in versions")).into())
}
