//! The normal distribution where its values are too small or too many for plain arithmetic.

use statrs::function::erf::erfc;

/// ln of the upper tail of the standard normal distribution.
pub(super) fn log_tail(z: f64) -> f64 {
    if z < 25.0 {
        (0.5 * erfc(z * std::f64::consts::FRAC_1_SQRT_2)).ln()
    } else {
        // First terms of the asymptotic series (Abramowitz and Stegun 26.2.12).
        let square = (z * z).recip();
        -0.5 * z * z - z.ln() - 0.5 * std::f64::consts::TAU.ln() + (square * (3.0 * square - 1.0)).ln_1p()
    }
}

/// ln of the sum of exponentials; minus infinity for none.
pub(super) fn log_sum(values: impl IntoIterator<Item = f64>) -> f64 {
    // One pass: the sum is rescaled whenever a larger value turns up.
    let (largest, sum) = values.into_iter().fold((f64::NEG_INFINITY, 0.0), |(largest, sum), value| {
        if value > largest {
            (value, sum * f64::exp(largest - value) + 1.0)
        } else if value == f64::NEG_INFINITY {
            (largest, sum)
        } else {
            (largest, sum + (value - largest).exp())
        }
    });
    if sum > 0.0 { largest + sum.ln() } else { largest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_a_tail_is_right_near_and_far() {
        // From tables: Q(0) = 1/2, Q(1.959964) = 0.025, ln Q(10) = -53.2313 and ln Q(30) = -454.3212.
        for (z, wanted) in [(0.0, 0.5_f64.ln()), (1.959_963_985, 0.025_f64.ln()), (10.0, -53.231_285), (30.0, -454.321_244)] {
            assert!((log_tail(z) - wanted).abs() < 1e-6, "{z}: {}", log_tail(z));
        }
        assert!((log_tail(24.999_999) - log_tail(25.000_001)).abs() < 1e-4 && log_tail(-40.0) == 0.0);
    }

    #[test]
    fn the_log_of_a_sum_of_exponentials_needs_no_exponential_to_fit() {
        assert!((log_sum([1e4, 1e4 - 2_f64.ln(), -1e4]) - (1e4 + 1.5_f64.ln())).abs() < 1e-9);
        assert_eq!(log_sum([]), f64::NEG_INFINITY);
        assert_eq!(log_sum([f64::NEG_INFINITY, 3.0]), 3.0);
    }
}
