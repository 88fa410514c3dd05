//! The posterior over "the change is at commit c" and "there is no change".
//!
//! On the log scale, and with the sign turned so that the expected change is upward, a reading is
//!
//! ```text
//! y = session + delta * [class is at or after the change] + build + drift + noise
//! ```
//!
//! - `session` is the level of an unbroken sitting. It has a flat prior and is integrated out, so
//!   classes are only compared with what was measured in the same sitting.
//! - `delta` exceeds the floor by an exponential amount with a mean of 10%: the form with a tail long
//!   enough that a large change is no surprise. Under "no change" it is zero, or uniform below the
//!   floor with the step anywhere, so that a step too small to matter does not pass for a culprit.
//! - `build` ~ N(0, tau^2) is shared by all readings of a class: code layout, which no repetition of
//!   the same build averages out.
//! - `drift` is a random walk within a session, one step per restart.
//! - `noise` ~ N(0, sigma^2), with less weight for readings far from the others of their class. sigma
//!   has the scale-free prior 1 / sigma on a grid around the scatter within classes.
//!
//! `delta` is integrated in closed form, sigma, tau and the drift on grids. Commits between two
//! measured classes have the same likelihood and share it by their priors, so only as many
//! hypotheses are computed as there are measured classes.
//!
//! Neighbouring hypotheses differ by what one class says about its own side. A reading can be a
//! blunder that says nothing, so that difference is bounded ([`READING_NATS`]): no single reading,
//! however far out, can exclude a place. It is the bound that the likelihood ratio has under
//! contaminated noise, where the Gaussian ratio has none.

use nalgebra::{DVector, SymmetricEigen};

use super::normal::{log_sum, log_tail};
use super::question::{Effect, Evidence, Question};
use super::range::{Range, floors, sign};
use super::readings::{LEAST_NOISE, Observations, Reduced};

/// Prior probability that nothing changed. Searches are started on suspicion, and four in ten of
/// those of a large company had no culprit (Henderson et al., ICST 2023).
pub(super) const NO_CHANGE: f64 = 0.3;
/// Mean by which a change exceeds the floor, on the log scale.
const EXCESS: f64 = 0.1;
/// Standard deviation of builds, and its prior. Published layout effects are mostly below half a per
/// cent, and now and then several.
const TAU: [(f64, f64); 5] = [(0.001, 0.2), (0.003, 0.25), (0.006, 0.25), (0.012, 0.2), (0.024, 0.1)];
/// Only the builds as they are: for what is asked about two builds and not about commits.
const AS_BUILT: [(f64, f64); 1] = [(0.0, 1.0)];
/// Variance of a step of the drift in units of the noise's, and its prior.
const DRIFT: [(f64, f64); 3] = [(0.0, 0.5), (0.01, 0.3), (0.25, 0.2)];
/// Ends of the grid of sigma, in units of the scatter within classes, and its points.
const SIGMA: (f64, f64, u32) = (0.2, 8.0, 22);
/// Scatter that is assumed before any class was measured twice.
const GUESSED_SIGMA: f64 = 0.02;
/// Most that one reading can say about the side of its class, in natural logarithms: with one
/// reading in twenty anywhere within ten standard deviations, the ratio of the contaminated
/// densities cannot exceed 19 * 10, and reaches a quarter of it where the levels are not known
/// exactly.
const READING_NATS: f64 = 4.0;

/// What is believed after the evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Posterior {
    /// Probability of each commit; the good end and commits that change no build have zero.
    pub commits: Vec<f64>,
    /// Probability that nothing changed by the floor or more in the expected direction.
    pub no_change: f64,
    /// Size of the change if it lies where it most likely does, in the metric's own direction.
    pub effect: Option<Effect>,
    /// Mean and standard deviation of the same on the log scale, the expected direction upward.
    pub delta: Option<(f64, f64)>,
    /// Standard deviation of a restart on the log scale, posterior mean.
    pub sigma: f64,
    /// Standard deviation of a build on the log scale, posterior mean.
    pub tau: f64,
}

