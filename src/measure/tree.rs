//! Counters of a process and all of its descendants, including those that have ended.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use procfs::process::{Process, Stat};

/// Times a reading is repeated when processes come and go meanwhile. One reading takes a few
/// milliseconds, and servers fork a few times a second at most.
const ATTEMPTS: usize = 50;

/// A process among all that ever had its id: the id, and the kernel's tick of its start.
type Identity = (i32, u64);

/// Counters of one living process, all of its threads included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessCounters {
    /// CPU time, ended threads included, to the nanosecond.
    pub cpu: Duration,
    /// Context switches of living threads, voluntary and involuntary.
    pub switches: u64,
    /// Bytes it caused to be read from storage; `None` where the kernel does not show it.
    pub read_bytes: Option<u64>,
    /// Bytes it caused to be written to storage; `None` where the kernel does not show it.
    pub written_bytes: Option<u64>,
}

/// Counters of a process tree at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeCounters {
    /// Every living process.
    pub living: BTreeMap<Identity, ProcessCounters>,
    /// CPU time of ended processes that a living one has waited for, in whole kernel ticks (10 ms).
    pub ended_cpu: Duration,
    /// Kernel ticks in user mode of all of them, ended ones included.
    pub user_ticks: u64,
    /// Kernel ticks in system mode of all of them, ended ones included.
    pub system_ticks: u64,
    /// Minor and major page faults, ended processes included.
    pub faults: u64,
    /// Resident memory in bytes: anonymous memory summed over processes, plus the largest shared and
    /// the largest file-backed part of one process, since these are the same pages in all of them.
    pub resident: u64,
}

/// What a process tree used between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TreeCost {
    /// CPU time in user mode. Ticks are coarse, so they only divide the exact sum in two.
    pub user: Duration,
    /// CPU time in system mode.
    pub system: Duration,
    /// Context switches. What a process did between the earlier moment and its end is not in it: the
    /// kernel forgets it.
    pub switches: u64,
    /// Minor and major page faults.
    pub faults: u64,
    /// Bytes read from storage, with the same gap as `switches`; `None` where it is not shown.
    pub read_bytes: Option<u64>,
    /// Bytes written to storage, likewise.
    pub written_bytes: Option<u64>,
}

impl TreeCost {
    /// User and system time together.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        self.user + self.system
    }
}

impl std::iter::Sum for TreeCost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        let both = |one: Option<u64>, other: Option<u64>| Some(one? + other?);
        let none = Self { read_bytes: Some(0), written_bytes: Some(0), ..Self::default() };
        costs.fold(none, |sum, cost| Self {
            user: sum.user + cost.user,
            system: sum.system + cost.system,
            switches: sum.switches + cost.switches,
            faults: sum.faults + cost.faults,
            read_bytes: both(sum.read_bytes, cost.read_bytes),
            written_bytes: both(sum.written_bytes, cost.written_bytes),
        })
    }
}

impl TreeCounters {
    /// Reads the tree below `root`. A child that ends during the reading is neither lost nor counted
    /// twice: the reading is repeated until the tree was the same before and after it.
    ///
    /// # Errors
    /// When the root process is gone, or processes come and go faster than they can be read.
    pub fn read(root: u32) -> anyhow::Result<Self> {
        let mut before = members(root)?;
        for _ in 0..ATTEMPTS {
            let counters = Self::of(&before);
            let after = members(root)?;
            if fixed(&before) == fixed(&after)
                && let Some(counters) = counters
            {
                return Ok(counters);
            }
            before = after;
        }
        anyhow::bail!("the processes below process {root} come and go too fast to be measured: {ATTEMPTS} readings in a row saw one end or begin")
    }

    /// `None` when a process ended meanwhile.
    fn of(members: &[Stat]) -> Option<Self> {
        let mut all = Self::default();
        let (mut shared, mut file) = (0, 0);
        for stat in members {
            let process = Process::new(stat.pid).ok()?;
            let status = process.status().ok()?;
            let io = process.io().ok();
            let counters = ProcessCounters {
                cpu: cpu_clock(stat.pid).unwrap_or_else(|| ticks(stat.utime + stat.stime)),
                switches: switches(&process, stat)?,
                read_bytes: io.as_ref().map(|io| io.read_bytes),
                written_bytes: io.as_ref().map(|io| io.write_bytes),
            };
            all.living.insert(identity(stat), counters);
            all.ended_cpu += ticks(ended_children(stat));
            all.user_ticks += stat.utime + stat.cutime.max(0).cast_unsigned();
            all.system_ticks += stat.stime + stat.cstime.max(0).cast_unsigned();
            all.faults += stat.minflt + stat.majflt + stat.cminflt + stat.cmajflt;
            all.resident += status.rssanon.unwrap_or(0) * 1024;
            shared = shared.max(status.rssshmem.unwrap_or(0) * 1024);
            file = file.max(status.rssfile.unwrap_or(0) * 1024);
        }
        all.resident += shared + file;
        Some(all)
    }

