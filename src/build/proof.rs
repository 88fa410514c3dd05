//! Flag proof: what the compiler recorded in the binary must match the cell.
//!
//! gcc writes its version and flags into every compilation unit's `DW_AT_producer`; clang does so
//! with `-grecord-command-line`. An "LTO" build without LTO is a failed build.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;

use object::{Object, ObjectSection};
use serde::{Deserialize, Serialize};

/// Link-time optimisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lto {
    /// None.
    Off,
    /// The whole program at once.
    Full,
    /// Summaries first, then modules in parallel (clang).
    Thin,
}

/// What the installed server must show. `None` means that the user's own flags decide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// The server's program, relative to the prefix.
    pub binary: String,
    /// clang rather than gcc.
    pub clang: bool,
    /// Optimisation level, such as `-O2`.
    pub level: Option<String>,
    /// Processor that code is generated for: `native`, a name, or none for any of the architecture;
    /// the outer `None` means that the user's own flags decide.
    pub march: Option<Option<String>>,
    /// Frame pointers kept.
    pub frame_pointers: Option<bool>,
    /// Link-time optimisation.
    pub lto: Lto,
}

impl Proof {
    /// Of a server that somebody else built: it is taken as it is.
    #[must_use]
    pub fn none() -> Self {
        Self { binary: String::new(), clang: false, level: None, march: None, frame_pointers: None, lto: Lto::Off }
    }

    /// Checks an installed tree; gives what the compiler recorded, one line per distinct record.
    ///
    /// # Errors
    /// A sentence that names the flag wanted and the record found.
    pub fn check(&self, prefix: &Path) -> Result<Vec<String>, String> {
        let binary = prefix.join(&self.binary);
        let producers = producers(&binary).map_err(|error| format!("cannot read the debug information of {}: {error}", self.binary))?;
        self.judge(&producers)?;
        Ok(producers.into_iter().collect())
    }

    /// Judges the records of all compilation units.
    fn judge(&self, producers: &BTreeSet<String>) -> Result<(), String> {
        let records: Vec<_> = producers.iter().map(|text| Record::of(text)).filter(|record| record.compiled).collect();
        if records.is_empty() {
            return Err(format!("{} has no record of its compiler, so its flags cannot be proved", self.binary));
        }
        let want = |holds: bool, what: &str, record: &Record| {
            if holds { Ok(()) } else { Err(format!("the cell asks for {what}, but {} was compiled by `{}`", self.binary, record.text)) }
        };
        for record in &records {
            want(record.clang == self.clang, if self.clang { "clang" } else { "gcc" }, record)?;
            if let Some(level) = &self.level {
                want(record.level() == Some(level), level, record)?;
            }
            if let Some(march) = &self.march {
                let holds = match march.as_deref() {
                    None => !record.is_special(),
                    Some("native") => record.is_special(),
                    Some(name) => record.march() == Some(name),
                };
                let wanted = march.as_ref().map_or_else(|| "code for any processor".to_owned(), |name| format!("-march={name}"));
                want(holds, &wanted, record)?;
            }
            if let Some(keep) = self.frame_pointers {
                want(record.keeps_frame_pointers() == keep, if keep { "frame pointers" } else { "no frame pointers" }, record)?;
            }
            want(record.is_lto() == (self.lto != Lto::Off), if record.is_lto() { "no LTO" } else { "LTO" }, record)?;
        }
        // Units that went through gcc's link-time optimiser are marked GIMPLE; flags alone would not
        // show a linker that fell back to plain objects.
        if self.lto != Lto::Off && !self.clang && !records.iter().any(Record::is_optimised_at_link) {
            return Err(format!("the cell asks for LTO, but no unit of {} went through the link-time optimiser", self.binary));
        }
        Ok(())
    }
}

/// One producer string, taken apart.
struct Record<'a> {
    text: &'a str,
    words: Vec<&'a str>,
    clang: bool,
    /// Written by a C or C++ compiler rather than by an assembler.
    compiled: bool,
}

impl<'a> Record<'a> {
    fn of(text: &'a str) -> Self {
        let clang = text.contains("clang version");
        let compiled = clang || text.starts_with("GNU C") || text.starts_with("GNU GIMPLE");
        Self { text, words: text.split_whitespace().collect(), clang, compiled }
    }

    /// The last word on it wins; all compilers here omit them when they optimise.
    fn keeps_frame_pointers(&self) -> bool {
        self.words.iter().rev().find(|word| word.ends_with("omit-frame-pointer")).is_some_and(|word| *word == "-fno-omit-frame-pointer")
    }

    /// Written by gcc's link-time optimiser, which does not repeat `-flto`.
    fn is_optimised_at_link(&self) -> bool {
        self.text.starts_with("GNU GIMPLE")
    }

    fn is_lto(&self) -> bool {
        self.is_optimised_at_link() || self.words.iter().any(|word| word.starts_with("-flto"))
    }

