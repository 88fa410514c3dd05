use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::bisect::{Answer, Candidate, Deviates, Drift, Expect, Noise, Outcome, Reading, Scenario, Simulated, simulate};
use crate::measure::Worse;

fn question(commits: usize, floor: f64) -> Question {
    let commits = (0..commits).map(|class| Candidate { class, prior: 1.0 }).collect();
    Question { commits, worse: Worse::Higher, expect: Expect::Regression, floor, confidence: 0.95, seed: 7, most_restarts: 24 }
}

fn noise(sigma: f64, tau: f64) -> Noise {
    Noise { sigma, tau, deviates: Deviates::Normal, drift: Drift::None }
}

fn scenario(changes: &[(usize, f64)], noise: Noise, seed: u64) -> Scenario {
    Scenario {
        changes: changes.to_vec(),
        noise,
        unbuildable: BTreeSet::new(),
        cached: BTreeSet::new(),
        sitting: None,
        build_seconds: 100.0,
        restart_seconds: 10.0,
        budget_seconds: None,
        seed,
    }
}

/// Numbers of exact answers and of wrong ones, a set without the truth being wrong as well.
fn tally(runs: &[(Simulated, Option<usize>)]) -> (usize, usize) {
    let exact = runs.iter().filter(|(run, truth)| truth.is_some() && run.answer.culprit == *truth).count();
    let holds = |answer: &Answer, truth: Option<usize>| answer.suspects.iter().any(|(index, _)| Some(*index) == truth);
    let wrong = |(run, truth): &&(Simulated, Option<usize>)| match run.answer.outcome {
        Outcome::Culprit => run.answer.culprit != *truth,
        Outcome::Suspects => !holds(&run.answer, *truth),
        Outcome::NoChange | Outcome::Undecided => false,
    };
    (exact, runs.iter().filter(wrong).count())
}

fn many(question: &Question, trials: u64, make: impl Fn(u64) -> (Scenario, Option<usize>)) -> Vec<(Simulated, Option<usize>)> {
    (0..trials).map(make).map(|(scenario, truth)| (simulate(question, &scenario), truth)).collect()
}

fn stopped(next: Next) -> Answer {
    match next {
        Next::Stop(answer) => answer,
        Next::Measure { .. } => panic!("the search goes on: {next:?}"),
    }
}

#[test]
fn a_large_change_among_few_commits_takes_few_builds_and_restarts() {
    // 32 commits behind the good end: two for documents only, three in a row that do not compile,
    // and one that costs 20% under 4% of noise.
    let mut question = question(33, 0.05);
    for (index, commit) in question.commits.iter_mut().enumerate() {
        commit.class = index - usize::from(index >= 6) - usize::from(index >= 23);
    }
    let runs = many(&question, 24, |seed| {
        let mut scenario = scenario(&[(19, 0.2)], noise(0.04, 0.005), seed);
        scenario.unbuildable = BTreeSet::from([11, 12, 13]);
        (scenario, Some(19))
    });
    let (exact, wrong) = tally(&runs);
    assert!(exact >= 23 && wrong == 0, "exact {exact}, wrong {wrong} of 24");
    let (builds, restarts) = runs.iter().fold((0, 0), |sum, (run, _)| (sum.0 + run.builds, sum.1 + run.restarts));
    assert!(builds <= 24 * 8 && restarts <= 24 * 40, "{builds} builds and {restarts} restarts in 24 searches");
}

#[test]
fn a_change_of_five_sigma_among_two_hundred_commits_is_found() {
    let runs = many(&question(200, 0.02), 10, |seed| {
        let at = 1 + (seed as usize * 37) % 199;
        (scenario(&[(at, 0.05)], noise(0.01, 0.003), 5000 + seed), Some(at))
    });
    assert_eq!(tally(&runs), (10, 0));
    assert!(runs.iter().map(|(run, _)| run.builds).sum::<usize>() <= 110, "about log2(200) builds beside the ends");
}