/// What the ends alone say about the difference of the two builds, whatever its cause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ends {
    /// Probability that it exceeds the floor in the expected direction.
    pub beyond: f64,
    /// Probability that it exceeds the floor in the other direction.
    pub opposite: f64,
    /// Mean and standard deviation on the log scale, the expected direction upward.
    pub delta: (f64, f64),
    /// The same as a ratio.
    pub effect: Effect,
}

/// One normal component of the posterior of delta under a flat prior.
#[derive(Clone, Copy)]
struct Component {
    weight: f64,
    mean: f64,
    deviation: f64,
}

/// The likelihood for one setting of sigma, tau and drift.
struct Setting {
    sigma: f64,
    tau: f64,
    /// Log of prior times likelihood without any change.
    log_base: f64,
    /// Per place of the change: linear and quadratic coefficient of delta in the log likelihood.
    places: Vec<(f64, f64)>,
}

/// Every setting of the grids. Place `i` of `n` is a change just before class `i + 1`.
fn settings(observations: &Observations, taus: &[(f64, f64)]) -> Vec<Setting> {
    let classes = observations.classes.len();
    let scatter = scatter(&observations.reduce(0.0));
    let mut all = Vec::with_capacity(taus.len() * DRIFT.len() * SIGMA.2 as usize);
    for (drift, drift_prior) in DRIFT {
        let reduced = observations.reduce(drift);
        let eigen = SymmetricEigen::new(reduced.precision.clone());
        let linear = eigen.eigenvectors.tr_mul(&reduced.linear);
        let values: Vec<f64> = eigen.eigenvalues.iter().map(|value| value.max(0.0)).collect();
        // A step in the class means, in the basis of the eigenvectors.
        let steps: Vec<DVector<f64>> = (1..classes).map(|first| eigen.eigenvectors.rows(first, classes - first).row_sum_tr()).collect();
        for (tau, tau_prior) in taus {
            for sigma in grid(scatter) {
                all.push(setting(&reduced, &values, &linear, &steps, sigma, *tau, (drift_prior * tau_prior).ln()));
            }
        }
    }
    all
}

/// The layout of builds is integrated out in the basis where the precision of the class means is
/// diagonal: an eigenvalue v becomes v / (1 + v tau^2 / sigma^2).
fn setting(reduced: &Reduced, values: &[f64], linear: &DVector<f64>, steps: &[DVector<f64>], sigma: f64, tau: f64, log_prior: f64) -> Setting {
    let (variance, ratio) = (sigma * sigma, (tau / sigma).powi(2));
    let kept: Vec<f64> = values.iter().map(|value| 1.0 / ratio.mul_add(*value, 1.0)).collect();
    let square = reduced.square - ratio * linear.iter().zip(&kept).map(|(linear, kept)| kept * linear * linear).sum::<f64>();
    #[expect(clippy::cast_precision_loss, reason = "a number of readings")]
    let free = reduced.free as f64;
    let log_base = log_prior - free * sigma.ln() - 0.5 * reduced.log_determinant + 0.5 * kept.iter().map(|kept| kept.ln()).sum::<f64>()
        - square.max(0.0) / (2.0 * variance);
    let place = |step: &DVector<f64>| {
        let mut sums = (0.0, 0.0);
        for (((step, kept), value), linear) in step.iter().zip(&kept).zip(values).zip(linear) {
            sums.0 += step * kept * linear;
            sums.1 += step * step * kept * value;
        }
        (sums.0 / variance, sums.1 / variance)
    };
    Setting { sigma, tau, log_base, places: steps.iter().map(place).collect() }
}

