//! A revision to a patched, identified tree that can be checked out.
//!
//! Takes a cell's dbms, revision, source and patches. Gives a [`SourceTree`]: a tree object in a
//! bare git repository inside the cache, whatever the source was, so that patching, identifying,
//! checking out and comparing revisions work alike for all of them. For `bisect` it gives the
//! [`History`] between two revisions.
//! Never builds, never writes outside the cache, never weakens a signature check.

mod apt;
mod archive;
mod archives;
mod debian;
mod git;
mod history;
mod local;
mod patch;
mod relocate;
mod sources;
mod submodule;
mod tree;
mod version;

pub use archives::Archive;
pub use history::{Commit, History};
pub use patch::AppliedPatch;
pub use sources::{Environment, Sources};
pub use tree::SourceTree;
