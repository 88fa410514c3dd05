//! A running server to the outcome of a step.
//!
//! Takes a server, a step and how long to run it. Gives a [`StepRun`]: the client's raw output, what
//! it says, counters of the measured window, metrics, and reasons to doubt them.
//! Never averages: one run of one step in one restart is one sample of each metric.

mod command;
mod parse;
mod run;
mod step;

pub use command::{Load, StepPlan, load};
pub use parse::{ParseError, Report, Second, Totals, parse};
pub use run::{StepFailure, StepRun, run_step};
pub use step::{Group, STEPS, Step, step, step_names};
