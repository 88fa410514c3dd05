//! Comparisons as a terminal table, Markdown, CSV and JSON.

use std::io::Write;
use std::str::FromStr;

use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table};
use serde_json::json;

use crate::compare::{Comparison, Row, Verdict};
use crate::matrix::ConfigurationError;

use super::verdict::verdict_sentence;

/// How a comparison is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For a terminal.
    Table,
    /// For a pull request or a post.
    Markdown,
    /// For a spreadsheet.
    Csv,
    /// For a program.
    Json,
}

impl FromStr for Format {
    type Err = ConfigurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "table" => Ok(Self::Table),
            "markdown" => Ok(Self::Markdown),
            "csv" => Ok(Self::Csv),
            "json" => Ok(Self::Json),
            _ => Err(ConfigurationError::new(format!("there is no format `{text}` (known: table, markdown, csv, json)"))),
        }
    }
}

const HEADINGS: [&str; 10] = ["cell", "step", "group", "metric", "base", "value", "relative", "95% interval", "n", "verdict"];

/// Writes a comparison. `width` is the terminal's; `colour` allows colours.
///
/// # Errors
/// When it cannot be written.
pub fn comparison(comparison: &Comparison, format: Format, width: u16, colour: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    match format {
        Format::Table => table(comparison, width, colour, out),
        Format::Markdown => markdown(comparison, out),
        Format::Csv => csv(comparison, out),
        Format::Json => Ok(writeln!(out, "{}", json(comparison))?),
    }
}

fn fields(row: &Row) -> [String; 10] {
    [
        row.cell.clone(),
        row.step.clone(),
        row.group.clone(),
        row.metric.to_string(),
        number(row.base),
        number(row.value),
        format!("{:.3}", row.relative),
        row.ci95.map_or_else(|| "-".to_owned(), |[low, high]| format!("[{low:.3}, {high:.3}]")),
        row.n.to_string(),
        row.verdict.to_string(),
    ]
}

/// Four significant digits, without an exponent where people do not expect one.
fn number(value: f64) -> String {
    if !value.is_finite() {
        "NA".to_owned()
    } else if value.abs() >= 1000.0 {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.3}")
    }
}

fn table(comparison: &Comparison, width: u16, colour: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let heading = |name: &str| Cell::new(name).add_attribute(if colour { Attribute::Bold } else { Attribute::Reset });
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for row in &comparison.rows {
        if !pairs.contains(&(row.base_cell.as_str(), row.cell.as_str())) {
            pairs.push((&row.base_cell, &row.cell));
        }
    }
    for (base, cell) in pairs {
        writeln!(out, "{cell} against {base}")?;
        let mut table = Table::new();
        table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic).set_width(width.max(40));
        table.set_header(HEADINGS[1..].iter().map(|name| if colour { heading(name) } else { Cell::new(name) }));
        for row in comparison.rows.iter().filter(|row| row.base_cell == base && row.cell == cell) {
            // A colour only where the interval agrees: noise stays grey.
            let paint = match row.verdict {
                Verdict::Regression => Some(Color::Red),
                Verdict::Improvement => Some(Color::Green),
                Verdict::Same | Verdict::Undecided => None,
            };
            table.add_row(fields(row).into_iter().skip(1).enumerate().map(|(at, text)| {
                let cell = Cell::new(text).set_alignment(if (3..8).contains(&at) { CellAlignment::Right } else { CellAlignment::Left });
                match paint.filter(|_| colour && at >= 5) {
                    Some(paint) => cell.fg(paint),
                    None => cell,
                }
            }));
        }
        writeln!(out, "{table}")?;
    }
    if !comparison.groups.is_empty() {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic).set_width(width.max(40));
        table.set_header(["cell", "group", "metric", "min", "max", "avg", "median"]);
        for group in &comparison.groups {
            let values = [group.min, group.max, group.avg, group.median].map(|value| format!("{value:.2}"));
            table.add_row([group.cell.clone(), group.group.clone(), group.metric.to_string()].into_iter().chain(values));
        }
        writeln!(out, "relative values by group\n{table}")?;
    }
    for sentence in &comparison.left_out {
        writeln!(out, "left out: {sentence}")?;
    }
    Ok(writeln!(out, "{}", verdict_sentence(comparison))?)
}

fn markdown(comparison: &Comparison, out: &mut dyn Write) -> anyhow::Result<()> {
    let escape = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    writeln!(out, "{}\n", escape(&verdict_sentence(comparison)))?;
    writeln!(out, "| {} |\n|{}", HEADINGS.join(" | "), " --- |".repeat(HEADINGS.len()))?;
    for row in &comparison.rows {
        writeln!(out, "| {} |", fields(row).map(|field| escape(&field)).join(" | "))?;
    }
    writeln!(out, "\n| cell | group | metric | min | max | avg | median |\n|{}", " --- |".repeat(7))?;
    for group in &comparison.groups {
        writeln!(
            out,
            "| {} | {} | {} | {:.2} | {:.2} | {:.2} | {:.2} |",
            escape(&group.cell),
            group.group,
            group.metric,
            group.min,
            group.max,
            group.avg,
            group.median
        )?;
    }
    if !comparison.left_out.is_empty() {
        writeln!(out, "\nLeft out:")?;
        for sentence in &comparison.left_out {
            writeln!(out, "- {}", escape(sentence))?;
        }
    }
    Ok(())
}

