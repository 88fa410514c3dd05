//! Readings made ready for the model, and reduced to one number per class.
//!
//! The model asks for the likelihood of many hypotheses, and each says only which *classes* lie
//! after the change. So the readings are whitened once per speed of drift (a Kalman filter, one pass
//! over the readings), the offset of each session is projected out, and what remains are a
//! precision matrix and a vector with one entry per measured class: the sufficient statistics of
//! the class means. Everything after that costs nothing that grows with the number of readings.

use nalgebra::{DMatrix, DVector};

use super::question::{Evidence, Question, Reading};
use super::range::sign;

/// Distance from the median of its class, in robust standard deviations, beyond which a reading
/// counts less (Huber 1964). Normal noise passes it once in twenty readings.
const HUBER: f64 = 2.0;
/// The median absolute deviation of normal data times this is its standard deviation.
const NORMAL_MAD: f64 = 1.4826;
/// Readings of a class within a session below which nothing tells which of them is the outlier.
const TELLING: usize = 3;
/// Longest pause between two readings, in steps of the drift, that is told apart from a longer one.
const LONGEST_PAUSE: u64 = 50;
/// Smallest standard deviation of noise: no measurement here is better than a part per million.
pub(super) const LEAST_NOISE: f64 = 1e-6;

/// Usable readings in the order of time.
pub(super) struct Observations {
    /// Classes that were measured, ascending.
    pub classes: Vec<usize>,
    /// Readings of each class.
    pub counts: Vec<usize>,
    /// Index of each reading's class.
    of: Vec<usize>,
    /// Logarithms, the expected change upward, less the median of all.
    y: DVector<f64>,
    /// Precision of each reading relative to one that is no outlier, at most 1.
    weights: Vec<f64>,
    /// Steps of drift since the reading before; `None` where a session begins.
    pauses: Vec<Option<f64>>,
}

/// True for a value that has a logarithm; all others are no readings.
pub(super) fn usable(reading: &Reading) -> bool {
    reading.value.is_finite() && reading.value > 0.0
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count.is_multiple_of(2) => f64::midpoint(values[count / 2 - 1], values[count / 2]),
        count => values[count / 2],
    }
}

impl Observations {
    /// Readings of classes of the question that `keep` accepts.
    pub fn new(question: &Question, evidence: &Evidence, keep: impl Fn(&Reading) -> bool) -> Self {
        let known = |reading: &Reading| question.commits.iter().any(|commit| commit.class == reading.class);
        let mut readings: Vec<Reading> = evidence.readings.iter().copied().filter(|reading| usable(reading) && keep(reading)).collect();
        let mut classes: Vec<usize> = readings.iter().map(|reading| reading.class).collect();
        classes.sort_unstable();
        classes.dedup();
        classes.retain(|class| known(&Reading { class: *class, sequence: 0, session: 0, value: 1.0 }));
        readings.retain(|reading| classes.binary_search(&reading.class).is_ok());
        // Sessions do not overlap, so each is a stretch of its own in the order of time.
        readings.sort_by_key(|reading| (reading.session, reading.sequence));
        let of: Vec<usize> = readings.iter().filter_map(|reading| classes.binary_search(&reading.class).ok()).collect();
        let mut counts = vec![0; classes.len()];
        of.iter().for_each(|class| counts[*class] += 1);
        let mut y: Vec<f64> = readings.iter().map(|reading| sign(question) * reading.value.ln()).collect();
        // Numbers near zero keep the sums of squares exact.
        let centre = median(&mut y.clone());
        y.iter_mut().for_each(|y| *y -= centre);
        let pause = |at: usize| {
            let before = at.checked_sub(1).and_then(|before| readings.get(before)).filter(|before| before.session == readings[at].session)?;
            let steps = readings[at].sequence.saturating_sub(before.sequence).min(LONGEST_PAUSE);
            u32::try_from(steps).ok().map(f64::from)
        };
        let pauses = (0..readings.len()).map(pause).collect();
        let weights = weights(&readings, &y);
        Self { classes, counts, of, y: DVector::from_vec(y), weights, pauses }
    }

