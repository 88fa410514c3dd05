//! A tarball to a tree object, without ever unpacking it to disk, so that no path or link in it can
//! lead anywhere.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Component, Path};

use anyhow::{Context, bail, ensure};
use git2::{FileMode, Oid, Repository};
use tar::EntryType;

/// Largest sum of file sizes accepted, in bytes: the largest server source has about 1.5 GB.
const LARGEST: u64 = 8 << 30;

/// A directory being assembled.
#[derive(Default)]
struct Dir {
    dirs: BTreeMap<String, Dir>,
    files: BTreeMap<String, (Oid, i32)>,
}

/// Imports a tarball (`.gz`, `.bz2`, `.xz` or plain), less its single top directory.
pub(super) fn import(repository: &Repository, tarball: &Path) -> anyhow::Result<Oid> {
    let file = std::fs::File::open(tarball).with_context(|| format!("cannot open {}", tarball.display()))?;
    let buffered = std::io::BufReader::new(file);
    let reader: Box<dyn Read> = match tarball.extension().and_then(|extension| extension.to_str()) {
        Some("gz" | "tgz") => Box::new(flate2::read::MultiGzDecoder::new(buffered)),
        Some("bz2") => Box::new(bzip2::read::MultiBzDecoder::new(buffered)),
        Some("xz") => Box::new(liblzma::read::XzDecoder::new_multi_decoder(buffered)),
        Some("tar") => Box::new(buffered),
        _ => bail!("{} is not a tarball that can be read (wanted .tar, .gz, .bz2 or .xz)", tarball.display()),
    };
    let top = collect(repository, reader).with_context(|| format!("the archive {} was refused", tarball.display()))?;
    write(repository, &top)
}

fn collect(repository: &Repository, reader: Box<dyn Read>) -> anyhow::Result<Dir> {
    let mut top = Dir::default();
    let mut first: Option<String> = None;
    let mut bytes = 0_u64;
    for entry in tar::Archive::new(reader).entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::XGlobalHeader | EntryType::XHeader | EntryType::GNULongName | EntryType::GNULongLink) {
            continue;
        }
        let parts = parts(&entry.path()?)?;
        let Some((head, rest)) = parts.split_first() else { continue };
        ensure!(first.get_or_insert_with(|| head.clone()) == head, "it has more than one top directory: {} and {head}", first.as_deref().unwrap_or_default());
        let Some((name, dirs)) = rest.split_last() else { continue };
        let (id, mode) = match kind {
            EntryType::Directory => continue,
            EntryType::Regular | EntryType::Continuous => {
                bytes = bytes.saturating_add(entry.size());
                ensure!(bytes <= LARGEST, "its files have more than {LARGEST} bytes");
                let executable = entry.header().mode()? & 0o111 != 0;
                let mut content = Vec::new();
                entry.read_to_end(&mut content)?;
                (repository.blob(&content)?, if executable { FileMode::BlobExecutable } else { FileMode::Blob })
            }
            EntryType::Symlink => {
                let target = entry.link_name()?.context("it has a link without a target")?.into_owned();
                ensure!(stays_inside(dirs, &target), "the link {} leads out of the archive to {}", rest.join("/"), target.display());
                (repository.blob(target.as_os_str().as_encoded_bytes())?, FileMode::Link)
            }
            EntryType::Link => {
                let target = self::parts(&entry.link_name()?.context("it has a link without a target")?)?;
                let found = target
                    .split_first()
                    .and_then(|(_, rest)| find(&top, rest))
                    .with_context(|| format!("the hard link {} leads to {}, which is not before it in the archive", rest.join("/"), target.join("/")))?;
                put(&mut top, dirs, name, found);
                continue;
            }
            other => bail!("{} is a {other:?}, and a source archive has files, links and directories only", rest.join("/")),
        };
        put(&mut top, dirs, name, (id, i32::from(mode)));
    }
    ensure!(!(top.dirs.is_empty() && top.files.is_empty()), "it holds no file");
    Ok(top)
}

fn parts(path: &Path) -> anyhow::Result<Vec<String>> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => parts.push(name.to_str().with_context(|| format!("the name {} is not UTF-8", path.display()))?.to_owned()),
            Component::CurDir => {}
            _ => bail!("the path {} leads out of the archive", path.display()),
        }
    }
    ensure!(!parts.iter().any(|part| part.eq_ignore_ascii_case(".git")), "the path {} would be a git directory", path.display());
    Ok(parts)
}

/// Whether a link in directory `dirs` to `target` ends below the top.
fn stays_inside(dirs: &[String], target: &Path) -> bool {
    let mut depth = dirs.len();
    for part in target.components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            _ => return false,
        }
    }
    true
}

