//! The posterior over "the change is at commit c" and "there is no change".
//!
//! On the log scale, and with the sign turned so that the expected change is upward, a reading is
//!
//! ```text
//! y = level + delta * [class is at or after the change] + build + drift + noise
//! ```
//!
//! - `level` has a flat prior and is integrated out;
//! - `delta` is at least the floor: a mixture of half-normals with scales of 3, 10 and 40 per cent,
//!   cut off at the floor. Under "no change" it is zero, or below the floor at an unknown place, so
//!   that a change too small to matter does not pass for one that does;
//! - `build` ~ N(0, tau^2) is shared by all readings of a class: code layout. tau is 0.2, 0.5, 1 or
//!   2 per cent with prior 0.35, 0.35, 0.2, 0.1;
//! - `drift` is a random walk within a session, with 0, 0.1 or 0.5 times the noise's standard
//!   deviation a step, and an offset of its own for each session;
//! - `noise` ~ N(0, sigma^2), sigma on a grid from 0.05 to 30 per cent with a log-normal prior around
//!   2 per cent. A reading that lies far from its class' median counts as noisier than the others, so
//!   heavy tails do not pass for changes.
//!
//! Commits between two measured classes have the same likelihood and share its mass by their
//! priors, so only as many hypotheses are computed as there are measured classes.

use std::collections::BTreeMap;

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};
use statrs::function::erf::erfc;

use crate::measure::Worse;

use super::question::{Effect, Evidence, Expect, Question, Reading};

/// Prior probability that nothing changed. Searches are started on suspicion, and four in ten of
/// those of a large company had no culprit (Henderson et al., ICST 2023).
const NO_CHANGE: f64 = 0.3;
/// Build-to-build standard deviation and its prior.
const TAU: [(f64, f64); 4] = [(0.002, 0.35), (0.005, 0.35), (0.01, 0.2), (0.02, 0.1)];
/// Drift per step in units of the noise's standard deviation, and its prior.
const DRIFT: [(f64, f64); 3] = [(0.0, 0.45), (0.1, 0.35), (0.5, 0.2)];
/// Standard deviation of a session's offset, in units of the noise's.
const SESSION: f64 = 2.0;
/// Scales of the effect's prior.
const SCALES: [f64; 3] = [0.03, 0.1, 0.4];
/// Ends and points of the noise's grid.
const SIGMA: (f64, f64, usize) = (0.0005, 0.3, 28);
/// Centre of the noise's prior, and the width of its logarithm: 95% of hosts between 0.2 and 20%.
const SIGMA_PRIOR: (f64, f64) = (0.02, 1.15);
/// Distance from the median, in robust standard deviations, beyond which a reading counts less.
const OUTLIER: f64 = 2.5;

/// What is believed after the evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Posterior {
    /// Per commit; the first one cannot be a culprit and has zero.
    pub commits: Vec<f64>,
    /// Nothing changed.
    pub no_change: f64,
    /// Mean and standard deviation of `delta` under the likeliest place of the change.
    pub delta: (f64, f64),
    /// Probability that `delta` exceeds the floor, from the ends alone.
    pub beyond: f64,
    /// Probability that it exceeds the floor in the other direction, from the ends alone.
    pub opposite: f64,
    /// The noise's standard deviation, posterior mean.
    pub sigma: f64,
    /// The builds' standard deviation, posterior mean.
    pub tau: f64,
}

impl Posterior {
    /// The change's size in the metric's own direction.
    #[must_use]
    pub fn effect(&self, question: &Question) -> Effect {
        let sign = sign(question);
        let (mean, deviation) = self.delta;
        let ends = [sign * (mean - 1.96 * deviation), sign * (mean + 1.96 * deviation)];
        Effect { relative: (sign * mean).exp(), ci95: [ends[0].min(ends[1]).exp(), ends[0].max(ends[1]).exp()] }
    }
}

/// +1 when the expected change makes the metric larger.
fn sign(question: &Question) -> f64 {
    let up = (question.worse == Worse::Higher) == (question.expect == Expect::Regression);
    if up { 1.0 } else { -1.0 }
}

/// Readings ready for the model.
struct Data {
    classes: Vec<usize>,
    y: DVector<f64>,
    /// Noise variance of each reading in units of sigma^2.
    spread: Vec<f64>,
    sessions: Vec<u64>,
    order: Vec<f64>,
    /// First guess of sigma.
    scale: f64,
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) { f64::midpoint(values[middle - 1], values[middle]) } else { values[middle] }
}

