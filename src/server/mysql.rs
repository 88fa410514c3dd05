//! The MySQL family: MySQL 5.6 to 9.x, FB MySQL and MariaDB, with InnoDB or RocksDB.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use mysql::prelude::Queryable;
use mysql::{Conn, Opts, OptsBuilder};
use nix::sys::signal::Signal;

use crate::build::server_programs;
use crate::matrix::{Dbms, StorageEngine};
use crate::process::{Program, stop_if_interrupted};

use super::config::leading_numbers;
use super::data::make_empty;
use super::running::{Endpoint, Quiet, RunningServer, Session, StopSignal, cancellable, first_answer, socket_dir};
use super::{Area, Engine, Installation, ServerConfig};

/// Superuser of every new data directory; it has no password, and only the socket's owner gets there.
const USER: &str = "root";
/// Database that sysbench uses unless told otherwise.
const DATABASE: &str = "sbtest";
/// Name of the socket, which sysbench is given whole.
pub(super) const SOCKET: &str = "mysql.sock";
/// The configuration, kept in the data directory so that snapshots hold it.
const CONFIG: &str = "my.cnf";
/// Longest time for making a data directory, and until a started server answers.
const START_LIMIT: Duration = Duration::from_secs(300);
/// Longest time until everything is flushed and compacted.
const QUIET_LIMIT: Duration = Duration::from_secs(1200);
/// How often a wait looks again.
const POLL: Duration = Duration::from_millis(50);
/// Time without progress after which the last few dirty pages are accepted: pages that a background
/// thread dirties again and again never reach zero.
const STEADY: Duration = Duration::from_secs(3);

/// SIGTERM is the regular shutdown; there is no harder one but to kill.
const STOP_SIGNALS: [StopSignal; 2] = [
    StopSignal { name: "regular", signal: Signal::SIGTERM, patience: Duration::from_secs(300) },
    StopSignal { name: "killing", signal: Signal::SIGKILL, patience: Duration::from_secs(10) },
];

/// The engine.
pub(super) struct Mysql;

impl Engine for Mysql {
    fn initialise(&self, install: &Installation, config: &ServerConfig, data: &Path, area: &Area) -> anyhow::Result<()> {
        let version = version(install, area)?;
        let settings = config.settings(install.dbms, &version)?;
        make_empty(data, area)?;
        let file = area.dir.join(CONFIG);
        std::fs::write(&file, settings).with_context(|| format!("cannot write {}", file.display()))?;
        if let Some(account) = &area.account {
            account.own(&file)?;
        }
        initialiser(install, &version, config, &file, data, area)?
            .deadline(START_LIMIT)
            .log(area.dir.join("initialise.log"))
            .run()
            .with_context(|| format!("cannot initialise the data directory {}", data.display()))?;
        std::fs::rename(&file, data.join(CONFIG)).with_context(|| format!("cannot keep the configuration in {}", data.display()))
    }

    fn start(&self, install: &Installation, config: &ServerConfig, data: &Path, area: &Area) -> anyhow::Result<RunningServer> {
        let sockets = socket_dir(area.account.as_ref())?;
        let daemon = server(install, &data.join(CONFIG), data, area)?
            .arg(format!("--socket={}", sockets.path().join(SOCKET).display()))
            .arg(format!("--pid-file={}", area.dir.join("server.pid").display()))
            .arg("--skip-networking")
            // A second protocol with a port and a socket of its own, where it was built in.
            .arg("--loose-mysqlx=OFF")
            .args(engine_options(install.dbms, config.engine))
            .log(area.dir.join("server.log"))
            .signal_on_death(Signal::SIGKILL)
            .spawn()
            .context("cannot start the server")?;
        let endpoint = Endpoint {
            dbms: install.dbms,
            socket_dir: sockets.path().to_owned(),
            port: 0,
            user: USER.to_owned(),
            database: DATABASE.to_owned(),
            engine: config.engine,
        };
        let conn = first_answer(&daemon, &area.dir.join("server.log"), START_LIMIT, || Conn::new(options(&endpoint)))?;
        let session = Box::new(Connection { conn, endpoint: endpoint.clone() });
        Ok(RunningServer { daemon, endpoint, session, data: data.to_owned(), stop_signals: STOP_SIGNALS, _socket_dir: sockets })
    }
}

fn server_program(install: &Installation) -> anyhow::Result<PathBuf> {
    find(install, server_programs(install.dbms))
}

