//! How often searches are right, and what they cost: a table over simulated hosts.
//!
//! ```text
//! cargo run --release --example calibration -- [TRIALS] [PART OF A CASE'S NAME]
//! ```
//!
//! `exact`: the right commit was named. `wrong`: another one was, or a set without it; this must stay
//! below one minus the confidence (0.05). `set`: a set that holds the right commit. Costs are means
//! over trials; a build costs 10, a restart 1.

use std::collections::BTreeSet;

use dbisect::bisect::{Candidate, Deviates, Drift, Expect, Noise, Outcome, Question, Scenario, Simulated, simulate};
use dbisect::measure::Worse;

const BUILD: f64 = 10.0;
const RESTART: f64 = 1.0;

struct Case {
    name: &'static str,
    commits: usize,
    floor: f64,
    most_restarts: usize,
    /// Sizes of the changes; the first one is at a random commit, the others behind it.
    changes: &'static [f64],
    noise: Noise,
    unbuildable: std::ops::Range<usize>,
    /// Every so many classes one is cached.
    cached_every: usize,
    sitting: Option<usize>,
    restart: f64,
    budget: Option<f64>,
}

const QUIET: Noise = Noise { sigma: 0.01, tau: 0.003, deviates: Deviates::Normal, drift: Drift::None };
const USUAL: Case = Case {
    name: "",
    commits: 200,
    floor: 0.02,
    most_restarts: 24,
    changes: &[0.05],
    noise: QUIET,
    unbuildable: 0..0,
    cached_every: 0,
    sitting: None,
    restart: RESTART,
    budget: None,
};

fn noise(sigma: f64, tau: f64) -> Noise {
    Noise { sigma, tau, ..QUIET }
}

fn cases() -> Vec<Case> {
    let shaped = |sigma: f64, deviates: Deviates| Noise { deviates, ..noise(sigma, 0.003) };
    let drifting = |sigma: f64, drift: Drift| Noise { drift, ..noise(sigma, 0.003) };
    vec![
        Case { name: "5%, sigma 1%", ..USUAL },
        Case { name: "5%, sigma 1%, 1000 commits", commits: 1000, ..USUAL },
        Case { name: "5%, sigma 1%, a third cached", cached_every: 3, ..USUAL },
        Case { name: "20%, sigma 4%, 32 commits", commits: 32, changes: &[0.2], floor: 0.05, noise: noise(0.04, 0.005), ..USUAL },
        Case { name: "2%, sigma 1.5%, floor 1%", changes: &[0.02], floor: 0.01, most_restarts: 60, noise: noise(0.015, 0.003), ..USUAL },
        Case { name: "the same, a third cached", changes: &[0.02], floor: 0.01, most_restarts: 60, noise: noise(0.015, 0.003), cached_every: 3, ..USUAL },
        Case { name: "the same, a restart as a build", changes: &[0.02], floor: 0.01, most_restarts: 60, noise: noise(0.015, 0.003), restart: BUILD, ..USUAL },
        Case { name: "2%, sigma 1%, tau 0.7%", changes: &[0.02], floor: 0.01, noise: noise(0.01, 0.007), ..USUAL },
        Case { name: "4%, sigma 2%, tau 1%", changes: &[0.04], noise: noise(0.02, 0.01), ..USUAL },
        Case { name: "5%, sigma 0.01%, tau 0", noise: noise(0.0001, 0.0), ..USUAL },
        Case { name: "8%, t with 3 freedoms 2%", changes: &[0.08], noise: shaped(0.02, Deviates::Heavy), ..USUAL },
        Case { name: "4%, t with 3 freedoms 2%", changes: &[0.04], noise: shaped(0.02, Deviates::Heavy), ..USUAL },
        Case { name: "8%, contaminated 1.5%", changes: &[0.08], noise: shaped(0.015, Deviates::Contaminated), ..USUAL },
        Case { name: "4%, contaminated 1.5%", changes: &[0.04], noise: shaped(0.015, Deviates::Contaminated), ..USUAL },
        Case { name: "5%, walk 0.5%", noise: drifting(0.01, Drift::Walk(0.005)), ..USUAL },
        Case { name: "5%, wave 3% over 40", noise: drifting(0.01, Drift::Wave { amplitude: 0.03, period: 40.0 }), ..USUAL },
        Case { name: "5%, wave 2% over 7", noise: drifting(0.01, Drift::Wave { amplitude: 0.02, period: 7.0 }), ..USUAL },
        Case { name: "5%, a sitting every 12", sitting: Some(12), ..USUAL },
        Case { name: "20%, 60 broken", changes: &[0.2], floor: 0.05, noise: noise(0.02, 0.003), unbuildable: 70..130, ..USUAL },
        Case { name: "10% and 6%", changes: &[0.1, 0.06], ..USUAL },
        Case { name: "5% and back", changes: &[0.1, -0.05], ..USUAL },
        Case { name: "5%, budget of 100", budget: Some(100.0), ..USUAL },
        Case { name: "1%, below the floor", changes: &[0.01], ..USUAL },
        Case { name: "1.9%, just below the floor", changes: &[0.019], ..USUAL },
        Case { name: "none, sigma 2%", changes: &[], noise: noise(0.02, 0.003), ..USUAL },
        Case { name: "none, sigma 2%, tau 1%", changes: &[], noise: noise(0.02, 0.01), ..USUAL },
        Case { name: "none, sigma 0.5%, tau 2%", changes: &[], noise: noise(0.005, 0.02), ..USUAL },
        Case { name: "none, contaminated 2%", changes: &[], noise: shaped(0.02, Deviates::Contaminated), ..USUAL },
        Case { name: "none, t with 3 freedoms 2%", changes: &[], noise: shaped(0.02, Deviates::Heavy), ..USUAL },
        Case { name: "none, walk 1%", changes: &[], noise: drifting(0.01, Drift::Walk(0.01)), ..USUAL },
        Case { name: "none, wave 3% over 7", changes: &[], noise: drifting(0.01, Drift::Wave { amplitude: 0.03, period: 7.0 }), ..USUAL },
    ]
}

