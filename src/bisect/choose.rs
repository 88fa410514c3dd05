//! What to measure next: the class whose reading tells most per second.

use std::collections::{BTreeMap, BTreeSet};

use super::model::Posterior;
use super::question::{Evidence, Question};

/// Chance that a class far from every known failure cannot be built.
const RARE_FAILURE: f64 = 0.02;
/// Chance that a class between two failures cannot be built.
const SURE_FAILURE: f64 = 0.98;

/// Distinct classes in order, each with the probability that the change is at or before it.
fn changed_by_class(question: &Question, posterior: &Posterior) -> BTreeMap<usize, f64> {
    let mut sum = 0.0;
    let mut by_class = BTreeMap::new();
    for (commit, mass) in question.commits.iter().zip(&posterior.commits) {
        sum += mass;
        by_class.insert(commit.class, sum);
    }
    by_class
}

/// The class to measure, and how many bits its reading is expected to tell; `None` when every class
/// is unbuildable.
pub fn choose(question: &Question, evidence: &Evidence, posterior: &Posterior) -> Option<(usize, f64)> {
    let mut readings: BTreeMap<usize, f64> = BTreeMap::new();
    for reading in &evidence.readings {
        *readings.entry(reading.class).or_default() += 1.0;
    }
    let delta = posterior.delta.0.max(question.floor.ln_1p());
    let tested: BTreeSet<usize> = evidence.built.iter().chain(readings.keys()).copied().collect();
    let mut best: Option<(usize, f64, f64)> = None;
    for (class, changed) in changed_by_class(question, posterior) {
        if evidence.unbuildable.contains(&class) {
            continue;
        }
        let separation = separation(delta, posterior, readings.get(&class).copied().unwrap_or(0.0));
        let bits = information(changed.clamp(0.0, 1.0), separation);
        let failure = if tested.contains(&class) { 0.0 } else { failure_chance(class, &tested, &evidence.unbuildable) };
        let build = if tested.contains(&class) { 0.0 } else { evidence.build_seconds };
        let cost = build + (1.0 - failure) * 2.0 * evidence.restart_seconds + 1e-9;
        let worth = bits * (1.0 - failure) / cost;
        // Equal worth: the seed decides, so that equal questions have equal answers.
        let better = best.is_none_or(|(other, _, most)| {
            worth > most * (1.0 + 1e-9) || ((worth - most).abs() <= most * 1e-9 && tie(question.seed, class) > tie(question.seed, other))
        });
        if better {
            best = Some((class, bits, worth));
        }
    }
    best.map(|(class, bits, _)| (class, bits))
}

fn tie(seed: u64, class: usize) -> u64 {
    let bytes = blake3::hash(format!("{seed} {class}").as_bytes());
    u64::from_le_bytes(bytes.as_bytes()[..8].try_into().unwrap_or_default())
}

/// Distance between the two levels in standard deviations of what one more reading of a class with
/// `count` readings adds. Its build's own offset is the same each time, so repetitions tell less and
/// less.
fn separation(delta: f64, posterior: &Posterior, count: f64) -> f64 {
    let precision = |count: f64| if count == 0.0 { 0.0 } else { 1.0 / (posterior.tau.powi(2) + posterior.sigma.powi(2) / count) };
    delta * (precision(count + 1.0) - precision(count)).max(0.0).sqrt()
}

/// Bits that a normal reading tells about a label that is 1 with probability `p`, when the levels
/// are `d` standard deviations apart: the entropy of the mixture less that of the noise, by the
/// trapezoid rule.
fn information(p: f64, d: f64) -> f64 {
    if p <= 0.0 || p >= 1.0 || d <= 0.0 {
        return 0.0;
    }
    let entropy = -(p * p.log2() + (1.0 - p) * (1.0 - p).log2());
    if d > 12.0 {
        return entropy;
    }
    let steps = 80;
    let (low, high) = (-6.0, d + 6.0);
    let width = (high - low) / f64::from(steps);
    let density = |z: f64| (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
    // Expected entropy of the label that remains after the reading.
    let remaining: f64 = (0..=steps)
        .map(|step| {
            let y = low + width * f64::from(step);
            let (zero, one) = ((1.0 - p) * density(y), p * density(y - d));
            let sum = zero + one;
            let part = |mass: f64| if mass > 0.0 && sum > 0.0 { -mass * (mass / sum).log2() } else { 0.0 };
            (part(zero) + part(one)) * width
        })
        .sum();
    (entropy - remaining).max(0.0)
}

/// Chance that a class cannot be built, from the nearest tried class on each side: broken commits
/// come in stretches, so between two failures it is almost sure, between two builds rare, and between
/// a failure and a build it falls with the distance from the failure.
fn failure_chance(class: usize, built: &BTreeSet<usize>, unbuildable: &BTreeSet<usize>) -> f64 {
    let below = (built.range(..class).next_back(), unbuildable.range(..class).next_back());
    let above = (built.range(class..).next(), unbuildable.range(class..).next());
    // Distance to the nearest tried class of a side, and whether it failed.
    let below = match below {
        (Some(build), Some(failure)) => Some((class - build.max(failure), failure > build)),
        (Some(build), None) => Some((class - build, false)),
        (None, Some(failure)) => Some((class - failure, true)),
        (None, None) => None,
    };
    let above = match above {
        (Some(build), Some(failure)) => Some((build.min(failure) - class, failure < build)),
        (Some(build), None) => Some((build - class, false)),
        (None, Some(failure)) => Some((failure - class, true)),
        (None, None) => None,
    };
    match (below, above) {
        (Some((_, true)), Some((_, true))) => SURE_FAILURE,
        (Some((failure, true)), Some((build, false))) | (Some((build, false)), Some((failure, true))) => {
            #[expect(clippy::cast_precision_loss, reason = "distances between commits")]
            let share = build as f64 / (build + failure) as f64;
            share.clamp(RARE_FAILURE, SURE_FAILURE)
        }
        (Some((_, true)), None) | (None, Some((_, true))) => 0.9,
        _ => RARE_FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn information_agrees_with_the_known_capacity() {
        // peers.md section 4.3: C(1) = 0.161, C(2) = 0.486, C(4) = 0.913 bits at even odds.
        for (d, wanted) in [(1.0, 0.161), (2.0, 0.486), (4.0, 0.913)] {
            assert!((information(0.5, d) - wanted).abs() < 0.003, "{d}: {}", information(0.5, d));
        }
        assert!((information(0.5, 20.0) - 1.0).abs() < 1e-9 && information(0.0, 3.0) == 0.0 && information(1.0, 3.0) == 0.0);
    }

    #[test]
    fn failures_are_expected_near_failures() {
        let built = BTreeSet::from([0, 100]);
        let broken = BTreeSet::from([50]);
        let chance = |class| failure_chance(class, &built, &broken);
        assert!(chance(49) > 0.9 && chance(5) < 0.2 && chance(25) > chance(10));
        assert!((failure_chance(20, &BTreeSet::from([0, 30, 100]), &broken) - RARE_FAILURE).abs() < 1e-12, "a build between shields it");
        assert!((failure_chance(60, &built, &BTreeSet::from([50, 70])) - SURE_FAILURE).abs() < 1e-12, "between two failures");
    }
}
