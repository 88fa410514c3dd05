//! The whole way on a real Postgres with a real sysbench: builds from the distribution's source
//! package, a comparison along an axis, and searches for a planted regression.
//!
//! `bash tests/all.sh` installs what is needed and runs it. It takes about twenty minutes on two
//! cores, most of it compiling Postgres.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use dbisect::matrix::{Matrix, Revision, SourceSpec};
use dbisect::source::{Environment, Sources};
use support::{Bench, Repository};

const STUDY: &str = r#"
name = "end-to-end"
[[target]]
dbms = "postgres"
versions = ["15"]
source = { kind = "debian", package = "postgresql-15", suite = "bookworm" }
[build]
build = "def"
lto = ["off", "full"]
[run]
rows = 20000
[workload]
steps = ["point-query", "read-only", "update-index"]
warmup = 1
time = 2
repeats = 3
"#;

/// Real C files of the backend, one per harmless commit.
const FILES: [&str; 24] = [
    "src/backend/utils/adt/cash.c",
    "src/backend/utils/adt/bool.c",
    "src/backend/utils/adt/char.c",
    "src/backend/utils/adt/date.c",
    "src/backend/utils/adt/dbsize.c",
    "src/backend/utils/adt/domains.c",
    "src/backend/utils/adt/enum.c",
    "src/backend/utils/adt/expandeddatum.c",
    "src/backend/utils/adt/float.c",
    "src/backend/utils/adt/format_type.c",
    "src/backend/utils/adt/geo_ops.c",
    "src/backend/utils/adt/inet_net_pton.c",
    "src/backend/utils/adt/int.c",
    "src/backend/utils/adt/int8.c",
    "src/backend/utils/adt/json.c",
    "src/backend/utils/adt/lockfuncs.c",
    "src/backend/utils/adt/mac.c",
    "src/backend/utils/adt/name.c",
    "src/backend/utils/adt/network.c",
    "src/backend/utils/adt/oid.c",
    "src/backend/utils/adt/quote.c",
    "src/backend/utils/adt/rowtypes.c",
    "src/backend/utils/adt/tid.c",
    "src/backend/utils/adt/uuid.c",
];

/// CPU work on the path of every point query: 20 to 40% of what one costs, so that a machine whose
/// readings scatter by 10% finds it within minutes.
const SLOW_FROM: &str = "\tif (portal_name[0] == '\\0')";
const SLOW_FILE: &str = "src/backend/tcop/postgres.c";

struct Planted {
    repository: Repository,
    good: String,
    culprit: String,
}

/// 32 commits: harmless changes of C files, two of documentation only, three in a row that do not
/// compile, and, with `slow`, one that costs CPU in every query.
fn plant(repository: &Repository, branch: &str, base: &str, slow: bool) -> Option<String> {
    repository.git(&["checkout", "--quiet", "-B", branch, base]);
    let mut culprit = None;
    let mut files = FILES.iter().cycle();
    for number in 1..=32 {
        let mut harmless = || {
            let file = files.next().unwrap();
            match number % 3 {
                0 => repository.append(file, &format!("\n/* remark {number} */\n")),
                1 => repository.append(file, &format!("\nstatic inline int dbisect_unused_{number}(int x) {{ return x + {number}; }}\n")),
                _ => repository.append(file, &format!("\n#define DBISECT_UNUSED_{number} {number}\n")),
            }
        };
        let subject = match number {
            6 | 23 => {
                repository.append("doc/src/sgml/intro.sgml", &format!("<!-- note {number} -->\n"));
                "Document something"
            }
            11 => {
                repository.append("src/backend/utils/adt/cash.c", "\nthis does not compile;\n");
                "Begin a change that does not compile yet"
            }
            12 | 13 => {
                harmless();
                "Go on while it does not compile"
            }
            14 => {
                repository.replace("src/backend/utils/adt/cash.c", "\nthis does not compile;\n", "\n");
                "Make it compile again"
            }
            19 if slow => {
                // Declarations come first in Postgres' C, so the work stands in a block of its own.
                let work = format!(
                    "\t{{\n\t\tvolatile int\tdbisect_work;\n\n\t\tfor (dbisect_work = 0; dbisect_work < 8000; dbisect_work++)\n\t\t\t;\n\t}}\n{SLOW_FROM}"
                );
                let path = repository.dir.join(SLOW_FILE);
                let text = std::fs::read_to_string(&path).unwrap();
                let function =
                    text.find("exec_execute_message(const char *portal_name, long max_rows)\n{").expect("the function that executes prepared statements");
                let at = function + text[function..].find("\tdest = whereToSendOutput;").expect("its first statement");
                let work = work.trim_end_matches(SLOW_FROM);
                std::fs::write(&path, format!("{}{work}{}", &text[..at], &text[at..])).unwrap();
                "Check portals more thoroughly"
            }
            _ => {
                harmless();
                "Tidy up"
            }
        };
        let id = repository.commit(&format!("{subject} ({number})"));
        if number == 19 && slow {
            culprit = Some(id);
        }
    }
    culprit
}

