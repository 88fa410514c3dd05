//! Where servers run: directories that their account can reach.

use std::path::{Path, PathBuf};

use crate::cache::{Cache, Entry};
use crate::process::Account;
use crate::server::copy_data;

use super::make_dir;

/// Directories for servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Account that servers run under; `None` is our own.
    pub account: Option<Account>,
    root: PathBuf,
    /// Whether the account can reach the cache, so that servers can run straight from its entries.
    direct: bool,
}

impl Places {
    /// Places for a cache: within it where the servers' account can reach it, else below
    /// `/var/tmp`. A checkout in root's home directory, for instance, cannot be reached.
    ///
    /// # Errors
    /// When the account does not exist or a directory cannot be made.
    pub fn new(cache: &Cache) -> anyhow::Result<Self> {
        let account = Account::for_servers()?;
        make_dir(cache.layout().root())?;
        let own = std::fs::canonicalize(cache.layout().root())?;
        let direct = account.is_none() || Account::can_reach(&own);
        let root = if direct {
            own
        } else {
            let digest = blake3::hash(own.as_os_str().as_encoded_bytes()).to_hex();
            Path::new("/var/tmp").join(format!("dbisect-{}", &digest[..8]))
        };
        make_dir(&root)?;
        Ok(Self { account, root, direct })
    }

    /// Directories that one server each works in.
    #[must_use]
    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// Loaded data directories.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// Logs of servers and clients that failed.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// Directory of all of these, for the host's fingerprint and the free space.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Prefix of a cached build that the account can reach: the entry itself, or a copy.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn installed(&self, entry: &Entry) -> anyhow::Result<PathBuf> {
        if entry.foreign {
            anyhow::ensure!(
                self.account.is_none() || Account::can_reach(&entry.install),
                "the account that servers run under cannot reach the installed server in {}; make it readable, or name another account in DBISECT_USER",
                entry.install.display()
            );
        }
        if self.direct || entry.foreign {
            return Ok(entry.install.clone());
        }
        let installs = self.root.join("installs");
        make_dir(&installs)?;
        let copy = installs.join(entry.key.as_str());
        if !copy.exists() {
            copy_data(&entry.install, &copy, None)?;
        } else if let Some(damage) = entry.manifest.damage(&copy) {
            anyhow::bail!("the copy of a build in {} is damaged ({damage}); remove it and try again", copy.display());
        }
        Ok(copy)
    }
}
