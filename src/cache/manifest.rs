//! What an entry holds: every file with its size and hash, and the story of the build.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::key::BuildKey;

/// How the build came about, for reports. Nothing here decides anything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Story {
    /// Cell that was first built with this key.
    pub cell: String,
    /// The source in words.
    pub source: String,
    /// Released version, if known.
    pub version: Option<String>,
    /// Patches applied.
    pub patches: Vec<String>,
    /// First line of the compiler's `--version`.
    pub compiler: String,
    /// What the compiler recorded in the binary.
    pub compiled_by: Vec<String>,
    /// When it was built, RFC 3339.
    pub built_at: String,
    /// Seconds it took.
    pub seconds: f64,
}

/// One file of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileRecord {
    path: String,
    #[serde(flatten)]
    content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Content {
    File { size: u64, mode: u32, blake3: String },
    Link(String),
}

/// The table of contents of an entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Key of the build.
    pub key: BuildKey,
    /// How it came about.
    pub story: Story,
    /// Sum of the sizes of all files, in bytes.
    pub bytes: u64,
    files: Vec<FileRecord>,
}

impl Manifest {
    /// Reads a finished install and takes down every file.
    ///
    /// # Errors
    /// When a file cannot be read or is neither file nor link.
    pub fn of(key: &BuildKey, story: Story, install: &Path) -> anyhow::Result<Self> {
        let mut files = Vec::new();
        let mut bytes = 0;
        for entry in walkdir::WalkDir::new(install).sort_by_file_name() {
            let entry = entry.with_context(|| format!("cannot list {}", install.display()))?;
            let kind = entry.file_type();
            if kind.is_dir() {
                continue;
            }
            let path = entry.path().strip_prefix(install)?.to_str().with_context(|| format!("the name {} is not UTF-8", entry.path().display()))?.to_owned();
            let content = if kind.is_symlink() {
                let target = std::fs::read_link(entry.path())?;
                Content::Link(target.to_str().with_context(|| format!("the link {} does not lead to a UTF-8 name", entry.path().display()))?.to_owned())
            } else {
                let meta = entry.metadata()?;
                bytes += meta.len();
                Content::File { size: meta.len(), mode: meta.permissions().mode() & 0o7777, blake3: hash(entry.path())? }
            };
            files.push(FileRecord { path, content });
        }
        anyhow::ensure!(!files.is_empty(), "the build installed no file at all in {}", install.display());
        Ok(Self { key: key.clone(), story, bytes, files })
    }

    /// The manifest of a server outside of the cache: its files are identified by the key and belong
    /// to somebody else.
    #[must_use]
    pub fn of_foreign(key: &BuildKey, story: Story, bytes: u64) -> Self {
        Self { key: key.clone(), story, bytes, files: Vec::new() }
    }

    /// Checks cheaply that the install is what was taken down: every file there, with its size and
    /// mode. Returns what is wrong.
    #[must_use]
    pub fn damage(&self, install: &Path) -> Option<String> {
        self.files.iter().find_map(|record| {
            let path = install.join(&record.path);
            let found = std::fs::symlink_metadata(&path);
            let holds = match (&record.content, &found) {
                (Content::File { size, mode, .. }, Ok(meta)) => meta.is_file() && meta.len() == *size && meta.permissions().mode() & 0o7777 == *mode,
                (Content::Link(target), Ok(meta)) => meta.is_symlink() && std::fs::read_link(&path).is_ok_and(|found| found == Path::new(target)),
                (_, Err(_)) => false,
            };
            (!holds).then(|| format!("{} is not what the manifest says", record.path))
        })
    }

    /// Number of files and links.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there is no file; an entry never is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

fn hash(path: &Path) -> anyhow::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_mmap(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(hasher.finalize().to_hex().to_string())
}
