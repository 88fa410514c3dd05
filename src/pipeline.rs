//! The only place that knows the order of the steps: source, build, server, workload, measure,
//! store. `run` and `bisect` both use it.
//!
//! Takes cells, and an [`Observer`] to tell. Gives builds, recorded restarts, and answers of
//! searches. Decides nothing by itself: which cell is next is the plan's or the search's business.

mod builds;
mod places;
mod restarts;
mod search;
mod study;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::Context;

use crate::build::{Recipe, Toolchain, Tools, identify, keeps, recipe};
use crate::cache::{BuildInputs, BuildKey, Cache, Entry, FORMAT, Manifest, Story};
use crate::matrix::{AxisKind, Cell, ConfigurationError, SourceSpec};
use crate::server::ServerConfig;
use crate::source::{Environment, SourceTree, Sources};

pub use builds::{BuildReport, Limits, Made};
pub use places::Places;
pub use search::{SearchOptions, matrix_of_search, replay, resume_search, show_search, start_search};
pub use study::{Study, StudyReport, estimate, run_study};

/// Told what happens; the command line shows it as progress bars, tests ignore it.
pub trait Observer: Sync {
    /// A sentence worth a line.
    fn say(&self, sentence: &str);
    /// A cell is being built: step of the recipe, and share of the objects compiled.
    fn building(&self, cell: &str, step: &str, compiled: f64);
    /// A cell's build has ended.
    fn build_ended(&self, cell: &str);
    /// So many restarts of so many are done; the current one is described.
    fn measuring(&self, done: usize, all: usize, what: &str);
}

/// A cell whose source is there, with everything that its build depends on.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The cell.
    pub cell: Cell,
    /// Its source.
    pub tree: SourceTree,
    /// How it is built.
    pub recipe: Recipe,
    /// What its key is made of.
    pub inputs: BuildInputs,
    /// Its key.
    pub key: BuildKey,
    /// The build itself, where somebody else made it and it stays outside of the cache.
    ready_made: Option<Entry>,
}

/// The cache, the sources, and where servers run: what every command works with.
#[derive(Debug)]
pub struct Workshop {
    cache: Cache,
    sources: Sources,
    configs: PathBuf,
    toolchains: Mutex<BTreeMap<Tools, Toolchain>>,
}

impl Workshop {
    /// A workshop on a cache directory, with our own patches and server configurations.
    #[must_use]
    pub fn new(cache: &Path, patches: &Path, configs: &Path, refresh: bool) -> Self {
        Self {
            cache: Cache::new(cache),
            sources: Sources::new(cache, patches, Environment::of_process()).refresh(refresh),
            configs: configs.to_owned(),
            toolchains: Mutex::default(),
        }
    }

    /// The build cache.
    #[must_use]
    pub const fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Plans a cell from what is in the cache already; `None` while its source is not.
    ///
    /// # Errors
    /// When the source is known not to exist, or the toolchain lacks something.
    pub fn plan_offline(&self, cell: &Cell) -> anyhow::Result<Option<Planned>> {
        match &cell.source {
            SourceSpec::Installed { prefix } => plan_installed(cell, prefix).map(Some),
            _ => self.sources.locate(cell)?.map(|tree| self.plan_tree(cell, tree)).transpose(),
        }
    }

    /// Plans a cell, its source fetched where it is missing.
    ///
    /// # Errors
    /// As [`Self::plan_offline`], and when the source cannot be fetched.
    pub fn plan(&self, cell: &Cell, observer: &dyn Observer) -> anyhow::Result<Planned> {
        match &cell.source {
            SourceSpec::Installed { prefix } => plan_installed(cell, prefix),
            _ => self.plan_tree(cell, self.sources.obtain(cell, &|sentence| observer.say(sentence))?),
        }
    }

    /// The build of a planned cell if nothing has to be done for it.
    ///
    /// # Errors
    /// When the cache cannot be read.
    pub fn ready(&self, planned: &Planned) -> anyhow::Result<Option<Entry>> {
        match &planned.ready_made {
            Some(entry) => Ok(Some(entry.clone())),
            None => self.cache.peek(&planned.key),
        }
    }