impl Data {
    /// `None` without a usable reading.
    fn new(question: &Question, readings: &[Reading]) -> Option<Self> {
        let mut readings: Vec<Reading> = readings.iter().copied().filter(|reading| reading.value.is_finite() && reading.value > 0.0).collect();
        if readings.is_empty() {
            return None;
        }
        readings.sort_by_key(|reading| reading.sequence);
        let sign = sign(question);
        let y: Vec<f64> = readings.iter().map(|reading| sign * reading.value.ln()).collect();
        let mut by_class: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for (reading, y) in readings.iter().zip(&y) {
            by_class.entry(reading.class).or_default().push(*y);
        }
        let medians: BTreeMap<usize, (f64, usize)> = by_class.into_iter().map(|(class, mut values)| (class, (median(&mut values), values.len()))).collect();
        // Of two readings each is as far from their median as the other, so only larger classes tell an
        // outlier.
        let distances: Vec<Option<f64>> = readings
            .iter()
            .zip(&y)
            .map(|(reading, y)| medians.get(&reading.class).filter(|(_, count)| *count >= 3).map(|(median, _)| (y - median).abs()))
            .collect();
        let mut known: Vec<f64> = distances.iter().flatten().copied().collect();
        // 1.4826 makes the median absolute deviation of normal data its standard deviation.
        let scale = if known.len() >= 6 { 1.4826 * median(&mut known) } else { 0.02 };
        let scale = scale.clamp(SIGMA.0, SIGMA.1);
        let spread = distances.iter().map(|distance| distance.map_or(1.0, |distance| (distance / (OUTLIER * scale)).max(1.0).powi(2))).collect();
        #[expect(clippy::cast_precision_loss, reason = "a count of restarts")]
        let order = (0..readings.len()).map(|at| at as f64).collect();
        Some(Self {
            classes: readings.iter().map(|reading| reading.class).collect(),
            y: DVector::from_vec(y),
            spread,
            sessions: readings.iter().map(|reading| reading.session).collect(),
            order,
            scale,
        })
    }

    /// Covariance in units of sigma^2.
    fn covariance(&self, tau: f64, drift: f64) -> DMatrix<f64> {
        let many_sessions = self.sessions.iter().any(|session| *session != self.sessions[0]);
        DMatrix::from_fn(self.y.len(), self.y.len(), |i, j| {
            let mut value = if i == j { self.spread[i] } else { 0.0 };
            if self.classes[i] == self.classes[j] {
                value += (tau / self.scale).powi(2);
            }
            if self.sessions[i] == self.sessions[j] {
                if many_sessions {
                    value += SESSION * SESSION;
                }
                value += drift * drift * (self.order[i].min(self.order[j]) + 1.0);
            }
            value
        })
    }
}

/// Sums that the likelihood of one hypothesis needs, for one covariance.
struct Sums {
    /// Precision of delta, times sigma^2.
    precision: f64,
    /// Estimate of delta.
    estimate: f64,
}

/// A covariance with what does not depend on the hypothesis.
struct Fitted {
    factor: Cholesky<f64, Dyn>,
    ones: DVector<f64>,
    y: DVector<f64>,
    /// 1' V^-1 1.
    weight: f64,
    /// Half the log determinant.
    determinant: f64,
    /// Residual sum of squares without any change.
    residual: f64,
}

impl Fitted {
    fn new(data: &Data, tau: f64, drift: f64) -> Option<Self> {
        let factor = Cholesky::new(data.covariance(tau, drift))?;
        let lower = factor.l();
        let ones = lower.solve_lower_triangular(&DVector::from_element(data.y.len(), 1.0))?;
        let y = lower.solve_lower_triangular(&data.y)?;
        let weight = ones.dot(&ones);
        let determinant = lower.diagonal().iter().map(|value| value.ln()).sum();
        let residual = (y.dot(&y) - ones.dot(&y).powi(2) / weight).max(0.0);
        Some(Self { factor, ones, y, weight, determinant, residual })
    }

    /// The hypothesis that the readings marked 1 come after the change.
    fn sums(&self, after: &DVector<f64>) -> Option<Sums> {
        let x = self.factor.l().solve_lower_triangular(after)?;
        let cross = self.ones.dot(&x);
        let precision = x.dot(&x) - cross * cross / self.weight;
        // All readings on one side: delta cannot be seen.
        if precision < 1e-9 {
            return Some(Sums { precision: 0.0, estimate: 0.0 });
        }
        Some(Sums { precision, estimate: (x.dot(&self.y) - cross * self.ones.dot(&self.y) / self.weight) / precision })
    }

