//! The matrix file: TOML in, a checked matrix or all of its mistakes out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::axis::{AXES, AxisKind};
use super::cell::{Dbms, Revision, SourceSpec};
use super::mistake::{ConfigurationError, nearest};
use super::reader::{Mistakes, Reader, Word};
use super::workload::{Workload, WorkloadKind};

/// Largest matrix file that is read, in bytes. The largest of ours has 4 kB.
const LARGEST: u64 = 1 << 20;

/// What one `[[target]]` asks for: some revisions of one dbms from one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The server.
    pub dbms: Dbms,
    /// Versions and commits, in the order written.
    pub revisions: Vec<Revision>,
    /// Where they come from.
    pub source: SourceKind,
    /// Released version that commits belong to, such as `8.0.32`; checked against the tree.
    pub release: Option<String>,
    /// Day of the source, `yymmdd`, for the name.
    pub date: Option<String>,
    /// Axes of this target, in the place of the matrix' own.
    pub axes: BTreeMap<&'static str, Vec<String>>,
}

/// A source as written; [`SourceKind::of`] completes it for one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// A git repository; `None` is the upstream.
    Git(Option<String>),
    /// A source package; `None` derives its name from the version.
    Debian { package: Option<String>, suite: Option<String> },
    /// A local tree.
    Path(PathBuf),
    /// A server built elsewhere.
    Installed(PathBuf),
}

impl SourceKind {
    /// The source of one revision.
    #[must_use]
    pub fn of(&self, dbms: Dbms, revision: &Revision) -> SourceSpec {
        match self {
            Self::Git(remote) => SourceSpec::Git { remote: remote.clone() },
            Self::Debian { package, suite } => {
                let series = revision.text().split('.').next().unwrap_or_default();
                let package = package.clone().unwrap_or_else(|| match dbms {
                    Dbms::Postgres => format!("postgresql-{series}"),
                    Dbms::Mariadb => "mariadb".to_owned(),
                    Dbms::Mysql | Dbms::Myrocks => format!("mysql-{}", revision.text().splitn(3, '.').take(2).collect::<Vec<_>>().join(".")),
                });
                SourceSpec::Debian { package, suite: suite.clone() }
            }
            Self::Path(path) => SourceSpec::Path { path: path.clone() },
            Self::Installed(prefix) => SourceSpec::Installed { prefix: prefix.clone() },
        }
    }
}

/// A rule that removes cells or adds one: axis (or `dbms`, `version`, `revision`) to value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Conditions; all must hold.
    pub terms: BTreeMap<String, String>,
    /// Where it stands, for messages: `exclude[0]`.
    pub place: String,
}

/// The range that `bisect` searches when the command line names none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BisectWindow {
    /// Revision known to be good.
    pub good: Option<String>,
    /// Revision known to be bad.
    pub bad: Option<String>,
    /// Metric that decides.
    pub metric: Option<String>,
    /// Step that decides.
    pub step: Option<String>,
}

/// A checked matrix file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Name of the study; the file's stem unless it says otherwise.
    pub name: String,
    /// The file it came from.
    pub path: PathBuf,
    /// What it asks for.
    pub targets: Vec<Target>,
    /// Values of each axis that is mentioned, canonical and without repetitions.
    pub axes: BTreeMap<&'static str, Vec<String>>,
    /// Rules that remove cells.
    pub exclude: Vec<Rule>,
    /// Rules that add cells.
    pub include: Vec<Rule>,
    /// What is run.
    pub workload: Workload,
    /// Defaults of `bisect`.
    pub bisect: BisectWindow,
}

