//! The unprivileged account that servers and clients run under when dbisect is started as root.

use std::path::Path;

use nix::unistd::{Gid, Uid, User, chown};

/// A user and group that a child process runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Login name, as servers such as Postgres report it.
    pub name: String,
    /// Numeric user id.
    pub uid: u32,
    /// Numeric group id.
    pub gid: u32,
}

impl Account {
    /// The account servers must be given: `None` when dbisect itself is unprivileged, otherwise
    /// `$DBISECT_USER`, or `nobody`.
    ///
    /// # Errors
    /// When the account named does not exist or is itself root.
    pub fn for_servers() -> anyhow::Result<Option<Self>> {
        if !Uid::effective().is_root() {
            return Ok(None);
        }
        let name = std::env::var("DBISECT_USER").unwrap_or_else(|_| "nobody".to_owned());
        let user = User::from_name(&name)?.ok_or_else(|| {
            anyhow::anyhow!("started as root, so servers need an unprivileged account, but there is no user `{name}`; set DBISECT_USER to one that exists")
        })?;
        anyhow::ensure!(!user.uid.is_root(), "DBISECT_USER names root, and servers refuse to run as root; name an unprivileged user");
        Ok(Some(Self { name, uid: user.uid.as_raw(), gid: user.gid.as_raw() }))
    }

    /// Name of the account that a server will run as: this one, or the caller's own.
    ///
    /// # Errors
    /// When the caller's user id has no name.
    pub fn name_or_own(account: Option<&Self>) -> anyhow::Result<String> {
        if let Some(account) = account {
            return Ok(account.name.clone());
        }
        let uid = Uid::effective();
        let user =
            User::from_uid(uid)?.ok_or_else(|| anyhow::anyhow!("user id {uid} has no entry in the user database, and database servers need a user name"))?;
        Ok(user.name)
    }

    /// Hands one file or directory over to the account; links are not followed into their target.
    ///
    /// # Errors
    /// When the owner cannot be changed.
    pub fn own(&self, path: &Path) -> anyhow::Result<()> {
        chown(path, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)))
            .map_err(|error| anyhow::anyhow!("cannot give {} to user {}: {error}", path.display(), self.name))
    }

    /// Whether the account may pass through every directory down to `path` (world-executable all
    /// the way, which is the only case we can rely on for a foreign account).
    #[must_use]
    pub fn can_reach(path: &Path) -> bool {
        use std::os::unix::fs::PermissionsExt;
        path.ancestors().all(|dir| std::fs::metadata(dir).map_or(dir.as_os_str().is_empty(), |meta| !meta.is_dir() || meta.permissions().mode() & 0o001 != 0))
    }
}