    /// Log likelihood without any change, the level integrated out, with the prior of sigma.
    fn log_null(&self, sigma: f64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a count of restarts")]
        let free = self.y.len() as f64 - 1.0;
        let prior = -0.5 * ((sigma / SIGMA_PRIOR.0).ln() / SIGMA_PRIOR.1).powi(2);
        prior - free * sigma.ln() - self.determinant - 0.5 * self.weight.ln() - self.residual / (2.0 * sigma * sigma)
    }
}

/// ln of the upper tail of the standard normal distribution.
fn log_tail(z: f64) -> f64 {
    if z < 25.0 {
        (0.5 * erfc(z / std::f64::consts::SQRT_2)).max(f64::MIN_POSITIVE).ln()
    } else {
        // First terms of the asymptotic series (Abramowitz and Stegun 26.2.12).
        -0.5 * z * z - z.ln() - 0.5 * (2.0 * std::f64::consts::PI).ln() + (-1.0 / (z * z)).ln_1p()
    }
}

fn log_sum(values: impl IntoIterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.into_iter().collect();
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if largest.is_finite() { largest + values.iter().map(|value| (value - largest).exp()).sum::<f64>().ln() } else { largest }
}

impl Sums {
    /// ln of the likelihood's factor for a change of at least `floor`, delta integrated over its
    /// prior.
    fn log_change(&self, sigma: f64, floor: f64) -> f64 {
        let (precision, linear) = (self.precision / (sigma * sigma), self.precision * self.estimate / (sigma * sigma));
        let one = |scale: f64| {
            let a = precision + 1.0 / (scale * scale);
            linear * linear / (2.0 * a) + log_tail((floor - linear / a) * a.sqrt()) - log_tail(floor / scale) - 0.5 * a.ln() - scale.ln()
        };
        #[expect(clippy::cast_precision_loss, reason = "three scales")]
        let count = SCALES.len() as f64;
        log_sum(SCALES.map(one)) - count.ln()
    }

    /// The same for a change below the floor in either direction, delta uniform there.
    fn log_small(&self, sigma: f64, floor: f64) -> f64 {
        let precision = self.precision / (sigma * sigma);
        if precision * floor * floor < 1e-6 {
            return 0.0;
        }
        let root = precision.sqrt();
        let (low, high) = ((-floor - self.estimate) * root, (floor - self.estimate) * root);
        // The difference of two tails, taken on the side where they are small.
        let (near, far) = if self.estimate > 0.0 { (-high, -low) } else { (low, high) };
        let (near, far) = (log_tail(near), log_tail(far));
        let mass = near + (-(far - near).exp()).ln_1p().max(-700.0);
        precision * self.estimate * self.estimate / 2.0 + mass + 0.5 * (2.0 * std::f64::consts::PI / precision).ln() - (2.0 * floor).ln()
    }

    /// Mean and variance of delta under a flat prior.
    fn normal(&self, sigma: f64) -> Option<(f64, f64)> {
        (self.precision > 0.0).then(|| (self.estimate, sigma * sigma / self.precision))
    }
}

fn sigma_grid() -> impl Iterator<Item = f64> {
    let (low, high, count) = SIGMA;
    #[expect(clippy::cast_precision_loss, reason = "a grid of a few points")]
    (0..count).map(move |at| low * (high / low).powf(at as f64 / (count - 1) as f64))
}

/// Every combination of the nuisance parameters with its log prior.
fn settings() -> impl Iterator<Item = (f64, f64, f64)> {
    TAU.iter().flat_map(|(tau, tau_prior)| DRIFT.iter().map(move |(drift, drift_prior)| (*tau, *drift, (tau_prior * drift_prior).ln())))
}