#[test]
fn wrong_blame_stays_below_what_is_allowed() {
    let hosts = [
        (0.05, Noise { drift: Drift::Walk(0.005), ..noise(0.01, 0.003) }),
        (0.05, Noise { drift: Drift::Wave { amplitude: 0.03, period: 20.0 }, ..noise(0.01, 0.003) }),
        (0.04, Noise { deviates: Deviates::Heavy, ..noise(0.02, 0.003) }),
        (0.04, Noise { deviates: Deviates::Contaminated, ..noise(0.015, 0.003) }),
        (0.04, noise(0.02, 0.01)),
    ];
    let mut wrongs = 0;
    for (host, (size, noise)) in hosts.into_iter().enumerate() {
        let runs = many(&question(48, 0.02), 8, |seed| {
            let at = 1 + (seed as usize * 37) % 47;
            (scenario(&[(at, size)], noise, 2000 + 100 * host as u64 + seed), Some(at))
        });
        let (exact, wrong) = tally(&runs);
        wrongs += wrong;
        assert!(host == 4 || exact >= 6, "{noise:?}: only {exact} of 8 exact");
    }
    // 40 searches with an error of 5% each: more than five wrong ones have a chance below 2%.
    assert!(wrongs <= 5, "{wrongs} wrong of 40");
}

#[test]
fn no_change_names_nobody() {
    let hosts = [
        noise(0.01, 0.003),
        noise(0.02, 0.01),
        Noise { drift: Drift::Walk(0.01), ..noise(0.01, 0.003) },
        Noise { deviates: Deviates::Contaminated, ..noise(0.015, 0.003) },
        Noise { deviates: Deviates::Heavy, ..noise(0.02, 0.003) },
    ];
    for noise in hosts {
        let runs = many(&question(33, 0.03), 10, |seed| (scenario(&[], noise, 1000 + seed), None));
        assert_eq!(tally(&runs).1, 0, "{noise:?} blamed somebody");
        let clear = runs.iter().filter(|(run, _)| run.answer.outcome == Outcome::NoChange).count();
        assert!(clear >= 7, "{noise:?}: only {clear} of 10 said no change");
    }
}

#[test]
fn layout_that_looks_like_a_change_at_the_ends_blames_nobody() {
    // Builds scatter by 2% and restarts by 0.5%: pairs of ends often differ, and no commit is guilty.
    let runs = many(&question(64, 0.02), 12, |seed| (scenario(&[], noise(0.005, 0.02), 6000 + seed), None));
    assert!(tally(&runs).1 <= 1, "{} of 12 blamed somebody", tally(&runs).1);
    assert!(runs.iter().any(|(run, _)| run.builds > 2), "none of the searches came past the ends");
}

#[test]
fn of_two_changes_one_is_named_and_the_other_told_of() {
    let runs = many(&question(90, 0.02), 6, |seed| (scenario(&[(20, 0.1), (60, 0.06)], noise(0.01, 0.002), 4000 + seed), None));
    for (run, _) in &runs {
        assert!(matches!(run.answer.culprit, Some(20 | 60)), "{:?}", run.answer);
        assert!(run.answer.why.contains("another"), "{}", run.answer.why);
    }
}

#[test]
fn sittings_on_different_levels_are_not_mistaken_for_changes() {
    let runs = many(&question(64, 0.02), 8, |seed| {
        let mut scenario = scenario(&[(21, 0.06)], noise(0.01, 0.002), 7000 + seed);
        scenario.sitting = Some(9);
        (scenario, Some(21))
    });
    assert!(tally(&runs).0 >= 7 && tally(&runs).1 == 0, "{:?}", tally(&runs));
}

#[test]
fn an_effect_below_the_floor_is_no_change_or_undecided() {
    let runs = many(&question(33, 0.05), 10, |seed| (scenario(&[(15, 0.02)], noise(0.01, 0.003), 3000 + seed), None));
    assert_eq!(tally(&runs).1, 0, "an effect below the floor was blamed");
}

#[test]
fn noise_larger_than_the_effect_is_undecided_with_a_forecast() {
    let mut question = question(33, 0.02);
    question.most_restarts = 8;
    let answer = simulate(&question, &scenario(&[(10, 0.06)], noise(0.1, 0.005), 1)).answer;
    assert_eq!((answer.outcome, answer.culprit), (Outcome::Undecided, None), "{answer:?}");
    assert!(answer.restarts_needed.is_some_and(|needed| needed > 0) && answer.effect.is_some(), "{answer:?}");
}

