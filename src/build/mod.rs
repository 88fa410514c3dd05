//! A checked-out tree to an installed server.
//!
//! Takes a cell and what its tree says about itself. Gives a [`Recipe`] (pure: argument vectors,
//! environment, what the result must prove), the identity of the [`Toolchain`] it runs with, and,
//! when run in a workspace, an installed tree whose flags have been proved, or a classed
//! [`BuildFailure`].
//! Never decides whether a build is needed (the cache does), never fetches sources, never runs a
//! shell.

mod cmake;
mod failure;
mod flags;
mod installed;
mod mysql;
mod needs;
mod packages;
mod postgres;
mod proof;
mod recipe;
mod run;
mod toolchain;

pub use cmake::CmakeCall;
pub use failure::{BuildFailure, FailureClass};
pub use installed::{Installed, identify, server_programs};
pub use needs::{Need, missing, needs};
pub use packages::{Distribution, distribution, install_command, package};
pub use proof::Proof;
pub use recipe::{NEUTRAL_PREFIX, Place, Recipe, Step, Tools, keeps, recipe};
pub use run::{Built, Progress, Surroundings, Workspace, run};
pub use toolchain::Toolchain;
