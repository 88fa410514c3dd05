//! What the samples say about one build against another.
//!
//! Takes series of samples of cells, one metric at a time. Gives ratios with 95% intervals, a
//! verdict for each, and the summary of each group of steps. Pure: no clock, no database, no
//! randomness. Never averages a doubtful sample in and never calls an absence of evidence sameness.

mod estimate;
mod moderate;
mod result;
mod series;

pub use estimate::{Settings, compare};
pub use result::{Comparison, GroupSummary, Row, Verdict};
pub use series::{Reading, Series};
