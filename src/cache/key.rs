//! The build key: one named struct, one hash function, a format version, and a test per field.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::build::{Recipe, Toolchain};
use crate::matrix::Dbms;
use crate::source::AppliedPatch;

/// Version of the meaning of the key. Raise it when the same inputs would be built differently; old
/// entries then no longer match and are pruned in time.
pub const FORMAT: u32 = 2;

/// Everything that can change a build. File times, the checkout's path, user names and the number
/// of jobs cannot, and are not here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildInputs {
    /// [`FORMAT`] when the key was made.
    pub format: u32,
    /// The server.
    pub dbms: Dbms,
    /// Digest of the files of the tree that the build reads, after patches, those of submodules
    /// among them. Revisions that differ in
    /// other files only are one build.
    pub source: String,
    /// Patches applied, in order.
    pub patches: Vec<AppliedPatch>,
    /// Commands, environment, and what must be proved.
    pub recipe: Recipe,
    /// Build axis to value.
    pub axes: BTreeMap<String, String>,
    /// The toolchain by content.
    pub toolchain: Toolchain,
    /// Machine architecture, such as `x86_64`.
    pub architecture: String,
}

/// BLAKE3 of the canonical JSON of [`BuildInputs`], 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BuildKey(String);

impl BuildKey {
    /// All 64 digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Enough digits for people.
    #[must_use]
    pub fn short(&self) -> &str {
        &self.0[..12]
    }

    /// A key from its digits, as read from a directory name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == 64 && text.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))).then(|| Self(text.to_owned()))
    }
}

impl fmt::Display for BuildKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl BuildInputs {
    /// JSON with sorted keys, which is hashed and kept in the entry.
    #[must_use]
    pub fn canonical_json(&self) -> String {
        // serde_json's own map is sorted; going through it sorts struct fields as well, so that moving
        // a field in the source does not change any key.
        let value = serde_json::to_value(self).unwrap_or_else(|error| unreachable!("plain data always serialises: {error}"));
        value.to_string()
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> BuildKey {
        BuildKey(blake3::hash(self.canonical_json().as_bytes()).to_hex().to_string())
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::build::recipe;
    use crate::matrix::Matrix;

    pub fn inputs() -> BuildInputs {
        let text = "[[target]]\ndbms = \"postgres\"\nversions = [\"16.3\"]\nsource = \"git\"\n";
        let cell = Matrix::parse(text, std::path::Path::new("t.toml"), &[]).unwrap().cells().unwrap().remove(0);
        BuildInputs {
            format: FORMAT,
            dbms: Dbms::Postgres,
            source: "5".repeat(64),
            patches: vec![AppliedPatch { name: "hack100".to_owned(), digest: "b".repeat(64), why: "limit".to_owned() }],
            recipe: recipe(&cell, "16.3", &|_| Ok(None)).unwrap(),
            axes: BTreeMap::from([("lto".to_owned(), "off".to_owned())]),
            toolchain: Toolchain { compiler: "gcc 12".to_owned(), parts: BTreeMap::from([("program:cc1".to_owned(), "c".repeat(64))]) },
            architecture: "x86_64".to_owned(),
        }
    }

    fn differs(change: impl FnOnce(&mut BuildInputs)) {
        let mut other = inputs();
        change(&mut other);
        assert_ne!(inputs().key(), other.key());
    }

    #[test]
    fn equal_inputs_have_equal_keys() {
        assert_eq!(inputs().key(), inputs().key());
        let text = inputs().canonical_json();
        let back: BuildInputs = serde_json::from_str(&text).unwrap();
        assert_eq!((back.key(), back.canonical_json()), (inputs().key(), text));
    }

    #[test]
    fn the_format_is_in_the_key() {
        differs(|inputs| inputs.format += 1);
    }

    #[test]
    fn the_dbms_is_in_the_key() {
        differs(|inputs| inputs.dbms = Dbms::Mysql);
    }

    #[test]
    fn the_source_is_in_the_key() {
        differs(|inputs| inputs.source = "6".repeat(64));
    }

    #[test]
    fn patches_are_in_the_key() {
        differs(|inputs| inputs.patches.clear());
        differs(|inputs| inputs.patches[0].digest = "d".repeat(64));
    }

    #[test]
    fn recipe_steps_are_in_the_key() {
        differs(|inputs| inputs.recipe.steps[0].argv.push("--with-openssl".to_owned()));
        differs(|inputs| drop(inputs.recipe.steps.pop()));
    }

    #[test]
    fn the_allowed_environment_is_in_the_key() {
        differs(|inputs| drop(inputs.recipe.env.insert("LC_ALL".to_owned(), "de_DE".to_owned())));
    }

    #[test]
    fn the_proof_is_in_the_key() {
        differs(|inputs| inputs.recipe.proof.frame_pointers = Some(true));
    }

    #[test]
    fn build_axes_are_in_the_key() {
        differs(|inputs| drop(inputs.axes.insert("lto".to_owned(), "full".to_owned())));
    }

    #[test]
    fn toolchain_content_is_in_the_key() {
        differs(|inputs| drop(inputs.toolchain.parts.insert("program:cc1".to_owned(), "e".repeat(64))));
        differs(|inputs| drop(inputs.toolchain.parts.insert("linked:libz.so".to_owned(), "e".repeat(64))));
    }

    #[test]
    fn the_architecture_is_in_the_key() {
        differs(|inputs| inputs.architecture = "aarch64".to_owned());
    }
}