#[derive(Default)]
struct Tally {
    exact: f64,
    wrong: f64,
    set: f64,
    no_change: f64,
    undecided: f64,
    builds: f64,
    failed: f64,
    restarts: f64,
    cost: f64,
}

impl Tally {
    /// Any change in the expected direction may be named, even one just below the floor: it is there.
    fn add(&mut self, run: &Simulated, named: &[usize]) {
        match run.answer.outcome {
            Outcome::Culprit if run.answer.culprit.is_some_and(|culprit| named.contains(&culprit)) => self.exact += 1.0,
            Outcome::Suspects if run.answer.suspects.iter().any(|(index, _)| named.contains(index)) => self.set += 1.0,
            Outcome::Culprit | Outcome::Suspects => self.wrong += 1.0,
            Outcome::NoChange => self.no_change += 1.0,
            Outcome::Undecided => self.undecided += 1.0,
        }
        self.builds += run.builds as f64;
        self.failed += run.failed_builds as f64;
        self.restarts += run.restarts as f64;
        self.cost += run.seconds;
    }

    fn print(&self, name: &str, trials: f64) {
        let share = |sum: f64| sum / trials;
        println!(
            "{name:32} {:6.3} {:6.3} {:6.3} {:9.3} {:9.3} {:7.1} {:6.1} {:8.1} {:6.0}",
            share(self.exact),
            share(self.wrong),
            share(self.set),
            share(self.no_change),
            share(self.undecided),
            share(self.builds),
            share(self.failed),
            share(self.restarts),
            share(self.cost)
        );
    }
}

fn run(case: &Case, trials: u64) -> Tally {
    let commits = (0..case.commits).map(|class| Candidate { class, prior: 1.0 }).collect();
    let question =
        Question { commits, worse: Worse::Higher, expect: Expect::Regression, floor: case.floor, confidence: 0.95, seed: 7, most_restarts: case.most_restarts };
    let mut tally = Tally::default();
    for seed in 0..trials {
        let first = 1 + usize::try_from(seed * 37).unwrap_or(0) % (case.commits - 1);
        let place = |(at, size): (usize, &f64)| ((first + at * case.commits / 3).min(case.commits - 1), *size);
        let changes: Vec<(usize, f64)> = case.changes.iter().enumerate().map(place).collect();
        let named: Vec<usize> = changes.iter().filter(|(_, size)| *size > 0.0).map(|(at, _)| *at).collect();
        let scenario = Scenario {
            changes,
            noise: case.noise,
            unbuildable: case.unbuildable.clone().collect(),
            cached: (1..case.commits - 1).filter(|class| case.cached_every > 0 && class % case.cached_every == 0).collect::<BTreeSet<_>>(),
            sitting: case.sitting,
            build_seconds: BUILD,
            restart_seconds: case.restart,
            budget_seconds: case.budget,
            seed: 5000 + seed,
        };
        tally.add(&simulate(&question, &scenario), &named);
    }
    tally
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let trials = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(100_u32);
    let part = arguments.next().unwrap_or_default();
    println!(
        "{:32} {:>6} {:>6} {:>6} {:>9} {:>9} {:>7} {:>6} {:>8} {:>6}",
        "case", "exact", "wrong", "set", "no change", "undecided", "builds", "failed", "restarts", "cost"
    );
    for case in cases().iter().filter(|case| case.name.contains(&part)) {
        run(case, u64::from(trials)).print(case.name, f64::from(trials));
    }
}
