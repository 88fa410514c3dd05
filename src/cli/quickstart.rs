//! `dbisect quickstart`.

use std::fs::File;
use std::io::{BufWriter, Write};

use anyhow::Context;
use serde_json::json;

use crate::build::{Need, missing, needs};
use crate::compare::Settings;
use crate::matrix::{AxisKind, Cell, ConfigurationError};
use crate::measure::{Metric, fingerprint};
use crate::pipeline::{StudyReport, estimate};
use crate::report::{BuildCard, Format, Page, comparison, html, verdict_sentence};
use crate::store::Store;

use super::arguments::{Global, Quickstart};
use super::compare::{between, terminal_width};
use super::exit::Exit;
use super::run::{exit, measure, sentence};
use super::shop::{cache_dir, checkout, in_words, read_matrix};

pub fn quickstart(global: &Global, arguments: &Quickstart) -> anyhow::Result<Exit> {
    let top =
        checkout().ok_or_else(|| ConfigurationError::new("quickstart needs a checkout of dbisect, whose matrices/quickstart.toml it runs; change into one"))?;
    let path = top.join("matrices/quickstart.toml");
    let matrix = read_matrix(&path)?;
    let cells = matrix.cells()?;
    let all = cells.len() * matrix.workload.repeats as usize;
    if arguments.dry_run {
        println!(
            "would install what is missing, build {} cells, make {all} restarts and compare them, at most about {}",
            cells.len(),
            in_words(estimate(cells.len(), all, &matrix.workload))
        );
        return Ok(Exit::Done);
    }
    let lacking = missing(&needs(&cells));
    if !lacking.is_empty() {
        // What only helps is installed along, but its absence alone is no reason to stop.
        match super::doctor::install(&lacking, global.quiet) {
            Err(error) if lacking.iter().any(|need| !matches!(need, Need::Helpful(_))) => return Err(error),
            Err(error) => tracing::warn!("{error:#}"),
            Ok(()) => {}
        }
    }
    let report = measure(global, &matrix, &cells, None, &path)?;
    if !global.quiet {
        eprintln!("{}", sentence(&report));
    }
    let store = Store::open(&global.db)?;
    let measured: Vec<Cell> = store.cells()?.into_iter().filter(|cell| cells.contains(cell)).collect();
    if measured.is_empty() {
        anyhow::bail!("no cell could be measured: {}", sentence(&report));
    }
    let found = between(&store, &measured, None, Some("lto"), &[Metric::Qps, Metric::Cpupq], &Settings::default())?;
    let page = Page {
        title: format!("{}: Postgres with and without link-time optimisation", matrix.name),
        generated_at: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        builds: cards(&cells, &report),
        host: fingerprint(&cache_dir(global)?).0.into_iter().collect(),
        commands: vec!["cargo dbisect run matrices/quickstart.toml".to_owned(), "cargo dbisect compare --axis lto".to_owned()],
        comparisons: vec![found.clone()],
    };
    write_page(&page, &arguments.output)?;
    let mut out = std::io::stdout().lock();
    if global.json {
        writeln!(out, "{}", json!({"schema": 1, "run": report, "verdict": verdict_sentence(&found), "report": arguments.output}))?;
    } else {
        comparison(&found, Format::Table, terminal_width(), global.colour_on_stdout(), &mut out)?;
        writeln!(out, "the page is {}", arguments.output.display())?;
    }
    Ok(exit(&report))
}

fn write_page(page: &Page, path: &std::path::Path) -> anyhow::Result<()> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut out = BufWriter::new(file);
    html(page, &mut out)?;
    out.flush().with_context(|| format!("cannot write {}", path.display()))
}

fn cards(cells: &[Cell], report: &StudyReport) -> Vec<BuildCard> {
    let card = |cell: &Cell| {
        let build = report.builds.iter().find(|build| build.cell == cell.name)?;
        let entry = build.entry.as_ref()?;
        let story = &entry.manifest.story;
        let axes: Vec<_> = cell.axes_of(AxisKind::Build).filter(|(_, value)| !value.is_empty()).map(|(name, value)| format!("{name}={value}")).collect();
        Some(BuildCard {
            name: cell.name.clone(),
            source: story.source.clone(),
            patches: if story.patches.is_empty() { "none".to_owned() } else { story.patches.join(", ") },
            axes: axes.join(" "),
            compiler: story.compiler.clone(),
            compiled_by: story.compiled_by.join("; "),
            seconds: story.seconds,
            bytes: entry.manifest.bytes,
            key: entry.key.to_string(),
        })
    };
    cells.iter().filter_map(card).collect()
}
