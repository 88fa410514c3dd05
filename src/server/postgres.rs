//! Postgres: initdb, start, quiet, stop.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::Signal;
use postgres::{Client, NoTls};

use crate::matrix::Dbms;
use crate::process::{Program, stop_if_interrupted};

use super::running::{Endpoint, Quiet, RunningServer, StopSignal, socket_dir};
use super::{Area, Installation, ServerConfig};

/// Superuser of every data directory.
const USER: &str = "dbisect";
/// Database that sysbench uses unless told otherwise.
const DATABASE: &str = "sbtest";
/// Suffix of the socket's name.
const PORT: u16 = 5432;
/// Longest time for initdb, and until a started server answers (it may have to recover).
const START_LIMIT: Duration = Duration::from_secs(120);
/// Longest time until background work has ended.
const QUIET_LIMIT: Duration = Duration::from_secs(120);

/// Shutdown modes of Postgres, in rising order of harshness.
const STOP_SIGNALS: &[StopSignal] = &[
    StopSignal { name: "fast", signal: Signal::SIGINT, patience: Duration::from_secs(60) },
    StopSignal { name: "immediate", signal: Signal::SIGQUIT, patience: Duration::from_secs(10) },
];

fn program(install: &Installation, name: &str, area: &Area) -> Program {
    // Programs were linked for the neutral prefix, so the loader must be told where libraries are.
    Program::new(install.prefix.join("bin").join(name))
        .env("LD_LIBRARY_PATH", install.prefix.join("lib"))
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .without_env("PGDATA")
        .without_env("PGPORT")
        .without_env("PGHOST")
        .dir(&area.dir)
        .account(area.account.as_ref())
        .mark(&area.dir)
}

