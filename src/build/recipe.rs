//! What is done to a tree to get an installed server: argument vectors with placeholders for paths,
//! so that the recipe is the same on every machine and can be part of the build key.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::matrix::{Cell, Dbms};

use crate::source::Archive;

use super::mysql;
use super::postgres;
use super::proof::Proof;

/// Prefix that every server is configured for. Nothing is ever installed there: `DESTDIR` moves the
/// files into the staging directory, and the servers find their files relative to their programs.
pub const NEUTRAL_PREFIX: &str = "/usr/local/dbisect";

/// Stands for dbisect's own program as the first argument of a step.
pub const DBISECT: &str = "{dbisect}";

/// Where a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// The build directory, which is outside the source tree.
    Build,
    /// The directory that holds source and build tree.
    Work,
}

/// One command of a recipe. `{src}`, `{work}` and `{stage}` in its arguments, and in the environment,
/// stand for the source tree, the directory that holds source and build tree, and the staging
/// directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Short name for progress and messages: `configure`, `compile`, `install`.
    pub name: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Where it runs.
    pub place: Place,
    /// Words in the output that mean failure although the program does not say so.
    pub refuses: Option<String>,
}

/// Programs, libraries and headers whose content can change the result.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tools {
    /// C compiler as called.
    pub cc: String,
    /// Other programs as called.
    pub programs: Vec<String>,
    /// Libraries linked, by the name that follows `-l`.
    pub libraries: Vec<String>,
    /// System headers included.
    pub headers: Vec<String>,
    /// Whether code is generated for the processor of this machine.
    pub native: bool,
}

/// How a cell is built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    /// Commands in order.
    pub steps: Vec<Step>,
    /// The whole environment besides PATH, TMPDIR and the job budget, which cannot change the result.
    pub env: BTreeMap<String, String>,
    /// What it is built with.
    pub tools: Tools,
    /// What the installed binary must show about how it was compiled.
    pub proof: Proof,
    /// Archives unpacked beside the source, below `{work}/archives/`.
    pub archives: Vec<Archive>,
    /// Directories of the tree whose C files are compiled; their number makes the progress bar.
    pub compiled: Vec<String>,
}

impl Recipe {
    /// For a server that somebody else built.
    #[must_use]
    pub fn nothing_to_do() -> Self {
        let tools = Tools { cc: String::new(), programs: Vec::new(), libraries: Vec::new(), headers: Vec::new(), native: false };
        Self { steps: Vec::new(), env: BTreeMap::new(), tools, proof: Proof::none(), archives: Vec::new(), compiled: Vec::new() }
    }
}

/// What a recipe may ask of the tree: the text of a file, or `None` when there is no such file.
pub type ReadFile<'a> = dyn Fn(&str) -> anyhow::Result<Option<String>> + 'a;

/// The recipe of a cell for a tree of the given version (`16.3`, `17beta1`, `18devel`).
///
/// # Errors
/// [`ConfigurationError`] when the dbms cannot be built yet or the version cannot be understood.
pub fn recipe(cell: &Cell, version: &str, read: &ReadFile) -> anyhow::Result<Recipe> {
    match cell.dbms {
        Dbms::Postgres => Ok(postgres::recipe(cell, version)?),
        Dbms::Mysql | Dbms::Myrocks | Dbms::Mariadb => mysql::recipe(cell, version, read),
    }
}

/// Whether a file of the tree can matter to the server's build. The others are not even checked
/// out, so that they cannot matter by accident, and commits that change only them are one build.
#[must_use]
pub fn keeps(dbms: Dbms, path: &str) -> bool {
    match dbms {
        Dbms::Postgres => postgres::keeps(path),
        Dbms::Mysql | Dbms::Myrocks | Dbms::Mariadb => mysql::keeps(path),
    }
}