fn put(top: &mut Dir, dirs: &[String], name: &str, file: (Oid, i32)) {
    let dir = dirs.iter().fold(top, |dir, part| {
        // A later directory of the same name replaces a file, as unpacking would.
        dir.files.remove(part);
        dir.dirs.entry(part.clone()).or_default()
    });
    dir.dirs.remove(name);
    dir.files.insert(name.to_owned(), file);
}

fn find(top: &Dir, path: &[String]) -> Option<(Oid, i32)> {
    let (name, dirs) = path.split_last()?;
    dirs.iter().try_fold(top, |dir, part| dir.dirs.get(part))?.files.get(name).copied()
}

fn write(repository: &Repository, dir: &Dir) -> anyhow::Result<Oid> {
    let mut builder = repository.treebuilder(None)?;
    for (name, (id, mode)) in &dir.files {
        builder.insert(name, *id, *mode)?;
    }
    for (name, child) in &dir.dirs {
        builder.insert(name, write(repository, child)?, i32::from(FileMode::Tree))?;
    }
    Ok(builder.write()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Archive(tar::Builder<Vec<u8>>);

    impl Archive {
        fn new() -> Self {
            Self(tar::Builder::new(Vec::new()))
        }

        /// Writes the name into the header as it is, since the tar crate refuses hostile ones.
        fn entry(mut self, kind: EntryType, path: &str, link: &str, mode: u32, content: &str) -> Self {
            let mut header = tar::Header::new_gnu();
            header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
            header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
            header.set_entry_type(kind);
            header.set_mode(mode);
            header.set_size(content.len() as u64);
            header.set_cksum();
            self.0.append(&header, content.as_bytes()).unwrap();
            self
        }

        fn file(self, path: &str, content: &str) -> Self {
            self.entry(EntryType::Regular, path, "", 0o644, content)
        }

        fn import(self) -> anyhow::Result<(tempfile::TempDir, Oid)> {
            let dir = tempfile::tempdir()?;
            let tarball = dir.path().join("x.tar");
            std::fs::write(&tarball, self.0.into_inner()?)?;
            let id = import(&Repository::init_bare(dir.path().join("store"))?, &tarball)?;
            Ok((dir, id))
        }
    }

    #[test]
    fn files_modes_and_links_survive_and_the_top_directory_goes() {
        let (dir, id) = Archive::new()
            .file("pg-1/configure", "x")
            .entry(EntryType::Regular, "pg-1/bin/tool", "", 0o755, "run")
            .entry(EntryType::Symlink, "pg-1/bin/link", "../configure", 0o777, "")
            .entry(EntryType::Link, "pg-1/hard", "pg-1/configure", 0o644, "")
            .import()
            .unwrap();
        let repository = Repository::open_bare(dir.path().join("store")).unwrap();
        let tree = repository.find_tree(id).unwrap();
        let mode = |path: &str| tree.get_path(Path::new(path)).unwrap().filemode();
        assert_eq!((mode("configure"), mode("bin/tool"), mode("bin/link"), mode("hard")), (0o100_644, 0o100_755, 0o120_000, 0o100_644));
    }

    #[test]
    fn archives_that_reach_out_are_refused() {
        let refused = |archive: Archive, wanted: &str| {
            let error = format!("{:#}", archive.import().map(drop).unwrap_err());
            assert!(error.contains(wanted), "{error}");
        };
        refused(Archive::new().file("pg/../../etc/passwd", "x"), "leads out");
        refused(Archive::new().file("/etc/passwd", "x"), "leads out");
        refused(Archive::new().entry(EntryType::Symlink, "pg/a/l", "../../x", 0o777, ""), "leads out");
        refused(Archive::new().entry(EntryType::Symlink, "pg/l", "/etc", 0o777, ""), "leads out");
        refused(Archive::new().entry(EntryType::Link, "pg/l", "pg/none", 0o644, ""), "not before it");
        refused(Archive::new().entry(EntryType::Char, "pg/null", "", 0o644, ""), "files, links and directories only");
        refused(Archive::new().file("pg/.git/config", "x"), "git directory");
        refused(Archive::new().file("one/a", "x").file("two/b", "x"), "more than one top directory");
        refused(Archive::new(), "holds no file");
    }

    #[test]
    fn a_truncated_archive_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let tarball = dir.path().join("x.tar.gz");
        std::fs::write(&tarball, [0x1f, 0x8b, 8, 0, 0]).unwrap();
        let repository = Repository::init_bare(dir.path().join("store")).unwrap();
        assert!(import(&repository, &tarball).is_err());
    }
}
