//! The policy: certify the ends, search, confirm, answer.

use std::collections::BTreeSet;

use super::choose::choose;
use super::model::{Posterior, posterior};
use super::question::{Answer, Evidence, Next, Outcome, Question};

/// Pairs of restarts of the ends before they are judged.
const END_PAIRS: usize = 3;
/// Fresh readings of culprit and parent, each, that confirm.
const CONFIRMING: usize = 3;
/// Readings of each after which a confirmation that still does not agree is given up.
const MOST_CONFIRMING: usize = 12;
/// Restarts per end that a forecast names at most.
const LONGEST_FORECAST: usize = 2000;
/// Restarts of a search without a budget, per commit's binary digit and on top of the ends'.
const RESTARTS_PER_BIT: usize = 24;

/// What to do next.
///
/// 1. The ends are measured in pairs until they surely differ by more than the floor in the expected
///    direction (with a quarter of the error that is allowed in all), surely do not, or
///    [`Question::most_restarts`] are used up.
/// 2. Then the class that tells most per second is measured, with a restart of an end beside it, so
///    that drift can be told from change.
/// 3. When a gap between two neighbouring classes, with nothing buildable in it, holds the
///    probability asked for, its two sides are measured afresh in pairs. The answer stands if these
///    readings alone show more than half the floor and the probability still holds. The fresh ones
///    are those after the last reading of any other class, so they can be told when a search is
///    replayed.
/// 4. A gap of one commit is the culprit; of several, the suspects.
#[must_use]
pub fn next(question: &Question, evidence: &Evidence) -> Next {
    if question.commits.len() < 2 {
        return undecided(question, &posterior(question, evidence), "the range has no commit to blame".to_owned(), None);
    }
    let (good, bad) = (question.commits[0].class, question.commits[question.commits.len() - 1].class);
    let belief = posterior(question, evidence);
    if good == bad {
        return Next::Stop(Answer { posterior: 1.0, ..no_change(question, &belief, "no commit of the range changes anything that is built".to_owned()) });
    }
    for (class, end) in [(good, "good"), (bad, "bad")] {
        if evidence.unbuildable.contains(&class) {
            return undecided(
                question,
                &belief,
                format!("the {end} end cannot be built, so there is nothing to compare with; choose a neighbouring commit"),
                None,
            );
        }
    }
    if let Some(next) = certify(question, evidence, &belief, good, bad) {
        return next;
    }
    if let Some(next) = settle(question, evidence, &belief) {
        return next;
    }
    if let Some(stop) = spent(question, evidence, &belief) {
        return stop;
    }
    match choose(question, evidence, &belief) {
        Some((class, bits)) => {
            let reference = reference(evidence, good, bad, class);
            within_budget(question, evidence, &belief, vec![class, reference], format!("it tells most per second ({bits:.2} bits)"))
        }
        None => undecided(question, &belief, "no commit of the range can be built".to_owned(), None),
    }
}

fn count(evidence: &Evidence, class: usize) -> usize {
    evidence.readings.iter().filter(|reading| reading.class == class && usable(reading.value)).count()
}

