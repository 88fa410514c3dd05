//! Sources through the public API, on real git repositories in temporary directories.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use dbisect::matrix::{Cell, ConfigurationError, Matrix, Revision, SourceSpec};
use dbisect::source::{Environment, Sources};

struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let bench = Self { dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir(bench.repository()).unwrap();
        bench.git(&["init", "--quiet", "--initial-branch", "main"]);
        bench.write("configure", "#!/bin/sh\nPACKAGE_VERSION='17devel'\n");
        bench
    }

    fn repository(&self) -> PathBuf {
        self.dir.path().join("repository")
    }

    fn git(&self, arguments: &[&str]) -> String {
        let output = Command::new("git")
            .arg("-C")
            .arg(self.repository())
            .args(["-c", "user.name=T", "-c", "user.email=t@example.org"])
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?} {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.repository().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn commit(&self, subject: &str) -> String {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "--message", subject]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// A commit of a tree that says it is that version of Postgres.
    fn release(&self, version: &str, subject: &str) -> String {
        self.write("configure", &format!("#!/bin/sh\nPACKAGE_VERSION='{version}'\n"));
        self.commit(subject)
    }

    fn sources(&self) -> Sources {
        Sources::new(&self.dir.path().join("cache"), &self.dir.path().join("patches"), Environment::default())
    }

    fn cell(&self, revision: Revision) -> Cell {
        cell(revision, SourceSpec::Git { remote: Some(self.repository().display().to_string()) })
    }

    fn version(&self, text: &str) -> Cell {
        self.cell(Revision::Version(text.to_owned()))
    }

    fn revision(&self, text: &str) -> Cell {
        self.cell(Revision::Commit(text.to_owned()))
    }

    fn commit_of(&self, cell: &Cell) -> String {
        self.sources().obtain(cell, &|_| ()).unwrap().commit.unwrap()
    }

    #[track_caller]
    fn refuses(&self, cell: &Cell, wanted: &str) {
        let error = self.sources().obtain(cell, &|_| ()).unwrap_err();
        assert!(error.chain().any(|cause| cause.is::<ConfigurationError>()) && format!("{error:#}").contains(wanted), "{error:#}");
    }
}

fn cell(revision: Revision, source: SourceSpec) -> Cell {
    let text = "[[target]]\ndbms = \"postgres\"\nversions = [\"1\"]\nsource = \"git\"\n";
    let cell = Matrix::parse(text, Path::new("t.toml"), &[]).unwrap().cells().unwrap().remove(0);
    Cell { revision, source, ..cell }
}

#[test]
fn versions_are_tags_and_a_series_is_its_newest() {
    let bench = Bench::new();
    let mut ids = BTreeMap::new();
    for (version, tag) in [("16.2", "REL_16_2"), ("16.10", "REL_16_10"), ("16.9", "REL_16_9"), ("17beta1", "REL_17_BETA1")] {
        ids.insert(version, bench.release(version, "work"));
        bench.git(&["tag", tag]);
    }
    for version in ["16.2", "17beta1"] {
        assert_eq!(bench.commit_of(&bench.version(version)), ids[version]);
    }
    assert_eq!(bench.commit_of(&bench.version("16")), ids["16.10"], "16.10 is newer than 16.9");
    assert_eq!(bench.commit_of(&bench.revision("REL_16_9")), ids["16.9"]);
}

#[test]
fn without_tags_the_stamp_is_the_release() {
    let bench = Bench::new();
    bench.release("16.2", "Stamp 16.2.");
    let wanted = bench.release("16.3", "Stamp 16.3.");
    bench.release("16.3", "Stamp 16.3. Not quite");
    assert_eq!(bench.commit_of(&bench.version("16.3")), wanted);
    assert_eq!(bench.commit_of(&bench.version("16")), wanted);
    bench.refuses(&bench.version("16.7"), "of 16 there are: 16.2, 16.3");
    bench.refuses(&bench.version("sixteen"), "is not a version");
}

#[test]
fn commits_may_be_short_but_neither_ambiguous_nor_absent() {
    let bench = Bench::new();
    // Four digits of two ids agree after some dozens of commits.
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    let prefix = loop {
        let id = bench.commit("x");
        if let Some(other) = seen.insert(id[..4].to_owned(), id.clone()) {
            assert_ne!(other, id);
            break id[..4].to_owned();
        }
    };
    let single = seen.values().find(|id| !id.starts_with(&prefix)).unwrap();
    assert_eq!(&bench.commit_of(&bench.revision(&single[..12])), single);
    bench.refuses(&bench.revision(&prefix), "is short for 2 commits");
    bench.refuses(&bench.revision("00000000000000"), "there is no commit, branch or tag");
    bench.refuses(&bench.revision("no-such-branch"), "there is no commit, branch or tag");
}

