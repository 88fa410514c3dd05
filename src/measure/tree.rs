//! Counters of a process and all of its descendants, including those that have ended.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context;
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use procfs::process::{Process, Stat};

/// Times a reading is repeated when processes come and go meanwhile.
const ATTEMPTS: usize = 8;

/// Sums over a process tree since its processes started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TreeCounters {
    /// CPU time of living processes (nanosecond clock) and of ended children (kernel ticks).
    pub cpu: Duration,
    /// Share of `cpu` that was spent in user mode, 0 to 1, from kernel ticks.
    pub user_share: f64,
    /// Context switches of living processes, voluntary and involuntary.
    pub switches: u64,
    /// Minor and major page faults, ended children included.
    pub faults: u64,
    /// Bytes that living processes caused to be read from storage; 0 where the kernel hides it.
    pub read_bytes: u64,
    /// Bytes that living processes caused to be written to storage; 0 where the kernel hides it.
    pub written_bytes: u64,
    /// Resident memory now, in bytes, with shared parts counted once.
    pub resident: u64,
    /// Living processes.
    pub processes: usize,
}

impl TreeCounters {
    /// Reads the tree below `root`. A child that ends during the reading is neither lost nor counted
    /// twice: the reading is repeated until the tree was the same before and after it.
    ///
    /// # Errors
    /// When the root process is gone.
    pub fn read(root: u32) -> anyhow::Result<Self> {
        let mut before = members(root)?;
        for _ in 0..ATTEMPTS {
            let counters = Self::sum(&before);
            let after = members(root)?;
            if fixed(&before) == fixed(&after)
                && let Some(counters) = counters
            {
                return Ok(counters);
            }
            before = after;
        }
        Self::sum(&before).with_context(|| format!("the processes below {root} come and go too fast to be measured"))
    }

    /// `None` when a process ended meanwhile.
    fn sum(members: &[Stat]) -> Option<Self> {
        let mut all = Self { processes: members.len(), ..Self::default() };
        let (mut user, mut system, mut anonymous, mut shared, mut file) = (0_u64, 0_u64, 0_u64, 0_u64, 0_u64);
        for stat in members {
            let process = Process::new(stat.pid).ok()?;
            let status = process.status().ok()?;
            all.cpu += cpu_clock(stat.pid)? + ticks(ended_children(stat));
            user += stat.utime + u64::try_from(stat.cutime).unwrap_or(0);
            system += stat.stime + u64::try_from(stat.cstime).unwrap_or(0);
            all.switches += status.voluntary_ctxt_switches.unwrap_or(0) + status.nonvoluntary_ctxt_switches.unwrap_or(0);
            all.faults += stat.minflt + stat.majflt + stat.cminflt + stat.cmajflt;
            if let Ok(io) = process.io() {
                all.read_bytes += io.read_bytes;
                all.written_bytes += io.write_bytes;
            }
            anonymous += status.rssanon.unwrap_or(0);
            shared = shared.max(status.rssshmem.unwrap_or(0));
            file = file.max(status.rssfile.unwrap_or(0));
        }
        all.resident = (anonymous + shared + file) * 1024;
        #[expect(clippy::cast_precision_loss, reason = "a share of tick counts far below 2^52")]
        let share = if user + system == 0 { 0.5 } else { user as f64 / (user + system) as f64 };
        all.user_share = share;
        Some(all)
    }
}

/// CPU time of one process, its threads and ended threads included.
pub fn process_cpu(pid: u32) -> Option<Duration> {
    cpu_clock(i32::try_from(pid).ok()?)
}

fn cpu_clock(pid: i32) -> Option<Duration> {
    let clock: ClockId = clock_getcpuclockid(Pid::from_raw(pid)).ok()?;
    clock_gettime(clock).ok().map(Duration::from)
}

fn ticks(count: u64) -> Duration {
    Duration::from_nanos(count * 1_000_000_000 / procfs::ticks_per_second().max(1))
}

fn ended_children(stat: &Stat) -> u64 {
    u64::try_from(stat.cutime).unwrap_or(0) + u64::try_from(stat.cstime).unwrap_or(0)
}

/// What must not change during a reading: who lives, and what ended children left behind.
fn fixed(members: &[Stat]) -> BTreeSet<(i32, u64)> {
    members.iter().map(|stat| (stat.pid, ended_children(stat))).collect()
}

/// The root and every descendant.
fn members(root: u32) -> anyhow::Result<Vec<Stat>> {
    let root = i32::try_from(root).context("a process id beyond the kernel's range")?;
    let all: Vec<Stat> = procfs::process::all_processes().context("cannot list /proc")?.flatten().filter_map(|process| process.stat().ok()).collect();
    let mut members: Vec<Stat> = all.iter().filter(|stat| stat.pid == root && stat.state != 'Z').cloned().collect();
    anyhow::ensure!(!members.is_empty(), "the server process {root} has ended");
    let mut at = 0;
    while at < members.len() {
        let parent = members[at].pid;
        members.extend(all.iter().filter(|stat| stat.ppid == parent && stat.pid != root).cloned());
        at += 1;
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_of_ended_children_is_kept() {
        // A shell that burns CPU in a child, waits for it, and stays.
        let script = "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'; echo done; sleep 5";
        let mut child = std::process::Command::new("sh").args(["-c", script]).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()), &mut line).unwrap();
        let counters = TreeCounters::read(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(counters.cpu >= Duration::from_millis(50), "{counters:?}");
        assert!(counters.user_share > 0.3 && counters.user_share <= 1.0, "{counters:?}");
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(TreeCounters::read(child.id()).unwrap_err().to_string().contains("has ended"));
    }

    #[test]
    fn resident_memory_and_processes_are_seen() {
        let own = TreeCounters::read(std::process::id()).unwrap();
        assert!(own.resident > 1_000_000 && own.processes >= 1, "{own:?}");
    }
}