fn usable(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

/// The end with fewer readings returns as the reference; never the class that is measured.
fn reference(evidence: &Evidence, good: usize, bad: usize, class: usize) -> usize {
    if class == good {
        bad
    } else if class == bad || count(evidence, good) <= count(evidence, bad) {
        good
    } else {
        bad
    }
}

/// `None` when the ends are certified.
fn certify(question: &Question, evidence: &Evidence, belief: &Posterior, good: usize, bad: usize) -> Option<Next> {
    let done = count(evidence, good).min(count(evidence, bad));
    let strict = (1.0 - question.confidence) / 4.0;
    if done >= END_PAIRS {
        if belief.beyond >= 1.0 - strict {
            return None;
        }
        if belief.opposite >= 1.0 - strict {
            let why = "the ends differ, but in the other direction; the opposite --expect looks for that".to_owned();
            return Some(Next::Stop(Answer { posterior: 1.0 - belief.beyond, ..no_change(question, belief, why) }));
        }
        if belief.beyond <= 1.0 - question.confidence {
            let why = format!("the ends do not differ by {:.1}% or more in the expected direction", question.floor * 100.0);
            return Some(Next::Stop(Answer { posterior: 1.0 - belief.beyond, ..no_change(question, belief, why) }));
        }
        // The search's own restarts of the ends count as well, so an end that was certified once and
        // no longer is gets the chance to be certified again.
        if done >= question.most_restarts {
            let needed = forecast(question, belief, done);
            let why = format!("after {done} restarts each the ends neither surely differ by {:.1}% nor surely do not", question.floor * 100.0);
            return Some(undecided(question, belief, why, needed));
        }
    }
    let pairs = if done < END_PAIRS { END_PAIRS - done } else { 2 };
    let classes = pairs_of(question, evidence, good, bad, pairs);
    Some(within_budget(question, evidence, belief, classes, "the ends must differ before anything else is measured".to_owned()))
}

/// Interleaved pairs; the order within a pair is drawn from seed and position.
fn pairs_of(question: &Question, evidence: &Evidence, one: usize, other: usize, pairs: usize) -> Vec<usize> {
    let start = evidence.readings.len();
    let mut classes = Vec::with_capacity(2 * pairs);
    for pair in 0..pairs {
        let draw = blake3::hash(format!("{} {one} {other} {}", question.seed, start + 2 * pair).as_bytes());
        // The second pair of two mirrors the first, so that a steady drift weighs on both sides alike.
        let swapped = if pair % 2 == 1 { classes.last() == Some(&other) } else { draw.as_bytes()[0] % 2 == 1 };
        classes.extend(if swapped { [other, one] } else { [one, other] });
    }
    classes
}

/// Restarts that each end still needs, from the spread of the difference so far.
fn forecast(question: &Question, belief: &Posterior, done: usize) -> Option<usize> {
    let (mean, deviation) = belief.delta;
    let distance = (mean - question.floor.ln_1p()).abs();
    if !(deviation.is_finite() && distance > 0.0) {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "a number of restarts")]
    let needed = done as f64 * (2.24 * deviation / distance).powi(2);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded up and capped")]
    let more = (needed.ceil().min(LONGEST_FORECAST as f64) as usize).saturating_sub(done).max(1);
    Some(more)
}

/// Two neighbouring buildable classes with the commits between them.
struct Gap {
    /// Last class before the change.
    parent: usize,
    /// First class after it.
    culprit: usize,
    /// Indexes of the commits that can be blamed.
    commits: Vec<usize>,
    mass: f64,
}

/// The likeliest gap that no measurement can split any more.
fn tightest(question: &Question, evidence: &Evidence, belief: &Posterior) -> Option<Gap> {
    let mut best: Option<Gap> = None;
    let mut parent = question.commits[0].class;
    let mut commits = Vec::new();
    for (index, commit) in question.commits.iter().enumerate().skip(1) {
        if commit.prior > 0.0 {
            commits.push(index);
        }
        let end_of_class = question.commits.get(index + 1).is_none_or(|next| next.class != commit.class);
        if end_of_class && commit.class != parent && !evidence.unbuildable.contains(&commit.class) {
            let mass = commits.iter().map(|index| belief.commits[*index]).sum();
            let gap = Gap { parent, culprit: commit.class, commits: std::mem::take(&mut commits), mass };
            parent = commit.class;
            if best.as_ref().is_none_or(|best| gap.mass > best.mass) {
                best = Some(gap);
            }
        }
    }
    best
}

/// Confirms and answers once a gap holds the probability asked for.
fn settle(question: &Question, evidence: &Evidence, belief: &Posterior) -> Option<Next> {
    let gap = tightest(question, evidence, belief).filter(|gap| gap.mass >= question.confidence)?;
    let fresh = Fresh::of(evidence, &gap);
    let have = fresh.parent.len().min(fresh.culprit.len());
    if have < CONFIRMING {
        let classes = pairs_of(question, evidence, gap.parent, gap.culprit, CONFIRMING - have);
        return Some(within_budget(question, evidence, belief, classes, format!("fresh readings must confirm what is {:.3} probable", gap.mass)));
    }
    if fresh.agrees(question) {
        return Some(Next::Stop(answer(question, belief, &gap)));
    }
    if have >= MOST_CONFIRMING {
        let why = format!("{have} fresh pairs of the likeliest commit and its parent do not show the change that the rest of the search does");
        return Some(undecided(question, belief, why, None));
    }
    let classes = pairs_of(question, evidence, gap.parent, gap.culprit, CONFIRMING);
    Some(within_budget(question, evidence, belief, classes, "the fresh readings do not confirm it yet".to_owned()))
}

/// Readings of a gap's two sides after the last reading of any other class, in the expected
/// direction's sign.
struct Fresh {
    parent: Vec<f64>,
    culprit: Vec<f64>,
}

