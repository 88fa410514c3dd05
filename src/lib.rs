//! dbisect builds database servers over a matrix of versions and options, measures every build,
//! compares the builds, and finds the commit that made one slower.
//!
//! The rooms below are listed in the order in which data flows through them, and it flows one way:
//!
//! ```text
//! matrix -> source -> build (through cache) -> server -> workload -> measure -> store -> compare | bisect | report
//! ```
//!
//! `matrix`, `compare`, `bisect` and `report` are pure: they decide or render and touch nothing else.
//! `process` is the only place that starts a child process, `pipeline` the only one that knows the
//! order of the steps, and `cli` turns arguments into one call and the answer into text.

pub mod process;

pub mod bisect;
pub mod build;
pub mod cache;
pub mod compare;
pub mod matrix;
pub mod measure;
pub mod report;
pub mod server;
pub mod source;
pub mod store;
pub mod workload;

pub mod pipeline;

pub mod cli;
