//! The ways a search can end.

use super::model::{Ends, Posterior};
use super::question::{Answer, Next, Outcome, Question};

/// Share of the probability of a change that the list of suspects holds.
const CREDIBLE: f64 = 0.99;
/// A search that had to end early names a set of suspects if it is no larger than this share of the
/// range: a tenth is worth a look by hand, more is not.
const WORTH_A_LOOK: usize = 10;

/// No commit changed the metric by the floor in the expected direction.
pub(super) fn no_change(probability: f64, ends: Option<&Ends>, why: String) -> Next {
    let effect = ends.map(|ends| ends.effect);
    Next::Stop(Answer { outcome: Outcome::NoChange, culprit: None, posterior: probability, suspects: Vec::new(), effect, restarts_needed: None, why })
}

/// The ends are not known well enough, or cannot be known.
pub(super) fn ends_undecided(belief: &Posterior, ends: Option<&Ends>, restarts_needed: Option<usize>, why: String) -> Next {
    let effect = ends.map(|ends| ends.effect);
    Next::Stop(Answer { effect, restarts_needed, ..open(Outcome::Undecided, belief, likeliest(belief), why) })
}

/// The evidence does not suffice, and says what it says.
pub(super) fn undecided(belief: &Posterior, why: String) -> Next {
    Next::Stop(open(Outcome::Undecided, belief, likeliest(belief), why))
}

/// The search must end before it knows. A small set that holds the probability asked for is still an
/// answer; it names nobody.
pub(super) fn exhausted(question: &Question, belief: &Posterior, why: String) -> Next {
    let ranked = ranked(belief);
    let most = (ranked.len() / WORTH_A_LOOK).max(2);
    let mass: f64 = smallest_set(&ranked, question.confidence).iter().map(|(_, mass)| mass).sum();
    if mass >= question.confidence && smallest_set(&ranked, question.confidence).len() <= most {
        return Next::Stop(open(Outcome::Suspects, belief, mass, format!("{why}; what is known leaves few commits, and none of them is confirmed")));
    }
    undecided(belief, why)
}

/// One commit, or several that no build can tell apart.
pub(super) fn found(belief: &Posterior, commits: &[usize], mass: f64, why: String) -> Next {
    let culprit = match commits {
        [one] => Some(*one),
        _ => None,
    };
    let outcome = if culprit.is_some() { Outcome::Culprit } else { Outcome::Suspects };
    Next::Stop(Answer { culprit, ..open(outcome, belief, mass, why) })
}

fn open(outcome: Outcome, belief: &Posterior, posterior: f64, why: String) -> Answer {
    let ranked = ranked(belief);
    let suspects = smallest_set(&ranked, CREDIBLE * ranked.iter().map(|(_, mass)| mass).sum::<f64>()).to_vec();
    Answer { outcome, culprit: None, posterior, suspects, effect: belief.effect, restarts_needed: None, why }
}

fn likeliest(belief: &Posterior) -> f64 {
    belief.commits.iter().copied().fold(0.0, f64::max)
}

/// Commits that can be blamed, likeliest first.
fn ranked(belief: &Posterior) -> Vec<(usize, f64)> {
    let mut ranked: Vec<(usize, f64)> = belief.commits.iter().copied().enumerate().filter(|(_, mass)| *mass > 0.0).collect();
    ranked.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    ranked
}

/// The shortest head of the list that holds `wanted`, or all of it.
fn smallest_set(ranked: &[(usize, f64)], wanted: f64) -> &[(usize, f64)] {
    let mut sum = 0.0;
    let length = ranked.iter().take_while(|(_, mass)| {
        let open = sum < wanted;
        sum += mass;
        open
    });
    &ranked[..length.count()]
}