    /// The sufficient statistics when the drift's step has `drift` times the variance of the noise.
    pub fn reduce(&self, drift: f64) -> Reduced {
        let (rows, classes) = (self.of.len(), self.classes.len());
        // Columns: one per class, then the readings, then the offset of the session.
        let mut columns = DMatrix::zeros(rows, classes + 2);
        for (row, class) in self.of.iter().enumerate() {
            columns[(row, *class)] = 1.0;
            columns[(row, classes)] = self.y[row];
            columns[(row, classes + 1)] = 1.0;
        }
        let starts: Vec<usize> = (0..rows).filter(|row| self.pauses[*row].is_none()).collect();
        let mut log_determinant = self.whiten(&mut columns, drift);
        for (at, start) in starts.iter().enumerate() {
            let end = starts.get(at + 1).copied().unwrap_or(rows);
            let mut session = columns.rows_mut(*start, end - start);
            let offset = session.column(classes + 1).clone_owned();
            let norm = offset.norm_squared();
            log_determinant += norm.ln();
            for mut column in session.column_iter_mut().take(classes + 1) {
                let share = offset.dot(&column) / norm;
                column.axpy(-share, &offset, 1.0);
            }
        }
        let (by_class, y) = (columns.columns(0, classes), columns.column(classes));
        Reduced { precision: by_class.tr_mul(&by_class), linear: by_class.tr_mul(&y), square: y.norm_squared(), log_determinant, free: rows - starts.len() }
    }

    /// Multiplies every column by the inverse Cholesky factor of the covariance of noise and drift
    /// within sessions, and gives the log determinant of that covariance. A random walk seen through
    /// noise is the local level model (Durbin & Koopman 2012, section 2.2): its whitened values are
    /// the one-step forecast errors of the Kalman filter.
    fn whiten(&self, columns: &mut DMatrix<f64>, drift: f64) -> f64 {
        let mut forecast = vec![0.0; columns.ncols()];
        let (mut variance, mut log_determinant) = (0.0, 0.0);
        for row in 0..columns.nrows() {
            match self.pauses[row] {
                None => {
                    variance = 0.0;
                    forecast.fill(0.0);
                }
                Some(steps) => variance += drift * steps,
            }
            let total = variance + 1.0 / self.weights[row];
            log_determinant += total.ln();
            let gain = variance / total;
            for (column, forecast) in forecast.iter_mut().enumerate() {
                let error = columns[(row, column)] - *forecast;
                *forecast += gain * error;
                columns[(row, column)] = error / total.sqrt();
            }
            variance *= 1.0 - gain;
        }
        log_determinant
    }
}

/// Relative precision of each reading. Residuals are taken from the median of the class within its
/// session, so that neither a change nor a new sitting makes an outlier.
fn weights(readings: &[Reading], y: &[f64]) -> Vec<f64> {
    let mut groups: std::collections::BTreeMap<(u64, usize), Vec<f64>> = std::collections::BTreeMap::new();
    for (reading, y) in readings.iter().zip(y) {
        groups.entry((reading.session, reading.class)).or_default().push(*y);
    }
    let centres: std::collections::BTreeMap<(u64, usize), f64> =
        groups.into_iter().filter(|(_, values)| values.len() >= TELLING).map(|(group, mut values)| (group, median(&mut values))).collect();
    let residual = |(reading, y): (&Reading, &f64)| centres.get(&(reading.session, reading.class)).map(|centre| (y - centre).abs());
    let residuals: Vec<Option<f64>> = readings.iter().zip(y).map(residual).collect();
    // A reading that is its class' median itself says nothing about how far readings scatter.
    let mut apart: Vec<f64> = residuals.iter().flatten().copied().filter(|residual| *residual > 0.0).collect();
    let scale = (NORMAL_MAD * median(&mut apart)).max(LEAST_NOISE);
    residuals.into_iter().map(|residual| residual.map_or(1.0, |residual| (HUBER * scale / residual).min(1.0))).collect()
}

/// Sufficient statistics of the class means for one speed of drift, in units of the noise.
pub(super) struct Reduced {
    /// Z' P Z: how firmly the readings hold the class means; constant vectors are not held, as every
    /// session has an offset of its own.
    pub precision: DMatrix<f64>,
    /// Z' P y.
    pub linear: DVector<f64>,
    /// y' P y.
    pub square: f64,
    /// Log determinant of the covariance, with that of the projection.
    pub log_determinant: f64,
    /// Readings less sessions.
    pub free: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bisect::{Candidate, Expect};
    use crate::measure::Worse;

