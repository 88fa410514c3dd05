//! What to measure next: the class whose readings tell most per second.

use super::builds::Builds;
use super::model::Belief;
use super::question::{Evidence, Question};
use super::range::{Range, floors};

/// Numbers of further restarts of a class that are weighed against each other. A build pays off by
/// all the readings it will give, not by the first one alone.
const FURTHER: [f64; 5] = [1.0, 2.0, 4.0, 8.0, 16.0];
/// Points at which the information of a class without readings is computed exactly.
const TABLE: usize = 64;

/// A proposal.
pub(super) struct Choice {
    pub class: usize,
    /// Bits that the next reading is expected to tell.
    pub bits: f64,
    /// Seconds until then.
    pub seconds: f64,
}

/// What a reading of a class can tell apart, on the log scale.
struct Levels {
    delta: f64,
    noise: f64,
    /// Variance that repetitions of one build do not average out: its layout, and how well the two
    /// levels themselves are known.
    lasting: f64,
}

impl Levels {
    fn new(question: &Question, belief: &Belief) -> Self {
        let (mean, deviation) = belief.posterior.delta.unwrap_or((0.0, 0.0));
        let layout = belief.posterior.tau.powi(2);
        Self { delta: mean.max(floors(question).0).max(1e-9), noise: belief.posterior.sigma.powi(2), lasting: layout + deviation * deviation / 4.0 }
    }

    /// Separation of the levels, in standard deviations of what `more` readings add to `count`.
    fn separation(&self, count: f64, more: f64) -> f64 {
        let precision = |count: f64| if count > 0.0 { 1.0 / (self.lasting + self.noise / count) } else { 0.0 };
        self.delta * (precision(count + more) - precision(count)).max(0.0).sqrt()
    }
}

/// The class to measure next among those that `affordable` (seconds) accepts; `None` when there is
/// none whose reading could tell anything.
pub(super) fn choose(question: &Question, evidence: &Evidence, range: &Range, belief: &Belief, affordable: impl Fn(f64) -> bool) -> Option<Choice> {
    let builds = Builds::new(range, evidence);
    let levels = Levels::new(question, belief);
    let after = after_change(question, range, belief);
    let restart = evidence.restart_seconds.max(1e-3);
    let fresh: Vec<Table> = FURTHER.iter().map(|more| Table::new(levels.separation(0.0, *more))).collect();
    let mut best: Option<(f64, Choice)> = None;
    for (class, failure) in builds.testable() {
        let Some(p) = range.classes.binary_search(&class).ok().and_then(|at| after.get(at).copied()) else { continue };
        #[expect(clippy::cast_precision_loss, reason = "a number of readings")]
        let count = belief.measured.binary_search(&class).map_or(0.0, |at| belief.counts[at] as f64);
        let build = if builds.is_made(class) { 0.0 } else { evidence.build_seconds.max(0.0) };
        let bits = |at: usize| if count > 0.0 { information(p, levels.separation(count, FURTHER[at])) } else { fresh[at].at(p) };
        let works = 1.0 - failure;
        let worth = (0..FURTHER.len()).map(|at| works * bits(at) / (build + works * FURTHER[at] * restart)).fold(0.0, f64::max);
        if worth <= 1e-12 || !affordable(build + restart) {
            continue;
        }
        // Equal worth is settled by the seed, so that equal questions have equal answers.
        let better = best.as_ref().is_none_or(|(most, other)| {
            let equal = (worth - most).abs() <= 1e-9 * most;
            if equal { tie(question.seed, class) > tie(question.seed, other.class) } else { worth > *most }
        });
        if better {
            best = Some((worth, Choice { class, bits: bits(0), seconds: build + restart }));
        }
    }
    best.map(|(_, choice)| choice)
}

/// For each class of the range, the probability that it has the changed behaviour.
fn after_change(question: &Question, range: &Range, belief: &Belief) -> Vec<f64> {
    let mut after = vec![0.0; range.classes.len()];
    for (commit, mass) in question.commits.iter().zip(&belief.posterior.commits) {
        if let Ok(at) = range.classes.binary_search(&commit.class) {
            after[at] += mass;
        }
    }
    let mut sum = 0.0;
    for value in &mut after {
        sum += *value;
        *value = f64::clamp(sum, 0.0, 1.0);
    }
    after
}

fn tie(seed: u64, class: usize) -> [u8; 32] {
    blake3::hash(format!("{seed} {class}").as_bytes()).into()
}

/// The information of readings with a given separation, by the probability of the label.
struct Table(Vec<f64>);

impl Table {
    fn new(separation: f64) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a table of a few points")]
        Self((0..=TABLE).map(|at| information(at as f64 / TABLE as f64, separation)).collect())
    }

    /// Linear between the points: the order of the classes is what counts.
    fn at(&self, p: f64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a table of a few points")]
        let position = p.clamp(0.0, 1.0) * TABLE as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the size of the table")]
        let below = (position.floor() as usize).min(TABLE - 1);
        #[expect(clippy::cast_precision_loss, reason = "a table of a few points")]
        let share = position - below as f64;
        self.0[below] * (1.0 - share) + self.0[below + 1] * share
    }
}

/// Bits that a normal reading tells about a label that is 1 with probability `p`, when the levels
/// are `d` standard deviations apart: the entropy of the label less the entropy that is expected to
/// remain, by the trapezoid rule.
fn information(p: f64, d: f64) -> f64 {
    if !(p > 0.0 && p < 1.0 && d > 0.0) {
        return 0.0;
    }
    let entropy = -(p * p.log2() + (1.0 - p) * (1.0 - p).log2());
    if d > 12.0 {
        return entropy;
    }
    let steps = 60;
    let width = (d + 10.0) / f64::from(steps);
    let density = |z: f64| (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt();
    let remaining: f64 = (0..=steps)
        .map(|step| {
            let y = width * f64::from(step) - 5.0;
            let (zero, one) = ((1.0 - p) * density(y), p * density(y - d));
            let sum = zero + one;
            let part = |mass: f64| if mass > 0.0 { -mass * (mass / sum).log2() } else { 0.0 };
            (part(zero) + part(one)) * width
        })
        .sum();
    (entropy - remaining).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn information_agrees_with_the_known_capacity() {
        // Capacity of the binary-input Gaussian channel at even odds, in bits.
        for (d, wanted) in [(0.5, 0.044), (1.0, 0.161), (2.0, 0.486), (4.0, 0.913)] {
            assert!((information(0.5, d) - wanted).abs() < 0.003, "{d}: {}", information(0.5, d));
        }
        assert!((information(0.5, 20.0) - 1.0).abs() < 1e-9 && information(0.0, 3.0) == 0.0 && information(1.0, 3.0) == 0.0);
    }

    #[test]
    fn the_table_keeps_to_the_function() {
        for d in [0.5, 2.0, 6.0] {
            let table = Table::new(d);
            for p in [0.0, 0.013, 0.2, 0.5, 0.77, 1.0] {
                assert!((table.at(p) - information(p, d)).abs() < 0.02, "{p} {d}");
            }
        }
    }

    #[test]
    fn readings_of_one_build_tell_less_and_less() {
        let levels = Levels { delta: 0.05, noise: 0.01_f64.powi(2), lasting: 0.003_f64.powi(2) };
        let gains: Vec<f64> = (0..6).map(|count| levels.separation(f64::from(count), 1.0)).collect();
        assert!(gains.is_sorted_by(|one, other| one > other) && gains[5] > 0.0, "{gains:?}");
    }
}
