//! A tree object in a bare repository: reading, identifying, checking out.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, bail};
use git2::{FileMode, ObjectType, Oid, Repository, TreeWalkMode, TreeWalkResult};

use super::patch::AppliedPatch;

/// The source of one cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTree {
    /// Bare git directory in the cache that holds the tree.
    pub store: PathBuf,
    /// Tree object after patches, 40 hexadecimal digits.
    pub tree: String,
    /// Commit before patches, for sources with a history.
    pub commit: Option<String>,
    /// Released version, such as `15.18` or `17beta1`, where the source says it.
    pub version: Option<String>,
    /// The source in words.
    pub described: String,
    /// Patches applied, in order.
    pub patches: Vec<AppliedPatch>,
    /// Submodule path to commit.
    pub submodules: BTreeMap<String, String>,
}

/// One file of a tree.
struct File {
    path: String,
    id: Oid,
    mode: i32,
}

impl SourceTree {
    fn open(&self) -> anyhow::Result<Repository> {
        open(&self.store)
    }

    fn files(&self, repository: &Repository, keeps: &dyn Fn(&str) -> bool) -> anyhow::Result<Vec<File>> {
        let tree =
            repository.find_tree(Oid::from_str(&self.tree)?).with_context(|| format!("the tree {} is missing from {}", self.tree, self.store.display()))?;
        let mut files = Vec::new();
        let mut odd = None;
        tree.walk(TreeWalkMode::PreOrder, |dir, entry| {
            if entry.kind() != Some(ObjectType::Blob) {
                return TreeWalkResult::Ok;
            }
            let Ok(name) = entry.name() else {
                odd = Some(String::from_utf8_lossy(entry.name_bytes()).into_owned());
                return TreeWalkResult::Abort;
            };
            let path = format!("{dir}{name}");
            if keeps(&path) {
                files.push(File { path, id: entry.id(), mode: entry.filemode() });
            }
            TreeWalkResult::Ok
        })?;
        if let Some(name) = odd {
            bail!("the tree has a file whose name is not UTF-8: {name}");
        }
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(files)
    }

    /// BLAKE3 over mode, path and content id of the files for which `keeps` is true, sorted by path.
    /// Trees with equal relevant files have equal digests, whatever source they came from.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub fn digest(&self, keeps: &dyn Fn(&str) -> bool) -> anyhow::Result<String> {
        let mut hasher = blake3::Hasher::new();
        for file in self.files(&self.open()?, keeps)? {
            // A NUL cannot be in a path, so no two lists of files give the same bytes.
            hasher.update(format!("{:o} {} {}\0", file.mode, file.id, file.path).as_bytes());
        }
        Ok(hasher.finalize().to_hex().to_string())
    }

    /// Writes the files for which `keeps` is true below `dir`, which must be empty.
    ///
    /// # Errors
    /// When a file cannot be written, or its path would lead out of `dir`.
    pub fn checkout(&self, dir: &Path, keeps: &dyn Fn(&str) -> bool) -> anyhow::Result<()> {
        let repository = self.open()?;
        for file in self.files(&repository, keeps)? {
            let relative = Path::new(&file.path);
            // git itself refuses such names, but the objects may have been made by something else.
            anyhow::ensure!(
                relative.components().all(|part| matches!(part, Component::Normal(_))),
                "the tree holds the path {}, which leads out of it",
                file.path
            );
            let path = dir.join(relative);
            write(&repository, &file, &path).with_context(|| format!("cannot check out {}", path.display()))?;
        }
        Ok(())
    }

    /// Text of one file; `None` when the tree does not have it.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub fn read(&self, path: &str) -> anyhow::Result<Option<String>> {
        let repository = self.open()?;
        let tree = repository.find_tree(Oid::from_str(&self.tree)?)?;
        let Ok(entry) = tree.get_path(Path::new(path)) else { return Ok(None) };
        let blob = repository.find_blob(entry.id())?;
        Ok(Some(String::from_utf8_lossy(blob.content()).into_owned()))
    }
}

fn write(repository: &Repository, file: &File, path: &Path) -> anyhow::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let blob = repository.find_blob(file.id)?;
    if file.mode == i32::from(FileMode::Link) {
        std::os::unix::fs::symlink(std::str::from_utf8(blob.content())?, path)?;
        return Ok(());
    }
    // A link made earlier under the same name must not be followed.
    let mut out = std::fs::OpenOptions::new().write(true).create_new(true).open(path)?;
    std::io::Write::write_all(&mut out, blob.content())?;
    let mode = if file.mode == i32::from(FileMode::BlobExecutable) { 0o755 } else { 0o644 };
    out.set_permissions(std::fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// Opens a bare repository, whoever owns it.
pub(super) fn open(store: &Path) -> anyhow::Result<Repository> {
    // SAFETY: the option is a flag inside libgit2 that is only ever set to this one value. The check
    // it switches off guards against hooks and configuration of a foreign repository, neither of
    // which is used here: libgit2 runs no hooks, and only objects are read.
    unsafe { git2::opts::set_verify_owner_validation(false) }?;
    Repository::open_bare(store).with_context(|| format!("cannot open the git directory {}", store.display()))
}

/// Opens a bare repository of the cache, making it when it is not there.
pub(super) fn open_or_make(store: &Path) -> anyhow::Result<Repository> {
    if store.join("HEAD").exists() {
        return open(store);
    }
    std::fs::create_dir_all(store).with_context(|| format!("cannot make the directory {}", store.display()))?;
    Repository::init_bare(store).with_context(|| format!("cannot make the git directory {}", store.display()))
}
