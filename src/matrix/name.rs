//! Names of cells in the field's own scheme (`facts/builds.md` section 6), written and read.
//!
//! `<dbms><version>_<build>[_lto][_<compiler>][_<yymmdd>][_<commit>[_<rocksdb>]][_<patch>...][_x<hash>].<config>[.<run mark>...]`,
//! for example `my8037_rel_lto.cz11a_bee`, `fbmy8032_rel_240606_59f03d5a.cza1_c8r32` and
//! `pg17beta1_def_hack100.cx9a2a_c32r128`.

use std::fmt;
use std::str::FromStr;

use super::axis::{BUILD_CONFIGURATIONS, INSTALLED};
use super::cell::Dbms;

/// What a name says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The server.
    pub dbms: Dbms,
    /// Released version, with its dots; empty where only a commit is known.
    pub version: String,
    /// Named build configuration.
    pub build: String,
    /// `full`, `thin`, or empty for none.
    pub lto: String,
    /// Compiler other than `gcc`, without dashes (`clang14`); empty for `gcc`.
    pub compiler: String,
    /// Day of the source, `yymmdd`.
    pub date: Option<String>,
    /// Abbreviated commit, or `rev-` and the name of a branch.
    pub commit: Option<String>,
    /// `RocksDB` that replaces the submodule: its version's digits or its abbreviated commit.
    pub rocksdb: Option<String>,
    /// Patches asked for.
    pub patches: Vec<String>,
    /// Digest of free-form flags.
    pub flags: Option<String>,
    /// Server configuration.
    pub config: String,
    /// Marks of run axes that the matrix varies, such as `dop8`.
    pub marks: Vec<String>,
}

impl Name {
    /// A commit as it stands in names: abbreviated ids as they are, full ones to ten digits, and the
    /// names of branches with what a file name cannot hold replaced.
    #[must_use]
    pub fn commit_mark(text: &str) -> String {
        if is_commit(text) {
            text[..text.len().min(10)].to_owned()
        } else {
            format!("rev-{}", text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect::<String>())
        }
    }

    /// `RocksDB` as it stands in names: `9.3.1` is `931`, a commit its first eight digits.
    #[must_use]
    pub fn rocksdb_mark(text: &str) -> String {
        if text.contains('.') { text.replace('.', "") } else { text[..text.len().min(8)].to_owned() }
    }
}

/// Seven digits or more, as git abbreviates; six in the posts.
fn is_commit(text: &str) -> bool {
    (6..=40).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit())
}

/// Digits of a version, run together; one that could not be read back keeps its dots as dashes.
fn squeeze(dbms: Dbms, version: &str) -> String {
    let plain = match dbms {
        Dbms::Mariadb => version.split('.').map(|part| format!("{part:0>2}")).collect::<String>(),
        Dbms::Mysql | Dbms::Myrocks | Dbms::Postgres => version.replace('.', ""),
    };
    if stretch(dbms, &plain) == version { plain } else { version.replace('.', "-") }
}

