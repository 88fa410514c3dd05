//! Whether the ends differ at all: a search that starts on a wrong end never recovers.
//!
//! The question here is about two builds, not about commits, so the difference may have any cause,
//! code layout included; whether it begins at a commit is for the search to find out. Its prior is
//! flat: with a constant sigma the probabilities below are those of the t distribution.

use statrs::distribution::{ContinuousCDF, Normal};

use super::answer;
use super::model::{Belief, Ends, ends};
use super::question::{Evidence, Next, Question};
use super::range::{Range, floors};
use super::readings::usable;

/// Pairs of restarts of the ends before they are judged.
const PAIRS: usize = 3;
/// Pairs between one judgement and the next: two, so that one mirrors the other.
const MORE_PAIRS: usize = 2;
/// Part of the error allowed in all that the certificate may use up.
const PART_OF_ERROR: f64 = 0.25;
/// Restarts of the ends for each that is allowed, after which readings that are unusable, or never
/// in one sitting with the other end, are given up.
const USELESS: usize = 4;
/// Most restarts of an end that a forecast names.
const LONGEST_FORECAST: f64 = 10_000.0;

/// What to do about the ends; `None` once they are certified.
pub(super) fn certify(question: &Question, evidence: &Evidence, range: &Range) -> Option<Next> {
    let strict = (1.0 - question.confidence) * PART_OF_ERROR;
    let done = count(evidence, range.good()).min(count(evidence, range.bad()));
    let known = if done >= PAIRS { ends(question, evidence, range, u64::MAX) } else { None };
    if let Some(known) = &known {
        if known.beyond >= 1.0 - strict || was_certified(question, evidence, range, strict) {
            return None;
        }
        if let Some(stop) = judge(question, known, strict) {
            return Some(stop);
        }
    }
    let attempts = evidence.readings.iter().filter(|reading| range.is_end(reading.class)).count();
    if done >= question.most_restarts.max(PAIRS) || attempts >= USELESS * 2 * question.most_restarts.max(PAIRS) {
        let needed = known.as_ref().and_then(|known| forecast(question, known, done, strict));
        let floor = 100.0 * question.floor;
        let why = match &known {
            Some(_) => format!("after {done} restarts each the ends neither surely differ by {floor:.1}% nor surely do not"),
            None => format!("{attempts} restarts of the ends gave no usable reading of both in one sitting"),
        };
        return Some(answer::ends_undecided(&Belief::new(question, evidence, range, u64::MAX).posterior, known.as_ref(), needed, why));
    }
    let pairs = if done < PAIRS { PAIRS - done } else { MORE_PAIRS };
    let classes = interleaved(question, evidence, range.good(), range.bad(), pairs);
    Some(Next::Measure { classes, why: "the ends must be known to differ before anything else is measured".to_owned() })
}

/// Restarts of a class that count.
pub(super) fn count(evidence: &Evidence, class: usize) -> usize {
    evidence.readings.iter().filter(|reading| reading.class == class && usable(reading)).count()
}

/// True when the ends were certified before the first class between them was measured. Later
/// readings of the ends then belong to the search, whose posterior weighs them with all others.
fn was_certified(question: &Question, evidence: &Evidence, range: &Range, strict: f64) -> bool {
    let first = evidence.readings.iter().filter(|reading| usable(reading) && !range.is_end(reading.class)).map(|reading| reading.sequence).min();
    let enough = |class: usize, first: u64| {
        evidence.readings.iter().filter(|reading| reading.class == class && reading.sequence < first && usable(reading)).count() >= PAIRS
    };
    first
        .filter(|first| enough(range.good(), *first) && enough(range.bad(), *first))
        .and_then(|first| ends(question, evidence, range, first))
        .is_some_and(|then| then.beyond >= 1.0 - strict)
}

/// The answer, when the ends surely do not differ as expected.
fn judge(question: &Question, known: &Ends, strict: f64) -> Option<Next> {
    let floor = 100.0 * question.floor;
    if known.opposite >= 1.0 - strict {
        let why = format!("the ends differ by more than {floor:.1}%, but in the other direction; the opposite --expect looks for that");
        return Some(answer::no_change(1.0 - known.beyond, Some(known), why));
    }
    (known.beyond <= 1.0 - question.confidence)
        .then(|| answer::no_change(1.0 - known.beyond, Some(known), format!("the ends do not differ by {floor:.1}% or more in the expected direction")))
}

/// Restarts that each end still needs, if the difference is what it now seems to be.
fn forecast(question: &Question, known: &Ends, done: usize, strict: f64) -> Option<usize> {
    let (mean, deviation) = known.delta;
    let distance = mean - floors(question).0;
    let error = if distance > 0.0 { strict } else { 1.0 - question.confidence };
    #[expect(clippy::cast_precision_loss, reason = "a number of restarts")]
    let needed = done as f64 * (Normal::standard().inverse_cdf(1.0 - error) * deviation / distance).powi(2);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and bounded")]
    (needed <= LONGEST_FORECAST).then(|| (needed.ceil() as usize).saturating_sub(done).max(1))
}

/// Interleaved pairs of two classes. The order of every other pair is drawn from the seed and the
/// number of readings so far, and the next one mirrors it, so that a steady drift cancels.
pub(super) fn interleaved(question: &Question, evidence: &Evidence, one: usize, other: usize, pairs: usize) -> Vec<usize> {
    let start = evidence.readings.len();
    (0..pairs)
        .flat_map(|pair| {
            let draw = blake3::hash(format!("{} {one} {other} {}", question.seed, start + pair / 2).as_bytes());
            let swapped = (draw.as_bytes()[0] % 2 == 1) != (pair % 2 == 1);
            if swapped { [other, one] } else { [one, other] }
        })
        .collect()
}
