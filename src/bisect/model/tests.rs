use super::*;
use crate::bisect::{Candidate, Expect, Reading};
use crate::measure::Worse;

fn question(commits: usize) -> Question {
    let commits = (0..commits).map(|class| Candidate { class, prior: 1.0 }).collect();
    Question { commits, worse: Worse::Higher, expect: Expect::Regression, floor: 0.02, confidence: 0.95, seed: 1, most_restarts: 24 }
}

fn evidence(values: &[(usize, f64)]) -> Evidence {
    let reading = |(at, (class, value)): (usize, &(usize, f64))| Reading { class: *class, sequence: at as u64, session: 0, value: *value };
    Evidence { readings: values.iter().enumerate().map(reading).collect(), ..Evidence::default() }
}

/// Readings of the ends and of two classes between which the value steps by 20%.
fn step() -> Vec<(usize, f64)> {
    let noise = [0.1, -0.3, 0.2, -0.1];
    noise.iter().flat_map(|noise| [(0, 100.0 + noise), (10, 120.0 - noise), (5, 120.1 + 2.0 * noise), (4, 99.9 - noise)]).collect()
}

fn sum(posterior: &Posterior) -> f64 {
    posterior.no_change + posterior.commits.iter().sum::<f64>()
}

#[test]
fn without_evidence_it_is_the_prior() {
    let posterior = posterior(&question(11), &Evidence::default());
    assert!((posterior.no_change - NO_CHANGE).abs() < 1e-12 && posterior.effect.is_none());
    assert!((posterior.commits[3] - 0.07).abs() < 1e-12 && posterior.commits[0] == 0.0);
}

#[test]
fn a_clear_step_is_placed_between_the_classes_that_show_it() {
    let posterior = posterior(&question(11), &evidence(&step()));
    assert!(posterior.commits[5] > 0.95, "{posterior:?}");
    let effect = posterior.effect.unwrap();
    assert!((effect.relative - 1.2).abs() < 0.01 && effect.ci95[0] < 1.2 && effect.ci95[1] > 1.2, "{effect:?}");
    assert!((sum(&posterior) - 1.0).abs() < 1e-9);
}

#[test]
fn a_metric_that_is_worse_when_lower_is_the_mirror_image() {
    let mut mirrored = question(11);
    mirrored.worse = Worse::Lower;
    mirrored.floor = 0.0;
    let mut straight = question(11);
    straight.floor = 0.0;
    let turned: Vec<(usize, f64)> = step().iter().map(|(class, value)| (*class, value.recip())).collect();
    let (one, other) = (posterior(&straight, &evidence(&step())), posterior(&mirrored, &evidence(&turned)));
    assert!(one.commits.iter().zip(&other.commits).all(|(one, other)| (one - other).abs() < 1e-9));
    assert!((one.effect.unwrap().relative * other.effect.unwrap().relative - 1.0).abs() < 1e-9);
}

#[test]
fn the_unit_of_the_metric_does_not_matter() {
    let scaled: Vec<(usize, f64)> = step().iter().map(|(class, value)| (*class, value * 1e6)).collect();
    let (one, other) = (posterior(&question(11), &evidence(&step())), posterior(&question(11), &evidence(&scaled)));
    assert!(one.commits.iter().zip(&other.commits).all(|(one, other)| (one - other).abs() < 1e-6));
}

#[test]
fn commits_that_no_reading_separates_share_by_their_priors() {
    let mut question = question(11);
    question.commits[2].prior = 3.0;
    let values: Vec<(usize, f64)> =
        step().into_iter().filter(|(class, _)| *class != 5).map(|(class, value)| (class, if class == 4 { value * 1.2 } else { value })).collect();
    let posterior = posterior(&question, &evidence(&values));
    assert!((posterior.commits[2] / posterior.commits[1] - 3.0).abs() < 1e-9 && (posterior.commits[3] / posterior.commits[4] - 1.0).abs() < 1e-9);
}

#[test]
fn one_reading_excludes_no_place_however_far_out_it_is() {
    let mut values = step();
    values.retain(|(class, _)| *class == 0 || *class == 10);
    for outlier in [120.0, 200.0, 1e9] {
        let mut all = values.clone();
        all.push((7, outlier));
        let posterior = posterior(&question(11), &evidence(&all));
        let after: f64 = posterior.commits[8..].iter().sum();
        assert!(after > 0.4 * (-READING_NATS).exp(), "{outlier}: {after}");
    }
}