#[test]
fn an_improvement_is_found_when_asked_for_and_told_of_when_not() {
    let mut asked = question(17, 0.05);
    asked.worse = Worse::Lower;
    asked.expect = Expect::Improvement;
    let scenario = scenario(&[(5, 0.2)], noise(0.02, 0.003), 4);
    let answer = simulate(&asked, &scenario).answer;
    assert_eq!(answer.culprit, Some(5));
    assert!(answer.effect.is_some_and(|effect| effect.ci95[0] < 1.22 && effect.ci95[1] > 1.22), "exp(0.2) is 1.22: {answer:?}");
    asked.expect = Expect::Regression;
    let answer = simulate(&asked, &scenario).answer;
    assert_eq!(answer.outcome, Outcome::NoChange);
    assert!(answer.why.contains("other direction") && answer.why.contains("--expect"), "{}", answer.why);
}

#[test]
fn a_culprit_among_commits_that_do_not_build_is_one_of_a_set() {
    let mut scenario = scenario(&[(9, 0.2)], noise(0.02, 0.003), 5);
    scenario.unbuildable = (7..=10).collect();
    let answer = simulate(&question(21, 0.05), &scenario).answer;
    assert_eq!((answer.outcome, answer.culprit), (Outcome::Suspects, None), "{answer:?}");
    let mut set: Vec<_> = answer.suspects.iter().map(|(index, _)| *index).collect();
    set.sort_unstable();
    assert_eq!(set, [7, 8, 9, 10, 11]);
    assert!(answer.posterior >= 0.95);
}

#[test]
fn a_long_broken_stretch_costs_few_builds() {
    for (at, seed) in [(30, 6), (170, 7), (69, 8), (131, 9), (100, 10), (128, 11)] {
        let mut scenario = scenario(&[(at, 0.2)], noise(0.02, 0.003), seed);
        scenario.unbuildable = (70..130).collect();
        let run = simulate(&question(200, 0.05), &scenario);
        assert!(run.failed_builds < 10, "change at {at}: {} failed builds", run.failed_builds);
        let inside = (70..=130).contains(&at);
        let told = if inside { run.answer.suspects.iter().any(|(index, _)| *index == at) } else { run.answer.culprit == Some(at) };
        assert!(told, "change at {at}: {:?}", run.answer);
    }
}

#[test]
fn commits_that_change_nothing_built_are_never_named() {
    let mut question = question(12, 0.05);
    for (index, commit) in question.commits.iter_mut().enumerate() {
        // The prior of a commit that builds the same is ignored.
        *commit = Candidate { class: index / 2, prior: if index % 2 == 1 { 9.0 } else { 1.0 } };
    }
    for seed in 0..4 {
        let answer = simulate(&question, &scenario(&[(6, 0.2)], noise(0.02, 0.003), seed)).answer;
        assert_eq!(answer.culprit, Some(6), "{answer:?}");
        assert!(answer.suspects.iter().all(|(index, _)| index % 2 == 0), "{answer:?}");
    }
}

#[test]
fn what_is_in_the_cache_is_used_first() {
    let mut cached = scenario(&[(40, 0.1)], noise(0.01, 0.002), 3);
    cached.cached = (1..64).filter(|class| class % 4 == 0).collect();
    let (with, without) = (simulate(&question(64, 0.02), &cached), simulate(&question(64, 0.02), &scenario(&[(40, 0.1)], noise(0.01, 0.002), 3)));
    assert_eq!((with.answer.culprit, without.answer.culprit), (Some(40), Some(40)));
    assert!(with.builds + 2 < without.builds, "{} and {} builds", with.builds, without.builds);
}

#[test]
fn a_range_without_two_builds_needs_no_measurement() {
    let mut same = question(3, 0.05);
    same.commits.iter_mut().for_each(|commit| *commit = Candidate { class: 0, prior: 0.0 });
    assert_eq!(stopped(next(&same, &Evidence::default())).outcome, Outcome::NoChange);
    assert_eq!(stopped(next(&question(1, 0.05), &Evidence::default())).outcome, Outcome::Undecided);
    let mut unordered = question(3, 0.05);
    unordered.commits.swap(0, 2);
    assert!(stopped(next(&unordered, &Evidence::default())).why.contains("order"));
}