fn csv(comparison: &Comparison, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record([
        "cell",
        "base_cell",
        "step",
        "group",
        "metric",
        "unit",
        "base",
        "value",
        "relative",
        "ci95_low",
        "ci95_high",
        "n",
        "n_base",
        "verdict",
    ])?;
    for row in &comparison.rows {
        let [low, high] = row.ci95.map_or_else(|| [String::new(), String::new()], |ends| ends.map(|end| end.to_string()));
        writer.write_record([
            row.cell.as_str(),
            &row.base_cell,
            &row.step,
            &row.group,
            row.metric.name(),
            row.metric.unit(),
            &row.base.to_string(),
            &row.value.to_string(),
            &row.relative.to_string(),
            &low,
            &high,
            &row.n.to_string(),
            &row.n_base.to_string(),
            &row.verdict.to_string(),
        ])?;
    }
    Ok(writer.flush()?)
}

fn json(comparison: &Comparison) -> serde_json::Value {
    json!({
        "schema": 1,
        "base": comparison.base,
        "floor": comparison.floor,
        "rows": comparison.rows,
        "groups": comparison.groups,
        "left_out": comparison.left_out,
        "verdict": verdict_sentence(comparison),
    })
}

#[cfg(test)]
mod tests {
    use super::super::verdict::tests::sample;
    use super::*;

    fn text(format: Format, colour: bool) -> String {
        let mut out = Vec::new();
        comparison(&sample(), format, 120, colour, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_table_ends_with_the_verdict_and_says_what_was_left_out() {
        let text = text(Format::Table, false);
        assert!(text.contains("1.080") && text.contains("[1.050, 1.110]") && text.contains("left out: pg15_def.cx insert round 2"), "{text}");
        assert!(text.trim_end().lines().last().unwrap().starts_with("pg15_def_lto.cx against"), "{text}");
        assert!(!text.contains('\u{1b}'), "colour without being asked");
    }

    #[test]
    fn colours_follow_the_verdict_and_not_the_number() {
        let mut table = Vec::new();
        let mut only_noise = sample();
        only_noise.rows.retain(|row| row.verdict == Verdict::Undecided);
        comparison(&only_noise, Format::Table, 120, true, &mut table).unwrap();
        let text = String::from_utf8(table).unwrap();
        assert!(!text.contains("\u{1b}[38;5;9m") && !text.contains("\u{1b}[38;5;10m"), "{text:?}");
    }

    #[test]
    fn json_has_the_contracts_shape() {
        let value: serde_json::Value = serde_json::from_str(&text(Format::Json, false)).unwrap();
        assert_eq!(value["schema"], 1);
        let row = &value["rows"][0];
        for key in ["cell", "step", "group", "metric", "base", "value", "relative", "ci95", "n", "verdict"] {
            assert!(!row[key].is_null(), "{key} is missing: {row}");
        }
        assert_eq!((row["verdict"].as_str(), row["metric"].as_str(), row["ci95"][0].as_f64()), (Some("improvement"), Some("qps"), Some(1.05)));
        for key in ["cell", "group", "metric", "min", "max", "avg", "median"] {
            assert!(!value["groups"][0][key].is_null(), "{key}");
        }
    }

    #[test]
    fn csv_can_be_read_back_and_markdown_escapes_bars() {
        let text = text(Format::Csv, false);
        let rows: Vec<_> = csv::Reader::from_reader(text.as_bytes()).into_records().collect::<Result<_, _>>().unwrap();
        assert_eq!((rows.len(), &rows[0][8]), (4, "1.08"));
        let mut odd = sample();
        odd.rows[0].step = "a|b".to_owned();
        let mut out = Vec::new();
        comparison(&odd, Format::Markdown, 80, false, &mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("a\\|b"));
    }

    proptest::proptest! {
        #[test]
        fn no_number_makes_it_panic(relative in proptest::num::f64::ANY, name in "\\PC{0,20}", width in 0_u16..300) {
            let mut odd = sample();
            odd.rows[0].relative = relative;
            odd.rows[0].ci95 = Some([relative, f64::NAN]);
            odd.rows[0].cell = name;
            for format in [Format::Table, Format::Markdown, Format::Csv, Format::Json] {
                comparison(&odd, format, width, true, &mut Vec::new()).unwrap();
            }
        }
    }
}
