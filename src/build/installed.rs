//! Servers that somebody else built: where their program is, and what identifies them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use object::{Object, ObjectSection};

use crate::matrix::{ConfigurationError, Dbms};
use crate::process::Program;

use super::toolchain::{hash, shared_libraries};

/// An installed server, identified by content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// BLAKE3 over the server's program, the libraries it loads and its loadable modules.
    pub digest: String,
    /// What its program says about its version.
    pub said: String,
    /// What compilers left in its program, one line each.
    pub compiled_by: Vec<String>,
    /// Bytes of all these files.
    pub bytes: u64,
}

/// Where the server's program may be in an installation, most likely first: distributions put
/// MySQL's into `sbin`, and MariaDB has renamed it.
#[must_use]
pub fn server_programs(dbms: Dbms) -> &'static [&'static str] {
    match dbms {
        Dbms::Postgres => &["bin/postgres"],
        Dbms::Mysql | Dbms::Myrocks => &["bin/mysqld", "sbin/mysqld"],
        Dbms::Mariadb => &["bin/mariadbd", "sbin/mariadbd", "bin/mysqld", "sbin/mysqld"],
    }
}

/// Directories with loadable modules of the server.
const fn module_dirs(dbms: Dbms) -> &'static [&'static str] {
    match dbms {
        Dbms::Postgres => &["lib"],
        Dbms::Mysql | Dbms::Myrocks | Dbms::Mariadb => &["lib/plugin", "lib/mysql/plugin", "lib64/mysql/plugin"],
    }
}

/// Identifies the server installed at `prefix`.
///
/// # Errors
/// [`ConfigurationError`] when there is no server of that dbms; others when files cannot be read.
pub fn identify(dbms: Dbms, prefix: &Path) -> anyhow::Result<Installed> {
    let programs = server_programs(dbms);
    let program = programs.iter().map(|name| prefix.join(name)).find(|path| path.is_file()).ok_or_else(|| {
        ConfigurationError::new(format!("there is no {dbms} server installed in {}: it has none of {}", prefix.display(), programs.join(", ")))
    })?;
    let said = Program::new(&program).arg("--version").output().context("cannot ask the installed server for its version")?.output.trim().to_owned();
    ensure!(!said.is_empty(), "{} --version says nothing", program.display());
    let mut files = BTreeSet::from([program.clone()]);
    files.extend(shared_libraries(std::iter::once(&program))?);
    for dir in module_dirs(dbms) {
        files.extend(modules(&prefix.join(dir))?);
    }
    let mut hasher = blake3::Hasher::new();
    let mut bytes = 0;
    for file in &files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        hasher.update(format!("{name} {}\0", hash(file)?).as_bytes());
        bytes += std::fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?.len();
    }
    Ok(Installed { digest: hasher.finalize().to_hex().to_string(), said, compiled_by: comments(&program)?, bytes })
}

fn modules(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("cannot list {}", dir.display()))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot list {}", dir.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "so") && path.is_file() {
            found.push(path);
        }
    }
    Ok(found)
}

/// The strings of the section in which compilers and linkers name themselves; packages have no debug
/// information that would say more.
fn comments(program: &Path) -> anyhow::Result<Vec<String>> {
    let bytes = std::fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let Ok(file) = object::File::parse(bytes.as_slice()) else { return Ok(Vec::new()) };
    let data = file.section_by_name(".comment").and_then(|section| section.uncompressed_data().ok()).unwrap_or_default();
    let strings: BTreeSet<_> = data.split(|byte| *byte == 0).filter(|text| !text.is_empty()).map(|text| String::from_utf8_lossy(text).into_owned()).collect();
    Ok(strings.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn server(dir: &Path, text: &str) {
        std::fs::create_dir_all(dir.join("sbin")).unwrap();
        std::fs::create_dir_all(dir.join("lib/mysql/plugin")).unwrap();
        let program = dir.join("sbin/mariadbd");
        std::fs::write(&program, format!("#!/bin/sh\necho {text}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn the_identity_follows_the_files_and_not_their_place() {
        let [one, other] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        for dir in [&one, &other] {
            server(dir.path(), "Ver 10.11.19-MariaDB");
        }
        let first = identify(Dbms::Mariadb, one.path()).unwrap();
        assert_eq!(first, identify(Dbms::Mariadb, other.path()).unwrap());
        assert_eq!(first.said, "Ver 10.11.19-MariaDB");
        std::fs::write(other.path().join("lib/mysql/plugin/ha_rocksdb.so"), "x").unwrap();
        assert_ne!(first.digest, identify(Dbms::Mariadb, other.path()).unwrap().digest, "a plugin is part of it");
        server(other.path(), "Ver 10.11.20-MariaDB");
        assert_ne!(first.said, identify(Dbms::Mariadb, other.path()).unwrap().said);
    }

    #[test]
    fn a_prefix_without_a_server_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let error = identify(Dbms::Mysql, dir.path()).unwrap_err();
        assert!(error.is::<ConfigurationError>() && error.to_string().contains("sbin/mysqld"), "{error}");
    }
}
