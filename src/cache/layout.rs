//! Where things are in the cache directory.
//!
//! ```text
//! cache/
//!   git/<name>.git             mirrors and imported trees (the source room's)
//!   apt/                       private package lists (the source room's)
//!   ccache/                    object cache, an accelerator only
//!   data/<key>/                loaded data directories (the pipeline's)
//!   v1/                        format of what is below; another format is another directory
//!     builds/ab/<key>/         manifest.json  inputs.json  log  install/...     complete, or not there
//!     failures/<key>.json      a build that failed, with its class; <key>.log
//!     staging/<key>/           a build in progress; only the holder of the lock looks at it
//!     damaged/<key>.<n>/       entries whose manifest did not hold
//!     locks/<key>              held while the key is built
//!     work/<n>/{src,build,log} trees being built; the same few paths for all builds
//!     work/<n>.lock            held while the work directory is in use
//! ```

use std::path::{Path, PathBuf};

use super::key::BuildKey;

/// Paths of one cache directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The layout below `root`.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The cache directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn versioned(&self) -> PathBuf {
        self.root.join("v1")
    }

    /// All complete builds, in directories of two digits.
    #[must_use]
    pub fn builds(&self) -> PathBuf {
        self.versioned().join("builds")
    }

    /// One complete build.
    #[must_use]
    pub fn entry(&self, key: &BuildKey) -> PathBuf {
        self.builds().join(&key.as_str()[..2]).join(key.as_str())
    }

    /// Remembered failures.
    #[must_use]
    pub fn failures(&self) -> PathBuf {
        self.versioned().join("failures")
    }

    /// One remembered failure.
    #[must_use]
    pub fn failure(&self, key: &BuildKey) -> PathBuf {
        self.failures().join(format!("{key}.json"))
    }

    /// Log of a remembered failure.
    #[must_use]
    pub fn failure_log(&self, key: &BuildKey) -> PathBuf {
        self.failures().join(format!("{key}.log"))
    }

    /// A build in progress.
    #[must_use]
    pub fn staging(&self, key: &BuildKey) -> PathBuf {
        self.versioned().join("staging").join(key.as_str())
    }

    /// Entries taken out because their manifest did not hold.
    #[must_use]
    pub fn damaged(&self) -> PathBuf {
        self.versioned().join("damaged")
    }

    /// Lock of one key.
    #[must_use]
    pub fn lock(&self, key: &BuildKey) -> PathBuf {
        self.versioned().join("locks").join(key.as_str())
    }

    /// Work directories.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.versioned().join("work")
    }

    /// Object cache.
    #[must_use]
    pub fn object_cache(&self) -> PathBuf {
        self.root.join("ccache")
    }

    /// Loaded data directories.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.root.join("data")
    }
}