/// Standard deviation within classes.
fn scatter(reduced: &Reduced) -> f64 {
    let eigen = SymmetricEigen::new(reduced.precision.clone());
    let linear = eigen.eigenvectors.tr_mul(&reduced.linear);
    let held: Vec<(f64, f64)> = eigen.eigenvalues.iter().copied().zip(linear.iter().copied()).filter(|(value, _)| *value > 1e-9).collect();
    let residual = reduced.square - held.iter().map(|(value, linear)| linear * linear / value).sum::<f64>();
    match reduced.free.saturating_sub(held.len()) {
        0 => GUESSED_SIGMA,
        #[expect(clippy::cast_precision_loss, reason = "a number of readings")]
        free => (residual.max(0.0) / free as f64).sqrt().max(LEAST_NOISE),
    }
}

fn grid(scatter: f64) -> impl Iterator<Item = f64> {
    let (low, high, points) = SIGMA;
    (0..points).map(move |at| scatter * low * (high / low).powf(f64::from(at) / f64::from(points - 1)))
}

/// Log of the integral of exp(linear * delta - quadratic * delta^2 / 2) over the prior of a change.
fn log_change((linear, quadratic): (f64, f64), floor: f64) -> f64 {
    if quadratic * EXCESS * EXCESS < 1e-9 {
        return 0.0;
    }
    let shifted = linear - 1.0 / EXCESS;
    floor / EXCESS - EXCESS.ln()
        + shifted * shifted / (2.0 * quadratic)
        + 0.5 * (std::f64::consts::TAU / quadratic).ln()
        + log_tail((floor - shifted / quadratic) * quadratic.sqrt())
}

/// The same over a uniform prior below the floor in both directions.
fn log_small((linear, quadratic): (f64, f64), (floor, opposite): (f64, f64)) -> f64 {
    let width = floor + opposite;
    if quadratic * width * width < 1e-9 {
        return 0.0;
    }
    let root = quadratic.sqrt();
    let mean = linear / quadratic;
    // The difference of two tails, taken on the side where they are small.
    let (near, far) = if mean > 0.0 { ((mean - floor) * root, (mean + opposite) * root) } else { ((-opposite - mean) * root, (floor - mean) * root) };
    let (near, far) = (log_tail(near), log_tail(far));
    let inside = near + (-(far - near).exp()).ln_1p().max(-700.0);
    linear * mean / 2.0 + inside + 0.5 * (std::f64::consts::TAU / quadratic).ln() - width.ln()
}

impl Setting {
    /// Log likelihood without a change that matters; `shares` are the priors of the places.
    fn log_unchanged(&self, shares: &[f64], floors: (f64, f64)) -> f64 {
        let small = log_sum(self.places.iter().zip(shares).map(|(place, share)| share.ln() + log_small(*place, floors)));
        self.log_base + log_sum([0.0, small]) - std::f64::consts::LN_2
    }

    /// The posterior of delta at a place, under a flat prior and in this setting; its weight is a
    /// logarithm.
    fn component(&self, place: usize) -> Option<Component> {
        let (linear, quadratic) = self.places.get(place).copied().filter(|(_, quadratic)| *quadratic > 1e-9)?;
        let mean = linear / quadratic;
        Some(Component { weight: self.log_base + linear * mean / 2.0 - 0.5 * quadratic.ln(), mean, deviation: quadratic.sqrt().recip() })
    }
}

/// The posterior of delta under a flat prior, if the change is at a place: a mixture of normals.
struct Mixture(Vec<Component>);

impl Mixture {
    /// `None` when no reading sees a change there.
    fn new(settings: &[Setting], place: usize) -> Option<Self> {
        let mut parts: Vec<Component> = settings.iter().map(|setting| setting.component(place)).collect::<Option<_>>()?;
        let largest = parts.iter().map(|part| part.weight).fold(f64::NEG_INFINITY, f64::max);
        parts.iter_mut().for_each(|part| part.weight = (part.weight - largest).exp());
        // What is left out changes no probability by more than the number of settings times this.
        parts.retain(|part| part.weight > 1e-12);
        let total: f64 = parts.iter().map(|part| part.weight).sum();
        parts.iter_mut().for_each(|part| part.weight /= total);
        Some(Self(parts))
    }

    fn average(&self, of: impl Fn(&Component) -> f64) -> f64 {
        self.0.iter().map(|part| part.weight * of(part)).sum()
    }