fn find(install: &Installation, names: &[&str]) -> anyhow::Result<PathBuf> {
    let candidates: Vec<PathBuf> = names.iter().map(|name| install.prefix.join(name)).collect();
    candidates.iter().find(|path| path.is_file()).cloned().with_context(|| {
        let looked: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
        format!("the {} installation has none of {}", install.dbms, looked.join(", "))
    })
}

fn program(path: PathBuf, install: &Installation, area: &Area) -> Program {
    Program::new(path)
        // What the user has set for other servers (MYSQL_HOME, MYSQL_UNIX_PORT, ...) must not change this one.
        .only_given_env()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        // Libraries that were built for this server alone lie beside it.
        .env("LD_LIBRARY_PATH", install.prefix.join("lib"))
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .dir(&area.dir)
        .account(area.account.as_ref())
        .mark(&area.dir)
}

fn server(install: &Installation, config: &Path, data: &Path, area: &Area) -> anyhow::Result<Program> {
    Ok(program(server_program(install)?, install, area)
        // It must come first, and then no other file is read.
        .arg(format!("--defaults-file={}", config.display()))
        .arg(format!("--basedir={}", install.prefix.display()))
        .arg(format!("--datadir={}", data.display()))
        .arg(format!("--tmpdir={}", area.dir.display())))
}

/// The command that makes a data directory: a script for MySQL 5.6 and MariaDB, the server itself
/// for the others.
fn initialiser(install: &Installation, version: &[u32], config: &ServerConfig, file: &Path, data: &Path, area: &Area) -> anyhow::Result<Program> {
    let scripted = |names: &[&str]| -> anyhow::Result<Program> {
        let script = find(install, names)?;
        Ok(program(script, install, area)
            .arg(format!("--defaults-file={}", file.display()))
            .arg(format!("--basedir={}", install.prefix.display()))
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--tmpdir={}", area.dir.display())))
    };
    if install.dbms == Dbms::Mariadb {
        // Without the option root may only come in as the system's root.
        Ok(scripted(&["scripts/mariadb-install-db", "bin/mariadb-install-db"])?.args(["--auth-root-authentication-method=normal", "--skip-test-db"]))
    } else if version < [5, 7].as_slice() {
        // Else the script writes a configuration file into the installation.
        Ok(scripted(&["scripts/mysql_install_db", "bin/mysql_install_db"])?.arg("--keep-my-cnf"))
    } else {
        Ok(server(install, file, data, area)?.arg("--initialize-insecure").args(engine_options(install.dbms, config.engine)))
    }
}

/// What makes a server offer an engine that it does not have by default.
fn engine_options(dbms: Dbms, engine: Option<StorageEngine>) -> &'static [&'static str] {
    match (dbms, engine) {
        (Dbms::Mariadb, Some(StorageEngine::Rocksdb)) => &["--plugin-load-add=ha_rocksdb", "--default-storage-engine=rocksdb"],
        (Dbms::Myrocks, Some(StorageEngine::Rocksdb)) => &["--rocksdb", "--default-storage-engine=rocksdb"],
        _ => &[],
    }
}

/// Numbers of the version in what `mysqld --version` says.
fn version(install: &Installation, area: &Area) -> anyhow::Result<Vec<u32>> {
    let said =
        program(server_program(install)?, install, area).args(["--no-defaults", "--version"]).output().context("cannot ask the server for its version")?.output;
    version_of(&said).with_context(|| format!("`--version` of the server said `{}`, and something like `Ver 8.0.37 for Linux` is wanted", said.trim()))
}

fn version_of(said: &str) -> Option<Vec<u32>> {
    leading_numbers(said.split_whitespace().skip_while(|word| *word != "Ver").nth(1)?)
}

fn options(endpoint: &Endpoint) -> Opts {
    let socket = endpoint.socket();
    OptsBuilder::new()
        .socket(Some(socket.to_string_lossy().into_owned()))
        .user(Some(&endpoint.user))
        .prefer_socket(true)
        .additional_capabilities(mysql::consts::CapabilityFlags::CLIENT_MULTI_STATEMENTS)
        .into()
}

/// dbisect's own connection.
struct Connection {
    conn: Conn,
    endpoint: Endpoint,
}

