use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::question::{Candidate, Expect, Reading};
use super::super::simulate::{Deviates, Noise, Scenario, Simulated, simulate};
use super::*;
use crate::measure::Worse;

fn question(commits: usize, floor: f64) -> Question {
    let commits = (0..commits).map(|class| Candidate { class, prior: 1.0 }).collect();
    Question { commits, worse: Worse::Higher, expect: Expect::Regression, floor, confidence: 0.95, seed: 7, most_restarts: 24 }
}

fn noise(sigma: f64, tau: f64) -> Noise {
    Noise { sigma, tau, drift: 0.0, deviates: Deviates::Normal }
}

fn scenario(changes: &[(usize, f64)], noise: Noise, seed: u64) -> Scenario {
    Scenario { changes: changes.to_vec(), noise, unbuildable: BTreeSet::new(), build_seconds: 100.0, restart_seconds: 10.0, seed }
}

/// Shares of exact, wrong and withheld answers.
fn tally(runs: &[(Simulated, Option<usize>)]) -> (f64, f64, f64) {
    let total = runs.len() as f64;
    let named = |run: &&(Simulated, Option<usize>)| run.0.answer.culprit.is_some();
    let exact = runs.iter().filter(named).filter(|(run, truth)| run.answer.culprit == *truth).count() as f64;
    let wrong = runs.iter().filter(named).count() as f64 - exact;
    (exact / total, wrong / total, 1.0 - (exact + wrong) / total)
}

fn many(question: &Question, trials: u64, make: impl Fn(u64) -> (Scenario, Option<usize>)) -> Vec<(Simulated, Option<usize>)> {
    (0..trials).map(make).map(|(scenario, truth)| (simulate(question, &scenario), truth)).collect()
}

#[test]
fn the_end_to_end_case_is_found_with_few_builds() {
    // 33 commits: two document only, three in a row do not compile, one costs 20%.
    let mut question = question(33, 0.05);
    for (index, commit) in question.commits.iter_mut().enumerate() {
        commit.class = index - usize::from(index >= 6) - usize::from(index >= 23);
    }
    question.commits[6].prior = 0.0;
    question.commits[23].prior = 0.0;
    let runs = many(&question, 40, |seed| {
        let mut scenario = scenario(&[(19, 0.18)], noise(0.04, 0.005), seed);
        scenario.unbuildable = BTreeSet::from([11, 12, 13]);
        (scenario, Some(19))
    });
    let (exact, wrong, _) = tally(&runs);
    assert!(exact >= 0.95 && wrong <= 0.03, "exact {exact}, wrong {wrong}");
    let builds = runs.iter().map(|(run, _)| run.builds).sum::<usize>() as f64 / 40.0;
    assert!(builds <= 9.0, "{builds} builds on average");
}

#[test]
fn no_change_names_nobody() {
    let question = question(33, 0.05);
    for noise in
        [noise(0.02, 0.003), noise(0.04, 0.005), Noise { drift: 0.01, ..noise(0.03, 0.005) }, Noise { deviates: Deviates::Contaminated, ..noise(0.02, 0.003) }]
    {
        let runs = many(&question, 25, |seed| (scenario(&[], noise, 1000 + seed), None));
        assert!(runs.iter().all(|(run, _)| run.answer.culprit.is_none() && run.answer.outcome != Outcome::Suspects), "{noise:?} blamed somebody");
        let clear = runs.iter().filter(|(run, _)| run.answer.outcome == Outcome::NoChange).count();
        assert!(clear >= 15, "{noise:?}: only {clear} of 25 said no change");
    }
}

#[test]
fn wrong_blame_stays_below_what_is_allowed() {
    let question = question(64, 0.02);
    for (size, noise) in [
        (0.05, noise(0.01, 0.003)),
        (0.08, Noise { drift: 0.005, ..noise(0.02, 0.005) }),
        (0.08, Noise { deviates: Deviates::Heavy, ..noise(0.02, 0.003) }),
        (0.08, Noise { deviates: Deviates::Contaminated, ..noise(0.015, 0.003) }),
        (0.04, noise(0.02, 0.01)),
    ] {
        let runs = many(&question, 25, |seed| {
            let at = 1 + (seed as usize * 37) % 63;
            (scenario(&[(at, size)], noise, 2000 + seed), Some(at))
        });
        let (exact, wrong, withheld) = tally(&runs);
        assert!(wrong <= 0.08, "{size} {noise:?}: exact {exact}, wrong {wrong}, withheld {withheld}");
    }
}

#[test]
fn an_effect_below_the_floor_is_no_change_or_undecided() {
    let question = question(33, 0.05);
    let runs = many(&question, 20, |seed| (scenario(&[(15, 0.02)], noise(0.01, 0.003), 3000 + seed), Some(15)));
    assert!(runs.iter().all(|(run, _)| run.answer.culprit.is_none()), "an effect below the floor was blamed");
}

#[test]
fn noise_larger_than_the_effect_is_undecided_with_a_forecast() {
    let mut question = question(33, 0.02);
    question.most_restarts = 8;
    let run = simulate(&question, &scenario(&[(10, 0.04)], noise(0.15, 0.005), 1));
    assert_eq!((run.answer.outcome, run.answer.culprit), (Outcome::Undecided, None));
    assert!(run.answer.restarts_needed.is_some(), "{:?}", run.answer);
}

