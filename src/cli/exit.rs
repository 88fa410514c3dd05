//! Exit codes, fixed by the contract, and how an error becomes one.

use std::process::ExitCode;

use crate::matrix::ConfigurationError;
use crate::process::{Interrupted, ProcessError};

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done, nothing worse.
    Done = 0,
    /// A regression was found, and the user asked to fail on it.
    Regression = 1,
    /// The command line, a matrix or a revision cannot be meant.
    Usage = 2,
    /// Undecided, or the ends do not differ.
    Undecided = 3,
    /// Some builds or runs failed; the rest is recorded.
    Failed = 4,
    /// The host is unfit and `--strict` was given.
    Unfit = 5,
    /// Interrupted; the state is saved.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Prints an error in one sentence and finds its exit code.
#[must_use]
pub fn explain(error: &anyhow::Error) -> Exit {
    let caused_by = |found: fn(&(dyn std::error::Error + 'static)) -> bool| error.chain().any(found);
    // Whoever reads our output may stop reading; that is no error of ours.
    if caused_by(|cause| cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)) {
        return Exit::Done;
    }
    eprintln!("error: {error:#}");
    if caused_by(|cause| cause.is::<Interrupted>() || cause.downcast_ref::<ProcessError>().is_some_and(ProcessError::is_interrupt)) {
        Exit::Interrupted
    } else if caused_by(|cause| cause.is::<ConfigurationError>()) {
        Exit::Usage
    } else {
        Exit::Failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn causes_decide_the_code_however_deep_they_are() {
        let wrap = |error: anyhow::Error| explain(&Err::<(), _>(error).context("outer").context("outermost").unwrap_err());
        assert_eq!(wrap(Interrupted.into()), Exit::Interrupted);
        assert_eq!(wrap(ConfigurationError::new("x").into()), Exit::Usage);
        assert_eq!(wrap(anyhow::anyhow!("anything else")), Exit::Failed);
    }
}