/// The distribution's source tree as a repository, with a branch that has the regression and one
/// that has everything but it.
fn planted(bench: &Bench) -> Planted {
    let matrix = Matrix::parse(STUDY, Path::new("study.toml"), &["point-query", "read-only", "update-index"]).unwrap();
    let mut cell = matrix.cells().unwrap().remove(0);
    cell.source = SourceSpec::Debian { package: "postgresql-15".to_owned(), suite: Some("bookworm".to_owned()) };
    cell.revision = Revision::Version("15".to_owned());
    let tree = Sources::new(&bench.cache, Path::new("patches"), Environment::default()).obtain(&cell, &|_| ()).unwrap();
    let dir = bench.dir.join("repository");
    std::fs::create_dir_all(&dir).unwrap();
    tree.checkout(&dir, &|path| !path.starts_with("src/test/") && !path.starts_with("contrib/")).unwrap();
    let repository = Repository::of_tree(dir);
    let good = repository.head();
    plant(&repository, "harmless", &good, false);
    let culprit = plant(&repository, "slow", &good, true).expect("the slow commit");
    Planted { repository, good, culprit }
}

fn search_matrix(bench: &Bench, repository: &Repository) -> String {
    let text = format!(
        "name = \"planted\"\n[[target]]\ndbms = \"postgres\"\nrevisions = [\"slow\"]\nsource = {{ kind = \"git\", remote = \"{}\" }}\n[run]\nrows = 20000\n[workload]\nsteps = [\"point-query\"]\nwarmup = 1\ntime = 3\n",
        repository.dir.display()
    );
    bench.write("planted.toml", &text).display().to_string()
}

#[test]
#[ignore = "builds Postgres and needs sysbench; run by tests/all.sh"]
fn searches_name_the_planted_commit_and_nobody_else() {
    let bench = Bench::new("end-to-end");
    let planted = planted(&bench);
    let matrix = search_matrix(&bench, &planted.repository);
    let ends = |bad: &'static str| ["--good", planted.good.as_str(), "--bad", bad];
    let options = ["--metric", "cpupq", "--step", "point-query", "--floor", "10", "--json"];
    let arguments = |bad: &'static str| [&["bisect", matrix.as_str()][..], &ends(bad)[..], &options[..]].concat();

    a_killed_search_resumes_and_builds_nothing_twice(&bench, &planted, &arguments("slow"));

    let found = bench.run("again.db", &arguments("slow"));
    assert_eq!(found.code, Some(0), "{found:#?}");
    assert_names(&found.json(), &planted);

    let nothing = bench.run("nothing.db", &arguments("harmless"));
    assert_eq!(nothing.code, Some(3), "{nothing:#?}");
    let answer = nothing.json();
    assert_eq!((answer["outcome"].as_str(), answer["culprit"].is_null()), (Some("no_change"), true), "{answer:#}");
}