impl Matrix {
    /// A matrix without any target or axis, which names cells of a recorded study as the study did.
    #[must_use]
    pub fn bare(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            path: PathBuf::from(name),
            targets: Vec::new(),
            axes: BTreeMap::new(),
            exclude: Vec::new(),
            include: Vec::new(),
            workload: Workload { kind: WorkloadKind::Sysbench, steps: Vec::new(), warmup: 0, time: 0, repeats: 0 },
            bisect: BisectWindow::default(),
        }
    }

    /// Reads and checks a file. `steps` are the names of the steps that exist.
    ///
    /// # Errors
    /// [`ConfigurationError`] with every mistake of the file, one a line.
    pub fn read(path: &Path, steps: &[&str]) -> Result<Self, ConfigurationError> {
        let name = path.display();
        let meta = std::fs::metadata(path)
            .map_err(|error| ConfigurationError::new(format!("cannot read the matrix file {name}: {error}; the repository's own are in matrices/")))?;
        if !meta.is_file() {
            return Err(ConfigurationError::new(format!("the matrix file {name} is not a regular file; name a TOML file such as matrices/quickstart.toml")));
        }
        if meta.len() > LARGEST {
            return Err(ConfigurationError::new(format!(
                "the matrix file {name} has {} bytes and a matrix has at most {LARGEST}; is it the right file?",
                meta.len()
            )));
        }
        let bytes = std::fs::read(path).map_err(|error| ConfigurationError::new(format!("cannot read the matrix file {name}: {error}")))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            ConfigurationError::new(format!(
                "the matrix file {name} is not text: byte {} is not UTF-8; is it the right file?",
                error.utf8_error().valid_up_to()
            ))
        })?;
        Self::parse(&text, path, steps)
    }

    /// Checks the text of a matrix; `path` names it in messages and resolves relative paths.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(text: &str, path: &Path, steps: &[&str]) -> Result<Self, ConfigurationError> {
        let mistakes = Mistakes::new(text);
        let (document, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            mistakes.add(&error.span().unwrap_or(0..0), "", error.message());
        }
        let matrix = Self::check(&Reader::new(document.get_ref(), String::new(), 0..0, &mistakes), path, steps);
        // A file that is not TOML makes every key look missing; then only the syntax is worth telling.
        let found = if errors.is_empty() { mistakes.sorted() } else { errors.iter().map(|error| syntax(text, error)).collect() };
        match matrix {
            Some(matrix) if found.is_empty() => Ok(matrix),
            _ => {
                let plural = if found.len() == 1 { "a mistake" } else { "mistakes" };
                Err(ConfigurationError::new(format!("the matrix file {} has {plural}:\n  {}", path.display(), found.join("\n  "))))
            }
        }
    }

    fn check(top: &Reader, path: &Path, steps: &[&str]) -> Option<Self> {
        let stem = path.file_stem().map_or_else(|| "matrix".to_owned(), |stem| stem.to_string_lossy().into_owned());
        let name = top.word("name").map_or(stem, |word| word.text);
        top.word("description");
        let base = path.parent().unwrap_or(Path::new(""));
        let targets: Vec<_> = top.tables("target").into_iter().filter_map(|table| target(table, base)).collect();
        if targets.is_empty() {
            top.mistake("it names nothing to build; add a [[target]] with dbms, source and versions or revisions");
        }
        let mut axes = BTreeMap::new();
        for (section, kind) in [("build", AxisKind::Build), ("run", AxisKind::Run)] {
            if let Some(table) = top.table(section) {
                read_axes(table, kind, &mut axes);
            }
        }
        let exclude = rules(top, "exclude");
        let include = rules(top, "include");
        let workload = workload(top.table("workload"), steps)?;
        let bisect = top.table("bisect").map(bisect_window).unwrap_or_default();
        top.refuse_unknown();
        Some(Self { name, path: path.to_owned(), targets, axes, exclude, include, workload, bisect })
    }
}

fn syntax(text: &str, error: &toml::de::Error) -> String {
    let start = error.span().map_or(0, |span| span.start.min(text.len()));
    let line = text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count() + 1;
    format!("line {line}: {}", error.message())
}

