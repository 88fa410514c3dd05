//! Restarts, their steps and samples.

use std::collections::BTreeMap;

use anyhow::Context;
use rusqlite::{OptionalExtension, params};

use crate::compare::{Reading, Series};
use crate::matrix::{Cell, Workload};
use crate::measure::{Fingerprint, Metric};

use super::schema::Store;

/// A restart in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RestartId(pub i64);

/// A session in the database.
pub type SessionId = i64;

/// Blocks of one session are told from those of another by this factor.
const BLOCKS_PER_SESSION: i64 = 1_000_000;

/// What a restart is going to run.
#[derive(Clone, Copy, Debug)]
pub struct RestartPlan<'a> {
    /// Session it belongs to.
    pub session: SessionId,
    /// What is built and how it is run.
    pub cell: &'a Cell,
    /// Place of the cell in its matrix.
    pub position: usize,
    /// Which build.
    pub build_key: &'a str,
    /// What is run.
    pub workload: &'a Workload,
    /// Round of the interleaved plan.
    pub block: u64,
    /// RFC 3339.
    pub now: &'a str,
}

/// One step as it is recorded.
#[derive(Clone, Debug)]
pub struct StepRecord<'a> {
    /// Name of the step.
    pub name: &'a str,
    /// Its group.
    pub group: &'a str,
    /// The client's command line.
    pub command: &'a str,
    /// Everything the client printed.
    pub output: &'a str,
    /// Per-second values.
    pub series: serde_json::Value,
    /// How the server was brought to rest before it.
    pub quiet: &'a str,
    /// Reasons not to count it.
    pub doubts: &'a [String],
    /// One value per metric.
    pub metrics: &'a BTreeMap<Metric, f64>,
}

/// A finished restart, for planning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Name of the cell.
    pub cell: String,
    /// Round it was in.
    pub block: u64,
}