/// The posterior after the evidence.
#[must_use]
pub fn posterior(question: &Question, evidence: &Evidence) -> Posterior {
    let (beyond, opposite) = ends(question, &evidence.readings);
    let total: f64 = question.commits.iter().skip(1).map(|commit| commit.prior).sum();
    let Some(data) = Data::new(question, &evidence.readings).filter(|_| total > 0.0) else {
        return prior_only(question, beyond, opposite);
    };
    let gaps = Gaps::new(question, &data.classes);
    let floor = question.floor.ln_1p();
    let sides: Vec<DVector<f64>> = gaps
        .firsts
        .iter()
        .map(|first| DVector::from_iterator(data.classes.len(), data.classes.iter().map(|class| f64::from(u8::from(class >= first)))))
        .collect();
    // Per gap and for "no change": weights of all combinations, to be summed.
    let mut changed: Vec<Vec<f64>> = vec![Vec::new(); sides.len()];
    let mut unchanged = Vec::new();
    let mut deltas: Vec<Vec<(f64, f64, f64)>> = vec![Vec::new(); sides.len()];
    let mut parameters = Vec::new();
    for (tau, drift, prior) in settings() {
        let Some(fitted) = Fitted::new(&data, tau, drift) else { continue };
        let Some(sums) = sides.iter().map(|side| fitted.sums(side)).collect::<Option<Vec<_>>>() else { continue };
        for sigma in sigma_grid() {
            let base = prior + fitted.log_null(sigma);
            #[expect(clippy::cast_precision_loss, reason = "a number of classes")]
            let places = (sums.len() as f64).ln();
            let small = log_sum(sums.iter().map(|sums| sums.log_small(sigma, floor))) - places;
            unchanged.push(base + log_sum([0.0, small]) - 2_f64.ln());
            for (gap, sums) in sums.iter().enumerate() {
                let weight = base + sums.log_change(sigma, floor);
                changed[gap].push(weight);
                if let Some((mean, variance)) = sums.normal(sigma) {
                    deltas[gap].push((weight, mean, variance));
                }
                parameters.push((weight + (gaps.priors[gap] / total).max(f64::MIN_POSITIVE).ln(), sigma, tau));
            }
        }
    }
    let no_change = NO_CHANGE.ln() + log_sum(unchanged);
    let masses: Vec<f64> =
        changed.into_iter().zip(&gaps.priors).map(|(weights, prior)| (1.0 - NO_CHANGE).ln() + (prior / total).ln() + log_sum(weights)).collect();
    let all = log_sum(masses.iter().copied().chain([no_change]));
    if !all.is_finite() {
        return prior_only(question, beyond, opposite);
    }
    let likeliest = (0..masses.len()).max_by(|one, other| masses[*one].total_cmp(&masses[*other])).unwrap_or(0);
    let (sigma, tau) = (mean(&parameters, |(weight, sigma, _)| (*weight, *sigma)), mean(&parameters, |(weight, _, tau)| (*weight, *tau)));
    Posterior {
        commits: gaps.spread(question, &masses.iter().map(|mass| (mass - all).exp()).collect::<Vec<_>>()),
        no_change: (no_change - all).exp(),
        delta: mixture(deltas.get(likeliest).map_or(&[], Vec::as_slice)),
        beyond,
        opposite,
        sigma,
        tau,
    }
}

fn mean<T>(items: &[T], of: impl Fn(&T) -> (f64, f64)) -> f64 {
    let total = log_sum(items.iter().map(|item| of(item).0));
    items.iter().map(|item| (of(item).0 - total).exp() * of(item).1).sum()
}

/// Mean and standard deviation of a mixture of (log weight, mean, variance).
fn mixture(parts: &[(f64, f64, f64)]) -> (f64, f64) {
    if parts.is_empty() {
        return (0.0, f64::INFINITY);
    }
    let middle = mean(parts, |part| (part.0, part.1));
    let variance = mean(parts, |part| (part.0, part.2 + (part.1 - middle).powi(2)));
    (middle, variance.sqrt())
}

fn prior_only(question: &Question, beyond: f64, opposite: f64) -> Posterior {
    let total: f64 = question.commits.iter().skip(1).map(|commit| commit.prior).sum();
    let share = |(index, commit): (usize, &super::question::Candidate)| if index == 0 || total <= 0.0 { 0.0 } else { (1.0 - NO_CHANGE) * commit.prior / total };
    let commits: Vec<f64> = question.commits.iter().enumerate().map(share).collect();
    let no_change = 1.0 - commits.iter().sum::<f64>();
    Posterior { commits, no_change, delta: (0.0, f64::INFINITY), beyond, opposite, sigma: 0.02, tau: 0.005 }
}

