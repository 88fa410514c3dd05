//! Counters of the whole host, as vmstat and iostat would show them.

use std::collections::BTreeSet;
use std::path::Path;
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
    /// Reads `/proc/stat`, `/proc/diskstats` and, to tell disks from their parts, `/sys/block`.
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
        let counted = counted(&disks()?);
        for disk in procfs::DiskStats::current().context("cannot read /proc/diskstats")?.0 {
            if counted.contains(&disk.name) {
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

/// Block devices of the kinds that keep their data in memory or in a file, or are no storage.
const NOT_STORAGE: [&str; 5] = ["loop", "ram", "zram", "sr", "fd"];

/// A block device and what is stacked on it, as `/sys/block` tells.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Disk {
    name: String,
    /// Whether a RAID or volume is made of it.
    held: bool,
    /// Its partitions, each with whether a RAID or volume is made of it.
    partitions: Vec<(String, bool)>,
}

fn disks() -> anyhow::Result<Vec<Disk>> {
    let names =
        |dir: &Path| -> std::io::Result<Vec<String>> { std::fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect() };
    let held = |dir: &Path| names(&dir.join("holders")).is_ok_and(|holders| !holders.is_empty());
    let top = Path::new("/sys/block");
    let describe = |name: String| {
        let dir = top.join(&name);
        // A device may be unplugged meanwhile; then it has no partitions either.
        let partitions = names(&dir).unwrap_or_default().into_iter().filter(|entry| dir.join(entry).join("partition").exists());
        Disk { held: held(&dir), partitions: partitions.map(|entry| (entry.clone(), held(&dir.join(&entry)))).collect(), name }
    };
    Ok(names(top).context("cannot list /sys/block, which tells disks from partitions")?.into_iter().map(describe).collect())
}

/// Names of the devices whose counters make up the host's storage traffic, each byte once: whole
/// devices; where a RAID or volume is made of one, the RAID counts instead (`facts/metrics.md`
/// section 1.2); where it is made of some of its partitions, the other partitions still count.
fn counted(disks: &[Disk]) -> BTreeSet<String> {
    let is_storage = |disk: &&Disk| !NOT_STORAGE.iter().any(|kind| disk.name.strip_prefix(kind).is_some_and(|rest| rest.bytes().all(|c| c.is_ascii_digit())));
    let mut counted = BTreeSet::new();
    for disk in disks.iter().filter(is_storage).filter(|disk| !disk.held) {
        if disk.partitions.iter().any(|(_, held)| *held) {
            counted.extend(disk.partitions.iter().filter(|(_, held)| !held).map(|(name, _)| name.clone()));
        } else {
            counted.insert(disk.name.clone());
        }
    }
    counted
}

/// Logical CPUs of the host.
#[must_use]
pub fn cpus() -> usize {
    procfs::CpuInfo::current().map_or(1, |info| info.num_cores()).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str, held: bool, partitions: &[(&str, bool)]) -> Disk {
        Disk { name: name.to_owned(), held, partitions: partitions.iter().map(|(name, held)| ((*name).to_owned(), *held)).collect() }
    }

    fn names(disks: &[Disk]) -> Vec<String> {
        counted(disks).into_iter().collect()
    }

    #[test]
    fn whole_devices_count_and_partitions_do_not() {
        assert_eq!(names(&[disk("nvme0n1", false, &[("nvme0n1p1", false), ("nvme0n1p2", false)]), disk("sda", false, &[])]), ["nvme0n1", "sda"]);
    }

    #[test]
    fn a_raid_counts_instead_of_its_members() {
        assert_eq!(names(&[disk("sda", true, &[]), disk("sdb", true, &[]), disk("md0", false, &[])]), ["md0"]);
        // A volume on a RAID: only the topmost layer.
        assert_eq!(names(&[disk("sda", true, &[]), disk("md0", true, &[]), disk("dm-0", false, &[])]), ["dm-0"]);
    }

    #[test]
    fn the_partitions_beside_a_member_still_count() {
        assert_eq!(names(&[disk("sda", false, &[("sda1", true), ("sda2", false)]), disk("md0", false, &[])]), ["md0", "sda2"]);
    }

    #[test]
    fn memory_and_files_are_no_storage() {
        assert!(names(&[disk("loop0", false, &[]), disk("ram1", false, &[]), disk("zram0", false, &[]), disk("sr0", false, &[])]).is_empty());
        assert_eq!(names(&[disk("srx", false, &[])]), ["srx"]);
    }

    #[test]
    fn counters_never_fall() {
        let first = HostCounters::read().unwrap();
        let last = HostCounters::read().unwrap();
        assert!(last.user >= first.user && last.system >= first.system && last.switches > 0 && last.switches >= first.switches, "{first:?} {last:?}");
        assert!(last.reads >= first.reads && last.writes >= first.writes, "{first:?} {last:?}");
    }
}
