//! Searches on simulated noise, to see how often they are right and what they cost.

use std::collections::{BTreeMap, BTreeSet};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::decide::next;
use super::question::{Answer, Evidence, Next, Question, Reading};

/// Shape of the noise of a restart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Deviates {
    /// Normal.
    Normal,
    /// Student's t with three degrees of freedom, scaled to unit variance.
    Heavy,
    /// Normal, with one reading in twenty from a distribution five times as wide.
    Contaminated,
}

/// How the host changes during a sitting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Drift {
    /// Not at all.
    None,
    /// A random walk; standard deviation of a step on the log scale, one step per restart.
    Walk(f64),
    /// A sine wave.
    Wave {
        /// Largest deviation on the log scale.
        amplitude: f64,
        /// Restarts of a whole wave.
        period: f64,
    },
}

/// The noise of a simulated host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// Standard deviation of a restart, on the log scale.
    pub sigma: f64,
    /// Standard deviation of a build (code layout), on the log scale.
    pub tau: f64,
    /// Shape of a restart's noise.
    pub deviates: Deviates,
    /// What the host does meanwhile.
    pub drift: Drift,
}

/// The truth that a simulated search has to find.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Changes: index of the commit and size on the log scale, upward.
    pub changes: Vec<(usize, f64)>,
    /// Noise.
    pub noise: Noise,
    /// Classes that cannot be built.
    pub unbuildable: BTreeSet<usize>,
    /// Classes that are in the cache before the search begins.
    pub cached: BTreeSet<usize>,
    /// Restarts after which a new sitting begins, on a host that is a few per cent different.
    pub sitting: Option<usize>,
    /// Seconds of a build.
    pub build_seconds: f64,
    /// Seconds of a restart.
    pub restart_seconds: f64,
    /// Seconds after which the search must end.
    pub budget_seconds: Option<f64>,
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

/// Standard deviation of a host's level between sittings, on the log scale.
const SITTING: f64 = 0.03;
/// Level of the readings on the log scale; no result depends on it.
const LEVEL: f64 = 4.0;

struct Host {
    random: ChaCha8Rng,
    noise: Noise,
    restarts: usize,
    walk: f64,
    sitting: f64,
    layouts: BTreeMap<usize, f64>,
}

impl Host {
    fn uniform(&mut self) -> f64 {
        // Both ends of the interval would be infinitely far out.
        self.random.random::<f64>().clamp(1e-12, 1.0 - 1e-12)
    }

    fn normal(&mut self) -> f64 {
        Normal::standard().inverse_cdf(self.uniform())
    }

    fn deviate(&mut self) -> f64 {
        match self.noise.deviates {
            Deviates::Normal => self.normal(),
            // The variance of t with three degrees of freedom is three.
            Deviates::Heavy => StudentsT::new(0.0, 1.0, 3.0).map_or(0.0, |t| t.inverse_cdf(self.uniform())) / 3_f64.sqrt(),
            Deviates::Contaminated => {
                let far = if self.uniform() < 0.05 { 5.0 } else { 1.0 };
                far * self.normal()
            }
        }
    }

    fn drift(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a number of restarts")]
        let time = self.restarts as f64;
        match self.noise.drift {
            Drift::None => 0.0,
            Drift::Walk(step) => {
                self.walk += step * self.normal();
                self.walk
            }
            Drift::Wave { amplitude, period } => amplitude * (std::f64::consts::TAU * time / period).sin(),
        }
    }

    fn read(&mut self, class: usize, level: f64) -> f64 {
        if !self.layouts.contains_key(&class) {
            let layout = self.noise.tau * self.normal();
            self.layouts.insert(class, layout);
        }
        let layout = self.layouts.get(&class).copied().unwrap_or_default();
        let value = LEVEL + level + self.sitting + self.drift() + layout + self.noise.sigma * self.deviate();
        self.restarts += 1;
        value.exp()
    }
}

/// Runs a search to its end on a simulated host. Readings rise with the changes, so for a metric
/// that is worse when higher the changes are regressions.
#[must_use]
pub fn simulate(question: &Question, scenario: &Scenario) -> Simulated {
    let mut host =
        Host { random: ChaCha8Rng::seed_from_u64(scenario.seed), noise: scenario.noise, restarts: 0, walk: 0.0, sitting: 0.0, layouts: BTreeMap::new() };
    let mut evidence = Evidence {
        build_seconds: scenario.build_seconds,
        restart_seconds: scenario.restart_seconds,
        budget_seconds: scenario.budget_seconds,
        built: scenario.cached.clone(),
        ..Evidence::default()
    };
    let mut builds = 0;
    loop {
        let classes = match next(question, &evidence) {
            Next::Stop(answer) => {
                return Simulated {
                    answer,
                    builds,
                    failed_builds: evidence.unbuildable.len(),
                    restarts: evidence.readings.len(),
                    seconds: evidence.spent_seconds,
                };
            }
            Next::Measure { classes, .. } => classes,
        };
        // Builds come first, as in life: nothing is built beside a measurement.
        for class in &classes {
            if evidence.built.contains(class) || evidence.unbuildable.contains(class) {
                continue;
            }
            builds += 1;
            evidence.spent_seconds += scenario.build_seconds;
            let builds = if scenario.unbuildable.contains(class) { &mut evidence.unbuildable } else { &mut evidence.built };
            builds.insert(*class);
        }
        if classes.iter().any(|class| evidence.unbuildable.contains(class)) {
            continue;
        }
        for class in classes {
            measure(question, scenario, &mut host, &mut evidence, class);
        }
    }
}

fn measure(question: &Question, scenario: &Scenario, host: &mut Host, evidence: &mut Evidence, class: usize) {
    let changed = |at: usize| question.commits.get(at).is_some_and(|commit| commit.class <= class);
    let level = scenario.changes.iter().filter(|(at, _)| changed(*at)).map(|(_, size)| size).sum();
    let sequence = evidence.readings.len() as u64;
    let session = scenario.sitting.map_or(0, |restarts| sequence / restarts.max(1) as u64);
    if evidence.readings.last().is_some_and(|last| last.session != session) {
        (host.walk, host.sitting) = (0.0, SITTING * host.normal());
    }
    evidence.spent_seconds += scenario.restart_seconds;
    evidence.readings.push(Reading { class, sequence, session, value: host.read(class, level) });
}
