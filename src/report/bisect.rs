//! Answers of searches as text; the last line is the verdict.

use std::io::Write;

use comfy_table::{ContentArrangement, Table};

use crate::bisect::{Outcome, SearchReport};
use crate::store::SearchRecord;

/// Writes an answer.
///
/// # Errors
/// When it cannot be written.
pub fn bisect_text(report: &SearchReport, out: &mut dyn Write) -> anyhow::Result<()> {
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    let mut table = Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["commit", "state", "samples", "mean", "subject"]);
    for tested in &report.tested {
        table.add_row([
            short(&tested.commit),
            tested.state.clone(),
            tested.samples.to_string(),
            tested.mean.map_or_else(|| "-".to_owned(), |mean| format!("{mean:.3}")),
            tested.subject.clone(),
        ]);
    }
    writeln!(out, "{table}")?;
    if report.suspects.len() > 1 {
        writeln!(out, "what remains possible:")?;
        for suspect in report.suspects.iter().take(20) {
            writeln!(out, "  {:6.3}  {}  {}", suspect.probability, short(&suspect.commit), suspect.subject)?;
        }
    }
    let (cost, range) = (&report.cost, &report.range);
    writeln!(
        out,
        "search {}: {} commits, {} of which change what is built; {} builds, {} from the cache, {} restarts, {:.1} min",
        report.id,
        range.commits,
        range.builds,
        cost.builds,
        cost.hits,
        cost.runs,
        cost.seconds / 60.0
    )?;
    Ok(writeln!(out, "{}", sentence(report))?)
}

fn short(commit: &str) -> String {
    commit.chars().take(12).collect()
}

fn sentence(report: &SearchReport) -> String {
    let effect = report.effect.as_ref().map_or_else(String::new, |effect| {
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        format!("{} of {} {:+.1}% [{:+.1}%, {:+.1}%]", effect.metric, effect.step, percent(effect.relative), percent(effect.ci95[0]), percent(effect.ci95[1]))
    });
    let needed = report.restarts_needed.map_or_else(String::new, |needed| format!("; {needed} more restarts of each end would decide"));
    match (report.outcome, &report.culprit) {
        (Outcome::Culprit, Some(culprit)) => {
            format!("culprit {} \"{}\": {effect}, probability {:.3}", short(&culprit.commit), culprit.subject, report.posterior)
        }
        (Outcome::Suspects, _) => {
            format!("one of {} commits that cannot be told apart: {effect}, probability {:.3}; {}", report.suspects.len(), report.posterior, report.why)
        }
        (Outcome::NoChange, _) => format!("no change: {}; ends: {effect}", report.why),
        _ => format!("undecided: {}{}{needed}", report.why, if effect.is_empty() { String::new() } else { format!("; so far {effect}") }),
    }
}

/// Writes the list of searches.
///
/// # Errors
/// When it cannot be written.
pub fn searches_text(searches: &[SearchRecord], out: &mut dyn Write) -> anyhow::Result<()> {
    if searches.is_empty() {
        return Ok(writeln!(out, "there is no search yet")?);
    }
    for search in searches {
        let state = search
            .answer
            .as_ref()
            .and_then(|answer| serde_json::from_str::<SearchReport>(answer).ok())
            .map_or_else(|| format!("not ended; `dbisect bisect resume {}` goes on", search.id), |report| sentence(&report));
        writeln!(out, "{:4}  {}  {state}", search.id, search.created_at)?;
    }
    Ok(())
}
