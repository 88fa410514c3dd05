//! One self-contained page.

use std::io::Write;

use askama::Template;

use crate::compare::{Comparison, GroupSummary, Row, Verdict};
use crate::measure::Metric;

use super::verdict::verdict_sentence;

/// What a page shows.
#[derive(Clone, Debug)]
pub struct Page {
    /// Heading.
    pub title: String,
    /// RFC 3339.
    pub generated_at: String,
    /// Comparisons, most important first.
    pub comparisons: Vec<Comparison>,
    /// Builds compared.
    pub builds: Vec<BuildCard>,
    /// Facts about the host.
    pub host: Vec<(String, String)>,
    /// Command lines that make this page again.
    pub commands: Vec<String>,
}

/// One build.
#[derive(Clone, Debug)]
pub struct BuildCard {
    /// Name of the cell.
    pub name: String,
    /// The source in words.
    pub source: String,
    /// Patches applied, or "none".
    pub patches: String,
    /// Axes and values.
    pub axes: String,
    /// First line of the compiler's version.
    pub compiler: String,
    /// What the compiler recorded in the binary.
    pub compiled_by: String,
    /// Seconds to build.
    pub seconds: f64,
    /// Bytes installed.
    pub bytes: u64,
    /// Build key.
    pub key: String,
}

impl BuildCard {
    /// As much of the key as people compare by eye.
    fn short_key(&self) -> &str {
        self.key.get(..12).unwrap_or(&self.key)
    }
}

struct Section {
    heading: String,
    metric: Metric,
    worse_when: &'static str,
    rows: Vec<RowView>,
    groups: Vec<GroupSummary>,
}

struct RowView {
    row: Row,
    interval: String,
    class: &'static str,
}

#[derive(Template)]
#[template(path = "report.html")]
struct Document<'a> {
    page: &'a Page,
    verdicts: Vec<String>,
    sections: Vec<Section>,
    left_out: Vec<String>,
}

/// Writes the page.
///
/// # Errors
/// When it cannot be written.
pub fn html(page: &Page, out: &mut dyn Write) -> anyhow::Result<()> {
    let document = Document {
        page,
        verdicts: page.comparisons.iter().map(verdict_sentence).collect(),
        sections: page.comparisons.iter().flat_map(sections).collect(),
        left_out: page.comparisons.iter().flat_map(|comparison| comparison.left_out.clone()).collect(),
    };
    Ok(out.write_all(document.render()?.as_bytes())?)
}

fn sections(comparison: &Comparison) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for row in &comparison.rows {
        let heading = format!("{} against {}", row.cell, row.base_cell);
        let index = sections.iter().position(|section| section.heading == heading && section.metric == row.metric).unwrap_or_else(|| {
            let groups = comparison.groups.iter().filter(|group| group.cell == row.cell && group.metric == row.metric).cloned().collect();
            let worse_when = if row.metric.worse() == crate::measure::Worse::Higher { "above 1 is worse" } else { "below 1 is worse" };
            sections.push(Section { heading, metric: row.metric, worse_when, rows: Vec::new(), groups });
            sections.len() - 1
        });
        let class = match row.verdict {
            Verdict::Regression => "worse",
            Verdict::Improvement => "better",
            Verdict::Same => "same",
            Verdict::Undecided => "open",
        };
        let interval = row.ci95.map_or_else(|| "–".to_owned(), |[low, high]| format!("{low:.3} – {high:.3}"));
        sections[index].rows.push(RowView { row: row.clone(), interval, class });
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::super::verdict::tests::sample;
    use super::*;

    #[test]
    fn a_page_is_whole_escaped_and_needs_no_network() {
        let mut comparison = sample();
        comparison.rows[0].step = "<script>alert(1)</script>".to_owned();
        let page = Page {
            title: "quickstart & more".to_owned(),
            generated_at: "2026-01-01T00:00:00Z".to_owned(),
            comparisons: vec![comparison],
            builds: vec![BuildCard {
                name: "pg15".to_owned(),
                source: "s".to_owned(),
                patches: "none".to_owned(),
                axes: "lto=off".to_owned(),
                compiler: "gcc".to_owned(),
                compiled_by: "GNU C17".to_owned(),
                seconds: 61.0,
                bytes: 31_000_000,
                key: "ab".repeat(32),
            }],
            host: vec![("cpu".to_owned(), "x".to_owned())],
            commands: vec!["dbisect run matrices/quickstart.toml".to_owned()],
        };
        let mut out = Vec::new();
        html(&page, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("<!doctype html>") && text.trim_end().ends_with("</html>"));
        assert!(!text.contains("<script>alert") && text.contains("quickstart &#38; more") | text.contains("quickstart &amp; more"), "{text}");
        assert!(!text.contains("http://") && !text.contains("https://"), "the page asks for something from the network");
        assert!(text.contains("1.050 – 1.110") && text.contains("left out") | text.contains("Left out"));
    }
}
