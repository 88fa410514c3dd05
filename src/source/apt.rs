//! apt with private lists and cache: the system's own archives and signature checks, without
//! touching the system's state.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::matrix::ConfigurationError;
use crate::process::{ProcessError, Program};

/// Longest time for the lists or a tarball.
const LIMIT: Duration = Duration::from_secs(1800);

/// A private apt for one suite.
#[derive(Clone, Debug)]
pub struct Apt {
    dir: PathBuf,
    suite: String,
}

/// One version of a source package, as the signed list describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePackage {
    /// Version of the package, such as `15.18-0+deb12u1`.
    pub version: String,
    /// File name of the upstream tarball.
    pub tarball: String,
    /// SHA-256 of it.
    pub sha256: String,
}

impl SourcePackage {
    /// The upstream part of the version, in upstream's own spelling: no epoch, no revision of the
    /// package, `17~beta1` as `17beta1`.
    #[must_use]
    pub fn upstream_version(&self) -> String {
        let version = self.version.split_once(':').map_or(self.version.as_str(), |(_, version)| version);
        let version = version.rsplit_once('-').map_or(version, |(upstream, _)| upstream);
        version.split('+').next().unwrap_or(version).replace('~', "")
    }
}

/// The codename of the running distribution.
pub fn own_suite() -> anyhow::Result<String> {
    let text = std::fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release to learn the distribution's suite")?;
    let field = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let codename = field.map(|value| value.trim_matches('"').to_owned()).filter(|value| !value.is_empty());
    codename.context("/etc/os-release names no VERSION_CODENAME; name the suite in the matrix: source = { kind = \"debian\", suite = \"bookworm\" }")
}

impl Apt {
    /// The private apt of a suite below the cache directory.
    pub fn new(cache: &Path, suite: &str) -> anyhow::Result<Self> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if suite.is_empty() || !suite.chars().all(plain) {
            return Err(ConfigurationError::new(format!("`{suite}` is not the name of a suite such as bookworm or sid")).into());
        }
        Ok(Self { dir: cache.join("apt").join(suite), suite: suite.to_owned() })
    }

    /// Directory that downloaded tarballs are kept in.
    pub fn files(&self) -> PathBuf {
        self.dir.join("files")
    }

    fn program(&self, name: &str) -> Program {
        let option = |key: &str, path: &Path| format!("{key}={}", path.display());
        Program::new(name)
            .arg("-o")
            .arg(option("Dir::State", &self.dir.join("state")))
            .arg("-o")
            .arg(option("Dir::State::Lists", &self.dir.join("lists")))
            .arg("-o")
            .arg(option("Dir::State::status", Path::new("/var/lib/dpkg/status")))
            .arg("-o")
            .arg(option("Dir::Cache", &self.dir.join("cache")))
            .arg("-o")
            .arg(option("Dir::Etc::SourceList", &self.dir.join("sources.list")))
            .args(["-o", "Dir::Etc::SourceParts=/dev/null", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=2"])
            .env("LC_ALL", "C")
            .deadline(LIMIT)
    }

    /// Gets the suite's list of source packages.
    pub fn update(&self) -> anyhow::Result<()> {
        for dir in ["state", "lists/partial", "cache/archives/partial", "files"] {
            let dir = self.dir.join(dir);
            std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        let lines = deb_src_lines(&system_archives()?, &own_suite()?, &self.suite)?;
        let list = self.dir.join("sources.list");
        std::fs::write(&list, lines.join("\n") + "\n").with_context(|| format!("cannot write {}", list.display()))?;
        let done = self.program("apt-get").arg("update").output().with_context(|| format!("cannot get the list of source packages of {}", self.suite))?;
        ensure!(
            !done.output.contains("\nE: ") && !done.output.contains("\nErr:"),
            "apt-get could not get the list of source packages of {}: {}",
            self.suite,
            done.output.trim()
        );
        Ok(())
    }

    /// Versions of a source package, newest first.
    pub fn versions(&self, package: &str) -> anyhow::Result<Vec<SourcePackage>> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        if package.starts_with('-') || !package.chars().all(plain) {
            return Err(ConfigurationError::new(format!("`{package}` is not the name of a source package")).into());
        }
        let answer = self.program("apt-cache").args(["showsrc", "--only-source", package]).output();
        let text = match answer {
            Ok(done) => done.output,
            // apt-cache fails when it has no such package.
            Err(ProcessError { tail, .. }) if tail.contains("Unable to locate package") || tail.contains("You must put some") => String::new(),
            Err(error) => return Err(error.into()),
        };
        let mut found = parse_showsrc(&text, package);
        if found.is_empty() {
            return Err(ConfigurationError::new(format!("the suite {} has no source package `{package}`", self.suite)).into());
        }
        sort_newest_first(&mut found)?;
        Ok(found)
    }

    /// Downloads the upstream tarball of one version; apt checks it against the signed list.
    pub fn download(&self, package: &str, version: &str) -> Result<(), ProcessError> {
        let wanted = format!("{package}={version}");
        self.program("apt-get").args(["source", "--download-only", "--tar-only", "--only-source"]).arg(wanted).dir(self.files()).output().map(drop)
    }
}

/// An archive that the system's apt is configured for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Archive {
    uri: String,
    release: String,
    component: String,
    origin: String,
}

