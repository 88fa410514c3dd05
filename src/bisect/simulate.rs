//! Searches on simulated noise, to see how often they are right and what they cost.

use std::collections::BTreeSet;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::decide::next;
use super::question::{Answer, Evidence, Next, Question, Reading};

/// Shape of the noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Deviates {
    /// Normal.
    Normal,
    /// Student's t with three degrees of freedom, scaled to unit variance.
    Heavy,
    /// Normal, with one reading in twenty five times as far out.
    Contaminated,
}

/// The noise of a simulated host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// Standard deviation of a restart, on the log scale.
    pub sigma: f64,
    /// Standard deviation of a build (code layout).
    pub tau: f64,
    /// Standard deviation of the random walk's step between restarts.
    pub drift: f64,
    /// Shape of the restart's noise.
    pub deviates: Deviates,
}

/// The truth that a simulated search has to find.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Changes: commit index and size on the log scale, upward.
    pub changes: Vec<(usize, f64)>,
    /// Noise.
    pub noise: Noise,
    /// Classes that cannot be built.
    pub unbuildable: BTreeSet<usize>,
    /// Seconds of a build.
    pub build_seconds: f64,
    /// Seconds of a restart.
    pub restart_seconds: f64,
    /// Seed of the noise.
    pub seed: u64,
}

/// What a simulated search came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    /// The answer.
    pub answer: Answer,
    /// Builds made, failed ones included.
    pub builds: usize,
    /// Builds that failed.
    pub failed_builds: usize,
    /// Restarts.
    pub restarts: usize,
    /// Seconds that all of it would have taken.
    pub seconds: f64,
}

struct Host {
    random: ChaCha8Rng,
    noise: Noise,
    at: f64,
    layouts: std::collections::BTreeMap<usize, f64>,
}

impl Host {
    fn uniform(&mut self) -> f64 {
        self.random.random::<f64>().clamp(1e-12, 1.0 - 1e-12)
    }

    fn normal(&mut self) -> f64 {
        let uniform = self.uniform();
        Normal::standard().inverse_cdf(uniform)
    }

    fn deviate(&mut self) -> f64 {
        match self.noise.deviates {
            Deviates::Normal => self.normal(),
            Deviates::Heavy => {
                let uniform = self.uniform();
                // The variance of t with three degrees of freedom is three.
                StudentsT::new(0.0, 1.0, 3.0).map_or(0.0, |t| t.inverse_cdf(uniform)) / 3_f64.sqrt()
            }
            Deviates::Contaminated => {
                let far = if self.uniform() < 0.05 { 5.0 } else { 1.0 };
                far * self.normal()
            }
        }
    }

    fn read(&mut self, class: usize, level: f64) -> f64 {
        self.at += self.noise.drift * self.normal();
        if !self.layouts.contains_key(&class) {
            let layout = self.noise.tau * self.normal();
            self.layouts.insert(class, layout);
        }
        let layout = self.layouts.get(&class).copied().unwrap_or_default();
        (4.0 + level + self.at + layout + self.noise.sigma * self.deviate()).exp()
    }
}

/// Runs a search to its end on a simulated host. Readings rise with the changes, so the question
/// should be about a metric that is worse when higher.
#[must_use]
pub fn simulate(question: &Question, scenario: &Scenario) -> Simulated {
    let mut host = Host { random: ChaCha8Rng::seed_from_u64(scenario.seed), noise: scenario.noise, at: 0.0, layouts: std::collections::BTreeMap::new() };
    let mut evidence = Evidence { build_seconds: scenario.build_seconds, restart_seconds: scenario.restart_seconds, ..Evidence::default() };
    let mut failed_builds = 0;
    loop {
        let classes = match next(question, &evidence) {
            Next::Stop(answer) => {
                let builds = evidence.built.len() + failed_builds;
                return Simulated { answer, builds, failed_builds, restarts: evidence.readings.len(), seconds: evidence.spent_seconds };
            }
            Next::Measure { classes, .. } => classes,
        };
        for class in classes {
            if !evidence.built.contains(&class) {
                evidence.spent_seconds += scenario.build_seconds;
                if scenario.unbuildable.contains(&class) {
                    evidence.unbuildable.insert(class);
                    failed_builds += 1;
                    break;
                }
                evidence.built.insert(class);
            }
            let changed = |at: usize| question.commits.get(at).is_some_and(|commit| commit.class <= class);
            let level = scenario.changes.iter().filter(|(at, _)| changed(*at)).map(|(_, size)| size).sum();
            evidence.spent_seconds += scenario.restart_seconds;
            let sequence = evidence.readings.len() as u64;
            evidence.readings.push(Reading { class, sequence, session: 0, value: host.read(class, level) });
        }
    }
}
