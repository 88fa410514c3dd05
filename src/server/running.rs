//! A server that runs.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use procfs::process::Process;

use crate::matrix::{Dbms, StorageEngine};
use crate::process::{Account, Daemon, interrupted, stop_if_interrupted};

use super::mysql::SOCKET;

/// Time that a broken server's main process, or a killed one's children, take to leave.
const GONE_AFTER: Duration = Duration::from_millis(500);
/// Time that a killed process takes to be gone, unless it waits for storage.
const KILLED_AFTER: Duration = Duration::from_secs(5);
/// How often a wait looks again.
const POLL: Duration = Duration::from_millis(20);
/// Longest path of the system's directory for temporary files that leaves room for a socket's name.
const TEMP_DIR_LENGTH: usize = 60;

/// Where clients reach a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The server.
    pub dbms: Dbms,
    /// Directory of the Unix socket, which only the server's account can enter.
    pub socket_dir: PathBuf,
    /// Number in the socket's name (Postgres); no network port is opened.
    pub port: u16,
    /// Superuser, without a password.
    pub user: String,
    /// Database of the benchmark.
    pub database: String,
    /// Storage engine of its tables; `None` for Postgres, which has one.
    pub engine: Option<StorageEngine>,
}

impl Endpoint {
    /// The socket itself, in the MySQL family.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.socket_dir.join(SOCKET)
    }
}

/// What was done to quiet a server, and how that was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quiet {
    /// Statements run and states seen, in order.
    pub proof: Vec<String>,
}

/// One way of asking a server to stop, and how long it is given.
#[derive(Clone, Copy, Debug)]
pub(super) struct StopSignal {
    /// Name of this kind of shutdown in the engine's own words.
    pub name: &'static str,
    /// Signal to the main process.
    pub signal: Signal,
    /// Time until the next, harder way.
    pub patience: Duration,
}

/// A connection of dbisect's own to a server, in the engine's protocol.
pub(super) trait Session {
    /// Runs statements and ignores what they return.
    fn sql(&mut self, statements: &str) -> anyhow::Result<()>;
    /// Brings the server to rest, see [`RunningServer::quiesce`].
    fn quiesce(&mut self, vacuum: bool) -> anyhow::Result<Quiet>;
}

/// A server that runs. [`Self::stop`] ends it the engine's own way; dropping it ends it at once.
pub struct RunningServer {
    pub(super) daemon: Daemon,
    pub(super) endpoint: Endpoint,
    pub(super) session: Box<dyn Session>,
    /// Data directory.
    pub(super) data: PathBuf,
    /// Ways to stop, from the regular one to the hardest.
    pub(super) stop_signals: [StopSignal; 2],
    /// Removed when the server is gone.
    pub(super) _socket_dir: tempfile::TempDir,
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

