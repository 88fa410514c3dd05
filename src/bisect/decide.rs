//! The policy: certify the ends, search, confirm, answer.

use super::answer;
use super::certify::{certify, count};
use super::choose::choose;
use super::confirm::settle;
use super::model::{Belief, posterior};
use super::question::{Evidence, Next, Question};
use super::range::Range;
use super::readings::usable;

/// Restarts after which an end returns, so that drift can be told from change.
const REFERENCE_EVERY: usize = 3;
/// Restarts of a search without a budget, per binary digit of the number of commits and on top of
/// what the ends may take.
const RESTARTS_PER_DIGIT: usize = 24;

/// What to do next; computed from the evidence alone.
///
/// 1. The ends are measured in pairs until they surely differ by more than the floor in the expected
///    direction (with a quarter of the error that is allowed in all), surely do not, or
///    [`Question::most_restarts`] of each are used up.
/// 2. Then the class that tells most per second is measured, with an end returning every few
///    restarts, so that drift can be told from change. Builds that cannot be made keep their
///    probability, and are never proposed.
/// 3. When a gap between two measured classes holds the probability asked for and nothing in it can
///    be built, fresh pairs of its two sides must confirm it.
/// 4. A gap of one commit is the culprit; of several, the suspects. "No change" with the probability
///    asked for is an answer, too: then the ends differ, but at no commit.
///
/// At the budget, or after far more restarts than a range of this size can need, the answer is
/// undecided, or the suspects when few commits hold the probability asked for. A measurement that
/// would overrun the budget is not begun.
#[must_use]
pub fn next(question: &Question, evidence: &Evidence) -> Next {
    let Some(range) = Range::new(question) else { return no_range(question, evidence) };
    for (class, end) in [(range.good(), "good"), (range.bad(), "bad")] {
        if evidence.unbuildable.contains(&class) {
            let why = format!("the {end} end cannot be built, so there is nothing to compare with; choose a neighbouring commit as the {end} end");
            return answer::ends_undecided(&posterior(question, evidence), None, None, why);
        }
    }
    if let Some(next) = certify(question, evidence, &range) {
        return within_budget(evidence, next, |why| answer::ends_undecided(&posterior(question, evidence), None, None, why));
    }
    let belief = Belief::new(question, evidence, &range, u64::MAX);
    let next = settle(question, evidence, &range, &belief).unwrap_or_else(|| search(question, evidence, &range, &belief));
    within_budget(evidence, next, |why| answer::exhausted(question, &belief.posterior, why))
}

/// There is nothing to search.
fn no_range(question: &Question, evidence: &Evidence) -> Next {
    match question.commits.as_slice() {
        [] | [_] => answer::undecided(&posterior(question, evidence), "the range has no commit to blame; good and bad must be two commits".to_owned()),
        [first, rest @ ..] if rest.iter().all(|commit| commit.class == first.class) => {
            answer::no_change(1.0, None, "no commit of the range changes anything that is built".to_owned())
        }
        _ => answer::undecided(&posterior(question, evidence), "the commits of the range are not in the order of their builds".to_owned()),
    }
}

fn search(question: &Question, evidence: &Evidence, range: &Range, belief: &Belief) -> Next {
    let no_change = belief.posterior.no_change;
    if no_change >= question.confidence {
        return answer::no_change(no_change, None, "the builds of the ends differ, but the builds between them show that this is no commit's doing".to_owned());
    }
    let digits = (usize::BITS - range.classes.len().leading_zeros()) as usize;
    let most = 2 * question.most_restarts + RESTARTS_PER_DIGIT * digits;
    if evidence.readings.len() >= most {
        return answer::exhausted(question, &belief.posterior, format!("{most} restarts did not decide; the noise is too large for an effect of this size"));
    }
    let left = evidence.budget_seconds.map_or(f64::INFINITY, |budget| budget - evidence.spent_seconds);
    match choose(question, evidence, range, belief, |seconds| seconds + evidence.restart_seconds <= left) {
        Some(choice) => {
            let classes = std::iter::once(choice.class).chain(reference(evidence, range, choice.class)).collect();
            Next::Measure { classes, why: format!("it tells most per second: {:.2} bits for about {:.0} s", choice.bits, choice.seconds) }
        }
        None if left.is_finite() => {
            answer::exhausted(question, &belief.posterior, format!("{left:.0} s of the budget are left, and nothing that tells anything fits"))
        }
        None => answer::exhausted(question, &belief.posterior, "no further restart of what can be built would tell anything".to_owned()),
    }
}

/// The end that returns beside `class`, when it is time: the one with fewer readings.
fn reference(evidence: &Evidence, range: &Range, class: usize) -> Option<usize> {
    if range.is_end(class) {
        return None;
    }
    let mut readings: Vec<_> = evidence.readings.iter().filter(|reading| usable(reading)).collect();
    readings.sort_by_key(|reading| reading.sequence);
    let session = readings.last().map(|last| last.session);
    let since = readings.iter().rev().take_while(|reading| !range.is_end(reading.class) && Some(reading.session) == session).count();
    let seen = readings.iter().any(|reading| range.is_end(reading.class) && Some(reading.session) == session);
    let (good, bad) = (range.good(), range.bad());
    (since + 1 >= REFERENCE_EVERY || !seen).then(|| if count(evidence, good) <= count(evidence, bad) { good } else { bad })
}

/// The measurement, unless it would overrun the budget.
fn within_budget(evidence: &Evidence, next: Next, spent: impl Fn(String) -> Next) -> Next {
    let (Next::Measure { classes, .. }, Some(budget)) = (&next, evidence.budget_seconds) else { return next };
    let mut builds: Vec<usize> = classes.iter().copied().filter(|class| !evidence.built.contains(class)).collect();
    builds.sort_unstable();
    builds.dedup();
    #[expect(clippy::cast_precision_loss, reason = "a few builds and restarts")]
    let cost = builds.len() as f64 * evidence.build_seconds + classes.len() as f64 * evidence.restart_seconds;
    if evidence.spent_seconds + cost <= budget {
        return next;
    }
    spent(format!("the budget of {budget:.0} s does not allow the next measurement, which would take about {cost:.0} s"))
}

#[cfg(test)]
mod tests;
