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

use crate::build::{Recipe, Toolchain, Tools, keeps, recipe};
use crate::cache::{BuildInputs, BuildKey, Cache, FORMAT};
use crate::matrix::{AxisKind, Cell, Dbms};
use crate::source::{Environment, SourceTree, Sources, postgres_version};

pub use builds::{BuildReport, Limits, Made};
pub use places::Places;
pub use search::{SearchOptions, replay, resume_search, show_search, start_search};
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
        self.sources.locate(cell)?.map(|tree| self.plan_tree(cell, tree)).transpose()
    }

    /// Plans a cell, its source fetched where it is missing.
    ///
    /// # Errors
    /// As [`Self::plan_offline`], and when the source cannot be fetched.
    pub fn plan(&self, cell: &Cell, observer: &dyn Observer) -> anyhow::Result<Planned> {
        let tree = self.sources.obtain(cell, &|sentence| observer.say(sentence))?;
        self.plan_tree(cell, tree)
    }

    fn plan_tree(&self, cell: &Cell, mut tree: SourceTree) -> anyhow::Result<Planned> {
        let version = match cell.dbms {
            Dbms::Postgres => postgres_version(&tree)?,
            // The recipe refuses these, in a sentence of its own.
            Dbms::Mysql | Dbms::Myrocks | Dbms::Mariadb => String::new(),
        };
        let recipe = recipe(cell, &version)?;
        tree.version = Some(version);
        let inputs = BuildInputs {
            format: FORMAT,
            dbms: cell.dbms,
            source: tree.digest(&|path| keeps(cell.dbms, path))?,
            submodules: tree.submodules.clone(),
            patches: tree.patches.clone(),
            axes: cell.axes_of(AxisKind::Build).map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            toolchain: self.toolchain(&recipe.tools)?,
            recipe: recipe.clone(),
            architecture: std::env::consts::ARCH.to_owned(),
        };
        let key = inputs.key();
        Ok(Planned { cell: cell.clone(), tree, recipe, inputs, key })
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
