//! What a failed command says: the command, how it ended, its last lines, where the log is.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// How a command ended when it did not succeed.
#[derive(Debug)]
pub enum Outcome {
    /// It could not be started at all.
    NotStarted(std::io::Error),
    /// It exited with this status.
    Exit(i32),
    /// It was ended by this signal, not by us.
    Signal(i32),
    /// It was still running at its deadline and was ended, with its whole process group.
    Deadline(Duration),
    /// The user interrupted and it was ended, with its whole process group.
    Interrupted,
    /// Its output could not be written or read.
    Output(std::io::Error),
}

/// A command that failed.
#[derive(Debug)]
pub struct ProcessError {
    /// Argument vector as one line, quoted so that it can be pasted into a shell.
    pub command: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Last lines of what it printed.
    pub tail: String,
    /// File that holds everything it printed.
    pub log: Option<PathBuf>,
}

impl ProcessError {
    /// Whether it failed because the user interrupted.
    #[must_use]
    pub const fn is_interrupt(&self) -> bool {
        matches!(self.outcome, Outcome::Interrupted)
    }
}

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Outcome::NotStarted(error) if error.kind() == std::io::ErrorKind::NotFound => {
                write!(f, "cannot start `{}`: the program was not found; `dbisect doctor` says which package has it", self.command)?;
            }
            Outcome::NotStarted(error) => write!(f, "cannot start `{}`: {error}", self.command)?,
            Outcome::Exit(status) => write!(f, "`{}` failed with status {status}", self.command)?,
            Outcome::Signal(signal) => write!(f, "`{}` was ended by signal {signal}", self.command)?,
            Outcome::Deadline(limit) => write!(f, "`{}` was still running after {} s and was ended", self.command, limit.as_secs_f64())?,
            Outcome::Interrupted => write!(f, "`{}` was ended by an interrupt", self.command)?,
            Outcome::Output(error) => write!(f, "the output of `{}` was lost: {error}", self.command)?,
        }
        if let Some(log) = &self.log {
            write!(f, " (log: {})", log.display())?;
        }
        let tail = self.tail.trim();
        if !tail.is_empty() {
            write!(f, "; it last said:\n  {}", tail.replace('\n', "\n  "))?;
        }
        Ok(())
    }
}

impl std::error::Error for ProcessError {}