    fn plan_tree(&self, cell: &Cell, tree: SourceTree) -> anyhow::Result<Planned> {
        let version = tree.version.clone().with_context(|| format!("the version of {} is not known", tree.described))?;
        let recipe = recipe(cell, &version, &|path| tree.read(path))?;
        let inputs = BuildInputs {
            format: FORMAT,
            dbms: cell.dbms,
            source: tree.digest(&|path| keeps(cell.dbms, path))?,
            patches: tree.patches.clone(),
            axes: cell.axes_of(AxisKind::Build).map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            toolchain: self.toolchain(&recipe.tools)?,
            recipe: recipe.clone(),
            architecture: std::env::consts::ARCH.to_owned(),
        };
        let key = inputs.key();
        Ok(Planned { cell: cell.clone(), tree, recipe, inputs, key, ready_made: None })
    }

    /// Checks that every cell's server configuration can be read, before anything is built for it.
    ///
    /// # Errors
    /// [`ConfigurationError`] that lists what there is.
    fn check_configs(&self, cells: &[Cell]) -> Result<(), ConfigurationError> {
        cells.iter().try_for_each(|cell| ServerConfig::read(&self.configs, cell.dbms, cell.axis("config"), cell.storage_engine()).map(drop))
    }

    /// Identity of a toolchain; each is looked at once per command.
    fn toolchain(&self, tools: &Tools) -> anyhow::Result<Toolchain> {
        let mut known = self.toolchains.lock().map_err(|_| anyhow::anyhow!("another thread failed while it identified the toolchain"))?;
        if let Some(toolchain) = known.get(tools) {
            return Ok(toolchain.clone());
        }
        let toolchain = Toolchain::identify(tools)?;
        known.insert(tools.clone(), toolchain.clone());
        Ok(toolchain)
    }
}

/// A server that is installed already: its identity takes the place of a source, and there is
/// nothing to do.
fn plan_installed(cell: &Cell, prefix: &Path) -> anyhow::Result<Planned> {
    let found = identify(cell.dbms, prefix)?;
    let wanted = cell.revision.text();
    let says_so = |word: &str| word.strip_prefix(wanted).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()));
    if !found.said.split_whitespace().any(says_so) {
        return Err(ConfigurationError::new(format!(
            "the cell {} wants version {wanted}, but the server in {} says that it is `{}`",
            cell.name,
            prefix.display(),
            found.said
        ))
        .into());
    }
    let tree = SourceTree {
        store: prefix.to_owned(),
        tree: found.digest.clone(),
        commit: None,
        version: Some(wanted.to_owned()),
        described: format!("{} ({})", prefix.display(), found.said),
        patches: Vec::new(),
        submodules: BTreeMap::new(),
    };
    let recipe = Recipe::nothing_to_do();
    let inputs = BuildInputs {
        format: FORMAT,
        dbms: cell.dbms,
        source: found.digest,
        patches: Vec::new(),
        axes: BTreeMap::from([("build".to_owned(), cell.axis("build").to_owned())]),
        toolchain: Toolchain { compiler: String::new(), parts: BTreeMap::new() },
        recipe: recipe.clone(),
        architecture: std::env::consts::ARCH.to_owned(),
    };
    let key = inputs.key();
    let story = Story {
        cell: cell.name.clone(),
        source: tree.described.clone(),
        version: tree.version.clone(),
        compiler: found.compiled_by.first().cloned().unwrap_or_default(),
        compiled_by: found.compiled_by,
        ..Story::default()
    };
    let entry = Entry { key: key.clone(), install: prefix.to_owned(), manifest: Manifest::of_foreign(&key, story, found.bytes), foreign: true };
    Ok(Planned { cell: cell.clone(), tree, recipe, inputs, key, ready_made: Some(entry) })
}

/// The time now, RFC 3339 in UTC, to the second.
fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A sentence with all its causes.
fn sentence(error: &anyhow::Error) -> String {
    format!("{error:#}")
}

/// Makes a directory with all its parents.
fn make_dir(dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make the directory {}", dir.display()))
}
