//! Ctrl-C, remembered: a flag that every wait looks at.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The user pressed Ctrl-C (or sent SIGTERM or SIGHUP); the exit code is 130.
#[derive(Debug, thiserror::Error)]
#[error("interrupted; what was recorded is kept and the same command resumes it")]
pub struct Interrupted;

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

fn flag() -> &'static Arc<AtomicBool> {
    FLAG.get_or_init(Arc::default)
}

/// Turns SIGINT, SIGTERM and SIGHUP into a flag, so that children can be ended and state saved
/// before the process leaves. A second signal ends the process at once.
///
/// # Errors
/// When the operating system refuses the handler.
pub fn catch_interrupts() -> std::io::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // Order matters: the first registered action sees the flag as it was before this signal.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(flag()))?;
        signal_hook::flag::register(signal, Arc::clone(flag()))?;
    }
    Ok(())
}

/// Whether an interrupt has arrived.
#[must_use]
pub fn interrupted() -> bool {
    flag().load(Ordering::Relaxed)
}

/// Fails with [`Interrupted`] when an interrupt has arrived; called between steps.
///
/// # Errors
/// [`Interrupted`], and nothing else.
pub fn stop_if_interrupted() -> Result<(), Interrupted> {
    if interrupted() { Err(Interrupted) } else { Ok(()) }
}
