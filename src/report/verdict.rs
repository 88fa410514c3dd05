//! A comparison in one sentence.

use crate::compare::{Comparison, Row, Verdict};

/// What a comparison comes to: what a reader wants to know before any table.
#[must_use]
pub fn verdict_sentence(comparison: &Comparison) -> String {
    if comparison.rows.is_empty() {
        return format!("nothing has been measured that could be compared with {}", comparison.base);
    }
    let mut parts = Vec::new();
    let mut seen: Vec<(&str, crate::measure::Metric)> = Vec::new();
    for row in &comparison.rows {
        if seen.contains(&(row.cell.as_str(), row.metric)) {
            continue;
        }
        seen.push((row.cell.as_str(), row.metric));
        let rows: Vec<&Row> = comparison.rows.iter().filter(|other| other.cell == row.cell && other.metric == row.metric).collect();
        parts.push(one(&rows));
    }
    let undecided = comparison.rows.iter().filter(|row| row.verdict == Verdict::Undecided).count();
    let needed = comparison.rows.iter().filter(|row| row.verdict == Verdict::Undecided).filter_map(|row| row.restarts_needed).max();
    let more = match needed {
        Some(needed) if undecided > 0 => format!(" ({needed} restarts a side would show every difference of {:.1}%)", comparison.floor * 100.0),
        _ => String::new(),
    };
    format!("{}{more}", parts.join("; "))
}

fn one(rows: &[&Row]) -> String {
    let count = |verdict: Verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    #[expect(clippy::cast_precision_loss, reason = "a number of steps")]
    let mean = rows.iter().map(|row| row.relative.ln()).sum::<f64>() / rows.len() as f64;
    let counts: Vec<_> = [(Verdict::Improvement, "better"), (Verdict::Regression, "worse"), (Verdict::Same, "the same"), (Verdict::Undecided, "undecided")]
        .into_iter()
        .filter(|(verdict, _)| count(*verdict) > 0)
        .map(|(verdict, word)| format!("{} {word}", count(verdict)))
        .collect();
    let (cell, metric, base) = (&rows[0].cell, rows[0].metric, &rows[0].base_cell);
    format!("{cell} against {base}: {metric} is {:.3} times that of the base on average over {} steps, {}", mean.exp(), rows.len(), counts.join(", "))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::compare::GroupSummary;
    use crate::measure::Metric;

    pub fn sample() -> Comparison {
        let row = |step: &str, metric: Metric, relative: f64, ci95, verdict| Row {
            cell: "pg15_def_lto.cx".to_owned(),
            base_cell: "pg15_def.cx".to_owned(),
            step: step.to_owned(),
            group: "point-1".to_owned(),
            metric,
            base: 1000.0,
            value: 1000.0 * relative,
            relative,
            ci95,
            n: 4,
            n_base: 4,
            verdict,
            restarts_needed: Some(9),
        };
        Comparison {
            base: "pg15_def.cx".to_owned(),
            floor: 0.02,
            rows: vec![
                row("point-query", Metric::Qps, 1.08, Some([1.05, 1.11]), Verdict::Improvement),
                row("insert", Metric::Qps, 0.99, Some([0.93, 1.05]), Verdict::Undecided),
                row("point-query", Metric::Cpupq, 0.92, Some([0.90, 0.94]), Verdict::Improvement),
                row("insert", Metric::Cpupq, 1.10, Some([1.06, 1.14]), Verdict::Regression),
            ],
            groups: vec![GroupSummary {
                cell: "pg15_def_lto.cx".to_owned(),
                group: "point-1".to_owned(),
                metric: Metric::Qps,
                min: 0.99,
                max: 1.08,
                avg: 1.035,
                median: 1.035,
            }],
            left_out: vec!["pg15_def.cx insert round 2: sysbench ignored 3 errors".to_owned()],
        }
    }

    #[test]
    fn the_sentence_says_what_a_reader_asks_first() {
        let sentence = verdict_sentence(&sample());
        assert_eq!(
            sentence,
            "pg15_def_lto.cx against pg15_def.cx: qps is 1.034 times that of the base on average over 2 steps, 1 better, 1 undecided; \
             pg15_def_lto.cx against pg15_def.cx: cpupq is 1.006 times that of the base on average over 2 steps, 1 better, 1 worse \
             (9 restarts a side would show every difference of 2.0%)"
        );
        let empty = Comparison { rows: Vec::new(), ..sample() };
        assert!(verdict_sentence(&empty).contains("nothing has been measured"));
    }
}