fn system_archives() -> anyhow::Result<Vec<Archive>> {
    let format = "$(CREATED_BY)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)";
    let text = Program::new("apt-get")
        .args(["indextargets", "--format", format])
        .env("LC_ALL", "C")
        .output()
        .context("cannot ask apt which archives the system uses")?
        .output;
    Ok(text.lines().filter_map(parse_target).collect())
}

fn parse_target(line: &str) -> Option<Archive> {
    let mut fields = line.split('|');
    let mut next = || fields.next().map(str::to_owned);
    if next()? != "Packages" {
        return None;
    }
    // Without downloaded lists apt does not know the origin and leaves the field as it is written.
    Some(Archive { uri: next()?, release: next()?, component: next()?, origin: next().filter(|origin| !origin.starts_with('$')).unwrap_or_default() })
}

/// One `deb-src` line per archive of the distribution itself. For another suite it is the main
/// archive with that suite's name.
fn deb_src_lines(archives: &[Archive], own: &str, suite: &str) -> anyhow::Result<Vec<String>> {
    let ours = |archive: &&Archive| {
        matches!(archive.origin.as_str(), "" | "Debian" | "Ubuntu") && (archive.release == own || archive.release.starts_with(&format!("{own}-")))
    };
    let keyring =
        ["/usr/share/keyrings/debian-archive-keyring.gpg", "/usr/share/keyrings/ubuntu-archive-keyring.gpg"].into_iter().find(|path| Path::new(path).exists());
    let signed = keyring.map_or_else(String::new, |path| format!("[signed-by={path}] "));
    let mut sources: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for archive in archives.iter().filter(ours) {
        if suite == own || archive.release == own {
            let release = if suite == own { archive.release.clone() } else { suite.to_owned() };
            let components = sources.entry((archive.uri.clone(), release)).or_default();
            if !components.contains(&archive.component) {
                components.push(archive.component.clone());
            }
        }
    }
    ensure!(!sources.is_empty(), "apt is not configured for an archive of {own}, so source packages cannot be had; check /etc/apt, or use another source");
    Ok(sources.into_iter().map(|((uri, release), components)| format!("deb-src {signed}{uri} {release} {}", components.join(" "))).collect())
}

fn parse_showsrc(text: &str, package: &str) -> Vec<SourcePackage> {
    let mut found: Vec<SourcePackage> = Vec::new();
    for paragraph in text.split("\n\n") {
        let field = |name: &str| paragraph.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        if field("Package") != Some(package) {
            continue;
        }
        let checksums = paragraph.lines().skip_while(|line| !line.starts_with("Checksums-Sha256:")).skip(1).take_while(|line| line.starts_with(' '));
        let tarball = checksums.filter_map(|line| {
            let mut words = line.split_whitespace();
            let (sha256, _size, name) = (words.next()?, words.next()?, words.next()?);
            let ending = name.split_once(".orig.tar.")?.1;
            matches!(ending, "gz" | "bz2" | "xz").then(|| (sha256.to_owned(), name.to_owned()))
        });
        let Some((version, (sha256, tarball))) = field("Version").zip(tarball.last()) else { continue };
        let package = SourcePackage { version: version.to_owned(), tarball, sha256 };
        if !found.contains(&package) {
            found.push(package);
        }
    }
    found
}