    /// CPU time of all processes since they began, ended ones included.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        self.living.values().map(|process| process.cpu).sum::<Duration>() + self.ended_cpu
    }

    /// What the tree used since an earlier reading of it.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> TreeCost {
        let cpu = self.cpu().saturating_sub(earlier.cpu());
        let user = cpu.mul_f64(self.user_share_since(earlier));
        let mut cost = TreeCost {
            user,
            system: cpu.saturating_sub(user),
            faults: self.faults.saturating_sub(earlier.faults),
            read_bytes: Some(0),
            written_bytes: Some(0),
            ..TreeCost::default()
        };
        for (identity, now) in &self.living {
            // A process that was not there earlier began at zero.
            let then =
                earlier.living.get(identity).copied().unwrap_or(ProcessCounters { read_bytes: Some(0), written_bytes: Some(0), ..ProcessCounters::default() });
            let grown = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
            let add = |sum: Option<u64>, more: Option<u64>| Some(sum? + more?);
            cost.switches += now.switches.saturating_sub(then.switches);
            cost.read_bytes = add(cost.read_bytes, grown(now.read_bytes, then.read_bytes));
            cost.written_bytes = add(cost.written_bytes, grown(now.written_bytes, then.written_bytes));
        }
        cost
    }

    /// Share of user mode, 0 to 1: of the ticks since then, or of all ticks when none has passed.
    fn user_share_since(&self, earlier: &Self) -> f64 {
        let (user, system) = (self.user_ticks.saturating_sub(earlier.user_ticks), self.system_ticks.saturating_sub(earlier.system_ticks));
        let (user, system) = if user + system == 0 { (self.user_ticks, self.system_ticks) } else { (user, system) };
        #[expect(clippy::cast_precision_loss, reason = "a share of tick counts far below 2^52")]
        let share = user as f64 / (user + system).max(1) as f64;
        share
    }
}

/// CPU time of one process, its threads and ended threads included; `None` when it is gone.
pub(super) fn process_cpu(pid: u32) -> Option<Duration> {
    cpu_clock(i32::try_from(pid).ok()?)
}

fn cpu_clock(pid: i32) -> Option<Duration> {
    let clock: ClockId = clock_getcpuclockid(Pid::from_raw(pid)).ok()?;
    clock_gettime(clock).ok().map(Duration::from)
}

fn ticks(count: u64) -> Duration {
    Duration::from_nanos(count.saturating_mul(1_000_000_000) / procfs::ticks_per_second().max(1))
}

fn ended_children(stat: &Stat) -> u64 {
    stat.cutime.max(0).cast_unsigned() + stat.cstime.max(0).cast_unsigned()
}

/// Context switches of all living threads; `/proc/PID/status` alone tells those of the first one.
fn switches(process: &Process, stat: &Stat) -> Option<u64> {
    let of = |status: procfs::process::Status| Some(status.voluntary_ctxt_switches? + status.nonvoluntary_ctxt_switches?);
    if stat.num_threads <= 1 {
        return of(process.status().ok()?);
    }
    // A thread that ends between the listing and the reading is one that is not counted any more.
    Some(process.tasks().ok()?.flatten().filter_map(|task| of(task.status().ok()?)).sum())
}

const fn identity(stat: &Stat) -> Identity {
    (stat.pid, stat.starttime)
}

/// What must not change during a reading: who lives, and what ended children left behind.
fn fixed(members: &[Stat]) -> BTreeMap<Identity, u64> {
    members.iter().map(|stat| (identity(stat), ended_children(stat))).collect()
}