fn target(table: Reader, base: &Path) -> Option<Target> {
    let dbms = dbms(&table);
    let versions = table.words("versions").unwrap_or_default();
    let revisions = table.words("revisions").unwrap_or_default();
    for word in versions.iter().chain(&revisions).filter(|word| !plausible_revision(&word.text)) {
        table.mistake_at(word, &format!("`{}` is neither a version nor the name of a commit", word.text));
    }
    let source = source(&table, base);
    let is_path = matches!(source, Some(SourceKind::Path(_)));
    let mut all: Vec<_> = versions.into_iter().map(|word| Revision::Version(word.text)).collect();
    all.extend(revisions.into_iter().map(|word| Revision::Commit(word.text)));
    if is_path && all.is_empty() {
        all.push(Revision::Commit("worktree".to_owned()));
    }
    if matches!(source, Some(SourceKind::Installed(_))) && (all.len() != 1 || !matches!(all.first(), Some(Revision::Version(_)))) {
        table.mistake("an installed server is one version; write versions = [\"...\"] with the one it says it is, such as 15 or 10.11.19");
    }
    let release = table.word("release").map(|word| word.text);
    let date = table.word("date").map(|word| {
        if word.text.len() != 6 || !word.text.bytes().all(|c| c.is_ascii_digit()) {
            table.mistake_at(&word, &format!("`{}` is not a day of the form yymmdd", word.text));
        }
        word.text
    });
    let mut axes = BTreeMap::new();
    for (section, kind) in [("build", AxisKind::Build), ("run", AxisKind::Run)] {
        if let Some(own) = table.table(section) {
            read_axes(own, kind, &mut axes);
        }
    }
    table.refuse_unknown();
    Some(Target { dbms: dbms?, revisions: all, source: source?, release, date, axes })
}

fn dbms(table: &Reader) -> Option<Dbms> {
    let Some(word) = table.word("dbms") else {
        table.mistake("`dbms` is missing; write postgres, mysql, myrocks or mariadb");
        return None;
    };
    let found = Dbms::ALL.into_iter().find(|dbms| dbms.name() == word.text);
    if found.is_none() {
        let hint = nearest(&word.text, Dbms::ALL.map(Dbms::name)).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        table.mistake_at(&word, &format!("there is no dbms `{}`{hint} (known: mysql, myrocks, mariadb, postgres)", word.text));
    }
    found
}

/// A revision must not look like an option or hold blanks or control characters, since it is handed
/// to git and becomes part of names. Whether it exists is the source's question.
fn plausible_revision(text: &str) -> bool {
    !text.is_empty() && text.len() <= 200 && !text.starts_with('-') && text.chars().all(|c| c.is_ascii_graphic()) && !text.contains("..")
}

fn source(table: &Reader, base: &Path) -> Option<SourceKind> {
    let (kind, details) = match table.word_or_table("source") {
        None => {
            table.mistake("`source` is missing; write \"git\", \"debian\", { kind = \"path\", path = \"...\" }, or { kind = \"installed\", prefix = \"...\" }");
            return None;
        }
        Some(Ok(word)) => (word, None),
        Some(Err(details)) => {
            let Some(word) = details.word("kind") else {
                details.mistake("`kind` is missing; write git, debian, path or installed");
                return None;
            };
            (word, Some(details))
        }
    };
    let text = |key: &'static str| details.as_ref().and_then(|table| table.word(key)).map(|word| word.text);
    let source = match kind.text.as_str() {
        "git" => Some(SourceKind::Git(text("remote"))),
        "debian" => Some(SourceKind::Debian { package: text("package"), suite: text("suite") }),
        "path" => {
            let path = text("path");
            if path.is_none() {
                table.mistake_at(&kind, "`path` is missing; write { kind = \"path\", path = \"...\" }");
            }
            path.map(|path| SourceKind::Path(base.join(path)))
        }
        "installed" => {
            let prefix = text("prefix");
            if prefix.is_none() {
                table.mistake_at(&kind, "`prefix` is missing; write { kind = \"installed\", prefix = \"/usr/lib/postgresql/15\" }");
            }
            prefix.map(|prefix| SourceKind::Installed(base.join(prefix)))
        }
        other => {
            let hint = nearest(other, ["git", "debian", "path", "installed"]).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            table.mistake_at(&kind, &format!("there is no source `{other}`{hint} (known: git, debian, path, installed)"));
            None
        }
    };
    if let Some(details) = details.filter(|_| source.is_some()) {
        details.refuse_unknown();
    }
    source
}

