//! Every kind of source behind two questions: is it here, and get it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::matrix::{Cell, ConfigurationError, SourceSpec};

use super::archives::{self, Archive};
use super::history::History;
use super::tree::SourceTree;
use super::version::version_of;
use super::{debian, git, local, patch, submodule};

/// The part of the process environment that sources listen to, handed in so that tests need not
/// change their own.
#[derive(Clone, Debug, Default)]
pub struct Environment(pub BTreeMap<String, String>);

impl Environment {
    /// The variables `DBISECT_MIRROR_*` and `DBISECT_ARCHIVES` of this process.
    #[must_use]
    pub fn of_process() -> Self {
        Self(std::env::vars().filter(|(name, _)| name.starts_with("DBISECT_MIRROR_") || name == archives::VARIABLE).collect())
    }

    /// Directory of archives that were fetched by hand.
    fn archives(&self) -> Option<&str> {
        self.0.get(archives::VARIABLE).map(String::as_str)
    }

    /// Mirror that overrides every remote of a dbms or a submodule, by its name.
    #[must_use]
    pub fn mirror(&self, name: &str) -> Option<&str> {
        self.0.get(&format!("DBISECT_MIRROR_{}", name.to_uppercase())).map(String::as_str).filter(|value| !value.is_empty())
    }
}

/// Where sources are kept and how they are found.
#[derive(Clone, Debug)]
pub struct Sources {
    cache: PathBuf,
    patches: PathBuf,
    environment: Environment,
    refresh: bool,
}

impl Sources {
    /// Sources kept below the cache directory, with patches from `patches`.
    #[must_use]
    pub fn new(cache: &Path, patches: &Path, environment: Environment) -> Self {
        Self { cache: cache.to_owned(), patches: patches.to_owned(), environment, refresh: false }
    }

    /// Asks remotes and archives again even where an answer is kept.
    #[must_use]
    pub fn refresh(mut self, yes: bool) -> Self {
        self.refresh = yes;
        self
    }

    /// The tree of a cell when everything it needs is in the cache already; asks no network.
    ///
    /// # Errors
    /// When the revision is known not to exist, a patch does not apply, or the cache cannot be read.
    pub fn locate(&self, cell: &Cell) -> anyhow::Result<Option<SourceTree>> {
        let tree = match &cell.source {
            SourceSpec::Git { .. } => self.mirror(cell)?.locate(&cell.revision)?,
            SourceSpec::Debian { package, suite } => debian::locate(&self.cache, package, suite.as_deref(), &cell.revision)?,
            SourceSpec::Path { path } => Some(local::import(&self.cache, path)?),
            SourceSpec::Installed { prefix } => return Err(no_source(prefix).into()),
        };
        let Some(tree) = tree else { return Ok(None) };
        let Some(tree) = submodule::graft(tree, cell, &self.cache, &self.environment, None)? else { return Ok(None) };
        self.finish(tree, cell).map(Some)
    }

    /// The tree of a cell, fetched where it is missing. `say` is told what takes time.
    ///
    /// # Errors
    /// When it cannot be had: unknown revision, unreachable remote, a patch that does not apply.
    pub fn obtain(&self, cell: &Cell, say: &dyn Fn(&str)) -> anyhow::Result<SourceTree> {
        if !self.refresh
            && let Some(tree) = self.locate(cell)?
        {
            return Ok(tree);
        }
        let tree = match &cell.source {
            SourceSpec::Git { .. } => self.mirror(cell)?.obtain(&cell.revision, self.refresh, say)?,
            SourceSpec::Debian { package, suite } => debian::obtain(&self.cache, package, suite.as_deref(), &cell.revision, say)?,
            SourceSpec::Path { path } => local::import(&self.cache, path)?,
            SourceSpec::Installed { prefix } => return Err(no_source(prefix).into()),
        };
        let tree = submodule::graft(tree, cell, &self.cache, &self.environment, Some(say))?.context("a submodule is still missing after it was fetched")?;
        self.finish(tree, cell)
    }

    /// Reads the version, which must be the one that the matrix says, and applies patches.
    fn finish(&self, mut tree: SourceTree, cell: &Cell) -> anyhow::Result<SourceTree> {
        let version = version_of(cell.dbms, &tree)?;
        if let Some(release) = cell.release.as_ref().filter(|release| **release != version) {
            return Err(ConfigurationError::new(format!(
                "the cell {} is said to be release {release}, but {} says that it is {version}",
                cell.name, tree.described
            ))
            .into());
        }
        tree.version = Some(version);
        patch::apply(tree, cell, &self.patches)
    }

    /// An archive that a build needs beside its source, fetched where it is missing.
    ///
    /// # Errors
    /// When it cannot be had, or is not the one wanted.
    pub fn archive(&self, archive: &Archive, say: &dyn Fn(&str)) -> anyhow::Result<SourceTree> {
        archives::obtain(&self.cache, archive, self.environment.archives(), say)
    }

    /// The commits that a search between two revisions can blame.
    ///
    /// # Errors
    /// When the source has no history, an end does not exist, or no path leads from one to the
    /// other.
    pub fn history(&self, cell: &Cell, good: &str, bad: &str, say: &dyn Fn(&str)) -> anyhow::Result<History> {
        match &cell.source {
            SourceSpec::Git { .. } => self.mirror(cell)?.history(good, bad, self.refresh, say),
            SourceSpec::Debian { package, .. } => {
                Err(ConfigurationError::new(format!("the Debian source package {package} has no history to bisect; use a [[target]] with source = \"git\""))
                    .into())
            }
            SourceSpec::Installed { prefix } => Err(no_source(prefix).into()),
            SourceSpec::Path { path } => Err(ConfigurationError::new(format!(
                "the local tree {} is one revision and cannot be bisected; if it is a git checkout, write source = {{ kind = \"git\", remote = \"{}\" }}",
                path.display(),
                path.display()
            ))
            .into()),
        }
    }

    fn mirror(&self, cell: &Cell) -> Result<git::Mirror, ConfigurationError> {
        let SourceSpec::Git { remote } = &cell.source else {
            return Err(ConfigurationError::new(format!("the cell {} does not come from git", cell.name)));
        };
        Ok(git::Mirror::new(&self.cache, cell.dbms, remote.as_deref(), &self.environment))
    }
}

fn no_source(prefix: &Path) -> ConfigurationError {
    ConfigurationError::new(format!("the server in {} is installed already and has no source to fetch, patch or bisect", prefix.display()))
}
