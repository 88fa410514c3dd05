//! Blocks that the planner reads to find the end of an index, against rows deleted from that end:
//! what the patch `hack100` limits. `facts/builds.md` section 7 describes the experiment.
//!
//! `cargo run --release --example planner_pages -- PREFIX [PREFIX...]` with prefixes of installed
//! Postgres 13 or later; prints one row per build and number of deleted rows.

use std::path::{Path, PathBuf};

use anyhow::Context;
use dbisect::matrix::Dbms;
use dbisect::process::Account;
use dbisect::server::{Area, Installation, ServerConfig, initialise, start};
use postgres::{Client, NoTls};

const ROWS: i64 = 1_000_000;
const PLANS: [usize; 4] = [1, 3, 23, 123];

fn main() -> anyhow::Result<()> {
    println!("{:50} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9}", "build", "deleted", "plan 1", "plan 3", "plan 23", "plan 123", "ms");
    for prefix in std::env::args().skip(1) {
        let prefix = std::path::absolute(prefix)?;
        for deleted in [0, 200_000, 900_000] {
            let (blocks, milliseconds) = measure(&prefix, deleted)?;
            let [first, third, twentythird, last] = blocks;
            println!("{:50} {deleted:8} {first:8} {third:8} {twentythird:8} {last:8} {milliseconds:9.2}", name(&prefix));
        }
    }
    Ok(())
}

/// The cell that an entry of the cache was built for, or the prefix itself.
fn name(prefix: &Path) -> String {
    let manifest = prefix.parent().and_then(|dir| std::fs::read_to_string(dir.join("manifest.json")).ok());
    let cell =
        manifest.and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok()).and_then(|value| value["story"]["cell"].as_str().map(str::to_owned));
    cell.unwrap_or_else(|| prefix.display().to_string())
}

fn measure(prefix: &Path, deleted: i64) -> anyhow::Result<([i64; 4], f64)> {
    let account = Account::for_servers()?;
    let dir = tempfile::Builder::new().prefix("planner-").tempdir_in("/var/tmp")?;
    if let Some(account) = &account {
        account.own(dir.path())?;
    }
    let install = Installation { dbms: Dbms::Postgres, prefix: reachable(prefix, dir.path())? };
    let config = ServerConfig { name: "cx_planner".to_owned(), text: "autovacuum = off\nshared_buffers = 512MB\n".to_owned(), engine: None };
    let area = Area { dir: dir.path().to_owned(), account };
    let data = dir.path().join("data");
    initialise(&install, &config, &data, &area)?;
    let server = start(&install, &config, &data, &area)?;
    let endpoint = server.endpoint().clone();
    let connect = || Client::configure().host_path(&endpoint.socket_dir).port(endpoint.port).user(&endpoint.user).dbname("postgres").connect(NoTls);
    let mut client = connect()?;
    client.batch_execute(&format!("CREATE TABLE t (id bigint PRIMARY KEY, v int); INSERT INTO t SELECT i, i FROM generate_series(1, {ROWS}) i"))?;
    client.batch_execute("VACUUM ANALYZE t")?;
    let mut done = 0;
    while done < deleted {
        // Many small transactions, as a workload that deletes from one end does it.
        done += 1000;
        client.batch_execute(&format!("DELETE FROM t WHERE id <= {done}"))?;
    }
    drop(client);
    let (mut blocks, mut milliseconds) = ([0; 4], 0.0);
    for plan in 1..=PLANS[3] {
        let found = planning(&mut connect()?)?;
        if let Some(at) = PLANS.iter().position(|wanted| *wanted == plan) {
            blocks[at] = found.0;
        }
        milliseconds = found.1;
    }
    server.stop()?;
    Ok((blocks, milliseconds))
}

/// Shared blocks touched and milliseconds spent while planning.
fn planning(client: &mut Client) -> anyhow::Result<(i64, f64)> {
    let row = client.query_one("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM t WHERE id < 5000", &[])?;
    let text: serde_json::Value = row.try_get::<_, postgres::types::Json<serde_json::Value>>(0).map(|json| json.0)?;
    let top = &text[0];
    let count =
        |key: &str| top["Planning"][key].as_i64().with_context(|| format!("the plan has no `{key}` of planning; Postgres 13 or later is wanted: {top}"));
    Ok((count("Shared Hit Blocks")? + count("Shared Read Blocks")?, top["Planning Time"].as_f64().unwrap_or(f64::NAN)))
}

/// A prefix that the servers' account can reach.
fn reachable(prefix: &Path, dir: &Path) -> anyhow::Result<PathBuf> {
    if Account::can_reach(prefix) {
        return Ok(prefix.to_owned());
    }
    let copy = dir.join("install");
    dbisect::server::copy_data(prefix, &copy, None)?;
    Ok(copy)
}
