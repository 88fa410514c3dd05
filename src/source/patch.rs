//! Patch files: the header that says why they exist and where they apply, and the decision whether
//! they apply to a tree. `patches/README.md` is the description for those who write them.

use std::path::Path;

use anyhow::Context;

use super::tree::AppliedPatch;
use super::version::Version;
use crate::matrix::{ConfigurationError, Dbms, nearest};

/// A patch file, read and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PatchFile {
    pub name: String,
    pub digest: String,
    pub why: String,
    pub range: Range,
    /// The diff.
    pub body: Vec<u8>,
}

/// The trees a patch is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Range {
    Any,
    /// Pairs of first and last, both included; each may be a series.
    Versions(Vec<(Version, Version)>),
    /// git's `from..to`.
    Commits { from: String, to: String },
}

/// Field names of the header, all required.
const FIELDS: [&str; 3] = ["Why", "Dbms", "Range"];

impl PatchFile {
    /// Reads `patches/<dbms>/<name>.patch`.
    ///
    /// # Errors
    /// [`ConfigurationError`] when there is no such file or its header does not say what it must.
    pub(super) fn read(patches: &Path, dbms: Dbms, name: &str) -> anyhow::Result<Self> {
        let dir = patches.join(dbms.name());
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
            return Err(ConfigurationError::new(format!("`{name}` is not the name of a patch; {}", available(&dir, name)?)).into());
        }
        let path = dir.join(format!("{name}.patch"));
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Self::parse(&bytes, dbms, name).map_err(|reason| ConfigurationError::new(format!("the patch {} {reason}", path.display())))?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(ConfigurationError::new(format!("there is no patch {}; {}", path.display(), available(&dir, name)?)).into())
            }
            Err(error) => Err(error).with_context(|| format!("cannot read the patch {}", path.display())),
        }
    }

    fn parse(bytes: &[u8], dbms: Dbms, name: &str) -> Result<Self, String> {
        let (header, body) = split(bytes).ok_or("has no diff; a line `diff --git ...` must follow the header")?;
        let header = std::str::from_utf8(header).map_err(|_| "has a header that is not UTF-8")?;
        let [why, owner, range] = FIELDS.map(|name| field(header, name));
        let missing = FIELDS.iter().zip([&why, &owner, &range]).filter(|(_, value)| value.is_none()).map(|(name, _)| format!("`{name}:`")).collect::<Vec<_>>();
        let (Some(why), Some(owner), Some(range)) = (why, owner, range) else {
            return Err(format!("lacks {} in its header; the header needs Why, Dbms and Range, each with a value", missing.join(" and ")));
        };
        if owner != dbms.name() {
            return Err(format!("is for `{owner}` by its header and lies with the patches of {dbms}"));
        }
        let range = Range::parse(&range)?;
        Ok(Self { name: name.to_owned(), digest: blake3::hash(bytes).to_hex().to_string(), why, range, body: body.to_vec() })
    }

    /// What a tree remembers of the patch.
    pub(super) fn applied(&self) -> AppliedPatch {
        AppliedPatch { name: self.name.clone(), digest: self.digest.clone(), why: self.why.clone() }
    }
}

impl Range {
    fn parse(text: &str) -> Result<Self, String> {
        let unknown = || format!("has the range `{text}`, which is none of: any, versions such as 16, 10-15, 11.19-11.22 or 17beta1 (several with commas), or commits A..B");
        if text == "any" {
            return Ok(Self::Any);
        }
        if let Some((from, to)) = text.split_once("..") {
            let plain = |end: &str| !end.is_empty() && !end.starts_with(['.', '-']) && !end.contains("..") && !end.contains(char::is_whitespace);
            return if plain(from) && plain(to) { Ok(Self::Commits { from: from.to_owned(), to: to.to_owned() }) } else { Err(unknown()) };
        }
        let pair = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (Version::parse(first.trim())?, Version::parse(last.trim())?);
            // `15-10` and `16.3-16.1` would silently cover nothing; `16.3-16` covers the rest of 16.
            (first.against(&last).is_le()).then_some((first, last))
        };
        text.split(',').map(|part| pair(part.trim())).collect::<Option<Vec<_>>>().map(Self::Versions).ok_or_else(unknown)
    }

    /// Whether a version lies in a range of versions.
    pub(super) fn covers(pairs: &[(Version, Version)], version: &Version) -> bool {
        pairs.iter().any(|(first, last)| version.against(first).is_ge() && version.against(last).is_le())
    }
}

/// Header and diff.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(b"diff --git ") || line.starts_with(b"--- ") {
            return Some(bytes.split_at(at));
        }
        at += line.len();
    }
    None
}