    fn question() -> Question {
        let commits = (0..6).map(|class| Candidate { class, prior: 1.0 }).collect();
        Question { commits, worse: Worse::Higher, expect: Expect::Regression, floor: 0.02, confidence: 0.95, seed: 0, most_restarts: 24 }
    }

    fn evidence(values: &[(usize, u64, u64, f64)]) -> Evidence {
        let reading =
            |(class, sequence, session, log): &(usize, u64, u64, f64)| Reading { class: *class, sequence: *sequence, session: *session, value: log.exp() };
        Evidence { readings: values.iter().map(reading).collect(), ..Evidence::default() }
    }

    /// The same statistics from the covariance itself, as a textbook has them.
    fn by_definition(observations: &Observations, sessions: &[u64], times: &[f64], drift: f64) -> (DMatrix<f64>, DVector<f64>, f64) {
        let rows = observations.of.len();
        let start = |session: u64| times.iter().zip(sessions).filter(|(_, other)| **other == session).map(|(time, _)| *time).fold(f64::INFINITY, f64::min);
        let covariance = DMatrix::from_fn(rows, rows, |i, j| {
            let walk = if sessions[i] == sessions[j] { drift * (times[i].min(times[j]) - start(sessions[i])) } else { 0.0 };
            walk + if i == j { 1.0 / observations.weights[i] } else { 0.0 }
        });
        let inverse = covariance.clone().try_inverse().unwrap();
        let mut names = sessions.to_vec();
        names.dedup();
        let offsets = DMatrix::from_fn(rows, names.len(), |row, column| f64::from(u8::from(sessions[row] == names[column])));
        let inner = offsets.transpose() * &inverse * &offsets;
        let projected = &inverse - &inverse * &offsets * inner.clone().try_inverse().unwrap() * offsets.transpose() * &inverse;
        let z = DMatrix::from_fn(rows, observations.classes.len(), |row, column| f64::from(u8::from(observations.of[row] == column)));
        (z.transpose() * &projected * &z, z.transpose() * &projected * &observations.y, covariance.determinant().ln() + inner.determinant().ln())
    }

    #[test]
    fn the_filter_gives_what_the_covariance_gives() {
        let values = [
            (0, 0, 1, 0.01),
            (5, 1, 1, 0.05),
            (0, 2, 1, 0.02),
            (0, 3, 1, 0.4),
            (2, 7, 2, 0.0),
            (5, 9, 2, 0.06),
            (5, 10, 2, 0.05),
            (2, 11, 2, -0.01),
            (5, 12, 2, 0.07),
            (0, 14, 2, 0.03),
        ];
        let observations = Observations::new(&question(), &evidence(&values), |_| true);
        assert!(observations.weights[3] < 0.5, "the outlier among three counts less");
        let sessions: Vec<u64> = values.iter().map(|value| value.2).collect();
        let times: Vec<f64> = values.iter().map(|value| value.1 as f64).collect();
        for drift in [0.0, 0.01, 0.3] {
            let reduced = observations.reduce(drift);
            let (precision, linear, log_determinant) = by_definition(&observations, &sessions, &times, drift);
            assert!((&reduced.precision - precision).norm() < 1e-9 && (&reduced.linear - linear).norm() < 1e-9, "drift {drift}");
            assert!((reduced.log_determinant - log_determinant).abs() < 1e-9 && reduced.free == 8, "drift {drift}");
        }
    }

    #[test]
    fn what_is_no_reading_is_left_out() {
        let mut evidence = evidence(&[(0, 0, 0, 0.0), (9, 1, 0, 0.0), (5, 2, 0, 0.1)]);
        for value in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            evidence.readings.push(Reading { class: 1, sequence: 5, session: 0, value });
        }
        let observations = Observations::new(&question(), &evidence, |_| true);
        assert_eq!((observations.classes, observations.counts), (vec![0, 5], vec![1, 1]));
    }

    #[test]
    fn a_change_makes_no_outliers() {
        let values: Vec<_> = (0..12).map(|at| (5 * (at % 2), at as u64, 0, 0.5 * (at % 2) as f64 + 0.001 * (at % 3) as f64)).collect();
        let observations = Observations::new(&question(), &evidence(&values), |_| true);
        assert!(observations.weights.iter().all(|weight| *weight > 0.85), "{:?}", observations.weights);
    }
}
