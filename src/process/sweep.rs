//! Ends what an earlier dbisect left running when it was killed without warning.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Environment variable that every child carries; its value is the directory the child works in,
/// so a later dbisect that takes over that directory recognises processes started for it.
pub const MARKER: &str = "DBISECT_WORK";

/// Ends every process that carries [`MARKER`] for `dir`, and waits until they are gone.
///
/// Call it only while holding the lock of `dir`: then whoever started them is dead. A process that
/// does not carry the marker is never touched.
pub fn end_leftovers(dir: &Path) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let left = marked(dir);
        if left.is_empty() || Instant::now() > deadline {
            return;
        }
        for pid in left {
            tracing::info!(pid, dir = %dir.display(), "ending a process that a killed dbisect left behind");
            // The process may end between the listing and the signal; that is what we want anyway.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn marked(dir: &Path) -> Vec<i32> {
    let Ok(processes) = procfs::process::all_processes() else { return Vec::new() };
    let own = std::process::id();
    processes
        .flatten()
        .filter(|process| process.pid.cast_unsigned() != own)
        // A zombie has no environment and needs no signal.
        .filter(|process| process.environ().is_ok_and(|env| env.iter().any(|(name, value)| name == MARKER && Path::new(value) == dir)))
        .map(|process| process.pid)
        .collect()
}
