//! `dbisect doctor`.

use std::io::Write;
use std::time::Duration;

use nix::unistd::Uid;
use serde_json::json;

use crate::build::{Distribution, Need, distribution, install_command, missing, needs, package};
use crate::matrix::{Cell, ConfigurationError, Matrix, Revision};
use crate::measure::{HostReadings, Severity};
use crate::process::Program;

use super::arguments::{Doctor, Global};
use super::exit::Exit;
use super::shop::{cache_dir, read_matrix};

/// Gigabytes that one build takes while it is made, its data included.
const GB_PER_BUILD: f64 = 1.0;
/// Gigabytes for sources and the object cache.
const GB_FIXED: f64 = 2.0;

pub fn doctor(global: &Global, arguments: &Doctor) -> anyhow::Result<Exit> {
    let cells = match &arguments.matrix {
        Some(path) => read_matrix(path)?.cells()?,
        None => any_postgres()?,
    };
    let mut out = std::io::stdout().lock();
    let needs = needs(&cells);
    let mut lacking = missing(&needs);
    if arguments.fix && !lacking.is_empty() {
        install(&lacking, global.quiet)?;
        lacking = missing(&needs);
    }
    #[expect(clippy::cast_precision_loss, reason = "a number of cells")]
    let wanted = GB_FIXED + GB_PER_BUILD * cells.len() as f64;
    let findings = HostReadings::read(&cache_dir(global)?, wanted)?.findings();
    let required: Vec<&Need> = lacking.iter().filter(|need| !matches!(need, Need::Helpful(_))).collect();
    let found = here();
    if global.json {
        let item = |need: &Need| json!({"need": need.name(), "package": package(need, found), "required": !matches!(need, Need::Helpful(_))});
        writeln!(out, "{}", json!({"schema": 1, "missing": lacking.iter().map(item).collect::<Vec<_>>(), "findings": findings}))?;
    } else {
        for need in &lacking {
            let what = if matches!(need, Need::Helpful(_)) { "would help" } else { "missing" };
            let package = package(need, found).map_or_else(String::new, |package| format!(" (package {package})"));
            writeln!(out, "{what}: {}{package}", need.name())?;
        }
        if !lacking.is_empty() {
            writeln!(out, "to install: {}", command_line(&lacking, found))?;
        }
        for finding in &findings {
            let word = match finding.severity {
                Severity::Note => "note",
                Severity::Warning => "warning",
                Severity::Unfit => "unfit",
            };
            writeln!(out, "{word}: {}", finding.sentence)?;
        }
        writeln!(out, "{} of {} things needed are there; {} findings about the host", needs.len() - lacking.len(), needs.len(), findings.len())?;
    }
    if arguments.strict && findings.iter().any(|finding| finding.severity == Severity::Unfit) {
        return Ok(Exit::Unfit);
    }
    Ok(if required.is_empty() { Exit::Done } else { Exit::Failed })
}

/// A cell that stands for any Postgres, when no matrix is named.
fn any_postgres() -> Result<Vec<Cell>, ConfigurationError> {
    let text = "[[target]]\ndbms = \"postgres\"\nrevisions = [\"any\"]\nsource = \"git\"\n";
    let mut cells = Matrix::parse(text, std::path::Path::new("doctor"), &[])?.cells()?;
    cells.retain(|cell| matches!(cell.revision, Revision::Commit(_)));
    Ok(cells)
}

fn here() -> Distribution {
    distribution(&std::fs::read_to_string("/etc/os-release").unwrap_or_default())
}

fn packages(lacking: &[Need], distribution: Distribution) -> Vec<String> {
    let mut packages: Vec<String> = lacking.iter().filter_map(|need| package(need, distribution)).collect();
    packages.sort();
    packages.dedup();
    packages
}

fn command_line(lacking: &[Need], distribution: Distribution) -> String {
    let commands = install_command(distribution, &packages(lacking, distribution));
    if commands.is_empty() {
        let names: Vec<_> = lacking.iter().map(Need::name).collect();
        return format!("install {} with your distribution's package manager", names.join(", "));
    }
    commands.iter().map(|words| words.join(" ")).collect::<Vec<_>>().join(" && ")
}

/// Installs what is missing, as root or through sudo without a password.
pub fn install(lacking: &[Need], quiet: bool) -> anyhow::Result<()> {
    let found = here();
    let root = Uid::effective().is_root();
    let may = root || (which::which("sudo").is_ok() && Program::new("sudo").args(["-n", "true"]).output().is_ok());
    let commands = install_command(found, &packages(lacking, found));
    if !may || commands.is_empty() || found != Distribution::Debian {
        let names: Vec<_> = lacking.iter().map(Need::name).collect();
        anyhow::bail!("{} must be installed and dbisect may not do it; run as root: {}", names.join(", "), command_line(lacking, found));
    }
    for words in commands {
        let words: Vec<String> = if root { words } else { ["sudo", "-n"].map(str::to_owned).into_iter().chain(words).collect() };
        if !quiet {
            eprintln!("{}", words.join(" "));
        }
        Program::new(&words[0]).args(&words[1..]).env("DEBIAN_FRONTEND", "noninteractive").deadline(Duration::from_secs(1800)).output()?;
    }
    Ok(())
}
