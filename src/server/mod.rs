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
            let of_dbms = |entry: std::fs::DirEntry| entry.file_name().to_str()?.strip_prefix(prefix).map(str::to_owned);
            let mut names: Vec<_> = std::fs::read_dir(configs).map(|entries| entries.flatten().filter_map(of_dbms).collect()).unwrap_or_default();
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

/// Makes a new data directory with the configuration in it. `data` must not exist yet, or be empty.
///
/// # Errors
/// When the configuration cannot be meant for this server ([`ConfigurationError`]), or the engine
/// refuses; the error ends with what it said.
pub fn initialise(install: &Installation, config: &ServerConfig, data: &Path, area: &Area) -> anyhow::Result<()> {
    engine(install.dbms)?.initialise(install, config, data, area)
}

/// Starts a server on a data directory and waits until it answers.
///
/// Call it on a thread that lives as long as the server is needed: when the thread that started a
/// server ends, the kernel tells the server that dbisect died.
///
/// # Errors
/// When another server runs on the data, or this one ends or does not answer in time; the error ends
/// with the last lines of its log.
pub fn start(install: &Installation, data: &Path, area: &Area) -> anyhow::Result<RunningServer> {
    engine(install.dbms)?.start(install, data, area)
}

/// What differs between servers. A new dbms is a new implementation and a line in [`engine`].
trait Engine {
    fn initialise(&self, install: &Installation, config: &ServerConfig, data: &Path, area: &Area) -> anyhow::Result<()>;
    fn start(&self, install: &Installation, data: &Path, area: &Area) -> anyhow::Result<RunningServer>;
}

fn engine(dbms: Dbms) -> Result<&'static dyn Engine, ConfigurationError> {
    match dbms {
        Dbms::Postgres => Ok(&postgres::Postgres),
        Dbms::Mysql | Dbms::Myrocks | Dbms::Mariadb => Err(ConfigurationError::new(format!("{dbms} servers cannot be run yet; postgres can"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read_by_the_name_of_the_posts() {
        let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("matrices/configs");
        let config = ServerConfig::read(&configs, Dbms::Postgres, "cx9a2a_small").unwrap();
        assert!(config.text.contains("synchronous_commit = off"));
        let error = ServerConfig::read(&configs, Dbms::Postgres, "cx9a2a_smal").unwrap_err().to_string();
        assert!(error.contains("conf.diff.cx9a2a_smal") && error.contains("there are: cx9a2a_small"), "{error}");
    }

    #[test]
    fn a_server_that_cannot_be_run_is_a_configuration_error() {
        let install = Installation { dbms: Dbms::Mysql, prefix: PathBuf::from("/none") };
        let area = Area { dir: PathBuf::from("/none"), account: None };
        let error = start(&install, Path::new("/none"), &area).unwrap_err();
        assert!(error.is::<ConfigurationError>(), "{error}");
    }
}
