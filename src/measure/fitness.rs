//! What makes a host a poor place to measure. Looks and never changes anything.

use std::path::Path;
use std::time::Duration;

use procfs::Current;
use serde::Serialize;

use super::host::{HostCounters, cpus};

/// How much a finding disturbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Adds noise.
    Warning,
    /// Results would mean little, or the run would fail.
    Unfit,
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How much it disturbs.
    pub severity: Severity,
    /// What was found, why it matters and what to do, in a sentence.
    pub sentence: String,
}

/// What was read off the host. `None` where the host does not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostReadings {
    /// Frequency governor of the first CPU.
    pub governor: Option<String>,
    /// Whether the clock may exceed its nominal frequency.
    pub turbo: Option<bool>,
    /// `on`, `off`, `notsupported`, ...
    pub smt: Option<String>,
    /// Transparent huge pages: `always`, `madvise`, `never`.
    pub thp: Option<String>,
    /// Running processes on average over the last minute.
    pub load: f64,
    /// Logical CPUs.
    pub cpus: usize,
    /// Megabytes of swap in use.
    pub swap_used_mb: u64,
    /// Share of CPU time that the hypervisor gave to others in a short sample, 0 to 1.
    pub steal: f64,
    /// Free gigabytes where builds and data go.
    pub free_gb: f64,
    /// Gigabytes that the cells will need.
    pub wanted_gb: f64,
    /// Whether it is a virtual machine.
    pub virtual_machine: bool,
}

impl HostReadings {
    /// Reads the host; takes a quarter of a second to see whether CPU time is stolen.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn read(dir: &Path, wanted_gb: f64) -> anyhow::Result<Self> {
        let read = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let before = HostCounters::read()?;
        let sample = Duration::from_millis(250);
        std::thread::sleep(sample);
        let stolen = HostCounters::read()?.steal.saturating_sub(before.steal);
        #[expect(clippy::cast_precision_loss, reason = "a number of CPUs")]
        let steal = stolen.as_secs_f64() / (sample.as_secs_f64() * cpus() as f64);
        let memory = procfs::Meminfo::current()?;
        let exists = dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"));
        let disk = nix::sys::statvfs::statvfs(exists)?;
        #[expect(clippy::cast_precision_loss, reason = "bytes of a disk, shown in gigabytes")]
        let free_gb = (disk.blocks_available() * disk.fragment_size()) as f64 / 1e9;
        let turbo = read("/sys/devices/system/cpu/intel_pstate/no_turbo")
            .map(|text| text == "0")
            .or_else(|| read("/sys/devices/system/cpu/cpufreq/boost").map(|text| text == "1"));
        Ok(Self {
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            turbo,
            smt: read("/sys/devices/system/cpu/smt/control"),
            thp: read("/sys/kernel/mm/transparent_hugepage/enabled").and_then(|text| text.split_once('[')?.1.split_once(']').map(|(word, _)| word.to_owned())),
            load: f64::from(procfs::LoadAverage::current()?.one),
            cpus: cpus(),
            swap_used_mb: memory.swap_total.saturating_sub(memory.swap_free) / 1_000_000,
            steal,
            free_gb,
            wanted_gb,
            virtual_machine: procfs::CpuInfo::current().ok().and_then(|info| info.flags(0).map(|flags| flags.contains(&"hypervisor"))).unwrap_or(false),
        })
    }

    /// What of it disturbs measurements.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut add = |severity, sentence: String| found.push(Finding { severity, sentence });
        if self.free_gb < self.wanted_gb {
            add(
                Severity::Unfit,
                format!("{:.1} GB are free and about {:.1} GB are needed; free some, or name another place with --cache", self.free_gb, self.wanted_gb),
            );
        }
        if self.steal > 0.05 {
            add(Severity::Unfit, format!("the hypervisor gives {:.0}% of the CPU time to others; every result will carry that noise", self.steal * 100.0));
        }
        #[expect(clippy::cast_precision_loss, reason = "a number of CPUs")]
        let share = self.load / self.cpus.max(1) as f64;
        if share > 0.25 {
            add(Severity::Warning, format!("the load is {:.1} on {} CPUs; wait until other work has ended", self.load, self.cpus));
        }
        if self.governor.as_ref().is_some_and(|governor| governor != "performance") {
            add(
                Severity::Warning,
                format!(
                    "the CPU governor is {}, so the clock follows the load; `cpupower frequency-set -g performance` fixes it",
                    self.governor.as_deref().unwrap_or_default()
                ),
            );
        }
        if self.turbo == Some(true) {
            add(Severity::Warning, "the clock may exceed its nominal frequency (turbo), and so follows the temperature; switch it off in the firmware or under /sys/devices/system/cpu".to_owned());
        }
        if self.smt.as_deref() == Some("on") {
            add(Severity::Note, "SMT is on: server and client may share a core, and CPU time then buys less".to_owned());
        }
        if self.thp.as_deref() == Some("always") {
            add(Severity::Note, "transparent huge pages are on for all memory, so memory use depends on what was free before; madvise is steadier".to_owned());
        }
        if self.swap_used_mb > 100 {
            add(Severity::Warning, format!("{} MB of swap are in use; a server that is swapped out is not what is to be measured", self.swap_used_mb));
        }
        if self.cpus < 4 {
            add(Severity::Note, format!("{} CPUs cannot separate server, client and the rest; expect more noise and use more restarts", self.cpus));
        }
        if self.virtual_machine {
            add(Severity::Note, "this is a virtual machine: neighbours that cannot be seen share its processor".to_owned());
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet() -> HostReadings {
        HostReadings {
            governor: Some("performance".to_owned()),
            turbo: Some(false),
            smt: Some("off".to_owned()),
            thp: Some("madvise".to_owned()),
            cpus: 8,
            free_gb: 100.0,
            wanted_gb: 4.0,
            ..HostReadings::default()
        }
    }

    #[test]
    fn a_quiet_host_has_no_findings() {
        assert_eq!(quiet().findings(), []);
    }

    #[test]
    fn each_disturbance_is_found() {
        let found = |change: &dyn Fn(&mut HostReadings), severity: Severity, word: &str| {
            let mut host = quiet();
            change(&mut host);
            let findings = host.findings();
            assert!(findings.len() == 1 && findings[0].severity == severity && findings[0].sentence.contains(word), "{word}: {findings:?}");
        };
        found(&|host| host.governor = Some("powersave".to_owned()), Severity::Warning, "governor");
        found(&|host| host.turbo = Some(true), Severity::Warning, "turbo");
        found(&|host| host.smt = Some("on".to_owned()), Severity::Note, "SMT");
        found(&|host| host.thp = Some("always".to_owned()), Severity::Note, "huge pages");
        found(&|host| host.load = 2.1, Severity::Warning, "load");
        found(&|host| host.swap_used_mb = 101, Severity::Warning, "swap");
        found(&|host| host.steal = 0.06, Severity::Unfit, "hypervisor");
        found(&|host| host.free_gb = 3.9, Severity::Unfit, "free");
        found(&|host| host.cpus = 2, Severity::Note, "CPUs");
        found(&|host| host.virtual_machine = true, Severity::Note, "virtual machine");
    }

    #[test]
    fn this_host_can_be_read() {
        let host = HostReadings::read(Path::new("/no/such/dir"), 1.0).unwrap();
        assert!(host.cpus >= 1 && host.free_gb > 0.0);
    }
}
