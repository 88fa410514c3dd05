//! An installed build to a running server.
//!
//! Takes an [`Installation`], a [`ServerConfig`] and a private [`Area`]. Gives an initialised data
//! directory, copies of it, and a [`RunningServer`] that can be asked, quieted and stopped the
//! engine's own way.
//! Never listens on a network address, never runs as root, never leaves a process behind.

mod data;
mod postgres;
mod running;

use std::path::{Path, PathBuf};

use anyhow::bail;

use crate::matrix::{ConfigurationError, Dbms};
use crate::process::Account;

pub use data::{copy_data, remove_data};
pub use running::{Endpoint, Quiet, RunningServer};

/// An installed build. It is relocatable: programs find libraries and files relative to themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// The server.
    pub dbms: Dbms,
    /// Directory with `bin`, `lib` and `share`.
    pub prefix: PathBuf,
}

/// A server configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Short name, such as `cx9a2a_small`.
    pub name: String,
    /// Lines that are appended to the engine's default configuration.
    pub text: String,
}

impl ServerConfig {
    /// Reads the configuration `name` of a dbms from `configs`: `conf.diff.<name>` for Postgres,
    /// `my.cnf.<name>` for the MySQL family, as the posts name them.
    ///
    /// # Errors
    /// [`ConfigurationError`] that lists what there is.
    pub fn read(configs: &Path, dbms: Dbms, name: &str) -> Result<Self, ConfigurationError> {
        let prefix = if dbms == Dbms::Postgres { "conf.diff." } else { "my.cnf." };
        let path = configs.join(format!("{prefix}{name}"));
        let text = std::fs::read_to_string(&path).map_err(|error| {
            let names = std::fs::read_dir(configs).map(|entries| entries.flatten().filter_map(|entry| entry.file_name().to_str()?.strip_prefix(prefix).map(str::to_owned)).collect::<Vec<_>>());
            let mut names = names.unwrap_or_default();
            names.sort();
            ConfigurationError::new(format!("the server configuration {} cannot be read: {error}; for {dbms} there are: {}", path.display(), names.join(", ")))
        })?;
        Ok(Self { name: name.to_owned(), text })
    }
}

/// A private directory in which one server works, and the account it works under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// The directory; the account owns it and can reach it.
    pub dir: PathBuf,
    /// Unprivileged account when dbisect runs as root.
    pub account: Option<Account>,
}

/// Makes a new data directory with the configuration in it.
///
/// # Errors
/// When the engine refuses; the error ends with what it said.
pub fn initialise(install: &Installation, config: &ServerConfig, data: &Path, area: &Area) -> anyhow::Result<()> {
    match install.dbms {
        Dbms::Postgres => postgres::initialise(install, config, data, area),
        Dbms::Mysql | Dbms::Myrocks | Dbms::Mariadb => bail!(ConfigurationError::new(format!("{} servers cannot be run yet", install.dbms))),
    }
}

/// Starts a server on a data directory and waits until it answers.
///
/// # Errors
/// When it ends or does not answer in time; the error ends with the last lines of its log.
pub fn start(install: &Installation, data: &Path, area: &Area) -> anyhow::Result<RunningServer> {
    match install.dbms {
        Dbms::Postgres => postgres::start(install, data, area),
        Dbms::Mysql | Dbms::Myrocks | Dbms::Mariadb => bail!(ConfigurationError::new(format!("{} servers cannot be run yet", install.dbms))),
    }
}