#[test]
fn a_broken_end_is_undecided_and_says_which() {
    let evidence = Evidence { unbuildable: BTreeSet::from([4]), ..Evidence::default() };
    let answer = stopped(next(&question(5, 0.05), &evidence));
    assert_eq!((answer.outcome, answer.culprit), (Outcome::Undecided, None));
    assert!(answer.why.contains("bad end"), "{}", answer.why);
}

#[test]
fn the_budget_is_absolute_and_leaves_what_is_known() {
    for budget in [50.0, 300.0, 600.0, 800.0] {
        let mut scenario = scenario(&[(30, 0.1)], noise(0.01, 0.002), 8);
        scenario.budget_seconds = Some(budget);
        let run = simulate(&question(64, 0.02), &scenario);
        assert!(run.seconds <= budget && run.answer.culprit.is_none(), "{budget}: {run:?}");
        assert!(run.answer.why.contains("budget"), "{}", run.answer.why);
        assert!(run.answer.outcome != Outcome::Suspects || run.answer.suspects.iter().any(|(index, _)| *index == 30));
    }
}

#[test]
fn readings_that_are_no_numbers_end_the_search() {
    let readings = (0..400).map(|at| Reading { class: 4 * (at as usize % 2), sequence: at, session: 0, value: f64::NAN }).collect();
    let answer = stopped(next(&question(5, 0.05), &Evidence { readings, ..Evidence::default() }));
    assert_eq!(answer.outcome, Outcome::Undecided);
}

#[test]
fn without_any_noise_it_still_takes_more_than_one_reading() {
    let run = simulate(&question(16, 0.02), &scenario(&[(9, 0.05)], noise(0.0, 0.0), 2));
    assert_eq!(run.answer.culprit, Some(9));
    assert!(run.restarts >= 6 + 6, "three pairs of the ends and three that confirm");
}

/// Evidence of a search in the middle of its way: the ends differ by 20%, and `extra` follows.
fn certified(extra: &[(usize, f64)]) -> Evidence {
    let ends = (0..12_usize).map(|at| (15 * (at % 2), 0.2 * (at % 2) as f64 + 0.002 * (at % 3) as f64));
    let all = ends.chain(extra.iter().copied()).enumerate();
    let readings = all.map(|(at, (class, log))| Reading { class, sequence: at as u64, session: 0, value: f64::exp(log) }).collect();
    Evidence { readings, built: (0..16).collect(), build_seconds: 100.0, restart_seconds: 10.0, ..Evidence::default() }
}

#[test]
fn the_readings_that_made_the_claim_do_not_confirm_it() {
    let search: Vec<(usize, f64)> = (0..4).flat_map(|_| [(8, 0.2), (7, 0.0)]).collect();
    match next(&question(16, 0.05), &certified(&search)) {
        Next::Measure { classes, why } => {
            assert!(why.contains("fresh pairs"), "{why}");
            assert!(classes.iter().all(|class| [7, 8].contains(class)), "{classes:?}");
        }
        Next::Stop(answer) => panic!("named without fresh readings: {answer:?}"),
    }
    let confirmed: Vec<(usize, f64)> = search.iter().copied().chain((0..4).flat_map(|_| [(7, 0.001), (8, 0.201)])).collect();
    assert_eq!(stopped(next(&question(16, 0.05), &certified(&confirmed))).culprit, Some(8));
}

#[test]
fn fresh_readings_that_disagree_withdraw_the_claim() {
    let search = (0..4).flat_map(|_| [(8, 0.2), (7, 0.0)]);
    let against: Vec<(usize, f64)> = search.chain((0..8).flat_map(|_| [(7, 0.1), (8, 0.1)])).collect();
    match next(&question(16, 0.05), &certified(&against)) {
        Next::Measure { .. } => {}
        Next::Stop(answer) => assert_eq!(answer.culprit, None, "{answer:?}"),
    }
}

#[test]
fn a_search_can_be_replayed_from_its_readings() {
    let question = question(40, 0.02);
    let mut scenario = scenario(&[(13, 0.08)], noise(0.015, 0.003), 12);
    scenario.unbuildable = BTreeSet::from([20, 21]);
    assert_eq!(simulate(&question, &scenario), simulate(&question, &scenario));
    // The order in which the readings are handed over is not the order in which they were taken.
    let mut evidence = certified(&[(8, 0.2), (7, 0.0), (8, 0.21)]);
    let asked = next(&question, &evidence);
    evidence.readings.reverse();
    assert_eq!(next(&question, &evidence), asked);
}

