//! A key to what is known about it.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::build::BuildFailure;
use crate::process::{Held, Holder};

use super::key::{BuildInputs, BuildKey};
use super::layout::Layout;
use super::manifest::Manifest;
use super::slot::BuildSlot;

/// The build cache of one directory.
#[derive(Clone, Debug)]
pub struct Cache {
    layout: Layout,
}

/// A complete build.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its key.
    pub key: BuildKey,
    /// Prefix of the installed server.
    pub install: PathBuf,
    /// Its table of contents and story.
    pub manifest: Manifest,
    /// Installed by somebody else, outside of the cache.
    pub foreign: bool,
}

/// A remembered failure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KnownFailure {
    /// Key of the build.
    pub key: BuildKey,
    /// What went wrong.
    pub failure: BuildFailure,
    /// Cell that was being built.
    pub cell: String,
    /// When, RFC 3339.
    pub failed_at: String,
}

/// What the cache says about a key.
#[derive(Debug)]
pub enum Lookup {
    /// It is there, and its manifest holds.
    Hit(Box<Entry>),
    /// It cannot be built: a fact, so it is not tried again.
    Failed(Box<KnownFailure>),
    /// It must be built, and only the slot's owner may.
    Miss(Box<BuildSlot>),
}

impl Cache {
    /// The cache below `root`, which need not exist yet.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { layout: Layout::new(root) }
    }

    /// Where things are.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The entry of a key, if it is complete and undamaged. Takes no lock and changes nothing.
    ///
    /// # Errors
    /// When the manifest is there and cannot be read.
    pub fn peek(&self, key: &BuildKey) -> anyhow::Result<Option<Entry>> {
        Ok(self.read(key)?.filter(|entry| entry.manifest.damage(&entry.install).is_none()))
    }

    /// A remembered failure of the key that would happen again.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn known_failure(&self, key: &BuildKey) -> anyhow::Result<Option<KnownFailure>> {
        let path = self.layout.failure(key);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        // A failure record that is damaged is no record: building again is always safe.
        Ok(serde_json::from_str::<KnownFailure>(&text).ok().filter(|known| known.failure.class.is_final()))
    }

    /// What is known about the inputs' key. Waits while another process builds it; `waiting` is told
    /// for whom. An entry whose manifest does not hold is set aside and built anew.
    ///
    /// # Errors
    /// When the cache cannot be read or written, or the user interrupts.
    pub fn lookup(&self, inputs: &BuildInputs, purpose: &str, waiting: &dyn Fn(&Holder)) -> anyhow::Result<Lookup> {
        let key = inputs.key();
        if let Some(entry) = self.peek(&key)? {
            return Ok(Lookup::Hit(Box::new(entry)));
        }
        let lock = Held::take(&self.layout.lock(&key), purpose, waiting)?;
        // Whoever held the lock may have built it meanwhile.
        if let Some(entry) = self.peek(&key)? {
            return Ok(Lookup::Hit(Box::new(entry)));
        }
        if let Some(known) = self.known_failure(&key)? {
            return Ok(Lookup::Failed(Box::new(known)));
        }
        self.set_aside(&key)?;
        Ok(Lookup::Miss(Box::new(BuildSlot::new(&self.layout, key, inputs.clone(), lock)?)))
    }

    fn read(&self, key: &BuildKey) -> anyhow::Result<Option<Entry>> {
        let dir = self.layout.entry(key);
        let path = dir.join("manifest.json");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let manifest = match serde_json::from_str::<Manifest>(&text) {
            Ok(manifest) if manifest.key == *key => manifest,
            _ => {
                tracing::warn!(entry = %dir.display(), "the manifest of a cached build is damaged; it will be built anew");
                return Ok(None);
            }
        };
        Ok(Some(Entry { key: key.clone(), install: dir.join("install"), manifest, foreign: false }))
    }

    /// Moves a damaged entry out of the way, so that it can be looked at and is never served.
    fn set_aside(&self, key: &BuildKey) -> anyhow::Result<()> {
        let dir = self.layout.entry(key);
        if !dir.exists() {
            return Ok(());
        }
        let damaged = self.layout.damaged();
        std::fs::create_dir_all(&damaged).with_context(|| format!("cannot make {}", damaged.display()))?;
        let free = (0_u32..).map(|n| damaged.join(format!("{key}.{n}"))).find(|path| !path.exists()).context("no free name for a damaged entry")?;
        std::fs::rename(&dir, &free).with_context(|| format!("cannot set the damaged build {} aside", dir.display()))?;
        tracing::warn!(kept = %free.display(), "a cached build was damaged; it was set aside and is built anew");
        Ok(())
    }

    /// All complete entries.
    ///
    /// # Errors
    /// When the directory cannot be listed.
    pub fn entries(&self) -> anyhow::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for dir in walkdir::WalkDir::new(self.layout.builds()).min_depth(2).max_depth(2).sort_by_file_name() {
            let dir = match dir {
                Ok(dir) => dir,
                Err(error) if error.io_error().is_some_and(|error| error.kind() == std::io::ErrorKind::NotFound) => continue,
                Err(error) => return Err(error).context("cannot list the build cache"),
            };
            if let Some(key) = dir.file_name().to_str().and_then(BuildKey::parse) {
                entries.extend(self.read(&key)?);
            }
        }
        Ok(entries)
    }
}
