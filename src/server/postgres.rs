//! Postgres: initdb, start, quiet, stop.

use std::fmt::Write as _;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use nix::sys::signal::Signal;
use postgres::{Client, NoTls};

use crate::matrix::{ConfigurationError, Dbms};
use crate::process::{Program, interrupted, stop_if_interrupted};

use super::running::{Endpoint, Quiet, RunningServer, Session, StopSignal, socket_dir};
use super::{Area, Engine, Installation, ServerConfig};

/// Superuser of every data directory.
const USER: &str = "dbisect";
/// Database that every data directory has from the beginning.
const OWN_DATABASE: &str = "postgres";
/// Database that sysbench uses unless told otherwise.
const DATABASE: &str = "sbtest";
/// Suffix of the socket's name.
const PORT: u16 = 5432;
/// Longest time for initdb, and until a started server answers (it may have to recover).
const START_LIMIT: Duration = Duration::from_secs(120);
/// Longest time until background work has ended.
const QUIET_LIMIT: Duration = Duration::from_secs(120);
/// How often a wait looks again.
const POLL: Duration = Duration::from_millis(20);

/// Shutdown modes of Postgres: "fast" ends sessions and writes a checkpoint, "immediate" ends
/// everything and leaves recovery to the next start.
const STOP_SIGNALS: [StopSignal; 2] = [
    StopSignal { name: "fast", signal: Signal::SIGINT, patience: Duration::from_secs(60) },
    StopSignal { name: "immediate", signal: Signal::SIGQUIT, patience: Duration::from_secs(10) },
];

/// The engine.
pub(super) struct Postgres;

impl Engine for Postgres {
    fn initialise(&self, install: &Installation, config: &ServerConfig, data: &Path, area: &Area) -> anyhow::Result<()> {
        let version = program(install, "postgres", area).arg("--version").output().context("cannot ask the server for its version")?.output;
        let major = major(&version)
            .with_context(|| format!("`postgres --version` said `{}`, and a version such as `postgres (PostgreSQL) 16.3` is wanted", version.trim()))?;
        let settings = settings(config, major)?;
        make_empty(data, area)?;
        program(install, "initdb", area)
            .arg("--pgdata")
            .arg(data)
            // Data checksums as in the posts (`facts/builds.md` section 6.3). Nothing is synced: the
            // directory becomes a snapshot, and the server syncs it when it stops.
            .args(["--no-sync", "--data-checksums", "--locale=C", "--encoding=UTF8", "--auth=trust", "--username", USER])
            .deadline(START_LIMIT)
            .output()
            .with_context(|| format!("cannot initialise the data directory {}", data.display()))?;
        let file = data.join("postgresql.conf");
        let mut text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        write!(text, "\n# {}\n{settings}\n", config.name)?;
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    fn start(&self, install: &Installation, data: &Path, area: &Area) -> anyhow::Result<RunningServer> {
        remove_stale_lock(data)?;
        let sockets = socket_dir(area.account.as_ref())?;
        let daemon = program(install, "postgres", area)
            .arg("-D")
            .arg(data)
            // On the command line these win over the configuration file.
            .args(["-c", "listen_addresses=", "-c", "unix_socket_permissions=0700", "-c", "logging_collector=off", "-c", "log_destination=stderr"])
            .arg("-k")
            .arg(sockets.path())
            .args(["-p", &PORT.to_string()])
            .log(area.dir.join("server.log"))
            // A postmaster that is killed outright leaves its children to notice; this signal makes it
            // end them.
            .signal_on_death(Signal::SIGQUIT)
            .spawn()
            .context("cannot start the server")?;
        let endpoint =
            Endpoint { dbms: Dbms::Postgres, socket_dir: sockets.path().to_owned(), port: PORT, user: USER.to_owned(), database: DATABASE.to_owned() };
        let started = Instant::now();
        loop {
            let error = match connect(&endpoint, OWN_DATABASE) {
                Ok(client) => {
                    let session = Box::new(Connection { client, endpoint: endpoint.clone() });
                    return Ok(RunningServer { daemon, endpoint, session, data: data.to_owned(), stop_signals: STOP_SIGNALS, _socket_dir: sockets });
                }
                Err(error) => error,
            };
            if !daemon.is_running() {
                return Err(daemon.error()).context("the server ended while starting");
            }
            stop_if_interrupted()?;
            if started.elapsed() > START_LIMIT {
                bail!("the server did not answer within {} s: {error}; its log is {}", START_LIMIT.as_secs(), area.dir.join("server.log").display());
            }
            std::thread::sleep(POLL);
        }
    }
}

fn program(install: &Installation, name: &str, area: &Area) -> Program {
    Program::new(install.prefix.join("bin").join(name))
        // What the user has set for other servers (PGDATA, PGOPTIONS, ...) must not change this one.
        .only_given_env()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        // Programs were linked for the neutral prefix, so the loader must be told where libraries are.
        .env("LD_LIBRARY_PATH", install.prefix.join("lib"))
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .dir(&area.dir)
        .account(area.account.as_ref())
        .mark(&area.dir)
}

/// Makes `data`, owned by the server's account. The account may be unable to make it itself.
fn make_empty(data: &Path, area: &Area) -> anyhow::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(data) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let mut entries = std::fs::read_dir(data).with_context(|| format!("cannot list {}", data.display()))?;
            ensure!(entries.next().is_none(), "a new data directory was to be made in {}, but there is something in it", data.display());
        }
        Err(error) => return Err(error).with_context(|| format!("cannot make the data directory {}", data.display())),
    }
    area.account.as_ref().map_or(Ok(()), |account| account.own(data))
}

