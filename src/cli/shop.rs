//! What most commands begin with: where things are, and the cells that are meant.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use globset::{Glob, GlobSet, GlobSetBuilder};

use crate::matrix::{Cell, ConfigurationError, Matrix};
use crate::pipeline::{Limits, Workshop};
use crate::workload::step_names;

use super::arguments::Global;

/// The top of the checkout that dbisect runs in, or nothing when it is installed.
pub fn checkout() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors().find(|dir| dir.join("matrices").is_dir() && dir.join("Cargo.toml").is_file()).map(Path::to_owned)
}

/// The cache directory: named, or of the checkout, or of the user.
pub fn cache_dir(global: &Global) -> anyhow::Result<PathBuf> {
    if let Some(dir) = &global.cache {
        return std::path::absolute(dir).context("the cache directory cannot be named");
    }
    if let Some(top) = checkout() {
        return Ok(top.join("cache"));
    }
    let strategy = etcetera::choose_base_strategy().context("there is no home directory to keep a cache in; name one with --cache")?;
    Ok(etcetera::BaseStrategy::cache_dir(&strategy).join("dbisect"))
}

/// The workshop, with patches and configurations beside the matrix: `<dir>/../patches` and
/// `<dir>/configs`, as in our own repository.
pub fn workshop(global: &Global, matrix: Option<&Path>) -> anyhow::Result<Workshop> {
    let matrices = matrix.and_then(Path::parent).map(Path::to_owned).or_else(|| checkout().map(|top| top.join("matrices"))).unwrap_or_default();
    let configs = [matrices.join("configs"), checkout().unwrap_or_default().join("matrices/configs")]
        .into_iter()
        .find(|dir| dir.is_dir())
        .unwrap_or_else(|| matrices.join("configs"));
    let patches = [matrices.join("../patches"), checkout().unwrap_or_default().join("patches")]
        .into_iter()
        .find(|dir| dir.is_dir())
        .unwrap_or_else(|| matrices.join("../patches"));
    Ok(Workshop::new(&cache_dir(global)?, &patches, &configs, global.refresh))
}

/// Reads a matrix.
pub fn read_matrix(path: &Path) -> Result<Matrix, ConfigurationError> {
    Matrix::read(path, &step_names())
}

/// The cells whose names match; all without a pattern.
pub fn chosen(cells: Vec<Cell>, globs: &[String]) -> Result<Vec<Cell>, ConfigurationError> {
    let set = glob_set(globs)?;
    let names: Vec<_> = cells.iter().map(|cell| cell.name.clone()).collect();
    let chosen: Vec<_> = cells.into_iter().filter(|cell| globs.is_empty() || set.is_match(&cell.name)).collect();
    if chosen.is_empty() {
        return Err(ConfigurationError::new(format!("no cell matches {}; there are: {}", globs.join(" or "), names.join(", "))));
    }
    Ok(chosen)
}

/// Patterns as one set.
pub fn glob_set(globs: &[String]) -> Result<GlobSet, ConfigurationError> {
    let wrong = |error: globset::Error| ConfigurationError::new(format!("a pattern cannot be understood: {error}"));
    let mut builder = GlobSetBuilder::new();
    for glob in globs {
        builder.add(Glob::new(glob).map_err(wrong)?);
    }
    builder.build().map_err(wrong)
}

/// A length of time such as `90m` or `2h 30m`.
pub fn duration(text: &str, option: &str) -> Result<Duration, ConfigurationError> {
    let wrong = || ConfigurationError::new(format!("{option} is `{text}`, and a length of time such as 90m or 2h is wanted"));
    let span: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(span).map_err(|_| wrong())
}

/// What builds may use.
pub fn limits(global: &Global) -> Limits {
    let default = Limits::default();
    Limits { jobs: global.jobs.unwrap_or(default.jobs).max(1), ..default }
}

/// Seconds in words.
pub fn in_words(seconds: f64) -> String {
    if seconds < 100.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}
