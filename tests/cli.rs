//! The command line on bad and good input: one clear sentence, the right exit code, nothing lost.

use std::path::Path;
use std::process::Command;

struct Bench {
    dir: tempfile::TempDir,
}

struct Done {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Bench {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    }

    fn run(&self, arguments: &[&str]) -> Done {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dbisect"));
        command
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(arguments)
            .env("DBISECT_CACHE", self.dir.path().join("cache"))
            .env("DBISECT_DB", self.dir.path().join("db"));
        let output = command.output().unwrap();
        Done {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    #[track_caller]
    fn refuses(&self, arguments: &[&str], wanted: &str) {
        let done = self.run(arguments);
        assert!(done.code == Some(2) && done.stderr.contains(wanted), "{arguments:?}: {:?} {}", done.code, done.stderr);
        assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
    }
}

const TARGET: &str = "[[target]]\ndbms = \"postgres\"\nversions = [\"15\"]\nsource = \"debian\"\n";

#[test]
fn files_that_are_no_matrix_are_usage_errors() {
    let bench = Bench::new();
    bench.refuses(&["expand", "no/such/file.toml"], "cannot read the matrix file");
    bench.refuses(&["build", &bench.write("empty.toml", "")], "names nothing to build");
    bench.refuses(&["run", &bench.write("binary.toml", [0_u8, 159, 146, 150])], "not UTF-8");
    bench.refuses(&["expand", &bench.write("huge.toml", vec![b'#'; 2 << 20])], "has at most");
    bench.refuses(&["expand", &bench.dir.path().display().to_string()], "not a regular file");
    bench.refuses(&["expand", &bench.write("typo.toml", format!("{TARGET}[biuld]\n"))], "did you mean `build`?");
}

#[test]
fn words_that_do_not_exist_are_usage_errors_with_a_hint() {
    let bench = Bench::new();
    let matrix = bench.write("m.toml", TARGET);
    bench.refuses(&["expand", &matrix, "--cell", "my*"], "no cell matches my*");
    bench.refuses(&["run", &matrix, "--step", "point-qery"], "no step matches");
    bench.refuses(&["run", &matrix, "--budget", "soon"], "--budget is `soon`");
    bench.refuses(&["run", &matrix, "--repeats", "0"], "--repeats is 0");
    bench.refuses(&["compare", "--metric", "cpuqp"], "did you mean `cpupq`?");
    bench.refuses(&["compare", "--format", "xml"], "there is no format `xml`");
    bench.refuses(&["compare"], "there is no database");
    bench.refuses(&["bisect", &matrix, "--metric", "cpupq", "--good", "a", "--bad", "b"], "no [[target]] with source = \"git\"");
    bench.refuses(&["bisect", "show", "7"], "there is no search 7");
    bench.refuses(&["man", "no-such-command"], "there is no command");
    assert_eq!(bench.run(&["no-such-command"]).code, Some(2));
}

#[test]
fn searches_that_cannot_be_meant_are_usage_errors() {
    let bench = Bench::new();
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .arg("-C")
            .arg(bench.dir.path().join("repo"))
            .args(["-c", "user.name=T", "-c", "user.email=t@example.org"])
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?} {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    std::fs::create_dir(bench.dir.path().join("repo")).unwrap();
    git(&["init", "--quiet", "--initial-branch", "main"]);
    let commit = |file: &str| {
        std::fs::write(bench.dir.path().join("repo").join(file), file).unwrap();
        git(&["add", "--all"]);
        git(&["commit", "--quiet", "--message", file]);
        git(&["rev-parse", "HEAD"])
    };
    let (first, second) = (commit("one"), commit("two"));
    git(&["checkout", "--quiet", "--orphan", "island"]);
    let island = commit("three");
    let matrix = bench.write(
        "m.toml",
        format!(
            "[[target]]\ndbms = \"postgres\"\nrevisions = [\"main\"]\nsource = {{ kind = \"git\", remote = \"{}\" }}\n",
            bench.dir.path().join("repo").display()
        ),
    );
    let bisect =
        |good: &str, bad: &str, wanted: &str| bench.refuses(&["bisect", &matrix, "--metric", "qps", "--step", "insert", "--good", good, "--bad", bad], wanted);
    bisect(&second, &first, "the ends are swapped");
    bisect(&first, &first, "the same commit");
    bisect(&first, &island, "no common history");
    bisect("0123456789abcdef", &second, "there is no commit, branch or tag");
    bisect("16.3", &second, "neither a tag REL_16_3 nor a commit \"Stamp 16.3.\"");
    bisect("--upload-pack=x", &second, "unexpected argument");
    bench.refuses(&["bisect", &matrix, "--metric", "qps", "--good", &first, "--bad", &second, "--confidence", "1.5"], "--confidence is 1.5");
    bench.refuses(&["bisect", &matrix, "--metric", "qps", "--good", &first, "--bad", &second, "--floor", "0"], "--floor is 0%");
    bench.refuses(&["bisect", &matrix, "--metric", "qps", "--good", &first], "both --good and --bad");
    bench.refuses(&["bisect", &matrix, "--metric", "qps"], "no regression of qps");
}

#[test]
fn a_database_of_a_newer_schema_is_left_alone() {
    let bench = Bench::new();
    let path = bench.dir.path().join("db");
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 999).unwrap();
    bench.refuses(&["bisect", "list"], "newer dbisect");
}

#[test]
fn expand_has_the_contracts_shape() {
    let bench = Bench::new();
    let matrix = bench.write("m.toml", format!("{TARGET}[build]\nlto = [\"off\", \"full\"]\n"));
    let done = bench.run(&["expand", &matrix, "--json"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let value: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(value["schema"], 1);
    let cell = &value["cells"][1];
    assert_eq!((cell["name"].as_str(), cell["dbms"].as_str(), cell["revision"].as_str()), (Some("pg15_def_lto.cx9a2a_small"), Some("postgres"), Some("15")));
    assert!(cell["build_key"].is_null() && cell["cached"] == false && cell["axes"]["lto"] == "full", "{cell}");
    let github: serde_json::Value = serde_json::from_str(&bench.run(&["expand", &matrix, "--format", "github"]).stdout).unwrap();
    assert_eq!(github["include"].as_array().unwrap().len(), 2);
}

#[test]
fn what_takes_long_can_be_asked_first() {
    let bench = Bench::new();
    let matrix = bench.write("m.toml", TARGET);
    for arguments in [&["build", &matrix, "--dry-run"][..], &["run", &matrix, "--dry-run"], &["quickstart", "--dry-run"]] {
        let done = bench.run(arguments);
        assert!(done.code == Some(0) && done.stdout.contains("would") && done.stdout.contains("about"), "{arguments:?}: {}{}", done.stdout, done.stderr);
    }
    assert!(!bench.dir.path().join("db").exists(), "a dry run made a database");
}

#[test]
fn a_version_that_cannot_be_built_here_is_refused_before_an_hour_is_spent() {
    let bench = Bench::new();
    let tree = bench.dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let matrix = bench.write("m.toml", "[[target]]\ndbms = \"mysql\"\nsource = { kind = \"path\", path = \"tree\" }\n");
    std::fs::write(tree.join("VERSION"), "MYSQL_VERSION_MAJOR=8\nMYSQL_VERSION_MINOR=0\nMYSQL_VERSION_PATCH=28\n").unwrap();
    bench.refuses(&["build", &matrix], "OpenSSL 1.1.1");
    std::fs::write(tree.join("VERSION"), "MYSQL_VERSION_MAJOR=5\nMYSQL_VERSION_MINOR=5\nMYSQL_VERSION_PATCH=62\n").unwrap();
    bench.refuses(&["build", &matrix], "5.6 or later is wanted");
}

#[test]
fn help_completions_and_manual_are_there() {
    let bench = Bench::new();
    let help = bench.run(&["--help"]).stdout;
    for command in ["quickstart", "doctor", "expand", "build", "run", "compare", "bisect", "cache", "completions", "man"] {
        assert!(help.contains(command), "{command} is missing from the help");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(bench.run(&["completions", shell]).stdout.contains("dbisect"), "{shell}");
    }
    assert!(bench.run(&["man"]).stdout.contains(".TH"));
    assert!(bench.run(&["man", "bisect"]).stdout.contains("confidence"));
    assert!(bench.run(&["cache", "stats"]).stdout.contains("0 builds"));
}

#[test]
fn doctor_names_packages_and_says_what_disturbs() {
    let bench = Bench::new();
    let done = bench.run(&["doctor", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", done.stdout, done.stderr));
    assert!(value["schema"] == 1 && value["missing"].is_array() && value["findings"].is_array(), "{value}");
    assert!(Path::new("/proc").exists());
}
