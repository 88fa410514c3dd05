//! Confirmation of a claim on fresh readings.
//!
//! The readings that made a place likely were chosen because they did, so they cannot vouch for it.
//! Once a gap between two measured classes holds the probability asked for and nothing in it can be
//! built, its two sides are measured in pairs, and the answer stands only if these pairs alone show
//! it.
//!
//! Which readings are fresh is computed from the evidence, so that a replay agrees: those at the end
//! of the search that are of the two sides only, and that came after the posterior of what was there
//! before them made the claim.

use super::answer;
use super::builds::Builds;
use super::certify::{count, interleaved};
use super::model::{Belief, ends};
use super::question::{Evidence, Next, Question, Reading};
use super::range::{Range, floors, sign};
use super::readings::usable;

/// Fewest fresh pairs that confirm.
const PAIRS: usize = 3;
/// One-sided 95% quantile of the normal distribution: pairs are planned so that no change would look
/// like half the floor no more often than the rest.
const PLANNED: f64 = 1.645;
/// One-sided 97.5% quantile, for what is said about a difference that is left.
const LEFT_OVER: f64 = 1.96;

/// Two neighbouring measured classes with what can be blamed between them.
pub(super) struct Gap {
    /// Last class before the change.
    parent: usize,
    /// First class after it.
    culprit: usize,
    /// Indexes of the commits that can be blamed.
    commits: Vec<usize>,
    /// Probability of all of them.
    mass: f64,
}

impl Gap {
    /// The likeliest gap.
    fn likeliest(question: &Question, range: &Range, belief: &Belief) -> Option<Self> {
        let gap = |sides: &[usize]| {
            let (parent, culprit) = (sides[0], sides[1]);
            let inside = |index: &usize| (parent + 1..=culprit).contains(&question.commits[*index].class) && range.weights[*index] > 0.0;
            let commits: Vec<usize> = (0..question.commits.len()).filter(inside).collect();
            let mass = commits.iter().map(|index| belief.posterior.commits[*index]).sum();
            Self { parent, culprit, commits, mass }
        };
        belief.measured.windows(2).map(gap).max_by(|one, other| one.mass.total_cmp(&other.mass))
    }

    /// True when the readings before the sequence number `before` claim this gap.
    fn is_claimed(&self, question: &Question, evidence: &Evidence, range: &Range, before: u64) -> bool {
        let belief = Belief::new(question, evidence, range, before);
        Self::likeliest(question, range, &belief).is_some_and(|gap| gap.mass >= question.confidence && (gap.parent, gap.culprit) == (self.parent, self.culprit))
    }

    /// The fresh readings.
    fn fresh(&self, question: &Question, evidence: &Evidence, range: &Range) -> Fresh {
        let mut readings: Vec<Reading> = evidence.readings.iter().copied().filter(usable).collect();
        readings.sort_by_key(|reading| reading.sequence);
        let start = readings.iter().rposition(|reading| reading.class != self.parent && reading.class != self.culprit).map_or(0, |last| last + 1);
        // A claim once made seldom goes away without a reading of another class, so halving finds
        // its beginning.
        let tail = &readings[start..];
        let claimed = tail.partition_point(|reading| !self.is_claimed(question, evidence, range, reading.sequence));
        let of = |class: usize| tail[claimed..].iter().filter(|reading| reading.class == class).map(|reading| sign(question) * reading.value.ln()).collect();
        Fresh { parent: of(self.parent), culprit: of(self.culprit) }
    }
}

/// Fresh readings of both sides on the log scale, the expected direction upward.
struct Fresh {
    parent: Vec<f64>,
    culprit: Vec<f64>,
}

impl Fresh {
    fn pairs(&self) -> usize {
        self.parent.len().min(self.culprit.len())
    }

    fn difference(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a number of readings")]
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        mean(&self.culprit) - mean(&self.parent)
    }
}

/// Pairs after which a confirmation means something: three, or as many as tell the change from none.
fn planned(question: &Question, belief: &Belief) -> usize {
    let most = question.most_restarts.max(PAIRS);
    let (mean, _) = belief.posterior.delta.unwrap_or_default();
    let distance = mean - floors(question).0 / 2.0;
    if distance <= 0.0 {
        return most;
    }
    let wanted = 2.0 * (PLANNED * belief.posterior.sigma / distance).powi(2);
    (PAIRS..most).find(|pairs| f64::from(u32::try_from(*pairs).unwrap_or(u32::MAX)) >= wanted).unwrap_or(most)
}

/// Confirms the likeliest gap and answers; `None` while it must be searched further.
pub(super) fn settle(question: &Question, evidence: &Evidence, range: &Range, belief: &Belief) -> Option<Next> {
    let gap = Gap::likeliest(question, range, belief).filter(|gap| gap.mass >= question.confidence)?;
    let splits = |class: usize| gap.parent < class && class < gap.culprit;
    if Builds::new(range, evidence).testable().any(|(class, _)| splits(class)) {
        return None;
    }
    let fresh = gap.fresh(question, evidence, range);
    let (have, wanted) = (fresh.pairs(), planned(question, belief));
    let measure = |pairs: usize, why: String| {
        let classes = interleaved(question, evidence, gap.parent, gap.culprit, pairs.min(PAIRS));
        Some(Next::Measure { classes, why })
    };
    if have < wanted {
        return measure(wanted - have, format!("fresh pairs of both sides must confirm what has a probability of {:.3} ({have} of {wanted})", gap.mass));
    }
    if fresh.difference() > floors(question).0 / 2.0 {
        return Some(answer::found(&belief.posterior, &gap.commits, gap.mass, why(question, evidence, range, belief, &gap, &fresh)));
    }
    if have < 2 * wanted {
        return measure(2 * wanted - have, format!("{have} fresh pairs of both sides do not confirm the change yet"));
    }
    Some(answer::undecided(
        &belief.posterior,
        format!("{have} fresh pairs of the likeliest commit and its parent do not show the change that the rest of the search does"),
    ))
}

fn why(question: &Question, evidence: &Evidence, range: &Range, belief: &Belief, gap: &Gap, fresh: &Fresh) -> String {
    let pairs = fresh.pairs();
    let mut why = match gap.commits.len() {
        1 => format!("{pairs} fresh pairs of the commit and its parent confirm it"),
        several => format!("{pairs} fresh pairs confirm that it is one of {several} commits, which cannot be told apart since those between cannot be built"),
    };
    // Is the change as large as the difference that was to be explained?
    let Some(whole) = ends(question, evidence, range, u64::MAX) else { return why };
    #[expect(clippy::cast_precision_loss, reason = "a number of readings")]
    let readings = count(evidence, gap.parent).min(count(evidence, gap.culprit)).max(1) as f64;
    let deviation = (whole.delta.1.powi(2) + 2.0 * belief.posterior.sigma.powi(2) / readings).sqrt();
    let left = whole.delta.0 - fresh.difference();
    if left - LEFT_OVER * deviation > floors(question).0 {
        let rest = 100.0 * (sign(question) * left).exp_m1();
        why.push_str(&format!("; the ends differ by about {rest:+.1}% more than this change explains, so there is another one"));
    }
    why
}
