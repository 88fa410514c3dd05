//! One restart of one cell: restored data, a started server, the steps, everything recorded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use serde_json::json;

use crate::cache::{Entry, WorkSlot};
use crate::matrix::{Cell, ConfigurationError, Workload};
use crate::process::{Held, interrupted, stop_if_interrupted};
use crate::server::{Area, Installation, RunningServer, ServerConfig, copy_data, initialise, remove_data, start};
use crate::store::{RestartId, RestartPlan, SessionId, StepRecord, Store};
use crate::workload::{Load, StepFailure, StepPlan, load, run_step, step};

use super::{Observer, Places, Workshop, make_dir, now, sentence};

/// Seed of the loaded rows: the same on every build.
const LOAD_SEED: u64 = 20_240_616;
/// Raise it when data directories would be made differently.
const DATA_FORMAT: u32 = 2;

/// What to restart.
#[derive(Clone, Copy, Debug)]
pub struct Restart<'a> {
    /// Session it belongs to.
    pub session: SessionId,
    /// The cell.
    pub cell: &'a Cell,
    /// Its place in the matrix.
    pub position: usize,
    /// Its build.
    pub entry: &'a Entry,
    /// What is run.
    pub workload: &'a Workload,
    /// Round of the plan.
    pub block: u64,
    /// Seed of the client.
    pub seed: u64,
}

/// How a restart ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All steps are recorded.
    Complete,
    /// It ended early; the sentence is recorded too.
    Failed(String),
}

impl Workshop {
    /// Restarts a server on freshly restored data and runs the workload's steps on it. `begun` is
    /// told the restart's number before anything runs, so that it can be tied to a search.
    ///
    /// # Errors
    /// When the user interrupts, nothing can be recorded, or the configuration cannot be meant. What
    /// fails within the restart, loading its data included, is recorded as its failure instead.
    pub fn restart(
        &self,
        restart: &Restart,
        places: &Places,
        store: &mut Store,
        begun: &dyn Fn(&Store, RestartId) -> anyhow::Result<()>,
        observer: &dyn Observer,
    ) -> anyhow::Result<Ended> {
        let cell = restart.cell;
        let config = ServerConfig::read(&self.configs, cell.dbms, cell.axis("config"), cell.storage_engine())?;
        let install = Installation { dbms: cell.dbms, prefix: places.installed(restart.entry)? };
        let now = now();
        let plan = RestartPlan {
            session: restart.session,
            cell,
            position: restart.position,
            build_key: restart.entry.key.as_str(),
            workload: restart.workload,
            block: restart.block,
            now: &now,
        };
        let id = store.begin_restart(&plan)?;
        begun(store, id)?;
        let snapshot = match self.loaded(restart, &install, &config, places, observer) {
            Ok(snapshot) => snapshot,
            Err(error) if interrupted() || error.downcast_ref::<ConfigurationError>().is_some() => return Err(error),
            Err(error) => {
                let sentence = sentence(&error);
                store.end_restart(id, 0.0, Some(&sentence))?;
                return Ok(Ended::Failed(sentence));
            }
        };
        let started = Instant::now();
        let result = run_steps(restart, &install, &config, &snapshot, places, store, id);
        // An interrupted restart stays open in the database, and is done again.
        stop_if_interrupted()?;
        let seconds = started.elapsed().as_secs_f64();
        match result {
            Ok(()) => {
                store.end_restart(id, seconds, None)?;
                Ok(Ended::Complete)
            }
            Err(error) => {
                let sentence = sentence(&error);
                store.end_restart(id, seconds, Some(&sentence))?;
                Ok(Ended::Failed(sentence))
            }
        }
    }

    /// The loaded data directory of a build, made when it is not there.
    fn loaded(&self, restart: &Restart, install: &Installation, config: &ServerConfig, places: &Places, observer: &dyn Observer) -> anyhow::Result<PathBuf> {
        let cell = restart.cell;
        let load_plan = Load { tables: count(cell, "tables")?, rows: count(cell, "rows")?, seed: LOAD_SEED };
        let name = json!([DATA_FORMAT, restart.entry.key, config.text, config.engine, load_plan.tables, load_plan.rows, load_plan.seed]).to_string();
        let name = blake3::hash(name.as_bytes()).to_hex()[..32].to_owned();
        let snapshot = places.data().join(&name);
        if snapshot.exists() {
            return Ok(snapshot);
        }
        make_dir(&places.data())?;
        let purpose = format!("loading data for {}", cell.name);
        let _lock =
            Held::take(&places.data().join(format!("{name}.lock")), &purpose, &|holder| observer.say(&format!("{}: waiting for {}", cell.name, holder.0)))?;
        if snapshot.exists() {
            return Ok(snapshot);
        }
        observer.say(&format!("{}: loading {} tables of {} rows", cell.name, load_plan.tables, load_plan.rows));
        let (slot, area) = take_area(places, &purpose)?;
        let data = area.dir.join("data");
        let make = || -> anyhow::Result<()> {
            initialise(install, config, &data, &area)?;
            let mut server = start(install, config, &data, &area)?;
            load(&mut server, &load_plan, &area, &area.dir.join("load.log"))?;
            server.stop()
        };
        make().with_context(|| {
            let kept = keep_logs(&area.dir, &places.logs().join(&name))
                .map_or_else(|error| format!("the logs are lost: {error:#}"), |dir| format!("the logs are kept in {}", dir.display()));
            format!("cannot load the data of {} ({kept})", cell.name)
        })?;
        std::fs::rename(&data, &snapshot).with_context(|| format!("cannot keep the loaded data as {}", snapshot.display()))?;
        drop(slot);
        Ok(snapshot)
    }
}

