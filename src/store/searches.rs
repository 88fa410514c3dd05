//! Searches: their definition, what they built and read, their answer.

use anyhow::Context;
use rusqlite::{OptionalExtension, params};

use crate::bisect::Reading;
use crate::matrix::ConfigurationError;
use crate::measure::Metric;

use super::restarts::{RestartId, SessionId};
use super::schema::Store;

/// A search in the database.
pub type SearchId = i64;

/// What was built for a search, or could not be.
#[derive(Clone, Debug, PartialEq)]
pub struct BuildNote {
    /// Class of commits that are this build.
    pub class: usize,
    /// Its key, when the source could be had.
    pub build_key: Option<String>,
    /// `built`, `hit` or `failed`.
    pub outcome: String,
    /// Seconds it took.
    pub seconds: f64,
    /// What went wrong.
    pub message: Option<String>,
}

/// A search as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchRecord {
    /// Its number.
    pub id: SearchId,
    /// RFC 3339.
    pub created_at: String,
    /// JSON of the definition, which the pipeline writes and reads.
    pub definition: String,
    /// JSON of the answer, once there is one.
    pub answer: Option<String>,
}

impl Store {
    /// Records a new search.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn begin_search(&self, definition: &str, now: &str) -> anyhow::Result<SearchId> {
        self.connection.execute("INSERT INTO search (created_at, definition) VALUES (?1, ?2)", params![now, definition]).context("cannot record the search")?;
        Ok(self.connection.last_insert_rowid())
    }

    /// One search.
    ///
    /// # Errors
    /// [`ConfigurationError`] when there is none of that number.
    pub fn search(&self, id: SearchId) -> anyhow::Result<SearchRecord> {
        let row = self.connection.query_row("SELECT id, created_at, definition, answer FROM search WHERE id = ?1", [id], record).optional()?;
        row.ok_or_else(|| ConfigurationError::new(format!("there is no search {id}; `dbisect bisect list` shows those there are")).into())
    }

    /// All searches, oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn searches(&self) -> anyhow::Result<Vec<SearchRecord>> {
        let mut statement = self.connection.prepare("SELECT id, created_at, definition, answer FROM search ORDER BY id")?;
        let rows = statement.query_map([], record)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Records the answer of a search.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn end_search(&self, id: SearchId, answer: &str) -> anyhow::Result<()> {
        self.connection.execute("UPDATE search SET answer = ?2 WHERE id = ?1", params![id, answer]).context("cannot record the answer")?;
        Ok(())
    }

    /// Records a build of a search. What a class was first built as stays: a later hit of the same
    /// build tells nothing new.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn note_build(&self, search: SearchId, note: &BuildNote) -> anyhow::Result<()> {
        let sql = "INSERT INTO search_build (search, class, build_key, outcome, seconds, message) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                   ON CONFLICT DO UPDATE SET build_key = excluded.build_key, outcome = excluded.outcome, message = excluded.message WHERE excluded.outcome = 'failed'";
        self.connection
            .execute(sql, params![search, i64::try_from(note.class)?, note.build_key, note.outcome, note.seconds, note.message])
            .context("cannot record the build")?;
        Ok(())
    }

    /// What was built for a search.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn builds_of(&self, search: SearchId) -> anyhow::Result<Vec<BuildNote>> {
        let mut statement = self.connection.prepare("SELECT class, build_key, outcome, seconds, message FROM search_build WHERE search = ?1 ORDER BY class")?;
        let rows = statement.query_map([search], |row| {
            Ok(BuildNote {
                class: usize::try_from(row.get::<_, i64>(0)?).unwrap_or(0),
                build_key: row.get(1)?,
                outcome: row.get(2)?,
                seconds: row.get(3)?,
                message: row.get(4)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Records that a restart is a reading of a class.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn note_reading(&self, search: SearchId, restart: RestartId, class: usize) -> anyhow::Result<()> {
        self.connection
            .execute("INSERT INTO search_restart (search, restart, class) VALUES (?1, ?2, ?3)", params![search, restart.0, i64::try_from(class)?])
            .context("cannot record the reading")?;
        Ok(())
    }

    /// Readings of a search that count, in order of time, and the sessions of those that are doubtful.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn readings_of(&self, search: SearchId, step: &str, metric: Metric) -> anyhow::Result<(Vec<Reading>, Vec<SessionId>)> {
        let sql = "
            SELECT search_restart.class, restart.id, restart.session, sample.value, step.doubt FROM search_restart
            JOIN restart ON restart.id = search_restart.restart JOIN step ON step.restart = restart.id JOIN sample ON sample.step = step.id
            WHERE search_restart.search = ?1 AND step.name = ?2 AND sample.metric = ?3 AND restart.seconds IS NOT NULL AND restart.failure IS NULL ORDER BY restart.id";
        let mut statement = self.connection.prepare(sql)?;
        let rows = statement.query_map(params![search, step, metric.name()], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?, row.get::<_, Option<f64>>(3)?, row.get::<_, Option<String>>(4)?))
        })?;
        let (mut readings, mut doubtful) = (Vec::new(), Vec::new());
        for row in rows {
            let (class, restart, session, value, doubt) = row?;
            match (value, doubt) {
                (Some(value), None) => {
                    readings.push(Reading { class: usize::try_from(class)?, sequence: u64::try_from(restart)?, session: u64::try_from(session)?, value })
                }
                _ => doubtful.push(session),
            }
        }
        Ok((readings, doubtful))
    }

    /// Restarts of a search, with those that failed, and the seconds they took.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn restarts_of(&self, search: SearchId) -> anyhow::Result<(usize, f64)> {
        let sql = "SELECT count(*), coalesce(sum(restart.seconds), 0) FROM search_restart JOIN restart ON restart.id = search_restart.restart WHERE search = ?1 AND restart.seconds IS NOT NULL";
        let (count, seconds): (i64, f64) = self.connection.query_row(sql, [search], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok((usize::try_from(count)?, seconds))
    }

    /// Why restarts of a class failed, in order.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn failures_of(&self, search: SearchId, class: usize) -> anyhow::Result<Vec<String>> {
        let sql = "SELECT restart.failure FROM search_restart JOIN restart ON restart.id = search_restart.restart WHERE search = ?1 AND class = ?2 AND restart.failure IS NOT NULL ORDER BY restart.id";
        let mut statement = self.connection.prepare(sql)?;
        let rows = statement.query_map(params![search, i64::try_from(class)?], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

fn record(row: &rusqlite::Row) -> rusqlite::Result<SearchRecord> {
    Ok(SearchRecord { id: row.get(0)?, created_at: row.get(1)?, definition: row.get(2)?, answer: row.get(3)? })
}
