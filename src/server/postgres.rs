//! Postgres: initdb, start, quiet, stop.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::Signal;
use postgres::{Client, NoTls};

use crate::matrix::Dbms;
use crate::process::{Program, stop_if_interrupted};

use super::config::leading_numbers;
use super::data::make_empty;
use super::running::{Endpoint, Quiet, RunningServer, Session, StopSignal, cancellable, first_answer, socket_dir};
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
        let said = program(install, "postgres", area).arg("--version").output().context("cannot ask the server for its version")?.output;
        let version = version_of(&said)
            .with_context(|| format!("`postgres --version` said `{}`, and a version such as `postgres (PostgreSQL) 16.3` is wanted", said.trim()))?;
        let settings = config.settings(install.dbms, &version)?;
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

    fn start(&self, install: &Installation, _config: &ServerConfig, data: &Path, area: &Area) -> anyhow::Result<RunningServer> {
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
        let endpoint = Endpoint {
            dbms: Dbms::Postgres,
            socket_dir: sockets.path().to_owned(),
            port: PORT,
            user: USER.to_owned(),
            database: DATABASE.to_owned(),
            engine: None,
        };
        let client = first_answer(&daemon, &area.dir.join("server.log"), START_LIMIT, || connect(&endpoint, OWN_DATABASE))?;
        let session = Box::new(Connection { client, endpoint: endpoint.clone() });
        Ok(RunningServer { daemon, endpoint, session, data: data.to_owned(), stop_signals: STOP_SIGNALS, _socket_dir: sockets })
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

/// Numbers of the version in what `postgres --version` says.
fn version_of(said: &str) -> Option<Vec<u32>> {
    leading_numbers(said.split_whitespace().nth(2)?)
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
    let cancel = || token.cancel_query(NoTls).unwrap_or_else(|error| tracing::debug!("cannot cancel a statement: {error}"));
    let result = cancellable(cancel, || client.batch_execute(statements))?;
    result.with_context(|| format!("the server refused `{statements}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_postgres_says() {
        assert_eq!(version_of("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(vec![15, 18]));
        assert_eq!(version_of("postgres (PostgreSQL) 17beta1"), Some(vec![17]));
        assert_eq!(version_of("nonsense"), None);
        assert_eq!(version_of("postgres (PostgreSQL) devel"), None);
    }

    #[test]
    fn the_small_configuration_has_only_settings_that_each_version_knows() {
        let text = include_str!("../../matrices/configs/conf.diff.cx9a2a_small");
        // First major version of every setting of it that is younger than 10.
        let young = [("max_parallel_maintenance_workers", 11), ("autovacuum_vacuum_insert_scale_factor", 13), ("vacuum_buffer_usage_limit", 16)];
        let config = ServerConfig { name: "cx9a2a_small".to_owned(), text: text.to_owned(), engine: None };
        for major in 10..=17 {
            let kept = config.settings(Dbms::Postgres, &[major]).unwrap();
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
}
