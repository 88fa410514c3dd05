//! Which classes can be built: what is known, and what their neighbours suggest.
//!
//! Broken commits come in stretches whose length nobody knows. The chance that a stretch which is
//! known to span w classes reaches d further is taken as w / (w + d), the rule for a length without
//! a typical size: so probes step away from a failure in growing strides, and a long stretch costs
//! a number of failed builds that grows with the logarithm of its length.

use std::collections::BTreeSet;

use super::question::Evidence;
use super::range::Range;
use super::readings::usable;

/// Chance that a class far from every known failure cannot be built.
const RARE_FAILURE: f64 = 0.02;
/// Failed builds of one stretch after which the classes that are likely broken too are left alone.
const PATIENCE: usize = 6;
/// Chance of failure from which they are.
const LIKELY_BROKEN: f64 = 0.6;

/// What is known of a class.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unknown,
    Builds,
    Broken,
}

/// The classes of a range with what is known of their builds.
pub(super) struct Builds<'a> {
    classes: &'a [usize],
    states: Vec<State>,
    /// Classes whose build is there.
    made: BTreeSet<usize>,
}

/// The nearest known class on one side of an unknown one.
#[derive(Clone, Copy)]
enum Side {
    /// It builds, at this distance.
    Builds(f64),
    /// It is broken, at this distance; the stretch it belongs to spans so many classes and has so
    /// many known failures.
    Broken { distance: f64, span: f64, failures: usize },
    /// There is none.
    Nothing,
}

impl<'a> Builds<'a> {
    /// A class that was measured has a build; one that cannot be built has none, whatever else is
    /// said of it.
    pub fn new(range: &'a Range, evidence: &Evidence) -> Self {
        let measured = evidence.readings.iter().filter(|reading| usable(reading)).map(|reading| reading.class);
        let made: BTreeSet<usize> = evidence.built.iter().copied().chain(measured).filter(|class| !evidence.unbuildable.contains(class)).collect();
        let state = |class: &usize| match (evidence.unbuildable.contains(class), range.is_end(*class) || made.contains(class)) {
            (true, _) => State::Broken,
            (false, true) => State::Builds,
            (false, false) => State::Unknown,
        };
        Self { classes: &range.classes, states: range.classes.iter().map(state).collect(), made }
    }

    /// True when a build is there and costs nothing.
    pub fn is_made(&self, class: usize) -> bool {
        self.made.contains(&class)
    }

    /// Classes worth trying, each with the chance that its build fails.
    pub fn testable(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        (0..self.classes.len()).filter_map(|at| match self.states[at] {
            State::Broken => None,
            State::Builds => Some((self.classes[at], 0.0)),
            State::Unknown => {
                let (chance, failures) = self.failure(at);
                (failures < PATIENCE || chance < LIKELY_BROKEN).then_some((self.classes[at], chance))
            }
        })
    }

    /// Chance that an unknown class is broken, and the failures of the stretch next to it.
    fn failure(&self, at: usize) -> (f64, usize) {
        let reach = |span: f64, distance: f64| span / (span + distance);
        match (self.side((0..at).rev(), at), self.side(at + 1..self.classes.len(), at)) {
            // Between two failures: either stretch may reach it.
            (Side::Broken { distance: left, span: left_span, failures: left_failures }, Side::Broken { distance: right, span: right_span, failures }) => {
                let spared = (1.0 - reach(left_span, left)) * (1.0 - reach(right_span, right));
                ((1.0 - spared).max(RARE_FAILURE), left_failures + failures)
            }
            // Between a failure and a build the stretch ends somewhere, anywhere alike.
            (Side::Broken { distance, span, failures }, Side::Builds(free)) | (Side::Builds(free), Side::Broken { distance, span, failures }) => {
                ((reach(span, distance) * free / (free + distance)).max(RARE_FAILURE), failures)
            }
            (Side::Broken { distance, span, failures }, Side::Nothing) | (Side::Nothing, Side::Broken { distance, span, failures }) => {
                (reach(span, distance).max(RARE_FAILURE), failures)
            }
            _ => (RARE_FAILURE, 0),
        }
    }

    /// Looks along `path` for the nearest known class, and through its stretch if it is broken.
    fn side(&self, path: impl Iterator<Item = usize>, from: usize) -> Side {
        #[expect(clippy::cast_precision_loss, reason = "a number of commits")]
        let distance = |at: usize, to: usize| at.abs_diff(to) as f64;
        let mut nearest = None;
        let (mut last, mut failures) = (from, 0);
        for at in path {
            match (self.states[at], nearest) {
                (State::Builds, None) => return Side::Builds(distance(from, at)),
                (State::Builds, Some(_)) => break,
                (State::Broken, _) => {
                    nearest = nearest.or(Some(at));
                    last = at;
                    failures += 1;
                }
                (State::Unknown, _) => {}
            }
        }
        nearest.map_or(Side::Nothing, |at| Side::Broken { distance: distance(from, at), span: distance(at, last) + 1.0, failures })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(classes: usize) -> Range {
        Range { classes: (0..classes).collect(), weights: vec![0.0; classes] }
    }

    fn chance(range: &Range, built: &[usize], broken: &[usize], class: usize) -> f64 {
        let evidence = Evidence { built: built.iter().copied().collect(), unbuildable: broken.iter().copied().collect(), ..Evidence::default() };
        Builds::new(range, &evidence).testable().find(|(other, _)| *other == class).unwrap().1
    }

    #[test]
    fn failures_are_expected_near_failures_and_less_so_farther_away() {
        let range = range(101);
        let near: Vec<f64> = [51, 53, 60, 70, 99].map(|class| chance(&range, &[], &[50], class)).to_vec();
        assert!(near.is_sorted_by(|one, other| one > other) && near[0] > 0.45 && near[4] == RARE_FAILURE, "{near:?}");
        assert!(chance(&range, &[], &[40, 50], 53) > chance(&range, &[], &[50], 53), "a longer stretch reaches farther");
        assert_eq!(chance(&range, &[55], &[50], 60), RARE_FAILURE, "a build between shields it");
        assert!(chance(&range, &[], &[50, 54], 52) > chance(&range, &[], &[50], 52), "between two failures");
        assert_eq!(chance(&range, &[7], &[50], 7), 0.0, "what is built builds");
    }

    #[test]
    fn a_stretch_that_cost_enough_is_left_alone() {
        let range = range(101);
        let evidence = Evidence { unbuildable: (40..46).chain([60]).collect(), ..Evidence::default() };
        let testable: Vec<usize> = Builds::new(&range, &evidence).testable().map(|(class, _)| class).collect();
        assert!(!testable.contains(&46) && !testable.contains(&59) && !testable.contains(&42));
        assert!(testable.contains(&80) && testable.contains(&10) && testable.contains(&0) && testable.contains(&100));
    }
}
