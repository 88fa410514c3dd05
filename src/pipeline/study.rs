//! `run`: every cell built, then measured in random balanced rounds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use crate::cache::Entry;
use crate::matrix::{Cell, Workload};
use crate::measure::fingerprint;
use crate::process::stop_if_interrupted;
use crate::store::Store;

use super::builds::{BuildReport, Limits};
use super::restarts::{Ended, Restart};
use super::{Observer, Places, Workshop, now};

/// Seconds that a restart takes besides its steps: restoring data, start, rest, stop.
const RESTART_OVERHEAD: f64 = 3.0;
/// Seconds that a step takes besides warm-up and window.
const STEP_OVERHEAD: f64 = 1.3;
/// Seconds that a build of Postgres takes on two cores, until one has been made.
const BUILD_GUESS: f64 = 150.0;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Study<'a> {
    /// Name of the matrix.
    pub name: &'a str,
    /// Cells, in the order of the matrix.
    pub cells: &'a [Cell],
    /// What is run on each, and how often.
    pub workload: &'a Workload,
    /// Builds.
    pub limits: Limits,
    /// Time after which no further restart begins.
    pub budget: Option<Duration>,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct StudyReport {
    /// Builds of all cells.
    pub builds: Vec<BuildReport>,
    /// Restarts done now.
    pub restarts: usize,
    /// Restarts that were recorded before.
    pub resumed: usize,
    /// Restarts that failed: cell, round and why.
    pub failures: Vec<String>,
    /// Restarts that the budget did not allow.
    pub left: usize,
    /// Seconds it took.
    pub seconds: f64,
}

/// Seconds that a study will take at most, from what is in the cache and typical times.
#[must_use]
pub fn estimate(builds: usize, restarts: usize, workload: &Workload) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "small counts")]
    let (builds, restarts, steps) = (builds as f64, restarts as f64, workload.steps.len() as f64);
    builds * BUILD_GUESS + restarts * (RESTART_OVERHEAD + steps * (f64::from(workload.warmup) + f64::from(workload.time) + STEP_OVERHEAD))
}

/// Builds what is missing and measures what is not recorded yet.
///
/// Each round measures every cell once, in an order drawn from the study's name and the round, so
/// that no cell is always first and drift of the host weighs on all alike. Rounds are not broken up
/// by builds: those come first.
///
/// # Errors
/// When the user interrupts, or nothing can be recorded. Failed builds and restarts are in the
/// report.
pub fn run_study(workshop: &Workshop, study: &Study, store: &mut Store, observer: &dyn Observer) -> anyhow::Result<StudyReport> {
    let started = Instant::now();
    workshop.check_configs(study.cells)?;
    let builds = workshop.build(study.cells, study.limits, observer)?;
    let entries: BTreeMap<&str, &Entry> = builds.iter().filter_map(|report| Some((report.cell.as_str(), report.entry.as_ref()?))).collect();
    let places = Places::new(workshop.cache())?;
    let host = fingerprint(places.root());
    let keys: BTreeMap<String, String> = entries.iter().map(|(cell, entry)| ((*cell).to_owned(), entry.key.to_string())).collect();
    let done: BTreeSet<(String, u64)> =
        store.finished(study.name, &host, study.workload, &keys)?.into_iter().map(|finished| (finished.cell, finished.block)).collect();
    let plan = plan(study, &entries, &done);
    let mut report = StudyReport {
        restarts: 0,
        resumed: entries.len() * study.workload.repeats as usize - plan.len(),
        failures: Vec::new(),
        left: 0,
        seconds: 0.0,
        builds: Vec::new(),
    };
    if !plan.is_empty() {
        let session = store.begin_session(&host, "run", study.name, &now())?;
        for (at, (block, position)) in plan.iter().enumerate() {
            stop_if_interrupted()?;
            if study.budget.is_some_and(|budget| started.elapsed() >= budget) {
                report.left = plan.len() - at;
                break;
            }
            let cell = &study.cells[*position];
            let Some(entry) = entries.get(cell.name.as_str()) else { continue };
            observer.measuring(at, plan.len(), &format!("{} round {}", cell.name, block + 1));
            let restart = Restart { session, cell, position: *position, entry, workload: study.workload, block: *block, seed: block + 1 };
            match workshop.restart(&restart, &places, store, &|_, _| Ok(()), observer)? {
                Ended::Complete => report.restarts += 1,
                Ended::Failed(why) => {
                    observer.say(&format!("{} round {}: {why}", cell.name, block + 1));
                    report.failures.push(format!("{} round {}: {why}", cell.name, block + 1));
                }
            }
        }
        observer.measuring(plan.len(), plan.len(), "done");
    }
    report.builds = builds;
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

/// Rounds with the positions of cells that are still to be measured, in order.
fn plan(study: &Study, entries: &BTreeMap<&str, &Entry>, done: &BTreeSet<(String, u64)>) -> Vec<(u64, usize)> {
    let mut plan = Vec::new();
    for block in 0..u64::from(study.workload.repeats) {
        let mut round: Vec<usize> = (0..study.cells.len()).filter(|position| entries.contains_key(study.cells[*position].name.as_str())).collect();
        let seed = blake3::hash(format!("{} {}", study.name, block / 2).as_bytes());
        round.shuffle(&mut ChaCha8Rng::from_seed(*seed.as_bytes()));
        // Every second round is the mirror of the one before, so that over two rounds each cell has the
        // same mean place and a steady drift cancels.
        if block % 2 == 1 {
            round.reverse();
        }
        plan.extend(round.into_iter().filter(|position| !done.contains(&(study.cells[*position].name.clone(), block))).map(|position| (block, position)));
    }
    plan
}