/// Probabilities that the ends differ by more than the floor, in the expected and in the other
/// direction, from readings of the ends alone and a flat prior on the difference.
fn ends(question: &Question, readings: &[Reading]) -> (f64, f64) {
    let (Some(first), Some(last)) = (question.commits.first(), question.commits.last()) else { return (0.0, 0.0) };
    let of_ends: Vec<Reading> = readings.iter().copied().filter(|reading| reading.class == first.class || reading.class == last.class).collect();
    let Some(data) = Data::new(question, &of_ends) else { return (0.5, 0.5) };
    let side = DVector::from_iterator(data.classes.len(), data.classes.iter().map(|class| f64::from(u8::from(*class == last.class))));
    let floor = question.floor.ln_1p();
    let mut parts = Vec::new();
    for (tau, drift, prior) in settings() {
        let Some(fitted) = Fitted::new(&data, tau, drift) else { continue };
        let Some(sums) = fitted.sums(&side) else { continue };
        for sigma in sigma_grid() {
            let Some((mean, variance)) = sums.normal(sigma) else { return (0.5, 0.5) };
            // Likelihood with delta integrated out under the flat prior.
            let weight = prior + fitted.log_null(sigma) + mean * mean / (2.0 * variance) + 0.5 * variance.ln();
            parts.push((weight, log_tail((floor - mean) / variance.sqrt()).exp(), log_tail((floor + mean) / variance.sqrt()).exp()));
        }
    }
    (mean(&parts, |part| (part.0, part.1)).clamp(0.0, 1.0), mean(&parts, |part| (part.0, part.2)).clamp(0.0, 1.0))
}

/// Commits between two neighbouring measured classes: the readings cannot tell them apart.
struct Gaps {
    /// First measured class at or after the commits of the gap; past the last one, no reading sees
    /// the change.
    firsts: Vec<usize>,
    /// Sum of the commits' priors.
    priors: Vec<f64>,
}

impl Gaps {
    fn new(question: &Question, measured: &[usize]) -> Self {
        let mut firsts: Vec<usize> = measured.to_vec();
        firsts.sort_unstable();
        firsts.dedup();
        firsts.push(usize::MAX);
        let mut priors = vec![0.0; firsts.len()];
        for commit in question.commits.iter().skip(1) {
            priors[Self::of(&firsts, commit.class)] += commit.prior;
        }
        Self { firsts, priors }
    }

    fn of(firsts: &[usize], class: usize) -> usize {
        firsts.partition_point(|first| *first < class).min(firsts.len() - 1)
    }

    fn spread(&self, question: &Question, masses: &[f64]) -> Vec<f64> {
        let share = |(index, commit): (usize, &super::question::Candidate)| {
            let gap = Self::of(&self.firsts, commit.class);
            if index == 0 || self.priors[gap] <= 0.0 { 0.0 } else { masses[gap] * commit.prior / self.priors[gap] }
        };
        question.commits.iter().enumerate().map(share).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bisect::question::Candidate;

    pub fn question(commits: usize) -> Question {
        Question {
            commits: (0..commits).map(|class| Candidate { class, prior: 1.0 }).collect(),
            worse: Worse::Higher,
            expect: Expect::Regression,
            floor: 0.02,
            confidence: 0.95,
            seed: 1,
            most_restarts: 24,
        }
    }

    fn readings(values: &[(usize, f64)]) -> Vec<Reading> {
        values.iter().enumerate().map(|(at, (class, value))| Reading { class: *class, sequence: at as u64, session: 0, value: *value }).collect()
    }

    #[test]
    fn without_evidence_it_is_the_prior() {
        let posterior = posterior(&question(11), &Evidence::default());
        assert!((posterior.no_change - NO_CHANGE).abs() < 1e-12);
        assert!((posterior.commits[3] - 0.07).abs() < 1e-12 && posterior.commits[0] == 0.0);
    }

    #[test]
    fn a_clear_step_is_placed_between_the_classes_that_show_it() {
        let mut values = Vec::new();
        for at in 0..4 {
            let wobble = f64::from(at) * 0.1;
            values.extend([(0, 100.0 + wobble), (10, 120.0 - wobble), (5, 120.1 + wobble), (4, 99.9 - wobble)]);
        }
        let evidence = Evidence { readings: readings(&values), ..Evidence::default() };
        let posterior = posterior(&question(11), &evidence);
        assert!(posterior.commits[5] > 0.99, "{posterior:?}");
        let effect = posterior.effect(&question(11));
        assert!((effect.relative - 1.2).abs() < 0.01 && effect.ci95[0] < 1.2 && effect.ci95[1] > 1.19, "{effect:?}");
        assert!(posterior.beyond > 0.99 && posterior.opposite < 0.01);
    }

    #[test]
    fn one_noisy_reading_proves_little() {
        let evidence = Evidence { readings: readings(&[(0, 100.0), (10, 104.0)]), ..Evidence::default() };
        let posterior = posterior(&question(11), &evidence);
        assert!(posterior.no_change > 0.15 && posterior.beyond < 0.95, "{posterior:?}");
    }

    #[test]
    fn the_log_of_a_tail_is_smooth_where_the_formula_changes() {
        assert!((log_tail(24.999) - log_tail(25.001)).abs() < 0.06);
        assert!((log_tail(0.0) - 0.5_f64.ln()).abs() < 1e-12);
    }
}