#[test]
fn what_was_fetched_needs_no_remote_and_new_commits_are_fetched() {
    let bench = Bench::new();
    let first = bench.commit("one");
    assert!(bench.sources().locate(&bench.revision(&first)).unwrap().is_none(), "nothing has been fetched yet");
    bench.commit_of(&bench.revision(&first));
    let second = bench.commit("two");
    assert_eq!(bench.commit_of(&bench.revision(&second)), second);
    let cell = bench.revision(&first);
    std::fs::rename(bench.repository(), bench.dir.path().join("moved")).unwrap();
    std::fs::create_dir(bench.repository()).unwrap();
    assert_eq!(bench.sources().locate(&cell).unwrap().unwrap().commit, Some(first));
}

#[test]
fn the_environment_overrides_every_remote() {
    let bench = Bench::new();
    let id = bench.commit("one");
    let environment = Environment(BTreeMap::from([("DBISECT_MIRROR_POSTGRES".to_owned(), bench.repository().display().to_string())]));
    let sources = Sources::new(&bench.dir.path().join("cache"), Path::new("patches"), environment);
    let elsewhere = cell(Revision::Commit("main".to_owned()), SourceSpec::Git { remote: Some("/no/such/remote".to_owned()) });
    assert_eq!(sources.obtain(&elsewhere, &|_| ()).unwrap().commit, Some(id));
}

#[test]
fn a_remote_that_is_not_there_is_told_with_the_remedy() {
    let bench = Bench::new();
    let nowhere = cell(Revision::Commit("main".to_owned()), SourceSpec::Git { remote: Some(bench.dir.path().join("none").display().to_string()) });
    let error = format!("{:#}", bench.sources().obtain(&nowhere, &|_| ()).unwrap_err());
    assert!(error.contains("cannot fetch") && error.contains("DBISECT_MIRROR_"), "{error}");
}

#[test]
fn history_follows_first_parents_and_counts_the_rest() {
    let bench = Bench::new();
    let good = bench.commit("good");
    bench.git(&["checkout", "--quiet", "-b", "side"]);
    bench.write("a", "1");
    bench.commit("side one");
    bench.commit("side two");
    bench.git(&["checkout", "--quiet", "main"]);
    bench.write("b", "1");
    let straight = bench.commit("straight");
    bench.git(&["merge", "--quiet", "--no-ff", "--message", "merge", "side"]);
    let merge = bench.git(&["rev-parse", "HEAD"]);
    let history = bench.sources().history(&bench.revision("main"), &good, "main", &|_| ()).unwrap();
    let ids: Vec<_> = history.commits.iter().map(|commit| commit.id.as_str()).collect();
    assert_eq!(ids, [good.as_str(), &straight, &merge]);
    assert_eq!((history.all, history.note), (4, None));
    assert_eq!((history.commits[1].paths.clone(), history.commits[2].paths.clone()), (vec!["b".to_owned()], vec!["a".to_owned()]));
}

#[test]
fn ends_on_two_branches_are_searched_from_their_merge_base() {
    let bench = Bench::new();
    let base = bench.commit("base");
    bench.git(&["checkout", "--quiet", "-b", "stable"]);
    bench.write("s", "1");
    let stable = bench.commit("stable");
    bench.git(&["checkout", "--quiet", "main"]);
    bench.write("m", "1");
    let master = bench.commit("master");
    let history = bench.sources().history(&bench.revision("main"), &stable, &master, &|_| ()).unwrap();
    assert_eq!(history.commits.iter().map(|commit| commit.id.as_str()).collect::<Vec<_>>(), [base.as_str(), &master]);
    assert!(history.note.is_some_and(|note| note.contains("merge base")));
}

