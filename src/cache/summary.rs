//! What is in the cache, for `cache ls` and `cache stats`.

use std::path::Path;

use serde::Serialize;

use super::lookup::Cache;

/// One build in the cache.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Its key.
    pub build_key: String,
    /// Cell that was first built with it.
    pub cell: String,
    /// The source in words.
    pub source: String,
    /// Bytes of the installed files.
    pub bytes: u64,
    /// Files and links.
    pub files: usize,
    /// Seconds the build took.
    pub seconds: f64,
    /// When it was built, RFC 3339.
    pub built_at: String,
    /// What is wrong with it, if anything.
    pub damage: Option<String>,
}

/// Sums over the cache.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stats {
    /// Complete builds.
    pub builds: usize,
    /// Bytes of their installed files.
    pub build_bytes: u64,
    /// Seconds that building them took.
    pub build_seconds: f64,
    /// Remembered failures.
    pub failures: usize,
    /// Entries set aside because they were damaged.
    pub damaged: usize,
    /// Bytes of mirrors and imported trees.
    pub source_bytes: u64,
    /// Bytes of loaded data directories.
    pub data_bytes: u64,
    /// Bytes of the object cache.
    pub object_bytes: u64,
}

impl Cache {
    /// Every build in the cache.
    ///
    /// # Errors
    /// When the cache cannot be listed.
    pub fn list(&self) -> anyhow::Result<Vec<Line>> {
        let line = |entry: super::Entry| Line {
            build_key: entry.key.to_string(),
            damage: entry.manifest.damage(&entry.install),
            files: entry.manifest.len(),
            bytes: entry.manifest.bytes,
            cell: entry.manifest.story.cell,
            source: entry.manifest.story.source,
            seconds: entry.manifest.story.seconds,
            built_at: entry.manifest.story.built_at,
        };
        Ok(self.entries()?.into_iter().map(line).collect())
    }

    /// Sums over the cache.
    ///
    /// # Errors
    /// When the cache cannot be listed.
    pub fn stats(&self) -> anyhow::Result<Stats> {
        let builds = self.list()?;
        let names = |dir: &Path, extension: Option<&str>| {
            std::fs::read_dir(dir).map_or(0, |entries| {
                entries.flatten().filter(|entry| extension.is_none_or(|wanted| entry.path().extension().is_some_and(|found| found == wanted))).count()
            })
        };
        Ok(Stats {
            builds: builds.len(),
            build_bytes: builds.iter().map(|line| line.bytes).sum(),
            build_seconds: builds.iter().map(|line| line.seconds).sum(),
            failures: names(&self.layout().failures(), Some("json")),
            damaged: names(&self.layout().damaged(), None),
            source_bytes: size(&self.layout().root().join("git")) + size(&self.layout().root().join("apt")),
            data_bytes: size(&self.layout().data()),
            object_bytes: size(&self.layout().object_cache()),
        })
    }
}

/// Bytes of all files below a directory; files that vanish meanwhile count nothing.
fn size(dir: &Path) -> u64 {
    walkdir::WalkDir::new(dir).into_iter().flatten().filter_map(|entry| entry.metadata().ok().filter(std::fs::Metadata::is_file)).map(|meta| meta.len()).sum()
}
