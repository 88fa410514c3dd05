//! Moderated variances: with three restarts a side, a step's own variance is a poor estimate, but
//! the steps of one comparison were measured on one host in one session, and their variances scatter
//! around a common value. Each is drawn towards it by as much as the scatter allows.
//!
//! The model and its fit by moments of log variances are those of G. Smyth, "Linear models and
//! empirical Bayes methods for assessing differential expression in microarray experiments" (2004),
//! section 6.2.

use statrs::function::gamma::digamma;

/// A variance with its degrees of freedom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variance {
    /// Of one observation, on the log scale.
    pub value: f64,
    /// Degrees of freedom.
    pub freedom: f64,
}

/// Standard deviation below which nothing here can be measured, on the log scale: a hundredth of a
/// per cent. It keeps equal readings from claiming certainty.
const FLOOR: f64 = 1e-4;

/// Moderates the variances of several steps.
#[must_use]
pub fn moderate(sample: &[Variance]) -> Vec<Variance> {
    let usable: Vec<Variance> =
        sample.iter().filter(|one| one.freedom > 0.0 && one.value.is_finite()).map(|one| Variance { value: one.value.max(FLOOR * FLOOR), ..*one }).collect();
    let pooled: f64 = usable.iter().map(|one| one.freedom).sum();
    let prior = if usable.len() >= 3 { fit(&usable) } else { None };
    let one = |one: &Variance| {
        if !(one.freedom > 0.0 && one.value.is_finite()) {
            // A single restart says nothing of its own; what the other steps say is not about it.
            return *one;
        }
        let value = one.value.max(FLOOR * FLOOR);
        match prior {
            None => Variance { value, freedom: one.freedom },
            Some(prior) if prior.freedom.is_infinite() => Variance { value: prior.value, freedom: pooled },
            Some(prior) => {
                let freedom = prior.freedom + one.freedom;
                Variance { value: (prior.freedom * prior.value + one.freedom * value) / freedom, freedom: freedom.min(pooled) }
            }
        }
    };
    sample.iter().map(one).collect()
}

/// The common value and how firmly it is believed; infinite freedom when the variances scatter no
/// more than chance would make equal ones scatter.
fn fit(sample: &[Variance]) -> Option<Variance> {
    #[expect(clippy::cast_precision_loss, reason = "a number of steps")]
    let count = sample.len() as f64;
    let logs: Vec<f64> = sample.iter().map(|one| one.value.ln() - digamma(one.freedom / 2.0) + (one.freedom / 2.0).ln()).collect();
    let mean = logs.iter().sum::<f64>() / count;
    let scatter = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let chance = sample.iter().map(|one| trigamma(one.freedom / 2.0)).sum::<f64>() / count;
    let excess = scatter - chance;
    if !mean.is_finite() {
        return None;
    }
    if excess <= 0.0 {
        return Some(Variance { value: mean.exp(), freedom: f64::INFINITY });
    }
    let half = inverse_trigamma(excess);
    Some(Variance { value: (mean + digamma(half) - half.ln()).exp(), freedom: 2.0 * half })
}

/// Second derivative of ln(gamma), by recurrence to large arguments and the asymptotic series there
/// (Abramowitz and Stegun 6.4.6, 6.4.12).
fn trigamma(mut x: f64) -> f64 {
    let mut sum = 0.0;
    while x < 8.0 {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    sum + 1.0 / x + inverse / 2.0 + (1.0 / 6.0 - inverse * (1.0 / 30.0 - inverse * (1.0 / 42.0 - inverse / 30.0))) * inverse / x
}

/// The argument at which [`trigamma`] has the value `y` > 0. It falls from infinity to zero, so
/// halving an interval finds it.
fn inverse_trigamma(y: f64) -> f64 {
    let (mut low, mut high) = (1e-6_f64, 1e6_f64);
    for _ in 0..100 {
        let middle = (low * high).sqrt();
        if trigamma(middle) > y {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low * high).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trigamma_has_known_values() {
        let pi = std::f64::consts::PI;
        assert!((trigamma(1.0) - pi * pi / 6.0).abs() < 1e-10);
        assert!((trigamma(0.5) - pi * pi / 2.0).abs() < 1e-9);
        assert!((inverse_trigamma(trigamma(3.7)) - 3.7).abs() < 1e-6);
    }

    #[test]
    fn equal_variances_are_pooled_and_different_ones_stay_apart() {
        let of = |values: &[f64]| moderate(&values.iter().map(|value| Variance { value: *value, freedom: 3.0 }).collect::<Vec<_>>());
        let equal = of(&[1e-4, 1.1e-4, 0.9e-4, 1e-4]);
        assert!(equal.iter().all(|one| (one.freedom - 12.0).abs() < 1e-9));
        let apart = of(&[1e-2, 1e-6, 1e-3, 1e-7, 1e-2, 1e-6]);
        assert!(apart[0].value > 100.0 * apart[3].value, "{apart:?}");
    }

    #[test]
    fn a_single_step_keeps_its_own_variance() {
        assert_eq!(moderate(&[Variance { value: 1e-4, freedom: 2.0 }]), [Variance { value: 1e-4, freedom: 2.0 }]);
    }
}