#[test]
fn a_level_that_moves_between_sittings_is_no_change() {
    // Each sitting sees both ends alike; the second one is 20% slower, and has most of the bad end.
    let mut all = Vec::new();
    for at in 0..12_u64 {
        let (session, level) = if at < 6 { (0, 100.0) } else { (1, 120.0) };
        let class = if (at < 6) == at.is_multiple_of(3) { 10 } else { 0 };
        all.push(Reading { class, sequence: at, session, value: level + 0.1 * (at % 4) as f64 });
    }
    let ends = ends(&question(11), &Evidence { readings: all, ..Evidence::default() }, &Range::new(&question(11)).unwrap(), u64::MAX).unwrap();
    assert!(ends.beyond < 0.01 && ends.opposite < 0.01, "{ends:?}");
}

#[test]
fn the_ends_alone_have_the_t_distribution_of_a_textbook() {
    // Without drift, four readings a side: Student's t with six degrees of freedom.
    let logs = [(0, 0.0), (10, 0.05), (10, 0.03), (0, 0.01), (0, -0.01), (10, 0.06), (10, 0.04), (0, 0.004)];
    let values: Vec<(usize, f64)> = logs.iter().map(|(class, log): &(usize, f64)| (*class, log.exp())).collect();
    let of = |class: usize| logs.iter().filter(move |(other, _)| *other == class).map(|(_, log)| *log);
    let mean = |class: usize| of(class).sum::<f64>() / 4.0;
    let squares: f64 = [0, 10].iter().map(|class| of(*class).map(|log| (log - mean(*class)).powi(2)).sum::<f64>()).sum();
    let error = (squares / 6.0 / 2.0).sqrt();
    use statrs::distribution::{ContinuousCDF, StudentsT};
    let wanted = StudentsT::new(0.0, 1.0, 6.0).unwrap().cdf((mean(10) - mean(0) - 0.02_f64.ln_1p()) / error);
    let found = ends(&question(11), &evidence(&values), &Range::new(&question(11)).unwrap(), u64::MAX).unwrap();
    assert!((found.beyond - wanted).abs() < 0.03, "{} for {wanted}", found.beyond);
    assert!((found.delta.0 - (mean(10) - mean(0))).abs() < 0.003);
}

/// Trapezoid rule, to check what is integrated in closed form.
fn integral(low: f64, high: f64, of: impl Fn(f64) -> f64) -> f64 {
    let steps = 200_000;
    let width = (high - low) / f64::from(steps);
    (0..=steps).map(|at| of(low + width * f64::from(at)) * if at == 0 || at == steps { 0.5 } else { 1.0 }).sum::<f64>() * width
}

#[test]
fn the_integrals_over_delta_are_right() {
    for (linear, quadratic) in [(0.0, 1e3), (50.0, 1e3), (-300.0, 1e4), (600.0, 1e4), (3.0, 20.0)] {
        let likelihood = |delta: f64| (linear * delta - quadratic * delta * delta / 2.0).exp();
        let change = integral(0.02, 3.0, |delta| likelihood(delta) * (-(delta - 0.02) / EXCESS).exp() / EXCESS).ln();
        assert!((log_change((linear, quadratic), 0.02) - change).abs() < 1e-5, "{linear} {quadratic}: {} for {change}", log_change((linear, quadratic), 0.02));
        let small = (integral(-0.03, 0.02, likelihood) / 0.05).ln();
        assert!(
            (log_small((linear, quadratic), (0.02, 0.03)) - small).abs() < 1e-5,
            "{linear} {quadratic}: {} for {small}",
            log_small((linear, quadratic), (0.02, 0.03))
        );
    }
    assert_eq!((log_change((0.0, 0.0), 0.02), log_small((0.0, 0.0), (0.0, 0.0))), (0.0, 0.0), "what says nothing weighs nothing");
}

#[test]
fn bounds_hold_for_each_class_and_leave_the_rest() {
    assert_eq!(bounded(&[-1.0, 0.0, -2.0], &[9, 1, 1, 9]), [-1.0, 0.0, -2.0]);
    assert_eq!(bounded(&[-100.0, 0.0, -100.0], &[9, 1, 2, 9]), [-READING_NATS, 0.0, -2.0 * READING_NATS]);
    assert!(bounded(&[], &[]).is_empty());
}
