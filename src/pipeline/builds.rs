//! Cells to builds, through the cache, several at a time within one budget of jobs.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

use crate::build::{BuildFailure, FailureClass, Progress, Surroundings, Workspace, keeps, run};
use crate::cache::{BuildSlot, Entry, Lookup, Story, WorkSlot};
use crate::matrix::{Cell, ConfigurationError};
use crate::process::{Interrupted, interrupted, stop_if_interrupted};

use super::{Observer, Planned, Workshop, make_dir, now, sentence};

/// How a cell came to its build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Made {
    /// It was built now.
    Built,
    /// It was in the cache.
    Hit,
    /// It could not be built.
    Failed,
    /// It is known from before that it cannot be built.
    KnownFailure,
}

/// One cell's build, in the shape that `build --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct BuildReport {
    /// Name of the cell.
    pub cell: String,
    /// Key of the build; none when the source could not be had.
    pub build_key: Option<String>,
    /// How it came to its build.
    pub outcome: Made,
    /// Seconds it took now.
    pub seconds: f64,
    /// Log of the build.
    pub log: Option<PathBuf>,
    /// Class of the failure.
    pub class: Option<FailureClass>,
    /// What went wrong.
    pub message: Option<String>,
    /// Patches applied.
    pub patches: Vec<String>,
    /// The source in words.
    pub source: Option<String>,
    /// The build itself.
    #[serde(skip)]
    pub entry: Option<Entry>,
}

/// What builds may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Parallel jobs over all builds.
    pub jobs: usize,
    /// Longest time of one step of a recipe.
    pub step: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { jobs: crate::measure::cpus(), step: Duration::from_secs(2 * 3600) }
    }
}

impl BuildReport {
    fn failed(cell: &Cell, error: &anyhow::Error) -> Self {
        Self {
            cell: cell.name.clone(),
            build_key: None,
            outcome: Made::Failed,
            seconds: 0.0,
            log: None,
            class: None,
            message: Some(sentence(error)),
            patches: Vec::new(),
            source: None,
            entry: None,
        }
    }

    fn of(planned: &Planned, outcome: Made) -> Self {
        Self {
            cell: planned.cell.name.clone(),
            build_key: Some(planned.key.to_string()),
            outcome,
            seconds: 0.0,
            log: None,
            class: None,
            message: None,
            patches: planned.tree.patches.iter().map(|patch| patch.name.clone()).collect(),
            source: Some(planned.tree.described.clone()),
            entry: None,
        }
    }

    fn there(planned: &Planned, outcome: Made, entry: Entry) -> Self {
        let seconds = if outcome == Made::Built { entry.manifest.story.seconds } else { 0.0 };
        let log = entry.install.parent().filter(|_| !entry.foreign).map(|dir| dir.join("log"));
        Self { seconds, log, entry: Some(entry), ..Self::of(planned, outcome) }
    }

    fn not_there(planned: &Planned, outcome: Made, failure: &BuildFailure) -> Self {
        Self { log: failure.log.clone(), class: Some(failure.class), message: Some(failure.to_string()), ..Self::of(planned, outcome) }
    }
}

