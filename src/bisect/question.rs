//! What is asked, what is known, and what comes out.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::measure::Worse;

/// Which kind of change is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expect {
    /// The metric got worse.
    Regression,
    /// The metric got better.
    Improvement,
}

/// One commit of the range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Commits of equal class are one and the same build. Classes never fall along the history, and
    /// a commit that changes nothing which is compiled has the class of the commit before it.
    pub class: usize,
    /// Relative weight of "this is the commit" before anything is measured. Zero for a commit that
    /// has the class of the one before it.
    pub prior: f64,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The range: the first one is the good end, the last one the bad end.
    pub commits: Vec<Candidate>,
    /// Which way the metric gets worse.
    pub worse: Worse,
    /// Which kind of change is looked for.
    pub expect: Expect,
    /// Smallest effect of interest, as a fraction.
    pub floor: f64,
    /// Probability at which a commit is named.
    pub confidence: f64,
    /// Breaks ties and orders pairs.
    pub seed: u64,
    /// Restarts of each end after which an undecided certificate is given up.
    pub most_restarts: usize,
}

/// One reading: the metric in one restart of one class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// Which build.
    pub class: usize,
    /// Order in time over the whole search.
    pub sequence: u64,
    /// Unbroken sitting; the host may have changed between two of them.
    pub session: u64,
    /// In the metric's unit.
    pub value: f64,
}

/// What is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Readings in any order.
    pub readings: Vec<Reading>,
    /// Classes that cannot be built.
    pub unbuildable: BTreeSet<usize>,
    /// Classes whose build is there already.
    pub built: BTreeSet<usize>,
    /// Seconds that a build takes.
    pub build_seconds: f64,
    /// Seconds that a restart with its step takes.
    pub restart_seconds: f64,
    /// Seconds spent so far.
    pub spent_seconds: f64,
    /// Seconds after which the search must end.
    pub budget_seconds: Option<f64>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// One restart of each of these classes, in this order.
    Measure {
        /// What to measure.
        classes: Vec<usize>,
        /// Why, in a sentence.
        why: String,
    },
    /// The search is over.
    Stop(Answer),
}

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// One commit, confirmed.
    Culprit,
    /// Several commits that cannot be told apart, since those between them cannot be built.
    Suspects,
    /// The ends do not differ by the floor in the expected direction.
    NoChange,
    /// The evidence does not suffice.
    Undecided,
}

/// Size of the change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Value after the change / value before it.
    pub relative: f64,
    /// 95% credible interval of it.
    pub ci95: [f64; 2],
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// How it ended.
    pub outcome: Outcome,
    /// Index of the commit; only for [`Outcome::Culprit`].
    pub culprit: Option<usize>,
    /// Probability of what is answered: of the culprit, the set of suspects, or no change.
    pub posterior: f64,
    /// Commits of the smallest set with 99% of the probability of a change, likeliest first.
    pub suspects: Vec<(usize, f64)>,
    /// Size of the change, or of the ends' difference.
    pub effect: Option<Effect>,
    /// Further restarts of each end that would decide, where the ends are what is undecided.
    pub restarts_needed: Option<usize>,
    /// In a sentence.
    pub why: String,
}
