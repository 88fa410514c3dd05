//! What measuring costs: QPS of `point-query` under dbisect against the same sysbench command run
//! bare, on one server, alternately.
//!
//! ```sh
//! cargo run --release --example harness_cost -- PREFIX [PAIRS] [SECONDS]
//! ```
//!
//! PREFIX is an installed Postgres (`dbisect cache ls` and the entry's `install`, or
//! /usr/lib/postgresql/15). Prints every pair and the ratio with its 95% interval.

use std::path::{Path, PathBuf};

use anyhow::Context;
use dbisect::compare::{Reading, Series, Settings, compare};
use dbisect::matrix::Dbms;
use dbisect::measure::Metric;
use dbisect::process::{Account, Program};
use dbisect::server::{Area, Installation, ServerConfig, initialise, start};
use dbisect::workload::{Load, StepPlan, load, parse, run_step, step};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let prefix = PathBuf::from(arguments.first().context("name the prefix of an installed Postgres")?);
    let number = |at: usize, default: u32| arguments.get(at).map_or(Ok(default), |text| text.parse());
    let (pairs, seconds) = (number(1, 10)?, number(2, 5)?);

    let account = Account::for_servers()?;
    let dir = tempfile::Builder::new().prefix("dbisect-harness-").tempdir_in("/var/tmp")?;
    if let Some(account) = &account {
        account.own(dir.path())?;
    }
    let area = Area { dir: dir.path().to_owned(), account: account.clone() };
    let install = Installation { dbms: Dbms::Postgres, prefix };
    let config = ServerConfig::read(Path::new("matrices/configs"), Dbms::Postgres, "cx9a2a_small", None)?;
    let data = dir.path().join("data");
    initialise(&install, &config, &data, &area)?;
    let mut server = start(&install, &config, &data, &area)?;
    load(&mut server, &Load { tables: 1, rows: 100_000, seed: 1 }, &area, &dir.path().join("load.log"))?;

    let mut series = ["bare", "dbisect"].map(|cell| Series {
        cell: cell.to_owned(),
        step: "point-query".to_owned(),
        group: "point-1".to_owned(),
        metric: Metric::Qps,
        readings: Vec::new(),
    });
    for block in 0..u64::from(pairs) {
        let plan = StepPlan { step: step("point-query")?, threads: 1, tables: 1, rows: 100_000, warmup: 2, time: seconds, seed: block + 1 };
        let mut measured = [0.0; 2];
        // The order alternates, so that a drift weighs on both alike.
        for side in if block % 2 == 0 { [0, 1] } else { [1, 0] } {
            server.quiesce(false)?;
            measured[side] = if side == 0 { bare(&plan, &server, &area)? } else { run_step(&plan, &server, &area)?.metrics[&Metric::Qps] };
        }
        println!("pair {:2}: bare {:8.0} qps, under dbisect {:8.0} qps, ratio {:.4}", block + 1, measured[0], measured[1], measured[1] / measured[0]);
        for (series, value) in series.iter_mut().zip(measured) {
            series.readings.push(Reading { block, value, doubt: None });
        }
    }
    server.stop()?;
    let found = compare("bare", &[("bare".to_owned(), "dbisect".to_owned())], &series, &Settings { floor: 0.01, ..Settings::default() });
    let row = found.rows.first().context("no pair was measured")?;
    let [low, high] = row.ci95.context("one pair has no interval")?;
    println!("under dbisect / bare: {:.4} [{low:.4}, {high:.4}], {pairs} pairs of {seconds} s", row.relative);
    Ok(())
}

/// The same load without any harness: sysbench's own rate after its warm-up.
fn bare(plan: &StepPlan, server: &dbisect::server::RunningServer, area: &Area) -> anyhow::Result<f64> {
    let endpoint = server.endpoint();
    let done = Program::new("sysbench")
        .arg("oltp_point_select")
        .arg("--db-driver=pgsql")
        .arg(format!("--pgsql-host={}", endpoint.socket_dir.display()))
        .arg(format!("--pgsql-user={}", endpoint.user))
        .arg(format!("--pgsql-db={}", endpoint.database))
        .args(["--tables=1", "--threads=1", "--events=0", "--rand-type=uniform"])
        .arg(format!("--table-size={}", plan.rows))
        .arg(format!("--rand-seed={}", plan.seed))
        .arg(format!("--time={}", plan.warmup + plan.time + 1))
        .arg(format!("--report-checkpoints={}", plan.warmup))
        .arg("run")
        .account(area.account.as_ref())
        .dir(&area.dir)
        .output()?;
    let totals = parse(&done.output)?.totals;
    #[expect(clippy::cast_precision_loss, reason = "a count of queries")]
    let queries = totals.queries as f64;
    Ok(queries / f64::from(plan.time + 1))
}