impl Session for Connection {
    fn sql(&mut self, statements: &str) -> anyhow::Result<()> {
        let id = self.conn.connection_id();
        let endpoint = &self.endpoint;
        let cancel = || {
            let told = Conn::new(options(endpoint)).and_then(|mut other| other.query_drop(format!("KILL QUERY {id}")));
            told.unwrap_or_else(|error| tracing::debug!("cannot cancel a statement: {error}"));
        };
        let result = cancellable(cancel, || self.conn.query_drop(statements))?;
        result.with_context(|| format!("the server refused `{statements}`"))
    }

    /// After `facts/workloads.md` section 1.4, but waiting for proof instead of sleeping.
    fn quiesce(&mut self, vacuum: bool) -> anyhow::Result<Quiet> {
        let mut proof = Vec::new();
        if vacuum {
            self.analyse(&mut proof)?;
        }
        if self.endpoint.engine == Some(StorageEngine::Rocksdb) {
            self.flush_rocksdb(&mut proof)?;
        }
        // FB MySQL may run without InnoDB.
        if self.variable("innodb_max_dirty_pages_pct")?.is_some() {
            self.flush_innodb(&mut proof)?;
        }
        Ok(Quiet { proof })
    }
}

impl Connection {
    fn analyse(&mut self, proof: &mut Vec<String>) -> anyhow::Result<()> {
        let database = self.endpoint.database.clone();
        let tables: Vec<String> = self
            .conn
            .exec("SELECT table_name FROM information_schema.tables WHERE table_schema = ?", (&database,))
            .context("cannot ask the server for its tables")?;
        for table in &tables {
            self.sql(&format!("ANALYZE TABLE `{database}`.`{table}`"))?;
        }
        proof.push(format!("{} tables analysed", tables.len()));
        Ok(())
    }

    fn variable(&mut self, name: &str) -> anyhow::Result<Option<String>> {
        let row: Option<(String, String)> =
            self.conn.query_first(format!("SHOW GLOBAL VARIABLES LIKE '{name}'")).with_context(|| format!("cannot ask for the variable {name}"))?;
        Ok(row.map(|(_, value)| value))
    }

    fn status(&mut self, name: &str) -> anyhow::Result<Option<u64>> {
        let row: Option<(String, String)> =
            self.conn.query_first(format!("SHOW GLOBAL STATUS LIKE '{name}'")).with_context(|| format!("cannot ask for the status {name}"))?;
        row.map(|(_, value)| value.parse().with_context(|| format!("the status {name} is `{value}`, and a number is wanted"))).transpose()
    }

    /// Makes InnoDB write its dirty pages, and puts the settings back.
    fn flush_innodb(&mut self, proof: &mut Vec<String>) -> anyhow::Result<()> {
        let mut before = Vec::new();
        for (name, value) in [("innodb_max_dirty_pages_pct_lwm", "0"), ("innodb_max_dirty_pages_pct", "0"), ("innodb_idle_flush_pct", "100")] {
            if let Some(old) = self.variable(name)? {
                self.sql(&format!("SET GLOBAL {name} = {value}"))?;
                before.push((name, old));
            }
        }
        let flushed = self.wait_until_flushed(proof);
        // The mark below the limit was lowered with it, so they are restored the other way round.
        for (name, old) in before.iter().rev() {
            self.sql(&format!("SET GLOBAL {name} = {old}"))?;
        }
        flushed
    }

    fn wait_until_flushed(&mut self, proof: &mut Vec<String>) -> anyhow::Result<()> {
        let started = Instant::now();
        let mut least = (u64::MAX, Instant::now());
        loop {
            let dirty = self.status("Innodb_buffer_pool_pages_dirty")?.unwrap_or(0);
            let total = self.status("Innodb_buffer_pool_pages_total")?.unwrap_or(0);
            if dirty < least.0 {
                least = (dirty, Instant::now());
            }
            // One page in a thousand, at rest, is nothing that a step could feel.
            if dirty == 0 || (least.1.elapsed() > STEADY && dirty <= total / 1000) {
                let history = self.history()?.map_or_else(String::new, |history| format!(", purge history of {history}"));
                proof.push(format!("{dirty} of {total} pages dirty after {:.1} s{history}", started.elapsed().as_secs_f64()));
                return Ok(());
            }
            stop_if_interrupted()?;
            if started.elapsed() > QUIET_LIMIT {
                bail!("{dirty} of {total} pages were still dirty after {} s", QUIET_LIMIT.as_secs());
            }
            std::thread::sleep(POLL);
        }
    }

