//! One point of the matrix, and the words it is made of.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::axis::{AxisKind, axis};

/// A database management system that dbisect knows by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dbms {
    /// Upstream MySQL with InnoDB.
    Mysql,
    /// Facebook's MySQL with RocksDB.
    Myrocks,
    /// MariaDB with InnoDB or RocksDB.
    Mariadb,
    /// PostgreSQL.
    Postgres,
}

impl Dbms {
    /// Every dbms, in the order of the design's table.
    pub const ALL: [Self; 4] = [Self::Mysql, Self::Myrocks, Self::Mariadb, Self::Postgres];

    /// Name as written in a matrix.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mysql => "mysql",
            Self::Myrocks => "myrocks",
            Self::Mariadb => "mariadb",
            Self::Postgres => "postgres",
        }
    }

    /// Prefix of build names in the field's own scheme (`facts/builds.md` section 6.1).
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Mysql => "my",
            Self::Myrocks => "fbmy",
            Self::Mariadb => "ma",
            Self::Postgres => "pg",
        }
    }
}

impl fmt::Display for Dbms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Storage engine of the benchmark's tables, in the MySQL family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StorageEngine {
    /// The default of MySQL and MariaDB.
    Innodb,
    /// MyRocks: the default of FB MySQL, a plugin of MariaDB.
    Rocksdb,
}

impl StorageEngine {
    /// Name as the servers and sysbench know it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Innodb => "innodb",
            Self::Rocksdb => "rocksdb",
        }
    }
}

/// Which state of the source: a released version, or a commit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Revision {
    /// A released name such as `16.3`, `17beta1`, or a series such as `15`.
    Version(String),
    /// A git commit (full or abbreviated), branch or tag.
    Commit(String),
}

impl Revision {
    /// The words of the matrix.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Version(text) | Self::Commit(text) => text,
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Where the code comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum SourceSpec {
    /// A git repository, mirrored in the cache.
    Git {
        /// Address or local path; `None` is the upstream of the dbms.
        remote: Option<String>,
    },
    /// The upstream tarball of the distribution's source package.
    Debian {
        /// Source package such as `postgresql-15`.
        package: String,
        /// Suite such as `bookworm`; `None` is the system's own.
        suite: Option<String>,
    },
    /// A local source tree, taken as it is.
    Path {
        /// Its top directory.
        path: PathBuf,
    },
    /// A server that somebody else built and installed.
    Installed {
        /// Directory with its `bin` or `sbin`, such as `/usr/lib/postgresql/15`.
        prefix: PathBuf,
    },
}

/// One point of the matrix: what to build, and how to run it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// Build and config name in the field's scheme, for example `pg15_o2nofp_lto.cx9a2a_small`.
    pub name: String,
    /// The server.
    pub dbms: Dbms,
    /// The state of its source.
    pub revision: Revision,
    /// Where the source comes from.
    pub source: SourceSpec,
    /// Released version that the commit belongs to, such as `8.0.32`, where the matrix says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// Day of the source, `yymmdd`, for the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// Names of patches asked for, in order; the files are `patches/<dbms>/<name>.patch`.
    pub patches: Vec<String>,
    /// One value per axis, build axes and run axes together.
    pub axes: BTreeMap<String, String>,
}

impl Cell {
    /// Value of an axis; the axis' default when the matrix does not name it.
    #[must_use]
    pub fn axis(&self, name: &str) -> &str {
        self.axes.get(name).map_or_else(|| axis(name).map_or("", |axis| axis.default), String::as_str)
    }

    /// The axes of one kind, with their values.
    pub fn axes_of(&self, kind: AxisKind) -> impl Iterator<Item = (&str, &str)> {
        self.axes.iter().filter(move |(name, _)| axis(name).is_some_and(|axis| axis.kind == kind)).map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Storage engine of the benchmark's tables; `None` for Postgres, which has one.
    #[must_use]
    pub fn storage_engine(&self) -> Option<StorageEngine> {
        match (self.dbms, self.axis("engine")) {
            (Dbms::Postgres, _) => None,
            (Dbms::Myrocks, "default") | (_, "rocksdb") => Some(StorageEngine::Rocksdb),
            _ => Some(StorageEngine::Innodb),
        }
    }

    /// The part of the name that names the build: everything before the first dot that precedes
    /// the config.
    #[must_use]
    pub fn build_name(&self) -> &str {
        self.name.split_once(".c").map_or(self.name.as_str(), |(build, _)| build)
    }
}