#[test]
fn equal_trees_have_equal_digests_whatever_they_come_from() {
    let bench = Bench::new();
    bench.release("16.3", "one");
    bench.write("src/a.c", "int a;");
    bench.write("doc/a.sgml", "text");
    std::os::unix::fs::symlink("a.c", bench.repository().join("src/link.c")).unwrap();
    std::fs::set_permissions(bench.repository().join("configure"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let id = bench.commit("two");
    let git = bench.sources().obtain(&bench.revision(&id), &|_| ()).unwrap();
    let local = cell(Revision::Commit("worktree".to_owned()), SourceSpec::Path { path: bench.repository() });
    let path = bench.sources().obtain(&local, &|_| ()).unwrap();
    let all = |_: &str| true;
    assert_eq!(git.digest(&all).unwrap(), path.digest(&all).unwrap());
    assert_eq!(path.commit, Some(id));

    bench.write("doc/a.sgml", "other text");
    let changed = bench.sources().obtain(&local, &|_| ()).unwrap();
    assert_ne!(changed.digest(&all).unwrap(), git.digest(&all).unwrap());
    assert_eq!(changed.commit, None, "a changed tree is no commit");
    let code = |path: &str| !path.starts_with("doc/");
    assert_eq!(changed.digest(&code).unwrap(), git.digest(&code).unwrap());

    let out = bench.dir.path().join("out");
    std::fs::create_dir(&out).unwrap();
    git.checkout(&out, &code).unwrap();
    assert_eq!(std::fs::metadata(out.join("configure")).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(std::fs::read_to_string(out.join("src/link.c")).unwrap(), "int a;");
    assert!(!out.join("doc").exists());
    assert_eq!(git.read("src/a.c").unwrap().as_deref(), Some("int a;"));
    assert_eq!(git.read("none").unwrap(), None);
}

#[test]
fn patches_apply_where_their_range_covers_or_name_the_hunk() {
    let bench = Bench::new();
    bench.write("src/a.c", "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n");
    bench.release("16.3", "sixteen");
    let dir = bench.dir.path().join("patches/postgres");
    std::fs::create_dir_all(&dir).unwrap();
    let hunk = |old: &str| {
        format!(
            "diff --git a/src/a.c b/src/a.c\n--- a/src/a.c\n+++ b/src/a.c\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n@@ -8,3 +8,3 @@\n eight\n-{old}\n+NINE\n ten\n"
        )
    };
    let put = |name: &str, range: &str, old: &str| {
        std::fs::write(dir.join(format!("{name}.patch")), format!("Why: a test\nDbms: postgres\nRange: {range}\n{}", hunk(old))).unwrap()
    };
    put("fits", "16", "nine");
    put("later", "17", "nine");
    put("broken", "any", "neun");
    std::fs::write(dir.join("headless.patch"), hunk("nine")).unwrap();
    let with = |names: &[&str]| Cell { patches: names.iter().map(|name| (*name).to_owned()).collect(), ..bench.revision("main") };

    let plain = bench.sources().obtain(&with(&[]), &|_| ()).unwrap();
    let patched = bench.sources().obtain(&with(&["fits", "later"]), &|_| ()).unwrap();
    assert_eq!(patched.patches.iter().map(|patch| patch.name.as_str()).collect::<Vec<_>>(), ["fits"]);
    assert!(patched.read("src/a.c").unwrap().unwrap().contains("TWO") && patched.tree != plain.tree);

    let error = format!("{:#}", bench.sources().obtain(&with(&["broken"]), &|_| ()).unwrap_err());
    assert!(error.contains("the patch broken") && error.contains("hunk 2 of 2 does not apply: src/a.c: @@ -8,3 +8,3 @@"), "{error}");
    bench.refuses(&with(&["headless"]), "has no line `Why: ...`");
    bench.refuses(&with(&["absent"]), "there are: broken, fits, headless, later");
}

/// A superproject laid out as FB MySQL is, and a `RocksDB` of two versions beside it.
fn superproject(bench: &Bench) -> (PathBuf, [String; 2], String) {
    let rocksdb = bench.dir.path().join("rocksdb");
    std::fs::create_dir_all(rocksdb.join("include/rocksdb")).unwrap();
    let git = |dir: &Path, arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(dir).args(["-c", "user.name=T", "-c", "user.email=t@example.org"]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?} {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    git(&rocksdb, &["init", "--quiet", "--initial-branch", "main"]);
    let commits = [("8", "7", "0"), ("9", "3", "1")].map(|(major, minor, patch)| {
        let text = format!("#define ROCKSDB_MAJOR {major}\n#define ROCKSDB_MINOR {minor}\n#define ROCKSDB_PATCH {patch}\n");
        std::fs::write(rocksdb.join("include/rocksdb/version.h"), text).unwrap();
        git(&rocksdb, &["add", "--all"]);
        git(&rocksdb, &["commit", "--quiet", "--message", "version"]);
        git(&rocksdb, &["rev-parse", "HEAD"])
    });
    git(&rocksdb, &["tag", "v9.3.1"]);
    bench.write("MYSQL_VERSION", "MYSQL_VERSION_MAJOR=8\nMYSQL_VERSION_MINOR=0\nMYSQL_VERSION_PATCH=32\n");
    bench.write(".gitmodules", "[submodule \"rocksdb\"]\n\tpath = rocksdb\n\turl = git@github.com:facebook/rocksdb.git\n");
    bench.git(&["add", "--all"]);
    bench.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{},rocksdb", commits[0])]);
    bench.git(&["commit", "--quiet", "--message", "FB MySQL"]);
    (rocksdb, commits, bench.git(&["rev-parse", "HEAD"]))
}

fn myrocks(bench: &Bench, commit: &str, release: &str, rocksdb: &str) -> Cell {
    let text = format!(
        "[[target]]\ndbms = \"myrocks\"\nrevisions = [\"{commit}\"]\nrelease = \"{release}\"\nsource = {{ kind = \"git\", remote = \"{}\" }}\n[build]\nrocksdb = \"{rocksdb}\"\n",
        bench.repository().display()
    );
    Matrix::parse(&text, Path::new("t.toml"), &[]).unwrap().cells().unwrap().remove(0)
}

#[test]
fn the_pinned_rocksdb_is_part_of_the_tree_and_can_be_replaced() {
    let bench = Bench::new();
    let (rocksdb, [old, new], commit) = superproject(&bench);
    let environment = Environment(BTreeMap::from([("DBISECT_MIRROR_ROCKSDB".to_owned(), rocksdb.display().to_string())]));
    let sources = Sources::new(&bench.dir.path().join("cache"), &bench.dir.path().join("patches"), environment);
    let obtain = |release: &str, wanted: &str| sources.obtain(&myrocks(&bench, &commit[..8], release, wanted), &|_| ());
    let tree = |wanted: &str| obtain("8.0.32", wanted).unwrap();
    let pinned = tree("submodule");
    assert_eq!(pinned.submodules["rocksdb"], old);
    assert!(pinned.described.contains("RocksDB 8.7.0"), "{}", pinned.described);
    // 8.7.0 is no tag, but it is what the submodule says it is.
    assert_eq!(tree("8.7.0").tree, pinned.tree);
    for wanted in ["9.3.1", &new[..10]] {
        let other = tree(wanted);
        assert_eq!(other.submodules["rocksdb"], new, "{wanted}");
        let dir = tempfile::tempdir().unwrap();
        other.checkout(dir.path(), &|_| true).unwrap();
        assert!(std::fs::read_to_string(dir.path().join("rocksdb/include/rocksdb/version.h")).unwrap().contains("MAJOR 9"));
        assert_ne!(other.digest(&|_| true).unwrap(), pinned.digest(&|_| true).unwrap());
    }
    let refused = |release: &str, wanted: &str| format!("{:#}", obtain(release, wanted).unwrap_err());
    assert!(refused("8.0.32", "9.9.9").contains("v9.9.9") && refused("8.0.32", "9.9.9").contains("not 9.9.9"), "{}", refused("8.0.32", "9.9.9"));
    assert!(refused("8.0.32", &commit[..10]).contains(&commit[..10]), "a commit of another repository");
    assert!(refused("8.0.28", "submodule").contains("says that it is 8.0.32"), "{}", refused("8.0.28", "submodule"));
    // What is in the cache needs no remote.
    std::fs::remove_dir_all(&rocksdb).unwrap();
    assert!(sources.locate(&myrocks(&bench, &commit[..8], "8.0.32", "9.3.1")).unwrap().is_some());
}

#[test]
fn patches_follow_code_that_has_moved_and_come_by_range() {
    let bench = Bench::new();
    let lines: Vec<String> = (0..20).map(|number| format!("line {number}")).collect();
    bench.write("src/a.c", &format!("moved\nmoved\n{}\n", lines.join("\n")));
    bench.release("16.3", "release");
    let dir = bench.dir.path().join("patches/postgres");
    std::fs::create_dir_all(dir.join("limit")).unwrap();
    std::fs::create_dir_all(dir.join("always")).unwrap();
    let patch = |range: &str, new: &str| {
        format!(
            "Why: a test\nDbms: postgres\nRange: {range}\ndiff --git a/src/a.c b/src/a.c\n--- a/src/a.c\n+++ b/src/a.c\n@@ -5,3 +5,3 @@\n line 4\n-line 5\n+{new}\n line 6\n"
        )
    };
    std::fs::write(dir.join("limit/old.patch"), patch("10-15", "old")).unwrap();
    std::fs::write(dir.join("limit/new.patch"), patch("16", "new")).unwrap();
    std::fs::write(dir.join("always/fix.patch"), patch("12", "never").replace("line 5", "line 9")).unwrap();
    let text = format!(
        "[[target]]\ndbms = \"postgres\"\nrevisions = [\"main\"]\nsource = {{ kind = \"git\", remote = \"{}\" }}\n[build]\npatches = \"limit\"\n",
        bench.repository().display()
    );
    let cell = Matrix::parse(&text, Path::new("t.toml"), &[]).unwrap().cells().unwrap().remove(0);
    let tree = bench.sources().obtain(&cell, &|_| ()).unwrap();
    assert_eq!(tree.patches.iter().map(|patch| patch.name.as_str()).collect::<Vec<_>>(), ["limit/new"]);
    assert!(tree.read("src/a.c").unwrap().unwrap().contains("line 4\nnew\nline 6"));
}
