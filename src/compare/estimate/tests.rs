use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use statrs::distribution::{ContinuousCDF, Normal};

use super::super::series::Reading;
use super::*;

/// A normal deviate by inversion, so that the tests need no further distribution crate.
fn normal(random: &mut ChaCha8Rng) -> f64 {
    let uniform: f64 = random.random::<f64>().clamp(1e-12, 1.0 - 1e-12);
    Normal::standard().inverse_cdf(uniform)
}

fn series(cell: &str, step: usize, metric: Metric, logs: &[f64]) -> Series {
    let readings = logs.iter().enumerate().map(|(block, log)| Reading { block: block as u64, value: log.exp(), doubt: None }).collect();
    Series { cell: cell.to_owned(), step: format!("step{step}"), group: "point-1".to_owned(), metric, readings }
}

fn pair() -> Vec<(String, String)> {
    vec![("a".to_owned(), "b".to_owned())]
}

/// Simulated sessions of 8 steps: shares of rows whose interval covers the truth, and whose verdict
/// is a regression or improvement.
fn simulate(seed: u64, trials: usize, restarts: usize, truth: f64, drift: f64, deviate: fn(&mut ChaCha8Rng) -> f64) -> (f64, f64) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut covered, mut found, mut total) = (0.0, 0.0, 0.0);
    for _ in 0..trials {
        let mut all = Vec::new();
        for step in 0..8 {
            // Noise differs from step to step, as it does in life.
            let noise = 0.02 * (0.4 * normal(&mut random)).exp();
            let walk: Vec<f64> = (0..restarts)
                .scan(0.0, |at, _| {
                    *at += drift * normal(&mut random);
                    Some(*at)
                })
                .collect();
            let mut side = |shift: f64| walk.iter().map(|at| 8.0 + at + shift + noise * deviate(&mut random)).collect::<Vec<_>>();
            let (one, two) = (side(0.0), side(truth));
            all.push(series("a", step, Metric::Qps, &one));
            all.push(series("b", step, Metric::Qps, &two));
        }
        for row in compare("a", &pair(), &all, &Settings::default()).rows {
            let [low, high] = row.ci95.unwrap();
            total += 1.0;
            covered += f64::from(u8::from(low.ln() <= truth && truth <= high.ln()));
            found += f64::from(u8::from(matches!(row.verdict, Verdict::Regression | Verdict::Improvement)));
        }
    }
    (covered / total, found / total)
}

#[test]
fn intervals_cover_the_truth_as_often_as_they_say() {
    for (seed, restarts) in [(1, 3), (2, 5), (3, 10)] {
        let (covered, false_alarms) = simulate(seed, 300, restarts, 0.0, 0.0, normal);
        assert!((0.93..=0.975).contains(&covered), "{restarts} restarts: {covered}");
        assert!(false_alarms < 0.01, "{restarts} restarts: {false_alarms}");
    }
}

#[test]
fn drift_cancels_within_blocks() {
    let (covered, false_alarms) = simulate(4, 300, 4, 0.0, 0.05, normal);
    assert!((0.93..=0.975).contains(&covered), "{covered}");
    assert!(false_alarms < 0.01, "{false_alarms}");
}

#[test]
fn heavy_tails_cost_little() {
    let contaminated = |random: &mut ChaCha8Rng| if random.random::<f64>() < 0.05 { 5.0 * normal(random) } else { normal(random) };
    let (covered, false_alarms) = simulate(5, 300, 5, 0.0, 0.0, contaminated);
    assert!(covered > 0.91, "{covered}");
    assert!(false_alarms < 0.005, "{false_alarms}");
}

#[test]
fn a_real_difference_is_found() {
    let (covered, found) = simulate(6, 100, 5, 0.12, 0.02, normal);
    assert!(covered > 0.92 && found > 0.9, "{covered} {found}");
}

