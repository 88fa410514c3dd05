//! Carries a recipe out in a workspace.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::process::Program;

use super::failure::{BuildFailure, FailureClass};
use super::recipe::{DBISECT, NEUTRAL_PREFIX, Place, Recipe, Step};

/// Directories of one build. The paths must be the same for every build in the slot, so that an
/// object cache hits.
#[derive(Clone, Debug)]
pub struct Workspace {
    /// Holds `src` (checked out by the caller) and `build` (made here).
    pub work: PathBuf,
    /// Receives the installed files.
    pub stage: PathBuf,
    /// Receives everything the commands print.
    pub log: PathBuf,
}

/// What surrounds a build and cannot change its result.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Budget of parallel jobs, shared with other builds.
    pub budget: jobserver::Client,
    /// Longest time for one step.
    pub step_limit: Duration,
    /// Directory of an object cache, used when ccache is installed.
    pub object_cache: Option<PathBuf>,
}

/// What a build tells while it runs.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Step of the recipe.
    pub step: &'a str,
    /// Share of the objects that have been compiled, 0 to 1.
    pub compiled: f64,
}

/// A build that succeeded.
#[derive(Clone, Debug)]
pub struct Built {
    /// The installed tree, within the staging directory.
    pub prefix: PathBuf,
    /// What the compiler recorded, from the flag proof.
    pub compiled_by: Vec<String>,
    /// Seconds it took.
    pub seconds: f64,
}

/// Runs the steps of a recipe on the tree in `workspace.work/src` and proves the flags of the
/// result.
///
/// # Errors
/// A classed failure; the log holds everything that was printed.
pub fn run(recipe: &Recipe, workspace: &Workspace, around: &Surroundings, tell: &(dyn Fn(Progress) + Sync)) -> Result<Built, BuildFailure> {
    let started = Instant::now();
    let build = workspace.work.join("build");
    for dir in [&build, &temporary(workspace)] {
        std::fs::create_dir_all(dir).map_err(|error| BuildFailure::of_io("prepare", &format!("cannot make {}", dir.display()), &error))?;
    }
    let expected = count(&recipe.compiled.iter().map(|dir| workspace.work.join("src").join(dir)).collect::<Vec<_>>(), &["c", "cc", "cpp"]);
    let path = search_path(recipe, around);
    for step in &recipe.steps {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| watch(&step.name, &build, expected, &done, tell));
            let result = run_step(recipe, step, workspace, around, &path, true).or_else(|failure| {
                // Old makefiles have races. That the source does not compile is remembered as a fact, so
                // it must also be so when nothing runs in parallel; what is done already stays done.
                if failure.class.is_final() { run_step(recipe, step, workspace, around, &path, false) } else { Err(failure) }
            });
            done.store(true, Ordering::Relaxed);
            result
        })?;
    }
    let prefix = workspace.stage.join(NEUTRAL_PREFIX.trim_start_matches('/'));
    let compiled_by = recipe.proof.check(&prefix).map_err(|message| BuildFailure {
        class: FailureClass::FlagsNotHonoured,
        step: "proof".to_owned(),
        message,
        log: Some(workspace.log.clone()),
    })?;
    Ok(Built { prefix, compiled_by, seconds: started.elapsed().as_secs_f64() })
}

fn run_step(recipe: &Recipe, step: &Step, workspace: &Workspace, around: &Surroundings, path: &str, parallel: bool) -> Result<(), BuildFailure> {
    let dir = match step.place {
        Place::Build => workspace.work.join("build"),
        Place::Work => workspace.work.clone(),
    };
    let argv: Vec<String> = step.argv.iter().map(|arg| fill(arg, workspace)).collect();
    let Some((program, args)) = argv.split_first() else { return Ok(()) };
    let mut command = Program::new(program).args(args).dir(&dir).only_given_env().mark(&workspace.work);
    for (name, value) in environment(recipe, workspace, around, path) {
        command = command.env(name, value);
    }
    if parallel {
        command = command.jobserver(&around.budget);
    }
    let result = command.deadline(around.step_limit).log(&workspace.log).run();
    if let (Ok(_), Some(words)) = (&result, &step.refuses) {
        refused(step, words, workspace)?;
    }
    result.map(drop).map_err(|error| {
        // A log that cannot be read leaves the class to what the command itself said.
        let log = std::fs::read(&workspace.log).map_or_else(|_| error.tail.clone(), |bytes| String::from_utf8_lossy(&bytes).into_owned());
        BuildFailure::of_command(&step.name, &error, &log)
    })
}