    /// Whether its main process is there.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.daemon.is_running()
    }

    /// Fails when the server has ended by itself; the error quotes its log.
    ///
    /// # Errors
    /// When it is not running.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.is_running() { Ok(()) } else { Err(self.daemon.error()).context("the server ended by itself") }
    }

    /// As [`Self::check`], for a client that has just lost its connection: a server that dies closes
    /// connections first, so it is given a moment to be gone.
    ///
    /// # Errors
    /// When it is not running by then.
    pub fn check_soon(&self) -> anyhow::Result<()> {
        if self.daemon.wait_for_end(GONE_AFTER) { self.check() } else { Ok(()) }
    }

    /// Runs statements, separated by semicolons, in the server's own database, and ignores what they
    /// return. Several statements are one transaction. An interrupt cancels the statement.
    ///
    /// # Errors
    /// When the server refuses one, or is gone, or the user interrupts.
    pub fn sql(&mut self, statements: &str) -> anyhow::Result<()> {
        let result = self.session.sql(statements);
        self.unless_gone(result)
    }

    /// Brings the server to rest: dirty pages written and on storage, nothing working in the
    /// background; with `vacuum` also the benchmark tables' statistics and dead rows.
    ///
    /// # Errors
    /// When the server refuses a statement, does not come to rest in time, or is gone.
    pub fn quiesce(&mut self, vacuum: bool) -> anyhow::Result<Quiet> {
        let result = self.session.quiesce(vacuum);
        let mut quiet = self.unless_gone(result)?;
        // A copied data directory may still be in the page cache only; its writing would disturb what
        // is measured next.
        let dir = std::fs::File::open(&self.data).with_context(|| format!("cannot open the data directory {}", self.data.display()))?;
        nix::unistd::syncfs(dir).with_context(|| format!("cannot sync the filesystem of {}", self.data.display()))?;
        quiet.proof.push("filesystem synced".to_owned());
        Ok(quiet)
    }

    /// When the server is gone, its own last words say more than a broken connection.
    fn unless_gone<T>(&self, result: anyhow::Result<T>) -> anyhow::Result<T> {
        if result.is_err() {
            self.check_soon()?;
        }
        result
    }

    /// Stops the server: the engine's own way first, a harder one when it does not end in time, by
    /// force when that does not help either.
    ///
    /// # Errors
    /// When it had ended by itself, or did not stop in the regular way; the error says how it ended.
    pub fn stop(self) -> anyhow::Result<()> {
        let patience = self.stop_signals[0].patience;
        self.stop_within(patience)
    }

    /// As [`Self::stop`], with another limit for the regular way.
    ///
    /// # Errors
    /// As [`Self::stop`].
    pub fn stop_within(self, patience: Duration) -> anyhow::Result<()> {
        self.check()?;
        let [regular, hard] = self.stop_signals;
        self.daemon.signal(regular.signal);
        if self.daemon.wait_for_end(patience) {
            return Ok(());
        }
        let late = format!("the server did not stop within {} s of a request for {} shutdown", patience.as_secs_f64(), regular.name);
        self.daemon.signal(hard.signal);
        if self.daemon.wait_for_end(hard.patience) {
            bail!("{late}; {} shutdown ended it", hard.name);
        }
        self.end_by_force();
        bail!("{late}, nor within {} s of one for {} shutdown; its processes were killed", hard.patience.as_secs_f64(), hard.name)
    }

    /// Kills the main process, and those of its children that do not leave by themselves then. They
    /// lead process groups of their own, so killing the main process' group does not reach them.
    fn end_by_force(&self) {
        let children = children(self.pid());
        self.daemon.signal(Signal::SIGKILL);
        if !self.daemon.wait_for_end(KILLED_AFTER) {
            tracing::warn!(pid = self.pid(), "a killed server is still there; the kernel waits for its storage");
        }
        // Children that look at their parent's death leave now.
        std::thread::sleep(GONE_AFTER);
        for (pid, start) in children {
            // The id may belong to another process by now; the time of its start tells.
            if Process::new(pid).and_then(|process| process.stat()).is_ok_and(|stat| stat.starttime == start) {
                tracing::warn!(pid, "killing a process of a server that did not stop");
                // It may end between the check and the signal, which is the aim.
                let _ = nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        if self.is_running() {
            let hard = self.stop_signals[1];
            self.daemon.signal(hard.signal);
            if !self.daemon.wait_for_end(hard.patience) {
                self.end_by_force();
            }
        }
    }
}

/// Process ids of the direct children, with the kernel's tick of their start.
fn children(parent: u32) -> Vec<(i32, u64)> {
    let all = procfs::process::all_processes().into_iter().flatten().flatten();
    all.filter_map(|process| process.stat().ok()).filter(|stat| stat.ppid.cast_unsigned() == parent).map(|stat| (stat.pid, stat.starttime)).collect()
}

/// Waits until a server that was just started answers.
pub(super) fn first_answer<T, E: std::fmt::Display>(daemon: &Daemon, log: &Path, limit: Duration, connect: impl Fn() -> Result<T, E>) -> anyhow::Result<T> {
    let started = Instant::now();
    loop {
        let error = match connect() {
            Ok(connection) => return Ok(connection),
            Err(error) => error,
        };
        if !daemon.is_running() {
            return Err(daemon.error()).context("the server ended while starting");
        }
        stop_if_interrupted()?;
        if started.elapsed() > limit {
            bail!("the server did not answer within {} s: {error}; its log is {}", limit.as_secs(), log.display());
        }
        std::thread::sleep(POLL);
    }
}

/// Runs a statement, and `cancel` when the user interrupts meanwhile: some take minutes. When the
/// server cannot be told any more, the statement fails by itself.
pub(super) fn cancellable<T, E>(cancel: impl FnOnce() + Send, statement: impl FnOnce() -> Result<T, E>) -> anyhow::Result<Result<T, E>> {
    let done = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                if interrupted() {
                    return cancel();
                }
                std::thread::park_timeout(POLL);
            }
        });
        let result = statement();
        done.store(true, Ordering::Release);
        watcher.thread().unpark();
        result
    });
    if result.is_err() {
        stop_if_interrupted()?;
    }
    Ok(result)
}