/// Copies the logs of a work directory, which is emptied when it is left.
fn keep_logs(from: &Path, to: &Path) -> anyhow::Result<PathBuf> {
    make_dir(to)?;
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let path = entry?.path();
        if let Some(name) = path.file_name().filter(|_| path.extension().is_some_and(|extension| extension == "log")) {
            std::fs::copy(&path, to.join(name)).with_context(|| format!("cannot copy {}", path.display()))?;
        }
    }
    Ok(to.to_owned())
}

/// A private directory that the servers' account owns.
fn take_area(places: &Places, purpose: &str) -> anyhow::Result<(WorkSlot, Area)> {
    let slot = WorkSlot::take(&places.run(), purpose)?;
    if let Some(account) = &places.account {
        account.own(slot.dir())?;
    }
    let area = Area { dir: slot.dir().to_owned(), account: places.account.clone() };
    Ok((slot, area))
}

fn count(cell: &Cell, axis: &str) -> anyhow::Result<u64> {
    cell.axis(axis).parse().with_context(|| format!("the cell {} has {axis} = `{}`, which is no number", cell.name, cell.axis(axis)))
}

fn run_steps(
    restart: &Restart,
    install: &Installation,
    config: &ServerConfig,
    snapshot: &Path,
    places: &Places,
    store: &mut Store,
    id: RestartId,
) -> anyhow::Result<()> {
    let (_slot, area) = take_area(places, &format!("measuring {}", restart.cell.name))?;
    let data = area.dir.join("data");
    copy_data(snapshot, &data, area.account.as_ref())?;
    let mut server = start(install, config, &data, &area)?;
    let result = restart.workload.steps.iter().try_for_each(|name| one_step(restart, name, &mut server, &area, store, id));
    // A step that failed because of an interrupt or a dead server has nothing to add by stopping.
    match result {
        Ok(()) => server.stop()?,
        Err(error) => {
            drop(server);
            let kept = keep_logs(&area.dir, &places.logs().join(format!("restart-{}", id.0)));
            return Err(match kept {
                Ok(dir) if !interrupted() => error.context(format!("the restart failed; its logs are kept in {}", dir.display())),
                _ => error,
            });
        }
    }
    remove_data(&data)
}

fn one_step(restart: &Restart, name: &str, server: &mut RunningServer, area: &Area, store: &mut Store, id: RestartId) -> anyhow::Result<()> {
    stop_if_interrupted()?;
    let step = step(name)?;
    let cell = restart.cell;
    let plan = StepPlan {
        step,
        threads: count(cell, "threads")?,
        tables: count(cell, "tables")?,
        rows: count(cell, "rows")?,
        warmup: restart.workload.warmup,
        time: restart.workload.time,
        seed: restart.seed,
    };
    let quiet = server.quiesce(false).with_context(|| format!("the server did not come to rest before the step {name}"))?;
    let run = match run_step(&plan, server, area) {
        Ok(run) => run,
        Err(error) => {
            // What the client printed until it failed is kept; the row has no samples.
            if let Some(failure) = error.downcast_ref::<StepFailure>() {
                let doubts = [sentence(&error)];
                let record = StepRecord {
                    name,
                    group: step.group.name(),
                    command: &failure.command,
                    output: &failure.output,
                    series: json!([]),
                    quiet: &quiet.proof.join("; "),
                    doubts: &doubts,
                    metrics: &BTreeMap::new(),
                };
                store.record_step(id, &record)?;
            }
            return Err(error);
        }
    };
    if interrupted() {
        return Err(crate::process::Interrupted.into());
    }
    let series: Vec<_> = run
        .seconds
        .iter()
        .enumerate()
        .map(|(at, second)| json!({"second": second.second, "tps": second.tps, "qps": second.qps, "latency_p95": second.latency_p95, "server_cpu_us": run.server_cpu.get(at)}))
        .collect();
    store.record_step(
        id,
        &StepRecord {
            name,
            group: step.group.name(),
            command: &run.command,
            output: &run.output,
            series: series.into(),
            quiet: &quiet.proof.join("; "),
            doubts: &run.doubts,
            metrics: &run.metrics,
        },
    )
}
