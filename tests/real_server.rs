//! Real servers and a real client, from initdb to shutdown: `cargo test --test real_server -- --ignored`.
//!
//! `DBISECT_TEST_PG_PREFIX` names a Postgres installation (a directory with `bin`). As root, servers
//! run as `nobody`, or as the user that `DBISECT_USER` names.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dbisect::matrix::Dbms;
use dbisect::measure::{Metric, Moment};
use dbisect::process::Account;
use dbisect::server::{self, Area, Installation, RunningServer, ServerConfig, copy_data};
use dbisect::workload::{Load, STEPS, StepFailure, StepPlan, StepRun, load, parse, run_step, step};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use postgres::{Client, NoTls};

const ROWS: u64 = 20_000;

/// A private place with an installation and the study's own small configuration.
struct Bench {
    install: Installation,
    config: ServerConfig,
    area: Area,
    data: PathBuf,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let prefix =
            std::env::var_os("DBISECT_TEST_PG_PREFIX").expect("DBISECT_TEST_PG_PREFIX must name a Postgres installation, such as /usr/lib/postgresql/15");
        let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("matrices/configs");
        let mut config = ServerConfig::read(&configs, Dbms::Postgres, "cx9a2a_small", None).unwrap();
        // Tests of several servers at once share one small machine.
        config.text.push_str("\nshared_buffers = 64MB\n");
        let dir = tempfile::tempdir().unwrap();
        let account = Account::for_servers().unwrap();
        if let Some(account) = &account {
            account.own(dir.path()).unwrap();
        }
        let area = Area { dir: dir.path().to_owned(), account };
        Self { install: Installation { dbms: Dbms::Postgres, prefix: prefix.into() }, config, data: dir.path().join("data"), area, _dir: dir }
    }

    fn initialise(&self) {
        server::initialise(&self.install, &self.config, &self.data, &self.area).unwrap();
    }

    fn start(&self) -> anyhow::Result<RunningServer> {
        server::start(&self.install, &self.config, &self.data, &self.area)
    }

    /// A server with one loaded table.
    fn loaded(&self) -> RunningServer {
        self.initialise();
        let mut server = self.start().unwrap();
        load(&mut server, &Load { tables: 1, rows: ROWS, seed: 1 }, &self.area, &self.area.dir.join("load.log")).unwrap();
        server
    }
}

fn plan(name: &str, threads: u64, warmup: u32, time: u32) -> StepPlan {
    StepPlan { step: step(name).unwrap(), threads, tables: 1, rows: ROWS, warmup, time, seed: 3 }
}

fn client(server: &RunningServer) -> Client {
    try_client(server).unwrap()
}

fn try_client(server: &RunningServer) -> Result<Client, postgres::Error> {
    let endpoint = server.endpoint();
    Client::configure().host_path(&endpoint.socket_dir).port(endpoint.port).user(&endpoint.user).dbname(&endpoint.database).connect(NoTls)
}

fn alive(pid: i32) -> bool {
    procfs::process::Process::new(pid).and_then(|process| process.stat()).is_ok_and(|stat| stat.state != 'Z')
}

fn children(server: &RunningServer) -> Vec<i32> {
    let all = procfs::process::all_processes().unwrap().flatten().filter_map(|process| process.stat().ok());
    all.filter(|stat| stat.ppid.cast_unsigned() == server.pid()).map(|stat| stat.pid).collect()
}