#[test]
fn the_way_that_is_worse_depends_on_the_metric() {
    let steady = |shift: f64| [shift, shift + 0.001, shift - 0.001, shift];
    for (metric, shift, wanted) in [
        (Metric::Qps, -0.1, Verdict::Regression),
        (Metric::Qps, 0.1, Verdict::Improvement),
        (Metric::Cpupq, 0.1, Verdict::Regression),
        (Metric::Cpupq, -0.1, Verdict::Improvement),
        (Metric::Cpupq, 0.001, Verdict::Same),
    ] {
        let all = [series("a", 0, metric, &steady(0.0)), series("b", 0, metric, &steady(shift))];
        assert_eq!(compare("a", &pair(), &all, &Settings::default()).rows[0].verdict, wanted, "{metric} {shift}");
    }
}

#[test]
fn noise_is_neither_a_difference_nor_sameness() {
    let all = [series("a", 0, Metric::Qps, &[0.0, 0.1, -0.1]), series("b", 0, Metric::Qps, &[0.05, -0.1, 0.2])];
    let row = &compare("a", &pair(), &all, &Settings::default()).rows[0];
    assert_eq!(row.verdict, Verdict::Undecided);
    assert!(row.restarts_needed.is_some_and(|needed| needed > 50), "{row:?}");
}

#[test]
fn a_single_restart_has_no_interval() {
    let all = [series("a", 0, Metric::Qps, &[0.0]), series("b", 0, Metric::Qps, &[0.5])];
    let row = &compare("a", &pair(), &all, &Settings::default()).rows[0];
    assert_eq!((row.ci95, row.verdict), (None, Verdict::Undecided));
}

#[test]
fn doubtful_samples_are_left_out_and_named() {
    let mut doubtful = series("b", 0, Metric::Qps, &[0.0, 0.001, 5.0]);
    doubtful.readings[2].doubt = Some("sysbench ignored 3 errors".to_owned());
    let all = [series("a", 0, Metric::Qps, &[0.0, 0.001, 0.0]), doubtful];
    let comparison = compare("a", &pair(), &all, &Settings::default());
    assert_eq!((comparison.rows[0].n, comparison.rows[0].n_base), (2, 3));
    assert_eq!(comparison.left_out, ["b step0 round 2: sysbench ignored 3 errors"]);
}

#[test]
fn groups_have_the_statistics_of_the_posts() {
    let all: Vec<_> = [0.0, 0.1, 0.2, 0.4]
        .iter()
        .enumerate()
        .flat_map(|(step, shift)| [series("a", step, Metric::Qps, &[0.0, 0.0]), series("b", step, Metric::Qps, &[*shift, *shift])])
        .collect();
    let group = &compare("a", &pair(), &all, &Settings::default()).groups[0];
    let wanted = [0.0_f64, 0.1, 0.2, 0.4].map(f64::exp);
    assert!((group.min - wanted[0]).abs() < 1e-12 && (group.max - wanted[3]).abs() < 1e-12);
    assert!((group.avg - wanted.iter().sum::<f64>() / 4.0).abs() < 1e-12);
    assert!((group.median - f64::midpoint(wanted[1], wanted[2])).abs() < 1e-12);
}

#[test]
fn false_discoveries_follow_benjamini_and_hochberg() {
    // The example of the paper's section 3.1.
    let p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0];
    assert_eq!(false_discoveries(&p, 0.05).iter().filter(|rejected| **rejected).count(), 4);
}

proptest! {
    #[test]
    fn no_sample_makes_it_panic(values in proptest::collection::vec((0_u64..4, proptest::num::f64::ANY), 0..12), other in proptest::collection::vec((0_u64..4, proptest::num::f64::ANY), 0..12)) {
        let make = |cell: &str, values: &[(u64, f64)]| Series { cell: cell.to_owned(), step: "s".to_owned(), group: "g".to_owned(), metric: Metric::Rpq, readings: values.iter().map(|(block, value)| Reading { block: *block, value: *value, doubt: None }).collect() };
        let comparison = compare("a", &pair(), &[make("a", &values), make("b", &other)], &Settings::default());
        for row in comparison.rows {
            if let Some([low, high]) = row.ci95 { prop_assert!(low <= row.relative && row.relative <= high, "{row:?}"); }
        }
    }
}
