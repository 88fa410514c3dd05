//! `dbisect run`.

use std::io::Write;

use serde_json::json;

use crate::matrix::{Cell, ConfigurationError, Matrix};
use crate::pipeline::{Made, Study, StudyReport, estimate, run_study};
use crate::store::Store;

use super::arguments::{Global, Run};
use super::exit::Exit;
use super::progress::Progress;
use super::shop::{chosen, duration, glob_set, in_words, limits, read_matrix, workshop};

pub fn run(global: &Global, arguments: &Run) -> anyhow::Result<Exit> {
    let mut matrix = read_matrix(&arguments.matrix)?;
    let cells = chosen(matrix.cells()?, &arguments.cell)?;
    narrow(&mut matrix, &arguments.step)?;
    if let Some(repeats) = arguments.repeats {
        if repeats == 0 {
            return Err(ConfigurationError::new("--repeats is 0 and must be at least 1").into());
        }
        matrix.workload.repeats = repeats;
    }
    let mut out = std::io::stdout().lock();
    if arguments.dry_run {
        let restarts = cells.len() * matrix.workload.repeats as usize;
        let seconds = estimate(cells.len(), restarts, &matrix.workload);
        if global.json {
            writeln!(out, "{}", json!({"schema": 1, "cells": cells.len(), "restarts": restarts, "seconds": seconds}))?;
        } else {
            writeln!(
                out,
                "would build up to {} cells and make {restarts} restarts of {} steps, at most about {}",
                cells.len(),
                matrix.workload.steps.len(),
                in_words(seconds)
            )?;
        }
        return Ok(Exit::Done);
    }
    let budget = arguments.budget.as_ref().map(|text| duration(text, "--budget")).transpose()?;
    let report = measure(global, &matrix, &cells, budget, &arguments.matrix)?;
    if global.json {
        writeln!(out, "{}", json!({"schema": 1, "run": report}))?;
    } else {
        writeln!(out, "{}", sentence(&report))?;
    }
    Ok(exit(&report))
}

/// Keeps the steps whose names match.
fn narrow(matrix: &mut Matrix, globs: &[String]) -> Result<(), ConfigurationError> {
    if globs.is_empty() {
        return Ok(());
    }
    let set = glob_set(globs)?;
    let all = matrix.workload.steps.join(", ");
    matrix.workload.steps.retain(|step| set.is_match(step));
    if matrix.workload.steps.is_empty() {
        return Err(ConfigurationError::new(format!("no step matches {}; the matrix has: {all}", globs.join(" or "))));
    }
    Ok(())
}

/// Builds and measures; shared with `quickstart`.
pub fn measure(global: &Global, matrix: &Matrix, cells: &[Cell], budget: Option<std::time::Duration>, path: &std::path::Path) -> anyhow::Result<StudyReport> {
    let workshop = workshop(global, Some(path))?;
    let mut store = Store::open(&global.db)?;
    let study = Study { name: &matrix.name, cells, workload: &matrix.workload, limits: limits(global), budget };
    run_study(&workshop, &study, &mut store, &Progress::new(global))
}

/// Exit code of a study.
pub fn exit(report: &StudyReport) -> Exit {
    let broken = report.builds.iter().any(|build| matches!(build.outcome, Made::Failed | Made::KnownFailure));
    if broken || !report.failures.is_empty() { Exit::Failed } else { Exit::Done }
}

/// A study in a sentence.
pub fn sentence(report: &StudyReport) -> String {
    let count = |made: Made| report.builds.iter().filter(|build| build.outcome == made).count();
    let mut text = format!(
        "{} builds made, {} from the cache; {} restarts measured, {} recorded before; {}",
        count(Made::Built),
        count(Made::Hit),
        report.restarts,
        report.resumed,
        in_words(report.seconds)
    );
    for build in report.builds.iter().filter(|build| matches!(build.outcome, Made::Failed | Made::KnownFailure)) {
        text.push_str(&format!("\n{}", super::build::line(build)));
    }
    for failure in &report.failures {
        text.push_str(&format!("\nfailed: {failure}"));
    }
    if report.left > 0 {
        text.push_str(&format!("\nthe budget ended with {} restarts left; the same command goes on", report.left));
    }
    text
}