fn all_gone(pids: &[i32]) -> bool {
    let asked = Instant::now();
    while pids.iter().any(|pid| alive(*pid)) {
        if asked.elapsed() > Duration::from_secs(10) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

#[test]
#[ignore = "needs sysbench and Postgres"]
fn every_step_runs_and_is_measured() {
    let bench = Bench::new();
    let mut server = bench.loaded();
    for step in STEPS {
        let quiet = server.quiesce(false).unwrap();
        assert!(quiet.proof.iter().any(|line| line.contains("no background work")), "{quiet:?}");
        let run = run_step(&StepPlan { step, ..plan("point-query", 1, 1, 2) }, &server, &bench.area).unwrap_or_else(|error| panic!("{}: {error:#}", step.name));
        assert!(run.command.contains("--time=4 "), "{}", run.command);
        assert_eq!((run.seconds.len(), run.server_cpu.len()), (2, 2), "{}: {:?}", step.name, run.doubts);
        for metric in Metric::ALL {
            let value = run.metrics.get(metric).unwrap_or_else(|| panic!("{} has no {metric}", step.name));
            assert!(value.is_finite() && *value >= 0.0, "{}: {metric} is {value}", step.name);
        }
        for metric in [Metric::Qps, Metric::Tps, Metric::Cpupq, Metric::ClientCpupq, Metric::LatencyMean, Metric::PeakRss] {
            assert!(run.metrics[&metric] > 0.0, "{}: {metric}", step.name);
        }
        let parts = run.metrics[&Metric::UserCpupq] + run.metrics[&Metric::SystemCpupq];
        assert!((parts / run.metrics[&Metric::Cpupq] - 1.0).abs() < 1e-6);
    }
    server.quiesce(true).unwrap();
    let mut asked = client(&server);
    let dead: i64 = asked.query_one("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'sbtest1'", &[]).unwrap().get(0);
    let rows: i64 = asked.query_one("SELECT count(*) FROM sbtest1", &[]).unwrap().get(0);
    assert_eq!(dead, 0, "vacuum left dead rows");
    assert!(rows > i64::try_from(ROWS).unwrap(), "the insert step inserted nothing");
    drop(asked);
    let processes = children(&server);
    let sockets = server.endpoint().socket_dir.clone();
    server.stop().unwrap();
    assert!(all_gone(&processes) && !sockets.exists());
}

/// Queries by sysbench's own report of the window and the second after it, against ours.
fn queries_by_report(run: &StepRun) -> (f64, f64) {
    let report = parse(&run.output).unwrap();
    let after: f64 = report.seconds.iter().filter(|second| second.second > 3).map(|second| second.qps).sum();
    #[expect(clippy::cast_precision_loss, reason = "a count of queries")]
    let counted = report.totals.queries as f64;
    (after, counted)
}

#[test]
#[ignore = "needs sysbench and Postgres"]
fn queries_and_cpu_agree_with_independent_readings() {
    let bench = Bench::new();
    let server = bench.loaded();
    // The kernel's ticks of the whole tree, read from outside of the run: they include connecting,
    // warm-up and the last second, so the window's CPU must be the smaller part that it is in time.
    let ticks = |server: &RunningServer| -> u64 {
        let all: Vec<_> = procfs::process::all_processes().unwrap().flatten().filter_map(|process| process.stat().ok()).collect();
        let of = |stat: &procfs::process::Stat| stat.utime + stat.stime;
        let root = all.iter().find(|stat| stat.pid.cast_unsigned() == server.pid()).unwrap();
        of(root) + (root.cutime + root.cstime).cast_unsigned() + all.iter().filter(|stat| stat.ppid == root.pid).map(of).sum::<u64>()
    };
    let before = ticks(&server);
    let run = run_step(&plan("read-only", 1, 3, 10), &server, &bench.area).unwrap();
    // The backend of the client may need a moment to end and to be waited for.
    std::thread::sleep(Duration::from_millis(500));
    let (whole, per_second) = ((ticks(&server) - before), procfs::ticks_per_second());
    #[expect(clippy::cast_precision_loss, reason = "a count of ticks")]
    let whole = whole as f64 / per_second as f64 * 1e6;
    let window: f64 = run.server_cpu.iter().sum();
    // 10 of 14 seconds.
    assert!((window / whole - 10.0 / 14.0).abs() < 0.1, "{window} us in the window, {whole} us in all");
    let queries = window / run.metrics[&Metric::Cpupq];
    assert!((queries / run.window.seconds() / run.metrics[&Metric::Qps] - 1.0).abs() < 1e-6);
    let (lines, counted) = queries_by_report(&run);
    // sysbench prints the line of the very last second or not, as its threads happen to be woken.
    let printed = parse(&run.output).unwrap().seconds.iter().any(|second| second.second == 14);
    let missing = if printed { 0.0 } else { run.metrics[&Metric::Qps] };
    assert!(((lines + missing) / counted - 1.0).abs() < if printed { 0.01 } else { 0.05 }, "{lines} queries by lines, {counted} by the last report");
    server.stop().unwrap();
}

#[test]
#[ignore = "needs sysbench and Postgres"]
fn equal_seeds_load_equal_rows() {
    let digest = || {
        let bench = Bench::new();
        let server = bench.loaded();
        let row = client(&server)
            .query_one("SELECT md5(string_agg(id::text || k || c || pad, ',' ORDER BY id)), count(*), count(DISTINCT k) FROM sbtest1", &[])
            .unwrap();
        server.stop().unwrap();
        (row.get::<_, String>(0), row.get::<_, i64>(1), row.get::<_, i64>(2))
    };
    let (one, other) = (digest(), digest());
    assert_eq!(one, other);
    assert_eq!(one.1, i64::try_from(ROWS).unwrap());
    // Uniform values: 1 - 1/e of them differ. The client's default distribution would give far fewer.
    assert!(one.2 > 12_000, "{} different values of k", one.2);
}

#[test]
#[ignore = "needs sysbench and Postgres"]
fn a_bad_setting_is_told_with_the_servers_own_words() {
    let mut bench = Bench::new();
    bench.config.text.push_str("\nno_such_setting = 1\n");
    bench.initialise();
    let error = format!("{:#}", bench.start().unwrap_err());
    assert!(error.contains("ended while starting") && error.contains("no_such_setting"), "{error}");
}

#[test]
#[ignore = "needs sysbench and Postgres"]
fn a_step_that_cannot_run_keeps_what_the_client_printed() {
    let bench = Bench::new();
    let server = bench.loaded();
    let error = run_step(&StepPlan { tables: 2, ..plan("point-query", 1, 1, 2) }, &server, &bench.area).unwrap_err();
    let failure = error.downcast_ref::<StepFailure>().unwrap();
    assert!(failure.step == "point-query" && failure.output.contains("FATAL") && failure.command.starts_with("sysbench"), "{failure:?}");
    assert!(format!("{error:#}").contains("relation \"sbtest2\" does not exist"), "{error:#}");
    server.stop().unwrap();
}

#[test]
#[ignore = "needs sysbench and Postgres"]
fn a_server_that_dies_in_a_step_is_named_as_the_cause() {
    let bench = Bench::new();
    let server = bench.loaded();
    let pid = Pid::from_raw(server.pid().cast_signed());
    let processes = children(&server);
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(2500));
        kill(pid, Signal::SIGQUIT).unwrap();
    });
    let error = run_step(&plan("point-query", 2, 1, 5), &server, &bench.area).unwrap_err();
    killer.join().unwrap();
    assert!(error.is::<StepFailure>(), "{error:#}");
    let error = format!("{error:#}");
    assert!(error.contains("the server ended by itself") && error.contains("immediate shutdown request"), "{error}");
    assert!(!server.is_running() && server.check().is_err() && all_gone(&processes));
    assert!(format!("{:#}", server.stop().unwrap_err()).contains("ended by itself"));
}