fn stretch(dbms: Dbms, digits: &str) -> String {
    if digits.contains('-') || digits.is_empty() {
        return digits.replace('-', ".");
    }
    let parts: Vec<&str> = match dbms {
        _ if !is_digits(digits) => vec![digits],
        Dbms::Postgres if digits.len() > 2 => vec![&digits[..2], &digits[2..]],
        Dbms::Mysql | Dbms::Myrocks if digits.len() > 2 => vec![&digits[..1], &digits[1..2], &digits[2..]],
        Dbms::Mysql | Dbms::Myrocks if digits.len() == 2 => vec![&digits[..1], &digits[1..]],
        Dbms::Mariadb if digits.len().is_multiple_of(2) => (0..digits.len()).step_by(2).map(|at| digits[at..at + 2].trim_start_matches('0')).collect(),
        _ => vec![digits],
    };
    parts.iter().map(|part| if part.is_empty() { "0" } else { part }).collect::<Vec<_>>().join(".")
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}_{}", self.dbms.prefix(), squeeze(self.dbms, &self.version), self.build)?;
        match self.lto.as_str() {
            "full" => f.write_str("_lto")?,
            "thin" => f.write_str("_thinlto")?,
            _ => {}
        }
        let compiler = (!self.compiler.is_empty()).then_some(&self.compiler);
        for part in compiler.into_iter().chain(&self.date).chain(&self.commit).chain(&self.rocksdb).chain(&self.patches) {
            write!(f, "_{part}")?;
        }
        if let Some(flags) = &self.flags {
            write!(f, "_x{flags}")?;
        }
        write!(f, ".{}", self.config)?;
        self.marks.iter().try_for_each(|mark| write!(f, ".{mark}"))
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("`{text}` is not the name of a cell: {what}; one is pg163_def_lto.cx9a2a_small");
        // Versions have no dots in names, so the first one ends the build.
        let (build, run) = text.split_once('.').ok_or_else(|| wrong("it has no dot before a config"))?;
        let (head, rest) = build.split_once('_').ok_or_else(|| wrong("it has no build configuration"))?;
        // The longest prefix first: `fbmy` ends with `my`.
        let mut all = Dbms::ALL;
        all.sort_by_key(|dbms| std::cmp::Reverse(dbms.prefix().len()));
        let dbms = all.into_iter().find(|dbms| head.starts_with(dbms.prefix())).ok_or_else(|| wrong("it begins with no dbms (my, fbmy, ma, pg)"))?;
        let version = stretch(dbms, &head[dbms.prefix().len()..]);
        let known = BUILD_CONFIGURATIONS
            .iter()
            .map(|(name, _)| *name)
            .chain([INSTALLED])
            .filter(|name| rest.strip_prefix(name).is_some_and(|after| after.is_empty() || after.starts_with('_')));
        let build = known.max_by_key(|name| name.len()).ok_or_else(|| wrong("its build configuration is not known"))?;
        let mut parts = rest[build.len()..].split('_').filter(|part| !part.is_empty()).peekable();
        let lto = match parts.peek() {
            Some(&"lto") => "full",
            Some(&"thinlto") => "thin",
            _ => "",
        };
        if !lto.is_empty() {
            parts.next();
        }
        let compiler = parts.next_if(|part| {
            let version = part.strip_prefix("gcc").or_else(|| part.strip_prefix("clang"));
            version.is_some_and(|version| version.is_empty() || is_digits(version))
        });
        let date = parts.next_if(|part| part.len() == 6 && is_digits(part));
        let commit = parts.next_if(|part| is_commit(part) || part.starts_with("rev-"));
        let rocksdb = if commit.is_some() && dbms == Dbms::Myrocks { parts.next_if(|part| is_digits(part) || is_commit(part)) } else { None };
        let mut patches: Vec<String> = parts.map(str::to_owned).collect();
        let flags = patches.last().and_then(|part| part.strip_prefix('x')).filter(|hash| is_commit(hash) && hash.len() == 6).map(str::to_owned);
        if flags.is_some() {
            patches.pop();
        }
        let mut run = run.split('.').map(str::to_owned);
        let config = run.next().filter(|config| config.starts_with('c')).ok_or_else(|| wrong("its config does not begin with c"))?;
        Ok(Self {
            dbms,
            version,
            build: build.to_owned(),
            lto: lto.to_owned(),
            compiler: compiler.unwrap_or_default().to_owned(),
            date: date.map(str::to_owned),
            commit: commit.map(str::to_owned),
            rocksdb: rocksdb.map(str::to_owned),
            patches,
            flags,
            config,
            marks: run.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_names_of_the_posts_are_read_and_written_again() {
        for (text, dbms, version) in [
            ("my8037_rel.cz11a_bee", Dbms::Mysql, "8.0.37"),
            ("my5651_rel_o2nofp_lto.cz11a_bee", Dbms::Mysql, "5.6.51"),
            ("my971_rel_clang14.cz11a_bee", Dbms::Mysql, "9.7.1"),
            ("fbmy8032_rel_240606_59f03d5a.cza1_c8r32", Dbms::Myrocks, "8.0.32"),
            ("fbmy5635_rel_231016_4f3a57a1_870.cza1_bee", Dbms::Myrocks, "5.6.35"),
            ("fbmy8028_rel_native_lto_c6c83b18_29005f0b.cza1_bee", Dbms::Myrocks, "8.0.28"),
            ("pg17beta1_def_hack100.cx9a2a_c32r128", Dbms::Postgres, "17beta1"),
            ("pg1023_o3_native_lto.cx9a2a_c32r128.dop8", Dbms::Postgres, "10.23"),
            ("pg_def_rev-master_x12ab34.cx9a2a_small", Dbms::Postgres, ""),
            ("ma101119_rel.cz11a_small.rocksdb", Dbms::Mariadb, "10.11.19"),
            ("ma110803_rel_thinlto_clang.cz11a_small", Dbms::Mariadb, "11.8.3"),
        ] {
            let name: Name = text.parse().unwrap();
            assert_eq!((name.dbms, name.version.as_str()), (dbms, version), "{text}");
            assert_eq!(name.to_string(), text);
        }
        let name: Name = "fbmy5635_rel_231016_4f3a57a1_870.cza1_bee".parse().unwrap();
        assert_eq!((name.date.as_deref(), name.commit.as_deref(), name.rocksdb.as_deref()), (Some("231016"), Some("4f3a57a1"), Some("870")));
    }

    #[test]
    fn what_is_no_name_says_why() {
        for (text, why) in
            [("pg163", "no dot"), ("pg163.cx", "no build"), ("xx1_def.cx", "no dbms"), ("pg163_what.cx", "not known"), ("pg163_def.x", "begin with c")]
        {
            let error = text.parse::<Name>().unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    proptest! {
        #[test]
        fn versions_come_back(major in 10_u32..30, minor in 0_u32..40, dbms in prop::sample::select(&Dbms::ALL[..]), patch in 0_u32..60) {
            let version = match dbms {
                Dbms::Postgres => format!("{major}.{minor}"),
                Dbms::Mariadb => format!("{major}.{minor}.{patch}"),
                Dbms::Mysql | Dbms::Myrocks => format!("{}.{minor}.{patch}", major % 10),
            };
            prop_assert_eq!(stretch(dbms, &squeeze(dbms, &version)), version);
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,40}") {
            let _ = text.parse::<Name>();
        }
    }
}
