//! `dbisect bisect`.

use std::io::Write;

use serde_json::json;

use crate::bisect::{Expect, Outcome, SearchReport};
use crate::compare::{Settings, Verdict, compare as judge};
use crate::matrix::{AXES, Cell, ConfigurationError, Matrix, SourceSpec};
use crate::measure::{Metric, Worse};
use crate::pipeline::{SearchOptions, estimate, matrix_of_search, replay, resume_search, show_search, start_search};
use crate::report::{bisect_text, searches_text};
use crate::store::Store;
use crate::workload::step;

use super::arguments::{Bisect, Earlier, Global};
use super::exit::Exit;
use super::progress::Progress;
use super::shop::{checkout, chosen, duration, in_words, limits, read_matrix, workshop};

pub fn bisect(global: &Global, arguments: &Bisect) -> anyhow::Result<Exit> {
    match arguments.earlier {
        Some(earlier) => look_back(global, earlier),
        None => search(global, arguments),
    }
}

fn look_back(global: &Global, earlier: Earlier) -> anyhow::Result<Exit> {
    let mut out = std::io::stdout().lock();
    let mut store = Store::open(&global.db)?;
    match earlier {
        Earlier::List => {
            let searches = store.searches()?;
            if global.json {
                let all = searches.iter().map(|search| show_search(search.id, &store)).collect::<anyhow::Result<Vec<_>>>()?;
                writeln!(out, "{}", json!({"schema": 1, "searches": all}))?;
            } else {
                searches_text(&searches, &mut out)?;
            }
            Ok(Exit::Done)
        }
        Earlier::Show { id } => tell(global, &show_search(id, &store)?, &mut out).map(|_| Exit::Done),
        Earlier::Resume { id } => {
            let matrix = matrix_of_search(id, &store)?;
            let report = resume_search(&workshop(global, Some(&matrix))?, id, limits(global), &mut store, &Progress::new(global))?;
            tell(global, &report, &mut out)
        }
        Earlier::Replay { id } => {
            let lines = replay(id, &store)?;
            if global.json {
                writeln!(out, "{}", json!({"schema": 1, "decisions": lines}))?;
            } else {
                writeln!(out, "{}", lines.join("\n"))?;
            }
            Ok(Exit::Done)
        }
    }
}

fn search(global: &Global, arguments: &Bisect) -> anyhow::Result<Exit> {
    let path = arguments
        .matrix
        .clone()
        .or_else(|| checkout().map(|top| top.join("matrices/bisect.toml")))
        .ok_or_else(|| ConfigurationError::new("name the matrix whose git target is to be searched"))?;
    let matrix = read_matrix(&path)?;
    let cell = configuration(&matrix, &arguments.cell)?;
    let metric = arguments
        .metric
        .clone()
        .or_else(|| matrix.bisect.metric.clone())
        .ok_or_else(|| ConfigurationError::new("--metric is missing; cpupq is the least noisy one"))?;
    let metric: Metric = metric.parse()?;
    let wanted = arguments.step.clone().or_else(|| matrix.bisect.step.clone()).or_else(|| matrix.workload.steps.first().cloned()).unwrap_or_default();
    let step = step(&wanted)?.name.to_owned();
    let mut store = Store::open(&global.db)?;
    let (good, bad) = match (arguments.good.clone().or_else(|| matrix.bisect.good.clone()), arguments.bad.clone().or_else(|| matrix.bisect.bad.clone())) {
        (Some(good), Some(bad)) => (good, bad),
        (None, None) => recorded_window(&store, &matrix, &cell, metric, &step)?,
        _ => return Err(ConfigurationError::new("both --good and --bad are needed, or neither, to take the strongest recorded change").into()),
    };
    let options = SearchOptions {
        good,
        bad,
        metric,
        step,
        confidence: arguments.confidence,
        floor: arguments.floor / 100.0,
        budget: arguments.budget.as_ref().map(|text| duration(text, "--budget")).transpose()?.map(|budget| budget.as_secs_f64()),
        seed: arguments.seed,
        expect: if arguments.expect == "improvement" { Expect::Improvement } else { Expect::Regression },
    }
    .check()?;
    let mut out = std::io::stdout().lock();
    if arguments.dry_run {
        let seconds = estimate(8, 40, &crate::matrix::Workload { steps: vec![options.step.clone()], ..matrix.workload.clone() });
        writeln!(
            out,
            "would search from {} to {} by {} of {}; with 8 builds and 40 restarts, which is usual, about {}",
            options.good,
            options.bad,
            options.metric,
            options.step,
            in_words(seconds)
        )?;
        return Ok(Exit::Done);
    }
    let workshop = workshop(global, Some(&path))?;
    let report = start_search(&workshop, &matrix, &cell, options, limits(global), &mut store, &Progress::new(global))?;
    tell(global, &report, &mut out)
}

