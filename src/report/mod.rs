//! Plain data to something to read.
//!
//! Takes comparisons, builds, answers of searches. Gives tables for the terminal, Markdown, CSV,
//! JSON and one self-contained HTML page, written to whatever the caller hands in. Pure: asks
//! nothing, measures nothing, and a colour never says more than the interval beside it.

mod bisect;
mod comparison;
mod html;
mod verdict;

pub use bisect::{bisect_text, searches_text};
pub use comparison::{Format, comparison};
pub use html::{BuildCard, Page, html};
pub use verdict::verdict_sentence;