#[test]
fn the_seed_changes_the_order_and_nothing_else() {
    let orders: BTreeSet<Vec<usize>> = (0..16)
        .filter_map(|seed| match next(&Question { seed, ..question(9, 0.02) }, &Evidence::default()) {
            Next::Measure { classes, .. } => Some(classes),
            Next::Stop(_) => None,
        })
        .collect();
    assert!(orders.len() > 1 && orders.iter().all(|order| order.len() == 6 && order.iter().filter(|class| **class == 0).count() == 3), "{orders:?}");
}

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![6 => 90.0..130.0_f64, 2 => Just(100.0), 1 => proptest::num::f64::ANY]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_evidence_gives_a_sane_next_step(
        steps in proptest::collection::vec(0_usize..3, 1..20),
        priors in proptest::collection::vec(prop_oneof![4 => 0.0..3.0_f64, 1 => proptest::num::f64::ANY], 20),
        values in proptest::collection::vec((0_usize..30, 0_u64..40, 0_u64..3, value()), 0..40),
        broken in proptest::collection::btree_set(0_usize..30, 0..6),
        (built, seed, improvement, budget) in (proptest::collection::btree_set(0_usize..30, 0..6), 0_u64..5, any::<bool>(), proptest::option::of(0.0..5000.0_f64)),
        (floor, spent) in (prop_oneof![4 => 0.0..0.2_f64, 1 => proptest::num::f64::ANY], 0.0..3000.0_f64),
    ) {
        let mut class = 0;
        let commits: Vec<Candidate> = steps.iter().zip(&priors).map(|(step, prior)| { class += step; Candidate { class, prior: *prior } }).collect();
        let expect = if improvement { Expect::Improvement } else { Expect::Regression };
        let question = Question { commits, expect, seed, ..question(2, floor) };
        let readings = values.iter().map(|(class, sequence, session, value)| Reading { class: *class, sequence: *sequence, session: *session, value: *value }).collect();
        let evidence = Evidence { readings, unbuildable: broken.clone(), built, build_seconds: 60.0, restart_seconds: 10.0, spent_seconds: spent, budget_seconds: budget };
        let belief = posterior(&question, &evidence);
        let sum = belief.no_change + belief.commits.iter().sum::<f64>();
        prop_assert!((sum - 1.0).abs() < 1e-6, "probabilities sum to {sum}");
        let same = |index: usize| index == 0 || question.commits[index].class == question.commits[index - 1].class;
        prop_assert!(belief.commits.iter().enumerate().all(|(index, mass)| *mass >= 0.0 && (*mass == 0.0 || !same(index))));
        let step = next(&question, &evidence);
        prop_assert_eq!(&step, &next(&question, &evidence));
        match step {
            Next::Measure { classes, .. } => prop_assert!(!classes.is_empty() && classes.iter().all(|class| !broken.contains(class) && question.commits.iter().any(|commit| commit.class == *class))),
            Next::Stop(answer) => {
                prop_assert!(answer.posterior.is_finite() && answer.suspects.iter().all(|(index, _)| !same(*index)));
                prop_assert!(answer.culprit.is_none_or(|culprit| !same(culprit) && answer.posterior >= question.confidence && evidence.readings.len() >= 12));
            }
        }
    }

    #[test]
    fn every_search_ends(size in 3_usize..16, sigma in 0.0..0.1_f64, tau in 0.0..0.03_f64, effect in -0.2..0.2_f64, broken in proptest::collection::btree_set(1_usize..14, 0..6), seed in 0_u64..1000) {
        let question = Question { most_restarts: 6, ..question(size, 0.02) };
        let mut scenario = scenario(&[(1 + seed as usize % (size - 1), effect)], noise(sigma, tau), seed);
        scenario.unbuildable = broken.into_iter().filter(|class| *class < size - 1).collect();
        let run = simulate(&question, &scenario);
        prop_assert!(run.builds <= size && run.failed_builds <= scenario.unbuildable.len());
    }
}
