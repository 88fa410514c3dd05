//! The answer of a comparison, in the shape that `compare --json` prints.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::measure::Metric;

/// What an interval allows us to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The whole interval lies beyond the floor, on the worse side.
    Regression,
    /// The whole interval lies beyond the floor, on the better side.
    Improvement,
    /// The whole interval lies within the floor on both sides.
    Same,
    /// None of these: more restarts are needed.
    Undecided,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Regression => "regression",
            Self::Improvement => "improvement",
            Self::Same => "same",
            Self::Undecided => "undecided",
        })
    }
}

/// One step of one cell against the base.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the cell compared.
    pub cell: String,
    /// Name of the cell it is compared with.
    pub base_cell: String,
    /// Step.
    pub step: String,
    /// Group of the step, such as `point-1`.
    pub group: String,
    /// Metric.
    pub metric: Metric,
    /// Geometric mean of the base's samples, in the metric's unit.
    pub base: f64,
    /// Geometric mean of the cell's samples, in the metric's unit.
    pub value: f64,
    /// value / base.
    pub relative: f64,
    /// 95% confidence interval of `relative`; `None` with fewer than two restarts a side.
    pub ci95: Option<[f64; 2]>,
    /// Restarts of the cell that count.
    pub n: usize,
    /// Restarts of the base that count.
    pub n_base: usize,
    /// What the interval allows us to say.
    pub verdict: Verdict,
    /// Restarts a side that would be needed to see a difference as small as the floor.
    pub restarts_needed: Option<usize>,
}

/// Relative values of the steps of one group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupSummary {
    /// Name of the cell compared.
    pub cell: String,
    /// Group of steps.
    pub group: String,
    /// Metric.
    pub metric: Metric,
    /// Smallest relative value of the group's steps.
    pub min: f64,
    /// Largest relative value.
    pub max: f64,
    /// Arithmetic mean (`facts/metrics.md` section 2.3).
    pub avg: f64,
    /// Median; the mean of the middle two for an even number of steps.
    pub median: f64,
}

/// A whole comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Name of the base cell, or of the axis value taken as base in an `--axis` comparison.
    pub base: String,
    /// Effect floor as a fraction: 0.02 is 2%.
    pub floor: f64,
    /// One row per cell, step and metric.
    pub rows: Vec<Row>,
    /// One row per cell, group and metric.
    pub groups: Vec<GroupSummary>,
    /// Samples left out, each with its reason.
    pub left_out: Vec<String>,
}