#[test]
#[ignore = "builds Postgres and needs sysbench; run by tests/all.sh"]
fn builds_are_measured_compared_and_never_made_twice() {
    let bench = Bench::new("end-to-end");
    let matrix = bench.write("study.toml", STUDY).display().to_string();
    let before = bench.run("study.db", &["expand", &matrix, "--json"]).json();
    assert!(before["cells"][0]["build_key"].is_null() && before["cells"][0]["cached"] == false, "{before:#}");

    let run = bench.run("study.db", &["run", &matrix]);
    assert_eq!(run.code, Some(0), "{run:#?}");

    let again = bench.run("study.db", &["build", &matrix, "--json"]).json();
    let outcomes: Vec<_> = again["builds"].as_array().unwrap().iter().map(|build| build["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["hit", "hit"], "{again:#}");
    let after = bench.run("study.db", &["expand", &matrix, "--json"]).json();
    assert_eq!(after["cells"][1]["build_key"], again["builds"][1]["build_key"]);
    assert_ne!(after["cells"][0]["build_key"], after["cells"][1]["build_key"]);

    let resumed = bench.run("study.db", &["run", &matrix, "--json"]).json();
    assert_eq!((resumed["run"]["restarts"].as_u64(), resumed["run"]["resumed"].as_u64()), (Some(0), Some(6)), "{resumed:#}");

    let compared = bench.run("study.db", &["compare", "--axis", "lto", "--json"]).json();
    let rows = compared["rows"].as_array().unwrap();
    // Three steps by two metrics; what a disturbed host spoiled is left out, and that is said.
    assert_recorded(&bench, "study.db", 18);
    let left_out = compared["left_out"].to_string();
    for step in ["point-query", "read-only", "update-index"] {
        let found = rows.iter().filter(|row| row["step"] == step).count();
        assert!(found == 2 || left_out.contains(step), "{step}: {compared:#}");
    }
    for row in rows {
        // LTO moves Postgres by some per cent, not by half; both sides ran the same real queries. A
        // host that was disturbed may leave a single restart, which has no interval.
        let relative = row["relative"].as_f64().unwrap();
        assert!((0.5..2.0).contains(&relative) && row["n"].as_u64() >= Some(1), "{row:#}");
        if let (Some(low), Some(high)) = (row["ci95"][0].as_f64(), row["ci95"][1].as_f64()) {
            assert!(low <= relative && relative <= high, "{row:#}");
        }
    }
}

fn a_killed_search_resumes_and_builds_nothing_twice(bench: &Bench, planted: &Planted, arguments: &[&str]) {
    // In the middle of the second build.
    let builds = |lines: &[String]| lines.iter().filter(|line| line.starts_with("building ")).cloned().collect::<Vec<_>>();
    let first = bench.kill_when("killed.db", arguments, |lines| builds(lines).len() >= 2, Duration::from_secs(8));
    let killed_in = builds(&first).last().cloned().expect("a build was under way");
    // In the middle of a measurement.
    let then = bench.kill_when(
        "killed.db",
        &["bisect", "resume", "1", "--json"],
        |lines| lines.iter().any(|line| line.starts_with("measuring ")),
        Duration::from_secs(4),
    );
    let found = bench.run("killed.db", &["bisect", "resume", "1", "--json"]);
    assert_eq!(found.code, Some(0), "{found:#?}");
    let answer = found.json();
    assert_names(&answer, planted);

    let lines: Vec<String> = found.stderr.lines().map(str::to_owned).collect();
    let mut all = [builds(&first), builds(&then), builds(&lines)].concat();
    // The one that was killed had to be begun again.
    let at = all.iter().position(|line| *line == killed_in).unwrap();
    all.remove(at);
    let mut distinct = all.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), all.len(), "something was built twice: {all:#?}");
    let left = std::process::Command::new("pgrep")
        .args(["-f", &bench.dir.display().to_string()])
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    assert!(left.as_ref().is_ok_and(String::is_empty) || left.is_err(), "processes were left behind: {left:?}");
}

#[track_caller]
fn assert_names(answer: &serde_json::Value, planted: &Planted) {
    assert_eq!((answer["schema"].as_i64(), answer["outcome"].as_str()), (Some(1), Some("culprit")), "{answer:#}");
    assert_eq!(answer["culprit"]["commit"].as_str(), Some(planted.culprit.as_str()), "{answer:#}");
    assert_eq!(answer["culprit"]["subject"].as_str(), Some("Check portals more thoroughly (19)"));
    assert!(answer["posterior"].as_f64() >= Some(0.95), "{answer:#}");
    let effect = &answer["effect"];
    assert_eq!(effect["metric"].as_str(), Some("cpupq"));
    assert!(effect["ci95"][0].as_f64() > Some(1.03) && effect["relative"].as_f64() < Some(2.0), "{effect:#}");
    assert!(answer["cost"]["runs"].as_u64() >= Some(12) && answer["cost"]["seconds"].as_f64() > Some(0.0), "{answer:#}");
    assert!(
        answer["tested"].as_array().is_some_and(|tested| tested.len() >= 4 && tested.iter().all(|one| one["commit"].is_string() && one["state"].is_string())),
        "{answer:#}"
    );
}

/// Servers of the distribution's packages: a real InnoDB, a real MyRocks and a real Postgres, and
/// nothing is compiled.
const INSTALLED: &str = r#"
name = "installed-end-to-end"
[[target]]
dbms = "mariadb"
versions = ["10.11"]
source = { kind = "installed", prefix = "/usr" }
[target.run]
engine = ["innodb", "rocksdb"]
[[target]]
dbms = "postgres"
versions = ["15"]
source = { kind = "installed", prefix = "/usr/lib/postgresql/15" }
[run]
rows = 2000
[workload]
warmup = 1
time = 1
repeats = 2
"#;

#[test]
#[ignore = "needs mariadb-server, mariadb-plugin-rocksdb, postgresql-15 and sysbench; run by tests/all.sh"]
fn installed_servers_are_measured_and_compared() {
    let bench = Bench::new("installed");
    let matrix = bench.write("installed.toml", INSTALLED).display().to_string();
    std::fs::create_dir_all(bench.dir.join("configs")).unwrap();
    for config in ["my.cnf.cz11a_small", "my.cnf.cza1_small", "conf.diff.cx9a2a_small"] {
        std::fs::copy(format!("matrices/configs/{config}"), bench.dir.join("configs").join(config)).unwrap();
    }
    let builds = bench.run("a.db", &["build", &matrix, "--json"]).json();
    let builds = builds["builds"].as_array().unwrap();
    assert!(builds.len() == 3 && builds.iter().all(|build| build["outcome"] == "hit"), "{builds:#?}");
    // The two engines are one server.
    let keys: BTreeSet<_> = builds.iter().map(|build| build["build_key"].as_str().unwrap()).collect();
    assert_eq!(keys.len(), 2, "{builds:#?}");

    let done = bench.run("a.db", &["run", &matrix]);
    assert_eq!(done.code, Some(0), "{done:#?}");
    let again = bench.run("a.db", &["run", &matrix, "--json"]).json();
    assert_eq!((again["run"]["restarts"].as_u64(), again["run"]["resumed"].as_u64()), (Some(0), Some(6)), "{again:#}");

    assert_recorded(&bench, "a.db", 48);
    let compared = bench.run("a.db", &["compare", "--axis", "engine", "--cell", "ma*", "--json"]);
    assert_eq!(compared.code, Some(0), "{compared:#?}");
    for row in compared.json()["rows"].as_array().unwrap() {
        assert!(row["cell"] != row["base_cell"] && row["relative"].as_f64().unwrap() > 0.0, "{row:#}");
    }
    // A wrong version is refused before anything runs.
    let wrong = bench.write("wrong.toml", &INSTALLED.replace("\"10.11\"", "\"11.8\"")).display().to_string();
    let refused = bench.run("b.db", &["run", &wrong]);
    assert!(refused.code == Some(2) && refused.stderr.contains("wants version 11.8") && refused.stderr.contains("10.11"), "{refused:#?}");
}

/// Every step of every restart gave its metrics, also where a disturbed host makes them doubtful.
#[track_caller]
fn assert_recorded(bench: &Bench, db: &str, steps: i64) {
    let database = rusqlite::Connection::open(bench.dir.join(db)).unwrap();
    let count = "SELECT count(*) FROM step JOIN sample ON sample.step = step.id WHERE metric = ?1 AND value > 0";
    for metric in ["qps", "cpupq"] {
        assert_eq!(database.query_row(count, [metric], |row| row.get::<_, i64>(0)).unwrap(), steps, "{metric}");
    }
}
