//! What kind of host this is: readings may be compared only between equal fingerprints.

use std::collections::BTreeMap;
use std::path::Path;

use procfs::Current;
use serde::{Deserialize, Serialize};

use super::host::cpus;

/// Named facts about a host. Nothing in it changes from one minute to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint(pub BTreeMap<String, String>);

impl Fingerprint {
    /// BLAKE3 over the facts; equal hosts have equal digests.
    #[must_use]
    pub fn digest(&self) -> String {
        let text: String = self.0.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
    }

    /// Facts in which two hosts differ, as `name: one, other`.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let names: std::collections::BTreeSet<_> = self.0.keys().chain(other.0.keys()).collect();
        let value = |host: &Self, name: &str| host.0.get(name).cloned().unwrap_or_else(|| "unknown".to_owned());
        names
            .into_iter()
            .filter(|name| self.0.get(*name) != other.0.get(*name))
            .map(|name| format!("{name}: {}, {}", value(self, name), value(other, name)))
            .collect()
    }
}

/// The fingerprint of this host, with the filesystem that `data` is on.
#[must_use]
pub fn fingerprint(data: &Path) -> Fingerprint {
    let mut facts = BTreeMap::new();
    let mut fact = |name: &str, value: Option<String>| {
        facts.insert(name.to_owned(), value.map_or_else(|| "unknown".to_owned(), |value| value.trim().to_owned()));
    };
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let cpu = procfs::CpuInfo::current().ok();
    fact("cpu", cpu.as_ref().and_then(|info| info.model_name(0)).map(str::to_owned));
    fact("cpus", Some(cpus().to_string()));
    fact("hypervisor", cpu.and_then(|info| info.flags(0).map(|flags| if flags.contains(&"hypervisor") { "yes" } else { "no" }.to_owned())));
    fact("kernel", read("/proc/sys/kernel/osrelease"));
    fact("governor", read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
    fact("smt", read("/sys/devices/system/cpu/smt/control"));
    fact("thp", read("/sys/kernel/mm/transparent_hugepage/enabled").map(|text| chosen(&text)));
    let memory = procfs::Meminfo::current().ok().map(|info| format!("{} GB", (info.mem_total + 500_000_000) / 1_000_000_000));
    fact("memory", memory);
    let mount = mount_of(data);
    fact("device", mount.as_ref().map(|mount| mount.device.clone()));
    fact("filesystem", mount.as_ref().map(|mount| mount.filesystem.clone()));
    fact("mount options", mount.map(|mount| mount.options));
    fact("host", read("/etc/machine-id").or_else(|| read("/proc/sys/kernel/hostname")).map(|id| blake3::hash(id.trim().as_bytes()).to_hex()[..8].to_owned()));
    Fingerprint(facts)
}

/// The choice in brackets of a line such as `always [madvise] never`.
fn chosen(text: &str) -> String {
    text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']')).unwrap_or(text).to_owned()
}

struct Mount {
    device: String,
    filesystem: String,
    options: String,
}

/// The mount that holds `path`.
fn mount_of(path: &Path) -> Option<Mount> {
    let path = std::fs::canonicalize(path).ok()?;
    let mounts = procfs::process::Process::myself().ok()?.mountinfo().ok()?;
    let mount = mounts.into_iter().filter(|mount| path.starts_with(&mount.mount_point)).max_by_key(|mount| mount.mount_point.as_os_str().len())?;
    let mut options: Vec<_> = mount.mount_options.into_iter().map(|(name, value)| value.map_or(name.clone(), |value| format!("{name}={value}"))).collect();
    options.sort();
    Some(Mount { device: mount.mount_source.unwrap_or_else(|| "none".to_owned()), filesystem: mount.fs_type, options: options.join(",") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_stable_and_says_what_differs() {
        let one = fingerprint(Path::new("/"));
        assert_eq!(one.digest(), fingerprint(Path::new("/")).digest());
        let mut other = one.clone();
        other.0.insert("kernel".to_owned(), "0.1".to_owned());
        assert_ne!(one.digest(), other.digest());
        assert_eq!(one.differences(&other).len(), 1);
    }

    #[test]
    fn it_knows_the_filesystem_of_the_data() {
        let facts = fingerprint(Path::new("/proc/self")).0;
        assert_eq!((facts["filesystem"].as_str(), facts["cpus"].is_empty()), ("proc", false), "{facts:?}");
        for name in ["cpu", "hypervisor", "kernel", "governor", "smt", "thp", "memory", "device", "mount options", "host"] {
            assert!(facts.contains_key(name), "{name} of {facts:?}");
        }
    }

    #[test]
    fn the_choice_in_brackets_is_taken() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
    }
}