    /// Mean and standard deviation.
    fn moments(&self) -> (f64, f64) {
        let mean = self.average(|part| part.mean);
        (mean, self.average(|part| part.deviation.powi(2) + (part.mean - mean).powi(2)).sqrt())
    }

    /// Probability that delta exceeds `bound`.
    fn exceeds(&self, bound: f64) -> f64 {
        self.average(|part| log_tail((bound - part.mean) / part.deviation).exp()).clamp(0.0, 1.0)
    }

    /// As a ratio, with the central 95% interval.
    fn effect(&self, sign: f64) -> Effect {
        let (mean, deviation) = self.moments();
        let quantile = |tail: f64| {
            let (mut low, mut high) = (mean - 30.0 * deviation, mean + 30.0 * deviation);
            for _ in 0..40 {
                let middle = f64::midpoint(low, high);
                if self.exceeds(middle) > tail { low = middle } else { high = middle }
            }
            (sign * f64::midpoint(low, high)).exp()
        };
        let (one, other) = (quantile(0.975), quantile(0.025));
        Effect { relative: (sign * mean).exp(), ci95: [one.min(other), one.max(other)] }
    }
}

/// What the ends alone say; `None` as long as no sitting has readings of both.
pub(super) fn ends(question: &Question, evidence: &Evidence, range: &Range, before: u64) -> Option<Ends> {
    let observations = Observations::new(question, evidence, |reading| range.is_end(reading.class) && reading.sequence < before);
    if observations.classes.len() < 2 {
        return None;
    }
    let delta = Mixture::new(&settings(&observations, &AS_BUILT), 0)?;
    let (floor, opposite) = floors(question);
    Some(Ends { beyond: delta.exceeds(floor), opposite: 1.0 - delta.exceeds(-opposite), delta: delta.moments(), effect: delta.effect(sign(question)) })
}

/// The posterior after the evidence. Commits and "no change" sum to one.
#[must_use]
pub fn posterior(question: &Question, evidence: &Evidence) -> Posterior {
    let Some(range) = Range::new(question) else {
        return Posterior { commits: vec![0.0; question.commits.len()], no_change: 1.0, effect: None, delta: None, sigma: GUESSED_SIGMA, tau: 0.0 };
    };
    Belief::new(question, evidence, &range, u64::MAX).posterior
}

/// A posterior with what the policy needs beside it.
pub(super) struct Belief {
    pub posterior: Posterior,
    /// Classes that were measured, ascending.
    pub measured: Vec<usize>,
    /// Readings of each of them.
    pub counts: Vec<usize>,
}

impl Belief {
    /// From the readings before the sequence number `before`.
    pub fn new(question: &Question, evidence: &Evidence, range: &Range, before: u64) -> Self {
        let observations = Observations::new(question, evidence, |reading| reading.sequence < before);
        let posterior = believe(question, range, &observations).unwrap_or_else(|| unmeasured(range));
        Self { posterior, measured: observations.classes, counts: observations.counts }
    }
}

fn unmeasured(range: &Range) -> Posterior {
    let commits = range.weights.iter().map(|weight| (1.0 - NO_CHANGE) * weight).collect();
    Posterior { commits, no_change: NO_CHANGE, effect: None, delta: None, sigma: GUESSED_SIGMA, tau: 0.0 }
}