fn major(version: &str) -> Option<u32> {
    let word = version.split_whitespace().nth(2)?;
    let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    word[..end].parse().ok()
}

/// The settings for a major version. A line that begins with `#@>=16 ` counts from 16 on, one with
/// `#@<16 ` before it; to Postgres itself both are comments.
fn settings(config: &ServerConfig, major: u32) -> Result<String, ConfigurationError> {
    let mut kept = String::new();
    for (index, line) in config.text.lines().enumerate() {
        let setting = match line.strip_prefix("#@") {
            None => Some(line),
            Some(conditional) => {
                let (holds, setting) = condition(conditional, major).ok_or_else(|| {
                    ConfigurationError::new(format!(
                        "line {} of the server configuration {} is `{line}`; after `#@` a condition on the major version and a setting are wanted, such as `#@>=16 name = value` or `#@<16 name = value`",
                        index + 1,
                        config.name
                    ))
                })?;
                holds.then_some(setting)
            }
        };
        if let Some(setting) = setting {
            kept.push_str(setting);
            kept.push('\n');
        }
    }
    Ok(kept)
}

/// Whether the condition at the beginning holds, and the setting behind it.
fn condition(text: &str, major: u32) -> Option<(bool, &str)> {
    let (condition, setting) = text.split_once(' ')?;
    let holds = match (condition.strip_prefix(">="), condition.strip_prefix('<')) {
        (Some(from), _) => major >= from.parse().ok()?,
        (None, Some(before)) => major < before.parse().ok()?,
        (None, None) => return None,
    };
    setting.contains('=').then_some((holds, setting.trim()))
}

/// Removes the lock file of a server that is gone: restored data may name a process id that by now
/// belongs to somebody else, and Postgres would refuse to start. A server that runs is left alone.
fn remove_stale_lock(data: &Path) -> anyhow::Result<()> {
    let lock = data.join("postmaster.pid");
    let text = match std::fs::read_to_string(&lock) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        text => text.with_context(|| format!("cannot read {}", lock.display()))?,
    };
    // A server in single-user mode writes its id with a minus sign.
    let pid: Option<i32> = text.lines().next().and_then(|line| line.trim().trim_start_matches('-').parse().ok());
    let here = std::fs::canonicalize(data).with_context(|| format!("cannot find {}", data.display()))?;
    // Every server process works in its data directory.
    let runs = |pid: &i32| procfs::process::Process::new(*pid).and_then(|process| process.cwd()).is_ok_and(|dir| dir == here);
    if let Some(pid) = pid.filter(runs) {
        bail!("a server already runs on {} (process {pid}); stop it first", data.display());
    }
    std::fs::remove_file(&lock).with_context(|| format!("cannot remove the stale lock {}", lock.display()))
}

fn connect(endpoint: &Endpoint, database: &str) -> Result<Client, postgres::Error> {
    Client::configure()
        .host_path(&endpoint.socket_dir)
        .port(endpoint.port)
        .user(&endpoint.user)
        .dbname(database)
        .connect_timeout(Duration::from_secs(5))
        .application_name("dbisect")
        .connect(NoTls)
}

/// dbisect's own connection.
struct Connection {
    client: Client,
    endpoint: Endpoint,
}

impl Session for Connection {
    fn sql(&mut self, statements: &str) -> anyhow::Result<()> {
        execute(&mut self.client, statements)
    }

