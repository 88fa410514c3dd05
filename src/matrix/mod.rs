//! What the user wants built and measured.
//!
//! Takes the text of a matrix file (TOML). Gives a checked [`Matrix`] and its [`Cell`]s, or every
//! mistake in the file at once, each with its line and key.
//! Never reads a source tree, never asks the machine anything: the same text always gives the same
//! cells.

mod axis;
mod cell;
mod expand;
mod file;
mod mistake;
mod name;
mod reader;
mod workload;

pub use axis::{AXES, Axis, AxisKind, axis};
pub use cell::{Cell, Dbms, Revision, SourceSpec, StorageEngine};
pub use expand::pairs_along;
pub use file::{BisectWindow, Matrix, SourceKind, Target};
pub use mistake::{ConfigurationError, nearest};
pub use name::Name;
pub use workload::{Workload, WorkloadKind};

#[cfg(test)]
mod tests;
