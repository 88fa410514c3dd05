//! Why a build failed, in classes: only one of them is a fact about the source.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::process::{Outcome, ProcessError};

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The source does not compile with this toolchain: a fact about the revision, remembered.
    DoesNotCompile,
    /// The compiler recorded other flags than the cell asks for: something between recipe and
    /// compiler is wrong, and it is not the revision.
    FlagsNotHonoured,
    /// The tree does not know an option that the cell asks for: nothing that is wrong with the source.
    OptionUnknown,
    /// A program, library or header is missing.
    ToolchainLacks,
    /// The machine ran out of memory.
    OutOfMemory,
    /// The disk is full.
    DiskFull,
    /// It ran into its deadline.
    Timeout,
    /// The user interrupted.
    Interrupted,
}

impl FailureClass {
    /// Whether building again with the same key must give the same failure.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::DoesNotCompile)
    }
}

impl fmt::Display for FailureClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DoesNotCompile => "the source does not compile",
            Self::FlagsNotHonoured => "the compiler did not honour the cell's flags",
            Self::OptionUnknown => "the tree does not know an option",
            Self::ToolchainLacks => "the toolchain lacks something",
            Self::OutOfMemory => "out of memory",
            Self::DiskFull => "the disk is full",
            Self::Timeout => "timed out",
            Self::Interrupted => "interrupted",
        })
    }
}

/// A build that failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BuildFailure {
    /// What kind of failure it was.
    pub class: FailureClass,
    /// Step of the recipe.
    pub step: String,
    /// One sentence, with the last lines of output.
    pub message: String,
    /// File that holds everything the build printed.
    pub log: Option<PathBuf>,
}

impl fmt::Display for BuildFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (step {}): {}", self.class, self.step, self.message)
    }
}

impl std::error::Error for BuildFailure {}

impl BuildFailure {
    /// Classes a failed command by how it ended and by what the whole log says.
    #[must_use]
    pub fn of_command(step: &str, error: &ProcessError, log: &str) -> Self {
        let class = match &error.outcome {
            Outcome::NotStarted(_) => FailureClass::ToolchainLacks,
            Outcome::Deadline(_) => FailureClass::Timeout,
            Outcome::Interrupted => FailureClass::Interrupted,
            // The kernel's out-of-memory killer uses SIGKILL, and so does nobody else here.
            Outcome::Signal(9) => FailureClass::OutOfMemory,
            Outcome::Output(error) if error.kind() == std::io::ErrorKind::StorageFull => FailureClass::DiskFull,
            Outcome::Exit(_) | Outcome::Signal(_) | Outcome::Output(_) => class_of_log(step, log),
        };
        let advice = if class == FailureClass::ToolchainLacks { "; `dbisect doctor MATRIX --fix` installs what is known to be needed" } else { "" };
        Self { class, step: step.to_owned(), message: format!("{error}{advice}"), log: error.log.clone() }
    }

    /// Classes a failed file operation.
    #[must_use]
    pub fn of_io(step: &str, what: &str, error: &std::io::Error) -> Self {
        let full = matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
        let class = if full { FailureClass::DiskFull } else { FailureClass::ToolchainLacks };
        Self { class, step: step.to_owned(), message: format!("{what}: {error}"), log: None }
    }
}

/// Name of the step of a recipe that looks at the machine and compiles nothing.
pub const CONFIGURE: &str = "configure";

/// Sentences of compilers, make, configure and libc that tell the machine's failures from the
/// source's. What is not listed is taken as the source's own.
const SIGNS: [(FailureClass, &[&str]); 3] = [
    (FailureClass::DiskFull, &["No space left on device", "Disk quota exceeded"]),
    (
        FailureClass::OutOfMemory,
        &[
            "Killed signal terminated program",
            "virtual memory exhausted",
            "out of memory allocating",
            "Cannot allocate memory",
            "collect2: fatal error: ld terminated with signal 9",
        ],
    ),
    (
        FailureClass::ToolchainLacks,
        &[
            "bison: not found",
            "flex: not found",
            "command not found",
            "make: not found",
            "'bison' is missing",
            "'flex' is missing",
            "ERROR: `bison' is missing",
            "ERROR: `flex' is missing",
        ],
    ),
];

/// How autoconf and cmake say that they refuse this machine. A configure script that is itself
/// broken says something else (the shell's "syntax error").
const REFUSALS: [&str; 2] = ["configure: error:", "CMake Error"];

fn class_of_log(step: &str, log: &str) -> FailureClass {
    if step == CONFIGURE && REFUSALS.iter().any(|refusal| log.contains(refusal)) {
        let full = SIGNS[0].1.iter().any(|sign| log.contains(sign));
        return if full { FailureClass::DiskFull } else { FailureClass::ToolchainLacks };
    }
    SIGNS.iter().find(|(_, signs)| signs.iter().any(|sign| log.contains(sign))).map_or(FailureClass::DoesNotCompile, |(class, _)| *class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_source_did_is_a_fact_about_the_source() {
        let class = |log: &str| class_of_log("compile", log);
        assert_eq!(class("nodeSeqscan.c:55:1: error: expected ';' before 'int'"), FailureClass::DoesNotCompile);
        assert_eq!(class("fatal error: error writing to /tmp/x.s: No space left on device"), FailureClass::DiskFull);
        assert_eq!(class("gcc: fatal error: Killed signal terminated program cc1"), FailureClass::OutOfMemory);
        // Seen in a bare Debian.
        let refused = "checking for liblz4... no\nconfigure: error: in `/b':\nconfigure: error: The pkg-config script could not be found or is too old.";
        assert_eq!(class_of_log(CONFIGURE, refused), FailureClass::ToolchainLacks);
        assert_eq!(class_of_log(CONFIGURE, "configure: error: cannot run\ncat: write error: No space left on device"), FailureClass::DiskFull);
        assert_eq!(class_of_log(CONFIGURE, "configure: line 7: syntax error near unexpected token `fi'"), FailureClass::DoesNotCompile);
        assert!(FailureClass::DoesNotCompile.is_final());
        for class in [
            FailureClass::FlagsNotHonoured,
            FailureClass::OptionUnknown,
            FailureClass::DiskFull,
            FailureClass::OutOfMemory,
            FailureClass::Timeout,
            FailureClass::Interrupted,
            FailureClass::ToolchainLacks,
        ] {
            assert!(!class.is_final(), "{class}");
        }
    }
}