/// Value of a header field: the rest of its line and the indented lines that follow.
fn field(header: &str, name: &str) -> Option<String> {
    let mut lines = header.lines().skip_while(|line| line.strip_prefix(name).is_none_or(|rest| !rest.starts_with(':')));
    let first = lines.next()?.split_once(':')?.1;
    let rest = lines.take_while(|line| line.starts_with([' ', '\t']));
    let value = std::iter::once(first).chain(rest).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
    (!value.is_empty()).then_some(value)
}

fn available(dir: &Path, name: &str) -> anyhow::Result<String> {
    let mut names = Vec::new();
    match dir.read_dir() {
        Ok(entries) => {
            for entry in entries {
                let file = entry.with_context(|| format!("cannot list {}", dir.display()))?.file_name();
                names.extend(file.to_str().and_then(|file| file.strip_suffix(".patch")).map(str::to_owned));
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("cannot list {}", dir.display())),
    }
    names.sort();
    let hint = nearest(name, names.iter().map(String::as_str)).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    Ok(if names.is_empty() { format!("there are no patches in {}", dir.display()) } else { format!("there are {}{hint}", names.join(", ")) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIFF: &str = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n";

    fn parse(header: &str) -> Result<PatchFile, String> {
        PatchFile::parse(format!("{header}{DIFF}").as_bytes(), Dbms::Postgres, "p")
    }

    #[test]
    fn the_header_is_read_with_continued_lines() {
        let patch = parse("Subject: x\nWhy: one\n  two\nDbms: postgres\nRange: 10-15, 17beta1\n\n").unwrap();
        assert_eq!((patch.why.as_str(), patch.body.as_slice()), ("one two", DIFF.as_bytes()));
        assert!(matches!(patch.range, Range::Versions(pairs) if pairs.len() == 2));
    }

    #[test]
    fn what_the_header_lacks_is_named() {
        for (header, named) in [
            ("Dbms: postgres\nRange: any\n", "`Why:`"),
            ("Why:\nDbms: postgres\nRange: any\n", "`Why:`"),
            ("Why: x\n", "`Dbms:` and `Range:`"),
            ("Why: x\nDbms: mysql\nRange: any\n", "is for `mysql`"),
            ("Why: x\nDbms: postgres\nRange: newer\n", "has the range `newer`"),
        ] {
            let error = parse(header).unwrap_err();
            assert!(error.contains(named), "{header:?}: {error}");
        }
        assert!(PatchFile::parse(b"Why: x\n", Dbms::Postgres, "p").unwrap_err().contains("has no diff"));
    }

    #[test]
    fn ranges_cover_what_they_say() {
        let covers = |range: &str, version: &str| match Range::parse(range).unwrap() {
            Range::Versions(pairs) => Range::covers(&pairs, &Version::parse(version).unwrap()),
            _ => panic!("{range} is not a range of versions"),
        };
        for (range, inside, outside) in [
            ("10-15", &["10.0", "12.4", "15.18"][..], &["9.6.24", "16beta1", "16.0"][..]),
            ("16", &["16devel", "16beta1", "16.0", "16.13"], &["15.9", "17devel", "17.0"]),
            ("17beta1", &["17beta1"], &["17beta2", "17.0", "17devel"]),
            ("11.19-11.22", &["11.19", "11.22"], &["11.18", "11.23", "12.0"]),
            ("9.6, 16.3", &["9.6.1", "16.3"], &["9.5.1", "16.2", "16.30"]),
        ] {
            assert!(inside.iter().all(|version| covers(range, version)), "{range}");
            assert!(!outside.iter().any(|version| covers(range, version)), "{range}");
        }
    }

    #[test]
    fn ranges_that_mean_nothing_are_refused() {
        for range in ["", "-", "15-10", "16.3-16.1", "a", "10-", "-15", "..", "A..", "..B", "A...B", "--x..B", "10,,11", "any,16"] {
            assert!(Range::parse(range).is_err(), "{range}");
        }
        assert_eq!(Range::parse("REL_16_3..1a2b3c4"), Ok(Range::Commits { from: "REL_16_3".to_owned(), to: "1a2b3c4".to_owned() }));
    }

    #[test]
    fn a_missing_patch_lists_what_there_is() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("postgres")).unwrap();
        std::fs::write(dir.path().join("postgres/hack100.patch"), "").unwrap();
        for name in ["hack10", "../hack100", "", "a/b"] {
            let error = PatchFile::read(dir.path(), Dbms::Postgres, name).unwrap_err();
            assert!(error.is::<ConfigurationError>() && error.to_string().contains("hack100"), "{name}: {error}");
        }
        assert!(PatchFile::read(dir.path(), Dbms::Mysql, "x").unwrap_err().to_string().contains("there are no patches"));
    }

    proptest! {
        #[test]
        fn no_patch_file_panics(text in "(Why|Dbms|Range|diff --git|--- |: |\\.\\.|-|\n|\\PC){0,20}") {
            let _ = PatchFile::parse(text.as_bytes(), Dbms::Postgres, "p");
            let _ = Range::parse(&text);
        }
    }
}
