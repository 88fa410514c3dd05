//! Tables, and how an older file becomes a newer one.
//!
//! ```text
//! host 1--n session 1--n restart 1--n step 1--n sample
//!                        restart n--1 cell
//! search 1--n search_build     what was built, or could not be
//!        1--n search_restart   which restart was a reading of which class
//! ```

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use rusqlite::Connection;
use rusqlite_migration::{Error, M, MigrationDefinitionError, Migrations};

use crate::matrix::ConfigurationError;

/// An open database.
#[derive(Debug)]
pub struct Store {
    pub(super) connection: Connection,
}

const MIGRATIONS: &[M] = &[M::up(
    "
CREATE TABLE host (
    id INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    facts TEXT NOT NULL              -- JSON object of the fingerprint
);
CREATE TABLE cell (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    definition TEXT NOT NULL UNIQUE, -- JSON of the cell
    position INTEGER NOT NULL        -- place in its matrix
);
CREATE TABLE session (
    id INTEGER PRIMARY KEY,
    host INTEGER NOT NULL REFERENCES host,
    kind TEXT NOT NULL CHECK (kind IN ('run', 'bisect')),
    study TEXT NOT NULL,             -- name of the matrix
    started_at TEXT NOT NULL
);
CREATE TABLE restart (
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES session,
    cell INTEGER NOT NULL REFERENCES cell,
    build_key TEXT NOT NULL,
    workload TEXT NOT NULL,          -- JSON: what was to be run
    block INTEGER NOT NULL,          -- round of the interleaved plan
    started_at TEXT NOT NULL,
    seconds REAL,                    -- NULL while it runs, or when it was cut off
    failure TEXT                     -- why it ended early
);
CREATE INDEX restart_cell ON restart (cell, build_key);
CREATE TABLE step (
    id INTEGER PRIMARY KEY,
    restart INTEGER NOT NULL REFERENCES restart,
    name TEXT NOT NULL,
    grp TEXT NOT NULL,
    command TEXT NOT NULL,
    output TEXT NOT NULL,            -- everything the client printed
    series TEXT NOT NULL,            -- JSON: per-second values
    quiet TEXT NOT NULL,             -- how the server was brought to rest before it
    doubt TEXT                       -- why its samples must not count
);
CREATE INDEX step_restart ON step (restart);
CREATE TABLE sample (
    step INTEGER NOT NULL REFERENCES step,
    metric TEXT NOT NULL,
    value REAL,
    PRIMARY KEY (step, metric)
) WITHOUT ROWID;
CREATE TABLE search (
    id INTEGER PRIMARY KEY,
    created_at TEXT NOT NULL,
    definition TEXT NOT NULL,        -- JSON: commits, question, cell, workload
    answer TEXT                      -- JSON, NULL until it has ended
);
CREATE TABLE search_build (
    search INTEGER NOT NULL REFERENCES search,
    class INTEGER NOT NULL,
    build_key TEXT,
    outcome TEXT NOT NULL CHECK (outcome IN ('built', 'hit', 'failed')),
    seconds REAL NOT NULL,
    message TEXT,
    PRIMARY KEY (search, class)
) WITHOUT ROWID;
CREATE TABLE search_restart (
    search INTEGER NOT NULL REFERENCES search,
    restart INTEGER NOT NULL REFERENCES restart,
    class INTEGER NOT NULL,
    PRIMARY KEY (search, restart)
) WITHOUT ROWID;
",
)];

impl Store {
    /// Opens the database, made or brought up to date when needed.
    ///
    /// # Errors
    /// [`ConfigurationError`] when the file is no database or was written by a newer dbisect; it is
    /// not changed then.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        let mut connection = Connection::open(path).with_context(|| format!("cannot open the database {name}"))?;
        let wrong =
            |error: &dyn std::fmt::Display| ConfigurationError::new(format!("{name} cannot be used as the database: {error}; name another file with --db"));
        connection.busy_timeout(Duration::from_secs(30))?;
        connection.pragma_update(None, "journal_mode", "WAL").map_err(|error| wrong(&error))?;
        connection.pragma_update(None, "foreign_keys", true)?;
        match Migrations::from_slice(MIGRATIONS).to_latest(&mut connection) {
            Ok(()) => Ok(Self { connection }),
            Err(Error::MigrationDefinition(MigrationDefinitionError::DatabaseTooFarAhead)) => {
                Err(ConfigurationError::new(format!("the database {name} was written by a newer dbisect; update dbisect, or name another file with --db"))
                    .into())
            }
            Err(error) => Err(wrong(&error).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_are_sound() {
        Migrations::from_slice(MIGRATIONS).validate().unwrap();
    }

    #[test]
    fn a_newer_database_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new.db");
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
        let error = Store::open(&path).unwrap_err();
        assert!(error.downcast_ref::<ConfigurationError>().is_some() && error.to_string().contains("newer dbisect"), "{error:#}");
        let version: i64 = Connection::open(&path).unwrap().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(version, 99);
    }

    #[test]
    fn a_file_that_is_no_database_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text.db");
        std::fs::write(&path, "this is not a database, but it is long enough to look at".repeat(20)).unwrap();
        let error = Store::open(&path).unwrap_err().to_string();
        assert!(error.contains("--db"), "{error}");
    }

    #[test]
    fn opening_twice_keeps_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.db");
        Store::open(&path).unwrap().connection.execute("INSERT INTO host (digest, facts) VALUES ('d', '{}')", []).unwrap();
        let count: i64 = Store::open(&path).unwrap().connection.query_row("SELECT count(*) FROM host", [], |row| row.get(0)).unwrap();
        assert_eq!(count, 1);
    }
}
