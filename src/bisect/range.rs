//! The range of a question: its builds, its priors, and which way is expected.

use crate::measure::Worse;

use super::question::{Expect, Question};

/// A question's commits by build.
pub(super) struct Range {
    /// Distinct classes, ascending; the first is the good end and the last the bad end.
    pub classes: Vec<usize>,
    /// Prior probability of each commit to be the culprit, given that there is one. Zero for the
    /// good end and for a commit that has the build of the one before it, whatever the question says.
    pub weights: Vec<f64>,
}

impl Range {
    /// `None` when all commits are one build: nothing can have changed.
    pub fn new(question: &Question) -> Option<Self> {
        let mut classes: Vec<usize> = question.commits.iter().map(|commit| commit.class).collect();
        classes.dedup();
        if classes.len() < 2 || !classes.is_sorted() {
            return None;
        }
        let changes = |index: usize| index > 0 && question.commits[index].class != question.commits[index - 1].class;
        let weight = |index: usize| Some(question.commits[index].prior).filter(|prior| changes(index) && prior.is_finite() && *prior > 0.0).unwrap_or(0.0);
        let mut weights: Vec<f64> = (0..question.commits.len()).map(weight).collect();
        if weights.iter().sum::<f64>() <= 0.0 {
            weights = (0..question.commits.len()).map(|index| f64::from(u8::from(changes(index)))).collect();
        }
        // The largest goes first, so that the sum of huge weights stays finite.
        let largest = weights.iter().copied().fold(0.0, f64::max);
        let total: f64 = weights.iter().map(|weight| weight / largest).sum();
        Some(Self { classes, weights: weights.into_iter().map(|weight| weight / largest / total).collect() })
    }

    /// The good end.
    pub fn good(&self) -> usize {
        self.classes[0]
    }

    /// The bad end.
    pub fn bad(&self) -> usize {
        self.classes[self.classes.len() - 1]
    }

    /// True for either end.
    pub fn is_end(&self, class: usize) -> bool {
        class == self.good() || class == self.bad()
    }
}

/// +1 when the expected change makes the metric larger, else -1.
pub(super) fn sign(question: &Question) -> f64 {
    let up = (question.worse == Worse::Higher) == (question.expect == Expect::Regression);
    if up { 1.0 } else { -1.0 }
}

/// The floor on the log scale, in the expected and in the other direction, both positive: a rise to
/// 1 + floor and a fall to 1 - floor are not equally far from zero there.
pub(super) fn floors(question: &Question) -> (f64, f64) {
    let floor = if question.floor.is_finite() { question.floor.clamp(0.0, 0.9) } else { 0.0 };
    let (rise, fall) = (floor.ln_1p(), -(-floor).ln_1p());
    if sign(question) > 0.0 { (rise, fall) } else { (fall, rise) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bisect::Candidate;

    fn question(commits: &[(usize, f64)]) -> Question {
        Question {
            commits: commits.iter().map(|(class, prior)| Candidate { class: *class, prior: *prior }).collect(),
            worse: Worse::Higher,
            expect: Expect::Regression,
            floor: 0.02,
            confidence: 0.95,
            seed: 0,
            most_restarts: 24,
        }
    }

    #[test]
    fn a_commit_that_builds_the_same_has_no_weight_whatever_its_prior() {
        let range = Range::new(&question(&[(0, 9.0), (1, 1.0), (1, 5.0), (2, 3.0)])).unwrap();
        assert_eq!((range.classes.as_slice(), range.weights.as_slice()), ([0, 1, 2].as_slice(), [0.0, 0.25, 0.0, 0.75].as_slice()));
    }

    #[test]
    fn without_a_usable_prior_all_changing_commits_are_alike() {
        for prior in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Range::new(&question(&[(0, 0.0), (1, prior), (2, prior)])).unwrap().weights, [0.0, 0.5, 0.5]);
        }
        assert!(Range::new(&question(&[(0, 0.0), (1, f64::MAX), (2, f64::MAX)])).unwrap().weights.iter().sum::<f64>() > 0.99);
    }

    #[test]
    fn one_build_or_none_is_no_range() {
        assert!(Range::new(&question(&[(3, 1.0), (3, 1.0)])).is_none() && Range::new(&question(&[])).is_none());
    }

    #[test]
    fn the_floor_is_a_fraction_of_the_value_in_both_directions() {
        let mut question = question(&[(0, 0.0), (1, 1.0)]);
        question.floor = 0.5;
        assert!((floors(&question).0 - 1.5_f64.ln()).abs() < 1e-12 && (floors(&question).1 - 2_f64.ln()).abs() < 1e-12);
        question.worse = Worse::Lower;
        assert!((floors(&question).0 - 2_f64.ln()).abs() < 1e-12 && sign(&question) < 0.0);
    }
}