/// The root and every descendant. Parents are looked up among all processes, since the kernel's own
/// list of children may omit some while others end.
fn members(root: u32) -> anyhow::Result<Vec<Stat>> {
    let root = i32::try_from(root).context("a process id beyond the kernel's range")?;
    let all: Vec<Stat> = procfs::process::all_processes().context("cannot list /proc")?.flatten().filter_map(|process| process.stat().ok()).collect();
    let mut members: Vec<Stat> = all.iter().filter(|stat| stat.pid == root && stat.state != 'Z').cloned().collect();
    anyhow::ensure!(!members.is_empty(), "the server process {root} has ended");
    let mut at = 0;
    while let Some(parent) = members.get(at).map(|stat| stat.pid) {
        members.extend(all.iter().filter(|stat| stat.ppid == parent && stat.pid != root).cloned());
        at += 1;
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Child, Command, Stdio};

    /// A shell that runs `script`, which prints a line when it is ready and reads one to go on.
    fn shell(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    }

    fn wait_for_line(child: &mut Child) {
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    }

    /// Far less CPU time than [`BURN`] takes anywhere, and still some of the kernel's ticks.
    const ENOUGH: Duration = Duration::from_millis(20);
    const BURN: &str = "i=0; while [ $i -lt 600000 ]; do i=$((i+1)); done";

    #[test]
    fn cpu_of_ended_children_is_kept() {
        let mut child = shell(&format!("echo ready; read line; sh -c '{BURN}'; echo done; read line"));
        wait_for_line(&mut child);
        let before = TreeCounters::read(child.id()).unwrap();
        writeln!(child.stdin.as_mut().unwrap(), "go").unwrap();
        wait_for_line(&mut child);
        let after = TreeCounters::read(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let cost = after.since(&before);
        assert!(cost.cpu() >= ENOUGH && after.ended_cpu >= ENOUGH, "{before:?} {after:?}");
        assert!(cost.user > cost.system, "a loop without system calls runs in user mode: {cost:?}");
        assert!(cost.faults > 0, "{cost:?}");
    }

    #[test]
    fn a_living_grandchild_is_counted_once_and_by_its_own_clock() {
        // The colons keep the shells from replacing themselves with their last command.
        let mut child = shell(&format!("( ( {BURN}; echo ready; read line; : ); : ); :"));
        wait_for_line(&mut child);
        let counters = TreeCounters::read(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(counters.ended_cpu.is_zero(), "{counters:?}");
        assert!(counters.living.len() == 3 && counters.cpu() >= ENOUGH, "{counters:?}");
    }

    #[test]
    fn an_ended_child_that_nobody_waited_for_is_not_lost() {
        // `exec sleep` takes over a shell that never waits for its child, which stays a zombie.
        let mut child = shell(&format!("(read line; {BURN}) <&0 & echo ready; exec sleep 30"));
        wait_for_line(&mut child);
        writeln!(child.stdin.as_mut().unwrap(), "go").unwrap();
        let zombie = |counters: &TreeCounters| {
            counters.living.keys().any(|(pid, _)| Process::new(*pid).and_then(|process| process.stat()).is_ok_and(|stat| stat.state == 'Z'))
        };
        let counters = loop {
            let counters = TreeCounters::read(child.id()).unwrap();
            if zombie(&counters) {
                break TreeCounters::read(child.id()).unwrap();
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(counters.cpu() >= ENOUGH, "{counters:?}");
    }

    #[test]
    fn a_process_that_ends_takes_nothing_off_the_sum() {
        let process = |cpu, switches| ProcessCounters { cpu: Duration::from_millis(cpu), switches, read_bytes: Some(0), written_bytes: Some(7) };
        let first = TreeCounters {
            living: BTreeMap::from([((1, 1), process(100, 10)), ((2, 5), process(900, 5000))]),
            user_ticks: 60,
            system_ticks: 40,
            ..TreeCounters::default()
        };
        let last = TreeCounters {
            // The id 2 is used again, by a process that began later.
            living: BTreeMap::from([((1, 1), process(150, 30)), ((2, 9), process(20, 3))]),
            ended_cpu: Duration::from_millis(950),
            user_ticks: 69,
            system_ticks: 43,
            ..TreeCounters::default()
        };
        let cost = last.since(&first);
        assert_eq!(cost.cpu(), Duration::from_millis(50 + 50 + 20));
        assert_eq!((cost.user, cost.system), (Duration::from_millis(90), Duration::from_millis(30)));
        assert_eq!(cost.switches, 20 + 3);
        assert_eq!((cost.read_bytes, cost.written_bytes), (Some(0), Some(7)));
        let sum: TreeCost = [cost, TreeCost { read_bytes: None, ..cost }].into_iter().sum();
        assert_eq!((sum.switches, sum.read_bytes, sum.written_bytes), (46, None, Some(14)));
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(TreeCounters::read(child.id()).unwrap_err().to_string().contains("has ended"));
    }

    #[test]
    fn resident_memory_and_switches_of_all_threads_are_seen() {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            for _ in 0..200 {
                std::thread::sleep(Duration::from_micros(50));
            }
            let _ = wait.recv();
        });
        std::thread::sleep(Duration::from_millis(100));
        let own = TreeCounters::read(std::process::id()).unwrap();
        drop(done);
        sleeper.join().unwrap();
        let switches: u64 = own.living.values().map(|process| process.switches).sum();
        assert!(own.resident > 1_000_000 && switches >= 200, "{own:?}");
    }
}
