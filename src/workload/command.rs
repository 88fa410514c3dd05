//! The sysbench commands of loading and of a step.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use crate::matrix::Dbms;
use crate::process::Program;
use crate::server::{Area, Endpoint, RunningServer};

use super::step::{Script, Step};

/// What is loaded into a new data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Tables.
    pub tables: u64,
    /// Rows of each table.
    pub rows: u64,
    /// Seed of the rows' contents: equal seeds give equal rows on every build.
    pub seed: u64,
}

/// One step to be run.
#[derive(Clone, Copy, Debug)]
pub struct StepPlan {
    /// Which.
    pub step: &'static Step,
    /// Clients.
    pub threads: u64,
    /// Tables.
    pub tables: u64,
    /// Rows of each table.
    pub rows: u64,
    /// Seconds before the measured window.
    pub warmup: u32,
    /// Seconds of the measured window.
    pub time: u32,
    /// Seed of the client's random numbers.
    pub seed: u64,
}

const LOAD: Script = Script::Own("dbisect_load.lua", include_str!("lua/load.lua"));

/// Longest time for loading one million rows; loads have at least one million's time.
const LOAD_LIMIT_PER_MILLION: Duration = Duration::from_secs(600);

/// Time after the end of a step after which a client that still waits for an answer is ended.
const HANG_LIMIT: Duration = Duration::from_secs(60);

/// Creates the benchmark's database and tables, and brings the server to rest. What sysbench prints is
/// appended to `log`.
///
/// # Errors
/// When sysbench or the server refuses.
pub fn load(server: &mut RunningServer, load: &Load, area: &Area, log: &Path) -> anyhow::Result<()> {
    let endpoint = server.endpoint().clone();
    server.sql(&format!("CREATE DATABASE {}", endpoint.database))?;
    let millions = u32::try_from(load.tables.saturating_mul(load.rows) / 1_000_000 + 1).unwrap_or(u32::MAX);
    let done = sysbench(area)
        .arg(script(LOAD, area)?)
        .args(connection(&endpoint))
        .arg(format!("--tables={}", load.tables))
        .arg(format!("--table-size={}", load.rows))
        // The default distribution would draw most values of k from 1% of the range, and range scans
        // would see other row counts than with a uniform one (`facts/workloads.md` section 1.2).
        .arg("--rand-type=uniform")
        .arg(format!("--rand-seed={}", load.seed))
        // Only the script that creates the tables knows the option.
        .args(endpoint.engine.map(|engine| format!("--mysql-storage-engine={}", engine.name())))
        .arg("--threads=1")
        .arg(format!("--events={}", load.tables))
        .arg("--time=0")
        .arg("run")
        .deadline(LOAD_LIMIT_PER_MILLION.saturating_mul(millions))
        .log(log)
        .run();
    if let Err(error) = done {
        server.check_soon()?;
        return Err(error).context("cannot load the tables");
    }
    server.quiesce(true).map(drop)
}

/// The command of one step. The report checkpoint after the
/// warm-up resets sysbench's statistics, so response times leave the warm-up out; one more second at
/// the end keeps all connections alive until the window's last reading.
pub(super) fn command(plan: &StepPlan, endpoint: &Endpoint, area: &Area) -> anyhow::Result<Program> {
    let total = plan.warmup.saturating_add(plan.time).saturating_add(1);
    // Without a warm-up there is nothing to forget.
    let checkpoint = (plan.warmup > 0).then(|| format!("--report-checkpoints={}", plan.warmup));
    Ok(sysbench(area)
        .arg(script(plan.step.script, area)?)
        .args(connection(endpoint))
        .arg(format!("--tables={}", plan.tables))
        .arg(format!("--table-size={}", plan.rows))
        .args(plan.step.options)
        .arg(format!("--threads={}", plan.threads))
        .arg("--events=0")
        .arg(format!("--time={total}"))
        .arg("--report-interval=1")
        .args(checkpoint)
        .args(["--percentile=95", "--histogram=on", "--rand-type=uniform"])
        .arg(format!("--rand-seed={}", plan.seed))
        .arg("run")
        .deadline(Duration::from_secs(u64::from(total)) + HANG_LIMIT))
}

/// What sysbench is told to run; our own scripts are written where it works.
fn script(script: Script, area: &Area) -> anyhow::Result<OsString> {
    match script {
        Script::Stock(name) => Ok(name.into()),
        Script::Own(name, text) => {
            let path = area.dir.join(name);
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            if let Some(account) = &area.account {
                account.own(&path)?;
            }
            Ok(path.into())
        }
    }
}

fn sysbench(area: &Area) -> Program {
    Program::new("sysbench")
        // What the user has set for other clients (PGOPTIONS, LUA_PATH, ...) must not change this one.
        .only_given_env()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("LC_ALL", "C")
        .dir(&area.dir)
        .account(area.account.as_ref())
        .mark(&area.dir)
}

fn connection(endpoint: &Endpoint) -> Vec<String> {
    match endpoint.dbms {
        Dbms::Postgres => vec![
            "--db-driver=pgsql".to_owned(),
            format!("--pgsql-host={}", endpoint.socket_dir.display()),
            format!("--pgsql-port={}", endpoint.port),
            format!("--pgsql-user={}", endpoint.user),
            format!("--pgsql-db={}", endpoint.database),
        ],
        Dbms::Mysql | Dbms::Myrocks | Dbms::Mariadb => vec![
            "--db-driver=mysql".to_owned(),
            format!("--mysql-socket={}", endpoint.socket().display()),
            format!("--mysql-user={}", endpoint.user),
            format!("--mysql-db={}", endpoint.database),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::step;

    fn line(name: &str, warmup: u32, dir: &Path) -> String {
        let endpoint = Endpoint {
            dbms: Dbms::Postgres,
            socket_dir: "/tmp/dbisect-x".into(),
            port: 5432,
            user: "dbisect".to_owned(),
            database: "sbtest".to_owned(),
            engine: None,
        };
        let plan = StepPlan { step: step(name).unwrap(), threads: 4, tables: 2, rows: 1000, warmup, time: 20, seed: 7 };
        command(&plan, &endpoint, &Area { dir: dir.to_owned(), account: None }).unwrap().command_line()
    }

    #[test]
    fn a_step_is_one_process_over_warm_up_and_window() {
        let dir = tempfile::tempdir().unwrap();
        let line = line("read-only", 5, dir.path());
        assert_eq!(
            line,
            "sysbench oltp_read_only --db-driver=pgsql --pgsql-host=/tmp/dbisect-x --pgsql-port=5432 --pgsql-user=dbisect --pgsql-db=sbtest --tables=2 --table-size=1000 \
             --range-size=100 --threads=4 --events=0 --time=26 --report-interval=1 --report-checkpoints=5 --percentile=95 --histogram=on --rand-type=uniform --rand-seed=7 run"
        );
    }

    #[test]
    fn without_a_warm_up_there_is_no_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let line = line("point-query", 0, dir.path());
        assert!(line.contains("--time=21 ") && !line.contains("checkpoint"), "{line}");
    }

    #[test]
    fn our_own_scripts_are_written_where_the_client_works() {
        let dir = tempfile::tempdir().unwrap();
        let line = line("random-points", 5, dir.path());
        let script = dir.path().join("dbisect_in_list.lua");
        assert!(line.contains(&script.display().to_string()), "{line}");
        assert!(std::fs::read_to_string(script).unwrap().contains("WHERE id IN"));
    }
}