/// A private directory for a socket. Its path is short, since the path of a Unix socket may have at
/// most 107 bytes, and an unprivileged account can reach it.
pub(super) fn socket_dir(account: Option<&Account>) -> anyhow::Result<tempfile::TempDir> {
    let base = std::env::temp_dir();
    let fits = base.as_os_str().len() <= TEMP_DIR_LENGTH && (account.is_none() || Account::can_reach(&base));
    let base = if fits { base } else { PathBuf::from("/tmp") };
    remove_abandoned(&base);
    let private = std::fs::Permissions::from_mode(0o700);
    let dir = tempfile::Builder::new()
        .prefix(&format!("{SOCKET_DIR}{}-", std::process::id()))
        .permissions(private)
        .tempdir_in(&base)
        .with_context(|| format!("cannot make a directory for the server's socket in {}", base.display()))?;
    if let Some(account) = account {
        account.own(dir.path())?;
    }
    Ok(dir)
}

/// Beginning of the name of a socket's directory; the id of the process that made it follows.
const SOCKET_DIR: &str = "dbisect-";

/// Removes the socket directories of dbisect processes that were killed: the process is gone and
/// nobody answers on a socket within, so that one in another container, whose ids mean nothing
/// here, is left alone.
fn remove_abandoned(base: &Path) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| name.strip_prefix(SOCKET_DIR)?.split_once('-')?.0.parse::<u32>().ok());
        let Some(maker) = maker.filter(|maker| !Path::new("/proc").join(maker.to_string()).exists()) else { continue };
        let answers = |file: std::fs::DirEntry| std::os::unix::net::UnixStream::connect(file.path()).is_ok();
        let alive = std::fs::read_dir(entry.path()).map_or(true, |files| files.flatten().any(answers));
        if !alive && let Err(error) = std::fs::remove_dir_all(entry.path()) {
            tracing::debug!("{} of process {maker}, which is gone, stays: {error}", entry.path().display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_directories_of_dead_processes_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let dir = base.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            dir
        };
        // Ids above the kernel's greatest are nobody's.
        let [dead, answering] = ["dbisect-999999998-a", "dbisect-999999999-b"].map(make);
        let [own, other] = [format!("dbisect-{}-c", std::process::id()), "dbisect-notes".to_owned()].map(|name| make(&name));
        std::fs::write(dead.join(".s.PGSQL.5432.lock"), "1").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(answering.join("s")).unwrap();
        remove_abandoned(base.path());
        assert_eq!([&dead, &answering, &own, &other].map(|dir| dir.exists()), [false, true, true, true]);
    }

    #[test]
    fn a_socket_directory_is_private_and_short() {
        let dir = socket_dir(None).unwrap();
        let mode = std::fs::metadata(dir.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(dir.path().join(".s.PGSQL.65535.lock").as_os_str().len() <= 107, "{}", dir.path().display());
    }
}
