//! Ratios, intervals and verdicts.

use std::collections::BTreeMap;

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::measure::{Metric, Worse};

use super::moderate::{Variance, moderate};
use super::result::{Comparison, GroupSummary, Row, Verdict};
use super::series::{Contrast, Series, contrast};

/// What counts, and how sure one must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Smallest difference of interest, as a fraction: 0.02 is 2%.
    pub floor: f64,
    /// Coverage of intervals and complement of the share of false discoveries: 0.95.
    pub confidence: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { floor: 0.02, confidence: 0.95 }
    }
}

/// Most restarts that a forecast names; beyond it the difference is not worth waiting for.
const MOST_RESTARTS: usize = 1000;

/// Compares cells pair by pair: the first name of a pair is the base of the second.
///
/// A verdict of regression or improvement needs two things: the whole interval beyond the floor on
/// that side, and a one-sided test against the floor that survives the control of false discoveries
/// (Benjamini and Hochberg 1995) over the steps of the same pair and metric. Same needs the whole
/// interval within the floor. Everything else is undecided.
#[must_use]
pub fn compare(label: &str, pairs: &[(String, String)], series: &[Series], settings: &Settings) -> Comparison {
    let mut rows = Vec::new();
    let mut left_out = Vec::new();
    for metric in metrics(series) {
        let of_metric: Vec<&Series> = series.iter().filter(|one| one.metric == metric).collect();
        for (base, other) in pairs {
            rows.extend(compare_pair(base, other, metric, &of_metric, settings));
        }
        for one in of_metric {
            for sentence in one.left_out() {
                if !left_out.contains(&sentence) {
                    left_out.push(sentence);
                }
            }
        }
    }
    let groups = groups(&rows);
    Comparison { base: label.to_owned(), floor: settings.floor, rows, groups, left_out }
}

fn metrics(series: &[Series]) -> Vec<Metric> {
    let mut found = Vec::new();
    for one in series {
        if !found.contains(&one.metric) {
            found.push(one.metric);
        }
    }
    found
}

fn compare_pair(base: &str, other: &str, metric: Metric, series: &[&Series], settings: &Settings) -> Vec<Row> {
    let of = |cell: &str, step: &str| series.iter().find(|one| one.cell == cell && one.step == step);
    let mut found: Vec<(&Series, &Series, Contrast)> = Vec::new();
    for one in series.iter().filter(|one| one.cell == base) {
        if let Some(two) = of(other, &one.step)
            && let Some(contrast) = contrast(one, two)
        {
            found.push((one, two, contrast));
        }
    }
    let sample: Vec<_> = found.iter().map(|(_, _, contrast)| Variance { value: contrast.variance, freedom: contrast.freedom }).collect();
    let variances = moderate(&sample);
    let judged: Vec<_> = found.iter().zip(&variances).map(|((_, _, contrast), variance)| judge(contrast, *variance, settings)).collect();
    let survives = false_discoveries(&judged.iter().map(|judged| judged.p_beyond).collect::<Vec<_>>(), 1.0 - settings.confidence);
    let row = |((one, two, contrast), (judged, survives)): (&(&Series, &Series, Contrast), (&Judged, &bool))| Row {
        cell: other.to_owned(),
        base_cell: base.to_owned(),
        step: one.step.clone(),
        group: one.group.clone(),
        metric,
        base: contrast.base.exp(),
        value: (contrast.base + contrast.difference).exp(),
        relative: contrast.difference.exp(),
        ci95: judged.interval.map(|[low, high]| [low.exp(), high.exp()]),
        n: two.counted(),
        n_base: one.counted(),
        verdict: verdict(contrast.difference, judged, *survives, metric, settings),
        restarts_needed: judged.restarts_needed,
    };
    found.iter().zip(judged.iter().zip(&survives)).map(row).collect()
}