/// The one configuration that is searched: the matrix may have many revisions, but one value on
/// every axis, unless `--cell` chooses.
fn configuration(matrix: &Matrix, globs: &[String]) -> anyhow::Result<Cell> {
    let mut cells = chosen(matrix.cells()?, globs)?;
    cells.retain(|cell| matches!(cell.source, SourceSpec::Git { .. }));
    let Some(first) = cells.first().cloned() else {
        return Err(ConfigurationError::new(format!(
            "{} has no [[target]] with source = \"git\", and only a git history can be searched",
            matrix.path.display()
        ))
        .into());
    };
    let differs: Vec<_> = AXES.iter().filter(|axis| cells.iter().any(|cell| cell.axis(axis.name) != first.axis(axis.name))).map(|axis| axis.name).collect();
    if !differs.is_empty() || cells.iter().any(|cell| cell.source != first.source) {
        let names: Vec<_> = cells.iter().map(|cell| cell.name.clone()).collect();
        return Err(ConfigurationError::new(format!(
            "one configuration is searched at a time, and the cells vary in {}; choose with --cell one of: {}",
            if differs.is_empty() { "their source".to_owned() } else { differs.join(", ") },
            names.join(", ")
        ))
        .into());
    }
    Ok(first)
}

/// The neighbouring pair of measured revisions with the strongest regression.
fn recorded_window(store: &Store, matrix: &Matrix, cell: &Cell, metric: Metric, step: &str) -> anyhow::Result<(String, String)> {
    let same = |other: &&Cell| other.dbms == cell.dbms && other.source == cell.source && other.axes == cell.axes;
    let recorded = store.cells()?;
    let measured: Vec<Cell> = matrix.cells()?.iter().filter(same).filter(|cell| recorded.contains(cell)).cloned().collect();
    let mut series = Vec::new();
    for cell in &measured {
        series.extend(store.series(cell, &[metric])?.into_iter().filter(|series| series.step == step));
    }
    let pairs: Vec<(String, String)> = measured.windows(2).map(|pair| (pair[0].name.clone(), pair[1].name.clone())).collect();
    let found = judge("", &pairs, &series, &Settings::default());
    let strength = |relative: f64| if metric.worse() == Worse::Higher { relative.ln() } else { -relative.ln() };
    let worst =
        found.rows.iter().filter(|row| row.verdict == Verdict::Regression).max_by(|one, other| strength(one.relative).total_cmp(&strength(other.relative)));
    let revision = |name: &str| measured.iter().find(|cell| cell.name == name).map(|cell| cell.revision.text().to_owned());
    match worst.and_then(|row| Some((revision(&row.base_cell)?, revision(&row.cell)?))) {
        Some(window) => Ok(window),
        None => Err(ConfigurationError::new(format!(
            "no regression of {metric} in {step} is recorded between neighbouring revisions of {}; run it first, or name the ends with --good and --bad",
            matrix.path.display()
        ))
        .into()),
    }
}

fn tell(global: &Global, report: &SearchReport, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if global.json {
        let mut value = serde_json::to_value(report)?;
        value["schema"] = json!(1);
        writeln!(out, "{value}")?;
    } else {
        bisect_text(report, out)?;
    }
    Ok(if report.outcome == Outcome::Culprit { Exit::Done } else { Exit::Undecided })
}