#[test]
#[ignore = "needs sysbench and Postgres"]
fn a_crashed_backend_fails_the_step_and_the_server_stays() {
    let bench = Bench::new();
    let mut server = bench.loaded();
    let before = children(&server);
    let pid = server.pid();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(2500));
        let all = procfs::process::all_processes().unwrap().flatten().filter_map(|process| process.stat().ok());
        let backend = all.filter(|stat| stat.ppid.cast_unsigned() == pid && !before.contains(&stat.pid)).map(|stat| stat.pid).next().unwrap();
        kill(Pid::from_raw(backend), Signal::SIGKILL).unwrap();
    });
    let error = run_step(&plan("point-query", 1, 1, 5), &server, &bench.area).unwrap_err();
    killer.join().unwrap();
    assert!(error.downcast_ref::<StepFailure>().unwrap().output.contains("[ 2s ] thds: 1"), "{error:#}");
    assert!(server.is_running());
    // The crash closed our own connection as well; a later statement says so instead of waiting.
    assert!(server.sql("SELECT 1").is_err());
    // Postgres 15 does not obey a fast shutdown that it gets while it recovers.
    let asked = Instant::now();
    while try_client(&server).is_err() {
        assert!(asked.elapsed() < Duration::from_secs(60), "the server does not recover");
        std::thread::sleep(Duration::from_millis(100));
    }
    server.stop().unwrap();
}