/// What the t distribution says about one contrast.
struct Judged {
    /// On the log scale.
    interval: Option<[f64; 2]>,
    /// One-sided p-value of "the difference is no larger than the floor", on the side where it is.
    p_beyond: f64,
    restarts_needed: Option<usize>,
}

fn judge(contrast: &Contrast, variance: Variance, settings: &Settings) -> Judged {
    let nothing = Judged { interval: None, p_beyond: 1.0, restarts_needed: None };
    if !(variance.freedom > 0.0 && variance.value.is_finite()) {
        return nothing;
    }
    let Ok(t) = StudentsT::new(0.0, 1.0, variance.freedom) else { return nothing };
    let error = (variance.value * contrast.factor).sqrt();
    let half = t.inverse_cdf(0.5 + settings.confidence / 2.0) * error;
    let floor = settings.floor.ln_1p();
    Judged {
        interval: Some([contrast.difference - half, contrast.difference + half]),
        p_beyond: t.sf((contrast.difference.abs() - floor) / error),
        restarts_needed: restarts_needed(variance, contrast.per, settings),
    }
}

/// Restarts a side after which the interval's half-width is the floor.
fn restarts_needed(variance: Variance, per: f64, settings: &Settings) -> Option<usize> {
    let floor = settings.floor.ln_1p();
    (2..=MOST_RESTARTS).find(|n| {
        #[expect(clippy::cast_precision_loss, reason = "a number of restarts")]
        let n = *n as f64;
        let freedom = variance.freedom.max(per * (n - 1.0));
        StudentsT::new(0.0, 1.0, freedom).is_ok_and(|t| t.inverse_cdf(0.5 + settings.confidence / 2.0) * (variance.value * per / n).sqrt() <= floor)
    })
}

/// Which hypotheses are rejected when the share of false ones among them is held below `share`
/// (Benjamini and Hochberg 1995).
fn false_discoveries(p_values: &[f64], share: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|one, other| p_values[*one].total_cmp(&p_values[*other]));
    #[expect(clippy::cast_precision_loss, reason = "a number of steps")]
    let passes = |(rank, index): (usize, &usize)| p_values[*index] <= share * (rank + 1) as f64 / p_values.len() as f64;
    let rejected = order.iter().enumerate().filter(|pair| passes(*pair)).map(|(rank, _)| rank + 1).max().unwrap_or(0);
    let mut result = vec![false; p_values.len()];
    for index in order.into_iter().take(rejected) {
        result[index] = true;
    }
    result
}

fn verdict(difference: f64, judged: &Judged, survives: bool, metric: Metric, settings: &Settings) -> Verdict {
    let Some([low, high]) = judged.interval else { return Verdict::Undecided };
    let floor = settings.floor.ln_1p();
    if low > -floor && high < floor {
        return Verdict::Same;
    }
    if !survives || (low <= floor && high >= -floor) {
        return Verdict::Undecided;
    }
    if (difference > 0.0) == (metric.worse() == Worse::Higher) { Verdict::Regression } else { Verdict::Improvement }
}

fn groups(rows: &[Row]) -> Vec<GroupSummary> {
    let mut order = Vec::new();
    let mut values: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for row in rows {
        let key = (row.cell.clone(), row.base_cell.clone(), row.group.clone(), row.metric);
        let index = order.iter().position(|known| *known == key).unwrap_or_else(|| {
            order.push(key);
            order.len() - 1
        });
        values.entry(index).or_default().push(row.relative);
    }
    let summary = |(index, mut values): (usize, Vec<f64>)| {
        values.sort_by(f64::total_cmp);
        let (cell, _, group, metric) = order[index].clone();
        #[expect(clippy::cast_precision_loss, reason = "a number of steps")]
        let avg = values.iter().sum::<f64>() / values.len() as f64;
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) { f64::midpoint(values[middle - 1], values[middle]) } else { values[middle] };
        GroupSummary { cell, group, metric, min: values[0], max: values[values.len() - 1], avg, median }
    };
    values.into_iter().map(summary).collect()
}

#[cfg(test)]
mod tests;
