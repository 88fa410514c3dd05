//! Counters of the whole host, as vmstat and iostat would show them.

use std::time::Duration;

use anyhow::Context;
use procfs::{Current, CurrentSI, KernelStats};

/// Sums since the host started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostCounters {
    /// User time of all CPUs, nice included: vmstat's `us`.
    pub user: Duration,
    /// System time of all CPUs, interrupts included: vmstat's `sy`.
    pub system: Duration,
    /// Time that the hypervisor gave to others: vmstat's `st`.
    pub steal: Duration,
    /// Context switches: vmstat's `cs`.
    pub switches: u64,
    /// Reads of block devices: iostat's `r`.
    pub reads: u64,
    /// Kilobytes read: iostat's `rkB`.
    pub read_kb: f64,
    /// Writes of block devices: iostat's `w`.
    pub writes: u64,
    /// Kilobytes written: iostat's `wkB`.
    pub written_kb: f64,
}

impl HostCounters {
    /// Reads `/proc/stat` and `/proc/diskstats`.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn read() -> anyhow::Result<Self> {
        let stat = KernelStats::current().context("cannot read /proc/stat")?;
        let cpu = &stat.total;
        let mut counters = Self {
            user: cpu.user_duration() + cpu.nice_duration(),
            system: cpu.system_duration() + cpu.irq_duration().unwrap_or_default() + cpu.softirq_duration().unwrap_or_default(),
            steal: cpu.steal_duration().unwrap_or_default(),
            switches: stat.ctxt,
            ..Self::default()
        };
        for disk in procfs::DiskStats::current().context("cannot read /proc/diskstats")?.0 {
            if counts(&disk.name) {
                counters.reads += disk.reads;
                counters.writes += disk.writes;
                // Sectors of /proc/diskstats always have 512 bytes.
                #[expect(clippy::cast_precision_loss, reason = "sector counts far below 2^52")]
                {
                    counters.read_kb += disk.sectors_read as f64 / 2.0;
                    counters.written_kb += disk.sectors_written as f64 / 2.0;
                }
            }
        }
        Ok(counters)
    }
}

/// Whether a device is counted: whole devices that are no part of another one. A RAID's or volume's
/// numbers come from the RAID (`facts/metrics.md` section 1.2), so its members are left out.
fn counts(name: &str) -> bool {
    if ["loop", "ram", "zram", "sr", "fd"].iter().any(|kind| name.strip_prefix(kind).is_some_and(|rest| rest.bytes().all(|c| c.is_ascii_digit()))) {
        return false;
    }
    let device = std::path::Path::new("/sys/block").join(name);
    // A partition is not in /sys/block.
    if !device.exists() {
        return false;
    }
    let held = |dir: &std::path::Path| std::fs::read_dir(dir.join("holders")).is_ok_and(|mut holders| holders.next().is_some());
    let partitions = std::fs::read_dir(&device).map(|entries| entries.flatten().map(|entry| entry.path()).filter(|path| path.join("partition").exists()).collect::<Vec<_>>());
    !held(&device) && !partitions.unwrap_or_default().iter().any(|partition| held(partition))
}

/// Logical CPUs of the host.
#[must_use]
pub fn cpus() -> usize {
    procfs::CpuInfo::current().map_or(1, |info| info.num_cores()).max(1)
}