fn read_axes(table: Reader, kind: AxisKind, axes: &mut BTreeMap<&'static str, Vec<String>>) {
    for axis in AXES.iter().filter(|axis| axis.kind == kind) {
        let Some(words) = table.words(axis.name) else { continue };
        let mut values = Vec::new();
        for word in words {
            match (axis.canonical)(&word.text) {
                Ok(value) if values.contains(&value) => {}
                Ok(value) => values.push(value),
                Err(sentence) => table.mistake_at(&word, &sentence),
            }
        }
        if !values.is_empty() {
            axes.insert(axis.name, values);
        }
    }
    table.refuse_unknown();
}

fn rules(top: &Reader, section: &'static str) -> Vec<Rule> {
    let read = |(index, table): (usize, Reader)| {
        let mut terms = BTreeMap::new();
        for key in ["dbms", "version", "revision"] {
            if let Some(word) = table.word(key) {
                terms.insert(key.to_owned(), word.text);
            }
        }
        for axis in AXES {
            let Some(word) = table.word(axis.name) else { continue };
            match (axis.canonical)(&word.text) {
                Ok(value) => {
                    terms.insert(axis.name.to_owned(), value);
                }
                Err(sentence) => table.mistake_at(&word, &sentence),
            }
        }
        if terms.is_empty() {
            table.mistake("the rule has no condition; name at least one axis, dbms, version or revision");
        }
        table.refuse_unknown();
        Rule { terms, place: format!("{section}[{index}]") }
    };
    top.tables(section).into_iter().enumerate().map(read).collect()
}

fn workload(table: Option<Reader>, known: &[&str]) -> Option<Workload> {
    let default = Workload { kind: WorkloadKind::Sysbench, steps: known.iter().map(|step| (*step).to_owned()).collect(), warmup: 5, time: 20, repeats: 3 };
    let Some(table) = table else { return Some(default) };
    if let Some(word) = table.word("kind").filter(|word| word.text != "sysbench") {
        table.mistake_at(&word, &format!("there is no workload `{}` (known: sysbench)", word.text));
    }
    let steps = table.words("steps").map_or(default.steps, |words| step_names(&table, &words, known));
    let workload = Workload {
        kind: WorkloadKind::Sysbench,
        steps,
        warmup: table.number("warmup", 1..=3600).unwrap_or(default.warmup),
        time: table.number("time", 1..=86_400).unwrap_or(default.time),
        repeats: table.number("repeats", 1..=1000).unwrap_or(default.repeats),
    };
    table.refuse_unknown();
    Some(workload)
}

fn step_names(table: &Reader, words: &[Word], known: &[&str]) -> Vec<String> {
    let mut steps = Vec::new();
    for word in words {
        if !known.contains(&word.text.as_str()) {
            let hint = nearest(&word.text, known.iter().copied()).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            table.mistake_at(word, &format!("there is no step `{}`{hint} (known: {})", word.text, known.join(", ")));
        } else if steps.contains(&word.text) {
            table.mistake_at(word, &format!("the step `{}` is named twice", word.text));
        } else {
            steps.push(word.text.clone());
        }
    }
    steps
}

fn bisect_window(table: Reader) -> BisectWindow {
    let text = |key: &'static str| table.word(key).map(|word| word.text);
    let window = BisectWindow { good: text("good"), bad: text("bad"), metric: text("metric"), step: text("step") };
    table.refuse_unknown();
    window
}