#[test]
fn an_improvement_is_found_when_asked_for_and_told_when_not() {
    let mut asked = question(17, 0.05);
    asked.worse = Worse::Lower;
    asked.expect = Expect::Improvement;
    let scenario = scenario(&[(5, 0.2)], noise(0.02, 0.003), 4);
    assert_eq!(simulate(&asked, &scenario).answer.culprit, Some(5));
    asked.expect = Expect::Regression;
    let answer = simulate(&asked, &scenario).answer;
    assert_eq!(answer.outcome, Outcome::NoChange);
    assert!(answer.why.contains("other direction"), "{}", answer.why);
}

#[test]
fn a_culprit_among_commits_that_do_not_build_is_one_of_a_set() {
    let mut scenario = scenario(&[(9, 0.2)], noise(0.02, 0.003), 5);
    scenario.unbuildable = (7..=10).collect();
    let answer = simulate(&question(21, 0.05), &scenario).answer;
    assert_eq!((answer.outcome, answer.culprit), (Outcome::Suspects, None));
    let mut set: Vec<_> = answer.suspects.iter().map(|(index, _)| *index).collect();
    set.sort_unstable();
    assert_eq!(set, [7, 8, 9, 10, 11]);
}

#[test]
fn a_long_broken_stretch_costs_few_builds() {
    for (at, seed) in [(30, 6), (170, 7), (69, 8), (131, 9)] {
        let mut scenario = scenario(&[(at, 0.2)], noise(0.02, 0.003), seed);
        scenario.unbuildable = (70..130).collect();
        let run = simulate(&question(200, 0.05), &scenario);
        assert!(run.failed_builds < 10, "change at {at}: {} failed builds", run.failed_builds);
        assert!(run.answer.culprit.is_none_or(|culprit| culprit == at), "{at}: {:?}", run.answer);
    }
}

#[test]
fn commits_that_change_nothing_built_are_never_named() {
    let mut question = question(12, 0.05);
    for (index, commit) in question.commits.iter_mut().enumerate() {
        commit.class = index / 2;
        commit.prior = if index % 2 == 1 { 0.0 } else { 1.0 };
    }
    for seed in 0..6 {
        let answer = simulate(&question, &scenario(&[(6, 0.2)], noise(0.02, 0.003), seed)).answer;
        assert_eq!(answer.culprit, Some(6), "{answer:?}");
    }
}

#[test]
fn ends_of_one_build_are_no_change_without_measuring() {
    let mut question = question(3, 0.05);
    question.commits.iter_mut().for_each(|commit| *commit = Candidate { class: 0, prior: 0.0 });
    assert!(matches!(next(&question, &Evidence::default()), Next::Stop(Answer { outcome: Outcome::NoChange, .. })));
}

#[test]
fn a_broken_end_is_undecided() {
    let evidence = Evidence { unbuildable: BTreeSet::from([4]), ..Evidence::default() };
    assert!(matches!(next(&question(5, 0.05), &evidence), Next::Stop(Answer { outcome: Outcome::Undecided, culprit: None, .. })));
}

#[test]
fn the_budget_is_kept_and_leaves_a_posterior() {
    let mut evidence = Evidence { build_seconds: 100.0, restart_seconds: 10.0, budget_seconds: Some(150.0), ..Evidence::default() };
    assert!(matches!(next(&question(5, 0.05), &evidence), Next::Stop(Answer { outcome: Outcome::Undecided, .. })));
    evidence.budget_seconds = Some(1000.0);
    assert!(matches!(next(&question(5, 0.05), &evidence), Next::Measure { .. }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_evidence_gives_a_sane_next_step(
        size in 2_usize..20,
        values in proptest::collection::vec((0_usize..20, prop_oneof![4 => 90.0..130.0_f64, 1 => Just(100.0), 1 => proptest::num::f64::ANY]), 0..25),
        broken in proptest::collection::btree_set(0_usize..20, 0..6),
        seed in 0_u64..5,
    ) {
        let question = Question { seed, ..question(size, 0.02) };
        let readings = values.iter().filter(|(class, _)| *class < size && !broken.contains(class)).enumerate()
            .map(|(at, (class, value))| Reading { class: *class, sequence: at as u64, session: at as u64 / 10, value: *value }).collect();
        let evidence = Evidence { readings, unbuildable: broken.clone(), build_seconds: 60.0, restart_seconds: 10.0, ..Evidence::default() };
        let belief = posterior(&question, &evidence);
        let sum = belief.no_change + belief.commits.iter().sum::<f64>();
        prop_assert!((sum - 1.0).abs() < 1e-6, "probabilities sum to {sum}");
        let step = next(&question, &evidence);
        prop_assert_eq!(&step, &next(&question, &evidence));
        match step {
            Next::Measure { classes, .. } => prop_assert!(!classes.is_empty() && classes.iter().all(|class| *class < size && !broken.contains(class))),
            Next::Stop(answer) => prop_assert!(answer.culprit.is_none_or(|culprit| culprit > 0 && culprit < size && answer.posterior >= question.confidence)),
        }
    }
}