    /// Transactions whose old row versions have not been purged.
    fn history(&mut self) -> anyhow::Result<Option<u64>> {
        let found = self.conn.query_first("SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'");
        found.context("cannot ask for the length of the purge history")
    }

    /// Makes RocksDB write its memtables and waits until no flush or compaction is pending.
    fn flush_rocksdb(&mut self, proof: &mut Vec<String>) -> anyhow::Result<()> {
        // The variable that also compacts the first level is not safe in builds before 2023.
        self.sql("SET GLOBAL rocksdb_force_flush_memtable_now = 1")?;
        let started = Instant::now();
        loop {
            let pending: Option<Option<f64>> = self
                .conn
                .query_first(
                    "SELECT CAST(SUM(value) AS DOUBLE) FROM information_schema.rocksdb_cfstats \
                     WHERE stat_type IN ('COMPACTION_PENDING', 'MEM_TABLE_FLUSH_PENDING', 'NUM_IMMUTABLE_MEM_TABLE')",
                )
                .context("cannot ask RocksDB what is pending")?;
            if pending.flatten().unwrap_or(0.0) == 0.0 {
                proof.push(format!("memtables flushed, no compaction pending after {:.1} s", started.elapsed().as_secs_f64()));
                return Ok(());
            }
            stop_if_interrupted()?;
            if started.elapsed() > QUIET_LIMIT {
                bail!("RocksDB still had flushes or compactions pending after {} s", QUIET_LIMIT.as_secs());
            }
            std::thread::sleep(POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_servers_say() {
        let of = |said: &str| version_of(said);
        assert_eq!(of("/usr/sbin/mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)"), Some(vec![10, 11, 19]));
        assert_eq!(of("bin/mysqld  Ver 5.6.22 for Linux on x86_64 (Source distribution)"), Some(vec![5, 6, 22]));
        assert_eq!(of("/x/bin/mysqld  Ver 8.0.37 for Linux on x86_64 (Source distribution)"), Some(vec![8, 0, 37]));
        assert_eq!(of("nonsense"), None);
    }

    fn install(dbms: Dbms, files: &[&str]) -> (tempfile::TempDir, Installation) {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let install = Installation { dbms, prefix: dir.path().to_owned() };
        (dir, install)
    }

    fn initialise_line(dbms: Dbms, files: &[&str], version: &[u32], engine: StorageEngine) -> String {
        let (dir, install) = install(dbms, files);
        let config = ServerConfig { name: "cz11a_small".to_owned(), text: String::new(), engine: Some(engine) };
        let area = Area { dir: PathBuf::from("/area"), account: None };
        let command = initialiser(&install, version, &config, Path::new("/area/my.cnf"), Path::new("/area/data"), &area).unwrap();
        command.command_line().replace(&dir.path().display().to_string(), "P")
    }

    const COMMON: &str = "--defaults-file=/area/my.cnf --basedir=P --datadir=/area/data --tmpdir=/area";

    #[test]
    fn each_generation_makes_its_data_directory_in_its_own_way() {
        assert_eq!(
            initialise_line(Dbms::Mysql, &["scripts/mysql_install_db", "bin/mysqld"], &[5, 6, 51], StorageEngine::Innodb),
            format!("P/scripts/mysql_install_db {COMMON} --keep-my-cnf")
        );
        assert_eq!(initialise_line(Dbms::Mysql, &["bin/mysqld"], &[8, 0, 37], StorageEngine::Innodb), format!("P/bin/mysqld {COMMON} --initialize-insecure"));
        assert_eq!(
            initialise_line(Dbms::Myrocks, &["bin/mysqld"], &[8, 0, 32], StorageEngine::Rocksdb),
            format!("P/bin/mysqld {COMMON} --initialize-insecure --rocksdb --default-storage-engine=rocksdb")
        );
        assert_eq!(
            initialise_line(Dbms::Mariadb, &["bin/mariadb-install-db", "sbin/mariadbd"], &[10, 11, 19], StorageEngine::Rocksdb),
            format!("P/bin/mariadb-install-db {COMMON} --auth-root-authentication-method=normal --skip-test-db")
        );
    }

    #[test]
    fn an_installation_without_a_server_says_where_it_was_looked_for() {
        let (_dir, install) = install(Dbms::Mysql, &["bin/mysql"]);
        let error = server_program(&install).unwrap_err().to_string();
        assert!(error.contains("bin/mysqld") && error.contains("sbin/mysqld"), "{error}");
    }
}