/// Sorts by the distribution's own rules for versions, which `dpkg` knows.
fn sort_newest_first(packages: &mut [SourcePackage]) -> anyhow::Result<()> {
    for end in (1..packages.len()).rev() {
        for at in 0..end {
            let newer = Program::new("dpkg").args(["--compare-versions", &packages[at + 1].version, "gt", &packages[at].version]).output();
            match newer {
                Ok(_) => packages.swap(at, at + 1),
                Err(ProcessError { outcome: crate::process::Outcome::Exit(1), .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWSRC: &str = "Package: postgresql-15\nBinary: libpq-dev\nVersion: 15.18-0+deb12u1\nChecksums-Sha1:\n aaaa 1 postgresql-15_15.18.orig.tar.bz2\nChecksums-Sha256:\n bbbb 3400 postgresql-15_15.18-0+deb12u1.dsc\n cccc 23000000 postgresql-15_15.18.orig.tar.bz2\n dddd 100 postgresql-15_15.18.orig.tar.bz2.asc\n eeee 200 postgresql-15_15.18-0+deb12u1.debian.tar.xz\nDirectory: pool\n\nPackage: postgresql-15\nVersion: 15.16-0+deb12u1\nChecksums-Sha256:\n ffff 1 postgresql-15_15.16.orig.tar.bz2\n\nPackage: other\nVersion: 1\nChecksums-Sha256:\n ffff 1 other_1.orig.tar.gz\n";

    #[test]
    fn showsrc_gives_the_upstream_tarball_of_each_version() {
        let found = parse_showsrc(SHOWSRC, "postgresql-15");
        assert_eq!(found.len(), 2);
        assert_eq!(
            found[0],
            SourcePackage { version: "15.18-0+deb12u1".to_owned(), tarball: "postgresql-15_15.18.orig.tar.bz2".to_owned(), sha256: "cccc".to_owned() }
        );
    }

    #[test]
    fn upstream_versions_are_spelled_as_upstream_does() {
        let upstream = |version: &str| SourcePackage { version: version.to_owned(), tarball: String::new(), sha256: String::new() }.upstream_version();
        assert_eq!(
            (upstream("15.18-0+deb12u1"), upstream("1:17~beta1-1"), upstream("10.11.6+dfsg-2")),
            ("15.18".to_owned(), "17beta1".to_owned(), "10.11.6".to_owned())
        );
    }

    fn archive(uri: &str, release: &str, origin: &str) -> Archive {
        Archive { uri: uri.to_owned(), release: release.to_owned(), component: "main".to_owned(), origin: origin.to_owned() }
    }

    #[test]
    fn only_the_distributions_own_archives_are_asked() {
        let archives = [
            archive("http://a/debian/", "bookworm", "Debian"),
            archive("http://a/security/", "bookworm-security", ""),
            archive("http://else/", "bookworm", "Vendor"),
            archive("http://node/", "nodistro", ""),
        ];
        let own = deb_src_lines(&archives, "bookworm", "bookworm").unwrap().join("\n");
        assert!(own.contains("http://a/debian/ bookworm main") && own.contains("http://a/security/ bookworm-security main"), "{own}");
        assert!(!own.contains("else") && !own.contains("node"), "{own}");
        let other = deb_src_lines(&archives, "bookworm", "bullseye").unwrap();
        assert_eq!(other.len(), 1);
        assert!(other[0].ends_with("http://a/debian/ bullseye main"), "{other:?}");
        assert!(deb_src_lines(&archives[2..], "bookworm", "bookworm").is_err());
    }

    #[test]
    fn names_that_could_be_options_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Apt::new(dir.path(), "../x").is_err());
        let apt = Apt::new(dir.path(), "bookworm").unwrap();
        assert!(apt.versions("-o=x").is_err() && apt.versions("a b").is_err());
    }
}
