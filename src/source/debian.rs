//! The upstream tarball of a distribution's source package.
//!
//! What was resolved is written down beside the imported tree and stays until the user asks for a
//! refresh, so the same matrix means the same source from one run to the next.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::matrix::{ConfigurationError, Revision};
use crate::process::Held;

use super::apt::{Apt, SourcePackage, own_suite};
use super::archive;
use super::tree::{SourceTree, open_or_make};

/// What a package of a suite was resolved to.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Pinned {
    package: String,
    suite: String,
    version: String,
    upstream_version: String,
    tarball: String,
    sha256: String,
    tree: String,
}

fn store(cache: &Path, package: &str) -> PathBuf {
    cache.join("git").join(format!("debian-{package}.git"))
}

fn pin_file(cache: &Path, package: &str, suite: &str) -> PathBuf {
    store(cache, package).join(format!("dbisect-{suite}.json"))
}

/// The tree as it was resolved before, without asking apt.
pub(super) fn locate(cache: &Path, package: &str, suite: Option<&str>, revision: &Revision) -> anyhow::Result<Option<SourceTree>> {
    let suite = suite.map_or_else(own_suite, |suite| Ok(suite.to_owned()))?;
    let path = pin_file(cache, package, &suite);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    // A note that is damaged is asked for again.
    let Ok(pinned) = serde_json::from_str::<Pinned>(&text) else { return Ok(None) };
    check_revision(&pinned.upstream_version, package, &suite, revision)?;
    Ok(Some(tree(cache, &pinned)))
}

/// The newest version that the archive really has.
pub(super) fn obtain(cache: &Path, package: &str, suite: Option<&str>, revision: &Revision, say: &dyn Fn(&str)) -> anyhow::Result<SourceTree> {
    let suite = suite.map_or_else(own_suite, |suite| Ok(suite.to_owned()))?;
    let apt = Apt::new(cache, &suite)?;
    let lock = apt.files().with_extension("lock");
    let _held = Held::take(&lock, &format!("fetching {package} from {suite}"), &|holder| say(&format!("waiting for {}", holder.0)))?;
    say(&format!("getting the list of source packages of {suite}"));
    apt.update()?;
    let versions = apt.versions(package)?;
    let (chosen, tarball) = download(&apt, package, &versions, say)?;
    let upstream_version = chosen.upstream_version();
    check_revision(&upstream_version, package, &suite, revision)?;
    say(&format!("reading {}", chosen.tarball));
    verify(&tarball, &chosen.sha256)?;
    let repository = open_or_make(&store(cache, package))?;
    let id = archive::import(&repository, &tarball)?;
    let pinned = Pinned {
        package: package.to_owned(),
        suite: suite.clone(),
        version: chosen.version.clone(),
        upstream_version,
        tarball: chosen.tarball.clone(),
        sha256: chosen.sha256.clone(),
        tree: id.to_string(),
    };
    let path = pin_file(cache, package, &suite);
    let half = path.with_extension("half");
    std::fs::write(&half, serde_json::to_string_pretty(&pinned)?).with_context(|| format!("cannot write {}", half.display()))?;
    std::fs::rename(&half, &path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(tree(cache, &pinned))
}

/// Downloads the newest version; a version that is listed but missing gives way to the next.
fn download<'v>(apt: &Apt, package: &str, versions: &'v [SourcePackage], say: &dyn Fn(&str)) -> anyhow::Result<(&'v SourcePackage, PathBuf)> {
    let mut failures = Vec::new();
    for version in versions {
        let tarball = apt.files().join(&version.tarball);
        if tarball.exists() && verify(&tarball, &version.sha256).is_ok() {
            return Ok((version, tarball));
        }
        say(&format!("fetching {package} {}", version.version));
        match apt.download(package, &version.version) {
            Ok(()) => return Ok((version, tarball)),
            Err(error) if error.is_interrupt() => return Err(error.into()),
            Err(error) => {
                let why = if error.tail.contains("404") { "the archive lists it and does not have it (404)".to_owned() } else { error.to_string() };
                say(&format!("{package} {}: {why}; trying the version before it", version.version));
                failures.push(format!("{}: {why}", version.version));
            }
        }
    }
    bail!("no version of the source package {package} could be fetched: {}", failures.join("; "))
}

fn verify(tarball: &Path, sha256: &str) -> anyhow::Result<()> {
    let found = sha256_of(tarball)?;
    ensure!(found == sha256, "{} has the SHA-256 {found}, but the signed list says {sha256}; remove the file and try again", tarball.display());
    Ok(())
}

/// SHA-256 of a file, in hexadecimal digits.
pub(super) fn sha256_of(tarball: &Path) -> anyhow::Result<String> {
    let mut file = std::fs::File::open(tarball).with_context(|| format!("cannot open {}", tarball.display()))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer).with_context(|| format!("cannot read {}", tarball.display()))?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn check_revision(upstream: &str, package: &str, suite: &str, revision: &Revision) -> Result<(), ConfigurationError> {
    let Revision::Version(wanted) = revision else {
        return Err(ConfigurationError::new(format!(
            "the Debian source package {package} has versions and no commits; write versions = [\"{upstream}\"] instead of revisions"
        )));
    };
    if upstream == wanted || upstream.starts_with(&format!("{wanted}.")) {
        return Ok(());
    }
    Err(ConfigurationError::new(format!("the source package {package} of {suite} is version {upstream}, and the matrix asks for {wanted}")))
}

fn tree(cache: &Path, pinned: &Pinned) -> SourceTree {
    SourceTree {
        store: store(cache, &pinned.package),
        tree: pinned.tree.clone(),
        commit: None,
        version: Some(pinned.upstream_version.clone()),
        described: format!("{} {} of {}", pinned.package, pinned.version, pinned.suite),
        patches: Vec::new(),
        submodules: std::collections::BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_or_the_exact_version_is_accepted() {
        let check = |wanted: &str| check_revision("15.18", "postgresql-15", "bookworm", &Revision::Version(wanted.to_owned()));
        assert!(check("15").is_ok() && check("15.18").is_ok());
        assert!(check("15.1").unwrap_err().to_string().contains("is version 15.18"));
        assert!(check_revision("15.18", "postgresql-15", "bookworm", &Revision::Commit("master".to_owned())).is_err());
    }

    #[test]
    fn a_tarball_that_is_not_the_listed_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, "abc").unwrap();
        verify(&path, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad").unwrap();
        assert!(verify(&path, &"0".repeat(64)).unwrap_err().to_string().contains("signed list"));
    }
}