impl Store {
    /// Begins a session on a host.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn begin_session(&self, host: &Fingerprint, kind: &str, study: &str, now: &str) -> anyhow::Result<SessionId> {
        let digest = host.digest();
        let facts = serde_json::to_string(host)?;
        self.connection.execute("INSERT OR IGNORE INTO host (digest, facts) VALUES (?1, ?2)", params![digest, facts])?;
        let sql = "INSERT INTO session (host, kind, study, started_at) SELECT id, ?2, ?3, ?4 FROM host WHERE digest = ?1";
        self.connection.execute(sql, params![digest, kind, study, now]).context("cannot record the session")?;
        Ok(self.connection.last_insert_rowid())
    }

    /// Records that a restart begins.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn begin_restart(&self, plan: &RestartPlan) -> anyhow::Result<RestartId> {
        let definition = serde_json::to_string(plan.cell)?;
        let sql = "INSERT INTO cell (name, definition, position) VALUES (?1, ?2, ?3) ON CONFLICT (definition) DO UPDATE SET position = excluded.position";
        self.connection.execute(sql, params![plan.cell.name, definition, i64::try_from(plan.position)?])?;
        let sql = "INSERT INTO restart (session, cell, build_key, workload, block, started_at) SELECT ?1, id, ?3, ?4, ?5, ?6 FROM cell WHERE definition = ?2";
        let workload = workload_key(plan.workload)?;
        self.connection
            .execute(sql, params![plan.session, definition, plan.build_key, workload, i64::try_from(plan.block)?, plan.now])
            .context("cannot record the restart")?;
        Ok(RestartId(self.connection.last_insert_rowid()))
    }

    /// Records one step with its samples, all or nothing.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn record_step(&mut self, restart: RestartId, step: &StepRecord) -> anyhow::Result<()> {
        let transaction = self.connection.transaction()?;
        let doubt = (!step.doubts.is_empty()).then(|| step.doubts.join("; "));
        transaction.execute(
            "INSERT INTO step (restart, name, grp, command, output, series, quiet, doubt) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![restart.0, step.name, step.group, step.command, step.output, step.series.to_string(), step.quiet, doubt],
        )?;
        let id = transaction.last_insert_rowid();
        for (metric, value) in step.metrics {
            transaction.execute("INSERT INTO sample (step, metric, value) VALUES (?1, ?2, ?3)", params![id, metric.name(), value])?;
        }
        transaction.commit().context("cannot record the step")
    }

    /// Records the end of a restart.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn end_restart(&self, restart: RestartId, seconds: f64, failure: Option<&str>) -> anyhow::Result<()> {
        self.connection
            .execute("UPDATE restart SET seconds = ?2, failure = ?3 WHERE id = ?1", params![restart.0, seconds, failure])
            .context("cannot record the end of the restart")?;
        Ok(())
    }

    /// Restarts of a study that are complete for these builds and this workload on this host.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn finished(&self, study: &str, host: &Fingerprint, workload: &Workload, builds: &BTreeMap<String, String>) -> anyhow::Result<Vec<Finished>> {
        let sql = "
            SELECT cell.name, restart.build_key, restart.block FROM restart
            JOIN cell ON cell.id = restart.cell JOIN session ON session.id = restart.session JOIN host ON host.id = session.host
            WHERE session.kind = 'run' AND session.study = ?1 AND host.digest = ?2 AND restart.workload = ?3
              AND restart.seconds IS NOT NULL AND restart.failure IS NULL";
        let mut statement = self.connection.prepare(sql)?;
        let rows = statement.query_map(params![study, host.digest(), workload_key(workload)?], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?))
        })?;
        let mut found = Vec::new();
        for row in rows {
            let (cell, key, block) = row?;
            if builds.get(&cell) == Some(&key) {
                found.push(Finished { cell, block: u64::try_from(block).unwrap_or(0) });
            }
        }
        Ok(found)
    }

    /// The cells that `run` has measured, in the order of their matrices.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn cells(&self) -> anyhow::Result<Vec<Cell>> {
        let sql = "SELECT cell.definition FROM cell WHERE EXISTS (SELECT 1 FROM restart JOIN session ON session.id = restart.session WHERE restart.cell = cell.id AND session.kind = 'run') ORDER BY position, cell.id";
        let mut statement = self.connection.prepare(sql)?;
        let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
        rows.map(|row| serde_json::from_str(&row?).context("the database holds a cell that cannot be read")).collect()
    }

    /// Fingerprints of the hosts that a set of cells was measured on.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn hosts(&self, cells: &[Cell]) -> anyhow::Result<Vec<Fingerprint>> {
        let sql = "
            SELECT DISTINCT host.facts FROM host JOIN session ON session.host = host.id JOIN restart ON restart.session = session.id JOIN cell ON cell.id = restart.cell
            WHERE session.kind = 'run' AND cell.definition = ?1 AND restart.seconds IS NOT NULL";
        let mut statement = self.connection.prepare(sql)?;
        let mut found: Vec<Fingerprint> = Vec::new();
        for cell in cells {
            let rows = statement.query_map([serde_json::to_string(cell)?], |row| row.get::<_, String>(0))?;
            for row in rows {
                let host: Fingerprint = serde_json::from_str(&row?).context("the database holds a host that cannot be read")?;
                if !found.contains(&host) {
                    found.push(host);
                }
            }
        }
        Ok(found)
    }

    /// Samples of one cell for some metrics: those of its newest build and workload, so that a
    /// source or a matrix that was changed meanwhile is not mixed with what was before.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn series(&self, cell: &Cell, metrics: &[Metric]) -> anyhow::Result<Vec<Series>> {
        let definition = serde_json::to_string(cell)?;
        let newest = "
            SELECT restart.build_key, restart.workload FROM restart JOIN cell ON cell.id = restart.cell JOIN session ON session.id = restart.session
            WHERE cell.definition = ?1 AND session.kind = 'run' AND restart.seconds IS NOT NULL ORDER BY restart.id DESC LIMIT 1";
        let Some((key, workload)) =
            self.connection.query_row(newest, [&definition], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))).optional()?
        else {
            return Ok(Vec::new());
        };
        let sql = "
            SELECT step.name, step.grp, sample.value, step.doubt, restart.session * ?5 + restart.block FROM sample
            JOIN step ON step.id = sample.step JOIN restart ON restart.id = step.restart JOIN cell ON cell.id = restart.cell JOIN session ON session.id = restart.session
            WHERE cell.definition = ?1 AND restart.build_key = ?2 AND restart.workload = ?3 AND sample.metric = ?4 AND session.kind = 'run'
            ORDER BY step.id";
        let mut statement = self.connection.prepare(sql)?;
        let mut found: Vec<Series> = Vec::new();
        for metric in metrics {
            let rows = statement.query_map(params![definition, key, workload, metric.name(), BLOCKS_PER_SESSION], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, Option<f64>>(2)?, row.get::<_, Option<String>>(3)?, row.get::<_, i64>(4)?))
            })?;
            for row in rows {
                let (step, group, value, doubt, block) = row?;
                // SQLite stores what is no number as NULL.
                let reading = Reading { block: u64::try_from(block).unwrap_or(0), value: value.unwrap_or(f64::NAN), doubt };
                match found.iter_mut().find(|series| series.metric == *metric && series.step == step) {
                    Some(series) => series.readings.push(reading),
                    None => found.push(Series { cell: cell.name.clone(), step, group, metric: *metric, readings: vec![reading] }),
                }
            }
        }
        Ok(found)
    }
}

/// The part of a workload that makes samples comparable: how often it is repeated does not.
pub(super) fn workload_key(workload: &Workload) -> anyhow::Result<String> {
    Ok(serde_json::to_string(&Workload { repeats: 0, ..workload.clone() })?)
}