/// `None` when the readings say nothing about any place.
fn believe(question: &Question, range: &Range, observations: &Observations) -> Option<Posterior> {
    if observations.classes.len() < 2 {
        return None;
    }
    let settings = settings(observations, &TAU);
    let floors = floors(question);
    let gaps = Gaps::new(question, range, &observations.classes);
    let inner = gaps.shares.len() - 2;
    // Changes before the first or after the last measured class move all readings alike: no reading
    // sees them, and their likelihood is that of no step at all.
    let unseen = log_sum(settings.iter().map(|setting| setting.log_base));
    let seen: Vec<f64> =
        (0..inner).map(|place| log_sum(settings.iter().map(|setting| setting.log_base + log_change(setting.places[place], floors.0)))).collect();
    let seen_share: f64 = gaps.shares[1..=inner].iter().sum();
    let within: Vec<f64> = gaps.shares[1..=inner].iter().map(|share| if seen_share > 0.0 { share / seen_share } else { 0.0 }).collect();
    let unchanged = log_sum(settings.iter().map(|setting| setting.log_unchanged(&within, floors)));

    let mut likelihoods = vec![unseen];
    likelihoods.extend(bounded(&seen, &observations.counts));
    likelihoods.push(unseen);
    let masses: Vec<f64> = likelihoods.iter().zip(&gaps.shares).map(|(likelihood, share)| ((1.0 - NO_CHANGE) * share).ln() + likelihood).collect();
    let no_change = NO_CHANGE.ln() + unchanged;
    let all = log_sum(masses.iter().copied().chain([no_change]));
    let likeliest = (0..inner).max_by(|one, other| masses[one + 1].total_cmp(&masses[other + 1]))?;
    if !all.is_finite() {
        return None;
    }
    let delta = Mixture::new(&settings, likeliest);
    let weights: Vec<f64> =
        settings.iter().map(|setting| (setting.log_base + log_change(setting.places[likeliest], floors.0) - seen[likeliest]).exp()).collect();
    let average = |of: fn(&Setting) -> f64| settings.iter().zip(&weights).map(|(setting, weight)| weight * of(setting)).sum();
    Some(Posterior {
        commits: gaps.spread(range, &masses.iter().map(|mass| (mass - all).exp()).collect::<Vec<_>>()),
        no_change: (no_change - all).exp(),
        effect: delta.as_ref().map(|delta| delta.effect(sign(question))),
        delta: delta.as_ref().map(Mixture::moments),
        sigma: average(|setting| setting.sigma),
        tau: average(|setting| setting.tau),
    })
}

/// Bounds what each class says about its own side: the difference of the likelihoods of the places
/// before and after it. The likeliest place keeps its likelihood and the others follow from it.
fn bounded(likelihoods: &[f64], counts: &[usize]) -> Vec<f64> {
    let mut result = likelihoods.to_vec();
    let Some(best) = (0..likelihoods.len()).max_by(|one, other| likelihoods[*one].total_cmp(&likelihoods[*other])) else { return result };
    #[expect(clippy::cast_precision_loss, reason = "a number of readings")]
    let step = |from: usize, to: usize, class: usize| {
        let most = READING_NATS * counts[class] as f64;
        (likelihoods[to] - likelihoods[from]).clamp(-most, most)
    };
    // Place i lies between the measured classes i and i + 1.
    for place in best + 1..likelihoods.len() {
        result[place] = result[place - 1] + step(place - 1, place, place);
    }
    for place in (0..best).rev() {
        result[place] = result[place + 1] + step(place + 1, place, place + 1);
    }
    result
}

/// Commits between two neighbouring measured classes: the readings cannot tell them apart.
struct Gaps {
    /// Gap of each commit: 0 before the first measured class, then between two of them, then after
    /// the last.
    of: Vec<usize>,
    /// Prior share of each gap.
    shares: Vec<f64>,
}

impl Gaps {
    fn new(question: &Question, range: &Range, measured: &[usize]) -> Self {
        let of: Vec<usize> = question.commits.iter().map(|commit| measured.partition_point(|class| *class < commit.class)).collect();
        let mut shares = vec![0.0; measured.len() + 1];
        for (gap, weight) in of.iter().zip(&range.weights) {
            shares[*gap] += weight;
        }
        Self { of, shares }
    }

    /// The masses of the gaps, spread over their commits.
    fn spread(&self, range: &Range, masses: &[f64]) -> Vec<f64> {
        self.of.iter().zip(&range.weights).map(|(gap, weight)| if *weight > 0.0 { masses[*gap] * weight / self.shares[*gap] } else { 0.0 }).collect()
    }
}

#[cfg(test)]
mod tests;
