//! A server that runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::signal::Signal;

use crate::matrix::Dbms;
use crate::process::Daemon;

/// Where clients reach a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The server.
    pub dbms: Dbms,
    /// Directory of the Unix socket, which only the server's account can enter.
    pub socket_dir: PathBuf,
    /// Number in the socket's name; no network port is opened.
    pub port: u16,
    /// Superuser, without a password.
    pub user: String,
    /// Database of the benchmark.
    pub database: String,
}

/// What was done to quiet a server, and how that was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quiet {
    /// Statements run and states seen, in order.
    pub proof: Vec<String>,
}

/// One way of asking a server to stop, and how long it is given.
#[derive(Clone, Copy, Debug)]
pub struct StopSignal {
    /// Name of this kind of shutdown in the engine's own words.
    pub name: &'static str,
    /// Signal to the main process.
    pub signal: Signal,
    /// Time until the next, harder way.
    pub patience: Duration,
}

/// A server that runs. Dropping it ends its processes without ceremony; [`Self::stop`] is the
/// engine's own way.
pub struct RunningServer {
    pub(super) daemon: Daemon,
    pub(super) endpoint: Endpoint,
    pub(super) client: postgres::Client,
    /// Removed when the server is gone.
    pub(super) _socket_dir: tempfile::TempDir,
    pub(super) stop_signals: &'static [StopSignal],
}

impl std::fmt::Debug for RunningServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningServer").field("pid", &self.pid()).field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl RunningServer {
    /// Process id of the main process.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.daemon.pid()
    }

    /// Where clients reach it.
    #[must_use]
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Fails when the server has ended by itself; the error quotes its log.
    ///
    /// # Errors
    /// When it is not running.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.daemon.is_running() { Ok(()) } else { Err(self.daemon.error()).context("the server ended by itself") }
    }

    /// Runs statements, separated by semicolons, and ignores what they return.
    ///
    /// # Errors
    /// When the server refuses one, or is gone.
    pub fn sql(&mut self, statements: &str) -> anyhow::Result<()> {
        if let Err(error) = self.client.batch_execute(statements) {
            self.check()?;
            return Err(error).with_context(|| format!("the server refused `{statements}`"));
        }
        Ok(())
    }

    /// Brings the server to rest: dirty pages written, nothing working in the background; with
    /// `vacuum` also the tables' statistics and dead rows.
    ///
    /// # Errors
    /// When the server refuses a statement, or does not come to rest in time.
    pub fn quiesce(&mut self, vacuum: bool) -> anyhow::Result<Quiet> {
        super::postgres::quiesce(self, vacuum)
    }

    /// Stops the server: the engine's own way first, harder ways when it does not end in time.
    ///
    /// # Errors
    /// When it had ended by itself, or only the hardest way helped.
    pub fn stop(self) -> anyhow::Result<()> {
        self.check()?;
        for (index, way) in self.stop_signals.iter().enumerate() {
            self.daemon.signal(way.signal);
            if self.daemon.wait_for_end(way.patience) {
                if index == 0 {
                    return Ok(());
                }
                bail!("the server did not stop within {} s when asked for a {} shutdown; a {} shutdown ended it", self.stop_signals[0].patience.as_secs(), self.stop_signals[0].name, way.name);
            }
        }
        bail!("the server did not stop when asked, and its processes were ended")
    }
}

/// A private directory for a socket. Its path is short, since the path of a Unix socket may have at
/// most 107 bytes.
pub(super) fn socket_dir(account: Option<&crate::process::Account>) -> anyhow::Result<tempfile::TempDir> {
    let base = std::env::temp_dir();
    let base = if base.as_os_str().len() > 60 { Path::new("/tmp").to_owned() } else { base };
    let dir = tempfile::Builder::new().prefix("dbisect-").tempdir_in(&base).with_context(|| format!("cannot make a directory for the server's socket in {}", base.display()))?;
    if let Some(account) = account {
        account.own(dir.path())?;
    }
    Ok(dir)
}