/// Fails when the log holds the words by which a step shows that it did not do what it was told.
fn refused(step: &Step, words: &str, workspace: &Workspace) -> Result<(), BuildFailure> {
    let log = std::fs::read(&workspace.log).map_err(|error| BuildFailure::of_io(&step.name, &format!("cannot read {}", workspace.log.display()), &error))?;
    let log = String::from_utf8_lossy(&log);
    let Some(at) = log.find(words) else { return Ok(()) };
    // The crate that calls cmake gives options of its own, which are none of the cell's business.
    let ours = |name: &&str| step.argv.iter().any(|arg| arg.starts_with(&format!("-D{name}=")));
    let names =
        log[at + words.len()..].lines().map(|line| line.trim_matches([' ', '\t', ':'])).skip_while(|line| line.is_empty()).take_while(|line| !line.is_empty());
    let unknown: Vec<_> = names.filter(ours).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    Err(BuildFailure {
        class: FailureClass::OptionUnknown,
        step: step.name.clone(),
        message: format!("cmake of this tree does not use {}; take these options out of the matrix, or use a version that knows them", unknown.join(", ")),
        log: Some(workspace.log.clone()),
    })
}

fn temporary(workspace: &Workspace) -> PathBuf {
    workspace.work.join("tmp")
}

fn fill(arg: &str, workspace: &Workspace) -> String {
    let src = workspace.work.join("src");
    // Linux names the running program even when it has been replaced; a build can do without it only
    // when no step calls it.
    let own = std::env::current_exe().unwrap_or_default();
    [("{src}", src.as_path()), ("{work}", &workspace.work), ("{stage}", &workspace.stage), (DBISECT, &own)]
        .iter()
        .fold(arg.to_owned(), |arg, (mark, path)| arg.replace(mark, &path.to_string_lossy()))
}

fn environment(recipe: &Recipe, workspace: &Workspace, around: &Surroundings, path: &str) -> BTreeMap<String, String> {
    let mut env: BTreeMap<_, _> = recipe.env.iter().map(|(name, value)| (name.clone(), fill(value, workspace))).collect();
    env.insert("PATH".to_owned(), path.to_owned());
    env.insert("HOME".to_owned(), workspace.work.to_string_lossy().into_owned());
    // A compiler that is killed leaves its files behind; here they go with the workspace.
    env.insert("TMPDIR".to_owned(), temporary(workspace).to_string_lossy().into_owned());
    if let Some(dir) = &around.object_cache {
        env.insert("CCACHE_DIR".to_owned(), dir.to_string_lossy().into_owned());
        env.insert("CCACHE_COMPILERCHECK".to_owned(), "content".to_owned());
        // Direct mode can miss a header that appears earlier on the include path than the one used
        // before; preprocessing costs a little and cannot.
        env.insert("CCACHE_NODIRECT".to_owned(), "1".to_owned());
        // Files of the tree are as new as the checkout, which ccache would otherwise distrust.
        env.insert("CCACHE_SLOPPINESS".to_owned(), "include_file_mtime,include_file_ctime".to_owned());
    }
    env
}

/// PATH of the build: the caller's, with the directory first in which ccache stands in for the
/// compiler, if there is one. The compiler keeps its plain name, so that the name which Postgres
/// records in its binaries does not depend on whether ccache is installed.
fn search_path(recipe: &Recipe, around: &Surroundings) -> String {
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".to_owned());
    let stand_in = ["/usr/lib/ccache", "/usr/lib64/ccache", "/usr/lib/ccache/bin"].into_iter().find(|dir| Path::new(dir).join(&recipe.tools.cc).exists());
    match stand_in.filter(|_| around.object_cache.is_some()) {
        Some(dir) => format!("{dir}:{path}"),
        None => path,
    }
}

/// Tells the progress every two seconds until the step is done.
fn watch(step: &str, build: &Path, expected: usize, done: &AtomicBool, tell: &(dyn Fn(Progress) + Sync)) {
    let mut round = 0_u32;
    while !done.load(Ordering::Relaxed) {
        if round.is_multiple_of(20) {
            #[expect(clippy::cast_precision_loss, reason = "a share of some thousand files")]
            let compiled = (count(&[build.to_owned()], &["o"]) as f64 / expected.max(1) as f64).min(1.0);
            tell(Progress { step, compiled });
        }
        round += 1;
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn count(dirs: &[PathBuf], extensions: &[&str]) -> usize {
    let files = |dir: &PathBuf| {
        walkdir::WalkDir::new(dir)
            .into_iter()
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|found| extensions.iter().any(|extension| found == *extension)))
            .count()
    };
    dirs.iter().map(files).sum()
}
