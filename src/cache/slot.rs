//! The right to put one build into the cache, and a place to make it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::build::{BuildFailure, NEUTRAL_PREFIX};
use crate::process::{Held, end_leftovers};

use super::key::{BuildInputs, BuildKey};
use super::layout::Layout;
use super::lookup::{Entry, KnownFailure};
use super::manifest::{Manifest, Story};

/// A miss: whoever has it, and nobody else, may build the key. Dropping it without a commit leaves
/// the cache as it was.
#[derive(Debug)]
pub struct BuildSlot {
    layout: Layout,
    key: BuildKey,
    inputs: BuildInputs,
    _lock: Held,
}

impl BuildSlot {
    /// Prepares an empty staging directory; what an earlier, killed build left there is removed.
    pub(super) fn new(layout: &Layout, key: BuildKey, inputs: BuildInputs, lock: Held) -> anyhow::Result<Self> {
        let slot = Self { layout: layout.clone(), key, inputs, _lock: lock };
        let staging = slot.staging();
        remove_tree(&staging)?;
        std::fs::create_dir_all(&staging).with_context(|| format!("cannot make the staging directory {}", staging.display()))?;
        Ok(slot)
    }

    fn staging(&self) -> PathBuf {
        self.layout.staging(&self.key)
    }

    /// The key to be built.
    #[must_use]
    pub const fn key(&self) -> &BuildKey {
        &self.key
    }

    /// Directory for `DESTDIR`.
    #[must_use]
    pub fn stage(&self) -> PathBuf {
        self.staging().join("destdir")
    }

    /// Puts the build into the cache: inputs, log, install and manifest in one directory, and then
    /// one rename. Everything is on disk before the rename, so no crash leaves half an entry.
    ///
    /// # Errors
    /// When something cannot be written; the cache is then as it was before.
    pub fn commit(self, story: Story, log: &Path) -> anyhow::Result<Entry> {
        let entry = self.layout.entry(&self.key);
        let staging = self.staging();
        let ready = staging.join("entry");
        std::fs::create_dir_all(&ready).with_context(|| format!("cannot make {}", ready.display()))?;
        let install = ready.join("install");
        let built = self.stage().join(NEUTRAL_PREFIX.trim_start_matches('/'));
        std::fs::rename(&built, &install).with_context(|| format!("the build left nothing in {}", built.display()))?;
        let manifest = Manifest::of(&self.key, story, &install)?;
        write(&ready.join("inputs.json"), self.inputs.canonical_json().as_bytes())?;
        std::fs::copy(log, ready.join("log")).with_context(|| format!("cannot keep the log {}", log.display()))?;
        write(&ready.join("manifest.json"), serde_json::to_string_pretty(&manifest)?.as_bytes())?;
        sync_tree(&ready)?;
        let parent = entry.parent().context("an entry always has a parent")?;
        std::fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        std::fs::rename(&ready, &entry).with_context(|| format!("cannot move the finished build to {}", entry.display()))?;
        File::open(parent)?.sync_all()?;
        // A failure of another class may have been remembered before; the build refutes it.
        remove_file(&self.layout.failure(&self.key))?;
        Ok(Entry { key: self.key.clone(), install: entry.join("install"), manifest, foreign: false })
    }

    /// Remembers that the build failed, with its log.
    ///
    /// # Errors
    /// When it cannot be written, for example on the full disk that made the build fail.
    pub fn fail(self, failure: &BuildFailure, cell: &str, now: &str) -> anyhow::Result<KnownFailure> {
        let kept = self.layout.failure_log(&self.key);
        std::fs::create_dir_all(self.layout.failures()).with_context(|| format!("cannot make {}", self.layout.failures().display()))?;
        let mut failure = failure.clone();
        if let Some(log) = &failure.log {
            std::fs::copy(log, &kept).with_context(|| format!("cannot keep the log {}", log.display()))?;
            failure.message = failure.message.replace(&*log.to_string_lossy(), &kept.to_string_lossy());
            failure.log = Some(kept);
        }
        let known = KnownFailure { key: self.key.clone(), failure, cell: cell.to_owned(), failed_at: now.to_owned() };
        let path = self.layout.failure(&self.key);
        let half = path.with_extension("half");
        write(&half, serde_json::to_string_pretty(&known)?.as_bytes())?;
        std::fs::rename(&half, &path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(known)
    }
}

impl Drop for BuildSlot {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.staging()) {
            tracing::warn!("{error:#}; the next build of this key removes it");
        }
    }
}

/// A work directory, used by one build or one server at a time. There are few and their paths are
/// always the same, so that an object cache hits.
#[derive(Debug)]
pub struct WorkSlot {
    dir: PathBuf,
    _lock: Held,
}

impl WorkSlot {
    /// Takes the first free work directory below `parent`, empty. Processes that a killed dbisect left running
    /// there are ended first.
    ///
    /// # Errors
    /// When it cannot be made or emptied.
    pub fn take(parent: &Path, purpose: &str) -> anyhow::Result<Self> {
        let mut number = 0_u32;
        loop {
            let dir = parent.join(number.to_string());
            if let Ok(lock) = Held::try_take(&dir.with_extension("lock"), purpose)? {
                end_leftovers(&dir);
                remove_tree(&dir)?;
                std::fs::create_dir_all(&dir).with_context(|| format!("cannot make the work directory {}", dir.display()))?;
                return Ok(Self { dir, _lock: lock });
            }
            number += 1;
        }
    }

    /// The work directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for WorkSlot {
    fn drop(&mut self) {
        // The next user empties it anyway; doing it now only gives the space back sooner.
        if let Err(error) = remove_tree(&self.dir) {
            tracing::debug!("{error:#}");
        }
    }
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

fn sync_tree(dir: &Path) -> anyhow::Result<()> {
    for entry in walkdir::WalkDir::new(dir) {
        let entry = entry?;
        if !entry.file_type().is_symlink() {
            File::open(entry.path()).and_then(|file| file.sync_all()).with_context(|| format!("cannot write {} to disk", entry.path().display()))?;
        }
    }
    Ok(())
}

fn remove_tree(path: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).with_context(|| format!("cannot remove {}", path.display())),
        _ => Ok(()),
    }
}

fn remove_file(path: &Path) -> anyhow::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).with_context(|| format!("cannot remove {}", path.display())),
        _ => Ok(()),
    }
}
