//! Everything that was measured, in one SQLite file.
//!
//! Takes restarts, steps, samples and searches as they happen, each written down before the next
//! begins. Gives back series of samples, what is still to be done, and the evidence of searches.
//! Never averages, never forgets: raw output and per-second series are kept, and what failed is a
//! row of its own.

mod restarts;
mod schema;
mod searches;

pub use restarts::{Finished, RestartId, RestartPlan, SessionId, StepRecord};
pub use schema::Store;
pub use searches::{BuildNote, SearchId, SearchRecord};
