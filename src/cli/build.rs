//! `dbisect build`.

use std::io::Write;

use serde_json::json;

use crate::pipeline::{BuildReport, Limits, Made, estimate};

use super::arguments::{Build, Global};
use super::exit::Exit;
use super::progress::Progress;
use super::shop::{chosen, duration, in_words, limits, read_matrix, workshop};

pub fn build(global: &Global, arguments: &Build) -> anyhow::Result<Exit> {
    let matrix = read_matrix(&arguments.matrix)?;
    let cells = chosen(matrix.cells()?, &arguments.cell)?;
    let workshop = workshop(global, Some(&arguments.matrix))?;
    let mut out = std::io::stdout().lock();
    if arguments.dry_run {
        let mut missing = Vec::new();
        for cell in &cells {
            let there = match workshop.plan_offline(cell)? {
                Some(planned) => workshop.ready(&planned)?.is_some(),
                None => false,
            };
            if !there {
                missing.push(cell.name.clone());
            }
        }
        let seconds = estimate(missing.len(), 0, &matrix.workload);
        if global.json {
            writeln!(out, "{}", json!({"schema": 1, "would_build": missing, "seconds": seconds}))?;
        } else {
            writeln!(out, "would build {} of {} cells, about {}: {}", missing.len(), cells.len(), in_words(seconds), missing.join(", "))?;
        }
        return Ok(Exit::Done);
    }
    let limits = match &arguments.timeout {
        Some(text) => Limits { step: duration(text, "--timeout")?, ..limits(global) },
        None => limits(global),
    };
    let reports = workshop.build(&cells, limits, &Progress::new(global))?;
    if global.json {
        writeln!(out, "{}", json!({"schema": 1, "builds": reports}))?;
    } else {
        for report in &reports {
            writeln!(out, "{}", line(report))?;
        }
    }
    Ok(exit(&reports))
}

/// Exit code of a set of builds.
pub fn exit(reports: &[BuildReport]) -> Exit {
    let failed = reports.iter().any(|report| matches!(report.outcome, Made::Failed | Made::KnownFailure));
    if failed { Exit::Failed } else { Exit::Done }
}

/// One build in a line.
pub fn line(report: &BuildReport) -> String {
    let key = report.build_key.as_deref().map_or("-", |key| &key[..12]);
    match report.outcome {
        Made::Built => format!("built  {key}  {}  in {:.0} s", report.cell, report.seconds),
        Made::Hit => format!("hit    {key}  {}", report.cell),
        Made::Failed => format!("failed {key}  {}: {}", report.cell, report.message.as_deref().unwrap_or_default()),
        Made::KnownFailure => format!("failed {key}  {} (known from before): {}", report.cell, report.message.as_deref().unwrap_or_default()),
    }
}
