//! Samples of one metric of one step of one cell, and how two series are set against each other.

use std::collections::BTreeMap;

use crate::measure::Metric;

/// One sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Round of the interleaved session: readings of different cells with the same block were taken
    /// back to back, so slow drift of the host is the same for them.
    pub block: u64,
    /// In the metric's unit.
    pub value: f64,
    /// Why it must not count.
    pub doubt: Option<String>,
}

/// All samples of one metric of one step of one cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name of the cell.
    pub cell: String,
    /// Step.
    pub step: String,
    /// Group of the step.
    pub group: String,
    /// Metric.
    pub metric: Metric,
    /// Samples in any order.
    pub readings: Vec<Reading>,
}

impl Series {
    /// Logarithms of the samples that count, by block.
    fn logs(&self) -> BTreeMap<u64, Vec<f64>> {
        let mut logs: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for reading in self.readings.iter().filter(|reading| reading.counts()) {
            logs.entry(reading.block).or_default().push(reading.value.ln());
        }
        logs
    }

    /// Samples that count.
    #[must_use]
    pub fn counted(&self) -> usize {
        self.readings.iter().filter(|reading| reading.counts()).count()
    }

    /// Why samples were left out, one sentence each.
    #[must_use]
    pub fn left_out(&self) -> Vec<String> {
        let reason = |reading: &Reading| match &reading.doubt {
            Some(doubt) => Some(doubt.clone()),
            // A count per query that is zero is a fact, but has no place on a logarithmic scale.
            None if reading.value == 0.0 => None,
            None if !reading.counts() => Some(format!("{} is no positive number", reading.value)),
            None => None,
        };
        self.readings
            .iter()
            .filter_map(|reading| reason(reading).map(|reason| format!("{} {} round {}: {reason}", self.cell, self.step, reading.block)))
            .collect()
    }
}

impl Reading {
    fn counts(&self) -> bool {
        self.doubt.is_none() && self.value.is_finite() && self.value > 0.0
    }
}

/// The difference of two series on the log scale, before its variance is judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Contrast {
    /// Mean of ln(value) - ln(base).
    pub difference: f64,
    /// Mean of ln(base).
    pub base: f64,
    /// Variance of one observation (a block's difference, or one sample).
    pub variance: f64,
    /// Degrees of freedom of `variance`.
    pub freedom: f64,
    /// Variance of `difference` is `variance` times this.
    pub factor: f64,
    /// Observations a side that would give `factor` = `per` / n.
    pub per: f64,
}

fn mean(values: &[f64]) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a number of samples")]
    let count = values.len() as f64;
    values.iter().sum::<f64>() / count
}

fn squares(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

/// Sets two series against each other. Where they share at least two blocks, differences within
/// blocks are the observations and drift cancels; otherwise all samples of both sides are.
pub(super) fn contrast(base: &Series, other: &Series) -> Option<Contrast> {
    let (base, other) = (base.logs(), other.logs());
    let flat = |logs: &BTreeMap<u64, Vec<f64>>| logs.values().flatten().copied().collect::<Vec<_>>();
    let (all_base, all_other) = (flat(&base), flat(&other));
    if all_base.is_empty() || all_other.is_empty() {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "numbers of samples")]
    let count = |values: &[f64]| values.len() as f64;
    let differences: Vec<f64> = base.iter().filter_map(|(block, base)| Some(mean(other.get(block)?) - mean(base))).collect();
    let paired = differences.len() >= 2 && 2 * differences.len() >= base.len().max(other.len());
    Some(if paired {
        let n = count(&differences);
        Contrast {
            difference: mean(&differences),
            base: mean(&all_base),
            variance: squares(&differences) / (n - 1.0),
            freedom: n - 1.0,
            factor: 1.0 / n,
            per: 1.0,
        }
    } else {
        let (n, m) = (count(&all_base), count(&all_other));
        let freedom = n + m - 2.0;
        let variance = if freedom > 0.0 { (squares(&all_base) + squares(&all_other)) / freedom } else { f64::NAN };
        Contrast { difference: mean(&all_other) - mean(&all_base), base: mean(&all_base), variance, freedom, factor: 1.0 / n + 1.0 / m, per: 2.0 }
    })
}