pub(super) fn initialise(install: &Installation, config: &ServerConfig, data: &Path, area: &Area) -> anyhow::Result<()> {
    let version = program(install, "postgres", area).arg("--version").output()?.output;
    let major = major(&version).with_context(|| format!("`postgres --version` said `{}`, and a version such as `postgres (PostgreSQL) 16.3` is wanted", version.trim()))?;
    program(install, "initdb", area)
        .arg("--pgdata")
        .arg(data)
        // Data checksums as in the posts (`facts/builds.md` section 6.3); nothing is synced, since the
        // directory is a snapshot's beginning and is synced by the server's own shutdown.
        .args(["--no-sync", "--data-checksums", "--locale=C", "--encoding=UTF8", "--auth=trust", "--username", USER])
        .deadline(START_LIMIT)
        .output()
        .context("cannot initialise a data directory")?;
    let file = data.join("postgresql.conf");
    let mut text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    write!(text, "\n# {}\n{}\n", config.name, settings(&config.text, major))?;
    std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn major(version: &str) -> Option<u32> {
    let word = version.split_whitespace().nth(2)?;
    let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    word[..end].parse().ok()
}

/// The settings for a major version. A line that begins with `#@>=16 ` counts from 16 on, one with
/// `#@<16 ` before it.
fn settings(text: &str, major: u32) -> String {
    let keep = |line: &str| -> Option<String> {
        let Some(condition) = line.strip_prefix("#@") else { return Some(line.to_owned()) };
        let (condition, setting) = condition.split_once(' ')?;
        let holds = match (condition.strip_prefix(">="), condition.strip_prefix('<')) {
            (Some(from), _) => major >= from.parse().ok()?,
            (None, Some(before)) => major < before.parse().ok()?,
            (None, None) => false,
        };
        holds.then(|| setting.to_owned())
    };
    text.lines().filter_map(keep).collect::<Vec<_>>().join("\n")
}

pub(super) fn start(install: &Installation, data: &Path, area: &Area) -> anyhow::Result<RunningServer> {
    // Data restored from a snapshot of a server that was killed would name a process id that may by
    // now belong to somebody else, and Postgres would refuse to start.
    match std::fs::remove_file(data.join("postmaster.pid")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error).context("cannot remove a stale postmaster.pid"),
        _ => {}
    }
    let sockets = socket_dir(area.account.as_ref())?;
    let daemon = program(install, "postgres", area)
        .arg("-D")
        .arg(data)
        .args(["-c", "listen_addresses="])
        .arg("-c")
        .arg(format!("unix_socket_directories={}", sockets.path().display()))
        .args(["-c", "unix_socket_permissions=0700", "-p", &PORT.to_string()])
        .log(area.dir.join("server.log"))
        // A postmaster that is killed outright leaves its children to notice; this one makes it end
        // them.
        .signal_on_death(Signal::SIGQUIT)
        .spawn()
        .context("cannot start the server")?;
    let endpoint = Endpoint { dbms: Dbms::Postgres, socket_dir: sockets.path().to_owned(), port: PORT, user: USER.to_owned(), database: DATABASE.to_owned() };
    let started = Instant::now();
    loop {
        let error = match connect(&endpoint) {
            Ok(client) => return Ok(RunningServer { daemon, endpoint, client, _socket_dir: sockets, stop_signals: STOP_SIGNALS }),
            Err(error) => error,
        };
        if !daemon.is_running() {
            return Err(daemon.error()).context("the server ended while starting");
        }
        stop_if_interrupted()?;
        if started.elapsed() > START_LIMIT {
            bail!("the server did not answer within {} s: {error}; its log is {}", START_LIMIT.as_secs(), area.dir.join("server.log").display());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn connect(endpoint: &Endpoint) -> Result<Client, postgres::Error> {
    let mut config = Client::configure();
    config.host_path(&endpoint.socket_dir).port(endpoint.port).user(&endpoint.user).dbname("postgres").connect_timeout(Duration::from_secs(5)).application_name("dbisect");
    config.connect(NoTls)
}

/// After `facts/workloads.md` section 1.4: vacuum and checkpoint, then a look whether anything still
/// works in the background.
pub(super) fn quiesce(server: &mut RunningServer, vacuum: bool) -> anyhow::Result<Quiet> {
    let mut proof = Vec::new();
    if vacuum {
        let mut config = Client::configure();
        config.host_path(&server.endpoint.socket_dir).port(server.endpoint.port).user(USER).dbname(DATABASE);
        let mut client = config.connect(NoTls).context("cannot connect to vacuum")?;
        client.batch_execute("VACUUM (ANALYZE)").context("the server refused VACUUM (ANALYZE)")?;
        proof.push("VACUUM (ANALYZE)".to_owned());
    }
    server.sql("CHECKPOINT")?;
    proof.push("CHECKPOINT".to_owned());
    let started = Instant::now();
    loop {
        let busy: i64 = server
            .client
            .query_one("SELECT count(*) FROM pg_stat_activity WHERE backend_type IN ('autovacuum worker', 'parallel worker') OR (backend_type = 'client backend' AND pid <> pg_backend_pid())", &[])
            .context("cannot ask the server what it is doing")?
            .try_get(0)?;
        if busy == 0 {
            proof.push(format!("no background work after {:.1} s", started.elapsed().as_secs_f64()));
            return Ok(Quiet { proof });
        }
        stop_if_interrupted()?;
        if started.elapsed() > QUIET_LIMIT {
            bail!("{busy} processes of the server were still working {} s after a checkpoint", QUIET_LIMIT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_follow_the_major_version() {
        let text = "shared_buffers = 1GB\n#@>=13 autovacuum_vacuum_insert_scale_factor = 0.05\n#@<13 old = 1\n# a remark";
        assert_eq!(settings(text, 12), "shared_buffers = 1GB\nold = 1\n# a remark");
        assert_eq!(settings(text, 17), "shared_buffers = 1GB\nautovacuum_vacuum_insert_scale_factor = 0.05\n# a remark");
    }

    #[test]
    fn versions_are_read_from_what_postgres_says() {
        assert_eq!(major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(major("postgres (PostgreSQL) 17beta1"), Some(17));
        assert_eq!(major("nonsense"), None);
    }
}
