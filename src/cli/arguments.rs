//! The command line, fixed by the contract.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Builds database servers over a matrix of versions and options, runs a short benchmark on every
/// build, compares the builds, and finds the commit that made one slower.
#[derive(Debug, Parser)]
#[command(name = "dbisect", bin_name = "dbisect", version, max_term_width = 100)]
#[command(
    after_help = "Begin with `dbisect quickstart`. Exit codes: 0 done; 1 regression (with --fail-on); 2 usage; 3 undecided or no change; 4 something failed, the rest is recorded; 5 host unfit (with --strict); 130 interrupted, state saved."
)]
pub struct Cli {
    /// Options of all commands.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of all commands.
#[derive(Clone, Debug, Args)]
pub struct Global {
    /// Database of everything measured.
    #[arg(long, global = true, value_name = "FILE", default_value = "dbisect.db", env = "DBISECT_DB")]
    pub db: PathBuf,
    /// Directory of mirrors, builds and loaded data [default: cache/ in a checkout, else the user's cache directory].
    #[arg(long, global = true, value_name = "DIR", env = "DBISECT_CACHE")]
    pub cache: Option<PathBuf>,
    /// Answer with one JSON object.
    #[arg(long, global = true)]
    pub json: bool,
    /// Say more; twice, say everything.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Say errors only.
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// When to use colours.
    #[arg(long, global = true, value_enum, default_value_t = Colour::Auto, value_name = "WHEN")]
    pub color: Colour,
    /// Parallel compiler jobs over all builds [default: the number of CPUs].
    #[arg(long, global = true, value_name = "N")]
    pub jobs: Option<usize>,
    /// Ask remotes and package archives again, even where an answer is kept.
    #[arg(long, global = true)]
    pub refresh: bool,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Colour {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Global {
    fn colour(&self, terminal: bool) -> bool {
        match self.color {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        }
    }

    /// Whether standard output may have colours.
    #[must_use]
    pub fn colour_on_stdout(&self) -> bool {
        self.colour(std::io::IsTerminal::is_terminal(&std::io::stdout()))
    }

    /// Whether standard error may have colours.
    #[must_use]
    pub fn colour_on_stderr(&self) -> bool {
        self.colour(std::io::IsTerminal::is_terminal(&std::io::stderr()))
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Everything once, on a fresh machine: install what is missing, build, run, compare, report.
    Quickstart(Quickstart),
    /// What this machine lacks, and what makes it a poor place to measure.
    Doctor(Doctor),
    /// The cells of a matrix, with their build keys and whether each is cached.
    Expand(Expand),
    /// Build the cells that are not cached.
    Build(Build),
    /// Build, run, record; resumes what an interrupted run left.
    Run(Run),
    /// Relative values per step and group, with intervals and verdicts.
    Compare(Compare),
    /// Find the commit that changed a metric.
    Bisect(Bisect),
    /// The build cache.
    Cache(Cache),
    /// Print a completion script for a shell.
    Completions(Completions),
    /// Print the manual page.
    Man(Man),
    /// One call of cmake, in a process of its own; recipes use it.
    #[command(hide = true)]
    CmakeCall(CmakeArguments),
}

/// Arguments of `quickstart`.
#[derive(Debug, Args)]
pub struct Quickstart {
    /// Where to write the page.
    #[arg(long, short, value_name = "FILE", default_value = "report.html")]
    pub output: PathBuf,
    /// Say what would be done and how long it would take.
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Look for what this matrix needs.
    pub matrix: Option<PathBuf>,
    /// Install what is missing where allowed, else print the command.
    #[arg(long)]
    pub fix: bool,
    /// Fail with exit code 5 when the host is unfit.
    #[arg(long)]
    pub strict: bool,
}

/// Arguments of `expand`.
#[derive(Debug, Args)]
pub struct Expand {
    /// Matrix file.
    pub matrix: PathBuf,
    /// How to print the cells.
    #[arg(long, value_enum, default_value_t = ExpandFormat::Table)]
    pub format: ExpandFormat,
    /// Only cells whose name matches.
    #[arg(long, value_name = "GLOB")]
    pub cell: Vec<String>,
}

/// How to print cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExpandFormat {
    /// For people.
    Table,
    /// For programs.
    Json,
    /// A matrix for GitHub Actions.
    Github,
}

/// Arguments of `build`.
#[derive(Debug, Args)]
pub struct Build {
    /// Matrix file.
    pub matrix: PathBuf,
    /// Only cells whose name matches.
    #[arg(long, value_name = "GLOB")]
    pub cell: Vec<String>,
    /// Longest time of one step of a build, such as 2h.
    #[arg(long, value_name = "DUR")]
    pub timeout: Option<String>,
    /// Say what would be built and how long it would take.
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Matrix file.
    pub matrix: PathBuf,
    /// Only cells whose name matches.
    #[arg(long, value_name = "GLOB")]
    pub cell: Vec<String>,
    /// Only steps whose name matches.
    #[arg(long, value_name = "GLOB")]
    pub step: Vec<String>,
    /// Restarts per cell [default: the matrix' own].
    #[arg(long, value_name = "N")]
    pub repeats: Option<u32>,
    /// Begin no further restart after this time, such as 90m.
    #[arg(long, value_name = "DUR")]
    pub budget: Option<String>,
    /// Say what would be run and how long it would take.
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
pub struct Compare {
    /// Cell to compare with [default: the first one].
    #[arg(long, value_name = "NAME", conflicts_with = "axis")]
    pub base: Option<String>,
    /// Pair cells that differ in this axis only.
    #[arg(long, value_name = "AXIS")]
    pub axis: Option<String>,
    /// Only cells whose name matches.
    #[arg(long, value_name = "GLOB")]
    pub cell: Vec<String>,
    /// Metrics to compare; may be repeated [default: qps and cpupq].
    #[arg(long, value_name = "M")]
    pub metric: Vec<String>,
    /// table, markdown, csv or json.
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    pub format: String,
    /// Smallest difference of interest, in per cent.
    #[arg(long, default_value_t = 2.0, value_name = "PCT")]
    pub floor: f64,
    /// Exit with 1 when this is found.
    #[arg(long, value_name = "WHAT", value_parser = ["regression"])]
    pub fail_on: Option<String>,
    /// Compare samples of different hosts, which is labelled.
    #[arg(long)]
    pub across_hosts: bool,
}

/// Arguments of `bisect`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Bisect {
    /// Earlier searches.
    #[command(subcommand)]
    pub earlier: Option<Earlier>,
    /// Matrix file whose git target is searched.
    pub matrix: Option<PathBuf>,
    /// Revision known to be good.
    #[arg(long, value_name = "REV")]
    pub good: Option<String>,
    /// Revision known to be bad.
    #[arg(long, value_name = "REV")]
    pub bad: Option<String>,
    /// Metric that decides, such as cpupq.
    #[arg(long, value_name = "M")]
    pub metric: Option<String>,
    /// Step that decides [default: the matrix' first one].
    #[arg(long, value_name = "S")]
    pub step: Option<String>,
    /// Probability at which a commit is named.
    #[arg(long, default_value_t = 0.95, value_name = "P")]
    pub confidence: f64,
    /// Smallest effect of interest, in per cent.
    #[arg(long, default_value_t = 2.0, value_name = "PCT")]
    pub floor: f64,
    /// End the search after this time, such as 3h.
    #[arg(long, value_name = "DUR")]
    pub budget: Option<String>,
    /// Seed of the search's draws.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Kind of change to look for.
    #[arg(long, default_value = "regression", value_parser = ["regression", "improvement"])]
    pub expect: String,
    /// Only the configuration whose name matches.
    #[arg(long, value_name = "GLOB")]
    pub cell: Vec<String>,
    /// Say what would be searched and how long it would take.
    #[arg(long)]
    pub dry_run: bool,
}

/// Earlier searches.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum Earlier {
    /// List all searches.
    List,
    /// What is known of one.
    Show {
        /// Number of the search.
        id: i64,
    },
    /// Go on with one that was interrupted.
    Resume {
        /// Number of the search.
        id: i64,
    },
    /// Its decisions again, from the recorded readings.
    Replay {
        /// Number of the search.
        id: i64,
    },
}

/// Arguments of `cache`.
#[derive(Debug, Args)]
pub struct Cache {
    /// What to do with it.
    #[command(subcommand)]
    pub command: CacheCommand,
}

/// What to do with the cache.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum CacheCommand {
    /// List the builds.
    Ls,
    /// Sum them up.
    Stats,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// Shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Arguments of the hidden `cmake-call`.
#[derive(Debug, Args)]
pub struct CmakeArguments {
    /// Top of the source tree.
    #[arg(long)]
    pub source: PathBuf,
    /// Directory that holds `build`.
    #[arg(long)]
    pub out: PathBuf,
    /// Targets to build; none configures only.
    #[arg(long)]
    pub target: Vec<String>,
    /// `-DNAME=VALUE` options.
    #[arg(last = true)]
    pub options: Vec<String>,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub struct Man {
    /// Subcommand, or none for the main page.
    pub command: Option<String>,
}

/// Drops the word `dbisect` that cargo puts first when it runs `cargo-dbisect`.
pub fn without_cargo(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<_> = arguments.into_iter().collect();
    let program = arguments.first().and_then(|program| std::path::Path::new(program).file_stem());
    if program == Some(OsStr::new("cargo-dbisect")) && arguments.get(1).is_some_and(|word| word == "dbisect") {
        arguments.remove(1);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn cargo_s_own_word_is_dropped() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(without_cargo(words("/bin/cargo-dbisect dbisect run x")), words("/bin/cargo-dbisect run x"));
        assert_eq!(without_cargo(words("dbisect dbisect run x")), words("dbisect dbisect run x"));
    }

    #[test]
    fn bisect_takes_a_matrix_or_an_earlier_search() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' '));
        assert!(parse("dbisect bisect m.toml --good a --bad b --metric cpupq").is_ok());
        assert!(parse("dbisect bisect resume 3 --json").is_ok());
        assert!(parse("dbisect bisect --metric cpupq").is_ok());
    }
}