impl Workshop {
    /// Brings every cell to its build. Failures are reports, and the other cells go on.
    ///
    /// # Errors
    /// When the user interrupts, or a cell is something that cannot be meant.
    pub fn build(&self, cells: &[Cell], limits: Limits, observer: &dyn Observer) -> anyhow::Result<Vec<BuildReport>> {
        let mut reports: Vec<Option<BuildReport>> = cells.iter().map(|_| None).collect();
        let mut queue = VecDeque::new();
        for (index, cell) in cells.iter().enumerate() {
            stop_if_interrupted()?;
            match self.plan(cell, observer) {
                Ok(planned) => queue.push_back((index, planned)),
                Err(error) if error.downcast_ref::<ConfigurationError>().is_some() || interrupted() => return Err(error),
                Err(error) => reports[index] = Some(BuildReport::failed(cell, &error)),
            }
        }
        let surroundings = Surroundings {
            // A build that runs has one job for itself; the others come from the budget.
            budget: jobserver::Client::new(limits.jobs.max(1)).context("cannot make the budget of parallel jobs")?,
            step_limit: limits.step,
            object_cache: which::which("ccache").ok().map(|_| self.cache.layout().object_cache()),
        };
        let workers = limits.jobs.clamp(1, queue.len().max(1));
        let (queue, results) = (Mutex::new(queue), Mutex::new(&mut reports));
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    while let Some((index, planned)) = queue.lock().ok().and_then(|mut queue| queue.pop_front()) {
                        let report = self.build_one(&planned, &surroundings, observer).unwrap_or_else(|error| BuildReport::failed(&planned.cell, &error));
                        observer.build_ended(&planned.cell.name);
                        if let Ok(mut results) = results.lock() {
                            results[index] = Some(report);
                        }
                        if interrupted() {
                            break;
                        }
                    }
                });
            }
        });
        stop_if_interrupted()?;
        Ok(reports.into_iter().flatten().collect())
    }

    fn build_one(&self, planned: &Planned, surroundings: &Surroundings, observer: &dyn Observer) -> anyhow::Result<BuildReport> {
        if let Some(entry) = &planned.ready_made {
            return Ok(BuildReport::there(planned, Made::Hit, entry.clone()));
        }
        let name = &planned.cell.name;
        let waiting = |holder: &crate::process::Holder| observer.say(&format!("{name}: waiting for {}", holder.0));
        match self.cache.lookup(&planned.inputs, &format!("building {name}"), &waiting)? {
            Lookup::Hit(entry) => Ok(BuildReport::there(planned, Made::Hit, *entry)),
            Lookup::Failed(known) => Ok(BuildReport::not_there(planned, Made::KnownFailure, &known.failure)),
            Lookup::Miss(slot) => self.make(planned, *slot, surroundings, observer),
        }
    }

    fn make(&self, planned: &Planned, slot: BuildSlot, surroundings: &Surroundings, observer: &dyn Observer) -> anyhow::Result<BuildReport> {
        let cell = &planned.cell;
        let token = surroundings.budget.acquire().context("cannot take a job from the budget")?;
        let work = WorkSlot::take(&self.cache.layout().work(), &format!("building {}", cell.name))?;
        let src = work.dir().join("src");
        make_dir(&src)?;
        planned.tree.checkout(&src, &|path| keeps(cell.dbms, path))?;
        for archive in &planned.recipe.archives {
            let tree = self.sources.archive(archive, &|sentence| observer.say(&format!("{}: {sentence}", cell.name)))?;
            let dir = work.dir().join("archives").join(&archive.name);
            make_dir(&dir)?;
            tree.checkout(&dir, &|path| path.starts_with(&archive.part))?;
        }
        let workspace = Workspace { work: work.dir().to_owned(), stage: slot.stage(), log: work.dir().join("log") };
        let tell = |progress: Progress| observer.building(&cell.name, progress.step, progress.compiled);
        // Its own job is what runs the recipe; make takes further ones from the budget.
        let result = run(&planned.recipe, &workspace, surroundings, &tell);
        drop(token);
        match result {
            Ok(built) => {
                let story = Story {
                    cell: cell.name.clone(),
                    source: planned.tree.described.clone(),
                    version: planned.tree.version.clone(),
                    patches: planned.tree.patches.iter().map(|patch| patch.name.clone()).collect(),
                    compiler: planned.inputs.toolchain.compiler.clone(),
                    compiled_by: built.compiled_by,
                    built_at: now(),
                    seconds: built.seconds,
                };
                Ok(BuildReport::there(planned, Made::Built, slot.commit(story, &workspace.log)?))
            }
            Err(failure) if failure.class == FailureClass::Interrupted => Err(Interrupted.into()),
            Err(failure) => {
                let message = failure.to_string();
                // On a full disk the memory of the failure cannot be written either; the failure itself
                // must still be told.
                match slot.fail(&failure, &cell.name, &now()) {
                    Ok(known) => Ok(BuildReport::not_there(planned, Made::Failed, &known.failure)),
                    Err(error) => Err(error.context(message)),
                }
            }
        }
    }
}
