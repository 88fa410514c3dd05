//! Vocabulary of the end-to-end tests: a workbench with a cache, a database and a repository of
//! real Postgres commits.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A directory with everything that one test needs.
pub struct Bench {
    pub dir: PathBuf,
    pub cache: PathBuf,
}

/// A finished command.
#[derive(Debug)]
pub struct Done {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Done {
    /// The answer as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in the answer of {self:#?}"))
    }
}

impl Bench {
    /// A fresh bench in the build directory, where there is room. Only the object cache of an earlier
    /// run is kept: it makes builds faster and decides nothing.
    pub fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let (objects, kept) = (dir.join("cache/ccache"), dir.with_extension("ccache"));
        if objects.exists() {
            std::fs::rename(&objects, &kept).unwrap();
        }
        if dir.exists() {
            std::fs::remove_dir_all(&dir).unwrap();
        }
        std::fs::create_dir_all(dir.join("cache")).unwrap();
        if kept.exists() {
            std::fs::rename(&kept, &objects).unwrap();
        }
        // A mode of 700 all the way would be met by servers of another account, as in root's home.
        Self { cache: dir.join("cache"), dir }
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn command(&self, db: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dbisect"));
        command.current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments).arg("--cache").arg(&self.cache).arg("--db").arg(self.dir.join(db));
        command.env_remove("DBISECT_CACHE").env_remove("DBISECT_DB").env_remove("DBISECT_MIRROR_POSTGRES");
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, db: &str, arguments: &[&str]) -> Done {
        let started = Instant::now();
        let output = self.command(db, arguments).output().unwrap();
        let done = Done {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        eprintln!("--- dbisect {} -> {:?} in {:.0} s\n{}", arguments.join(" "), done.code, started.elapsed().as_secs_f64(), done.stderr);
        done
    }

    /// Starts a command, waits until what it says makes `seen` true, waits a little longer,
    /// and kills it without warning. Gives what it had said.
    pub fn kill_when(&self, db: &str, arguments: &[&str], seen: impl Fn(&[String]) -> bool, longer: Duration) -> Vec<String> {
        let mut child = self.command(db, arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let stderr = child.stderr.take().unwrap();
        let reader = {
            let lines = Arc::clone(&lines);
            std::thread::spawn(move || BufReader::new(stderr).lines().map_while(Result::ok).for_each(|line| lines.lock().unwrap().push(line)))
        };
        wait_until(&mut child, || seen(&lines.lock().unwrap()), &lines);
        std::thread::sleep(longer);
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be killed: {:#?}", lines.lock().unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        reader.join().unwrap();
        let said = lines.lock().unwrap().clone();
        eprintln!("--- killed: dbisect {}\n{}", arguments.join(" "), said.join("\n"));
        said
    }
}

fn wait_until(child: &mut Child, ready: impl Fn() -> bool, lines: &Arc<Mutex<Vec<String>>>) {
    let started = Instant::now();
    while !ready() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it said what was waited for: {:#?}", lines.lock().unwrap());
        assert!(started.elapsed() < Duration::from_secs(1800), "it never said what was waited for: {:#?}", lines.lock().unwrap());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A git repository of real commits on top of a Postgres tree.
pub struct Repository {
    pub dir: PathBuf,
}

impl Repository {
    pub fn git(&self, arguments: &[&str]) -> String {
        let output = Command::new("git")
            .arg("-C")
            .arg(&self.dir)
            .args(["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"])
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Makes a repository whose first commit is the tree in `dir`.
    pub fn of_tree(dir: PathBuf) -> Self {
        let repository = Self { dir };
        repository.git(&["init", "--quiet", "--initial-branch", "main"]);
        repository.git(&["add", "--all", "--force"]);
        repository.git(&["commit", "--quiet", "--message", "Postgres as released"]);
        repository
    }

    pub fn head(&self) -> String {
        self.git(&["rev-parse", "HEAD"])
    }

    pub fn append(&self, file: &str, text: &str) {
        let path = self.dir.join(file);
        let old = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
        std::fs::write(&path, old + text).unwrap();
    }

    /// Replaces the first occurrence, which must exist.
    pub fn replace(&self, file: &str, from: &str, to: &str) {
        let path = self.dir.join(file);
        let old = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(old.contains(from), "{file} has no {from:?}");
        std::fs::write(&path, old.replacen(from, to, 1)).unwrap();
    }

    pub fn commit(&self, subject: &str) -> String {
        self.git(&["commit", "--quiet", "--all", "--message", subject]);
        self.head()
    }
}