impl Fresh {
    fn of(evidence: &Evidence, gap: &Gap) -> Self {
        let sides = [gap.parent, gap.culprit];
        let last_other = evidence.readings.iter().filter(|reading| !sides.contains(&reading.class)).map(|reading| reading.sequence).max();
        // The certificate of the ends is no confirmation, even where nothing lies between them.
        let certificate = evidence.readings.iter().map(|reading| reading.sequence).min().map(|first| first + 2 * END_PAIRS as u64 - 1);
        let start = last_other.max(certificate);
        let of = |class: usize| {
            evidence
                .readings
                .iter()
                .filter(|reading| reading.class == class && usable(reading.value) && start.is_none_or(|start| reading.sequence > start))
                .map(|reading| reading.value.ln())
                .collect()
        };
        Self { parent: of(gap.parent), culprit: of(gap.culprit) }
    }

    fn agrees(&self, question: &Question) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "a number of readings")]
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let up = (question.worse == crate::measure::Worse::Higher) == (question.expect == super::question::Expect::Regression);
        let difference = mean(&self.culprit) - mean(&self.parent);
        (if up { difference } else { -difference }) > question.floor.ln_1p() / 2.0
    }
}

fn answer(question: &Question, belief: &Posterior, gap: &Gap) -> Answer {
    let single = gap.commits.len() == 1;
    Answer {
        outcome: if single { Outcome::Culprit } else { Outcome::Suspects },
        culprit: gap.commits.first().copied().filter(|_| single),
        posterior: gap.mass,
        suspects: suspects(belief),
        effect: Some(belief.effect(question)),
        restarts_needed: None,
        why: if single {
            "fresh readings of the commit and its parent confirm it".to_owned()
        } else {
            format!("one of {} commits, which cannot be told apart since those between cannot be built", gap.commits.len())
        },
    }
}

fn no_change(question: &Question, belief: &Posterior, why: String) -> Answer {
    Answer {
        outcome: Outcome::NoChange,
        culprit: None,
        posterior: belief.no_change,
        suspects: Vec::new(),
        effect: Some(belief.effect(question)).filter(|effect| effect.relative.is_finite() && effect.ci95[1].is_finite()),
        restarts_needed: None,
        why,
    }
}

fn undecided(question: &Question, belief: &Posterior, why: String, restarts_needed: Option<usize>) -> Next {
    let effect = Some(belief.effect(question)).filter(|effect| effect.ci95.iter().all(|end| end.is_finite()));
    let best = belief.commits.iter().copied().fold(0.0, f64::max);
    Next::Stop(Answer { outcome: Outcome::Undecided, culprit: None, posterior: best, suspects: suspects(belief), effect, restarts_needed, why })
}

/// The smallest set of commits with 99% of the probability of a change, likeliest first.
fn suspects(belief: &Posterior) -> Vec<(usize, f64)> {
    let mut all: Vec<(usize, f64)> = belief.commits.iter().copied().enumerate().filter(|(_, mass)| *mass > 0.0).collect();
    all.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    let wanted = 0.99 * all.iter().map(|(_, mass)| mass).sum::<f64>();
    let mut sum = 0.0;
    all.into_iter()
        .take_while(|(_, mass)| {
            let more = sum < wanted;
            sum += mass;
            more
        })
        .collect()
}

/// The measurement, unless the budget does not allow it.
fn within_budget(question: &Question, evidence: &Evidence, belief: &Posterior, classes: Vec<usize>, why: String) -> Next {
    let unbuilt: BTreeSet<usize> = classes.iter().copied().filter(|class| !evidence.built.contains(class)).collect();
    #[expect(clippy::cast_precision_loss, reason = "a few builds and restarts")]
    let cost = unbuilt.len() as f64 * evidence.build_seconds + classes.len() as f64 * evidence.restart_seconds;
    match evidence.budget_seconds {
        Some(budget) if evidence.spent_seconds + cost > budget => {
            undecided(question, belief, format!("the budget of {budget:.0} s does not allow the next measurement, which would take about {cost:.0} s"), None)
        }
        _ => Next::Measure { classes, why },
    }
}

/// Ends a search without a budget that goes on for far longer than its range can explain.
fn spent(question: &Question, evidence: &Evidence, belief: &Posterior) -> Option<Next> {
    let bits = usize::BITS - question.commits.len().leading_zeros();
    let most = 2 * question.most_restarts + RESTARTS_PER_BIT * bits as usize;
    (evidence.readings.len() >= most)
        .then(|| undecided(question, belief, format!("{most} restarts did not decide; the noise is too large for an effect of this size"), None))
}

#[cfg(test)]
mod tests;