#[test]
#[ignore = "needs sysbench and Postgres"]
fn restored_data_with_a_foreign_lock_starts_and_a_second_server_does_not() {
    let bench = Bench::new();
    bench.initialise();
    let copy = bench.area.dir.join("copy.1");
    copy_data(&bench.data, &copy, bench.area.account.as_ref()).unwrap();
    // As left by a server that was killed, whose id now belongs to somebody else: this process.
    let lock = format!("{}\n{}\n0\n5432\n/tmp\n\n0 0\nready\n", std::process::id(), copy.display());
    std::fs::write(copy.join("postmaster.pid"), lock).unwrap();
    let server = server::start(&bench.install, &bench.config, &copy, &bench.area).unwrap();
    let error = server::start(&bench.install, &bench.config, &copy, &bench.area).unwrap_err().to_string();
    assert!(error.contains("already runs") && error.contains(&server.pid().to_string()), "{error}");
    assert!(server.is_running());
    server.stop().unwrap();
}

#[test]
#[ignore = "needs sysbench and Postgres"]
fn a_hung_server_is_ended_and_the_error_says_how() {
    let bench = Bench::new();
    bench.initialise();
    let server = bench.start().unwrap();
    let mut processes = children(&server);
    processes.push(server.pid().cast_signed());
    // Stopped processes neither handle a shutdown nor notice that their parent is gone.
    for pid in &processes {
        kill(Pid::from_raw(*pid), Signal::SIGSTOP).unwrap();
    }
    let error = server.stop_within(Duration::from_millis(300)).unwrap_err().to_string();
    assert!(error.contains("fast shutdown") && error.contains("immediate shutdown") && error.contains("killed"), "{error}");
    assert!(all_gone(&processes));
}

#[test]
#[ignore = "needs sysbench and Postgres"]
fn a_dropped_server_leaves_no_process_and_no_socket() {
    let bench = Bench::new();
    bench.initialise();
    let server = bench.start().unwrap();
    let mut processes = children(&server);
    processes.push(server.pid().cast_signed());
    assert!(processes.len() > 3, "{processes:?}");
    let sockets = server.endpoint().socket_dir.clone();
    drop(server);
    assert!(all_gone(&processes) && !sockets.exists());
}

#[test]
#[ignore = "needs sysbench and Postgres"]
fn an_ended_connection_stays_in_the_sum() {
    let bench = Bench::new();
    let server = bench.loaded();
    let before = Moment::now(server.pid(), std::process::id()).unwrap();
    client(&server).batch_execute("SELECT count(*) FROM generate_series(1, 3000000)").unwrap();
    let asked = Instant::now();
    let cost = loop {
        let after = Moment::now(server.pid(), std::process::id()).unwrap();
        // The backend has ended and was waited for once the processes are those of the beginning.
        if after.server.living.keys().eq(before.server.living.keys()) {
            break after.server.since(&before.server);
        }
        assert!(asked.elapsed() < Duration::from_secs(10), "the backend stays: {after:?}");
        std::thread::sleep(Duration::from_millis(20));
    };
    // Far less than counting takes anywhere, and still some of the kernel's ticks.
    assert!(cost.cpu() > Duration::from_millis(20), "{cost:?}");
    server.stop().unwrap();
}
