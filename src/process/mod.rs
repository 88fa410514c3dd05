//! The only place that starts a child process.
//!
//! Takes a [`Program`]: argument vector, directory, environment, account, log, deadline.
//! Gives its output, or one sentence that says which command failed, how, with its last lines and
//! the log's path. Every child leads a process group of its own; the whole group is ended when the
//! deadline passes, when the user interrupts, or when dbisect itself dies.
//! Also gives the locks by which dbisect processes wait for each other.
//! Never runs a shell, never ends a process that dbisect did not start.

mod account;
mod error;
mod interrupt;
mod lock;
mod program;
mod sweep;

pub use account::Account;
pub use error::{Outcome, ProcessError};
pub use interrupt::{Interrupted, catch_interrupts, interrupted, stop_if_interrupted};
pub use lock::{Held, Holder};
pub use program::{Daemon, Finished, Program};
pub use sweep::{MARKER, end_leftovers};