    /// The last level given wins, as it does for the compiler; `-O` alone is `-O1`.
    fn level(&self) -> Option<&str> {
        self.words.iter().rev().find(|word| word.starts_with("-O")).copied()
    }

    fn march(&self) -> Option<&str> {
        self.words.iter().rev().find_map(|word| word.strip_prefix("-march="))
    }

    /// gcc records what `native` stood for; code for any x86 processor has `-march=x86-64`, and
    /// clang records only what was asked for.
    fn is_special(&self) -> bool {
        self.march().is_some_and(|march| !matches!(march, "x86-64" | "armv8-a" | "generic"))
    }
}

fn producers(binary: &Path) -> anyhow::Result<BTreeSet<String>> {
    let bytes = std::fs::read(binary)?;
    let file = object::File::parse(&*bytes)?;
    let endian = if file.is_little_endian() { gimli::RunTimeEndian::Little } else { gimli::RunTimeEndian::Big };
    let load = |id: gimli::SectionId| -> anyhow::Result<Cow<'_, [u8]>> {
        Ok(file.section_by_name(id.name()).map(|section| section.uncompressed_data()).transpose()?.unwrap_or_default())
    };
    let sections = gimli::DwarfSections::load(load)?;
    let dwarf = sections.borrow(|section| gimli::EndianSlice::new(section, endian));
    let mut found = BTreeSet::new();
    let mut units = dwarf.units();
    while let Some(header) = units.next()? {
        let unit = dwarf.unit(header)?;
        let mut entries = unit.entries();
        let Some(entry) = entries.next_dfs()? else { continue };
        if let Some(attribute) = entry.attr(gimli::DW_AT_producer) {
            found.insert(dwarf.attr_string(&unit, attribute.value())?.to_string_lossy().into_owned());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(proof: &Proof, records: &[&str]) -> Result<(), String> {
        proof.judge(&records.iter().map(|text| (*text).to_owned()).collect())
    }

    fn plain() -> Proof {
        Proof { binary: "bin/postgres".to_owned(), clang: false, level: Some("-O2".to_owned()), march: Some(None), frame_pointers: None, lto: Lto::Off }
    }

    const GCC: &str = "GNU C17 12.2.0 -mtune=generic -march=x86-64 -g -O2 -fno-strict-aliasing";
    // As Debian's gcc 12.2 wrote it into an LTO build of Postgres 15.18, flags of warnings left out.
    const GCC_LTO: &str =
        "GNU GIMPLE 12.2.0 -msse4.2 -mtune=generic -march=x86-64 -g -g -O2 -O2 -fno-openmp -fno-openacc -fPIC -fno-strict-aliasing -fwrapv -fltrans";

    #[test]
    fn a_build_that_matches_passes() {
        judge(&plain(), &[GCC, "GNU AS 2.40"]).unwrap();
        judge(&Proof { lto: Lto::Full, ..plain() }, &[GCC_LTO]).unwrap();
    }

    #[test]
    fn each_lie_is_caught() {
        let lies = [
            (Proof { lto: Lto::Full, ..plain() }, GCC, "LTO"),
            (plain(), GCC_LTO, "no LTO"),
            (Proof { lto: Lto::Full, ..plain() }, "GNU C17 12.2.0 -mtune=generic -march=x86-64 -g -O2 -flto", "link-time optimiser"),
            (Proof { level: Some("-O3".to_owned()), ..plain() }, GCC, "-O3"),
            (Proof { march: Some(Some("native".to_owned())), ..plain() }, GCC, "-march=native"),
            (plain(), "GNU C17 12.2.0 -march=znver3 -g -O2", "any processor"),
            (Proof { march: Some(Some("x86-64-v3".to_owned())), ..plain() }, GCC, "-march=x86-64-v3"),
            (Proof { frame_pointers: Some(false), ..plain() }, "GNU C17 12.2.0 -march=x86-64 -O2 -fno-omit-frame-pointer", "no frame pointers"),
            (Proof { frame_pointers: Some(true), ..plain() }, GCC, "frame pointers"),
            (Proof { clang: true, ..plain() }, GCC, "clang"),
            (plain(), "Debian clang version 14.0.6 /usr/bin/clang -O2", "gcc"),
        ];
        for (proof, record, wanted) in lies {
            let error = judge(&proof, &[record]).unwrap_err();
            assert!(error.contains(wanted), "{record}: {error}");
        }
        assert!(judge(&plain(), &["GNU AS 2.40"]).is_err(), "a binary without records proves nothing");
    }

    #[test]
    fn the_last_level_given_counts() {
        judge(&plain(), &["GNU C17 12.2.0 -march=x86-64 -O3 -O2"]).unwrap();
        assert!(judge(&plain(), &["GNU C17 12.2.0 -march=x86-64 -O2 -O3"]).is_err());
    }
}
