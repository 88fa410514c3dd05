//! An installed build to a running server.
//!
//! Takes an [`Installation`], a [`ServerConfig`] and a private [`Area`]. Gives an initialised data
//! directory, copies of it, and a [`RunningServer`] that can be asked, quieted and stopped the
//! engine's own way.
//! Never listens on a network address, never runs as root, never leaves a process behind.

mod config;
mod data;
mod mysql;
mod postgres;
mod running;

use std::path::{Path, PathBuf};

use crate::matrix::Dbms;
use crate::process::Account;

pub use config::ServerConfig;
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
    engine(install.dbms).initialise(install, config, data, area)
}

/// Starts a server on a data directory that was made with the same configuration, and waits until it answers.
///
/// Call it on a thread that lives as long as the server is needed: when the thread that started a
/// server ends, the kernel tells the server that dbisect died.
///
/// # Errors
/// When another server runs on the data, or this one ends or does not answer in time; the error ends
/// with the last lines of its log.
pub fn start(install: &Installation, config: &ServerConfig, data: &Path, area: &Area) -> anyhow::Result<RunningServer> {
    engine(install.dbms).start(install, config, data, area)
}

/// What differs between servers. A new dbms is a new implementation and a line in [`engine`].
trait Engine {
    fn initialise(&self, install: &Installation, config: &ServerConfig, data: &Path, area: &Area) -> anyhow::Result<()>;
    fn start(&self, install: &Installation, config: &ServerConfig, data: &Path, area: &Area) -> anyhow::Result<RunningServer>;
}

fn engine(dbms: Dbms) -> &'static dyn Engine {
    match dbms {
        Dbms::Postgres => &postgres::Postgres,
        Dbms::Mysql | Dbms::Myrocks | Dbms::Mariadb => &mysql::Mysql,
    }
}
