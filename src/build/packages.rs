//! Which package of a distribution has what is missing.

use super::needs::Need;

/// A distribution, by the way its packages are installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Debian, Ubuntu and what derives from them.
    Debian,
    /// Fedora and what derives from it.
    Fedora,
    /// Arch and what derives from it.
    Arch,
    /// Anything else: packages are not known by name.
    Other,
}

/// The distribution from the text of `/etc/os-release`.
#[must_use]
pub fn distribution(os_release: &str) -> Distribution {
    let field = |name: &str| os_release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default().trim_matches('"').to_owned();
    let ids = format!("{} {}", field("ID"), field("ID_LIKE"));
    let is = |names: &[&str]| ids.split_whitespace().any(|id| names.contains(&id));
    if is(&["debian", "ubuntu"]) {
        Distribution::Debian
    } else if is(&["fedora", "rhel", "centos"]) {
        Distribution::Fedora
    } else if is(&["arch"]) {
        Distribution::Arch
    } else {
        Distribution::Other
    }
}

/// Need, then package of Debian, Fedora, Arch. A name that is not in the table is its own package.
const TABLE: &[(&str, [&str; 3])] = &[
    ("zlib.h", ["zlib1g-dev", "zlib-ng-compat-devel", "zlib"]),
    ("lz4.h", ["liblz4-dev", "lz4-devel", "lz4"]),
    ("stdio.h", ["libc6-dev", "glibc-devel", "glibc"]),
    ("ld.lld", ["lld", "lld", "lld"]),
    ("llvm-ar", ["llvm", "llvm", "llvm"]),
    ("libaio.h", ["libaio-dev", "libaio-devel", "libaio"]),
    ("curses.h", ["libncurses-dev", "ncurses-devel", "ncurses"]),
    ("openssl/ssl.h", ["libssl-dev", "openssl-devel", "openssl"]),
    ("numa.h", ["libnuma-dev", "numactl-devel", "numactl"]),
    ("zstd.h", ["libzstd-dev", "libzstd-devel", "zstd"]),
    ("snappy-c.h", ["libsnappy-dev", "snappy-devel", "snappy"]),
    ("g++", ["g++", "gcc-c++", "gcc"]),
    ("clang++", ["clang", "clang", "clang"]),
    ("/usr/sbin/mariadbd", ["mariadb-server", "mariadb-server", "mariadb"]),
    ("/usr/lib/mysql/plugin/ha_rocksdb.so", ["mariadb-plugin-rocksdb", "mariadb-rocksdb-engine", "mariadb"]),
    ("apt-get", ["apt", "apt", "apt"]),
    ("pkg-config", ["pkg-config", "pkgconf-pkg-config", "pkgconf"]),
];

/// The package of a distribution that has what is needed.
#[must_use]
pub fn package(need: &Need, distribution: Distribution) -> Option<String> {
    let column = match distribution {
        Distribution::Debian => 0,
        Distribution::Fedora => 1,
        Distribution::Arch => 2,
        Distribution::Other => return None,
    };
    let name = need.name();
    if let Some((_, packages)) = TABLE.iter().find(|(known, _)| *known == name) {
        return Some(packages[column].to_owned());
    }
    if let Some(series) = name.strip_prefix("/usr/lib/postgresql/").and_then(|rest| rest.split('/').next()) {
        return (distribution == Distribution::Debian).then(|| format!("postgresql-{series}"));
    }
    if name.starts_with('/') {
        return None;
    }
    // llvm-ar-14 is in Debian's llvm-14; compilers with a version are packages of that name.
    if let Some(version) = name.strip_prefix("clang++-") {
        return Some(format!("clang-{version}"));
    }
    Some(name.strip_prefix("llvm-ar-").map_or_else(|| name.to_owned(), |version| format!("llvm-{version}")))
}

/// Argument vectors that install packages, to be run as root.
#[must_use]
pub fn install_command(distribution: Distribution, packages: &[String]) -> Vec<Vec<String>> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).chain(packages.iter().cloned()).collect();
    match distribution {
        Distribution::Debian => vec![vec!["apt-get".to_owned(), "update".to_owned()], words(&["apt-get", "install", "-y", "--no-install-recommends"])],
        Distribution::Fedora => vec![words(&["dnf", "install", "-y"])],
        Distribution::Arch => vec![words(&["pacman", "-S", "--needed", "--noconfirm"])],
        Distribution::Other => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_are_told_by_id_or_likeness() {
        assert_eq!(distribution("ID=debian\n"), Distribution::Debian);
        assert_eq!(distribution("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"), Distribution::Debian);
        assert_eq!(distribution("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n"), Distribution::Fedora);
        assert_eq!(distribution("ID=arch\n"), Distribution::Arch);
        assert_eq!(distribution(""), Distribution::Other);
    }

    #[test]
    fn packages_have_the_distributions_names() {
        let of = |need: Need| package(&need, Distribution::Debian).unwrap();
        assert_eq!(of(Need::Header("zlib.h".to_owned())), "zlib1g-dev");
        assert_eq!(of(Need::Program("llvm-ar-14".to_owned())), "llvm-14");
        assert_eq!(of(Need::Program("clang-14".to_owned())), "clang-14");
        assert_eq!(of(Need::Program("clang++-14".to_owned())), "clang-14");
        assert_eq!(of(Need::File("/usr/lib/postgresql/15/bin/postgres".to_owned())), "postgresql-15");
        assert_eq!(package(&Need::File("/opt/mine/bin/mysqld".to_owned()), Distribution::Debian), None);
        assert_eq!(package(&Need::Header("lz4.h".to_owned()), Distribution::Fedora).unwrap(), "lz4-devel");
        assert_eq!(package(&Need::Program("make".to_owned()), Distribution::Other), None);
    }
}