    /// After `facts/workloads.md` section 1.4: vacuum and checkpoint, then a look whether anything
    /// still works in the background.
    fn quiesce(&mut self, vacuum: bool) -> anyhow::Result<Quiet> {
        let mut proof = Vec::new();
        if vacuum {
            let mut client = connect(&self.endpoint, &self.endpoint.database).context("cannot connect to vacuum")?;
            let version: i32 = client
                .query_one("SELECT current_setting('server_version_num')::int", &[])
                .and_then(|row| row.try_get(0))
                .context("cannot ask for the server's version")?;
            let statement = if version >= 120_000 { "VACUUM (ANALYZE, INDEX_CLEANUP ON)" } else { "VACUUM (ANALYZE)" };
            execute(&mut client, statement)?;
            proof.push(statement.to_owned());
        }
        execute(&mut self.client, "CHECKPOINT")?;
        proof.push("CHECKPOINT".to_owned());
        let started = Instant::now();
        loop {
            let (busy, log) = self.background_work()?;
            if busy == 0 {
                proof.push(format!("no background work after {:.1} s, {log:.0} bytes of log since the checkpoint", started.elapsed().as_secs_f64()));
                return Ok(Quiet { proof });
            }
            stop_if_interrupted()?;
            if started.elapsed() > QUIET_LIMIT {
                bail!("{busy} processes of the server were still working {} s after a checkpoint", QUIET_LIMIT.as_secs());
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Connection {
    /// Processes that work on behalf of others than us, and bytes of write-ahead log that a new
    /// checkpoint would have to cover.
    fn background_work(&mut self) -> anyhow::Result<(i64, f64)> {
        let row = self.client.query_one(
            "SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type IN ('autovacuum worker', 'parallel worker') \
             OR (backend_type = 'client backend' AND pid <> pg_backend_pid())), \
             (SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), redo_lsn)::float8 FROM pg_control_checkpoint())",
            &[],
        );
        row.and_then(|row| Ok((row.try_get(0)?, row.try_get(1)?))).context("cannot ask the server what it is doing")
    }
}

/// Runs statements; an interrupt makes the server cancel them, since some take minutes.
fn execute(client: &mut Client, statements: &str) -> anyhow::Result<()> {
    let token = client.cancel_token();
    let done = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                if interrupted() {
                    // When the server cannot be told any more, the statement fails by itself.
                    return token.cancel_query(NoTls).unwrap_or_else(|error| tracing::debug!("cannot cancel a statement: {error}"));
                }
                std::thread::park_timeout(POLL);
            }
        });
        let result = client.batch_execute(statements);
        done.store(true, Ordering::Release);
        watcher.thread().unpark();
        result
    });
    if result.is_err() {
        stop_if_interrupted()?;
    }
    result.with_context(|| format!("the server refused `{statements}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> ServerConfig {
        ServerConfig { name: "cx_test".to_owned(), text: text.to_owned() }
    }

    #[test]
    fn settings_follow_the_major_version() {
        let text = config("shared_buffers = 1GB\n#@>=13 autovacuum_vacuum_insert_scale_factor = 0.05\n#@<13 old = 1\n# a remark");
        assert_eq!(settings(&text, 12).unwrap(), "shared_buffers = 1GB\nold = 1\n# a remark\n");
        assert_eq!(settings(&text, 13).unwrap(), "shared_buffers = 1GB\nautovacuum_vacuum_insert_scale_factor = 0.05\n# a remark\n");
    }

    #[test]
    fn a_condition_that_cannot_be_meant_is_refused_with_its_line() {
        for line in ["#@16 a = 1", "#@>=x a = 1", "#@>=16", "#@>=16 a", "#@> 16 a = 1", "#@"] {
            let error = settings(&config(&format!("a = 1\n{line}")), 16).unwrap_err().to_string();
            assert!(error.contains("line 2") && error.contains("cx_test") && error.contains(line), "{error}");
        }
    }

    #[test]
    fn versions_are_read_from_what_postgres_says() {
        assert_eq!(major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(major("postgres (PostgreSQL) 17beta1"), Some(17));
        assert_eq!(major("postgres (PostgreSQL) 11devel"), Some(11));
        assert_eq!(major("nonsense"), None);
        assert_eq!(major("postgres (PostgreSQL) devel"), None);
    }

    #[test]
    fn the_small_configuration_has_only_settings_that_each_version_knows() {
        let text = include_str!("../../matrices/configs/conf.diff.cx9a2a_small");
        // First major version of every setting of it that is younger than 10.
        let young = [("max_parallel_maintenance_workers", 11), ("autovacuum_vacuum_insert_scale_factor", 13), ("vacuum_buffer_usage_limit", 16)];
        for major in 10..=17 {
            let kept = settings(&config(text), major).unwrap();
            for (name, since) in young {
                assert_eq!(kept.contains(name), major >= since, "{name} in {major}");
            }
        }
    }

    #[test]
    fn a_lock_of_a_server_that_is_gone_is_removed_and_one_that_runs_is_respected() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("postmaster.pid");
        remove_stale_lock(dir.path()).unwrap();
        // This very process has the id, but works elsewhere.
        for text in [format!("{}\n/somewhere\n", std::process::id()), "garbage".to_owned(), String::new()] {
            std::fs::write(&lock, text).unwrap();
            remove_stale_lock(dir.path()).unwrap();
            assert!(!lock.exists());
        }
        let mut server = std::process::Command::new("sleep").arg("60").current_dir(dir.path()).spawn().unwrap();
        std::fs::write(&lock, format!("{}\n", server.id())).unwrap();
        let error = remove_stale_lock(dir.path()).unwrap_err().to_string();
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(error.contains("already runs") && lock.exists(), "{error}");
    }

    #[test]
    fn a_directory_with_something_in_it_is_not_initialised() {
        let dir = tempfile::tempdir().unwrap();
        let area = Area { dir: dir.path().to_owned(), account: None };
        make_empty(&dir.path().join("new"), &area).unwrap();
        make_empty(&dir.path().join("new"), &area).unwrap();
        std::fs::write(dir.path().join("new/file"), "").unwrap();
        assert!(make_empty(&dir.path().join("new"), &area).unwrap_err().to_string().contains("something in it"));
    }
}
