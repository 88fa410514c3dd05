//! The answer of a search with names and numbers, in the shape that `bisect --json` prints.

use serde::{Deserialize, Serialize};

use crate::measure::Metric;

use super::question::Outcome;

/// One class that was built or measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tested {
    /// First commit of the class.
    pub commit: String,
    /// Its subject.
    pub subject: String,
    /// `good`, `bad`, `unclear`, `unbuildable`, or `built`.
    pub state: String,
    /// Readings that count.
    pub samples: usize,
    /// Geometric mean of them.
    pub mean: Option<f64>,
    /// Why it could not be built or measured.
    pub message: Option<String>,
}

/// The answer of a search, in the shape that `bisect --json` prints.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SearchReport {
    /// Number of the search.
    pub id: i64,
    /// How it ended.
    pub outcome: Outcome,
    /// The commit, when one is named.
    pub culprit: Option<Named>,
    /// Probability of what is answered.
    pub posterior: f64,
    /// Commits that remain, likeliest first.
    pub suspects: Vec<Suspect>,
    /// Size of the change.
    pub effect: Option<Measured>,
    /// Classes that were built or measured.
    pub tested: Vec<Tested>,
    /// What it took.
    pub cost: Cost,
    /// Probability that nothing changed.
    pub no_change: f64,
    /// Further restarts of each end that would decide.
    pub restarts_needed: Option<usize>,
    /// In a sentence.
    pub why: String,
    /// Commits of the range, along first parents and in all.
    pub range: Range,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// A commit by id and subject.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Named {
    /// Full id.
    pub commit: String,
    /// First line of the message.
    pub subject: String,
}

/// A commit with its probability.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Suspect {
    /// Full id.
    pub commit: String,
    /// First line of the message.
    pub subject: String,
    /// Probability that the change is there.
    pub probability: f64,
}

/// Size of a change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Metric.
    pub metric: Metric,
    /// Step.
    pub step: String,
    /// After / before.
    pub relative: f64,
    /// 95% interval of it.
    pub ci95: [f64; 2],
}

/// What a search took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Cost {
    /// Builds made, failed ones included.
    pub builds: usize,
    /// Builds that were in the cache.
    pub hits: usize,
    /// Restarts.
    pub runs: usize,
    /// Seconds of builds and restarts.
    pub seconds: f64,
}

/// Size of the range.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Range {
    /// Commits that can be blamed, along first parents.
    pub commits: usize,
    /// Of these, commits that change something which is built.
    pub builds: usize,
    /// Commits when merged branches are counted too.
    pub all: usize,
}
