//! The search for the commit that changed a metric.
//!
//! Takes a [`Question`] (commits, prior, metric's direction, floor, confidence) and the [`Evidence`]
//! gathered so far. Gives what to measure [`next`], or the [`Answer`]. The state is computed from
//! the evidence each time, so a search can be resumed and replayed.
//! Pure: no clock, no process, no randomness but the question's seed. Never thresholds a reading
//! into good or bad, and never names a commit below the confidence asked for.

mod answer;
mod builds;
mod certify;
mod choose;
mod confirm;
mod decide;
mod model;
mod normal;
mod question;
mod range;
mod readings;
mod report;
mod simulate;

pub use decide::next;
pub use model::{Posterior, posterior};
pub use question::{Answer, Candidate, Effect, Evidence, Expect, Next, Outcome, Question, Reading};
pub use report::{Cost, Measured, Named, Range, SearchReport, Suspect, Tested};
pub use simulate::{Deviates, Drift, Noise, Scenario, Simulated, simulate};
